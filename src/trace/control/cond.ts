/** Records `cond`: traces both branches and writes one control-flow operator. */

import { checkKinds } from '../../arguments.ts';
import { internalError } from '../../errors.ts';
import { ref } from '../../graph/value.ts';
import { sourcePosition } from '../errors/position.ts';
import { refusal } from '../errors/refusal.ts';
import { needRecorder, type Recorder, recordInto, type TracedValue } from '../record/recorder.ts';
import { mapTree, type Tree } from '../record/tree.ts';
import { valueText } from '../record/typed-value.ts';
import type { Tensor } from '../tensor/tensor.ts';
import {
  bodyName,
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
import { note } from './site.ts';
import { asTensor, type BodyTree, predicate, valueOf } from './traced-values.ts';

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
  const site = { position: sourcePosition(), reason: 'explicit operator' };
  return condAny(pred, { onTrue, onFalse }, operands, site, options) as T;
}

/** The branches of a condition, without the types of what they return. */
interface Branches {
  readonly onTrue: (...operands: Tensor[]) => unknown;
  readonly onFalse: (...operands: Tensor[]) => unknown;
}

/** `cond` without the types of its branches; `site` is what the report says. */
export function condAny(
  pred: unknown,
  { onTrue, onFalse }: Branches,
  operands: readonly Tensor[],
  site: { readonly position: string | undefined; readonly reason: string },
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
  if (prob !== undefined && !(prob >= 0 && prob <= 1))
    throw refusal(
      'E_COND_PRED',
      `the probability of cond is a number from 0 to 1, but is ${prob}`,
      recorder.trace.place(),
    );
  if (typeof pred === 'boolean') {
    noteHostPredicate(recorder, pred, site.position);
    return (pred ? onTrue : onFalse)(...operands);
  }
  const test = predicate(recorder, pred, 'E_COND_PRED', 'the predicate of cond');
  const given = operands.map((operand) =>
    recorder.own(valueOf(operand, 'an operand of cond'), 'cond'),
  );
  const result = tracedCond(recorder, test, { onTrue, onFalse }, given, prob);
  note(recorder, 'cond', 'operators', site.reason, site.position);
  return tensorsOf(result);
}

/** Traces both branches, and writes the call that decides between them. */
function tracedCond(
  recorder: Recorder,
  test: TracedValue,
  { onTrue, onFalse }: Branches,
  given: readonly TracedValue[],
  prob: number | undefined,
): Tree<TracedValue> {
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
  return mapTree(tree, (result) => {
    const value = made[result];
    if (value === undefined) throw internalError(`result ${result} of cond is missing`);
    return value;
  });
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
