/**
 * Prices routed experts separately from the rest of the program. In the whole program tokens are
 * sorted by expert over the whole batch, which no data rank does: each sorts its own tokens and
 * exchanges them with the other ranks of its expert group. So the routed blocks are taken out of
 * the program that is placed, and what one device does for its own tokens is priced by its calls:
 * balanced routing is assumed, rows stay as many, and of the experts' weights one device reads its
 * share.
 */

import type { Cluster } from '../../cost/hardware/cluster.ts';
import { type CallTime, matrixCall, memoryCall, type StepSystem } from '../../cost/kernels/call.ts';
import { defaultOptimizer, type Optimizer, stateBytes } from '../../cost/memory/state-bytes.ts';
import { presetComputeCost } from '../../cost/presets/presets.ts';
import { defined } from '../../defined.ts';
import { internalError } from '../../errors.ts';
import { roleName, typesByName } from '../../graph/nodes.ts';
import { DTYPE_BYTES, type Graph, type Node, type ValueType } from '../../graph/types.ts';
import { eachOperand, elementCount, mapOperands, valueBytes } from '../../graph/value.ts';
import { bind } from '../../ops/record/infer.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { withoutDeadCode } from '../../passes/dead-code.ts';
import { ROUTED_PARTS, type RoutedPart } from '../checkpoints.ts';
import type { CoreParameter } from '../units.ts';
import { graphUnits } from './graph-units.ts';
import { programKernels } from './program-kernels.ts';
import {
  type Block,
  EXPERTS,
  isGroupedProduct,
  isInside,
  routedBlocks,
  routedCalls,
} from './routed-blocks.ts';
import { fusedCalls } from './saved/made-again.ts';
import { keptByUnit, narrowSaves } from './saved/saved-activations.ts';

/** A forward program whose routed blocks hand on what they read; their parameters are gone. */
export function withoutRouted(graph: Graph): Graph {
  const found = routedBlocks(graph, (node) => node.kind === 'call');
  if (found.length === 0) return graph;
  const instead = new Map(found.map((b) => [b.exit, b.entry]));
  const rename = (name: string): string => instead.get(name) ?? name;
  const cut = withoutDeadCode({
    ...graph,
    nodes: graph.nodes.map((node) => mapOperands(node, rename)),
    outputs: graph.outputs.map((o) => (o.value === null ? o : { ...o, value: rename(o.value) })),
  });
  const gone = (node: Node): boolean =>
    node.kind === 'placeholder' &&
    node.meta.role !== 'input' &&
    found.some((b) => isInside(roleName(node), b.scope));
  return { ...cut, nodes: cut.nodes.filter((n) => !gone(n)) };
}

/** The costs that one unit's routed block adds. */
export interface RoutedUnit {
  readonly forwardSeconds: number;
  readonly inputSeconds: number;
  readonly weightSeconds: number;
  /** Kernels that the host launches. */
  readonly kernels: { readonly forward: number; readonly backward: number };
  readonly recomputeSeconds: Readonly<Record<RoutedPart, number>>;
  readonly keptBytes: Readonly<Record<RoutedPart, number>>;
  readonly temporaryBytes: number;
  /** Payload of one all-to-all on a device: all copies of its tokens. */
  readonly dispatchBytes: number;
}

export interface RoutedCosts {
  /** Experts of a layer, and how many of them a token meets. */
  readonly experts: number;
  readonly active: number;
  /** Node-limited routing (`RoutedExperts.groups`). */
  readonly limit?: { readonly count: number; readonly kept: number };
  /** By `foldKey`. */
  readonly units: Readonly<Record<string, readonly RoutedUnit[]>>;
  readonly parameters: readonly CoreParameter[];
}

/** Devices of an expert group, and those that cut each expert between them. */
export interface Fold {
  readonly ep: number;
  readonly etp: number;
}

function foldKey({ ep, etp }: Fold): string {
  return etp === 1 ? `${ep}` : `${ep},${etp}`;
}

/** The routed block of each unit under a fold; undefined where it was not priced for it. */
export function routedUnits(
  costs: RoutedCosts,
  { ep, etp = 1 }: { readonly ep: number; readonly etp?: number },
): readonly RoutedUnit[] | undefined {
  return costs.units[foldKey({ ep, etp })];
}

interface RoutedRequest {
  /** Joint program of one device's tokens. */
  readonly graph: Graph;
  readonly phases: readonly ('forward' | 'backward')[];
  readonly layers: number;
  readonly table: OperatorTable;
  readonly cluster: Cluster;
  readonly preset: string;
  readonly system: StepSystem | undefined;
  readonly optimizer?: Optimizer | undefined;
  readonly experts: number;
  readonly active: number;
  readonly limit?: RoutedCosts['limit'];
  /** The folds to price. */
  readonly folds: readonly Fold[];
  /** Share of a device's experts that some token meets; absent: all. */
  readonly metShare?: number | undefined;
}

/**
 * Routed blocks of a joint program, by unit and by fold. Where `etp` devices cut an expert between
 * them, each has the rows of all of them and its part of the expert's width: products are priced at
 * those sizes, what is computed element by element between them has as many elements as before, and
 * the gathered rows are kept.
 */
export function routedCosts(request: RoutedRequest): RoutedCosts {
  const program = routedProgram(request);
  const { graph, experts, active, limit, folds, metShare = 1 } = request;
  // Only the products of a device's experts depend on the number of experts and on their cut.
  const others = otherTimes(request, program);
  const byFold = folds.map((fold) => {
    const share = Math.ceil(metShare * Math.ceil(experts / fold.ep));
    const times = graph.nodes.map((node, i) =>
      program.isRouted[i] && isProduct(node)
        ? timeAt(request, program, node, { share, etp: fold.etp })
        : others[i],
    );
    return Array.from({ length: program.units.count }, (_, u) =>
      routedUnit(request, program, { u, fold, times }),
    );
  });
  return {
    experts,
    active,
    ...defined({ limit }),
    units: Object.fromEntries(folds.map((fold, k) => [foldKey(fold), byFold[k]])),
    parameters: routedParameters(
      graph,
      program.found.map((b) => b.scope),
      program.units.unit,
      request,
    ),
  };
}

/** A joint program with its routed blocks. */
interface RoutedProgram {
  readonly units: ReturnType<typeof graphUnits>;
  readonly found: readonly Block[];
  /** Nodes of the blocks, and of their backward passes. */
  readonly isRouted: readonly boolean[];
  readonly types: ReadonlyMap<string, ValueType>;
  readonly bytesOf: (node: number) => number;
  /** Width of the stream of tokens. */
  readonly width: number;
  /** Calls that run again, by what is recomputed, and the bytes that are then kept. */
  readonly again: Readonly<Record<RoutedPart, ReadonlySet<string>>>;
  readonly kept: Readonly<Record<RoutedPart, ReturnType<typeof keptByUnit>>>;
  /** Results of experts that software with shares inside them does not keep. */
  readonly weighed: ReadonlySet<number>;
}

const NONE: ReadonlySet<number> = new Set();

/**
 * The results of experts for each token and the same times their shares: what lies behind the last
 * product of a block and has as many elements. Software that multiplies shares in before that
 * product needs none of them for the backward pass (megatron-core since 0.12: `permuted_probs` go
 * into the activation function, `transformer/moe/experts.py`).
 */
function weighedResults(graph: Graph, found: readonly Block[]): ReadonlySet<number> {
  const weighed = new Set<number>();
  for (const { calls } of found) {
    const own = [...graph.nodes.keys()].filter((i) => calls.has(graph.nodes[i].name));
    const product = own.findLast((i) => isProduct(graph.nodes[i]));
    if (product === undefined) continue;
    const count = elementsOf(graph.nodes[product]);
    for (const i of own) if (i >= product && elementsOf(graph.nodes[i]) === count) weighed.add(i);
  }
  return weighed;
}

function routedProgram(request: RoutedRequest): RoutedProgram {
  const { graph, phases, layers, table, system } = request;
  const units = graphUnits(graph, phases, layers, table);
  const found = routedBlocks(graph, (node, i) => node.kind === 'call' && phases[i] === 'forward');
  const isRouted = routedCalls(graph, phases, found);
  const forward = new Set(found.flatMap((b) => [...b.calls]));
  const types = typesByName(graph);
  const bytesOf = (i: number): number => valueBytes(graph.nodes[i].type);
  const isPointwise = (n: Node): boolean => table.get(n.target)?.cls === 'pointwise';
  const again = record(
    (part) =>
      new Set(
        graph.nodes.flatMap((n) =>
          forward.has(n.name) && isRecomputed(part, n, isPointwise(n)) ? [n.name] : [],
        ),
      ),
  );
  const narrow = narrowSaves(graph, units, table, system?.software);
  const fused = fusedCalls(graph, units, table, system?.software);
  const weighed =
    system?.software.memory?.sharesInExperts === true ? weighedResults(graph, found) : NONE;
  const counts = (i: number): boolean => isRouted[i] && !weighed.has(i);
  const kept = record((part) =>
    keptByUnit(graph, units, again[part], bytesOf, { counts, narrow, fused }),
  );
  const width = streamWidth(found, types);
  return { units, found, isRouted, types, bytesOf, width, again, kept, weighed };
}

/** The time of a call on a share of the experts, each cut between `etp` devices. */
function timeAt(
  request: RoutedRequest,
  { types, width }: RoutedProgram,
  node: Node,
  { share, etp }: { readonly share: number; readonly etp: number },
): CallTime {
  return callTime(node, types, { share, etp, width }, request);
}

/** Times of all calls but the products of experts, which are the same under every fold. */
function otherTimes(request: RoutedRequest, program: RoutedProgram): CallTime[] {
  const { graph, table, experts, system } = request;
  const { units, types, bytesOf, isRouted } = program;
  const typeOf = (name: string): ValueType => types.get(name) ?? internalType(name);
  // Products of one kernel with those of a block lie around it; other calls may have other sizes.
  const isRead = (i: number): boolean =>
    isRouted[i] || table.get(graph.nodes[i].target)?.cls === 'matmul';
  const contextOf = (i: number): ReturnType<typeof bind> =>
    isRead(i) ? bind(table, graph.nodes[i], typeOf) : undefined;
  const made =
    system === undefined
      ? undefined
      : programKernels({ graph, units, table, bytesOf, contextOf }, system);
  return graph.nodes.map((node, i) => {
    if (!isRouted[i] || isProduct(node)) return NOTHING;
    if (made === undefined) return timeAt(request, program, node, { share: experts, etp: 1 });
    const stillMoved =
      system?.software.groupedExperts === true && table.get(node.target)?.cls === 'other';
    const seconds = made.seconds[i] * (stillMoved ? ROWS_STILL_MOVED : 1);
    return { seconds, kernels: made.kernels[i] };
  });
}

/** The routed block of a unit under a fold, from the times of all calls. */
function routedUnit(
  { graph, experts, active }: RoutedRequest,
  { units, found, isRouted, bytesOf, again, kept, weighed }: RoutedProgram,
  {
    u,
    fold,
    times,
  }: { readonly u: number; readonly fold: Fold; readonly times: readonly CallTime[] },
): RoutedUnit {
  const sum = (accepts: (i: number) => boolean, of: keyof CallTime = 'seconds'): number =>
    times.reduce(
      (total, t, i) => (isRouted[i] && units.unit[i] === u && accepts(i) ? total + t[of] : total),
      0,
    );
  const largest = graph.nodes.reduce(
    (most, node, i) =>
      isRouted[i] && units.unit[i] === u && !isStack(node.type, experts) && !weighed.has(i)
        ? Math.max(most, bytesOf(i))
        : most,
    0,
  );
  const dispatchBytes = dispatchOf(found, graph, u, active);
  // Rows that come from the others that cut the same experts.
  const gathered = (part: RoutedPart): number =>
    part === 'full' ? 0 : (fold.etp - 1) * dispatchBytes;
  return {
    forwardSeconds: sum((i) => units.pass[i] === 'forward'),
    inputSeconds: sum((i) => units.pass[i] === 'input'),
    weightSeconds: sum((i) => units.pass[i] === 'weight'),
    kernels: {
      forward: sum((i) => units.pass[i] === 'forward', 'kernels'),
      backward: sum((i) => units.pass[i] !== 'forward', 'kernels'),
    },
    recomputeSeconds: record((part) => sum((i) => again[part].has(graph.nodes[i].name))),
    keptBytes: record((part) => kept[part].bytes[u] + gathered(part)),
    // A product's operand and its result, and the gradient of one of them.
    temporaryBytes: 2 * (fold.etp === 1 ? largest : Math.max(largest, fold.etp * dispatchBytes)),
    dispatchBytes,
  };
}

/**
 * Keeps only the input of a block that is recomputed; selectively, the products of the experts are
 * kept too. For activation functions alone, the values between the products are recomputed.
 */
function isRecomputed(part: RoutedPart, node: Node, isPointwise: boolean): boolean {
  if (part === 'none') return false;
  if (part === 'moe_act')
    return isPointwise && node.meta.path?.endsWith(EXPERTS.slice(0, -1)) === true;
  return part === 'full' || !isProduct(node);
}

function isProduct(node: Node): boolean {
  return isGroupedProduct(node.target);
}

/** Weights or gradients of all experts: states, not results. */
function isStack(type: ValueType, experts: number): boolean {
  return type.kind === 'tensor' && type.shape.length === 3 && type.shape[0] === experts;
}

function record<T>(of: (part: RoutedPart) => T): Record<RoutedPart, T> {
  return Object.fromEntries(ROUTED_PARTS.map((part) => [part, of(part)])) as Record<RoutedPart, T>;
}

function dispatchOf(found: readonly Block[], graph: Graph, unit: number, active: number): number {
  const block = found.find((b) => unitOfScope(b.scope) === unit);
  const entry = block === undefined ? undefined : graph.nodes.find((n) => n.name === block.entry);
  return entry === undefined ? 0 : active * valueBytes(entry.type);
}

function unitOfScope(scope: string): number {
  const match = /(\d+)[^\d]*$/.exec(scope);
  return match === null ? -1 : Number(match[1]) + 1;
}

/** Elements of a token where it goes into a routed block. */
function streamWidth(found: readonly Block[], types: ReadonlyMap<string, ValueType>): number {
  const type = found.length === 0 ? undefined : types.get(found[0].entry);
  return type?.kind === 'tensor' ? Number(type.shape.at(-1)) : 0;
}

/** The experts of a device: `share` of them, each cut `etp` ways. */
interface ExpertSizes {
  readonly share: number;
  readonly etp: number;
  /** Elements of a token outside the experts. */
  readonly width: number;
}

/**
 * Operands on a device of a grouped product: [rows, in] x [experts, in, out], or [in, rows] x
 * [rows, out], and bounds [experts].
 */
function productTypes(
  operands: readonly ValueType[],
  made: ValueType,
  { share, etp, width }: ExpertSizes,
): ValueType[] {
  const shapeOf = (type: ValueType): readonly number[] =>
    type.kind === 'tensor' ? type.shape.map(Number) : [];
  const ofWeight = shapeOf(operands[1]).length === 2;
  const [, inward] = shapeOf(ofWeight ? made : operands[1]);
  // Of a weight's two dims, the one inside the expert is cut; equal ones make equal products.
  const [i, o] = inward === width ? [1, etp] : [etp, 1];
  const [left, right, bounds] = operands.map(shapeOf);
  const local = ofWeight
    ? [
        [left[0] / i, left[1] * etp],
        [right[0] * etp, right[1] / o],
      ]
    : [
        [left[0] * etp, left[1] / i],
        [share, right[1] / i, right[2] / o],
      ];
  return operands.map((type, k) => {
    if (type.kind !== 'tensor') return type;
    const { stride: _, ...plain } = type;
    return { ...plain, shape: k < 2 ? local[k] : bounds.map(() => share) };
  });
}

/**
 * The share of the traffic for laying out rows that is left where one kernel takes them as the
 * exchange leaves them: 2 of 6 passes.
 */
const ROWS_STILL_MOVED = 1 / 3;

function internalType(name: string): never {
  throw internalError(`value '${name}' is not defined`);
}

const NOTHING: CallTime = { seconds: 0, kernels: 0 };

/** A call at the sizes of a device. */
function callTime(
  node: Node,
  types: ReadonlyMap<string, ValueType>,
  sizes: ExpertSizes,
  { table, cluster, preset, system }: RoutedRequest,
): CallTime {
  const operator = table.get(node.target);
  if (operator === undefined || operator.cls === 'view' || operator.cls === 'control')
    return NOTHING;
  const typeOf = (name: string): ValueType => types.get(name) ?? internalType(name);
  let context: ReturnType<typeof bind>;
  if (!isProduct(node)) context = bind(table, node, typeOf);
  else {
    const names: string[] = [];
    eachOperand(node, (name) => names.push(name));
    const local = productTypes(names.map(typeOf), node.type, sizes);
    context = bind(table, node, (name) => local[names.indexOf(name)]);
  }
  if (context === undefined) return NOTHING;
  if (system === undefined)
    return { seconds: presetComputeCost(preset, operator, context, cluster).seconds, kernels: 0 };
  const bytes = operator.bytes(context);
  const weight = isProduct(node) && context.inputs[1].shape.length === 3;
  return (
    matrixCall(operator, context, system, { narrow: isProduct(node), weight }) ??
    memoryCall(bytes, bytes > 0 ? 1 : 0, system)
  );
}

function routedParameters(
  graph: Graph,
  scopes: readonly string[],
  unit: Int32Array,
  { optimizer, experts }: RoutedRequest,
): CoreParameter[] {
  const withGradient = new Set(
    graph.outputs.flatMap((o) => (o.role === 'grad' && o.value !== null ? [o.of] : [])),
  );
  return graph.nodes.flatMap((node, i): CoreParameter[] => {
    const { role } = node.meta;
    if (
      node.kind !== 'placeholder' ||
      (role !== 'parameter' && role !== 'buffer') ||
      node.type.kind !== 'tensor'
    )
      return [];
    const name = roleName(node);
    if (!scopes.some((scope) => isInside(name, scope))) return [];
    const { dtype } = node.type;
    const isExpert = name.includes(EXPERTS);
    const trained = role === 'parameter' && withGradient.has(name);
    const elements = elementCount(node.type) ?? 0;
    const rows = isExpert ? experts : Number(node.type.shape[0] ?? 1);
    return [
      {
        name,
        unit: unit[i],
        kind: isExpert ? 'expert' : 'router',
        localElements: elements,
        localRows: rows,
        rows,
        rowWays: 1,
        itemBytes: DTYPE_BYTES[dtype],
        state: trained
          ? stateBytes(optimizer ?? defaultOptimizer(dtype), dtype)
          : { parameter: DTYPE_BYTES[dtype], gradient: 0, optimizer: 0 },
        ...(isExpert ? { isNarrow: true } : {}),
        usedForward: true,
        // The way back to what the block read passes its weights, whether they are trained or not.
        usedBackward: role === 'parameter',
        trained,
        pending: [],
      },
    ];
  });
}

/** Elements of the tensor that a call makes; undefined where it makes several. */
function elementsOf({ type }: Node): number | undefined {
  return type.kind === 'tensor' ? elementCount(type) : undefined;
}
