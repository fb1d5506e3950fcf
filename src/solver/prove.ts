/**
 * Mode `prove`: the exact engine, from a problem to a solution. In: a problem, limits, starts. Out:
 * a choice that the checker evaluated, a lower bound with its certificate, or why there is no
 * choice. Whether the relaxation is tight is asked first; else branch and bound searches with the
 * rows.
 */
import { evaluate } from './check/verify.ts';
import { installRows, type PlainRow, plainRows } from './network/rows.ts';
import { gapOf, isLeast, openGap } from './problem/cost.ts';
import { prove } from './search/answer/certify.ts';
import { anyChoice, explain } from './search/answer/conflicts.ts';
import { smallestOptimum } from './search/answer/lexicographic.ts';
import { Search } from './search/branch-and-bound.ts';
import { PreparedProblem } from './search/prepared.ts';
import type { SearchHost } from './search/search-host.ts';
import type { StepState } from './search/steps.ts';
import { solveTightRelaxation, tiedChoice } from './search/tight-relaxation.ts';
import { makeWorkspace, type Workspace } from './search/workspace.ts';
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
  return workspace.steps.run(
    'solve',
    () => answer(problem, options, variant, prepared, workspace),
    outcome,
  );
}

function answer(
  problem: Problem,
  options: SolveOptions,
  variant: boolean,
  prepared: PreparedProblem,
  workspace: Workspace,
): Solution {
  const started = performance.now();
  const deadline =
    options.timeLimitSeconds === undefined ? Infinity : started + options.timeLimitSeconds * 1000;
  const elapsed = (): number => (performance.now() - started) / 1000;
  const rows = plainRows(problem);
  const { pool } = prepared;
  const { steps } = workspace;
  const cheap = evaluator(prepared.cost, rows);
  const { cells } = pool;
  const isFull = (): boolean => pool.cells - cells > (options.cellLimit ?? MOST_CELLS);
  const workLeft = (): number => (options.workLimit ?? Infinity) - workspace.meter.total;
  const host: SearchHost = {
    evaluate: cheap,
    stopped: () =>
      options.signal?.aborted === true ||
      performance.now() > deadline ||
      workLeft() < 0 ||
      isFull(),
    workLeft,
    progress: (phase, objective, bound) =>
      options.onProgress?.({
        phase,
        seconds: elapsed(),
        objective,
        bound,
        gap: gapOf(objective, bound),
      }),
    gap: options.gap ?? 0,
    ...(options.enough === undefined ? {} : { enough: options.enough }),
    certifies: options.certify !== false,
    searchesWide: options.searchesWide === true,
    isEndless: options.timeLimitSeconds === undefined && options.workLimit === undefined,
    expensiveStart: once(() => tiedChoice(prepared, workspace, host.stopped)),
  };
  const search = new Search(host, workspace);
  for (const start of options.starts ?? [])
    if (start.length === problem.domains.length) search.propose(start);
  const certified = options.certify !== false;
  const relaxed =
    options.ties === 'lexicographic'
      ? undefined
      : steps.runWhole(
          'relaxation',
          () =>
            solveTightRelaxation(
              problem,
              prepared,
              workspace,
              (choice) => cheap(choice, true),
              host.stopped,
              {
                certify: certified,
                hasRows: rows.length > 0,
              },
            ),
          (found) => ({
            outcome: relaxationWords(found),
            ...(found && { cost: cheap(found.choice, true) }),
          }),
        );
  if (relaxed !== undefined) search.propose(relaxed.choice);
  if (relaxed?.tight === true && (relaxed.proven !== undefined || !certified)) {
    const { choice, proven } = relaxed;
    const objective = cheap(choice, true);
    assertFeasible(problem, choice, objective);
    // For a folded problem without a certificate, only the short network's bound is known.
    const bound =
      proven === undefined && relaxed.folded
        ? -Infinity
        : Math.min(proven?.bound ?? objective, objective);
    return {
      status: certified ? 'optimal' : 'feasible',
      choice,
      objective,
      bound,
      gap: openGap(problem, objective, bound),
      solver: 'message-passing',
      seconds: elapsed(),
      statistics: {
        variables: problem.domains.length,
        edges: problem.edges.first.length,
        eliminationsComputed: workspace.eliminator.counts.computed,
        eliminationsFound: workspace.eliminator.counts.found,
        largestTable: workspace.eliminator.counts.largestTable,
        messageSteps: workspace.meter.messageSteps,
        nodes: 1,
      },
      ...(proven === undefined ? {} : { certificate: proven.certificate }),
      ties: 'engine',
    };
  }
  const net = prepared.net.clone();
  installRows(net, rows);
  // Where the cheapest choice without rows breaks one, the bound without rows is of little use; and
  // in a repeated network the search for a price starts at price 0 anyway.
  const priceFirst = relaxed?.breaksRows === true || prepared.fold !== undefined;
  // No choice lies between two multiples of the quantum.
  const proven =
    Math.ceil(search.solve(net, priceFirst, prepared.presolved) / net.quantum) * net.quantum;
  const { counts } = workspace.eliminator;
  const statistics = {
    variables: problem.domains.length,
    edges: problem.edges.first.length,
    eliminationsComputed: counts.computed,
    eliminationsFound: counts.found,
    largestTable: counts.largestTable,
    messageSteps: workspace.meter.messageSteps,
    labelWork: workspace.meter.labels,
    nodes: search.nodes,
  };
  const found =
    search.best ?? (proven === Infinity ? undefined : lateChoice(problem, variant, cheap, options));
  const stopped = host.stopped();
  // The bound of the engine is uncertified: what counts is what the checker has replayed.
  const checkStarted = performance.now();
  const claimed = isLeast(problem, found?.objective ?? Infinity, proven);
  const proof = certified
    ? steps.run(
        'replay',
        () =>
          prove(
            problem,
            found?.choice ?? new Int32Array(0),
            found?.objective ?? Infinity,
            pool,
            rows,
            search.proof,
            claimed,
          ),
        ({ bound, refused }) => ({
          outcome: refused === undefined ? 'accepted' : `refused: ${refused}`,
          bound,
        }),
      )
    : undefined;
  const common = {
    solver: search.nodes > 1 ? 'branch-and-bound' : 'elimination',
    statistics: {
      ...statistics,
      proofSteps: proof?.certificate.steps.length ?? 0,
      proofMilliseconds: Math.round(performance.now() - checkStarted),
    },
    ties: 'engine' as const,
    ...(proof === undefined ? {} : { certificate: proof.certificate }),
    ...evidenceOf([
      proof?.refused === undefined
        ? undefined
        : `the proof of the bound ${proven} was refused: ${proof.refused}`,
      isFull() && proven < (found?.objective ?? Infinity)
        ? `the search ended at its limit of ${options.cellLimit ?? MOST_CELLS} stored numbers`
        : undefined,
    ]),
  };
  if (found === undefined) {
    const why = variant ? { conflict: [] } : explained(problem, rows, stopped, options);
    return {
      ...common,
      status: 'infeasible',
      choice: new Int32Array(0),
      objective: Infinity,
      bound: Infinity,
      gap: 0,
      seconds: elapsed(),
      ...why,
    };
  }
  const { objective } = found;
  const bound = Math.min(proof?.bound ?? proven, objective);
  const status = certified && isLeast(problem, objective, bound) ? 'optimal' : 'feasible';
  let { choice } = found;
  let ties: Solution['ties'] = 'engine';
  if (
    options.ties === 'lexicographic' &&
    status === 'optimal' &&
    problem.domains.length <= MOST_LEXICOGRAPHIC
  ) {
    const left =
      deadline === Infinity
        ? {}
        : { timeLimitSeconds: Math.max(0, (deadline - performance.now()) / 1000) };
    const smallest = smallestOptimum(problem, choice, objective, solveVariant, left);
    if (smallest !== undefined) {
      choice = smallest;
      ties = 'lexicographic';
    }
  }
  assertFeasible(problem, choice, objective);
  return {
    ...common,
    status,
    choice,
    objective,
    bound,
    gap: openGap(problem, objective, bound),
    seconds: elapsed(),
    ties,
  };
}

/** Describes a problem in a few words. */
function sizesOf({ domains, edges, rows = [], usage }: Problem): string {
  const names = rows.map(({ name }) => name);
  if (usage !== undefined) names.push('usage over time');
  const limits =
    names.length === 0 ? 'no rows' : `${names.length === 1 ? 'row' : 'rows'} ${names.join(', ')}`;
  return `${domains.length} variables, ${edges.first.length} edges, ${limits}`;
}

function relaxationWords(found: ReturnType<typeof solveTightRelaxation>): string {
  if (found === undefined) return 'too large, or no choice was found';
  if (found.breaksRows === true) return 'tight, but its choice breaks a row';
  if (!found.tight) return 'not tight';
  return found.proven === undefined ? 'tight' : 'tight and proven';
}

/**
 * Numbers that a search may keep: beyond, branches of a wide network would take the memory of the
 * machine.
 */
const MOST_CELLS = 2 ** 27;

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
function lateChoice(
  problem: Problem,
  variant: boolean,
  cost: (choice: Int32Array, withRows: boolean) => number,
  { workLimit, timeLimitSeconds, signal }: SolveOptions,
): { readonly objective: number; readonly choice: Int32Array } | undefined {
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
  problem: Problem,
  rows: readonly PlainRow[],
  isLate: boolean,
  { signal, timeLimitSeconds }: SolveOptions,
): Pick<Solution, 'conflict' | 'emptyVariable' | 'smallestBudget'> {
  const limits = {
    ...(signal === undefined ? {} : { signal }),
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
