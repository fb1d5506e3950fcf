/**
 * Shared by the readers of short notations (placements, layouts, einshard, einsum steps, pipeline
 * layouts): a text and a place in it, words and patterns that are taken from left to right, and a
 * limit on the length. Errors are those of each notation, at that place.
 */

import { type ErrorDetails, ShardwrightError } from '../errors.ts';
import { placeAt } from './place.ts';

export abstract class NotationScanner {
  protected at = 0;

  /**
   * @param most characters that are read
   * @param what the text is, for the error: `a text of layouts`
   * @throws E_LIMIT for a longer one
   */
  constructor(
    readonly text: string,
    most: number,
    what: string,
  ) {
    if (text.length > most)
      throw new ShardwrightError(
        'E_LIMIT',
        `${what} has ${text.length} characters, more than ${most}`,
      );
  }

  /**
   * Tells whether a character separates words and has no meaning of its own. A notation in which
   * blanks have meaning leaves `lead` empty.
   */
  protected isBlank(char: string): boolean {
    return /\s/.test(char);
  }

  /** @throws E_SYNTAX with the expected text and the text found here */
  abstract fail(expected: string, hint?: string): never;

  get done(): boolean {
    return this.at >= this.text.length;
  }

  /** 0-based offset of what comes next. */
  get position(): number {
    return this.at;
  }

  /** Goes back to an earlier place, so that an error points there. */
  back(position: number): void {
    this.at = position;
  }

  /** The character at the place; the empty text at the end. */
  peek(): string {
    return this.text[this.at] ?? '';
  }

  /** Skips blanks; whether there were any. Not by `peek`, which may skip blanks itself. */
  blanks(): boolean {
    const from = this.at;
    while (this.at < this.text.length && this.isBlank(this.text.charAt(this.at))) this.at++;
    return this.at > from;
  }

  /** Skips the characters that may precede a word. */
  protected lead(): void {
    this.blanks();
  }

  /** Tells whether the word comes next; nothing is taken. */
  ahead(word: string): boolean {
    this.lead();
    return this.text.startsWith(word, this.at);
  }

  take(word: string): boolean {
    if (!this.ahead(word)) return false;
    this.at += word.length;
    return true;
  }

  expect(word: string): void {
    if (!this.take(word)) this.fail(`'${word}'`);
  }

  /** The match of a sticky pattern at the place. */
  match(pattern: RegExp): string | undefined {
    this.lead();
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text)?.[0];
    if (found !== undefined) this.at += found.length;
    return found;
  }

  /** @throws E_SYNTAX where something is left */
  end(): void {
    this.lead();
    if (!this.done) this.fail('nothing more');
  }

  /** Line, column and excerpt of an offset, for errors. */
  protected place(at: number): Pick<ErrorDetails, 'position' | 'excerpt'> {
    return placeAt(this.text, at);
  }
}
