/**
 * The problem of the solver is MAP inference in a pairwise Markov random field, also called a
 * weighted constraint satisfaction problem (a binary cost function network), with linear side rows.
 * This folder knows nothing but numbers and imports nothing, so that it can be tested on other
 * people's problems. Source: M. C. Cooper et al., "Soft arc consistency revisited", AI 2010.
 *
 * Variables i = 0..n-1 have domains {0..k_i-1}; choose x_i to
 *
 *   minimise constant + sum_i unary_i(x_i) + sum_e table_e(x_first(e), x_second(e)) subject to sum
 *   of the pieces that live at t <= limit (time rows: usage at every time)
 *              sum_i amount_ri(x_i) <= bound_r                                    (linear rows)
 *
 * Costs are integers below 2^53 (the caller scales once); Infinity is the only token for
 * "forbidden". Doors decide what it is: `ProblemBuilder` refuses other numbers, the reader of the
 * contest's files turns their 10^18 into it.
 */

/**
 * MAP inference in a pairwise Markov random field, a weighted constraint satisfaction problem (cost
 * function network), with linear side rows. Tables are shared by content: equal tables have one id,
 * which is what lets repeated layers share work.
 */
export interface Problem {
  readonly name?: string;
  /** Domain size of each variable. */
  readonly domains: Int32Array;
  /** Id of the unary cost vector of each variable, into `vectors`. */
  readonly unary: Int32Array;
  readonly vectors: readonly Float64Array[];
  /**
   * Endpoints and table id of each edge. A table is row-major over (row, column), where the row of
   * value a of the first endpoint is maps[firstMap][a] and the column of value b of the second is
   * maps[secondMap][b]; map id -1 is the identity. A strategy matters to its neighbour only through
   * one tensor's placement, so tables are far smaller than domain x domain (a 512-strategy node on
   * a 3-D mesh has some 40 placements per tensor): solvers must work on the compressed table and
   * never expand it. Parallel edges add up.
   */
  readonly edges: {
    readonly first: Int32Array;
    readonly second: Int32Array;
    readonly table: Int32Array;
    readonly firstMap: Int32Array;
    readonly secondMap: Int32Array;
  };
  /** Maps from the values of a variable to the rows (or columns) of a table, shared by content. */
  readonly maps: readonly Int32Array[];
  readonly tables: readonly {
    readonly rows: number;
    readonly columns: number;
    readonly costs: Float64Array;
  }[];
  /**
   * A hint for speed (min-decomposition): every value of the variable is a pair of alternatives (an
   * owned placement and a copy), and every table takes the lesser of the two. Two maps per variable
   * (-1: none) name the alternatives of each value. The solver tests the hint table by table and
   * ignores it where it does not hold or its length is not the domain's.
   */
  readonly minPairs?: { readonly first: Int32Array; readonly second: Int32Array };
  /** Added to every objective. */
  readonly constant?: number;
  /**
   * Units that a bound may stay below a choice which then counts as optimal: what scaling to
   * integers blurs anyway. Default 0.
   */
  readonly tolerance?: number;
  /** Linear rows: e.g. static memory of parameters, gradients and optimizer state. */
  readonly rows?: readonly LinearRow[];
  /**
   * Usage at every time: half-open intervals [lo, hi) with an amount per value, under one limit.
   */
  readonly usage?: {
    readonly pieces: readonly UsagePiece[];
    readonly limit: number;
  };
}

/** A linear row: the amounts of the chosen values add up to at most its bound. */
export interface LinearRow {
  readonly name: string;
  /** Variables in the row and, for each, the amount of every value (non-negative integers). */
  readonly variables: Int32Array;
  readonly amounts: readonly Float64Array[];
  readonly bound: number;
}

/** Amounts that a variable uses over a span of times. */
export interface UsagePiece {
  readonly variable: number;
  readonly lo: number;
  readonly hi: number;
  readonly amounts: Float64Array;
}

/** Engine, limits and known choices of a solve. */
export interface SolveOptions {
  /**
   * `auto` and `exact` are our own engine; the other two are library backends; what they report is
   * evidence, not proof.
   */
  readonly engine?: 'auto' | 'exact' | 'highs' | 'javascript-lp-solver';
  readonly timeLimitSeconds?: number;
  /**
   * Stop after so much work of our own engine: combinations of Pareto labels, of which a message
   * step counts as 100. Like a time limit, but the same on every machine. Default: none.
   */
  readonly workLimit?: number;
  /**
   * Stop once our own engine keeps so many numbers more than at the start: cells of tables, entries
   * of vectors and maps. What a time limit does, but the same on every machine. Default 2^27, of
   * which a process has about 3 GB.
   */
  readonly cellLimit?: number;
  /**
   * Stop once (objective - bound) / max(1, |objective|) is at most this. Default 0: prove
   * optimality.
   */
  readonly gap?: number;
  /**
   * A gap with which the caller could live: at most this far from the bound, nothing is begun that
   * costs more than sweeps and prices. What is cheap goes on to `gap`. Default: `gap`, so that no
   * step is left out.
   */
  readonly enough?: number;
  /**
   * Under rows: whether a gap that is too wide for exact elimination is searched as a
   * whole, with a few labels a cell. Takes much of a work limit, and is for problems whose best
   * choice is known to be poor. Default false.
   */
  readonly searchesWide?: boolean;
  readonly seed?: number;
  readonly signal?: AbortSignal;
  readonly onProgress?: (event: Progress) => void;
  /** Is told what every step came to, when it ends. */
  readonly onStep?: (step: SolverStep) => void;
  /**
   * True if a certificate is built and replayed; default true. Without it the answer is at most
   * `feasible` and its bound is uncertified.
   */
  readonly certify?: boolean;
  /**
   * A `PreparedProblem` of this very problem but for its rows, shared by several solves; that of
   * another problem is ignored.
   */
  readonly prepared?: { readonly problem: Problem };
  /**
   * Choices known beforehand (recipes, an earlier plan); infeasible ones are ignored.
   */
  readonly starts?: readonly Int32Array[];
  /**
   * `engine` (default): the engine's deterministic choice among those of least cost.
   * `lexicographic`: the smallest choice vector, up to 2,000 variables. It takes up to one more
   * solve per variable that is not at its first value, hence it is not a default; beyond 2,000
   * variables or out of time the answer says `ties: 'engine'`.
   */
  readonly ties?: 'lexicographic' | 'engine';
}

/**
 * Objective falls and bound rises; the bound of an event is not yet certified, the one of the
 * solution is.
 */
export interface Progress {
  readonly phase: string;
  readonly seconds: number;
  readonly objective: number;
  readonly bound: number;
  readonly gap: number;
}

/** The steps of a solve, and what each is. */
export const STEP_ABOUT = {
  solve: 'one problem, from its network to its certificate',
  relaxation:
    'messages on the folded or reduced network alone: where they are tight, they prove the optimum',
  presolve: 'dominance, merging, elimination of what leaves small tables',
  'without rows': 'the problem without its rows',
  fold: 'first messages from the short network that stands for repeated blocks',
  ascent: 'dual ascent (TRW-S)',
  multipliers: 'search for the prices of the rows',
  'gap search': 'exact elimination within a guessed part of the gap: a heuristic',
  fixing: 'reduced-cost fixing against the best choice, then presolve',
  'tied blocks': 'the cheapest choice whose middle blocks are equal',
  elimination: 'exact bucket elimination of what is left',
  'pareto elimination': 'exact elimination with Pareto fronts of cost and amounts',
  fusing: 'variables of triangles joined, for a tighter relaxation',
  branching: 'branch and bound below the root',
  replay: 'the checker replays the proof',
  library: 'a library of integer programming',
  reduce: 'anytime: presolve',
  search: 'anytime: large-neighbourhood search next to the dual ascent',
  finish: 'anytime: a library of integer programming on what reduced-cost fixing left',
  close: 'anytime: branch and bound',
  parts: 'anytime: bounds of parts with dual ascents of their own',
  certify: 'anytime: the certificate, replayed by the checker',
} as const;
/** A step by its name. */
export type StepName = keyof typeof STEP_ABOUT;

/** One step of a solve, told when it ends. */
export interface SolverStep {
  /** Steps in the order in which they began, from 0: a step comes before those that it takes. */
  readonly order: number;
  /** Steps that it is a part of. */
  readonly level: number;
  readonly step: StepName;
  /** The step in a few words. */
  readonly about: string;
  /** The result of the step. */
  readonly outcome: string;
  /**
   * Work of it and its parts, in the unit of `SolveOptions.workLimit`: sweeps and labels count,
   * reductions do not; absent in the contest solver.
   */
  readonly work?: number;
  readonly seconds: number;
  /** Values of all variables and cells of all tables that it left. */
  readonly values?: number;
  readonly cells?: number;
  /** The cost of the best choice so far; absent before there is one. */
  readonly cost?: number;
  /** The best lower bound so far, not yet certified; absent before there is one. */
  readonly bound?: number;
}

/** A row of a certificate: a linear row of the problem by index, or the usage at one time. */
export type CertificateRow = { readonly row: number } | { readonly time: number };

/**
 * Proof of a lower bound, replayed by `verifyCertificate` against the problem alone: reductions,
 * eliminations, branches, prices and messages. `solve` and `solveAnytime` write it. Plain data: it
 * survives JSON.
 */
export interface Certificate {
  readonly version: 2;
  /** `hashProblem` of the problem that it is about. */
  readonly problem: string;
  /** The rows that the proof uses; leaving rows out can only lower what it proves. */
  readonly rows: readonly CertificateRow[];
  /** Codes and arguments, see `STEP` in `check/certificate-format.ts`. */
  readonly steps: readonly number[];
  readonly lists: readonly (readonly number[])[];
}

type SolveStatus = 'optimal' | 'feasible' | 'infeasible';

/**
 * A choice with its objective, a proven lower bound and the certificate of it; or what contradicts.
 */
export interface Solution {
  /**
   * `optimal` only when our own integer elimination or branch and bound closed the gap and the
   * checker replayed it.
   */
  readonly status: SolveStatus;
  /** One value per variable; empty when infeasible. */
  readonly choice: Int32Array;
  /** Re-evaluated by the checker from the problem alone. Infinity when infeasible. */
  readonly objective: number;
  /**
   * Proven lower bound on every choice (uncertified without a certificate; -Infinity where there is
   * none).
   */
  readonly bound: number;
  /** (objective - bound) / max(1, |objective|). */
  readonly gap: number;
  /**
   * Engine that produced the choice: `message-passing`, `elimination`, `branch-and-bound`,
   * `neighbourhood-search`, `highs`, `javascript-lp-solver`.
   */
  readonly solver: string;
  /** Reports of other engines, such as HiGHS' own "Optimal": evidence, never proof. */
  readonly evidence?: readonly string[];
  /**
   * The report of javascript-lp-solver on a small problem that our own engine has closed. The clock
   * ends it, so that it may be missing: it is for the reader, and not part of a record that equal
   * requests must make equal.
   */
  readonly secondOpinion?: string;
  readonly seconds: number;
  /** The engine's work: eliminations computed and found, largest table, branch nodes. */
  readonly statistics: Readonly<Record<string, number>>;
  /**
   * `infeasible` only: names of an irreducible set of conflicting rows, or variables with empty
   * domains.
   */
  readonly conflict?: readonly string[];
  /**
   * `infeasible` only: the variable that no value is left of whatever the rows; `conflict` then
   * names it.
   */
  readonly emptyVariable?: number;
  /** `infeasible` by one row or the usage limit: the smallest bound that admits a choice. */
  readonly smallestBudget?: number;
  /**
   * Proof of `bound`; absent where none could be written within reason (then the status is not
   * `optimal`).
   */
  readonly certificate?: Certificate;
  /**
   * How ties were broken: `lexicographic` (smallest choice vector) or `engine` (deterministic, not
   * canonical).
   */
  readonly ties: 'lexicographic' | 'engine';
}
