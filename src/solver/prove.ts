/**
 * Mode `prove`: the exact engine. It returns a choice that the checker evaluated and a lower bound
 * with its certificate, or why there is no choice. It first asks whether the relaxation is tight;
 * if not, branch and bound searches with the rows.
 */
import { defined } from '../defined.ts';
import { evaluate } from './check/verify.ts';
import { installRows, type PlainRow, plainRows } from './network/rows.ts';
import { gapOf, isLeast, openGap } from './problem/cost.ts';
import { prove, type Proven } from './search/answer/certify.ts';
import { anyChoice, explain } from './search/answer/conflicts.ts';
import { smallestOptimum } from './search/answer/lexicographic.ts';
import { Search } from './search/branch-and-bound.ts';
import { MOST_CELLS } from './search/limits.ts';
import { PreparedProblem } from './search/prepared.ts';
import type { Incumbent, SearchHost } from './search/search-host.ts';
import type { StepState } from './search/steps.ts';
import { type Relaxed, solveTightRelaxation, tiedChoice } from './search/tight-relaxation.ts';
import { makeWorkspace, type Workspace } from './search/workspace.ts';
import type { Pool } from './store/pool.ts';
import type { Problem, Solution, SolveOptions } from './types.ts';

/** `solve` in mode `prove`, synchronously, with our own engine only. */
export function solveNow(problem: Problem, options: SolveOptions = {}): Solution {
  return run(problem, options, false);
}

function run(asked: Problem, options: SolveOptions, variant: boolean): Solution {
  // Among choices of equal cost the smallest is only found where costs are distinguished to the
  // last unit.
  const problem = options.ties === 'lexicographic' ? { ...asked, tolerance: 0 } : asked;
  const prepared =
    options.prepared instanceof PreparedProblem && options.prepared.isOf(problem)
      ? options.prepared
      : new PreparedProblem(problem);
  const workspace = makeWorkspace(prepared, options.onStep);
  const outcome = ({ status, objective, bound }: Solution): StepState => ({
    outcome: `${status}; ${sizesOf(problem)}`,
    cost: objective,
    bound,
  });
  const rows = plainRows(problem);
  const call: Call = {
    problem,
    options,
    variant,
    prepared,
    workspace,
    rows,
    limits: new Limits(options, workspace, prepared.pool),
    cost: evaluator(prepared.cost, rows),
    certifies: options.certify !== false,
  };
  return workspace.steps.run('solve', () => answer(call), outcome);
}

/** One call of the engine: what its steps share. */
interface Call {
  readonly problem: Problem;
  readonly options: SolveOptions;
  /** True for a question of the solver itself: no explanation and no second search. */
  readonly variant: boolean;
  readonly prepared: PreparedProblem;
  readonly workspace: Workspace;
  readonly rows: readonly PlainRow[];
  readonly limits: Limits;
  readonly cost: (choice: Int32Array, withRows: boolean) => number;
  readonly certifies: boolean;
}

/** The limits of a call: time, work, stored numbers and the signal of the caller. */
class Limits {
  private readonly started = performance.now();
  private readonly deadline: number;
  /** Numbers that were stored before the call. */
  private readonly cells: number;

  constructor(
    private readonly options: SolveOptions,
    private readonly workspace: Workspace,
    private readonly pool: Pool,
  ) {
    const { timeLimitSeconds } = options;
    this.deadline =
      timeLimitSeconds === undefined ? Infinity : this.started + timeLimitSeconds * 1000;
    this.cells = pool.cells;
  }

  elapsedSeconds(): number {
    return (performance.now() - this.started) / 1000;
  }

  /** The option for the time that is left. */
  timeLeft(): Pick<SolveOptions, 'timeLimitSeconds'> {
    if (this.deadline === Infinity) return {};
    return { timeLimitSeconds: Math.max(0, (this.deadline - performance.now()) / 1000) };
  }

  workLeft(): number {
    return (this.options.workLimit ?? Infinity) - this.workspace.meter.total;
  }

  isFull(): boolean {
    return this.pool.cells - this.cells > this.mostCells;
  }

  get mostCells(): number {
    return this.options.cellLimit ?? MOST_CELLS;
  }

  isOver(): boolean {
    return (
      this.options.signal?.aborted === true ||
      performance.now() > this.deadline ||
      this.workLeft() < 0 ||
      this.isFull()
    );
  }
}

/** Asks the relaxation first, then searches; the checker replays what the search proved. */
function answer(call: Call): Solution {
  const { problem, options, limits, certifies } = call;
  const search = new Search(hostOf(call), call.workspace);
  for (const start of options.starts ?? [])
    if (start.length === problem.domains.length) search.propose(start);
  const relaxed = relaxationOf(call);
  if (relaxed !== undefined) search.propose(relaxed.choice);
  if (relaxed?.tight === true && (relaxed.proven !== undefined || !certifies))
    return tightSolution(call, relaxed);
  const proven = searchedBound(call, search, relaxed?.breaksRows === true);
  const statistics = searchStatistics(call, search);
  const found = search.best ?? (proven === Infinity ? undefined : lateChoice(call));
  const isLate = limits.isOver();
  const replayStarted = performance.now();
  const proof = certifies ? replayed(call, search, found, proven) : undefined;
  const common = {
    solver: search.nodes > 1 ? 'branch-and-bound' : 'elimination',
    statistics: {
      ...statistics,
      proofSteps: proof?.certificate.steps.length ?? 0,
      proofMilliseconds: Math.round(performance.now() - replayStarted),
    },
    ties: 'engine' as const,
    ...defined({ certificate: proof?.certificate }),
    ...evidenceOf([
      proof?.refused === undefined
        ? undefined
        : `the proof of the bound ${proven} was refused: ${proof.refused}`,
      limits.isFull() && proven < (found?.objective ?? Infinity)
        ? `the search ended at its limit of ${limits.mostCells} stored numbers`
        : undefined,
    ]),
  };
  return found === undefined
    ? { ...common, ...withoutChoice(call, isLate) }
    : { ...common, ...withChoice(call, found, proof?.bound ?? proven) };
}

function hostOf({ options, prepared, workspace, limits, cost, certifies }: Call): SearchHost {
  const stopped = (): boolean => limits.isOver();
  return {
    evaluate: cost,
    stopped,
    workLeft: () => limits.workLeft(),
    progress: (phase, objective, bound) =>
      options.onProgress?.({
        phase,
        seconds: limits.elapsedSeconds(),
        objective,
        bound,
        gap: gapOf(objective, bound),
      }),
    gap: options.gap ?? 0,
    ...defined({ enough: options.enough }),
    certifies,
    searchesWide: options.searchesWide === true,
    isEndless: options.timeLimitSeconds === undefined && options.workLimit === undefined,
    expensiveStart: once(() => tiedChoice(prepared, workspace, stopped)),
  };
}

/** The answer of the relaxation; undefined where it is not asked or finds no choice. */
function relaxationOf({
  problem,
  options,
  prepared,
  workspace,
  rows,
  limits,
  cost,
  certifies,
}: Call): Relaxed | undefined {
  // The choice of a relaxation is any of the cheapest, not the smallest of them.
  if (options.ties === 'lexicographic') return undefined;
  return workspace.steps.runWhole(
    'relaxation',
    () =>
      solveTightRelaxation(
        problem,
        prepared,
        workspace,
        (choice) => cost(choice, true),
        () => limits.isOver(),
        { certify: certifies, hasRows: rows.length > 0 },
      ),
    (found) => ({
      outcome: relaxationWords(found),
      ...(found && { cost: cost(found.choice, true) }),
    }),
  );
}

/** The solution where the relaxation is tight. */
function tightSolution(call: Call, { choice, proven, folded }: Relaxed): Solution {
  const { problem, workspace, certifies } = call;
  const objective = call.cost(choice, true);
  assertFeasible(problem, choice, objective);
  // For a folded problem without a certificate, only the short network's bound is known.
  const bound =
    proven === undefined && folded ? -Infinity : Math.min(proven?.bound ?? objective, objective);
  return {
    status: certifies ? 'optimal' : 'feasible',
    choice,
    objective,
    bound,
    gap: openGap(problem, objective, bound),
    solver: 'message-passing',
    seconds: call.limits.elapsedSeconds(),
    statistics: { ...countsOf(problem, workspace), nodes: 1 },
    ...defined({ certificate: proven?.certificate }),
    ties: 'engine',
  };
}

/** The bound that the search claims, before the checker has seen its proof. */
function searchedBound({ prepared, rows }: Call, search: Search, breaksRows: boolean): number {
  const net = prepared.net.clone();
  installRows(net, rows);
  // Where the cheapest choice without rows breaks one, the bound without rows is of little use; and
  // in a repeated network the search for a price starts at price 0 anyway.
  const priceFirst = breaksRows || prepared.fold !== undefined;
  // No choice lies between two multiples of the quantum.
  return Math.ceil(search.solve(net, priceFirst, prepared.presolved) / net.quantum) * net.quantum;
}

/** Counts of the problem and of the work on it. */
function countsOf({ domains, edges }: Problem, { eliminator, meter }: Workspace) {
  return {
    variables: domains.length,
    edges: edges.first.length,
    eliminationsComputed: eliminator.counts.computed,
    eliminationsFound: eliminator.counts.found,
    largestTable: eliminator.counts.largestTable,
    messageSteps: meter.messageSteps,
  };
}

function searchStatistics({ problem, workspace }: Call, search: Search) {
  return {
    ...countsOf(problem, workspace),
    labelWork: workspace.meter.labels,
    nodes: search.nodes,
  };
}

/**
 * The proof of the search as the checker replayed it. The bound of the engine alone is not
 * certified.
 */
function replayed(
  { problem, prepared, workspace, rows }: Call,
  search: Search,
  found: Incumbent | undefined,
  proven: number,
): Proven {
  const objective = found?.objective ?? Infinity;
  const claimed = isLeast(problem, objective, proven);
  return workspace.steps.run(
    'replay',
    () =>
      prove(
        { problem, pool: prepared.pool, rows },
        { choice: found?.choice ?? new Int32Array(0), objective },
        search.proof,
        claimed,
      ),
    ({ bound, refused }) => ({
      outcome: refused === undefined ? 'accepted' : `refused: ${refused}`,
      bound,
    }),
  );
}

function withoutChoice(call: Call, isLate: boolean) {
  const why = call.variant ? { conflict: [] } : explained(call, isLate);
  return {
    status: 'infeasible' as const,
    choice: new Int32Array(0),
    objective: Infinity,
    bound: Infinity,
    gap: 0,
    seconds: call.limits.elapsedSeconds(),
    ...why,
  };
}

/** The choice that was found, its status, and the choice that is taken among equals. */
function withChoice(call: Call, { objective, choice: found }: Incumbent, proven: number) {
  const { problem } = call;
  const bound = Math.min(proven, objective);
  const status: Solution['status'] =
    call.certifies && isLeast(problem, objective, bound) ? 'optimal' : 'feasible';
  const smallest = status === 'optimal' ? smallestOf(call, found, objective) : undefined;
  const choice = smallest ?? found;
  const ties: Solution['ties'] = smallest === undefined ? 'engine' : 'lexicographic';
  assertFeasible(problem, choice, objective);
  return {
    status,
    choice,
    objective,
    bound,
    gap: openGap(problem, objective, bound),
    seconds: call.limits.elapsedSeconds(),
    ties,
  };
}

/** The lexicographically smallest choice of that cost; undefined where nobody asks or in vain. */
function smallestOf(
  { problem, options, limits }: Call,
  choice: Int32Array,
  objective: number,
): Int32Array | undefined {
  if (options.ties !== 'lexicographic' || problem.domains.length > MOST_LEXICOGRAPHIC)
    return undefined;
  return smallestOptimum(problem, choice, objective, solveVariant, limits.timeLeft());
}

/** Describes a problem in a few words. */
function sizesOf({ domains, edges, rows = [], usage }: Problem): string {
  const names = rows.map(({ name }) => name);
  if (usage !== undefined) names.push('usage over time');
  const limits =
    names.length === 0 ? 'no rows' : `${names.length === 1 ? 'row' : 'rows'} ${names.join(', ')}`;
  return `${domains.length} variables, ${edges.first.length} edges, ${limits}`;
}

function relaxationWords(found: Relaxed | undefined): string {
  if (found === undefined) return 'too large, or no choice was found';
  if (found.breaksRows === true) return 'tight, but its choice breaks a row';
  if (!found.tight) return 'not tight';
  return found.proven === undefined ? 'tight' : 'tight and proven';
}

function evidenceOf(words: readonly (string | undefined)[]): Pick<Solution, 'evidence'> {
  const evidence = words.filter((word) => word !== undefined);
  return evidence.length === 0 ? {} : { evidence };
}

/** Throws unless the checker accepts the choice at that cost. */
function assertFeasible(problem: Problem, choice: Int32Array, objective: number): void {
  const checked = evaluate(problem, choice);
  if (checked.violations.length > 0 || Number(checked.cost) !== objective)
    throw new Error(
      `internal: the checker rejects the solver's choice ` +
        `(${checked.violations[0]?.code ?? 'cost'})`,
    );
}

/** Largest problem whose ties are broken lexicographically on request. */
const MOST_LEXICOGRAPHIC = 2000;

/**
 * Seconds for the question whether several rows admit any choice, once the time for the real
 * question is over.
 */
const FEASIBILITY_SECONDS = 10;

/**
 * The clock ran out before any choice was found, and so did the time to find out whether there is
 * one.
 */
export class NoChoiceInTime extends Error {
  constructor() {
    super(
      'no choice that keeps all rows was found in time, and it is not known whether there is ' +
        'one; allow more time',
    );
    this.name = 'NoChoiceInTime';
  }
}

/**
 * Answers a question that the solver asks about a variant of a problem: no explanation, no second
 * search.
 */
function solveVariant(problem: Problem, options: SolveOptions): Solution {
  return run(problem, options, true);
}

/**
 * A choice after the clock ran out without one; undefined when there is none at all. Throws
 * `NoChoiceInTime`.
 */
function lateChoice({ problem, options, variant, cost }: Call): Incumbent | undefined {
  const { workLimit, timeLimitSeconds, signal } = options;
  if (variant || signal?.aborted === true) throw new NoChoiceInTime();
  // Where only work is limited, the answer must not depend on the clock.
  const byWork = workLimit !== undefined && timeLimitSeconds === undefined;
  const choice = byWork
    ? anyChoice(problem, Infinity, (p, options) => solveVariant(p, { ...options, workLimit }))
    : anyChoice(problem, FEASIBILITY_SECONDS, (p, asked) =>
        solveVariant(p, signal === undefined ? asked : { ...asked, signal }),
      );
  if (choice === 'open') throw new NoChoiceInTime();
  return choice === undefined ? undefined : { choice, objective: cost(choice, true) };
}

/**
 * Why there is no choice. Where the time is over, no more is asked than the clock or the signal
 * allows: the rows are then named together.
 */
function explained(
  { problem, rows, options }: Call,
  isLate: boolean,
): Pick<Solution, 'conflict' | 'emptyVariable' | 'smallestBudget'> {
  const { signal, timeLimitSeconds } = options;
  const limits = {
    ...defined({ signal }),
    ...(isLate || timeLimitSeconds !== undefined ? { timeLimitSeconds: FEASIBILITY_SECONDS } : {}),
  };
  try {
    return explain(problem, (variant, asked) => solveVariant(variant, { ...limits, ...asked }));
  } catch (error) {
    if (!(error instanceof NoChoiceInTime)) throw error;
    return { conflict: rows.map(({ name }) => name) };
  }
}

/** A function whose result is computed at most once. */
function once<T>(make: () => T): () => T {
  let made: { readonly value: T } | undefined;
  return () => (made ??= { value: make() }).value;
}

/**
 * A fast exact evaluation of full choices (sums stay below 2^53); the BigInt checker decides in the
 * end.
 */
function evaluator(
  costOf: PreparedProblem['cost'],
  rows: readonly PlainRow[],
): (choice: Int32Array, withRows: boolean) => number {
  return (choice, withRows) => {
    const sum = costOf(choice);
    if (sum === Infinity) return Infinity;
    for (const row of withRows ? rows : []) {
      let amount = 0;
      row.variables.forEach((v, k) => {
        amount += row.amounts[k][choice[v]];
      });
      if (amount > row.bound) return Infinity;
    }
    return sum;
  };
}
