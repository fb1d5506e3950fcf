/**
 * javascript-lp-solver 1.0.3 as a backend, behind a wrapper that believes nothing. Known of it:
 * fractional answers with `feasible: true` at a timeout; poor incumbents that look like proven
 * optima; "infeasible" for x + y = 1, 81e9 x + 40e9 y <= 80e9; results rounded to 8 decimals;
 * misspelt names ignored; a dense tableau (1.6 GB at 1,000 binaries). So programs are scaled down,
 * names are made by machine, the clock is ours, and `check/verify.ts` judges.
 */
import { defined } from '../../defined.ts';
import type { Problem, Solution } from '../types.ts';
import { programSize } from './encode.ts';
import { type Backend, consult, fits } from './verdict.ts';

/**
 * Size guard and scales of javascript-lp-solver: largest cost about 1e3, bytes end up below 64 (as
 * GiB would).
 */
export const JSLP: Backend = {
  library: 'javascript-lp-solver',
  most: { binaries: 500, columns: 7000, nonzeros: Infinity },
  costTarget: 1e3,
  rowTarget: 64,
};

/**
 * A problem small enough for a second opinion in the margin of every solve: no coupling row and at
 * most this much.
 */
const SECOND_OPINION: Backend = {
  ...JSLP,
  most: { binaries: 150, columns: 2000, nonzeros: 20_000 },
};
const SECOND_OPINION_SECONDS = 2;

/** javascript-lp-solver rounds to 8 decimals of costs scaled to 1e3. */
const RELATIVE_TOLERANCE = 1e-9;

/**
 * A second opinion: the line for the proof, and a cheaper checked choice if our own engine was
 * wrong.
 */
interface SecondOpinion {
  readonly line: string;
  readonly refuted?: { readonly choice: Int32Array; readonly objective: number };
}

/**
 * Asks javascript-lp-solver about a problem that our own engine has closed; undefined when the
 * problem is too large.
 */
export async function secondOpinion(
  problem: Problem,
  ours: Solution,
  signal?: AbortSignal,
): Promise<SecondOpinion | undefined> {
  // The sum of domains is free to know; the exact size costs a pass over all tables.
  if (problem.domains.reduce((a, b) => a + b, 0) > 4 * SECOND_OPINION.most.binaries)
    return undefined;
  const size = programSize(problem);
  if (size.bindingRows > 0 || !fits(SECOND_OPINION, size)) return undefined;
  const { choice, objective, word } = await consult(problem, SECOND_OPINION, {
    timeLimitSeconds: SECOND_OPINION_SECONDS,
    ...defined({ signal }),
  });
  const who = SECOND_OPINION.library;
  if (choice === undefined || objective === undefined) {
    if (ours.status === 'infeasible' && word.startsWith('infeasible'))
      return { line: `${who} agrees: infeasible` };
    return { line: `${who} has no usable answer (${word})` };
  }
  if (ours.status === 'infeasible' || objective < ours.bound) {
    const line =
      `internal error: ${who} disagrees: it found ${objective}, ours is ${ours.objective}; ` +
      'please report this problem';
    return { line, refuted: { choice, objective } };
  }
  if (objective - ours.objective <= RELATIVE_TOLERANCE * Math.max(1, Math.abs(ours.objective))) {
    return { line: `${who} agrees: ${objective}` };
  }
  return {
    line:
      `${who} found only ${objective} (${word}); ours, ${ours.objective}, is cheaper and ` +
      'checked',
  };
}
