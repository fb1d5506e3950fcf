/** Reads placement texts from left to right, with the column in errors. */

import { ShardwrightError } from '../../errors.ts';
import { NotationScanner } from '../../text/scanner.ts';
import { normalDim } from './shards/cut.ts';

/** Longest text of a placement or sharding that is read. */
const MAX_TEXT = 1 << 16;
/** Longest list of numbers in one placement. */
const MAX_LIST = 1 << 14;
/** Largest number in a placement. */
const MAX_NUMBER = 2 ** 40;

/**
 * Reads a text of placements from left to right; errors carry the column. Kinds get it to read what
 * follows their word.
 */
export class Scanner extends NotationScanner {
  /**
   * @param rank of the tensor, if known: dims are counted and checked against it
   * @throws E_LIMIT for a text that is too long
   */
  constructor(
    text: string,
    private readonly rank?: number,
    private readonly help = 'write one of S(0), _S(0, 2), R, P(sum) for each mesh dim, ' +
      "as in 'S(0)R'",
  ) {
    super(text, MAX_TEXT, 'the text of placements');
  }

  get column(): number {
    return this.at + 1;
  }

  override fail(expected: string, hint?: string): never {
    const got = this.done ? 'the end' : `'${this.text.slice(this.at, this.at + 12)}'`;
    throw new ShardwrightError(
      'E_SYNTAX',
      `'${shown(this.text)}': expected ${expected} at column ${this.column}, got ${got}`,
      {
        position: { line: 1, column: this.column },
        excerpt: shown(this.text),
        hint: hint ?? this.help,
      },
    );
  }

  separators(): void {
    while (/[\s,]/.test(this.peek())) this.at++;
  }
  /** The name of an argument, as Python writes it: `dim=`. */
  keyword(name: string): void {
    const before = this.at;
    if (this.take(name) && this.take('=')) return;
    this.at = before;
  }

  int(what: string): number {
    this.blanks();
    const before = this.at;
    const digits = this.match(/-?\d+/y);
    if (digits === undefined) return this.fail(what);
    const value = Number(digits);
    if (Math.abs(value) > MAX_NUMBER) {
      this.back(before);
      return this.fail(`${what} of at most ${MAX_NUMBER}`);
    }
    return value;
  }
  /** A whole number of at least `least`. */
  count(what: string, least: number): number {
    this.blanks();
    const before = this.at;
    const value = this.int(what);
    if (value >= least) return value;
    this.back(before);
    return this.fail(what);
  }
  /** A list of them in square brackets. */
  counts(what: string, least: number): number[] {
    this.expect('[');
    const out: number[] = [];
    while (!this.take(']')) {
      if (out.length > 0) {
        this.expect(',');
        // Python writes lists with a comma at the end too.
        if (this.take(']')) break;
      }
      if (out.length === MAX_LIST) this.fail(`at most ${MAX_LIST} numbers`);
      out.push(this.count(what, least));
    }
    return out;
  }

  /** A tensor dim; a negative one is counted from the end, which wants the rank of the tensor. */
  dim(): number {
    this.blanks();
    const before = this.at;
    const dim = this.int('a tensor dim');
    if (this.rank === undefined) {
      if (dim >= 0) return dim;
      this.back(before);
      return this.fail('a tensor dim of at least 0 (the rank of the tensor is not known here)');
    }
    try {
      return normalDim(dim, this.rank);
    } catch (error) {
      if (!(error instanceof ShardwrightError)) throw error;
      this.back(before);
      return this.fail(`a dim of a ${this.rank}-D tensor`, error.details.hint);
    }
  }
}

/** A long text shortened for an error. */
export function shown(text: string): string {
  return text.length > 120 ? `${text.slice(0, 117)}...` : text;
}
