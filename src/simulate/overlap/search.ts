/**
 * Searches plans for the overlapped step: from a prepared request, its plan of summed costs and
 * other known plans it finds the plan with the shortest simulated step, and a proven lower bound on
 * the overlapped step of every plan.
 */

import { checkKinds } from '../../arguments.ts';
import { checkChoice } from '../../plan/choice/solver-arguments.ts';
import type { Prepared } from '../../plan/prepare/prepared.ts';
import { Deadline } from '../../plan/request/deadline.ts';
import { workOn } from '../../plan/request/efforts.ts';
import { restrictionOf } from '../../plan/restrict/pins.ts';
import { bestMixture } from '../../solver/dual/best-mixture.ts';
import { withoutFixed } from '../../solver/problem/condition.ts';
import { costliestEdges, Regions } from '../../solver/problem/regions.ts';
import { type CompactProblem, compactProblem, KeptLists } from '../../solver/problem/restrict.ts';
import { solve } from '../../solver/solve.ts';
import type { Problem } from '../../solver/types.ts';
import { random } from '../ranks/shards.ts';
import type { SimulateOptions } from '../timeline/simulate.ts';
import { type LongestPath, longestPath, stepWorkFor } from '../work/longest-path.ts';
import type { Packing } from '../work/packing.ts';
import { PathGame } from '../work/path-mixture.ts';
import { planLoads } from '../work/plan-loads.ts';
import { DEFAULT_BUCKET_BYTES, LAUNCH_SECONDS } from '../work/rules.ts';
import type { StepWork } from '../work/step-work.ts';
import { StreamCosts } from '../work/stream-costs.ts';
import { CandidatePool, type Candidates, type OverlapCandidate } from './candidates.ts';

/**
 * How far to look. The options of the simulation are those under which the bound holds: one stream
 * for each kind of link, matrix products in one piece.
 */
export interface OverlapOptions extends Omit<
  SimulateOptions,
  'asyncTensor' | 'streams' | 'bucketBytes'
> {
  /** Choices that are known, such as recipes: those that the request admits are candidates. */
  readonly starts?: readonly Int32Array[];
  /** Most packings that are tried of each kind. Default 12. */
  readonly rounds?: number;
  /** Bins of kernels that a packing tells apart. Default 16. */
  readonly bins?: number;
  /** The deadline of the whole search; default: the request's time limit. */
  readonly deadline?: Deadline;
}

/**
 * The plan of least simulated seconds among those tried, the plan without overlap, and a bound on
 * all.
 */
export interface OverlapSearch {
  /** The plan of summed costs. */
  readonly base: OverlapCandidate;
  /** The plan to take. */
  readonly best: OverlapCandidate;
  /** Every plan that was simulated, the base first. */
  readonly candidates: readonly OverlapCandidate[];
  /** No plan of the problem has a shorter simulated step. */
  readonly boundSeconds: number;
  /** 1 - bound / best simulated step. */
  readonly gap: number;
}

/**
 * Share of the summed costs that a problem contains whose plan is wanted, and not its bound: it
 * moves little in vain.
 */
const BLEND = 0.003;
/** Larger shares, tried with the last packing. */
const LAST_BLENDS = [0.02, 0.2] as const;
/** Shares for crossings. */
const BLENDS = [0, BLEND, 0.03, 0.1] as const;
/** A problem of a bound may end this near to it; one that only looks for plans, this near. */
const BOUND_GAP = 2e-4;
const PLAN_GAP = 2e-2;
/** Share of the work of a bound that a problem which only looks for plans may take. */
const PLAN_WORK = 1 / 4;
/** Seconds are sums of doubles: a smaller gap is none. */
const ROUNDING = 1e-9;
/**
 * Mixtures of paths that are tried for a bound for each packing that is tried for plans: they take
 * less time each.
 */
const BOUND_ROUNDS = 2;
/** Rounds end when the best mixture of all plans seen is this near to the bound. */
const NEAR = 5e-4;
/**
 * Moves of the best plan around which others are looked for, how many variables may change there,
 * in turn, and how many in vain end it.
 */
const MOST_REGIONS = 24;
const REGION_VARIABLES = [48, 192] as const;
const REGIONS_IN_VAIN = 8;
/**
 * Best plans, and others drawn from all answers, that are crossed; most crossings, and how many in
 * vain end them.
 */
const PARENTS = 4;
const OTHERS = 1;
const CROSSINGS = 24;
const IN_VAIN = 12;
/** Most times that both are done, each after a better plan. */
const PASSES = 2;
/** How far a mixture goes towards that of the best bound so far. */
const SMOOTHING = 0.5;
/** A plan that is faster by less is none. */
const BETTER = 1e-4;

/**
 * Four phases. The first two alternate between two problems until their values meet: the packing
 * that is worth most against all plans seen gives weights (`bestMixture`), and the cheapest plan
 * under these weights is one more plan seen. The first looks for plans: a little of the summed
 * costs keeps them from moving in vain. What the second solves bounds the overlapped step of every
 * plan. The third changes the best plan around what it waits for longest, the fourth crosses the
 * best plans.
 *
 * @param choice the plan of summed costs
 */
export async function searchOverlap(
  prepared: Candidates & Pick<Prepared, 'question'>,
  choice: Int32Array,
  options: OverlapOptions = {},
): Promise<OverlapSearch> {
  checkKinds('searchOverlap', {
    prepared: [prepared, 'restricted'],
    choice: [choice, 'list'],
    options: [options, 'record', 'undefined'],
  });
  checkChoice('searchOverlap', prepared.model.problem, choice);
  const {
    rounds = 12,
    bins = 16,
    starts = [],
    deadline = new Deadline(prepared.question.request.timeLimitSeconds),
    ...simulation
  } = options;
  const launchSeconds = options.launchSeconds ?? LAUNCH_SECONDS;
  const stopped = (): boolean => deadline.isOver;
  const pool = new CandidatePool(prepared, { ...simulation, stopped }, choice);
  for (const start of starts) if (!stopped() && pool.admits(start)) pool.add(start);
  const { work } = stepWorkFor(
    prepared.model,
    { launchSeconds, bucketBytes: DEFAULT_BUCKET_BYTES },
    pool.best.choice,
  );
  const search = new Alternation(prepared, work, bins, pool, deadline);
  for (const start of starts) if (pool.admits(start)) search.know(start);
  await search.alternate(rounds);
  await search.tighten(BOUND_ROUNDS * rounds);
  for (let pass = 0, before = Infinity; pass < PASSES && isBetter(pool.best, before); pass++) {
    before = pool.best.simulatedSeconds;
    await search.improve();
    await search.cross();
  }
  const { best, candidates } = pool;
  const { boundSeconds } = search;
  const gap = best.simulatedSeconds === 0 ? 0 : 1 - boundSeconds / best.simulatedSeconds;
  return { base: candidates[0], best, candidates, boundSeconds, gap: gap < ROUNDING ? 0 : gap };
}

function isBetter({ simulatedSeconds }: OverlapCandidate, beforeSeconds: number): boolean {
  return simulatedSeconds < beforeSeconds * (1 - BETTER);
}

class Alternation {
  boundSeconds = 0;
  /** Every choice that some problem had for an answer, simulated or not. */
  private readonly answers: Int32Array[];
  private readonly paths = new Map<Int32Array, LongestPath>();
  private costs: StreamCosts;
  private readonly kept: Parameters<typeof compactProblem>[1];

  constructor(
    private readonly prepared: Candidates & Pick<Prepared, 'question'>,
    private readonly work: StepWork,
    private readonly bins: number,
    private readonly pool: CandidatePool,
    private readonly deadline: Deadline,
  ) {
    const {
      model,
      question: { request, given },
    } = prepared;
    this.answers = [pool.best.choice];
    this.costs = new StreamCosts(work, bins);
    this.kept = restrictionOf(model, request, given).restriction.kept();
  }

  /** Takes a choice for an answer, and simulates it. Whether it is new. */
  look(choice: Int32Array): boolean {
    this.pool.add(choice);
    return this.know(choice);
  }

  /** Takes a choice for an answer. Whether it is new. */
  know(choice: Int32Array): boolean {
    const text = choice.join();
    if (this.answers.some((answer) => answer.join() === text)) return false;
    this.answers.push(choice);
    return true;
  }

  /** Alternates between packings and plans, under prices that bound nothing. */
  async alternate(rounds: number): Promise<void> {
    this.costs = new StreamCosts(
      this.work,
      this.bins,
      this.answers.map((choice) => this.pathOf(choice)),
    );
    const cuts = this.answers.map((choice) => this.costs.cut(choice));
    let packing = this.costs.none;
    for (let round = 0; round < rounds && !this.deadline.isOver; round++) {
      const { shares } = bestMixture(cuts, this.costs.stretches, this.costs.places);
      packing = this.costs.packing(shares);
      const found = await this.solved(
        compactProblem(this.costs.problem(packing, BLEND), this.kept),
        false,
      );
      if (found === undefined) return;
      // A known answer leaves the mixture as it is, and the next round with it.
      if (!this.look(found)) break;
      cuts.push(this.costs.cut(found, packing));
    }
    for (const blend of LAST_BLENDS) {
      if (this.deadline.isOver) return;
      const found = await this.solved(
        compactProblem(this.costs.problem(packing, blend), this.kept),
        false,
      );
      if (found !== undefined) this.look(found);
    }
  }

  /**
   * Alternates between mixtures of paths and plans: the mixture that is worth most against all
   * plans seen gives weights, and the cheapest plan under them is one more plan seen. What proves
   * it bounds the step of every plan. Mixtures stay near that of the best bound so far (smoothing
   * of dual prices: Wentges, Weighted Dantzig-Wolfe decomposition, 1997).
   */
  async tighten(rounds: number): Promise<void> {
    const game = new PathGame(this.work);
    for (const choice of this.answers) game.add(planLoads(this.work, choice));
    let center: readonly number[] | undefined;
    for (let round = 0; round < rounds && !this.deadline.isOver; round++) {
      const { shares, value } = game.best();
      if (value <= this.boundSeconds * (1 + NEAR)) return;
      const near = center;
      const tried =
        near === undefined
          ? shares
          : shares.map((share, i) => share + SMOOTHING * ((near[i] ?? 0) - share));
      const before = this.boundSeconds;
      const found = await this.solved(
        compactProblem(this.costs.problem(game.mixture(tried)), this.kept),
        true,
      );
      if (found === undefined) return;
      if (this.boundSeconds > before) center = tried;
      // A known answer leaves the game as it is, and the next round with it.
      if (this.look(found)) game.add(planLoads(this.work, found));
      else if (near === undefined) return;
      else center = undefined;
    }
  }

  /** The packing that is worth most against some choices, and what it is worth. */
  private mixture(choices: readonly Int32Array[]): {
    readonly packing: Packing;
    readonly value: number;
  } {
    const { costs } = this;
    const { shares, value } = bestMixture(
      choices.map((choice) => costs.cut(choice)),
      costs.stretches,
      costs.places,
    );
    return { packing: costs.packing(shares), value };
  }

  private pathOf(choice: Int32Array): LongestPath {
    let path = this.paths.get(choice);
    if (path === undefined) this.paths.set(choice, (path = longestPath(this.work, choice)));
    return path;
  }

  /**
   * Frees a region around each of the moves that add most to the critical path of the best plan,
   * under the weights of that path. What is found is simulated; where it is faster, the path is
   * that of the new plan.
   */
  async improve(): Promise<void> {
    const regions = new Regions(this.prepared.left.problem);
    let problems = this.onPathOf(this.pool.best.choice);
    let centers = costliestEdges(problems[0], this.pool.best.choice);
    const tried = new Set<string>();
    for (
      let k = 0, inVain = 0;
      k < MOST_REGIONS && inVain < REGIONS_IN_VAIN && !this.deadline.isOver;
      k++
    ) {
      const size = REGION_VARIABLES[k % REGION_VARIABLES.length];
      const center = centers.find((ends) => !tried.has(`${ends.join()} ${size}`));
      if (center === undefined) return;
      tried.add(`${center.join()} ${size}`);
      const { best } = this.pool;
      const free = regions.around(center, size);
      const kept = this.union([best.choice], free);
      for (const problem of problems) {
        const found = await this.solved(compactProblem(problem, kept), false);
        if (found !== undefined) this.pool.add(found, this.pathOf(found).seconds);
      }
      inVain++;
      if (!isBetter(this.pool.best, best.simulatedSeconds)) continue;
      inVain = 0;
      problems = this.onPathOf(this.pool.best.choice);
      centers = costliestEdges(problems[0], this.pool.best.choice);
    }
  }

  /**
   * The problems under the weights of the critical path of a choice, each with more of the summed
   * costs.
   */
  private onPathOf(choice: Int32Array): Problem[] {
    this.costs = new StreamCosts(this.work, this.bins, [this.pathOf(choice)]);
    const { packing } = this.mixture([choice]);
    return [BLEND, 0.1].map((blend) => this.costs.problem(packing, blend));
  }

  /**
   * Crosses the fastest plans with each other and with some of all answers: each variable may take
   * a value that one of them gives it, and the weights are those of a mixture against some of them,
   * drawn at random. The domains are so small that a crossing is solved at once.
   */
  async cross(): Promise<void> {
    const next = random(this.prepared.question.request.seed);
    let inVain = 0;
    for (let k = 0; k < CROSSINGS && inVain < IN_VAIN && !this.deadline.isOver; k++) {
      const parents = this.pool.fastest(PARENTS).map(({ choice }) => choice);
      for (let i = 0; i < OTHERS; i++)
        parents.push(this.answers[Math.floor(next() * this.answers.length)]);
      const { packing } = this.mixture(parents.filter((_, i) => i === 0 || next() < 0.5));
      const drawn = this.costs.packing(packing.shares.map((share) => share * next()));
      const problem = this.costs.problem(drawn, BLENDS[k % BLENDS.length]);
      const { simulatedSeconds: before } = this.pool.best;
      const found = await this.solved(compactProblem(problem, this.union(parents)), false);
      if (found !== undefined) this.pool.add(found, this.pathOf(found).seconds);
      inVain = isBetter(this.pool.best, before) ? 0 : inVain + 1;
    }
  }

  /**
   * By variable: the values that these choices give it, or all that the request leaves where it is
   * free.
   */
  private union(
    choices: readonly Int32Array[],
    free: ReadonlySet<number> = new Set(),
  ): Parameters<typeof compactProblem>[1] {
    const lists = new KeptLists();
    return Array.from(this.prepared.left.problem.domains, (size, v) => {
      if (free.has(v)) {
        const allowed = this.kept[v]?.values ?? Int32Array.from({ length: size }, (_, a) => a);
        return lists.of(allowed.join(), () => allowed);
      }
      const values = Int32Array.from(new Set(choices.map((choice) => choice[v]))).sort();
      return lists.of(values.join(), () => values);
    });
  }

  /** The cheapest choice; what proves it is the bound on the step of every plan. */
  private async solved(
    narrowed: CompactProblem,
    isBound: boolean,
  ): Promise<Int32Array | undefined> {
    const rest = isBound
      ? { problem: narrowed.problem, expand: (choice: Int32Array) => choice }
      : withoutFixed(narrowed.problem);
    const { problem } = rest;
    const start = isBound ? narrowed.contract(this.pool.best.choice) : undefined;
    const solution = await solve(problem, {
      engine: 'exact',
      // A bound of a folded network is valid only with its certificate.
      certify: isBound,
      gap: isBound ? BOUND_GAP : PLAN_GAP,
      seed: this.prepared.question.request.seed,
      workLimit: isBound ? workOn(problem) : PLAN_WORK * workOn(problem),
      ...(start === undefined ? {} : { starts: [start] }),
      ...this.deadline.solveOptions,
    });
    if (solution.status === 'infeasible') return undefined;
    if (isBound)
      this.boundSeconds = Math.max(
        this.boundSeconds,
        solution.bound / this.prepared.model.unitsPerSecond,
      );
    return narrowed.expand(rest.expand(solution.choice));
  }
}
