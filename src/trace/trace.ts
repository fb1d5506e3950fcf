/**
 * Tracing: a TypeScript function over tensors is run on stand-ins that record every operation as an
 * `aten.*` node. Shapes and dtypes are checked as the program is recorded; host control flow runs
 * as it stands, and what it rested on becomes a guard. Nothing passes in silence: see
 * `tensor/core.ts`, `source/wrap-conditions.ts`, `lint/` and `record/check-twice.ts`.
 */

import { nonEmpty } from '../defined.ts';
import {
  checkOptions,
  isList,
  isReadable,
  ShardwrightError,
  valueText,
  wrongArgument,
} from '../errors.ts';
import { lintGraph } from '../graph/lint.ts';
import { withPhases } from '../graph/phases.ts';
import type { Graph } from '../graph/types.ts';
import { builtinOperators } from '../ops/builtin.ts';
import type { OperatorTable } from '../ops/record/table.ts';
import { predicate } from '../passes/control/predicate.ts';
import { controlOf, controlSites, type Policy, policyOf } from './control/policy.ts';
import { refusal } from './errors/refusal.ts';
import { checkStable, otherSizes } from './record/check-twice.ts';
import type { ControlDecision, ControlFlow } from './record/control-interface.ts';
import { type Guard, guardsOf } from './record/guards.ts';
import { recordInto, Trace } from './record/recorder.ts';
import { DimSpec, TensorSpec } from './record/spec.ts';
import { type HostValue, mapTree, type Tree, treeOf, valueOfTree } from './record/tree.ts';
import { SizeExpression } from './sizes/size-expression.ts';
import { type Size, sizeOf, Sym } from './sizes/sizes.ts';
import { tracedValue } from './tensor/core.ts';
import { type Tensor, tensorOf } from './tensor/tensor.ts';

export { input, parameter } from './record/spec.ts';
export { Tensor } from './tensor/tensor.ts';

/**
 * Inputs of a traced function: descriptions of tensors and host constants, nested in lists and
 * records.
 */
export type InputTree =
  TensorSpec | HostValue | readonly InputTree[] | { readonly [key: string]: InputTree };

/** The arguments of a traced function: a tensor for each description of an input. */
type Traced<T> = T extends TensorSpec
  ? Tensor
  : T extends HostValue
    ? T
    : { readonly [K in keyof T]: Traced<T[K]> };

/** A list of inputs is spread over the arguments; anything else is the one argument. */
export type TracedArguments<T> = T extends readonly unknown[]
  ? { -readonly [K in keyof T]: Traced<T[K]> }
  : [Traced<T>];

/**
 * The results of a traced function: tensors, sizes and host constants, nested in lists and
 * records.
 */
export type OutputTree =
  Tensor | Sym | HostValue | readonly OutputTree[] | { readonly [key: string]: OutputTree };

/** Operators, policy of control flow and checks of a trace. */
export interface TraceOptions {
  /** Name of the graph; the function's own name by default. */
  readonly name?: string;
  readonly table?: OperatorTable;
  /** The answer of `isTraining()`. Default true. */
  readonly training?: boolean;
  /**
   * Traces again, dynamic dims at another size, and compares: catches random numbers, clocks,
   * counters. Default true.
   */
  readonly checkTwice?: boolean;
  /** Guards property traffic on tensors with a Proxy. Default true. */
  readonly proxy?: boolean;
  /** Notes the line of the program with every node. Default true. */
  readonly positions?: boolean;
  /** Who records control flow that the source-level front end meets. */
  readonly control?: ControlFlow;
  /**
   * The treatment of conditions; without it, one on a tensor is `E_TRACE_CONTROL_FLOW`. `control`
   * wins over it.
   */
  readonly policy?: Policy;
  /**
   * `capture`: conditions on tensors become operators where the source went through the front end,
   * as with policy `auto`. Default `check`.
   */
  readonly controlFlow?: 'check' | 'capture';
  /** Mesh that `withSharding` speaks of, `dp=2,tp=4`. */
  readonly mesh?: string;
}

const OPTIONS: Readonly<Record<keyof TraceOptions, true>> = {
  name: true,
  table: true,
  training: true,
  checkTwice: true,
  proxy: true,
  positions: true,
  control: true,
  policy: true,
  controlFlow: true,
  mesh: true,
};

/** One returned leaf: the number of the graph output, or a size. */
type OutputLeaf = { readonly output: number } | { readonly size: string };

/** A traced graph with the trees of its inputs and outputs, and the guards under which it holds. */
export interface Capture {
  readonly graph: Graph;
  readonly inputTree: Tree<TensorSpec>;
  readonly outputTree: Tree<OutputLeaf>;
  /** Assumptions that the graph makes. */
  readonly guards: readonly Guard[];
  readonly report: {
    /** `s0 in [2, 512]`, traced at its example. */
    readonly dims: readonly string[];
    /** Texts of the guards, in order. */
    readonly guards: readonly string[];
    /** Dims that the program used as plain numbers: `specialised s0 = 8 at model.ts:12:7`. */
    readonly specialised: readonly string[];
    readonly controlFlow: readonly ControlDecision[];
  };
}

/**
 * Records `fn` as a graph.
 *
 * @param fn run once for every trace; must not be async
 * @param inputs a record is handed on as one argument, a list as several
 * @throws E_TRACE_INPUT, E_SHAPE and E_DTYPE (a call that does not fit), E_TRACE_COERCE (a traced
 * value used as a JavaScript value), E_TRACE_LEAK, E_TRACE_ASYNC, E_TRACE_UNSTABLE,
 * E_TRACE_HOST_READ, E_TRACE_IMPURE
 *
 * @example
 * ```ts
 * import { input, parameter, trace } from 'shardwright';
 *
 * const graph = trace(({ x, w }) => x.matmul(w).relu(), {
 *   x: input([4096, 4096]),
 *   w: parameter([4096, 4096]),
 * });
 * console.log(graph.nodes.at(-1)?.target); // aten.relu.default
 * ```
 */
export function trace<const I>(
  fn: (...args: TracedArguments<I>) => OutputTree,
  inputs: I & InputTree,
  options: TraceOptions = {},
): Graph {
  checkOptions('trace', options, OPTIONS);
  return captureAny(fn as unknown as AnyFunction, inputs, options).graph;
}

/**
 * As `trace`, with the trees of inputs and outputs, the guards, and a report of what was decided on
 * the way.
 */
export function capture<const I>(
  fn: (...args: TracedArguments<I>) => OutputTree,
  inputs: I & InputTree,
  options: TraceOptions = {},
): Capture {
  checkOptions('capture', options, OPTIONS);
  return captureAny(fn as unknown as AnyFunction, inputs, options);
}

type AnyFunction = (...args: unknown[]) => unknown;

/** `capture` without the types of the arguments. */
export function captureAny(fn: AnyFunction, inputs: unknown, options: TraceOptions): Capture {
  if (typeof fn !== 'function')
    throw wrongArgument('trace', 'program', valueText(fn), 'give trace(fn, inputs).');
  if (typeof inputs !== 'object' || inputs === null)
    throw wrongArgument(
      'trace',
      'list of inputs',
      valueText(inputs),
      'give trace(fn, { x: input([8, 16]) }).',
    );
  const first = run(fn, inputs, options, new Map());
  if (options.checkTwice ?? true) {
    const sizes = otherSizes(first.trace.dims);
    checkStable(first.graph, run(fn, inputs, options, sizes).graph);
  }
  const { graph, inputTree, outputTree } = first;
  const { dims } = first.trace;
  const guards = guardsOf(first.trace, inputTree);
  return {
    graph,
    inputTree,
    outputTree,
    guards,
    report: {
      dims: [...dims.ranges.values()].map(
        (r) => `${r.name} in [${r.min}, ${r.max}], traced at ${r.example}`,
      ),
      guards: guards.map((guard) => guard.text),
      specialised: dims.guards
        .filter((guard) => guard.specialised)
        .map(
          (guard) =>
            `specialised ${guard.text.replace('==', '=')} at ${guard.source ?? 'an unknown place'}`,
        ),
      controlFlow: controlSites(first.trace),
    },
  };
}

interface Run {
  readonly trace: Trace;
  readonly graph: Graph;
  readonly inputTree: Tree<TensorSpec>;
  readonly outputTree: Tree<OutputLeaf>;
}

function run(
  fn: (...args: unknown[]) => unknown,
  inputs: unknown,
  options: TraceOptions,
  sizes: ReadonlyMap<string, number>,
): Run {
  const policy = policyOf(options);
  const trace = new Trace(options.name ?? (fn.name === '' ? 'main' : fn.name), {
    table: options.table ?? builtinOperators(),
    training: options.training ?? true,
    proxy: options.proxy ?? true,
    positions: options.positions ?? true,
    control: options.control ?? (policy === undefined ? undefined : controlOf(policy)),
    mesh: options.mesh,
  });
  const inputTree = inputTreeOf(inputs);
  const given = valueOfTree(
    mapTree(inputTree, (leaf, path) => placeholder(trace, leaf, path, sizes)),
  );
  try {
    const returned = uncaught(trace, () =>
      fn(...(Array.isArray(inputs) ? (given as unknown[]) : [given])),
    );
    const outputTree = outputs(trace, returned);
    const recorded = withPhases(trace.root.finish());
    const { table } = trace.settings;
    const graph = withGiven(
      policy === 'predicate' ? withPhases(predicate(recorded, { table }).graph) : recorded,
      trace,
    );
    return { trace, graph, inputTree, outputTree };
  } finally {
    trace.open = false;
  }
}

/**
 * Runs the program; what stopped it stops the trace, though the program caught it: with values it
 * would not have been thrown, so what followed is not the program.
 */
function uncaught<T>(trace: Trace, body: () => T): T {
  const caught = (): Error | undefined => {
    const { stopped } = trace.dims;
    if (!(stopped instanceof ShardwrightError)) return stopped;
    const { code, message, details } = stopped;
    return new ShardwrightError(
      code,
      `${message}; the traced function caught this error and went on`,
      details,
    );
  };
  let result: T;
  try {
    result = recordInto(trace.root, body);
  } catch (error) {
    throw error === trace.dims.stopped ? error : (caught() ?? error);
  }
  const error = caught();
  if (error !== undefined) throw error;
  return result;
}

/**
 * The tree of described inputs; members of a top-level list are the arguments `arg0`, `arg1` and so
 * on.
 */
export function inputTreeOf(inputs: unknown): Tree<TensorSpec> {
  const leafOf = (value: unknown): TensorSpec | undefined =>
    isReadable(Object(value) as object) && value instanceof TensorSpec ? value : undefined;
  if (isList(inputs))
    return {
      kind: 'list',
      items: Array.from(inputs, (item: unknown, i) => treeOf(item, leafOf, 'input', `arg${i}`)),
    };
  return treeOf(inputs, leafOf, 'input', leafOf(inputs) === undefined ? '' : 'arg0');
}

function placeholder(
  trace: Trace,
  spec: TensorSpec,
  path: string,
  sizes: ReadonlyMap<string, number>,
): Tensor {
  const shape = spec.shape.map((size): Size => {
    if (!(size instanceof DimSpec)) return size;
    const { range } = size;
    if (range.min === range.max) return range.min;
    trace.dims.declare({ ...range, example: sizes.get(range.name) ?? range.example });
    return sizeOf(SizeExpression.dim(range.name), trace.dims);
  });
  const value = trace.root.placeholder(
    path,
    spec.dtype,
    shape,
    { role: spec.role, roleName: path },
    spec.grad,
  );
  if (spec.role === 'parameter' || spec.role === 'buffer')
    trace.declared.set(path, { value, role: spec.role, text: `${spec.role} ${spec.dtype}` });
  return tensorOf(value);
}

function outputs(trace: Trace, returned: unknown): Tree<OutputLeaf> {
  if (isThenable(returned)) {
    // The function has failed or will; nobody else waits for it.
    Promise.resolve(returned).catch(() => undefined);
    throw refusal(
      'E_TRACE_ASYNC',
      'the traced function returned a promise',
      {},
      {
        hint: 'a traced function is synchronous: load data before tracing, and drop async.',
      },
    );
  }
  let count = 0;
  const tree = treeOf(
    returned,
    (value): OutputLeaf | undefined => {
      const traced = tracedValue(value);
      if (traced !== undefined) {
        const index = count++;
        trace.root.output({ value: trace.root.own(traced, 'return').name, role: 'output', index });
        return { output: index };
      }
      return value instanceof Sym ? { size: value.sym } : undefined;
    },
    'output',
  );
  if (count === 0)
    throw refusal(
      'E_TRACE_INPUT',
      'the traced function returned no tensor',
      {},
      {
        hint: 'return a traced tensor, or a list or record of them.',
      },
    );
  return tree;
}

function isThenable(value: unknown): value is PromiseLike<unknown> {
  if (typeof value !== 'object' || value === null || tracedValue(value) !== undefined) return false;
  return 'then' in value && typeof value.then === 'function';
}

function withGiven(graph: Graph, { given, settings }: Trace): Graph {
  if (settings.mesh === undefined) return graph;
  const stated: Graph = {
    ...graph,
    mesh: settings.mesh,
    ...nonEmpty({ given: [...given] }),
  };
  lintGraph(stated);
  return stated;
}
