/**
 * The routed part of a placed program: its calls, parameters and routing, and how mesh dims lay out
 * its experts. The plan says where parameters lie; a trainer sorts the tokens of each device and
 * exchanges them, whatever the placed program does with their rows.
 */

import { defined } from '../../defined.ts';
import { internalError } from '../../errors.ts';
import { nodesByName, roleName } from '../../graph/nodes.ts';
import type { Graph, Node } from '../../graph/types.ts';
import { eachOperand, exampleShape } from '../../graph/value.ts';
import { firstItems, itemAt } from '../../item-at.ts';
import type { DeviceMesh } from '../../mesh/devices/mesh.ts';
import { REPLICATE_CODE, shardDimOfCode } from '../../mesh/sharding/space.ts';
import { Routes } from '../../plan/choice/routes.ts';
import type { Model } from '../../plan/model/model.ts';
import { product } from '../../product.ts';
import { layerNumbers } from '../layers.ts';
import type { LayoutSizes } from '../layout.ts';
import type { StateMode } from '../zero-mode.ts';
import { type GraphUnits, graphUnits } from './graph-units.ts';
import type { RoutedCosts } from './moe.ts';
import {
  type Block,
  EXPERTS,
  hasRoutedBlocks,
  isGroupedProduct,
  isInside,
  routedBlocks,
  routedCalls,
} from './routed-blocks.ts';

type Routing = Pick<RoutedCosts, 'experts' | 'active' | 'limit'>;

/** Calls and parameters of routed blocks, which are read apart from the rest of a program. */
export interface RoutedPart extends Routing {
  readonly found: readonly Block[];
  /** By node. */
  readonly isRouted: readonly boolean[];
  /** Their parameters and buffers, by node. */
  readonly parameters: ReadonlySet<number>;
}

/** The routed part of a joint program; undefined for a dense one. */
export function routedPart({ graph, flow }: Pick<Model, 'graph' | 'flow'>): RoutedPart | undefined {
  let part = known.get(graph);
  if (part === undefined && !known.has(graph)) {
    part = hasRoutedBlocks(graph) ? partOf(graph, flow.phases) : undefined;
    known.set(graph, part);
  }
  return part;
}

/** Every recipe of a mesh is read from one program. */
const known = new WeakMap<Graph, RoutedPart | undefined>();

function partOf(graph: Graph, phases: Model['flow']['phases']): RoutedPart {
  const found = routedBlocks(graph, (n, i) => n.kind === 'call' && phases[i] === 'forward');
  return {
    found,
    isRouted: routedCalls(graph, phases, found),
    parameters: new Set(graph.nodes.flatMap((node, n) => (isOwn(node, found) ? [n] : []))),
    ...routingOf(graph, itemAt(found, 0)),
  };
}

function isOwn(node: Node, found: readonly Block[]): boolean {
  const { role } = node.meta;
  return (
    node.kind === 'placeholder' &&
    (role === 'parameter' || role === 'buffer') &&
    found.some(({ scope }) => isInside(roleName(node), scope))
  );
}

/** The numbers of a block's routing, read from its calls. */
function routingOf(graph: Graph, { entry, calls }: Block): Routing {
  const byName = nodesByName(graph);
  const operands = (node: Node): number[][] => {
    const shapes: number[][] = [];
    eachOperand(node, (name) => {
      const type = byName.get(name)?.type;
      shapes.push(type?.kind === 'tensor' ? exampleShape(type) : []);
    });
    return shapes;
  };
  const own = graph.nodes.filter(({ name }) => calls.has(name));
  const grouped = own.find(({ target }) => isGroupedProduct(target));
  const type = byName.get(entry)?.type;
  if (grouped === undefined || type?.kind !== 'tensor')
    throw internalError(`no product of experts follows '${entry}'`);
  const [rows, weights] = firstItems(operands(grouped), 2);
  const experts = itemAt(weights, 0);
  const tokens = product(exampleShape(type).slice(0, -1));
  // Where groups of experts are chosen first, the scores of the groups are ranked too.
  const limit = own.flatMap((node) => {
    const [ranked = []] = node.target.includes('topk') ? operands(node) : [];
    const kept = node.args[1];
    return ranked.length === 2 && itemAt(ranked, 1) < experts && typeof kept === 'number'
      ? [{ count: itemAt(ranked, 1), kept }]
      : [];
  });
  return { experts, active: itemAt(rows, 0) / tokens, ...defined({ limit: limit[0] }) };
}

/** A layout that trainers run, as the experts of a plan lie in it. */
export interface ExpertLayout {
  readonly sizes: Omit<LayoutSizes, 'pp'> & { readonly etp: number };
  readonly mode: StateMode;
}

/** The part of a mesh dim for the weights of experts. */
type DimRole = 'whole' | 'gathered' | 'experts' | 'inner';

/** Why trainers do not run a plan. */
interface NotRun {
  readonly notRun: string;
}

/** The layout of the experts of a plan, or why no trainer has it. */
export function expertLayout(
  model: Model,
  choice: Int32Array,
  part: RoutedPart,
  units: Pick<GraphUnits, 'root' | 'weight'>,
): ExpertLayout | NotRun {
  const { mesh } = model.space;
  const dims = mesh.sizes.flatMap((size, d) => (size > 1 ? [d] : []));
  const routes = new Routes(model, choice);
  const entries = new Set(part.found.map(({ entry }) => entry));
  const streams = model.graph.nodes.flatMap(({ name }, n) =>
    entries.has(name) ? [routes.owned(itemAt(itemAt(model.flow.results, n), 0))] : [],
  );
  const isCut = (d: number): boolean =>
    streams.every((id) => shardDimOfCode(model.space.kindAt(id, d)) >= 0);
  for (const d of dims) {
    const name = mesh.names[d];
    if (name === 'cp' || name === 'sp')
      return { notRun: `experts are not read where ${name} cuts the sequence` };
    if (!isCut(d)) return { notRun: `${name} does not cut the tokens that go to experts` };
  }
  const gathers = gatheredDims(model, routes, units);
  const roles = new Map<number, DimRole>();
  for (const d of dims) {
    const found = new Set(
      expertStacks(model, part).map((n) => roleIn(model, choice, gathers, n, d)),
    );
    const [role] = found;
    if (found.size !== 1 || role === undefined)
      return { notRun: `experts lie otherwise over ${mesh.names[d]} from layer to layer` };
    roles.set(d, role);
  }
  return layoutOf(mesh, roles, new Set([...gathers.values()].flatMap((found) => [...found])));
}

/** Why no trainer runs the experts of a plan as it places them; undefined where trainers do. */
export function expertsNotRun(model: Model, choice: Int32Array): string | undefined {
  const part = routedPart(model);
  if (part === undefined) return undefined;
  const { graph, flow, table } = model;
  const units = graphUnits(graph, flow.phases, layerNumbers(graph).count, table);
  const layout = expertLayout(model, choice, part, units);
  return 'notRun' in layout ? layout.notRun : undefined;
}

/** The weights of all experts, by node. */
function expertStacks({ graph, flow }: Model, { parameters }: RoutedPart): number[] {
  return [...parameters].filter((n) => {
    const value = itemAt(itemAt(flow.results, n), 0);
    const { shape } = itemAt(flow.values, value).meta;
    return shape.length === 3 && roleName(itemAt(graph.nodes, n)).includes(EXPERTS);
  });
}

/** The mesh dims over which each parameter (node) is gathered for its calls. */
function gatheredDims(
  { uses, flow, space }: Model,
  routes: Routes,
  { root, weight }: Pick<GraphUnits, 'root' | 'weight'>,
): ReadonlyMap<number, ReadonlySet<number>> {
  const found = new Map<number, Set<number>>();
  for (const use of uses) {
    const { node } = itemAt(flow.values, use.value);
    if (weight[node] !== 1 || use.at.kind !== 'input') continue;
    const [from, to] = [routes.owned(use.value), routes.demanded(use)];
    for (let d = 0; d < space.meshRank; d++) {
      const isGathered =
        shardDimOfCode(space.kindAt(from, d)) >= 0 && space.kindAt(to, d) === REPLICATE_CODE;
      if (!isGathered) continue;
      const dims = found.get(itemAt(root, node)) ?? new Set();
      found.set(itemAt(root, node), dims.add(d));
    }
  }
  return found;
}

function roleIn(
  { space, strategies, nodeVariable }: Model,
  choice: Int32Array,
  gathers: ReadonlyMap<number, ReadonlySet<number>>,
  n: number,
  d: number,
): DimRole {
  const entry = strategies.nodes[n];
  if (entry === null || entry === undefined) throw internalError(`node ${n} has no placements`);
  const stored = itemAt(entry.set.specs, itemAt(choice, itemAt(nodeVariable, n)));
  const dim = shardDimOfCode(space.kindAt(stored, d));
  if (dim < 0) return 'whole';
  if (gathers.get(n)?.has(d) === true) return 'gathered';
  return dim === 0 ? 'experts' : 'inner';
}

/** @param gathered dims over which some parameter is gathered */
function layoutOf(
  { names, sizes }: DeviceMesh,
  roles: ReadonlyMap<number, DimRole>,
  gathered: ReadonlySet<number>,
): ExpertLayout | NotRun {
  const tensor = names.indexOf('tp');
  const data = [...roles.keys()].filter((d) => d !== tensor);
  const sharded = data.filter((d) => gathered.has(d));
  const mode = sharded.length === 0 ? 'dp' : sharded.length === data.length ? 'fsdp' : 'hsdp';
  const replicas = mode === 'hsdp' ? data.filter((d) => !gathered.has(d)) : [];
  const cutting = [...roles].flatMap(([d, role]) => (role === 'experts' ? [d] : []));
  const inner = roles.get(tensor);
  if (inner !== undefined && inner !== 'inner' && inner !== 'experts')
    return { notRun: 'devices of tp have the same experts, and would compute the same rows' };
  const lies = (d: number, role: DimRole): boolean =>
    d === tensor || role === 'experts' || role === (gathered.has(d) ? 'gathered' : 'whole');
  const strange = [...roles].find(([d, role]) => !lies(d, role));
  if (strange !== undefined)
    return { notRun: `experts lie otherwise over ${names[strange[0]]} than other weights` };
  // Groups of experts are neighbours, and replicas are outermost.
  const isInnermost = cutting.every(
    (d, i) => d === [...roles.keys()].at(i - cutting.length - (inner === 'inner' ? 1 : 0)),
  );
  const isOutermost = replicas.every((d, i) => d === data[i] && !cutting.includes(d));
  if (!isInnermost || !isOutermost)
    return { notRun: 'groups of experts are not the innermost devices' };
  const ways = (list: readonly number[]): number => product(list.map((d) => itemAt(sizes, d)));
  const tp = tensor < 0 ? 1 : itemAt(sizes, tensor);
  return {
    mode,
    sizes: {
      dp_replicate: ways(replicas),
      dp_shard: ways(data.filter((d) => !replicas.includes(d))),
      cp: 1,
      tp,
      ep: ways(cutting),
      etp: inner === 'inner' ? tp : 1,
    },
  };
}
