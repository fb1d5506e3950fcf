/**
 * Takes a graph and a number of devices and gives the plans of every mesh, ranked: the recipes, the
 * unrestricted optimum and, for a step of several microbatches, pipeline stages.
 */

import { loadCluster } from '../../cost/hardware/load-cluster.ts';
import { clusterTopology } from '../../cost/hardware/topology.ts';
import { divisors } from '../../divisors.ts';
import { ShardwrightError } from '../../errors.ts';
import type { Graph } from '../../graph/types.ts';
import { DeviceMesh } from '../../mesh/devices/mesh.ts';
import { cuttable } from '../../passes/stages/split.ts';
import { checkAccumulation } from '../../plan/prepare/program.ts';
import type { Deadline } from '../../plan/request/deadline.ts';
import { memoryBounds } from '../../recipes/compare/best-plan.ts';
import {
  type AlsoCompared,
  askedComparison,
  type Compared,
  compareMeshes,
  type CompareOptions,
  type CompareRequest,
  deadlineOf,
  inSlice,
  MOST_DIMS,
  reached,
} from '../../recipes/compare/compare-graph.ts';
import { withinSafe } from '../../recipes/compare/compare-mesh.ts';
import type { Comparison } from '../../recipes/compare/comparison.ts';
import type { RawPlan } from '../../recipes/compare/conclude-comparison.ts';
import { meshCandidates } from '../../recipes/compare/meshes.ts';
import { type GraphStages, planGraphStages } from './graph-stages.ts';

/** Name of the plans in pipeline stages, each with the optimum of its own problem. */
export const STAGED = 'pp+optimum';

/** Most dims of the mesh of a stage: a third has rarely helped and takes longest. */
const MOST_STAGE_DIMS = 2;

/** The share of the time that stages may take. */
const STAGED_SHARE = 1 / 2;

/**
 * The recipes and the free optimum on every mesh of some devices. Each recipe is solved as a
 * restriction of the same problem, so the optimum of its mesh can not be more expensive; a mesh
 * whose bound is above the best plan so far is not solved. A step of several microbatches
 * (`accumulate`) may run in pipeline stages, too: they are planned on every mesh of at most two
 * dims, and run by 1F1B. The time limit is that of all meshes: each gets an equal part of what is
 * left.
 *
 * @throws E_TIME_LIMIT, E_INTERRUPTED where there is no plan by then; E_USAGE for an unknown
 *   recipe, E_MESH, E_CLUSTER as `prepare`
 *
 * @example
 * ```ts
 * import { compare, input, parameter, trace } from 'shardwright';
 *
 * const graph = trace(({ x, w1, w2 }) => x.matmul(w1).relu().matmul(w2), {
 *   x: input([4096, 4096]),
 *   w1: parameter([4096, 16384]),
 *   w2: parameter([16384, 4096]),
 * });
 * const { plans } = await compare(graph, { devices: 4, cluster: 'dgx-h100' });
 * console.log(plans[0].plan, plans[0].mesh); // dp dp=4
 * ```
 */
export async function compare(
  graph: Graph,
  request: CompareRequest,
  options: CompareOptions = {},
): Promise<Comparison> {
  const asked = askedComparison(graph, request, options);
  const { plans } = asked;
  checkAccumulation(graph, asked.request);
  if (plans?.includes(STAGED) === true) checkPasses(asked);
  const deadline = deadlineOf(asked);
  const others = plans?.filter((name) => name !== STAGED);
  const rest = { ...asked, deadline, ...(others === undefined ? {} : { plans: others }) };
  const isAsked = plans?.includes(STAGED) ?? true;
  const staged = isAsked ? await stagedPlans(graph, asked, deadline) : undefined;
  return compareMeshes(graph, rest, staged);
}

/** @throws E_USAGE for stages of a step that is one pass */
function checkPasses({ request: { accumulate } }: Compared): void {
  if (accumulate !== undefined) return;
  throw new ShardwrightError('E_USAGE', `${STAGED} needs a step of several microbatches`, {
    hint: 'say how many, such as 8 (--accumulate 8): the graph is the pass of one.',
  });
}

/** A number of stages, and the sizes of the mesh of each. */
interface StagesMesh {
  readonly stages: number;
  readonly sizes: readonly number[];
}

/** The plans in stages of a step of several microbatches; none for one pass. */
async function stagedPlans(
  graph: Graph,
  options: Compared,
  deadline: Deadline,
): Promise<AlsoCompared> {
  const found: Found = { raw: [], refused: [], meshes: [] };
  const { accumulate } = options.request;
  if (accumulate === undefined) return found;
  const meshes = stagesMeshes(graph, options);
  const whole = deadline.part(STAGED_SHARE);
  for (const [i, one] of meshes.entries()) {
    const part = whole.part(1 / (meshes.length - i));
    const mesh = wholeMesh(one);
    if (part.isOver || !(await reached(() => addStages(graph, one, { options, found, part }))))
      found.meshes.push({
        mesh: mesh.text,
        hosts: hostsOf(mesh, options),
        status: 'not reached',
        reason: 'the time was over',
      });
  }
  return found;
}

/** The plans so far. */
type Found = { readonly [key in keyof AlsoCompared]: AlsoCompared[key][number][] };

/** The meshes of stages, of which there are as many as the graph has cut points for. */
function stagesMeshes(
  graph: Graph,
  { devices, maxDims = MOST_DIMS, request, table, slice }: Compared,
): readonly StagesMesh[] {
  const cluster = loadCluster(request.cluster);
  const most = cuttable(graph, table).points.length + 1;
  const all = divisors(devices)
    .filter((stages) => stages > 1 && stages <= most)
    .flatMap((stages) =>
      meshCandidates(devices / stages, cluster, Math.min(maxDims, MOST_STAGE_DIMS))
        .filter(({ refused }) => refused === undefined)
        .map(({ sizes }) => ({ stages, sizes })),
    );
  return inSlice(all, slice);
}

interface StagesWork {
  readonly options: Compared;
  readonly found: Found;
  readonly part: Deadline;
}

/** Plans the stages of one mesh. */
async function addStages(
  graph: Graph,
  { stages, sizes }: StagesMesh,
  { options, found, part }: StagesWork,
): Promise<void> {
  const { request, table, risk } = options;
  const { accumulate: microbatches = 1, ...pass } = request;
  const cluster = loadCluster(request.cluster);
  const bounds = memoryBounds(cluster, { ...request, ...(risk === undefined ? {} : { risk }) });
  const mesh = innerMesh(sizes).text;
  options.onProgress?.(`${stages} stages on ${sizes.join(' x ')}: planning`);
  const planned = await planGraphStages(
    graph,
    { ...withinSafe(pass, bounds), mesh },
    { devices: stages, microbatches, schedule: '1f1b', virtual: 1 },
    { table, deadline: part },
  );
  const whole = wholeMesh({ stages, sizes }).text;
  if ('infeasible' in planned) {
    const reason = `no plan fits ${planned.part}`;
    found.refused.push({ plan: STAGED, mesh: whole, reason });
    return;
  }
  found.raw.push(rawPlan(planned, whole, bounds.budgetBytes));
  options.onPlan?.();
}

/** The figures of a plan in stages: the step, and costs of one of its passes. */
function rawPlan({ pipeline, plans }: GraphStages, mesh: string, budgetBytes: number): RawPlan {
  const { seconds, stages, microbatches, schedule, cuts, bubbleSeconds } = pipeline;
  const peakBytes = Math.max(...stages.map((stage) => stage.peakBytes));
  const over = peakBytes - budgetBytes;
  return {
    plan: STAGED,
    origin: 'ilp',
    mesh,
    seconds: seconds / microbatches,
    stepSeconds: seconds,
    simulatedSeconds: seconds,
    communicationSeconds: Math.max(...plans.map(({ objective }) => objective.communicationSeconds)),
    peakBytes,
    fits: over <= 0,
    ...(over > 0 ? { overBytes: over } : {}),
    choice: true,
    pipeline: {
      schedule,
      microbatches,
      cuts,
      bubbleSeconds,
      gap: Math.max(...plans.map(({ proof }) => proof.gap)),
    },
  };
}

/** The mesh of a stage; its dims have the names of other meshes of a comparison. */
function innerMesh(sizes: readonly number[]): DeviceMesh {
  return new DeviceMesh(sizes.map((size, d) => ({ name: `d${d}`, size })));
}

function wholeMesh({ stages, sizes }: StagesMesh): DeviceMesh {
  return new DeviceMesh([{ name: 'pp', size: stages }, ...innerMesh(sizes).dims]);
}

/** Hosts that one group of each dim touches. */
function hostsOf(mesh: DeviceMesh, { request }: Compared): number[] {
  const cluster = loadCluster(request.cluster);
  return mesh.dims.map((_, d) => clusterTopology(cluster, mesh, [d]).hosts);
}
