/**
 * Takes a graph and a number of devices and gives every recipe and the unrestricted optimum on
 * every mesh, ranked.
 */

import { checkKinds } from '../../arguments.ts';
import { hasExperts } from '../../cost/error-bands.ts';
import type { Cluster } from '../../cost/hardware/cluster.ts';
import { loadCluster } from '../../cost/hardware/load-cluster.ts';
import { clusterTopology, type Hosts } from '../../cost/hardware/topology.ts';
import { defaultCostPreset } from '../../cost/presets/presets.ts';
import { defined } from '../../defined.ts';
import { checkOptions, interrupted, ShardwrightError, valueText } from '../../errors.ts';
import { roleName } from '../../graph/nodes.ts';
import type { Graph } from '../../graph/types.ts';
import { DeviceMesh } from '../../mesh/devices/mesh.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { checkReadable, completeRequest, tableOf } from '../../plan/request/check-call.ts';
import { Deadline } from '../../plan/request/deadline.ts';
import { type GivenRequest, holdsPeak, type PlanRequest } from '../../plan/request/request.ts';
import { namedRecipe } from '../registry.ts';
import { DEFAULT_RISK, memoryBounds } from './best-plan.ts';
import { withCertainty } from './certainty.ts';
import { comparePlansOn, type MeshesSoFar, OPTIMUM } from './compare-mesh.ts';
import type { ComparedMesh, Comparison, RefusedPlan } from './comparison.ts';
import { concludeComparison, type Found, type RawPlan } from './conclude-comparison.ts';
import { type MeshCandidate, meshCandidates } from './meshes.ts';
import { LATE } from './price.ts';

/** A request without its mesh, and the number of devices: every mesh of them is tried. */
export type CompareRequest = Omit<GivenRequest, 'mesh'> & { readonly devices: number };

/** Operators, recipes and limits of a comparison. */
export interface CompareOptions {
  /** Default the built-in operators. */
  readonly table?: OperatorTable;
  /** Names of plans; absent: all of them. `optimum` is the free optimum. */
  readonly plans?: readonly string[];
  readonly maxDims?: number;
  /**
   * The least probability with which the best plan fits, 0..1. Default 0.9. It does not count where
   * the budget is one of states alone.
   */
  readonly risk?: number;
  /**
   * Part of the meshes, for comparisons that are run in pieces: every n-th, from i on (0-based).
   */
  readonly slice?: { readonly index: number; readonly count: number };
  readonly signal?: AbortSignal;
  /** Deadline of the whole comparison, instead of the request's time limit and the signal. */
  readonly deadline?: Deadline;
  /** Called when the first plan is priced: from then on there is something to answer with. */
  readonly onPlan?: () => void;
  readonly onProgress?: (line: string) => void;
}

/** Plans that were priced elsewhere, to be compared with those of the graph. */
export type AlsoCompared = Pick<Found, 'raw' | 'refused' | 'meshes'>;

/**
 * Compares a graph on every mesh of some devices. Each recipe is solved as a restriction of the
 * same problem, so the optimum of its mesh can not be more expensive; a mesh whose bound is above
 * the best plan so far is not solved. The time limit is that of all meshes: each gets an equal part
 * of what is left.
 *
 * @param also plans that are ranked with them
 */
export async function compareMeshes(
  graph: Graph,
  options: Compared,
  also?: AlsoCompared,
): Promise<Comparison> {
  const wanted = options.plans?.map((name) =>
    name === OPTIMUM ? OPTIMUM : namedRecipe(name).name,
  );
  const cluster = loadCluster(options.request.cluster);
  const all = meshCandidates(options.devices, cluster, options.maxDims ?? MOST_DIMS);
  const candidates = inSlice(all, options.slice);
  const state = firstState(options, cluster, wanted, also);
  const { request } = options;
  const deadline = deadlineOf(options);
  for (const [i, candidate] of candidates.entries()) {
    const part = deadline.part(1 / (candidates.length - i));
    if (
      candidate.refused !== undefined ||
      part.isOver ||
      !(await reached(() => comparePlansOn(graph, candidate, part, options, state)))
    )
      state.meshes.push(meshOf(candidate, cluster));
  }
  const stopped = stoppedAt(state, deadline);
  const { accumulate: microbatches } = request;
  const concluded = concludeComparison(options.devices, cluster.id, {
    ...state,
    ...ofStep(state, microbatches),
    ...defined({ stopped }),
  });
  return {
    model: graph.name,
    ...defined({ microbatches }),
    ...certain(graph, request, cluster, concluded),
  };
}

/** Costs of a step, from those of one of its passes; the played step has all of them already. */
function ofStep({ raw, meshes }: MeshesSoFar, passes = 1): Pick<Found, 'raw' | 'meshes'> {
  const traffic = (list: RawPlan['traffic']): RawPlan['traffic'] =>
    list?.map((one) => ({
      ...one,
      count: passes * one.count,
      sentBytes: passes * one.sentBytes,
      seconds: passes * one.seconds,
    }));
  return {
    raw: raw.map((plan) => ({
      ...plan,
      seconds: passes * plan.seconds,
      communicationSeconds: passes * plan.communicationSeconds,
      ...defined({
        proof: plan.proof && { ...plan.proof, bound: passes * plan.proof.bound },
        traffic: traffic(plan.traffic),
      }),
    })),
    meshes: meshes.map((mesh) => ({
      ...mesh,
      ...defined({ boundSeconds: mesh.boundSeconds && passes * mesh.boundSeconds }),
    })),
  };
}

/** Most dims of a mesh where nobody says another number. */
export const MOST_DIMS = 3;

/** Every n-th of a list, from i on, where it is asked for in pieces. */
export function inSlice<T>(all: readonly T[], slice: CompareOptions['slice']): readonly T[] {
  return slice === undefined ? all : all.filter((_, i) => i % slice.count === slice.index);
}

/** The deadline of a comparison. */
export function deadlineOf({ deadline, request, signal }: Compared): Deadline {
  return deadline ?? new Deadline(request.timeLimitSeconds, { signal });
}

/** The names of all options. */
const OPTIONS: Readonly<Record<keyof CompareOptions, true>> = {
  table: true,
  plans: true,
  maxDims: true,
  risk: true,
  slice: true,
  signal: true,
  deadline: true,
  onPlan: true,
  onProgress: true,
};

/** A comparison with every default resolved. */
export interface Compared extends CompareOptions {
  readonly table: OperatorTable;
  readonly devices: number;
  readonly request: Omit<PlanRequest, 'mesh'>;
}

/**
 * The question with every default resolved.
 *
 * @throws E_REQUEST for a request that states a mesh or no number of devices
 */
export function askedComparison(
  graph: Graph,
  request: CompareRequest,
  options: CompareOptions,
): Compared {
  checkKinds('compare', { graph: [graph, 'graph'] });
  checkOptions('compare', options, OPTIONS);
  const table = tableOf('compare', options.table);
  return { ...options, ...settled(request), table };
}

function settled(given: CompareRequest): Pick<Compared, 'devices' | 'request'> {
  checkReadable(given);
  const { devices, ...rest } = (given ?? {}) as Partial<CompareRequest>;
  if ('mesh' in rest)
    throw new ShardwrightError('E_REQUEST', 'a comparison tries every mesh of its devices', {
      hint: 'leave out mesh; shard plans on one mesh.',
    });
  const { mesh: _, ...request } = completeRequest(
    given === undefined ? undefined : { mesh: '', ...rest },
  );
  if (typeof devices !== 'number')
    throw new ShardwrightError('E_REQUEST', `the devices are ${valueText(devices)}`, {
      hint: "give { devices: 8, cluster: 'dgx-h100' }.",
    });
  return { devices, request };
}

function firstState(
  { request, devices, risk: asked = DEFAULT_RISK }: Compared,
  cluster: Cluster,
  wanted: readonly string[] | undefined,
  also: AlsoCompared = { raw: [], refused: [], meshes: [] },
): MeshesSoFar {
  const refused: RefusedPlan[] = [...also.refused];
  if (wanted?.includes('pp') === true)
    refused.push({
      plan: 'pp',
      mesh: `pp=${devices}`,
      reason: namedRecipe('pp').outside ?? 'it is not planned',
    });
  const holds = holdsPeak({ ...request, mesh: '' }) ? 'peak' : 'states';
  const risk = holds === 'peak' ? { risk: asked } : {};
  return {
    raw: [...also.raw],
    refused,
    findings: [],
    meshes: [...also.meshes],
    incumbent: Infinity,
    ...memoryBounds(cluster, { ...request, ...risk }),
    ...risk,
    holds,
    wanted,
  };
}

/** A comparison, and how far its figures are certain. */
function certain(
  graph: Graph,
  { memoryBytes, cost }: Compared['request'],
  cluster: Cluster,
  concluded: Parameters<typeof withCertainty>[0],
): ReturnType<typeof withCertainty> {
  const trains = graph.outputs.some(
    ({ role, value }) => (role === 'grad' || role === 'newstate') && value !== null,
  );
  const experts = hasExperts(
    graph.nodes.filter((n) => n.meta.role === 'parameter').map((n) => roleName(n)),
  );
  return withCertainty(concluded, {
    cluster,
    experts,
    cost: cost ?? defaultCostPreset(cluster),
    by: 'calls',
    trains,
    memoryBytes,
  });
}

/** False where the time limit or an interrupt ended the work. */
export async function reached(work: () => Promise<void>): Promise<boolean> {
  try {
    await work();
    return true;
  } catch (error) {
    if (
      error instanceof ShardwrightError &&
      (error.code === 'E_TIME_LIMIT' || error.code === 'E_INTERRUPTED')
    )
      return false;
    throw error;
  }
}

/** A mesh without an optimum: refused, or not reached. */
function meshOf({ sizes, refused }: MeshCandidate, cluster: Hosts): ComparedMesh {
  const mesh = new DeviceMesh(sizes.map((size, d) => ({ name: `d${d}`, size })));
  const hosts = sizes.map((_, d) => clusterTopology(cluster, mesh, [d]).hosts);
  if (refused !== undefined) return { mesh: mesh.text, hosts, status: 'refused', reason: refused };
  return { mesh: mesh.text, hosts, status: 'not reached', reason: 'the time was over' };
}

/**
 * The part that was left out, where something was. @throws E_TIME_LIMIT, E_INTERRUPTED where
 * nothing is left
 */
function stoppedAt(state: MeshesSoFar, deadline: Deadline): Comparison['stopped'] {
  const meshes = state.meshes
    .filter(({ status }) => status === 'not reached')
    .map(({ mesh }) => mesh);
  const plans = state.refused.filter(({ reason }) => reason === LATE);
  if (meshes.length + plans.length === 0) return undefined;
  if (state.raw.length === 0) {
    if (deadline.isInterrupted) throw interrupted();
    throw new ShardwrightError('E_TIME_LIMIT', 'the time limit came before any plan was priced', {
      hint: 'raise --time-limit, or name --plans.',
    });
  }
  return {
    by: deadline.cause,
    notAsked: [
      ...meshes.map((mesh) => `the optimum on ${mesh}`),
      ...plans.map(({ plan, mesh }) => `${plan} on ${mesh}`),
    ],
  };
}
