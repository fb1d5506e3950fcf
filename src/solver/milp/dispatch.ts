/**
 * Runs the engine that the `engine` option names. A library's choice is checked, its proof is never
 * taken: bounds come from our own engine, so a library's answer is `optimal` only when our engine
 * has closed the same gap.
 */
import { defined } from '../../defined.ts';
import { gapOf, isLeast, leastTotal, openGap } from '../problem/cost.ts';
import { type Problem, type Solution, type SolveOptions, STEP_ABOUT } from '../types.ts';
import { HIGHS } from './highs.ts';
import { JSLP, secondOpinion } from './jslp.ts';
import { leastUseChoice } from './least-use.ts';
import { type Backend, consult, requireFit } from './verdict.ts';

/**
 * Our engine gets this much work for a start and a bound, and of a time limit at most this many
 * seconds and this share.
 */
const OWN_WORK = 2e7;
const OWN_SECONDS = 2;
const OWN_SHARE = 0.25;

const BACKENDS: Readonly<Record<'highs' | 'javascript-lp-solver', Backend>> = {
  highs: HIGHS,
  'javascript-lp-solver': JSLP,
};

/**
 * Solves with a library, between a start and a bound of our own engine. `evidence` carries what the
 * library reports; `solver` names who found the choice (ours when the library has nothing better).
 * Throws `TooLargeForLibrary`.
 */
export async function solveWithLibrary(
  engine: 'highs' | 'javascript-lp-solver',
  problem: Problem,
  options: SolveOptions,
  own: (problem: Problem, options: SolveOptions) => Solution,
): Promise<Solution> {
  const began = performance.now();
  const elapsed = (): number => (performance.now() - began) / 1000;
  const backend = BACKENDS[engine];
  requireFit(problem, backend);
  const limit = options.timeLimitSeconds;
  const least = leastUseChoice(problem);
  const ours = own(problem, {
    ...options,
    starts: [...(options.starts ?? []), ...(least === undefined ? [] : [least])],
    workLimit: Math.min(OWN_WORK, options.workLimit ?? Infinity),
    ...(limit === undefined ? {} : { timeLimitSeconds: Math.min(OWN_SECONDS, limit * OWN_SHARE) }),
  });
  const bound = Math.max(ours.bound, leastTotal(problem));
  const verdict = await consult(problem, backend, {
    seed: options.seed ?? 0,
    ...(limit === undefined ? {} : { timeLimitSeconds: Math.max(0.05, limit - elapsed()) }),
    ...defined({ signal: options.signal }),
    ...(hasChoice(problem, ours) ? { start: ours.choice } : {}),
    onChoice: (_, objective) => {
      const best = Math.min(objective, ours.objective);
      options.onProgress?.({
        phase: engine,
        seconds: elapsed(),
        objective: best,
        bound,
        gap: gapOf(best, bound),
      });
    },
  });
  options.onStep?.({
    order: 0,
    level: 0,
    step: 'library',
    about: STEP_ABOUT.library,
    outcome: `${engine}: ${verdict.word}`,
    seconds: verdict.seconds,
    ...defined({ cost: verdict.objective, bound: verdict.claimedBound }),
  });
  return { ...concluded(engine, problem, ours, verdict), seconds: elapsed() };
}

function hasChoice(problem: Problem, { choice }: Solution): boolean {
  return choice.length > 0 || problem.domains.length === 0;
}

/** The better of our answer and the library's, with what each is worth. */
function concluded(
  engine: 'highs' | 'javascript-lp-solver',
  problem: Problem,
  ours: Solution,
  verdict: Awaited<ReturnType<typeof consult>>,
): Omit<Solution, 'seconds'> {
  const bound = Math.max(ours.bound, leastTotal(problem));
  const { choice, objective } = verdict;
  const statistics = {
    ...ours.statistics,
    columns: verdict.size.columns,
    programRows: verdict.size.rows,
    nonzeros: verdict.size.nonzeros,
    librarySeconds: verdict.seconds,
  };
  const evidence = [
    ...(ours.evidence ?? []),
    words(engine, verdict.word, objective, verdict.claimedBound),
  ];
  if (choice === undefined || objective === undefined || objective > ours.objective) {
    if (hasChoice(problem, ours))
      evidence.push(
        `the choice is our own engine's: ${engine} has ` +
          `${objective === undefined ? 'none' : objective}`,
      );
    return { ...ours, evidence, statistics };
  }
  const rest = { evidence, statistics, solver: engine };
  if (objective < bound) {
    evidence.push(
      `internal error: our engine proved ${bound}, above a checked choice; please report ` +
        'this problem',
    );
    return refuted(problem, ours, { choice, objective }, rest);
  }
  const { conflict: _conflict, smallestBudget: _budget, ...proof } = ours;
  evidence.push(`the bound ${bound} is our own engine's (${ours.solver}), not ${engine}'s`);
  const status = isLeast(problem, objective, bound) ? 'optimal' : 'feasible';
  return {
    ...proof,
    ...rest,
    status,
    choice,
    objective,
    bound,
    gap: openGap(problem, objective, bound),
    ties: 'engine',
  };
}

/**
 * Adds javascript-lp-solver's second opinion to a proven solution of a small problem without a
 * binding row.
 */
export async function withSecondOpinion(
  problem: Problem,
  ours: Solution,
  signal?: AbortSignal,
): Promise<Solution> {
  if (ours.status === 'feasible') return ours;
  const opinion = await secondOpinion(problem, ours, signal);
  if (opinion === undefined) return ours;
  if (opinion.refuted === undefined) return { ...ours, secondOpinion: opinion.line };
  const { seconds, statistics } = ours;
  const evidence = [...(ours.evidence ?? []), opinion.line];
  const rest = { evidence, statistics, solver: 'javascript-lp-solver' };
  return { ...refuted(problem, ours, opinion.refuted, rest), seconds };
}

/**
 * Our proof was wrong: the cheaper checked choice is returned, and nothing but the trivial bound is
 * claimed.
 */
function refuted(
  problem: Problem,
  ours: Solution,
  better: { readonly choice: Int32Array; readonly objective: number },
  rest: Pick<Solution, 'statistics' | 'solver'> & { readonly evidence: readonly string[] },
): Omit<Solution, 'seconds'> {
  const bound = leastTotal(problem);
  return {
    ...better,
    ...rest,
    status: 'feasible',
    bound,
    gap: gapOf(better.objective, bound),
    ties: ours.ties,
  };
}

function words(
  engine: string,
  word: string,
  objective: number | undefined,
  claimed: number | undefined,
): string {
  const cost = objective === undefined ? '' : ` ${objective}`;
  return `${engine}: ${word}${cost}${claimed === undefined ? '' : ` (its own bound ${claimed})`}`;
}
