/**
 * Reads the letters of an einsum equation such as `abi,aoi->abo`: its operands and result, and the
 * class of every letter: batch, contraction, free or broadcast. Source: E. Yang, "Computing
 * sharding with einsum".
 */

import { checkKinds } from '../../arguments.ts';
import { ShardwrightError } from '../../errors.ts';

/** An einsum equation as it was read. */
export interface EinsumEquation {
  /** Without blanks. */
  readonly text: string;
  /** Letters of each operand. */
  readonly operands: readonly string[];
  readonly output: string;
}

const MAX_TEXT = 4096;

/**
 * Reads an equation: letters for the dims of each operand, commas between operands, an arrow,
 * letters of the result. A letter may occur twice in an operand (a diagonal), not in the result.
 *
 * @throws E_SYNTAX with the column of the text that cannot be read
 */
export function parseEinsum(text: string): EinsumEquation {
  checkKinds('parseEinsum', { text: [text, 'string'] });
  const fail = (at: number, message: string): never => {
    throw new ShardwrightError(
      'E_SYNTAX',
      `einsum '${shown(text)}': ${message} at column ${at + 1}`,
      {
        position: { line: 1, column: at + 1 },
        excerpt: shown(text),
        hint:
          'write the letters of each operand, an arrow and those of the result, as in ' +
          "'abi,aoi->abo'.",
      },
    );
  };
  if (text.length > MAX_TEXT) fail(MAX_TEXT, `more than ${MAX_TEXT} characters`);
  const strange = /[^A-Za-z, >-]/.exec(text);
  if (strange !== null)
    fail(strange.index, `found '${strange[0]}', expected a letter, a comma or the arrow`);
  const arrow = text.indexOf('->');
  if (arrow < 0) fail(text.length, "found no '->'");
  const stray = [...text].findIndex(
    (c, at) => (c === '-' || c === '>') && at !== arrow && at !== arrow + 1,
  );
  if (stray >= 0) fail(stray, 'found a second arrow, or half of one');
  const comma = text.indexOf(',', arrow);
  if (comma >= 0) fail(comma, 'found a second result');
  const operands = text.slice(0, arrow).replaceAll(' ', '').split(',');
  const output = text.slice(arrow + 2).replaceAll(' ', '');
  [...text].forEach((letter, at) => {
    if (at < arrow + 2 || letter === ' ') return;
    if (!operands.some((o) => o.includes(letter)))
      fail(at, `no operand has '${letter}' of the result`);
    if (text.indexOf(letter, arrow) !== at) fail(at, `the result has '${letter}' twice`);
  });
  return { text: `${operands.join(',')}->${output}`, operands, output };
}

const shown = (text: string): string => (text.length > 80 ? `${text.slice(0, 80)}...` : text);

/** Letters by class, each list in order of appearance. */
export interface LetterClasses {
  /** Letters of the result and of every operand. */
  readonly batch: readonly string[];
  /** Letters of operands that the result lacks: they are summed over. */
  readonly contraction: readonly string[];
  /** For each operand, its letters of the result that some other operand lacks. */
  readonly free: readonly (readonly string[])[];
  /** For each operand, the letters of the result that it lacks: it is broadcast along them. */
  readonly broadcast: readonly (readonly string[])[];
}

/**
 * Sorts the letters of an equation: `abi,aoi->abo` has the batch letter a, the contraction i, and
 * the free letters b and o. A dim of one row that broadcasts is not a letter.
 *
 * @throws E_SYNTAX as `parseEinsum`
 */
export function classify(equation: string): LetterClasses {
  checkKinds('classify', { equation: [equation, 'string'] });
  const { operands, output } = parseEinsum(equation);
  const letters = lettersOf(operands);
  const everywhere = (letter: string): boolean => operands.every((o) => o.includes(letter));
  const kept = letters.filter((letter) => output.includes(letter));
  return {
    batch: kept.filter(everywhere),
    contraction: letters.filter((letter) => !output.includes(letter)),
    free: operands.map((o) => kept.filter((letter) => o.includes(letter) && !everywhere(letter))),
    broadcast: operands.map((o) => kept.filter((letter) => !o.includes(letter))),
  };
}

/** Every letter once, in order of appearance. */
export function lettersOf(operands: readonly string[]): string[] {
  return [...new Set(operands.join(''))];
}

/** Tells whether the letter occurs twice in one operand. */
export function repeats(operand: string, letter: string): boolean {
  return operand.indexOf(letter) !== operand.lastIndexOf(letter);
}
