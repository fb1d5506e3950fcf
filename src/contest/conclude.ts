/**
 * The answers of the anytime solver: the best choice and bound as the checker sees them, or the
 * answer of the exact engine.
 */
import { defined, nonEmpty } from '../defined.ts';
import { evaluate, verifyCertificate } from '../solver/check/verify.ts';
import { gapOf } from '../solver/problem/cost.ts';
import { solveNow } from '../solver/prove.ts';
import type { Certificate, Solution } from '../solver/types.ts';
import type { AnytimeRun } from './anytime-run.ts';
import { dualCertificate } from './finish/dual-certificate.ts';
import type { Endgame } from './finish/endgame.ts';
import type { Presolved } from './model/presolve.ts';
import type { BoundByParts } from './proof/bound-by-parts.ts';
import type { Findings } from './run/rounds.ts';

/**
 * Problems of at most this many variables go to the exact engine when they are infeasible or have
 * no easy first choice.
 */
const SMALL = 2000;

/** Checks the best choice and the best bound; what the checker says is the answer. */
export function conclude(
  run: AnytimeRun,
  reduced: Presolved,
  found: Findings,
  endgame: Endgame,
  parts: BoundByParts,
): Solution {
  const { problem } = run;
  const { closed, finished } = endgame;
  const isCloser = closed !== undefined && closed.objective < found.cost;
  const choice = isCloser ? closed.choice : reduced.expand(found.choice);
  const checked = evaluate(problem, choice);
  if (checked.violations.length > 0)
    throw new Error(
      `internal: the checker rejects the solver's choice (${checked.violations[0].code})`,
    );
  const objective = Number(checked.cost);
  const { bound, certificate } = bestBound(run, reduced, { found, closed, parts }, objective);
  if (bound > objective) throw new Error('internal: a bound above a checked choice');
  const evidence = [
    ...(finished === undefined
      ? []
      : [
          `highs on the reduced problem: ${finished.word} after ${finished.runs} programs, ` +
            `the last of ${finished.rows} rows and ${finished.columns} columns`,
        ]),
    ...endgame.limits,
    ...(bound < objective ? run.closing.words : []),
  ];
  return {
    status: certificate !== undefined && bound === objective ? 'optimal' : 'feasible',
    choice,
    objective,
    bound,
    gap: gapOf(objective, bound),
    solver: isCloser ? 'branch-and-bound' : 'neighbourhood-search',
    ...nonEmpty({ evidence }),
    seconds: run.elapsed(),
    statistics: { rounds: found.rounds },
    ...defined({ certificate }),
    ties: 'engine',
  };
}

/** The sources of a bound. */
interface BoundSources {
  readonly found: Findings;
  readonly closed: Endgame['closed'];
  readonly parts: BoundByParts;
}

/** The best bound, and its certificate where the checker has replayed one. */
function bestBound(
  run: AnytimeRun,
  reduced: Presolved,
  { found, closed, parts }: BoundSources,
  objective: number,
): { readonly bound: number; readonly certificate: Certificate | undefined } {
  const known = { bound: closed?.bound ?? -Infinity, certificate: closed?.certificate };
  if (known.bound >= objective || found.bound === undefined) return known;
  const claimed = Math.max(found.bound.best, parts.best);
  if (run.options.certify === false)
    return {
      ...known,
      bound: Math.max(known.bound, Math.min(objective, Math.floor(claimed))),
    };
  run.progress('certify', objective, claimed);
  const byParts = parts.best > found.bound.best ? parts.certificate() : undefined;
  const dual = byParts ?? dualCertificate(run.problem, reduced, found.bound);
  const verdict = verifyCertificate(run.problem, {
    choice: [],
    objective: Infinity,
    certificate: dual,
  });
  if (!verdict.accepted)
    throw new Error(`internal: the checker rejects the bound (${verdict.reason ?? ''})`);
  const bound = Number(verdict.bound);
  return bound > known.bound ? { bound, certificate: dual } : known;
}

/** No easy first choice: the exact engine decides whether there is any. */
export function concludeByEngine(run: AnytimeRun, reduced: Presolved | undefined): Solution {
  const { timeLimitSeconds, workLimit, gap, signal } = run.options;
  if (reduced === undefined && run.problem.domains.length > SMALL) {
    return {
      status: 'infeasible',
      choice: new Int32Array(0),
      objective: Infinity,
      bound: Infinity,
      gap: 0,
      solver: 'presolve',
      seconds: run.elapsed(),
      statistics: {},
      conflict: [
        'least usage of all variables exceeds a row, or some variable has no value with a partner',
      ],
      ties: 'engine',
    };
  }
  const solution = solveNow(run.problem, {
    ...(timeLimitSeconds === undefined
      ? {}
      : { timeLimitSeconds: Math.max(0.05, timeLimitSeconds - run.elapsed()) }),
    ...defined({ workLimit, gap, signal }),
  });
  return { ...solution, bound: Math.ceil(solution.bound), seconds: run.elapsed() };
}
