/**
 * Solves the planning problem again with discounts for hidden communication and gives the plan with the shortest
 * simulated step.
 */

import { ShardwrightError } from '../../errors.ts';
import { decode, stateMemory } from '../../plan/record/decode.ts';
import type { Model } from '../../plan/model/model.ts';
import { Deadline } from '../../plan/request/deadline.ts';
import type { Prepared } from '../../plan/prepare.ts';
import { Recosting } from '../../solver/problem/recost.ts';
import { solve } from '../../solver/solve.ts';
import type { Problem } from '../../solver/types.ts';
import type { SimulatedPlan } from './from-plan.ts';
import { hiddenSeconds, overlapDiscount } from './overlap.ts';
import type { Timeline } from './play.ts';
import { COMPUTE, type Schedule } from './schedule.ts';
import { simulate, type SimulateOptions } from './simulate.ts';

/**
 * Plans with overlap in view. The planning problem adds costs; a device overlaps them. So the redistributions that can run
 * beside compute (gathers of weights, reductions of gradients) get a discount, the problem is solved again, and the plan is
 * simulated; the discount of the next round is the share that the simulation really hid. The discount is bounded: what compute
 * can hide at most (`hiddenSeconds`), less what it loses by it, and never all of a price, because free communication makes
 * degenerate plans. The best simulated plan is kept, and only if all its costs one after another are within a stated ratio of
 * the plain optimum's.
 */
export interface OverlapOptions extends SimulateOptions {
  /** Most serial seconds of the kept plan, relative to the plan without overlap. Default 1.05. */
  readonly serialRatio?: number;
  /** Most rounds; they stop when a better plan is better by less than 0.5 %. Default 5. */
  readonly rounds?: number;
  /** Of the whole search; default: the request's time limit for every plan. */
  readonly deadline?: Deadline;
}

/** One plan with its seconds one after another and its simulated seconds. */
export interface OverlapCandidate {
  readonly choice: Int32Array;
  readonly plan: SimulatedPlan;
  /** Every cost once, nothing beside anything: the objective without overlap. */
  readonly serialSeconds: number;
  readonly simulatedSeconds: number;
  /** Share of the price that was taken off, by class; zeros for the plan without overlap. */
  readonly discount: Shares;
}

/** The plan of least simulated seconds among those tried, beside the plan without overlap. */
export interface OverlapAware {
  /** The plan without overlap. */
  readonly base: OverlapCandidate;
  /** The plan to take. */
  readonly best: OverlapCandidate;
  /** Every plan that was simulated, the base first. */
  readonly rounds: readonly OverlapCandidate[];
}

interface Shares {
  readonly gathers: number;
  readonly reductions: number;
}

/** Nothing is ever free: a tenth of every price stays. */
const MOST = 0.9;
/** Discounts below this change no plan worth simulating. */
const LEAST = 0.02;

/**
 * Searches for a plan whose simulated step is shorter than that of the plan of least serial seconds: communication that
 * hides beside compute is charged less, round by round.
 *
 * @throws `NoChoiceInTime` where the deadline comes before the first plan; E_PLAN when no plan fits the budget; what `simulate` throws
 */
export async function overlapAware(prepared: Prepared, options: OverlapOptions = {}): Promise<OverlapAware> {
  const { serialRatio = 1.05, rounds: most = 5, overlapSlowdown = 1 } = options;
  const classes = hideable(prepared.model);
  const first = await candidate(prepared, classes, { gathers: 0, reductions: 0 }, options);
  const rounds = [first.candidate];
  let best = first.candidate;
  let shares = discounts(first.schedule, first.timeline, overlapSlowdown);
  const isOver = (): boolean => options.deadline?.isOver === true;
  for (let round = 0; round < most && !isOver() && Math.max(shares.gathers, shares.reductions) > LEAST; round++) {
    const next = await candidate(prepared, classes, shares, options);
    rounds.push(next.candidate);
    const { serialSeconds, simulatedSeconds } = next.candidate;
    const saved = best.simulatedSeconds - simulatedSeconds;
    if (saved > 0 && serialSeconds <= serialRatio * first.candidate.serialSeconds) {
      best = next.candidate;
      if (saved < 0.005 * simulatedSeconds) break;
      shares = discounts(next.schedule, next.timeline, overlapSlowdown);
      // Too much taken off, or nothing gained by it: half of it.
    } else shares = { gathers: shares.gathers / 2, reductions: shares.reductions / 2 };
  }
  return { base: first.candidate, best, rounds };
}

async function candidate(
  prepared: Prepared,
  classes: Classes,
  discount: Shares,
  options: OverlapOptions,
): Promise<{ readonly candidate: OverlapCandidate; readonly timeline: Timeline; readonly schedule: Schedule }> {
  const { model, table, request, budgetBytes } = prepared;
  const { problem, expand } = prepared.compact;
  const solution = await solve(discounted(problem, classes, discount), {
    engine: 'exact',
    certify: false,
    seed: request.seed,
    gap: request.gap,
    ...(options.deadline ?? new Deadline(request.timeLimitSeconds)).solveOptions,
  });
  if (solution.status === 'infeasible')
    throw new ShardwrightError('E_PLAN', 'no plan fits the budget, with overlap or without', {
      hint: 'raise --memory.',
    });
  const choice = expand(solution.choice);
  const { nodes, outputs, computeSeconds, communicationSeconds } = decode(model, choice);
  const plan: SimulatedPlan = { request, nodes, outputs, memory: { ...stateMemory(model, choice), budgetBytes } };
  const { timeline, schedule } = simulate(prepared.program, plan, table, options);
  return {
    candidate: {
      choice,
      plan,
      serialSeconds: computeSeconds + communicationSeconds,
      simulatedSeconds: timeline.seconds,
      discount,
    },
    timeline,
    schedule,
  };
}

/** Edges and variables of the problem whose cost can run beside compute. */
interface Classes {
  readonly gatherEdges: readonly number[];
  readonly gatherVariables: readonly number[];
  readonly reductionEdges: readonly number[];
}

function hideable(model: Model): Classes {
  const { graph, flow, copies, uses, edges } = model;
  const weight = new Uint8Array(flow.values.length);
  graph.nodes.forEach((node, n) => {
    const inputs = flow.inputs[n];
    const own = node.kind === 'placeholder' ? node.meta.role === 'parameter' : inputs.length > 0 && inputs.every((v) => weight[v] === 1); // prettier-ignore
    for (const value of flow.results[n]) if (value >= 0 && own) weight[value] = 1;
  });
  const gatherEdges: number[] = [];
  const reductionEdges: number[] = [];
  edges.forEach((edge, e) => {
    if (edge.kind !== 'use') return;
    const { at, value } = uses[edge.use];
    if (at.kind === 'input' && weight[value] === 1) gatherEdges.push(e);
    if (at.kind === 'output' && flow.outputs[at.output].output.role === 'grad') reductionEdges.push(e);
  });
  const gatherVariables = copies.filter((copy) => weight[copy.value] === 1).map((copy) => copy.variable);
  return { gatherEdges, gatherVariables, reductionEdges };
}

/** The same problem with part of some prices taken off; costs stay whole numbers. */
function discounted(problem: Problem, classes: Classes, { gathers, reductions }: Shares): Problem {
  if (gathers === 0 && reductions === 0) return problem;
  const recosting = new Recosting(problem);
  const less = (costs: Float64Array, share: number): Float64Array => costs.map((c) => (c === Infinity ? c : Math.round(c * (1 - share)))); // prettier-ignore
  for (const e of classes.gatherEdges) recosting.edge(e, 'gather', (costs) => less(costs, gathers));
  for (const e of classes.reductionEdges) recosting.edge(e, 'reduction', (costs) => less(costs, reductions));
  for (const v of classes.gatherVariables) recosting.variable(v, 'gather', (costs) => less(costs, gathers));
  return recosting.problem;
}

/**
 * Share of the gathers' and of the reductions' price to take off: what the simulation hid of them, bounded by what compute could
 * hide; of a class that the plan does not have, the bound for a little of it.
 */
function discounts(schedule: Schedule, timeline: Timeline, slowdown: number): Shares {
  const { buffers } = schedule;
  const busy = timeline.spans.filter((s) => s.task.stream === COMPUTE && s.end > s.start);
  const beside = (from: number, to: number): number => {
    let sum = 0;
    for (const s of busy) sum += Math.max(0, Math.min(s.end, to) - Math.max(s.start, from));
    return sum;
  };
  const of = (name: 'gathers' | 'reductions'): number => {
    const mine = timeline.spans.map(({ task }) => {
      if (task.collective === undefined) return false;
      if (name === 'gathers') return task.writes.every((b) => buffers[b].weight);
      return task.writes.every((b) => buffers[b].kind === 'gradient');
    });
    let [total, hidden] = [0, 0];
    timeline.spans.forEach(({ start, end }, i) => {
      if (!mine[i]) return;
      total += end - start;
      hidden += beside(start, end);
    });
    if (total === 0) return Math.min(MOST, overlapDiscount(MOST, slowdown));
    const steps = timeline.spans.map(({ task, start, end }, i) => ({
      computeSeconds: task.stream === COMPUTE ? end - start : 0,
      hideableSeconds: mine[i] ? end - start : 0,
    }));
    const bound = hiddenSeconds(steps, name === 'gathers' ? 'before' : 'after').reduce((a, b) => a + b, 0);
    return Math.min(MOST, overlapDiscount(Math.min(hidden, bound) / total, slowdown));
  };
  return { gathers: of('gathers'), reductions: of('reductions') };
}
