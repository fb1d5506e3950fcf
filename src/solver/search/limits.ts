/**
 * Work limits and convergence tolerances of the exact engine: one record a step, one named profile
 * for each use of it. Work is counted (cells, additions, labels, sweeps), never timed. They steer
 * the search and prove nothing: other numbers give other ways to the same certified answers. All
 * were tuned on repeated layers (`bench/plan.mjs`).
 */
import type { AscentLimits } from '../dual/ascent.ts';
import type { EliminationLimits } from '../eliminate/buckets.ts';

/** Bucket elimination. */
export const ELIMINATION = {
  /** Presolve: only what leaves small tables over two variables. */
  easy: { cells: 50_000, work: 10_000_000, totalWork: 1e9, arity: 2, slack: Infinity },
  /** Limits on the core at the root, and in a branch. */
  core: { cells: 4_000_000, work: 1e8, totalWork: 4e8, arity: 64, slack: Infinity },
  branch: { cells: 200_000, work: 1e7, totalWork: 2e7, arity: 64, slack: Infinity },
  /** Heuristics: below a guessed cutoff, and of what several choices take. */
  gap: { cells: 500_000, work: 1e7, totalWork: 5e7, arity: 64, slack: Infinity },
  fusion: { cells: 1_000_000, work: 2e7, totalWork: 1e8, arity: 64, slack: Infinity },
} as const satisfies Record<string, EliminationLimits>;

/**
 * Pareto elimination: labels kept of a table, combinations tried, and the part of them that a
 * branch may try.
 */
export const PARETO = { labels: 400_000, work: 40_000_000, branchShare: 0.05 } as const;

/**
 * Dual ascent. Later rounds and branches stop sooner than the work after the first sweeps of a
 * network that does not repeat, or of the short one that represents it, because that work is
 * expensive.
 */
export const ASCENT = {
  root: { sweeps: 400, minProgress: 0.25 },
  patient: { sweeps: 400, minProgress: 0.002 },
  branch: { sweeps: 12, minProgress: 0.25 },
  /** A long network after the sweeps of the short one that represents it. */
  settling: { sweeps: 2, minProgress: 0.25 },
  /** At a price: it is evaluated as soon as a sweep gains less than this part of the bound. */
  priced: { sweeps: 20, minGain: 1e-9, minProgress: 0.25, extrapolates: true },
  /**
   * The short network at the best price of the tied one, whose messages the long one begins with.
   */
  untied: { sweeps: 60, minProgress: 0.25, extrapolates: true },
  /** The few free layers between two choices that are mixed. */
  seam: { sweeps: 60, minProgress: 0.1 },
  /** A folded network at a price, where the best choice is far above the bound. */
  far: { sweeps: 30, minProgress: 0.02, extrapolates: true },
  /** Problems whose relaxation is expected to be tight. */
  tight: { sweeps: 200, minProgress: 0.25, minSweeps: 10, close: 0 },
  /** The bound from which ties are broken. */
  ties: { sweeps: 100, minProgress: 0.1, close: 0 },
} as const satisfies Record<string, Partial<AscentLimits>>;

/** Branch and bound. */
export const SEARCH = {
  /** Networks of fewer cells are eliminated sooner than swept often. */
  smallCells: 100_000,
  /** Networks of more cells after the first fixing are worth an expensive start. */
  expensiveStartCells: 300_000,
  /**
   * Part of the values that a round of pruning must take away for sweeps to go on before anything
   * more expensive is tried.
   */
  worthwhile: 0.1,
  /** Rounds of fusing before a node branches. */
  rounds: 12,
  /**
   * Where neither time nor work is limited, networks that keep more cells than this after so many
   * rounds are not branched on, and branches end after so many cells in all. Either would take
   * hours.
   */
  wideCells: 500_000,
  wideRounds: 4,
  /**
   * Part of the gap that sweeps of a wide network with rows must close for more rounds to follow.
   */
  leastGain: 0.01,
  branchedCells: 500_000_000,
} as const;

/**
 * Numbers that a search may keep in its pool: beyond, branches of a wide network would take the
 * memory of the machine. A process has about 3 GB by then.
 */
export const MOST_CELLS = 2 ** 27;
