/** Records `cond`: traces both branches and writes one control-flow operator. */

import { checkKinds } from '../../arguments.ts';
import { internalError } from '../../errors.ts';
import { ref } from '../../graph/value.ts';
import { sourcePosition } from '../errors/position.ts';
import { refusal } from '../errors/refusal.ts';
import { needRecorder, type Recorder, recordInto, type TracedValue } from '../record/recorder.ts';
import { type HostValue, leavesOf, type Tree } from '../record/tree.ts';
import { valueText } from '../record/typed-value.ts';
import { describe, TensorCore, tracedValue } from '../tensor/core.ts';
import type { Tensor } from '../tensor/tensor.ts';
import {
  captures,
  finishBody,
  hostText,
  operandRefs,
  resultLike,
  scalar,
  tensorsOf,
  traceBody,
  treeTypes,
} from './body.ts';

/** The values that a body may return: tensors and host constants, nested in lists and records. */
export type BodyTree =
  Tensor | HostValue | readonly BodyTree[] | { readonly [key: string]: BodyTree };

/** Facts about a condition, for costs. */
export interface CondOptions {
  /**
   * How often the predicate is true, 0 to 1: costs are weighted by it. Without it the more
   * expensive branch counts whole.
   */
  readonly prob?: number;
}

/**
 * `pred ? onTrue(...operands) : onFalse(...operands)` as one operator that decides when the program
 * runs. Both branches are traced; outer tensors that they read become operands. A host boolean
 * decides now, and the graph says so in a note.
 *
 * @param pred bool, no dims
 * @returns what the branches return: equal trees, shapes and dtypes
 * @throws E_COND_PRED, E_COND_BRANCH_MISMATCH, E_HOP_MUTATION
 */
export function cond<T extends BodyTree>(
  pred: Tensor | boolean,
  onTrue: (...operands: Tensor[]) => T,
  onFalse: (...operands: Tensor[]) => T,
  operands: readonly Tensor[] = [],
  options: CondOptions = {},
): T {
  return condAny(
    pred,
    onTrue,
    onFalse,
    operands,
    sourcePosition(),
    'explicit operator',
    options,
  ) as T;
}

/** `cond` without the types of its branches; `position` is what the report says. */
export function condAny(
  pred: unknown,
  onTrue: (...operands: Tensor[]) => unknown,
  onFalse: (...operands: Tensor[]) => unknown,
  operands: readonly Tensor[],
  position: string | undefined,
  reason = 'explicit operator',
  options: CondOptions = {},
): unknown {
  checkKinds('cond', {
    onTrue: [onTrue, 'function'],
    onFalse: [onFalse, 'function'],
    operands: [operands, 'list'],
    options: [options, 'record'],
  });
  const { prob } = options;
  const recorder = needRecorder('cond()');
  const { trace } = recorder;
  if (prob !== undefined && !(prob >= 0 && prob <= 1))
    throw refusal(
      'E_COND_PRED',
      `the probability of cond is a number from 0 to 1, but is ${prob}`,
      trace.place(),
    );
  if (typeof pred === 'boolean') {
    noteHostPredicate(recorder, pred, position);
    return (pred ? onTrue : onFalse)(...operands);
  }
  const test = predicate(recorder, pred, 'E_COND_PRED', 'the predicate of cond');
  const given = operands.map((operand) =>
    recorder.own(valueOf(operand, 'an operand of cond'), 'cond'),
  );
  const branch = (
    name: string,
    fn: (...inputs: Tensor[]) => unknown,
    shared: Iterable<TracedValue>,
  ) =>
    traceBody(
      recorder,
      bodyName(recorder, name),
      given,
      (inputs) => fn(...inputs.map(asTensor)),
      shared,
    );
  const yes = branch('true', onTrue, []);
  const no = branch('false', onFalse, yes.recorder.captured.keys());
  const merged = new Merge(yes.recorder, no.recorder, yes.result, no.result);
  const tree = merged.run();
  const read = captures([yes, no]);
  const all = [...given, ...read];
  const results = merged.yes.map((value) => resultLike(value, all));
  const onTrueName = recorder.subgraph(yes.recorder.name, finishBody(yes, merged.yes));
  const onFalseName = recorder.subgraph(no.recorder.name, finishBody(no, merged.no));
  const made = recorder.controlCall(
    'cond',
    [
      ref(test.name),
      { kind: 'graph', name: onTrueName },
      { kind: 'graph', name: onFalseName },
      operandRefs(recorder, all, 'cond'),
    ],
    results,
    prob === undefined ? {} : { prob: { kind: 'float', value: prob } },
  );
  note(recorder, 'cond', 'operators', reason, position);
  return tensorsOf(numbered(tree, made));
}

/** Says that one branch alone is recorded. */
function noteHostPredicate(recorder: Recorder, pred: boolean, position: string | undefined): void {
  const taken = pred ? 'true' : 'false';
  recorder.trace.notes.push(
    `cond at ${position ?? 'an unknown place'} has a host predicate, ${taken}: only that ` +
      'branch is recorded',
  );
  note(recorder, 'cond', 'guards', `the predicate is the host boolean ${taken}`, position);
}

/**
 * Brings the results of two branches together: tensors of equal types, host constants of equal
 * values.
 */
class Merge {
  readonly yes: TracedValue[] = [];
  readonly no: TracedValue[] = [];

  constructor(
    private readonly onTrue: Recorder,
    private readonly onFalse: Recorder,
    private readonly a: Tree<TracedValue>,
    private readonly b: Tree<TracedValue>,
  ) {}

  /** The common tree; a leaf is the number of a result. */
  run(): Tree<number> {
    return this.merge(this.a, this.b);
  }

  private merge(a: Tree<TracedValue>, b: Tree<TracedValue>): Tree<number> {
    if (a.kind === 'list' && b.kind === 'list') {
      if (a.items.length !== b.items.length)
        throw this.mismatch(`lists of ${a.items.length} and ${b.items.length}`);
      return { kind: 'list', items: a.items.map((item, i) => this.merge(item, b.items[i])) };
    }
    if (a.kind === 'record' && b.kind === 'record') {
      const keys = (entries: readonly (readonly [string, unknown])[]): string =>
        entries.map(([key]) => key).join(', ');
      if (keys(a.entries) !== keys(b.entries))
        throw this.mismatch(`records with {${keys(a.entries)}} and {${keys(b.entries)}}`);
      return {
        kind: 'record',
        entries: a.entries.map(
          ([key, inner], i) => [key, this.merge(inner, b.entries[i][1])] as const,
        ),
      };
    }
    if (a.kind === 'host' && b.kind === 'host' && Object.is(a.value, b.value)) return a;
    if ((a.kind !== 'leaf' && a.kind !== 'host') || (b.kind !== 'leaf' && b.kind !== 'host'))
      throw this.mismatch('values of different structure');
    const left = this.leaf(this.onTrue, a, b);
    const right = this.leaf(this.onFalse, b, a);
    if (valueText(left) !== valueText(right))
      throw this.mismatch(
        `${valueText(left)} and ${valueText(right)}${a.path === '' ? '' : ` for '${a.path}'`}`,
      );
    this.yes.push(left);
    this.no.push(right);
    return { kind: 'leaf', path: a.path, leaf: this.yes.length - 1 };
  }

  private leaf(
    recorder: Recorder,
    tree: Extract<Tree<TracedValue>, { path: string }>,
    other: Tree<TracedValue>,
  ): TracedValue {
    if (tree.kind === 'leaf') return tree.leaf;
    const { value } = tree;
    if (typeof value !== 'number' && typeof value !== 'boolean')
      throw this.mismatch(`${hostText(value)} and another value`);
    return recordInto(recorder, () =>
      scalar(recorder, value, other.kind === 'leaf' ? other.leaf.dtype : undefined),
    );
  }

  private mismatch(what: string): Error {
    const { trace } = this.onTrue;
    const types = `true returns ${treeTypes(this.a)}, false returns ${treeTypes(this.b)}`;
    return refusal(
      'E_COND_BRANCH_MISMATCH',
      `the branches of cond return ${what}: ${types}`,
      trace.place(),
      {
        hint:
          'both branches must return the same structure with the same shapes and dtypes: cast, ' +
          'reshape or pad one of them.',
      },
    );
  }
}

/** Remembers where control flow was met, for the report. */
export function note(
  recorder: Recorder,
  kind: string,
  policy: 'operators' | 'guards' | 'opaque',
  reason: string,
  position: string | undefined = sourcePosition(),
): void {
  recorder.trace.sites.push({ kind, position: position ?? 'an unknown place', policy, reason });
}

/** The traced value of a tensor. @throws E_TRACE_INPUT for anything else */
export function valueOf(tensor: unknown, what: string): TracedValue {
  const value = tracedValue(tensor);
  if (value !== undefined) return value;
  const { trace } = needRecorder(what);
  throw refusal(
    'E_TRACE_INPUT',
    `${what} is ${typeof tensor === 'object' ? 'no traced tensor' : `a ${typeof tensor}`}`,
    trace.place(),
    {
      hint: 'pass a traced tensor; host constants can be read from the body directly.',
    },
  );
}

/** A tensor that decides: bool without dims. */
export function predicate(
  recorder: Recorder,
  value: unknown,
  code: 'E_COND_PRED' | 'E_WHILE_COND',
  what: string,
): TracedValue {
  const traced = tracedValue(value);
  if (traced?.dtype === 'b8' && traced.shape.length === 0) return recorder.own(traced, what);
  const got =
    value instanceof TensorCore ? describe(value) : value === null ? 'null' : `a ${typeof value}`;
  throw refusal(code, `${what} must be one bool, b8[], but is ${got}`, recorder.trace.place(), {
    hint: 'compare (x.gt(0)) and reduce (x.any(), x.all()) until one truth value is left.',
  });
}

export function asTensor(value: TracedValue): Tensor {
  return tensorsOf({ kind: 'leaf', path: '', leaf: value }) as Tensor;
}

/** The tree with the results of the call in place of their numbers. */
function numbered(
  tree: Tree<number>,
  made: readonly (TracedValue | undefined)[],
): Tree<TracedValue> {
  switch (tree.kind) {
    case 'leaf': {
      const leaf = made[tree.leaf];
      if (leaf === undefined) throw internalError(`result ${tree.leaf} of cond is missing`);
      return { kind: 'leaf', path: tree.path, leaf };
    }
    case 'host':
      return tree;
    case 'list':
      return { kind: 'list', items: tree.items.map((item) => numbered(item, made)) };
    case 'record':
      return {
        kind: 'record',
        entries: tree.entries.map(([key, inner]) => [key, numbered(inner, made)] as const),
      };
  }
}

const counts = new WeakMap<Recorder, Map<string, number>>();

/** `true_0`, `true_1`: bodies of one kind are counted within the graph that holds them. */
export function bodyName(recorder: Recorder, kind: string): string {
  let known = counts.get(recorder);
  if (known === undefined) counts.set(recorder, (known = new Map<string, number>()));
  const count = known.get(kind) ?? 0;
  known.set(kind, count + 1);
  return `${kind}_${count}`;
}

/**
 * The tree of a value in the running recorder, its leaves in order, and a way to put others in
 * their places.
 */
export interface Flat {
  readonly tree: Tree<TracedValue>;
  readonly leaves: readonly { readonly path: string; readonly leaf: TracedValue }[];
}

export function flat(tree: Tree<TracedValue>): Flat {
  return { tree, leaves: leavesOf(tree) };
}

/** The tree with these leaves, given in order. */
export function refill(tree: Tree<TracedValue>, leaves: readonly TracedValue[]): Tree<TracedValue> {
  let next = 0;
  const walk = (t: Tree<TracedValue>): Tree<TracedValue> => {
    switch (t.kind) {
      case 'leaf':
        return { ...t, leaf: leaves[next++] };
      case 'host':
        return t;
      case 'list':
        return { kind: 'list', items: t.items.map(walk) };
      case 'record':
        return {
          kind: 'record',
          entries: t.entries.map(([key, inner]) => [key, walk(inner)] as const),
        };
    }
  };
  return walk(tree);
}
