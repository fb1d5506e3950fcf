/**
 * Mixes paths through a step, each with a share, and gives every second of work a weight such that
 * the weighted seconds of any plan are at most its overlapped step.
 *
 * The step of a plan takes at least the seconds of every path through it (`longestPath`), and so at
 * least those of a mixture of paths whose shares are 1 together. These are sums over the work of
 * the plan: a piece of work counts with the shares of the paths that pass it. Which mixture is
 * worth most against some plans is a game of two players with a matrix of seconds, plans by paths.
 * Its paths are made as they are needed: the next one is the longest for the other player's mixture
 * of plans.
 */
import { gameShares } from '../../solver/dual/matrix-game.ts';
import { type LongestPath, pathOfLoads, type PathStretch } from './longest-path.ts';
import type { PlanLoads } from './plan-loads.ts';
import type { Site, StepWork } from './step-work.ts';
import { ANY_LINK, COMPUTE } from './streams.ts';

/** Weights of the seconds of pieces of work. */
export interface WorkWeights {
  /** The weight of the kernel at a position. */
  kernel(at: number): number;
  /** The weights of a move: by stream for the price of its site, and for its latency. */
  move(site: Site): MoveWeights;
}

export interface MoveWeights {
  readonly byStream: readonly number[];
  readonly latency: number;
}

/**
 * One path, with what it passes of every place: gap `k` is place `2 k`, kernel `k` is place `2 k +
 * 1`.
 */
class Path {
  /** By place: the number of the stretch that it is in, -1: the chain. */
  private readonly stretchAt: Int32Array;
  /** By gap: gaps before it that are not on the chain. */
  private readonly offChain: Int32Array;

  constructor(
    count: number,
    private readonly stretches: readonly PathStretch[],
  ) {
    this.stretchAt = new Int32Array(2 * count + 1).fill(-1);
    stretches.forEach(({ from, to }, i) => this.stretchAt.fill(i, 2 * from, 2 * to + 1));
    this.offChain = new Int32Array(count + 2);
    for (let gap = 0; gap <= count; gap++)
      this.offChain[gap + 1] = this.offChain[gap] + Number(this.stretchAt[2 * gap] >= 0);
  }

  passesKernel(at: number): boolean {
    const i = this.stretchAt[2 * at + 1];
    return i < 0 || this.stretches[i].by === COMPUTE;
  }

  isChain(gap: number): boolean {
    return this.stretchAt[2 * gap] < 0;
  }

  isChainFrom(from: number, to: number): boolean {
    return this.offChain[to + 1] === this.offChain[from];
  }

  /**
   * The stream or move by which everything from gap `from` to gap `to` is passed; undefined where
   * not all of it is.
   */
  passedBy(from: number, to: number): number | Site | undefined {
    const i = this.stretchAt[2 * from];
    return i >= 0 && this.stretchAt[2 * to] === i ? this.stretches[i].by : undefined;
  }

  /** Seconds of a plan on this path. */
  secondsOf({ kernels, moves }: PlanLoads): number {
    let sum = 0;
    kernels.forEach((seconds, k) => (sum += this.passesKernel(k) ? seconds : 0));
    for (const { site, seconds, latencySeconds } of moves) {
      const from = site.after + 1;
      const to = site.before;
      const by = this.passedBy(from, to);
      if (by === site) sum += latencySeconds;
      else if (typeof by === 'number') sum += seconds[by];
      else if (by === undefined && site.chained.includes(true) && this.isChain(to))
        seconds.forEach((s, stream) => (sum += site.chained[stream] ? s : 0));
      else if (site.isFree && this.isChainFrom(from, to)) sum += seconds[COMPUTE];
    }
    return sum;
  }
}

/** A mixture of paths: the shares are at least 0 and at most 1 together. */
class PathMixture implements WorkWeights {
  private readonly parts: readonly { readonly path: Path; readonly share: number }[];
  /** By gap: the share of the chain. */
  private readonly chainAt = new Map<number, number>();

  constructor(paths: readonly Path[], shares: readonly number[]) {
    this.parts = paths.flatMap((path, i) => (shares[i] > 0 ? [{ path, share: shares[i] }] : []));
  }

  kernel(at: number): number {
    return this.shareOf((path) => path.passesKernel(at));
  }

  move(site: Site): MoveWeights {
    const from = site.after + 1;
    const to = site.before;
    const byStream = new Array<number>(ANY_LINK + 1).fill(0);
    let latency = 0;
    for (const { path, share } of this.parts) {
      const by = path.passedBy(from, to);
      if (by === site) latency += share;
      else if (typeof by === 'number') byStream[by] += share;
      else if (by === undefined && path.isChain(to))
        site.chained.forEach((is, stream) => (byStream[stream] += is ? share : 0));
    }
    if (site.isFree) byStream[COMPUTE] += this.leastChain(from, to);
    return { byStream: byStream.map((w) => Math.min(1, w)), latency: Math.min(1, latency) };
  }

  /**
   * The gap in which the chain has the smallest share: what can run in any of them weighs no less
   * there.
   */
  private leastChain(from: number, to: number): number {
    let least = 1;
    for (let gap = from; gap <= to && least > 0; gap++) {
      const known = this.chainAt.get(gap);
      const share = known ?? this.shareOf((path) => path.isChain(gap));
      if (known === undefined) this.chainAt.set(gap, share);
      least = Math.min(least, share);
    }
    return least;
  }

  private shareOf(passes: (path: Path) => boolean): number {
    let sum = 0;
    for (const { path, share } of this.parts) if (passes(path)) sum += share;
    return Math.min(1, sum);
  }
}

/** A new path is worth adding where it is longer than the value of the game by this share. */
const LONGER = 5e-4;
/** Most paths that are added for one mixture. */
const MOST_PATHS = 20;

/** Plans against paths. */
export class PathGame {
  private readonly plans: PlanLoads[] = [];
  private readonly paths: Path[] = [];
  /** By plan, then path. */
  private readonly seconds: number[][] = [];

  constructor(private readonly work: StepWork) {}

  add(loads: PlanLoads): void {
    this.plans.push(loads);
    this.seconds.push(this.paths.map((path) => path.secondsOf(loads)));
    this.addPath(pathOfLoads(this.work, [{ loads, weight: 1 }]));
  }

  private addPath({ stretches }: LongestPath): void {
    const path = new Path(this.work.order.count, stretches);
    this.paths.push(path);
    this.plans.forEach((loads, x) => this.seconds[x].push(path.secondsOf(loads)));
  }

  /** The mixture of paths that is worth most against the plans, nearly, and what it is worth. */
  best(): { readonly shares: readonly number[]; readonly value: number } {
    for (let k = 0; ; k++) {
      const { rows, columns } = gameShares(this.seconds);
      const shares = Array.from(columns);
      const value = Math.min(
        ...this.seconds.map((row) => row.reduce((sum, s, p) => sum + s * shares[p], 0)),
      );
      const found = pathOfLoads(
        this.work,
        this.plans.flatMap((loads, x) => (rows[x] > 0 ? [{ loads, weight: rows[x] }] : [])),
      );
      if (found.seconds <= value * (1 + LONGER) || k >= MOST_PATHS) return { shares, value };
      this.addPath(found);
    }
  }

  mixture(shares: readonly number[]): PathMixture {
    return new PathMixture(this.paths, shares);
  }
}
