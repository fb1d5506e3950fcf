/**
 * The plan record of a choice: decoded, and re-costed from the placements alone.
 */
import { clusterTopology } from '../../cost/hardware/topology.ts';
import { RedistributionCharges } from '../../cost/redistribution/charges.ts';
import { Redistributor } from '../../cost/redistribution/redistribute.ts';
import { defined } from '../../defined.ts';
import { internalError } from '../../errors.ts';
import { evaluate } from '../../solver/check/verify.ts';
import type { Problem, Solution } from '../../solver/types.ts';
import { VERSION } from '../../version.ts';
import type { Model } from '../model/model.ts';
import { MOST_ROUNDING } from '../model/tables.ts';
import type { Prepared } from '../prepare/prepared.ts';
import { type Plan, PLAN_VERSION, type PlanMemory } from '../record/types.ts';
import { holdsPeak } from '../request/request.ts';
import { decode } from './decode.ts';
import { propagate } from './propagate.ts';
import { recost } from './recost.ts';
import { type PlanMemoryTimeline, planTimeline } from './timeline.ts';

/** The producer that a plan states: its prices are those of this program. */
export const PRODUCER = `shardwright ${VERSION}`;

/** The data that a plan is written from. */
type WrittenFrom = Pick<Prepared, 'model' | 'left' | 'question' | 'notes'>;

/** Writes the plan of a solution; throws when its re-costed seconds are not those of the solver. */
export function writePlan(
  prepared: WrittenFrom,
  solution: Solution,
  memory: PlanMemoryTimeline | undefined,
): Plan {
  const {
    model,
    left: { problem },
    question: { request, budgetBytes },
  } = prepared;
  const decoded = decode(model, solution.choice);
  // The re-check uses a redistributor of its own, which computes every price again.
  const fresh = new RedistributionCharges(new Redistributor(model.space, model.collectives));
  const { graph, space, cluster } = model;
  const recheckedSeconds = recost(decoded, { ...model, charges: fresh });
  const { seconds, ...proof } = inSeconds(model, solution, recheckedSeconds);
  return {
    version: PLAN_VERSION,
    producer: PRODUCER,
    model: graph.name,
    mesh: space.mesh.dims.map(({ name, size }, d) => ({
      name,
      size,
      hosts: clusterTopology(cluster, space.mesh, [d]).hosts,
    })),
    cluster: cluster.id,
    request,
    objective: {
      seconds,
      computeSeconds: decoded.computeSeconds,
      communicationSeconds: decoded.communicationSeconds,
      ...defined({ executedCommunicationSeconds: decoded.executedCommunicationSeconds }),
    },
    proof: {
      ...proof,
      solver: solution.solver,
      solveSeconds: solution.seconds,
      recheckedSeconds,
      evidence: solution.evidence ?? [],
    },
    memory: { ...decoded.memory, ...timelineOf(prepared, memory), budgetBytes },
    parameters: decoded.parameters,
    ...defined({ paddedParameters: request.padVocabulary?.parameters }),
    nodes: decoded.nodes,
    outputs: decoded.outputs,
    greedySeconds: greedySeconds(model, problem, solution.choice),
    assumptions: prepared.notes,
  };
}

/**
 * Converts a proof in units to seconds. Where rounding, together with the gap that the bound was
 * allowed, is more than a negligible share of the step, the step is the re-costed one, and the
 * bound is lowered by what rounding can hide: nothing is optimal then.
 *
 * @throws E_INTERNAL where the re-costed seconds are not those of the solver
 */
function inSeconds(
  { unitsPerSecond, roundingSeconds, variables }: Model,
  { status, objective, bound, gap }: Solution,
  recheckedSeconds: number,
): Pick<Plan['proof'], 'status' | 'bound' | 'gap' | 'roundingSeconds'> & {
  readonly seconds: number;
} {
  const seconds = objective / unitsPerSecond;
  // Doubles add up to an error of their own: a share of the sum for every term.
  const ofSums = variables.length * Number.EPSILON * seconds;
  if (Math.abs(recheckedSeconds - seconds) > roundingSeconds + ofSums)
    throw internalError(
      `the plan costs ${recheckedSeconds} s re-checked, the solver says ${seconds} s`,
    );
  const open = status === 'optimal' ? (objective - bound) / unitsPerSecond : 0;
  if (roundingSeconds + open <= MOST_ROUNDING * recheckedSeconds)
    return { seconds, status, bound: bound / unitsPerSecond, gap, roundingSeconds };
  const lowered = Math.max(0, bound / unitsPerSecond - roundingSeconds);
  return {
    seconds: recheckedSeconds,
    status: 'feasible',
    bound: lowered,
    gap: recheckedSeconds === 0 ? 0 : (recheckedSeconds - lowered) / recheckedSeconds,
    roundingSeconds,
  };
}

/**
 * Seconds below a plan that is called optimal within which another may be: rounded prices, and what
 * its bound leaves open.
 */
export function blurSeconds({
  proof,
  objective,
}: Pick<Plan, 'proof' | 'objective'>): number | undefined {
  const { status, bound, roundingSeconds } = proof;
  if (roundingSeconds === undefined || status !== 'optimal') return roundingSeconds;
  return roundingSeconds + Math.max(0, objective.seconds - bound);
}

/**
 * The fields of the memory record that the timeline adds to the states, or replaces where it counts
 * against the budget.
 */
function timelineOf(
  { model, question: { request } }: Pick<Prepared, 'model' | 'question'>,
  memory: PlanMemoryTimeline | undefined,
): Partial<PlanMemory> {
  if (memory === undefined) return {};
  const timeline = planTimeline(model, memory);
  const constrained = holdsPeak(request) ? { peakBytes: timeline.peakBytes } : {};
  return { ...constrained, activationBytes: timeline.activationBytes, timeline };
}

/**
 * Greedy propagation from a plan's own placements of inputs and parameters; undefined where it
 * leads nowhere.
 */
export function greedyFrom(
  model: Model,
  problem: Problem,
  choice: Int32Array,
): { readonly choice: Int32Array; readonly cost: number } | undefined {
  const start = new Map<number, number>();
  model.graph.nodes.forEach((node, n) => {
    const v = model.nodeVariable[n];
    if (node.kind === 'placeholder' && v >= 0) start.set(v, choice[v]);
  });
  const greedy = propagate(model, problem, start);
  if (greedy === undefined) return undefined;
  const { cost, violations } = evaluate(problem, greedy);
  return violations.length > 0 ? undefined : { choice: greedy, cost: Number(cost) };
}

/** Its seconds: the greedy baseline. */
function greedySeconds(model: Model, problem: Problem, choice: Int32Array): number | null {
  const greedy = greedyFrom(model, problem, choice);
  return greedy === undefined ? null : greedy.cost / model.unitsPerSecond;
}
