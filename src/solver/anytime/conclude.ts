/** The answers of `solveChoice`: the best choice and bound as the checker sees them, or the answer of the exact engine. */
import { evaluate } from '../check/verify.ts';
import { verifyDual, type DualCertificate } from '../check/dual.ts';
import { solve } from '../solve.ts';
import type { Certificate } from '../types.ts';
import { gapOf, type ChoiceRun, type ChoiceSolution } from './choice.ts';
import type { Presolved } from './model/presolve.ts';
import type { Endgame } from './finish/endgame.ts';
import { dualCertificate } from './finish/dual-certificate.ts';
import type { Findings } from './run/rounds.ts';

/** Problems of at most this many variables go to the exact engine when they are infeasible or have no easy first choice. */
const SMALL = 2000;

/** Checks the best choice and the best bound; what the checker says is the answer. */
export function conclude(run: ChoiceRun, reduced: Presolved, found: Findings, endgame: Endgame): ChoiceSolution {
  const { problem } = run;
  const { closed, finished } = endgame;
  let choice = reduced.expand(found.choice);
  if (closed !== undefined && closed.objective < found.cost) ({ choice } = closed);
  const checked = evaluate(problem, choice);
  if (checked.violations.length > 0)
    throw new Error(`internal: the checker rejects the solver's choice (${checked.violations[0].code})`);
  const objective = checked.cost;
  let bound = -1n << 62n;
  let certificate: Certificate | DualCertificate | undefined;
  if (closed !== undefined) {
    bound = BigInt(closed.bound);
    ({ certificate } = closed);
  }
  if (bound < objective && found.bound !== undefined) {
    run.progress('certify', Number(objective), found.bound.best);
    const dual = dualCertificate(problem, reduced, found.bound);
    const verdict = verifyDual(problem, dual);
    if (!verdict.accepted) throw new Error(`internal: the checker rejects the bound (${verdict.reason ?? ''})`);
    if (verdict.bound > bound) {
      bound = verdict.bound;
      certificate = dual;
    }
  }
  if (bound > objective) throw new Error('internal: a bound above a checked choice');
  return {
    status: bound === objective ? 'optimal' : 'feasible',
    choice,
    objective,
    bound,
    gap: gapOf(Number(objective), Number(bound)),
    seconds: run.elapsed(),
    rounds: found.rounds,
    ...(certificate === undefined ? {} : { certificate }),
    ...(finished === undefined ? {} : { finisher: finished }),
  };
}

/** No easy first choice: the exact engine decides whether there is any. */
export async function concludeByEngine(run: ChoiceRun, reduced: Presolved | undefined): Promise<ChoiceSolution> {
  const { timeLimitSeconds, gap, signal } = run.options;
  const size = run.problem.domains.length;
  if (reduced === undefined && size > SMALL) {
    return {
      status: 'infeasible',
      choice: new Int32Array(0),
      gap: 0,
      seconds: run.elapsed(),
      rounds: 0,
      conflict: ['least usage of all variables exceeds a row, or some variable has no value with a partner'],
    };
  }
  const solution = await solve(run.problem, {
    engine: 'exact',
    ...(timeLimitSeconds === undefined ? {} : { timeLimitSeconds: Math.max(0.05, timeLimitSeconds - run.elapsed()) }),
    ...(gap === undefined ? {} : { gap }),
    ...(signal === undefined ? {} : { signal }),
  });
  const { status, choice, certificate, conflict, smallestBudget } = solution;
  const finite = status !== 'infeasible';
  return {
    status,
    choice,
    ...(finite ? { objective: BigInt(solution.objective), bound: BigInt(Math.ceil(solution.bound)) } : {}),
    gap: solution.gap,
    seconds: run.elapsed(),
    rounds: 0,
    ...(certificate === undefined ? {} : { certificate }),
    ...(conflict === undefined ? {} : { conflict }),
    ...(smallestBudget === undefined ? {} : { smallestBudget }),
  };
}
