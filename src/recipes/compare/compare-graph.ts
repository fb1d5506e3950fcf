/**
 * Takes a graph and a number of devices and gives every recipe and the unrestricted optimum on
 * every mesh, ranked.
 */

import { checkKinds } from '../../arguments.ts';
import { hasExperts } from '../../cost/error-bands.ts';
import type { Cluster } from '../../cost/hardware/cluster.ts';
import { loadCluster } from '../../cost/hardware/load-cluster.ts';
import { clusterTopology, type Hosts, hostSize } from '../../cost/hardware/topology.ts';
import { defaultCostPreset } from '../../cost/presets/presets.ts';
import { defined } from '../../defined.ts';
import {
  checkOptions,
  internalError,
  interrupted,
  ShardwrightError,
  valueText,
} from '../../errors.ts';
import { roleName } from '../../graph/nodes.ts';
import type { Graph } from '../../graph/types.ts';
import { DeviceMesh } from '../../mesh/devices/mesh.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { decode } from '../../plan/choice/decode.ts';
import type { LeastCostResult } from '../../plan/choice/result.ts';
import { leastCostPlanOf } from '../../plan/least-cost-plan.ts';
import { prepare } from '../../plan/prepare/prepare.ts';
import type { Prepared } from '../../plan/prepare/prepared.ts';
import { checkReadable, completeRequest, tableOf } from '../../plan/request/check-call.ts';
import { Deadline } from '../../plan/request/deadline.ts';
import {
  askedGap,
  type GivenRequest,
  holdsPeak,
  type PlanRequest,
} from '../../plan/request/request.ts';
import { leastTotal } from '../../solver/problem/cost.ts';
import { type ModelFacts, modelFacts } from '../inputs/model-facts.ts';
import { type InputRoles, inputRoles } from '../inputs/roles.ts';
import { lintPlan } from '../lint.ts';
import { applyRecipe } from '../recipes.ts';
import { NAMED_RECIPES, type NamedRecipe, namedRecipe, recipeOf } from '../registry.ts';
import { zeroFromData } from '../zero.ts';
import { DEFAULT_RISK, isSafe, type MemoryBounds, memoryBounds } from './best-plan.ts';
import { withCertainty } from './certainty.ts';
import type { ComparedMesh, Comparison, RefusedPlan } from './comparison.ts';
import { concludeComparison, type Found, type RawPlan } from './conclude-comparison.ts';
import { type MeshCandidate, meshCandidates } from './meshes.ts';
import { LATE, type Priced, priceRestriction, type Solvable, trafficOf } from './price.ts';
import { simulatedSeconds } from './simulated.ts';

/** Name of the free optimum among the plans. */
const OPTIMUM = 'optimum';

/**
 * Work on the optimum of one mesh where nobody limits time: several times what the models of the
 * tests take to be proven. An answer that is not proven then says its gap.
 */
const MESH_WORK = 100_000_000;

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

/**
 * The recipes on every mesh of some devices, beside the free optimum. Each recipe is solved as a
 * restriction of the same problem, so the optimum of its mesh can not be more expensive; a mesh
 * whose bound is above the best plan so far is not solved. The time limit is that of all meshes:
 * each gets an equal part of what is left.
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
  checkKinds('compare', { graph: [graph, 'graph'] });
  checkOptions('compare', options, OPTIONS);
  const table = tableOf('compare', options.table);
  return compareMeshes(graph, { ...options, ...settled(request), table });
}

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
interface Compared extends CompareOptions {
  readonly table: OperatorTable;
  readonly devices: number;
  readonly request: Omit<PlanRequest, 'mesh'>;
}

/** @throws E_REQUEST for a request that states a mesh or no number of devices */
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

async function compareMeshes(graph: Graph, options: Compared): Promise<Comparison> {
  const wanted = options.plans?.map((name) =>
    name === OPTIMUM ? OPTIMUM : namedRecipe(name).name,
  );
  const cluster = loadCluster(options.request.cluster);
  const all = meshCandidates(options.devices, cluster, options.maxDims ?? 3);
  const { slice } = options;
  const candidates =
    slice === undefined ? all : all.filter((_, i) => i % slice.count === slice.index);
  const state = firstState(options, cluster, wanted);
  const { request, signal } = options;
  const deadline = options.deadline ?? new Deadline(request.timeLimitSeconds, { signal });
  for (const [i, candidate] of candidates.entries()) {
    const part = deadline.part(1 / (candidates.length - i));
    if (
      candidate.refused !== undefined ||
      part.isOver ||
      !(await reached(() => compareOn(graph, candidate, part, options, state)))
    )
      state.meshes.push(meshOf(candidate, cluster));
  }
  const stopped = stoppedAt(state, deadline);
  const concluded = concludeComparison(options.devices, cluster.id, {
    ...state,
    ...defined({ stopped }),
  });
  return { model: graph.name, ...certain(graph, request, cluster, concluded) };
}

function firstState(
  { request, devices, risk: asked = DEFAULT_RISK }: Compared,
  cluster: Cluster,
  wanted: readonly string[] | undefined,
): State {
  const refused: RefusedPlan[] = [];
  if (wanted?.includes('pp') === true)
    refused.push({
      plan: 'pp',
      mesh: `pp=${devices}`,
      reason: namedRecipe('pp').outside ?? 'it is not planned',
    });
  const holds = holdsPeak({ ...request, mesh: '' }) ? 'peak' : 'states';
  const risk = holds === 'peak' ? { risk: asked } : {};
  return {
    raw: [],
    refused,
    findings: [],
    meshes: [],
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
async function reached(work: () => Promise<void>): Promise<boolean> {
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
function stoppedAt(state: State, deadline: Deadline): Comparison['stopped'] {
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

interface State extends Found {
  readonly raw: RawPlan[];
  readonly refused: RefusedPlan[];
  readonly findings: Found['findings'][number][];
  readonly meshes: ComparedMesh[];
  readonly wanted: readonly string[] | undefined;
  /** Least seconds of a plan that fits. */
  incumbent: number;
}

async function compareOn(
  graph: Graph,
  { sizes }: MeshCandidate,
  deadline: Deadline,
  options: Compared,
  state: State,
): Promise<void> {
  const { request } = options;
  const mesh = new DeviceMesh(sizes.map((size, d) => ({ name: `d${d}`, size })));
  const cluster = loadCluster(request.cluster);
  const hosts = sizes.map((_, d) => clusterTopology(cluster, mesh, [d]).hosts);
  const asked = (name: string): boolean => state.wanted?.includes(name) ?? true;
  const plans = NAMED_RECIPES.filter(
    (recipe) => recipe.axes.length === sizes.length && recipe.name !== 'pp' && asked(recipe.name),
  );
  let outcome: MeshOutcome = { status: 'not asked' };
  if (plans.length > 0 || asked(OPTIMUM)) {
    options.onProgress?.(`mesh ${sizes.join(' x ')}: preparing`);
    const within = { ...withinSafe(request, state), mesh: mesh.text };
    const prepared = prepare(graph, within, options.table, deadline);
    const work = { prepared, deadline, options, state };
    const priced = await priceRecipes(work, plans);
    if (asked(OPTIMUM)) outcome = await findOptimum(work, priced);
  }
  state.meshes.push({ mesh: mesh.text, hosts, ...outcome });
}

/** The request whose plans fit with the probability that is asked for. */
function withinSafe<T extends Compared['request']>(
  request: T,
  { budgetBytes, safeBytes }: MemoryBounds,
): T {
  if (safeBytes === budgetBytes) return request;
  const { headroom: _, ...rest } = request;
  return { ...rest, memoryBytes: safeBytes } as T;
}

/** The result of one mesh. */
type MeshOutcome = Omit<ComparedMesh, 'mesh' | 'hosts'>;

/** A mesh that is compared. */
interface MeshWork {
  readonly prepared: Prepared;
  readonly deadline: Deadline;
  readonly options: Compared;
  readonly state: State;
}

/** The data that recipes leave for the optimum of their mesh. */
interface PricedRecipes {
  /** Choices that its search starts from. */
  readonly starts: readonly Int32Array[];
  /** Least seconds of a choice that fits. */
  readonly bestSeconds: number;
}

async function priceRecipes(
  { prepared, deadline, options, state }: MeshWork,
  plans: readonly NamedRecipe[],
): Promise<PricedRecipes> {
  const inputs = inputRoles(prepared.model);
  const facts = modelFacts(prepared.model.graph, inputs);
  const starts: Int32Array[] = [];
  let bestSeconds = Infinity;
  for (const recipe of plans) {
    const found = await priceRecipe(prepared, recipe, { inputs, facts }, state, deadline);
    if (found === undefined) continue;
    options.onPlan?.();
    const { plan, choice } = found;
    if (choice !== undefined) {
      starts.push(choice);
      if (isSafe(plan, state)) bestSeconds = Math.min(bestSeconds, plan.seconds);
    }
    if (isSafe(plan, state)) state.incumbent = Math.min(state.incumbent, plan.seconds);
  }
  return { starts, bestSeconds };
}

/** Solves a mesh whose bound is not above the best plan so far. */
async function findOptimum(work: MeshWork, priced: PricedRecipes): Promise<MeshOutcome> {
  const { prepared, deadline, options, state } = work;
  const boundSeconds = leastTotal(prepared.left.problem) / prepared.model.unitsPerSecond;
  if (boundSeconds > state.incumbent) return { status: 'beaten', boundSeconds };
  const { sizes } = prepared.model.space.mesh;
  options.onProgress?.(`mesh ${sizes.join(' x ')}: solving`);
  const limit = options.request.timeLimitSeconds === undefined ? { workLimit: MESH_WORK } : {};
  const { starts } = priced;
  const result = await foundOrNot(() => leastCostPlanOf(prepared, { starts, ...limit, deadline }));
  if (typeof result === 'string') return { status: 'not found', reason: result, boundSeconds };
  options.onPlan?.();
  if (result.status === 'infeasible') {
    const { smallestBudgetBytes, neededBytes } = result;
    return {
      status: 'infeasible',
      reason: result.conflict.join(', '),
      ...defined({ smallestBudgetBytes, neededBytes }),
    };
  }
  keepOptimum(work, result, priced.bestSeconds);
  return { status: 'solved', boundSeconds: result.plan.proof.bound };
}

/** @throws E_INTERNAL where a recipe on the same mesh is cheaper than what is proven */
function keepOptimum(
  { prepared, options, state }: MeshWork,
  result: Extract<LeastCostResult, { status: 'planned' }>,
  bestSeconds: number,
): void {
  const { objective, proof, memory } = result.plan;
  const mesh = prepared.model.space.mesh.text;
  const goodEnough = askedGap(result.plan.request);
  if (proof.status === 'optimal' && objective.seconds > bestSeconds * (1 + 1e-9))
    throw internalError(
      `the optimum of ${mesh} costs ${objective.seconds} s, a recipe ${bestSeconds} s`,
    );
  state.incumbent = Math.min(state.incumbent, objective.seconds);
  state.raw.push({
    plan: OPTIMUM,
    origin: 'ilp',
    mesh,
    seconds: objective.seconds,
    ...stepOf(simulatedSeconds(result.prepared, result.choice, result.plan)),
    communicationSeconds: objective.communicationSeconds,
    peakBytes: memory.peakBytes,
    fits: true,
    choice: true,
    proof: {
      status: proof.status,
      bound: proof.bound,
      gap: proof.gap,
      ...(goodEnough === options.request.gap ? {} : { goodEnough }),
    },
    traffic: trafficOf(result.prepared.model, result.plan),
  });
}

/**
 * The result, or why there is none where the search under a peak finds no plan and proves nothing.
 */
async function foundOrNot(work: () => Promise<LeastCostResult>): Promise<LeastCostResult | string> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof ShardwrightError && error.code === 'E_LIMIT') return error.message;
    throw error;
  }
}

/** The parts of a model that recipes read. */
interface KnownModel {
  readonly inputs: InputRoles;
  readonly facts: ModelFacts;
}

/** A recipe on a mesh. */
interface MeshRecipe {
  readonly recipe: NamedRecipe;
  /** The mesh with the axes of the recipe. */
  readonly mesh: string;
  /** The stage of ZeRO that is priced from data parallelism. */
  readonly stage: 1 | 2 | undefined;
}

async function priceRecipe(
  prepared: Prepared,
  recipe: NamedRecipe,
  { inputs, facts }: KnownModel,
  state: State,
  deadline: Deadline,
): Promise<{ readonly plan: RawPlan; readonly choice?: Int32Array } | undefined> {
  const { sizes } = prepared.model.space.mesh;
  const mesh = recipe.axes.map((axis, d) => `${axis}=${sizes[d]}`).join(',');
  const stage = recipe.name === 'zero1' ? 1 : recipe.name === 'zero2' ? 2 : undefined;
  const asked: MeshRecipe = { recipe, mesh, stage };
  const devices = hostSize(prepared.model.cluster, prepared.model.space.mesh);
  const findings = lintPlan(recipe, sizes, facts, devices);
  for (const finding of findings) state.findings.push({ plan: recipe.name, mesh, ...finding });
  const error = findings.find((f) => f.severity === 'error');
  const priced =
    error === undefined
      ? await priceChoice(prepared, asked, inputs, deadline)
      : { refused: error.message, code: error.code };
  if ('refused' in priced) {
    const { refused: reason, code } = priced;
    state.refused.push({
      plan: recipe.name,
      mesh,
      ...defined({ code }),
      reason,
    });
    return undefined;
  }
  const plan = rawPlan(prepared, asked, priced, state.budgetBytes);
  state.raw.push(plan);
  return stage === undefined ? { plan, choice: priced.choice } : { plan };
}

/** The cheapest choice of a recipe, or why there is none. */
async function priceChoice(
  prepared: Prepared,
  { recipe, stage }: MeshRecipe,
  inputs: InputRoles,
  deadline: Deadline,
): Promise<Priced | { readonly refused: string; readonly code?: string }> {
  const known = recipeOf(stage === undefined ? recipe : namedRecipe('dp'));
  if (known === undefined) return { refused: recipe.outside ?? 'it is not planned' };
  const pricedOn = async (
    asked: Solvable,
  ): Promise<Awaited<ReturnType<typeof priceRestriction>>> => {
    const applied = applyRecipe(asked.model, known, undefined, inputs);
    return 'refused' in applied ? applied : priceRestriction(asked, applied.restriction, deadline);
  };
  const usual = await pricedOn(prepared);
  const { allPrices: withoutCeiling } = prepared;
  // A recipe may need a price that was left out.
  return 'refused' in usual && withoutCeiling !== undefined
    ? pricedOn({ ...prepared, ...withoutCeiling })
    : usual;
}

/** The figures of a choice; ZeRO's are those of data parallelism with its states cut. */
function rawPlan(
  prepared: Prepared,
  { recipe, mesh, stage }: MeshRecipe,
  { choice, seconds, peakBytes }: Priced,
  budgetBytes: number,
): RawPlan {
  const decoded = decode(prepared.model, choice);
  const { communicationSeconds } = decoded;
  const { step, ...figures } =
    stage === undefined
      ? { seconds, communicationSeconds, peakBytes, step: decoded }
      : zeroFromData(prepared, choice, stage);
  const over = figures.peakBytes - budgetBytes;
  return {
    plan: recipe.name,
    origin: 'zoo',
    mesh,
    ...figures,
    fits: over <= 0,
    ...(over > 0 ? { overBytes: over } : {}),
    choice: stage === undefined,
    ...stepOf(simulatedSeconds(prepared, choice, step)),
    traffic: trafficOf(prepared.model, step, recipe.axes),
  };
}

/** The step of a plan of a graph is the one that the simulator plays. */
function stepOf(seconds: number): Pick<RawPlan, 'stepSeconds' | 'simulatedSeconds'> {
  return { stepSeconds: seconds, simulatedSeconds: seconds };
}
