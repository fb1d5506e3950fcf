import { loadCluster, usableMemoryBytes } from '../cost/cluster.ts';
import type { CollectiveModel } from '../cost/collectives.ts';
import { collectiveModel } from '../cost/presets.ts';
import { Redistributor } from '../cost/redistribute.ts';
import { internalError, ShardwrightError } from '../errors.ts';
import type { Graph } from '../graph/types.ts';
import { parseMesh } from '../mesh/mesh.ts';
import { ShardingSpace } from '../mesh/space.ts';
import type { OperatorTable } from '../ops/table.ts';
import { evaluate } from '../solver/check.ts';
import { solve } from '../solver/solve.ts';
import type { Problem, Progress, Solution } from '../solver/types.ts';
import { dataflow } from '../strategy/dataflow.ts';
import { nodeStrategies } from '../strategy/nodes.ts';
import { buildModel } from './build.ts';
import { decode } from './decode.ts';
import type { Model } from './model.ts';
import { applyInputOutput, applyPins, Restriction } from './pins.ts';
import { propagate } from './propagate.ts';
import { recost } from './recost.ts';
import type { PlanRequest } from './request.ts';
import { PLAN_VERSION, type Plan } from './types.ts';

export interface ShardOptions {
  readonly table: OperatorTable;
  /** Choices known beforehand, such as recipes: they bound the search and can only make it faster. */
  readonly starts?: readonly Int32Array[];
  readonly signal?: AbortSignal;
  readonly onProgress?: (event: Progress) => void;
}

/** A request made ready: the model, and the problem that the request's pins leave of it. */
export interface Prepared {
  readonly request: PlanRequest;
  readonly model: Model;
  readonly problem: Problem;
  readonly collectives: CollectiveModel;
  readonly table: OperatorTable;
  readonly budgetBytes: number;
  readonly assumptions: readonly string[];
  /** Restrictions that leave some node nothing; not empty means infeasible whatever the budget. */
  readonly contradictions: readonly string[];
}

/** No plan exists: which demands contradict each other, and the smallest budget that admits a plan. */
export interface Infeasible {
  readonly status: 'infeasible';
  readonly conflict: readonly string[];
  /** Bytes per device; absent when memory is not what is in the way. */
  readonly smallestBudgetBytes?: number;
  readonly budgetBytes: number;
}

export type ShardResult = { readonly status: 'planned'; readonly plan: Plan; readonly choice: Int32Array } | Infeasible;

/**
 * Builds the model of a request.
 *
 * @throws E_MESH, E_CLUSTER, E_UNKNOWN_OP, E_PIN, E_REF ... for a request that cannot be read
 */
export function prepare(graph: Graph, request: PlanRequest, table: OperatorTable): Prepared {
  const mesh = parseMesh(request.mesh);
  const cluster = loadCluster(request.cluster);
  const space = new ShardingSpace(mesh);
  const collectives = collectiveModel(request.cost, cluster, mesh);
  const redistributor = new Redistributor(space, collectives);
  refuseShardedText(graph);
  const flow = dataflow(graph, table);
  const strategies = nodeStrategies(graph, flow, table, space, { uneven: request.uneven, unknown: request.unknown });
  const budgetBytes = request.memoryBytes ?? usableMemoryBytes(cluster);
  const model = buildModel({
    graph,
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
    collectives,
    table,
    budgetBytes,
    assumptions: assumptionsOf(model, request),
    contradictions: restriction.contradictions(),
  };
}

/** Solves a prepared request and writes the plan. */
export async function shardPrepared(prepared: Prepared, options: Omit<ShardOptions, 'table'> = {}): Promise<ShardResult> {
  const { request, budgetBytes, contradictions } = prepared;
  if (contradictions.length > 0) return { status: 'infeasible', conflict: contradictions, budgetBytes };
  const problem = await lexicographic(prepared, options);
  const solution = await solve(problem, {
    engine: request.solver === 'propagate' ? 'auto' : request.solver,
    gap: request.gap,
    seed: request.seed,
    ...(request.timeLimitSeconds !== undefined ? { timeLimitSeconds: request.timeLimitSeconds } : {}),
    ...(options.starts !== undefined ? { starts: options.starts } : {}),
    ...(options.signal !== undefined ? { signal: options.signal } : {}),
    ...(options.onProgress !== undefined ? { onProgress: options.onProgress } : {}),
  });
  if (solution.status === 'infeasible') {
    return {
      status: 'infeasible',
      conflict: solution.conflict ?? [],
      budgetBytes,
      ...(solution.smallestBudget !== undefined ? { smallestBudgetBytes: solution.smallestBudget } : {}),
    };
  }
  return { status: 'planned', plan: writePlan(prepared, problem, solution), choice: solution.choice };
}

/** `shard(graph, request)`: prepare, solve, decode, re-cost. */
export async function shard(graph: Graph, request: PlanRequest, options: ShardOptions): Promise<ShardResult> {
  return shardPrepared(prepare(graph, request, options.table), options);
}

/**
 * With the objective `parameter-memory` the least memory of parameters is found first and becomes the bound of the memory
 * row; time is then minimised among the plans that reach it.
 */
async function lexicographic(prepared: Prepared, options: Omit<ShardOptions, 'table'>): Promise<Problem> {
  const { problem } = prepared;
  if (prepared.request.objective === 'time') return problem;
  const [row] = problem.rows!;
  const byteVectors = new Map<number, number>();
  const vectors: Float64Array[] = problem.vectors.map((v) => v.map((c) => (c === Infinity ? Infinity : 0)));
  const unary = Int32Array.from(problem.unary);
  row.variables.forEach((variable, k) => {
    const id = vectors.length;
    vectors.push(row.amounts[k].map((bytes, a) => (problem.vectors[problem.unary[variable]][a] === Infinity ? Infinity : bytes)));
    byteVectors.set(variable, id);
    unary[variable] = id;
  });
  const tables = problem.tables.map((t) => ({ ...t, costs: t.costs.map((c) => (c === Infinity ? Infinity : 0)) }));
  const least = await solve({ ...problem, unary, vectors, tables, rows: [] }, {
    gap: 0,
    seed: prepared.request.seed,
    ...(options.signal !== undefined ? { signal: options.signal } : {}),
  });
  if (least.status !== 'optimal') throw internalError('least parameter memory was not proven');
  return { ...problem, rows: [{ ...row, bound: Math.min(row.bound, least.objective) }] };
}

function writePlan(prepared: Prepared, problem: Problem, solution: Solution): Plan {
  const { model, request, collectives, table, budgetBytes } = prepared;
  const decoded = decode(model, solution.choice);
  // A redistributor of its own: the re-check asks every price anew.
  const fresh = new Redistributor(model.space, collectives);
  const { graph, flow, space, cluster, unitsPerSecond } = model;
  const recheckedSeconds = recost(decoded, graph, flow, table, space, cluster, collectives, fresh);
  const seconds = solution.objective / unitsPerSecond;
  // Every term was rounded to a unit once; the sums may differ by half a unit a term.
  const terms = problem.domains.length + problem.edges.first.length;
  if (Math.abs(recheckedSeconds - seconds) > (terms / unitsPerSecond) * 2 + 1e-9 * seconds)
    throw internalError(`the plan costs ${recheckedSeconds} s re-checked, the solver says ${seconds} s`);
  return {
    version: PLAN_VERSION,
    model: graph.name,
    mesh: space.mesh.dims.map(({ name, size }) => ({ name, size })),
    cluster: cluster.id,
    request,
    objective: {
      seconds,
      computeSeconds: decoded.computeSeconds,
      communicationSeconds: decoded.communicationSeconds,
    },
    proof: {
      status: solution.status,
      bound: solution.bound / unitsPerSecond,
      gap: solution.gap,
      solver: solution.solver,
      solveSeconds: solution.seconds,
      recheckedSeconds,
      evidence: solution.evidence ?? [],
    },
    memory: { ...decoded.memory, budgetBytes },
    parameters: decoded.parameters,
    nodes: decoded.nodes,
    outputs: decoded.outputs,
    greedySeconds: greedySeconds(model, problem, solution.choice),
    assumptions: prepared.assumptions,
  };
}

/** Seconds of greedy propagation from the plan's own placements of inputs and parameters. */
function greedySeconds(model: Model, problem: Problem, choice: Int32Array): number | null {
  const start = new Map<number, number>();
  model.graph.nodes.forEach((node, n) => {
    const v = model.nodeVariable[n];
    if (node.kind === 'placeholder' && v >= 0) start.set(v, choice[v]);
  });
  const greedy = propagate(model, problem, start);
  if (greedy === undefined) return null;
  const { cost, violations } = evaluate(problem, greedy);
  return violations.length > 0 ? null : Number(cost) / model.unitsPerSecond;
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

function assumptionsOf(model: Model, request: PlanRequest): string[] {
  const list = [
    'Activation memory is not modelled: the memory row holds parameters, gradients, optimizer state and buffers only.',
    'Objective: compute and communication one after another, no overlap.',
  ];
  if (request.sharing)
    list.push('A value keeps at most one redistributed copy per phase; uses that want the same placement pay for it once.');
  for (const { target, count } of model.strategies.replicatedUnknown)
    list.push(`${target} (${count} nodes) has no rules and was planned replicated at zero compute.`);
  return [...list, ...model.cluster.assumptions, ...(model.graph.notes ?? [])];
}
