/**
 * Finds the frontier of seconds and peak memory of a request: the plans that no other plan found
 * beats in both. Each is the answer to a budget of its own, with placements and recomputation
 * chosen together, evaluated at every program point and priced again as every plan is.
 *
 * Budgets are asked where least is known: in the middle of the widest range of bytes between two
 * plans, or between the lowest plan and the highest budget that admits none. A plan is an answer to
 * all larger budgets too, and a bound on the seconds of a budget is one for all smaller budgets.
 */
import { checkKinds } from '../../arguments.ts';
import { usableMemoryBytes } from '../../cost/hardware/cluster.ts';
import { defined } from '../../defined.ts';
import { ShardwrightError } from '../../errors.ts';
import type { Graph } from '../../graph/types.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { kneeOf } from '../../passes/checkpoint/knee.ts';
import type { Progress } from '../../solver/types.ts';
import { excessOver } from '../../units.ts';
import type { LeastCostResult } from '../choice/result.ts';
import { type LeastCostOptions, leastCostPlan } from '../least-cost-plan.ts';
import { prepare } from '../prepare/prepare.ts';
import type { Prepared } from '../prepare/prepared.ts';
import { type Clock, Deadline } from '../request/deadline.ts';
import type { PlanRequest } from '../request/request.ts';

type Planned = Extract<LeastCostResult, { status: 'planned' }>;

/** One plan of the frontier: its seconds and its peak in bytes per device. */
export interface FrontierPoint {
  readonly seconds: number;
  /** Peak memory, per device. */
  readonly peakBytes: number;
  /** Node that runs at the peak. */
  readonly peakNode: string;
  /** Budget that it answers. */
  readonly budgetBytes: number;
  /** No plan within that budget is faster; the plan's assumptions say among which plans. */
  readonly boundSeconds: number;
  readonly gap: number;
  /** Nodes that run a second time in the backward pass, and their seconds. */
  readonly recomputedNodes: number;
  readonly recomputeSeconds: number;
  /** The plan with its graph, choice and everything that lowering and simulating want. */
  readonly result: Planned;
}

/** A budget without a plan. */
export interface FrontierMiss {
  readonly budgetBytes: number;
  /** `infeasible`: proven. `not found`: the search gave up or ran out of time. */
  readonly status: 'infeasible' | 'not found';
  /** The conflicting constraints, where it is infeasible. */
  readonly conflict?: readonly string[];
}

/** Plans of which none beats another in seconds and in peak bytes. */
export interface Frontier {
  /** Falling peaks, rising seconds, both strictly. */
  readonly points: readonly FrontierPoint[];
  /** Position of the knee; absent with fewer than two points. */
  readonly knee?: number;
  /** Proven: no plan of these takes less; absent when nothing is known. */
  readonly neededBytes?: number;
  readonly misses: readonly FrontierMiss[];
  /** Budgets asked. */
  readonly asked: number;
}

/** How many points are wanted, and how long the search may take. */
export interface FrontierOptions {
  /** Default the built-in operators. */
  readonly table?: OperatorTable;
  /** Points wanted, at least 2; fewer when the program has no more. Default 8. */
  readonly points?: number;
  /**
   * The clock that the request's time limit goes by; the limit is that of all budgets together.
   * Default the real one.
   */
  readonly clock?: Clock;
  readonly signal?: AbortSignal;
  /** Instead of the request's time limit, the clock and the signal. */
  readonly deadline?: Deadline;
  /** Called when the first budget is about to be asked. */
  readonly onPrepared?: () => void;
  readonly onProgress?: (event: Progress) => void;
  /** Called after every budget. */
  readonly onBudget?: (event: FrontierStep) => void;
}

/** One budget of the search for a frontier, for progress. */
export interface FrontierStep {
  readonly asked: number;
  /** Points so far, and points wanted. */
  readonly points: number;
  readonly wanted: number;
  readonly budgetBytes: number;
  /** The plan found; absent when there was none. */
  readonly seconds?: number;
  readonly peakBytes?: number;
}

export const FRONTIER_POINTS = 8;
/** Budgets that may be asked for every point wanted. */
const ASKED_PER_POINT = 3;
/** Ranges of less than this share of the largest peak are not looked into. */
const NARROW = 1 / 256;

/** Budgets in (from, to) are not answered yet. */
interface Range {
  readonly from: number;
  readonly to: number;
}

/**
 * The frontier of a program on a mesh, from the request's budget (or what the device has)
 * downwards.
 *
 * @param request `activations: 'off'` or `'report'`: states alone are traded. Else peak memory is
 *   the constraint, and `checkpoint` absent means `auto`
 * @throws E_USAGE for fewer than two points, or the solver `propagate`; else what `shard` throws
 */
export async function memoryFrontier(
  graph: Graph,
  request: PlanRequest,
  options: FrontierOptions,
): Promise<Frontier> {
  checkKinds('memoryFrontier', {
    graph: [graph, 'graph'],
    request: [request, ['mesh', 'cluster', 'pins']],
    options: [options, 'record'],
  });
  const wanted = options.points ?? FRONTIER_POINTS;
  refuseUnanswerable(request, wanted);
  // States alone are one row of the problem, which nothing that runs twice would make smaller.
  const base: PlanRequest =
    request.activations !== undefined && request.activations !== 'constraint'
      ? request
      : { ...request, activations: 'constraint', checkpoint: request.checkpoint ?? 'auto' };
  const deadline =
    options.deadline ??
    new Deadline(request.timeLimitSeconds, {
      ...defined({ clock: options.clock }),
      signal: options.signal,
    });
  const plain = prepare(graph, { ...base, checkpoint: 'none' }, options.table, deadline);
  options.onPrepared?.();
  const search = new FrontierSearch({ graph, base, options, wanted, deadline, plain });
  await search.run(usableMemoryBytes(plain.model.cluster, request));
  return search.frontier();
}

/** @throws E_USAGE for a request that has no frontier */
function refuseUnanswerable(request: PlanRequest, wanted: number): void {
  if (!Number.isSafeInteger(wanted) || wanted < 2)
    throw new ShardwrightError('E_USAGE', `a frontier of ${wanted} points`, {
      hint: 'ask for at least 2.',
    });
  if (request.solver === 'propagate')
    throw new ShardwrightError(
      'E_USAGE',
      'propagation has no peak memory budget, so it has no frontier',
      {
        hint: 'drop --solver propagate.',
      },
    );
}

/** A frontier that is asked for. */
interface FrontierQuestion {
  readonly graph: Graph;
  /** The request of every budget, but for the budget. */
  readonly base: PlanRequest;
  readonly options: FrontierOptions;
  readonly wanted: number;
  readonly deadline: Deadline;
  /** The request without recomputation. */
  readonly plain: Prepared;
}

/** Asks budget after budget, and keeps what they answer. */
class FrontierSearch {
  private readonly found: FrontierPoint[] = [];
  private readonly misses: FrontierMiss[] = [];
  private readonly bounds: { readonly budgetBytes: number; readonly seconds: number }[] = [];
  /** Bytes that every plan takes, as far as is proven. */
  private needed = 0;
  private asked = 0;
  private readonly firstRuns: ReadonlySet<string>;

  constructor(private readonly question: FrontierQuestion) {
    this.firstRuns = new Set(question.plain.model.graph.nodes.map((n) => n.name));
  }

  /** Asks the highest budget, then the middles of the widest ranges. */
  async run(topBytes: number): Promise<void> {
    const top = await this.ask(topBytes);
    if (top === undefined) return;
    const ranges: Range[] = [{ from: 0, to: top.peakBytes }];
    while (this.wantsMore()) {
      const widest = this.widest(ranges);
      if (widest === undefined || widest.to - widest.from < top.peakBytes * NARROW) break;
      const middle = Math.floor((widest.from + widest.to) / 2);
      const point = await this.ask(middle);
      const at = ranges.findIndex((r) => r.to === widest.to);
      // Above the budget asked nothing is known yet; below it, what lies under the plan found.
      ranges.splice(at, 1, { from: middle, to: widest.to });
      if (point !== undefined && point.peakBytes > widest.from)
        ranges.push({ from: widest.from, to: point.peakBytes });
    }
  }

  /** The plans that no other beats, with the bounds of all budgets. */
  frontier(): Frontier {
    const points = undominated(this.found).map((p) => {
      const boundSeconds = this.bounds.reduce(
        (most, b) => (b.budgetBytes >= p.budgetBytes ? Math.max(most, b.seconds) : most),
        p.boundSeconds,
      );
      return {
        ...p,
        boundSeconds: Math.min(boundSeconds, p.seconds),
        gap: Math.max(0, -excessOver(p.seconds, boundSeconds)),
      };
    });
    const knee = kneeOf(points.map((p) => [p.peakBytes, p.seconds]));
    return {
      points,
      ...defined({ knee }),
      ...(this.needed > 0 ? { neededBytes: this.needed } : {}),
      misses: this.misses.sort((a, b) => b.budgetBytes - a.budgetBytes),
      asked: this.asked,
    };
  }

  private wantsMore(): boolean {
    const { wanted, deadline } = this.question;
    return (
      undominated(this.found).length < wanted &&
      this.asked < wanted * ASKED_PER_POINT &&
      !deadline.isOver
    );
  }

  /** The widest range, without the bytes that are known to be too few. */
  private widest(ranges: readonly Range[]): Range | undefined {
    return ranges
      .map(({ from, to }) => ({ from: Math.max(from, this.needed - 1), to }))
      .reduce<Range | undefined>(
        (a, b) => (a === undefined || b.to - b.from > a.to - a.from ? b : a),
        undefined,
      );
  }

  private async ask(budgetBytes: number): Promise<FrontierPoint | undefined> {
    const { graph, base, options, wanted, deadline } = this.question;
    this.asked++;
    const result = await answer(graph, { ...base, memoryBytes: budgetBytes }, options, deadline);
    let point: FrontierPoint | undefined;
    if (result?.status === 'planned') {
      point = pointOf(result, budgetBytes, this.firstRuns);
      this.found.push(point);
      this.bounds.push({ budgetBytes, seconds: point.boundSeconds });
    } else this.miss(budgetBytes, result);
    options.onBudget?.({
      asked: this.asked,
      points: undominated(this.found).length,
      wanted,
      budgetBytes,
      ...(point === undefined ? {} : { seconds: point.seconds, peakBytes: point.peakBytes }),
    });
    return point;
  }

  /** Keeps a budget without a plan, and what it proves of the bytes that every plan takes. */
  private miss(budgetBytes: number, result: Exclude<LeastCostResult, Planned> | undefined): void {
    if (result === undefined) {
      this.misses.push({ budgetBytes, status: 'not found' });
      return;
    }
    this.misses.push({ budgetBytes, status: 'infeasible', conflict: result.conflict });
    // Pins that contradict each other say nothing of memory.
    if (this.question.plain.left.contradictions.length > 0) return;
    const least = result.neededBytes ?? result.smallestBudgetBytes ?? budgetBytes + 1;
    this.needed = Math.max(this.needed, least);
  }
}

/** The plan of one budget; undefined when none was found and none ruled out. */
async function answer(
  graph: Graph,
  request: PlanRequest,
  { table, onProgress }: FrontierOptions,
  deadline: Deadline,
): Promise<LeastCostResult | undefined> {
  // The request stays the one that was asked: what is left of its time is not part of what a plan
  // was made for.
  const asked: LeastCostOptions & { readonly deadline: Deadline } = {
    ...defined({ table }),
    deadline,
    ...defined({ onProgress }),
  };
  try {
    return await leastCostPlan(graph, request, asked);
  } catch (error) {
    const known = error instanceof ShardwrightError ? error.code : '';
    if (['E_LIMIT', 'E_TIME_LIMIT', 'E_INTERRUPTED'].includes(known)) return undefined;
    throw error;
  }
}

function pointOf(
  result: Planned,
  budgetBytes: number,
  firstRuns: ReadonlySet<string>,
): FrontierPoint {
  const { plan } = result;
  const { seconds } = plan.objective;
  const again = plan.nodes.filter((n) => !firstRuns.has(n.name) && n.seconds > 0);
  const boundSeconds =
    plan.proof.status === 'optimal' ? seconds : Math.min(plan.proof.bound, seconds);
  return {
    seconds,
    peakBytes: plan.memory.peakBytes,
    peakNode: plan.memory.timeline?.node ?? '',
    budgetBytes,
    boundSeconds,
    gap: 0 - excessOver(seconds, boundSeconds),
    recomputedNodes: again.length,
    recomputeSeconds: again.reduce((sum, n) => sum + n.seconds, 0),
    result,
  };
}

/** Points that no other beats or equals in both, by falling peak. */
function undominated(points: readonly FrontierPoint[]): FrontierPoint[] {
  const rising = [...points].sort((a, b) => a.peakBytes - b.peakBytes || a.seconds - b.seconds);
  const kept: FrontierPoint[] = [];
  for (const p of rising) if (p.seconds < (kept.at(-1)?.seconds ?? Infinity)) kept.push(p);
  return kept.reverse();
}
