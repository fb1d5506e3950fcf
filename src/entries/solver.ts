/**
 * The entry `shardwright/solver`: the choice problem (the energy of a pairwise Markov random field
 * with linear rows), its exact solver, and the checker of its certificates, which shares no code
 * with the solver.
 *
 * The solver and its checker know no errors of other rooms, so what JavaScript lets through is
 * refused here, at their door: a wrong argument by E_USAGE, and numbers whose sums a double cannot
 * hold exactly by E_LIMIT.
 *
 * @module shardwright/solver
 */
import { type ArgumentKind, checkKinds } from '../arguments.ts';
import { solveAnytime as anytime } from '../contest/anytime.ts';
import type { ContestOptions } from '../contest/options.ts';
import {
  checkOptions,
  isReadable,
  ShardwrightError,
  suggestion,
  valueText,
  wrongArgument,
} from '../errors.ts';
import { readableProblem, refusedProblem } from '../plan/choice/solver-arguments.ts';
import {
  evaluate,
  hashProblem as hashed,
  type Verdict,
  verifyCertificate as verified,
} from '../solver/check/verify.ts';
import type { LinearProgram } from '../solver/milp/linear-program.ts';
import { lpText as textOfProgram } from '../solver/milp/lp-text.ts';
import { TooLargeForLibrary } from '../solver/milp/verdict.ts';
import { type End, ProblemBuilder as Builder } from '../solver/problem/builder.ts';
import { checkSums, SumsTooLarge } from '../solver/problem/check-problem.ts';
import { NoChoiceInTime, solve as solved, solveNow as solvedNow } from '../solver/solve.ts';
import type { LinearRow, Problem, Solution, SolveOptions, UsagePiece } from '../solver/types.ts';

export { IopddlError, readIopddl } from '../contest/iopddl.ts';
export type { ContestOptions } from '../contest/options.ts';
export type { Verdict } from '../solver/check/verify.ts';
export type { LinearProgram } from '../solver/milp/linear-program.ts';
export type {
  Certificate,
  CertificateRow,
  LinearRow,
  Problem,
  Progress,
  Solution,
  SolveOptions,
  SolverStep,
  StepName,
  UsagePiece,
} from '../solver/types.ts';

/**
 * Solves a problem exactly, or returns the best choice and bound within the limits. Never throws on
 * infeasible problems.
 *
 * @throws E_USAGE for a malformed problem or option
 * @throws E_LIMIT for costs or amounts whose sums are not exact, and for a problem beyond the size
 *   guard of a library engine
 * @throws E_TIME_LIMIT when time ran out before it is known whether there is any choice
 */
export async function solve(problem: Problem, options: SolveOptions = {}): Promise<Solution> {
  solvable('solve', problem);
  checkSolveOptions('solve', problem, options);
  try {
    return await solved(problem, options);
  } catch (error) {
    throw named(error);
  }
}

/** `solve`, synchronously, with our own engine only. Throws what `solve` throws. */
export function solveNow(problem: Problem, options: SolveOptions = {}): Solution {
  solvable('solveNow', problem);
  checkSolveOptions('solveNow', problem, options);
  try {
    return solvedNow(problem, options);
  } catch (error) {
    throw named(error);
  }
}

/**
 * Solves a problem within limits. Never calls an answer optimal without a certificate that the
 * checker accepted.
 *
 * @throws what `solve` throws
 */
export async function solveAnytime(
  problem: Problem,
  options: ContestOptions = {},
): Promise<Solution> {
  solvable('solveAnytime', problem);
  checkSolveOptions('solveAnytime', problem, options, CONTEST_OPTIONS);
  try {
    return await anytime(problem, options);
  } catch (error) {
    throw named(error);
  }
}

/**
 * Evaluates a choice against the whole problem: its cost, its usage and what it breaks.
 *
 * @throws E_USAGE for a malformed problem, or a choice that is no list
 */
export function evaluateChoice(
  problem: Problem,
  choice: ArrayLike<number>,
): ReturnType<typeof evaluate> {
  readableProblem('evaluateChoice', problem);
  checkKinds('evaluateChoice', { choice: [choice, 'list'] });
  return evaluate(problem, choice);
}

/**
 * Hash of everything that decides costs and rows (names are left out), as 16 hexadecimal digits.
 *
 * @throws E_USAGE for a malformed problem
 */
export function hashProblem(problem: Problem): string {
  readableProblem('hashProblem', problem);
  return hashed(problem);
}

/**
 * Checks a choice and replays its certificate against the problem. A solution without choice
 * (infeasible) has objective Infinity. A bad certificate is no error: the verdict says `accepted:
 * false` and why.
 *
 * @throws E_USAGE for a malformed problem, or a solution without a list of choices
 */
export function verifyCertificate(
  problem: Problem,
  solution: Parameters<typeof verified>[1],
): Verdict {
  readableProblem('verifyCertificate', problem);
  checkKinds('verifyCertificate', { solution: [solution, ['choice', 'objective']] });
  const { objective, certificate } = solution as Readonly<Record<string, unknown>>;
  if (typeof objective !== 'number')
    throw wrongArgument('verifyCertificate', 'objective', valueText(objective), 'it is a number.');
  if (!isReadable(Object(certificate) as object))
    throw wrongArgument('verifyCertificate', 'certificate', valueText(certificate), 'see solve.');
  checkKinds('verifyCertificate', { 'choice of the solution': [solution.choice, 'list'] });
  return verified(problem, solution);
}

/**
 * The whole program as LP text.
 *
 * @throws E_USAGE for a malformed program, `Error` when the text does not fit one string
 */
export function lpText(lp: LinearProgram): string {
  const fault = programFault(lp);
  if (fault !== undefined) throw wrongArgument('lpText', 'lp', fault, PROGRAM_HINT);
  return textOfProgram(lp);
}

/**
 * Collects variables, edges, rows and usage pieces; `build()` checks and returns the problem.
 *
 * Arrays that are handed over belong to the builder from then on. Costs must be integers or
 * `Infinity`.
 */
export class ProblemBuilder extends Builder {
  /**
   * Adds a variable with one value per entry of `unary` and returns its number.
   *
   * @throws E_USAGE for anything but a Float64Array
   */
  override addVariable(unary: Float64Array): number {
    floats('addVariable', 'unary', unary);
    return super.addVariable(unary);
  }

  /**
   * Adds an edge with a row-major table over (values or classes of i) x (values or classes of j)
   * and returns its number. The same array object may be passed for many edges: it is hashed once.
   *
   * @throws E_USAGE for an argument that is not of its kind
   */
  override addEdge(i: number, j: number, table: Float64Array, first?: End, second?: End): number {
    checkKinds('addEdge', { i: [i, 'number'], j: [j, 'number'] });
    floats('addEdge', 'table', table);
    for (const [name, end] of Object.entries({ first, second })) {
      checkKinds('addEdge', { [name]: [end, ['classes', 'of'], 'undefined'] });
      if (end !== undefined && !isArray(end.of, 'Int32Array'))
        throw wrongArgument('addEdge', `'of' of ${name}`, 'no Int32Array', END_HINT);
    }
    return super.addEdge(i, j, table, first, second);
  }

  /** Adds a linear row: sum of amounts <= bound. */
  override addRow(row: LinearRow): void {
    checkKinds('addRow', { row: [row, ['name', 'variables', 'amounts', 'bound']] });
    super.addRow(row);
  }

  /** Adds a usage piece: `variable` holds `amounts[value]` during [lo, hi). Needs `setLimit`. */
  override addUsage(piece: UsagePiece): void {
    checkKinds('addUsage', { piece: [piece, ['variable', 'lo', 'hi', 'amounts']] });
    super.addUsage(piece);
  }

  /** Limit of the usage at every time. */
  override setLimit(limit: number): void {
    checkKinds('setLimit', { limit: [limit, 'number'] });
    super.setLimit(limit);
  }

  /**
   * The finished problem.
   *
   * @throws E_USAGE saying what does not fit, and where
   */
  override build(): Problem {
    const problem = refusedProblem('build', () => super.build());
    return problem;
  }
}

const END_HINT = 'it holds the row or column of every value, as an Int32Array.';
const PROGRAM_HINT = 'it is a linear program: see `LinearProgram` for its fields.';

/** @throws E_USAGE where it is malformed, E_LIMIT where sums would not be exact */
function solvable(call: string, problem: Problem): void {
  readableProblem(call, problem);
  try {
    checkSums(problem);
  } catch (error) {
    if (!(error instanceof SumsTooLarge)) throw error;
    throw new ShardwrightError('E_LIMIT', `${call}: ${error.message}`, {
      hint: 'divide them, and the limit of amounts, by a common factor.',
    });
  }
}

/** The errors of the solver by their codes. */
function named(error: unknown): unknown {
  if (error instanceof NoChoiceInTime) return new ShardwrightError('E_TIME_LIMIT', error.message);
  if (error instanceof TooLargeForLibrary) return new ShardwrightError('E_LIMIT', error.message);
  return error;
}

type Kinds = readonly ArgumentKind[];

/** Options that both solvers have. */
const COMMON_OPTIONS = {
  certify: ['boolean', 'undefined'],
  gap: ['number', 'undefined'],
  onProgress: ['function', 'undefined'],
  onStep: ['function', 'undefined'],
  seed: ['number', 'undefined'],
  signal: [['aborted', 'addEventListener'], 'undefined'],
  starts: ['list', 'undefined'],
  timeLimitSeconds: ['number', 'undefined'],
  workLimit: ['number', 'undefined'],
} satisfies { readonly [K in keyof SolveOptions & keyof ContestOptions]-?: Kinds };

const SOLVE_OPTIONS = {
  ...COMMON_OPTIONS,
  cellLimit: ['number', 'undefined'],
  engine: ['string', 'undefined'],
  enough: ['number', 'undefined'],
  prepared: ['record', 'undefined'],
  searchesWide: ['boolean', 'undefined'],
  ties: ['string', 'undefined'],
} satisfies { readonly [K in keyof SolveOptions]-?: Kinds };

const CONTEST_OPTIONS = {
  ...COMMON_OPTIONS,
  close: ['boolean', 'undefined'],
  closeSeconds: ['number', 'undefined'],
  lowerBound: ['number', 'undefined'],
  members: ['number', 'undefined'],
  rounds: ['number', 'undefined'],
  threads: ['number', 'undefined'],
} satisfies { readonly [K in keyof ContestOptions]-?: Kinds };

/** Options that are one of these words. */
const WORDS: Readonly<Record<string, readonly string[]>> = {
  engine: ['auto', 'exact', 'highs', 'javascript-lp-solver'],
  ties: ['engine', 'lexicographic'],
};

/** Options that count something. */
const COUNTS = ['members', 'threads'];

/** @throws E_USAGE naming the option that the call does not have, or that is none of its kinds */
function checkSolveOptions(
  call: string,
  { domains }: Problem,
  options: SolveOptions | ContestOptions,
  kinds: Readonly<Record<string, Kinds>> = SOLVE_OPTIONS,
): void {
  checkOptions(call, options, kinds);
  const given: Readonly<Record<string, unknown>> = { ...options };
  for (const [name, value] of Object.entries(given)) {
    checkKinds(call, { [`option '${name}'`]: [value, ...kinds[name]] });
    const words = WORDS[name];
    if (typeof value === 'string' && words !== undefined && !words.includes(value))
      throw wrongArgument(call, name, `'${value}'`, suggestion(value, words, `values of ${name}`));
    if (
      COUNTS.includes(name) &&
      value !== undefined &&
      !(Number.isSafeInteger(value) && Number(value) > 0)
    )
      throw wrongArgument(call, name, 'no such number', 'it is an integer from 1.');
  }
  for (const [k, start] of (options.starts ?? []).entries())
    if (!isArray(start, 'Int32Array') || start.length !== domains.length)
      throw wrongArgument(
        call,
        `start ${k}`,
        'no choice',
        `it is an Int32Array of ${domains.length} values.`,
      );
}

function isArray(value: unknown, kind: 'Float64Array' | 'Int32Array' | 'Uint8Array'): boolean {
  return ArrayBuffer.isView(value) && Object.prototype.toString.call(value) === `[object ${kind}]`;
}

function floats(call: string, name: string, value: unknown): void {
  if (!isArray(value, 'Float64Array'))
    throw wrongArgument(call, name, valueText(value), 'it is a Float64Array.');
}

/** The arrays of a linear program: their kinds, and the field that says how long they are. */
const PROGRAM_ARRAYS = {
  cost: ['Float64Array', 'columns'],
  lower: ['Float64Array', 'columns'],
  upper: ['Float64Array', 'columns'],
  integer: ['Uint8Array', 'columns'],
  rowLower: ['Float64Array', 'rows'],
  rowUpper: ['Float64Array', 'rows'],
} as const;

/** The first fault of a linear program; undefined where there is none. */
function programFault(lp: LinearProgram): string | undefined {
  checkKinds('lpText', { lp: [lp, [...Object.keys(PROGRAM_ARRAYS), 'columns', 'rows', 'starts']] });
  const { name, constant, columns, rows, starts, indices, values, columnName, rowName } = lp;
  if (typeof name !== 'string') return 'a program without a name';
  if (typeof constant !== 'number') return 'a program whose constant is no number';
  for (const [field, [kind, count]] of Object.entries(PROGRAM_ARRAYS)) {
    const array = lp[field as keyof typeof PROGRAM_ARRAYS];
    if (!isArray(array, kind) || array.length !== lp[count])
      return `a program whose '${field}' is no ${kind} with an entry for each of its ${count}`;
  }
  if (!isArray(starts, 'Int32Array') || starts.length !== rows + 1)
    return "a program whose 'starts' is no Int32Array with an entry more than rows";
  if (!isArray(indices, 'Int32Array') || indices.some((j) => j < 0 || j >= columns))
    return "a program whose 'indices' is no Int32Array of columns";
  if (!isArray(values, 'Float64Array') || values.length !== indices.length)
    return "a program whose 'values' is no Float64Array with an entry for each index";
  if (starts[0] !== 0 || starts.some((at, r) => at > (starts[r + 1] ?? indices.length)))
    return "a program whose 'starts' do not rise from 0 to the number of indices";
  if (typeof columnName !== 'function' || typeof rowName !== 'function')
    return 'a program without the functions columnName and rowName';
  return undefined;
}
