/**
 * Records a trace. A `Trace` is one run of the user's function; it has a `Recorder` for the
 * function itself and one for every body of a control-flow operator. Recorders know values, not the
 * tensor class that the user sees.
 */

import { defined } from '../../defined.ts';
import { internalError } from '../../errors.ts';
import { baseName, GraphBuilder } from '../../graph/build.ts';
import { FreeNames } from '../../graph/names.ts';
import type {
  Arg,
  DType,
  Graph,
  Node,
  NodeMeta,
  Output,
  Retention,
  ValueType,
} from '../../graph/types.ts';
import { NO_KWARGS, ref, setOwn, tensorType } from '../../graph/value.ts';
import type { OperatorRecord } from '../../ops/record/record.ts';
import type { ArgSchema } from '../../ops/record/schema.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { sourcePosition } from '../errors/position.ts';
import { type Place, refusal } from '../errors/refusal.ts';
import { DimScope, type Size } from '../sizes/sizes.ts';
import { type CallArgument, mapArgs, toArg, withoutExpression } from './call-arguments.ts';
import {
  callError,
  type CallResult,
  callTypes,
  refuseDtypes,
  type TypedCall,
} from './call-types.ts';
import type { ControlDecision, ControlFlow } from './control-interface.ts';
import type { LowRank } from './low-rank.ts';
import { isFloating, plainDim, type TypedValue } from './typed-value.ts';

export { isFloating, valueText } from './typed-value.ts';

/** One value of a trace. */
export interface TracedValue extends TypedValue {
  readonly recorder: Recorder;
}

/** An argument of a recorded call. */
export type TraceArg = CallArgument<TracedValue>;

/** A named state tensor, declared once. */
interface Declared {
  readonly value: TracedValue;
  readonly role: 'parameter' | 'buffer';
  readonly text: string;
}

interface TraceSettings {
  readonly table: OperatorTable;
  readonly training: boolean;
  readonly proxy: boolean;
  readonly positions: boolean;
  readonly control: ControlFlow | undefined;
  /** Mesh that `withSharding` speaks of, `dp=2,tp=4`. */
  readonly mesh: string | undefined;
}

/** State that all recorders of one run share. */
export class Trace {
  readonly dims = new DimScope();
  readonly declared = new Map<string, Declared>();
  readonly notes: string[] = [];
  /** Module path, outermost first. */
  readonly modules: string[] = [];
  readonly hostGuards: {
    readonly name: string;
    readonly value: unknown;
    readonly read: () => unknown;
  }[] = [];
  readonly given: {
    readonly value: string;
    readonly sharding: string;
    readonly strength: 'pin';
  }[] = [];
  /** The control flow that was met, and its treatment. */
  readonly sites: ControlDecision[] = [];
  /** The adapters that linear layers get; absent: none. */
  lowRank: LowRank | undefined;
  open = true;
  readonly root: Recorder;

  constructor(
    name: string,
    readonly settings: TraceSettings,
  ) {
    this.root = new Recorder(this, name, undefined);
  }

  get path(): string {
    return this.modules.join('.');
  }

  /** The present place of the program. */
  place(): Place {
    return { source: this.position(), path: this.path };
  }

  /** The line of the program that is at work; undefined where nobody asks for lines. */
  position(): string | undefined {
    return this.settings.positions ? sourcePosition() : undefined;
  }
}

let current: Recorder | undefined;

/** The recorder of the running trace or body, if any. */
export function runningRecorder(): Recorder | undefined {
  return current;
}

/** The recorder of the running trace. @throws E_TRACE_LEAK outside a trace */
export function needRecorder(what: string): Recorder {
  if (current !== undefined) return current;
  throw refusal(
    'E_TRACE_LEAK',
    `${what} outside a trace`,
    { source: sourcePosition() },
    {
      hint: 'call it from the function that is given to trace().',
    },
  );
}

/**
 * An error that no run of the program on real tensors would meet, remembered by the running trace:
 * what the program does after catching it is not what it does with values.
 */
export function stopping<E extends Error>(error: E): E {
  const { trace } = current ?? {};
  if (trace !== undefined) trace.dims.stopped ??= error;
  return error;
}

/** Runs `body` with this recorder as the running one. */
export function recordInto<T>(recorder: Recorder, body: () => T): T {
  const outer = current;
  current = recorder;
  try {
    return body();
  } finally {
    current = outer;
  }
}

/** Runs `body` one module deeper. */
export function inModule<T>(path: string, body: () => T): T {
  const { modules } = needRecorder('scope()').trace;
  if (path === '') return body();
  modules.push(path);
  try {
    return body();
  } finally {
    modules.pop();
  }
}

export class Recorder {
  private readonly placeholders: Node[] = [];
  private readonly nodes: Node[] = [];
  private readonly outputs: Output[] = [];
  private readonly subgraphs = new Map<string, Graph>();
  private readonly bodyNames = new FreeNames(this.subgraphs);
  private readonly types = new Map<string, ValueType>();
  private readonly names = new FreeNames(this.types);
  /** Outer values that this body reads, and their placeholders, in order of first use. */
  readonly captured = new Map<TracedValue, TracedValue>();

  constructor(
    readonly trace: Trace,
    readonly name: string,
    readonly parent: Recorder | undefined,
  ) {}

  /**
   * A recorder for a body of a control-flow operator: it reads values of this one by lifting them
   * to inputs.
   */
  body(name: string): Recorder {
    return new Recorder(this.trace, name, this);
  }

  placeholder(
    name: string,
    dtype: DType,
    shape: readonly Size[],
    meta: NodeMeta,
    requiresGrad = false,
  ): TracedValue {
    const unique = this.names.near(nodeName(name));
    const type = tensorType(dtype, shape.map(plainDim));
    this.placeholders.push({
      name: unique,
      kind: 'placeholder',
      target: unique,
      args: [],
      kwargs: NO_KWARGS,
      type,
      meta,
    });
    this.types.set(unique, type);
    return {
      recorder: this,
      name: unique,
      dtype,
      shape,
      type,
      requiresGrad,
      source: this.trace.position(),
    };
  }

  /** The placeholder of this body for an outer value, made at its first use. */
  lift(value: TracedValue): TracedValue {
    const known = this.captured.get(value);
    if (known !== undefined) return known;
    const meta: NodeMeta = { role: 'arg', roleIndex: this.placeholders.length };
    const lifted = this.placeholder(value.name, value.dtype, value.shape, meta, value.requiresGrad);
    this.captured.set(value, lifted);
    return lifted;
  }

  /**
   * Makes the captured values of a body these, in this order, after its own inputs: bodies of one
   * operator have identical inputs, so each takes what any of them captured.
   */
  closeOver(values: readonly TracedValue[]): void {
    const place = new Map(values.map((value, i) => [this.lift(value).name, i]));
    const own = this.placeholders.filter((node) => !place.has(node.name));
    const lifted = this.placeholders.filter((node) => place.has(node.name));
    lifted.sort((a, b) => (place.get(a.name) ?? 0) - (place.get(b.name) ?? 0));
    const ordered = [...own, ...lifted].map((node, roleIndex): Node => ({
      ...node,
      meta: { ...node.meta, roleIndex },
    }));
    this.placeholders.splice(0, this.placeholders.length, ...ordered);
  }

  /**
   * Records a call of an operator with one tensor result.
   *
   * @throws E_SHAPE, E_DTYPE at the user's line; E_TRACE_LEAK for a value of another trace;
   *   E_UNKNOWN_OP
   */
  call(
    target: string,
    args: readonly TraceArg[],
    kwargs: Readonly<Record<string, TraceArg>> = {},
  ): TracedValue {
    const made = this.record(target, args, kwargs);
    if (made.items !== undefined)
      throw refusal('E_TRACE_INPUT', `${target} gives several results`, this.trace.place(), {
        hint: 'call applyTuple, which gives a list of them.',
      });
    return made.value;
  }

  /**
   * Records a call with several results and reads those numbered `picks` (all of them by default).
   */
  calls(
    target: string,
    args: readonly TraceArg[],
    kwargs: Readonly<Record<string, TraceArg>> = {},
    picks?: readonly number[],
  ): TracedValue[] {
    const made = this.record(target, args, kwargs);
    const { items } = made;
    if (items === undefined) return [made.value];
    return (picks ?? items.map((_, index) => index)).map((index) => {
      const item = items[index];
      if (item === null)
        throw refusal(
          'E_TRACE_INPUT',
          `${target} masks off its result ${index}`,
          this.trace.place(),
          {
            hint: 'ask for all results, or call an operator that gives the others alone.',
          },
        );
      const node = this.add(
        'operator.getitem',
        [ref(made.value.name), index],
        {},
        item.type,
        made.value.source,
      );
      const { dtype } = item.type;
      const requiresGrad = made.requiresGrad && isFloating(dtype);
      return { ...made.value, name: node, dtype, shape: item.shape, type: item.type, requiresGrad };
    });
  }

  /**
   * Records a call whose result type the caller knows: control flow. Its operands must be values of
   * this recorder.
   *
   * @returns one value per tensor result, read through getitem; undefined where the result is none
   */
  controlCall(
    target: string,
    args: readonly Arg[],
    results: readonly (
      Pick<TracedValue, 'dtype' | 'shape' | 'type' | 'requiresGrad'> | undefined
    )[],
    kwargs: Readonly<Record<string, Arg>> = {},
  ): (TracedValue | undefined)[] {
    const source = this.trace.position();
    const type: ValueType = {
      kind: 'tuple',
      items: results.map((r): ValueType => r?.type ?? { kind: 'none' }),
    };
    const call = this.add(target, args, kwargs, type, source);
    return results.map((result, index) => {
      if (result === undefined) return undefined;
      const name = this.add('operator.getitem', [ref(call), index], {}, result.type, source);
      return { ...result, recorder: this, name, source };
    });
  }

  /** Adds a body under a name near `name` and returns that name, which calls refer to. */
  subgraph(name: string, graph: Graph): string {
    const unique = this.bodyNames.near(name);
    this.subgraphs.set(unique, graph.name === unique ? graph : { ...graph, name: unique });
    return unique;
  }

  output(output: Output): void {
    this.outputs.push(output);
  }

  /**
   * Marks the call that made a value of this recorder. Undefined for an input, which no call made.
   */
  retain(name: string, save: Retention): Node | undefined {
    const at = this.nodes.findIndex((node) => node.name === name);
    if (at < 0) return undefined;
    const node = this.nodes[at];
    this.nodes[at] = { ...node, meta: { ...node.meta, save } };
    return node;
  }

  /**
   * This recorder's own value for `value`: the same, or the placeholder that a body lifts it to.
   */
  own(value: TracedValue, where: string): TracedValue {
    if (value.recorder === this) return value;
    const place = this.trace.place();
    if (value.recorder.trace === this.trace) {
      for (let outer = this.parent; outer !== undefined; outer = outer.parent)
        if (outer === value.recorder) return this.lift(value);
      throw stopping(
        refusal(
          'E_TRACE_LEAK',
          `${where}: %${value.name} is a value of the body @${value.recorder.name}, made at ` +
            `${value.source ?? 'an unknown place'}; it was used outside of it`,
          place,
          {
            hint: 'return it from the body.',
          },
        ),
      );
    }
    const ended = value.recorder.trace.open
      ? 'belongs to another trace'
      : 'belongs to a trace that has ended';
    throw stopping(
      refusal(
        'E_TRACE_LEAK',
        `${where}: tensor %${value.name}, made at ${value.source ?? 'an unknown place'}, ` +
          `${ended}; it was used`,
        place,
        {
          hint: 'pass it to this function as an input; keep no traced tensors between traces.',
        },
      ),
    );
  }

  /**
   * The graph of what was recorded, linted. Placeholders: parameters, buffers, then the others in
   * their order.
   */
  finish(): Graph {
    const builder = new GraphBuilder(this.name);
    const rank = ({ meta }: Node): number =>
      meta.role === 'parameter' ? 0 : meta.role === 'buffer' ? 1 : 2;
    for (const node of [...this.placeholders].sort((a, b) => rank(a) - rank(b))) builder.keep(node);
    for (const node of this.nodes) builder.keep(node);
    for (const output of this.outputs) builder.output(output);
    for (const [name, graph] of this.subgraphs) builder.subgraph(name, graph);
    if (this.parent === undefined) {
      for (const { name, min, max, multiple } of this.trace.dims.ranges.values())
        builder.dim(name, multiple === 1 ? { min, max } : { min, max, multiple });
      for (const note of this.trace.notes) builder.note(note);
    }
    return builder.build();
  }

  private record(
    target: string,
    args: readonly TraceArg[],
    kwargs: Readonly<Record<string, TraceArg>>,
  ): { value: TracedValue; requiresGrad: boolean; items?: readonly CallResult[] } {
    const { trace } = this;
    const record = this.recordOf(target, kwargs);
    const call = this.typedCall(record, target, args, kwargs);
    const source = trace.position();
    refuseDtypes(call, { source, path: trace.path });
    let typed: CallResult[];
    try {
      typed = callTypes(trace.settings.table, trace.dims, call);
    } catch (error) {
      throw callError(error, call, { source, path: trace.path });
    }
    const requiresGrad =
      target !== 'aten.detach.default' && [...call.operands.values()].some((o) => o.requiresGrad);
    const types = typed.map((t) => t?.type ?? null);
    const nodeType: ValueType =
      record.results === 'tuple'
        ? { kind: 'tuple', items: types.map((t): ValueType => t ?? { kind: 'none' }) }
        : (types[0] ?? { kind: 'none' });
    const name = this.add(target, call.args, call.kwargs, nodeType, source);
    const [first] = typed;
    if (first === null || first === undefined) throw internalError(`${target} has no first result`);
    const value: TracedValue = {
      recorder: this,
      name,
      dtype: first.type.dtype,
      shape: first.shape,
      type: first.type,
      source,
      requiresGrad: requiresGrad && isFloating(first.type.dtype),
    };
    return record.results === 'tuple'
      ? { value, requiresGrad, items: typed }
      : { value, requiresGrad };
  }

  /** The record of an operator that may be recorded now. */
  private recordOf(target: string, kwargs: Readonly<Record<string, TraceArg>>): OperatorRecord {
    const { trace } = this;
    const record = trace.settings.table.get(target);
    if (record === undefined)
      throw refusal('E_UNKNOWN_OP', `there is no operator ${target}`, trace.place(), {
        hint: 'hand trace() a table that has its record.',
      });
    if (record.cls === 'random' && (kwargs.generator ?? null) === null)
      throw stopping(
        refusal(
          'E_TRACE_IMPURE',
          `${baseName(target)} draws random numbers and was given no key`,
          trace.place(),
          {
            hint:
              'give it one: { generator: key }, or use dropout, bernoulli, rand, randn with a ' +
              'key of randomKey().',
          },
        ),
      );
    if (!trace.open)
      throw refusal('E_TRACE_LEAK', `${baseName(target)}: the trace has ended`, trace.place());
    return record;
  }

  /** The call with arguments of the graph, and the values that it reads. */
  private typedCall(
    { schema }: OperatorRecord,
    target: string,
    args: readonly TraceArg[],
    kwargs: Readonly<Record<string, TraceArg>>,
  ): TypedCall {
    const operands = new Map<string, TracedValue>();
    const own = (value: TracedValue): TracedValue => {
      const mine = this.own(value, baseName(target));
      operands.set(mine.name, mine);
      return mine;
    };
    const positional = schema.filter((s) => !s.kwargOnly);
    const keyword = (key: string): ArgSchema | undefined => schema.find((s) => s.name === key);
    const plain = args.map((arg, i) => toArg(arg, positional[i], own));
    const named: Record<string, Arg> = {};
    for (const key of Object.keys(kwargs))
      setOwn(named, key, toArg(kwargs[key], keyword(key), own));
    return { target, args: plain, kwargs: named, operands };
  }

  private add(
    target: string,
    args: readonly Arg[],
    kwargs: Readonly<Record<string, Arg>>,
    type: ValueType,
    source: string | undefined,
  ): string {
    const name = this.names.near(baseName(target));
    const { path } = this.trace;
    const meta: NodeMeta = {
      phase: 'forward',
      ...(path === '' ? {} : { path }),
      ...defined({ source }),
    };
    const plain = args.map(withoutExpression);
    const named = Object.keys(kwargs).length === 0 ? NO_KWARGS : mapArgs(kwargs, withoutExpression);
    this.nodes.push({ name, kind: 'call', target, args: plain, kwargs: named, type, meta });
    this.types.set(name, type);
    return name;
  }
}

function nodeName(name: string): string {
  const plain = name.replaceAll(/[^A-Za-z0-9_.]/g, '_');
  return /^[A-Za-z_]/.test(plain) ? plain : `_${plain}`;
}
