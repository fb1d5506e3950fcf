import { loadCluster, usableMemoryBytes } from '../cost/cluster.ts';
import type { CollectiveModel } from '../cost/collectives.ts';
import { collectiveModel } from '../cost/presets.ts';
import { Redistributor } from '../cost/redistribute.ts';
import { ShardwrightError } from '../errors.ts';
import type { Graph } from '../graph/types.ts';
import { parseMesh } from '../mesh/mesh.ts';
import { ShardingSpace } from '../mesh/space.ts';
import { openBodies, type OpenedGraph } from '../passes/open-bodies.ts';
import { plannable } from '../passes/plannable.ts';
import type { OperatorTable } from '../ops/table.ts';
import type { Problem } from '../solver/types.ts';
import { dataflow } from '../strategy/dataflow.ts';
import { nodeStrategies } from '../strategy/nodes.ts';
import { buildModel } from './build.ts';
import type { Model } from './model.ts';
import type { CompactProblem } from './compact.ts';
import { applyInputOutput, applyPins, Restriction } from './pins.ts';
import type { PlanRequest } from './request.ts';

/** A request made ready: the model, and the problem that the request's pins leave of it. */
export interface Prepared {
  readonly request: PlanRequest;
  readonly model: Model;
  /** Values that pins take away cost Infinity. */
  readonly problem: Problem;
  /** The same problem with those values left out: what is solved. */
  readonly compact: CompactProblem;
  readonly collectives: CollectiveModel;
  readonly table: OperatorTable;
  readonly budgetBytes: number;
  readonly assumptions: readonly string[];
  /** Restrictions that leave some node nothing; not empty means infeasible whatever the budget. */
  readonly contradictions: readonly string[];
}

/**
 * Builds the model of a request.
 *
 * @throws E_MESH, E_CLUSTER, E_UNKNOWN_OP, E_PIN, E_REF ... for a request that cannot be read
 */
export function prepare(original: Graph, request: PlanRequest, table: OperatorTable): Prepared {
  const mesh = parseMesh(request.mesh);
  const cluster = loadCluster(request.cluster);
  const space = new ShardingSpace(mesh);
  const collectives = collectiveModel(request.cost, cluster, mesh);
  const redistributor = new Redistributor(space, collectives);
  refuseShardedText(original);
  const straight = plannable(original, table);
  const opened = openBodies(straight, table);
  const graph = opened?.graph ?? straight;
  const flow = dataflow(graph, table, request.sharing);
  const strategies = nodeStrategies(graph, flow, table, space, { uneven: request.uneven, unknown: request.unknown });
  const budgetBytes = request.memoryBytes ?? usableMemoryBytes(cluster);
  const model = buildModel({
    graph,
    ...(opened !== undefined ? { opened } : {}),
    flow,
    strategies,
    space,
    cluster,
    collectives,
    redistributor,
    optimizer: request.optimizer,
    sharing: request.sharing,
    budgetBytes,
  });
  const restriction = new Restriction(model);
  applyPins(model, restriction, request.pins);
  applyInputOutput(model, restriction, request.inputs, request.outputs);
  return {
    request,
    model,
    problem: restriction.problem(),
    compact: restriction.compact(),
    collectives,
    table,
    budgetBytes,
    assumptions: assumptionsOf(model, request, opened),
    contradictions: restriction.contradictions(),
  };
}

/** A graph that is one rank's program has collectives in it and local shapes: there is nothing left to shard. */
function refuseShardedText(graph: Graph): void {
  const node = graph.nodes.find((n) => n.kind === 'call' && n.target.includes('c10d_functional'));
  if (node === undefined) return;
  throw new ShardwrightError('E_UNSUPPORTED', `the graph is already the program of one rank: it calls ${node.target}`, {
    node: node.name,
    hint: 'plan the unsharded model.',
  });
}

function assumptionsOf(model: Model, request: PlanRequest, opened: OpenedGraph | undefined): string[] {
  const list = [
    'Activation memory is not modelled: the memory row holds parameters, gradients, optimizer state and buffers only.',
    'Objective: compute and communication one after another, no overlap.',
  ];
  if (request.sharing)
    list.push(
      'A value keeps at most one redistributed copy per phase; uses that want the same placement pay for it once.',
    );
  for (const { target, count } of model.strategies.replicatedUnknown)
    list.push(`${target} (${count} nodes) has no rules and was planned replicated at zero compute.`);
  if (opened !== undefined)
    list.push(
      'Control flow: each body is listed once; its times count by trips, and what a loop does not change is moved before it.',
      ...opened.notes,
    );
  return [...list, ...model.cluster.assumptions, ...(model.graph.notes ?? [])];
}
