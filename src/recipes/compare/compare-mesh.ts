/**
 * Compares the plans of one mesh: prices every recipe on its problem, then finds the free optimum,
 * unless its bound shows that it is beaten.
 */

import { loadCluster } from '../../cost/hardware/load-cluster.ts';
import { clusterTopology, hostSize } from '../../cost/hardware/topology.ts';
import { defined } from '../../defined.ts';
import { internalError, ShardwrightError } from '../../errors.ts';
import type { Graph } from '../../graph/types.ts';
import { DeviceMesh } from '../../mesh/devices/mesh.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { decode } from '../../plan/choice/decode.ts';
import type { LeastCostResult } from '../../plan/choice/result.ts';
import { leastCostPlanOf } from '../../plan/least-cost-plan.ts';
import { prepare } from '../../plan/prepare/prepare.ts';
import type { Prepared } from '../../plan/prepare/prepared.ts';
import type { Deadline } from '../../plan/request/deadline.ts';
import { askedGap, type PlanRequest } from '../../plan/request/request.ts';
import { leastTotal } from '../../solver/problem/cost.ts';
import { type ModelFacts, modelFacts } from '../inputs/model-facts.ts';
import { type InputRoles, inputRoles } from '../inputs/roles.ts';
import { lintPlan } from '../lint.ts';
import { applyRecipe } from '../recipes.ts';
import { NAMED_RECIPES, type NamedRecipe, namedRecipe, recipeOf } from '../registry.ts';
import { zeroFromData } from '../zero.ts';
import { isSafe, type MemoryBounds } from './best-plan.ts';
import type { ComparedMesh, RefusedPlan } from './comparison.ts';
import type { Found, RawPlan } from './conclude-comparison.ts';
import type { MeshCandidate } from './meshes.ts';
import { type Priced, priceRestriction, type Solvable, trafficOf } from './price.ts';
import { simulatedSeconds } from './simulated.ts';

/** Name of the free optimum among the plans. */
export const OPTIMUM = 'optimum';

/**
 * Work on the optimum of one mesh where nobody limits time: several times what the models of the
 * tests take to be proven. An answer that is not proven then says its gap.
 */
const MESH_WORK = 100_000_000;

/** The parts of a comparison that the plans of every mesh share. */
interface Shared {
  readonly table: OperatorTable;
  readonly request: Omit<PlanRequest, 'mesh'>;
  readonly onPlan?: () => void;
  readonly onProgress?: (line: string) => void;
}

/** The plans of the meshes so far. */
export interface MeshesSoFar extends Found {
  readonly raw: RawPlan[];
  readonly refused: RefusedPlan[];
  readonly findings: Found['findings'][number][];
  readonly meshes: ComparedMesh[];
  readonly wanted: readonly string[] | undefined;
  /** Least seconds of a plan that fits. */
  incumbent: number;
}

/** Adds the plans of a mesh to those of the meshes before it. */
export async function comparePlansOn(
  graph: Graph,
  { sizes }: MeshCandidate,
  deadline: Deadline,
  options: Shared,
  state: MeshesSoFar,
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
export function withinSafe<T extends Shared['request']>(
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
  readonly options: Shared;
  readonly state: MeshesSoFar;
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
    if (choice !== undefined) starts.push(choice);
    if (!isSafe(plan, state)) continue;
    state.incumbent = Math.min(state.incumbent, plan.seconds);
    if (choice !== undefined) bestSeconds = Math.min(bestSeconds, plan.seconds);
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
  state: MeshesSoFar,
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
