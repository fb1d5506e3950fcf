/**
 * Strategies of every node of a graph on a mesh. Nodes of equal content (operator, literal
 * arguments, input types, pending reductions that can reach them) share one record, so that a deep
 * model is expanded once per kind of call and not once per layer.
 */

import type { CallFacts } from '../cost/compute.ts';
import { defined } from '../defined.ts';
import { ShardwrightError } from '../errors.ts';
import { linePosition } from '../graph/nodes.ts';
import type { Arg, Graph, Node, ValueType } from '../graph/types.ts';
import { isGraphRef } from '../graph/value.ts';
import type { Placement } from '../mesh/placements/placement.ts';
import { evenlyShardable, shardable, strideEvenly } from '../mesh/sharding/sharding.ts';
import { isPartialCode, type ShardingSpace } from '../mesh/sharding/space.ts';
import { expandRules, type StrategySet } from '../ops/expansion/expand.ts';
import {
  type CutPattern,
  fewFactors,
  gathered,
  offered,
  patternsOf,
  type StridedCuts,
} from '../ops/expansion/patterns.ts';
import { bindCall, withOutputs } from '../ops/record/context.ts';
import type { OperatorRecord, TensorMeta, TypedContext } from '../ops/record/record.ts';
import type { OperatorTable } from '../ops/record/table.ts';
import { rulesTemplate } from '../ops/rules/rules-template.ts';
import type { Dataflow } from './dataflow.ts';
import { runsOf } from './runs.ts';

export interface NodeStrategies {
  readonly set: StrategySet;
  /** Equal for nodes of equal content. */
  readonly content: number;
  readonly record?: OperatorRecord;
  /** The bound call at global sizes; absent for placeholders and for operators without a record. */
  readonly call?: TypedContext;
  /** Further statements of the program about the call; absent: none. */
  readonly facts?: CallFacts;
}

interface StrategyOptions {
  readonly uneven: 'allow' | 'forbid';
  /** Operators without a record: refuse, or plan them replicated. */
  readonly unknown: 'refuse' | 'replicate';
  /** Cuts other than plain shards that placeholders and rules may take; default none. */
  readonly cuts?: readonly Placement[];
  /** Most stretches of neighbouring mesh dims that differ, see `runsOf`; default any number. */
  readonly mostRuns?: number;
  /** Strided cuts of dims that views merge; default none. */
  readonly strided?: StridedCuts;
}

export interface StrategyTable {
  /**
   * Per node of the graph; null for a node that is another name of a value and has no decision of
   * its own.
   */
  readonly nodes: readonly (NodeStrategies | null)[];
  /** Operators that were planned replicated because they have no record, with their node counts. */
  readonly replicatedUnknown: readonly { readonly target: string; readonly count: number }[];
  /** Values whose strided cuts were too many to be offered all, see `MOST_FACTORS`. */
  readonly fewerStrides: number;
  /** The options with which the nodes were expanded. */
  readonly options: StrategyOptions;
}

/**
 * The strategies of a program that says more of some calls: nodes of which it says other things
 * have other contents.
 */
export function withFacts(
  strategies: StrategyTable,
  graph: Graph,
  facts: ReadonlyMap<string, CallFacts>,
): StrategyTable {
  const contents = new Map<string, number>();
  const nodes = strategies.nodes.map((entry, n): NodeStrategies | null => {
    if (entry === null) return null;
    const own = facts.get(graph.nodes[n].name);
    const key = `${entry.content}${own === undefined ? '' : JSON.stringify(own)}`;
    let content = contents.get(key);
    if (content === undefined) contents.set(key, (content = contents.size));
    return { ...entry, content, ...defined({ facts: own }) };
  });
  return { ...strategies, nodes };
}

/**
 * @param checkTime asked while there is more to do; what it throws ends the work
 * @throws E_UNKNOWN_OP naming every operator without a record, its first line and its count (option
 *   `unknown: 'refuse'`)
 */
export function nodeStrategies(
  graph: Graph,
  flow: Dataflow,
  table: OperatorTable,
  space: ShardingSpace,
  options: StrategyOptions,
  checkTime?: () => void,
): StrategyTable {
  const unknown = unknownOperators(graph, table);
  refuseBodies(unknown);
  if (unknown.length > 0 && options.unknown === 'refuse') throw unknownError(unknown, graph);
  refuseNothing(graph, unknown);
  const shared = new Map<string, SharedNode>();
  // For every value, the pending reductions that its producer can leave, and the strided cuts.
  const reachable = new Int32Array(flow.values.length);
  const cuts = new Array<readonly CutPattern[]>(flow.values.length).fill(NO_CUTS);
  const question = { flow, table, space, options, ...defined({ checkTime }) };
  let fewerStrides = 0;
  const nodes = graph.nodes.map((node, index): NodeStrategies | null => {
    if (flow.alias[index] >= 0) return null;
    checkTime?.();
    const inputs = flow.inputs[index];
    const key = contentKey(node, inputs, flow, reachable, cuts);
    let found = shared.get(key);
    if (found === undefined) {
      const own = expandNode(node, index, question, { reachable, cuts });
      found = { strategies: { ...own, content: shared.size }, left: [] };
      shared.set(key, found);
    }
    const { strategies, left } = found;
    // What a program is given is cut in one piece; its orders of mesh dims are not strides to be
    // handed on.
    const strides = node.kind === 'call' && (options.strided ?? 'off') !== 'off';
    flow.results[index].forEach((value, k) => {
      if (value < 0) return;
      const { partials, patterns, few } = (left[k] ??= leftOf(strategies.set, k, space, strides));
      reachable[value] = partials;
      if (few.length < patterns.length) fewerStrides++;
      cuts[value] = few;
    });
    return strategies;
  });
  return {
    nodes,
    fewerStrides,
    replicatedUnknown: unknown.map(({ target, count }) => ({ target, count })),
    options,
  };
}

/** Nodes of equal content: their strategies, and by result what these leave. */
interface SharedNode {
  readonly strategies: NodeStrategies;
  readonly left: Left[];
}

/** The shardings of a result that strategies can leave. */
interface Left {
  /** Pending reductions, a bit a code. */
  readonly partials: number;
  /** Strided cuts. */
  readonly patterns: readonly CutPattern[];
  /** The patterns that are handed on to the readers. */
  readonly few: readonly CutPattern[];
}

const NO_CUTS: readonly CutPattern[] = [];

function leftOf(set: StrategySet, result: number, space: ShardingSpace, strides: boolean): Left {
  const partials = partialsOf(set, result, space);
  if (!strides) return { partials, patterns: NO_CUTS, few: NO_CUTS };
  const patterns = patternsOf(shardingsOf(set, result), space);
  return { partials, patterns, few: fewFactors(patterns) };
}

/** The setting in which all nodes of a program are expanded. */
interface Question {
  readonly flow: Dataflow;
  readonly table: OperatorTable;
  readonly space: ShardingSpace;
  readonly options: StrategyOptions;
  readonly checkTime?: () => void;
}

/** Pending reductions, a bit a code, and strided cuts that the producers of values can leave. */
interface Reached {
  readonly reachable: Int32Array;
  readonly cuts: readonly (readonly CutPattern[])[];
}

function expandNode(
  node: Node,
  index: number,
  { flow, table, space, options, checkTime }: Question,
  { reachable, cuts }: Reached,
): Omit<NodeStrategies, 'content'> {
  const outputs = Array.from(flow.results[index], (id): TensorMeta | null =>
    id < 0 ? null : flow.values[id].meta,
  );
  if (node.kind !== 'call') return { set: placements(outputs[0] ?? null, node, space, options) };
  const inputs = Array.from(flow.inputs[index], (id) => flow.values[id].meta);
  const record = table.get(node.target);
  const runs = options.mostRuns === undefined ? {} : { mostRuns: options.mostRuns };
  if (record === undefined) return { set: expandRules(space, [], inputs, outputs, options) };
  const call = withOutputs(
    bindCall(record, node.args, node.kwargs, (name) => flow.values[flow.valueOf(name)].meta),
    outputs,
  );
  const byInput = Array.from(flow.inputs[index], (id) => cuts[id]);
  const patterns = byInput.some((list) => list.length > 0) ? { patterns: gathered(byInput) } : {};
  const rules = offered(record.shard(call), [...inputs, ...outputs], options.strided ?? 'off');
  const set = expandRules(space, rules, inputs, outputs, {
    uneven: options.uneven,
    ...defined({ checkTime, cuts: options.cuts }),
    ...runs,
    ...patterns,
    stridesInside: options.strided === 'rows',
    evenStrides: true,
    ...(record.holds === undefined
      ? {}
      : { holds: (ids: readonly number[]) => record.holds?.(space, ids) !== false }),
    reachable: Array.from(flow.inputs[index], (id) => reachable[id]),
  });
  return { set, record, call };
}

/**
 * Strategies of a placeholder: every sharding without a pending reduction. Parameters and buffers
 * also get the shardings that cut one dim by several mesh dims in another order, because a
 * parameter stored for FSDP on top of tensor parallelism is undone by one all-gather only in that
 * order.
 */
function placements(
  meta: TensorMeta | null,
  node: Node,
  space: ShardingSpace,
  { uneven, cuts = [], mostRuns = Infinity }: StrategyOptions,
): StrategySet {
  if (meta === null)
    throw new ShardwrightError('E_UNSUPPORTED', 'input is not a tensor', { node: node.name });
  const orders = node.meta.role === 'parameter' || node.meta.role === 'state';
  const specs = space
    .enumerate(meta.shape.length, { orders, cuts })
    .filter((id) => runsOf(space, id) <= mostRuns)
    .filter((id) =>
      (uneven === 'allow' ? shardable : evenlyShardable)(space.get(id), space.mesh, meta.shape),
    )
    .filter((id) => strideEvenly(space.get(id), space.mesh, meta.shape));
  const dims = space.meshRank;
  return {
    count: specs.length,
    inputCount: 0,
    outputCount: 1,
    specs: Int32Array.from(specs),
    choice: new Int32Array(specs.length * dims),
    rules: [],
  };
}

/**
 * Ids of the shardings that strategies leave of a result, with repeats; -1 where it is masked off.
 */
function* shardingsOf(set: StrategySet, result: number): Generator<number> {
  const width = set.inputCount + set.outputCount;
  for (let s = 0; s < set.count; s++) yield set.specs[s * width + set.inputCount + result];
}

function partialsOf(set: StrategySet, result: number, space: ShardingSpace): number {
  let bits = 0;
  const width = set.inputCount + set.outputCount;
  for (let s = 0; s < set.count; s++) {
    const id = set.specs[s * width + set.inputCount + result];
    if (id < 0) continue;
    for (let d = 0; d < space.meshRank; d++) {
      const code = space.kindAt(id, d);
      if (isPartialCode(code)) bits |= 1 << code;
    }
  }
  return bits;
}

function contentKey(
  node: Node,
  inputs: Int32Array,
  flow: Dataflow,
  reachable: Int32Array,
  cuts: readonly (readonly CutPattern[])[],
): string {
  const first =
    node.kind === 'call'
      ? node.target
      : `placeholder ${node.meta.role ?? ''} ${typeKey(node, flow)}`;
  let key = first;
  for (const id of inputs) {
    key += `|${flow.values[id].type},${reachable[id]}`;
    for (const { dim, text } of cuts[id]) key += `;${dim}:${text}`;
  }
  return node.kind === 'call' ? key + argumentsKey(node) : key;
}

/** The arguments of a call as text, without the types of its operands. */
export function argumentsKey({ args, kwargs }: Pick<Node, 'args' | 'kwargs'>): string {
  let key = '(';
  for (const arg of args) key += `${argKey(arg)},`;
  for (const name of Object.keys(kwargs).sort()) key += `${name}=${argKey(kwargs[name])},`;
  return key;
}

function typeKey(node: Node, flow: Dataflow): string {
  const id = flow.values[flow.valueOf(node.name)].type;
  return String(id);
}

/**
 * Literal arguments as text; values are only marked, because their types stand in the key already.
 */
function argKey(arg: Arg): string {
  if (arg === null || typeof arg !== 'object')
    return typeof arg === 'string' ? JSON.stringify(arg) : String(arg);
  if (!('kind' in arg)) return `[${arg.map((a) => argKey(a)).join()}]`;
  switch (arg.kind) {
    case 'value':
      return '%';
    case 'graph':
      return `@${arg.name}`;
    case 'float':
      return `${arg.value}f`;
    case 'dtype':
      return arg.dtype;
    case 'size':
      return arg.size.sym;
    case 'slice':
      return `${argKey(arg.start)}:${argKey(arg.stop)}:${argKey(arg.step)}`;
    case 'device':
    case 'layout':
      return arg.word;
  }
}

interface Unknown {
  readonly target: string;
  count: number;
  readonly node: Node;
}

function unknownOperators(graph: Graph, table: OperatorTable): Unknown[] {
  const found = new Map<string, Unknown>();
  for (const node of graph.nodes) {
    if (
      node.kind !== 'call' ||
      node.target === 'operator.getitem' ||
      table.get(node.target) !== undefined
    )
      continue;
    const entry = found.get(node.target);
    if (entry === undefined) found.set(node.target, { target: node.target, count: 1, node });
    else entry.count++;
  }
  return [...found.values()];
}

/** A call with a body is not an operator that could run whole at no price. @throws E_UNSUPPORTED */
function refuseBodies(unknown: readonly Unknown[]): void {
  for (const { node, target } of unknown) {
    if (!node.args.some((arg) => isGraphRef(arg))) continue;
    const isManual = target === 'sdy.manual_computation';
    const what = isManual
      ? 'a manual region (shard_map) of a program whose mesh is not known'
      : `${target}, a call with a body`;
    throw new ShardwrightError('E_UNSUPPORTED', `%${node.name} is ${what}, which is not planned`, {
      node: node.name,
      hint: isManual
        ? 'export it with its mesh, as jax.jit(f).lower(...).as_text() does, and leave ' +
          '--ignore-shardings out.'
        : 'export it with the body in line.',
    });
  }
}

/**
 * A program of nothing but operators that run whole at no price has no plan. @throws E_UNKNOWN_OP
 */
function refuseNothing(graph: Graph, unknown: readonly Unknown[]): void {
  const calls = graph.nodes.filter(
    ({ kind, target }) => kind === 'call' && target !== 'operator.getitem',
  );
  if (unknown.length === 0 || calls.length > unknown.reduce((n, u) => n + u.count, 0)) return;
  throw new ShardwrightError(
    'E_UNKNOWN_OP',
    `no operator of ${graph.name} has rules, so there is nothing to plan`,
    {
      node: unknown[0].node.name,
      hint: hintOf(unknown, graph, 'give them rules: '),
    },
  );
}

function unknownError(unknown: readonly Unknown[], graph: Graph): ShardwrightError {
  const list = unknown.map((u) => {
    const line = u.node.meta.line !== undefined ? `, first on line ${u.node.meta.line}` : '';
    return `${u.target} (${u.count} ${u.count === 1 ? 'node' : 'nodes'}${line})`;
  });
  const { node } = unknown[0];
  return new ShardwrightError('E_UNKNOWN_OP', `no sharding rules for ${list.join(', ')}`, {
    node: node.name,
    ...defined({ position: linePosition(node.meta.line) }),
    hint: hintOf(
      unknown,
      graph,
      'plan them replicated with --unknown replicate, or give them rules: ',
    ),
  });
}

/** The hint of the error, with the text of a rules file that would do. */
function hintOf(unknown: readonly Unknown[], graph: Graph, words: string): string {
  const typeOf = (name: string): ValueType =>
    graph.nodes.find((node) => node.name === name)?.type ?? { kind: 'none' };
  const text = rulesTemplate(
    unknown.map(({ node }) => node),
    typeOf,
  );
  return (
    `${words}registerOp in a program, or --ops rules.json with this in it and rules such as ` +
    `"S(0) -> S(0)" added: ${text}`
  );
}
