/**
 * From a choice problem to a library and back: guard, encode, scale, ask, and believe only what
 * `check/verify.ts` re-evaluates.
 */
import { evaluate } from '../check/verify.ts';
import type { Problem } from '../types.ts';
import {
  aboveLeast,
  decodeColumns,
  encode,
  encodeChoice,
  type ProgramSize,
  programSize,
} from './encode.ts';
import { askLibrary, type Library, type LibraryAnswer, type LibraryRun } from './library.ts';
import { scaled } from './linear-program.ts';

/** How one library wants its numbers and how much it can carry. */
export interface Backend {
  readonly library: Library;
  readonly most: { readonly binaries: number; readonly columns: number; readonly nonzeros: number };
  /** Largest cost and largest row entry after scaling; see `scaled`. */
  readonly costTarget: number;
  readonly rowTarget: number;
}

/** A library's answer to a choice problem. `choice` is present only when the checker accepts it. */
interface Verdict {
  readonly word: string;
  readonly choice?: Int32Array;
  /** Re-evaluated from the choice by the checker; the library's own figure is not used. */
  readonly objective?: number;
  /** The library's own lower bound, back in the problem's units: evidence only. */
  readonly claimedBound?: number;
  readonly size: ProgramSize;
  readonly seconds: number;
}

/** Thrown before anything large is allocated when a problem is beyond a library's size guard. */
export class TooLargeForLibrary extends Error {
  readonly code = 'too-large';
  readonly library: Library;
  readonly size: ProgramSize;

  constructor({ library, most }: Backend, size: ProgramSize) {
    const got = `${size.binaries} binaries, ${size.columns} columns, ${size.nonzeros} nonzeros`;
    const limit = [
      ...(most.binaries < Infinity ? [`${most.binaries} binaries`] : []),
      `${most.columns} columns`,
      ...(most.nonzeros < Infinity ? [`${most.nonzeros} nonzeros`] : []),
    ].join(', ');
    super(
      `${library} cannot take this problem: it has ${got}; at most ${limit} fit. Use the ` +
        `engine 'auto' or 'exact'`,
    );
    this.name = 'TooLargeForLibrary';
    this.library = library;
    this.size = size;
  }
}

/** Tells whether a program of this size is within a library's guard. */
export function fits({ most }: Backend, size: ProgramSize): boolean {
  return (
    size.binaries <= most.binaries && size.columns <= most.columns && size.nonzeros <= most.nonzeros
  );
}

/**
 * Size of the problem's program. Throws `TooLargeForLibrary` when the library's guard refuses it.
 */
export function requireFit(problem: Problem, backend: Backend): ProgramSize {
  const size = programSize(problem);
  if (!fits(backend, size)) throw new TooLargeForLibrary(backend, size);
  return size;
}

/** Puts a choice problem to a library. Throws `TooLargeForLibrary`. */
export async function consult(
  problem: Problem,
  backend: Backend,
  run: Omit<LibraryRun, 'start' | 'onIncumbent'> & {
    readonly start?: Int32Array;
    /** Called with every better choice that the checker accepts. */
    readonly onChoice?: (choice: Int32Array, objective: number) => void;
  } = {},
): Promise<Verdict> {
  const size = requireFit(problem, backend);
  const lp = encode(problem);
  const { program, costScale } = scaled(aboveLeast(lp), backend.costTarget, backend.rowTarget);
  const { start, onChoice, ...rest } = run;
  const checked = (values: Float64Array): { choice: Int32Array; objective: number } | string => {
    const choice = decodeColumns(problem, lp, values);
    if (choice === undefined) return fractional(lp.choiceVariable.length, values);
    const { violations, cost } = evaluate(problem, choice);
    if (violations.length > 0) return `rejected by the checker: ${violations[0].code}`;
    return { choice, objective: Number(cost) };
  };
  const answer = await askLibrary(backend.library, program, {
    ...rest,
    ...(start === undefined ? {} : { start: encodeChoice(problem, lp, start) }),
    ...(onChoice === undefined
      ? {}
      : {
          onIncumbent: (values): void => {
            const found = checked(values);
            if (typeof found !== 'string') onChoice(found.choice, found.objective);
          },
        }),
  });
  const common = { size, seconds: answer.seconds, ...claim(answer, costScale, lp.constant) };
  if (answer.values === undefined) return { ...common, word: answer.word };
  const found = checked(answer.values);
  if (typeof found === 'string') return { ...common, word: `${answer.word}, ${found}` };
  return { ...common, word: answer.word, ...found };
}

function fractional(binaries: number, values: Float64Array): string {
  let count = 0;
  for (let j = 0; j < binaries; j++)
    if (Math.abs(values[j] - Math.round(values[j])) > 1e-4) count++;
  return count > 0
    ? `rejected: ${count} of ${binaries} binaries are fractional`
    : 'rejected: some variable has no value';
}

function claim(
  answer: LibraryAnswer,
  costScale: number,
  constant: number,
): { claimedBound?: number } {
  return answer.bound === undefined ? {} : { claimedBound: answer.bound / costScale + constant };
}
