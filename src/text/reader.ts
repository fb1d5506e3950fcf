/**
 * Shared by the readers of compiler texts (MLIR, jaxpr, HLO): a position, tokens read by character
 * codes where one is asked for, errors with line and column, and the limits. Blanks and comments
 * count nowhere but inside strings. Nesting is counted here, so that no text can exhaust the stack.
 */

import { defined } from '../defined.ts';
import { ShardwrightError } from '../errors.ts';
import { isSpace } from './char.ts';
import { MAX_DEPTH, MAX_NAME, placeAt } from './place.ts';

/** An open bracket and its place. */
export interface Bracket {
  readonly mark: string;
  readonly at: number;
}

const CLOSING: Readonly<Record<string, string>> = { '<': '>', '[': ']', '(': ')', '{': '}' };

export abstract class TextReader {
  pos: number;
  private depth = 0;

  constructor(
    readonly text: string,
    readonly file: string | undefined,
    from = 0,
    /** The text ends here for this reader. */
    readonly end = text.length,
  ) {
    this.pos = from;
  }

  /** Advice of an error that has no better one. */
  protected abstract readonly advice: string;
  /** The mark that begins a comment to the end of its line. */
  protected abstract readonly comment: string;
  /** Tells whether the character belongs to names. */
  protected abstract isWordCode(c: number): boolean;

  error(
    code: string,
    message: string,
    at: number,
    hint = this.advice,
    node?: string,
  ): ShardwrightError {
    return new ShardwrightError(code, message, {
      ...placeAt(this.text, at, this.file),
      ...defined({ node }),
      hint,
    });
  }

  fail(message: string, at = this.pos, code = 'E_SYNTAX', hint?: string): never {
    throw this.error(code, message, at, hint);
  }

  expected(what: string): never {
    this.skip();
    this.fail(`expected ${what}, found ${this.found()}`);
  }

  private found(): string {
    if (this.pos >= this.end) return 'the end of the text';
    const word = /^[%@#^!]?[\w$.-]+|^./.exec(
      this.text.slice(this.pos, Math.min(this.end, this.pos + 40)),
    );
    return `'${word?.[0] ?? this.text[this.pos]}'`;
  }

  /** Runs `read` one level deeper. @throws E_LIMIT at depth 256 */
  nested<T>(read: () => T): T {
    if (++this.depth > MAX_DEPTH)
      this.fail(
        `brackets and regions nest deeper than ${MAX_DEPTH}`,
        this.pos,
        'E_LIMIT',
        'no program needs this',
      );
    try {
      return read();
    } finally {
      this.depth--;
    }
  }

  /** Moves behind blanks and comments. */
  skip(): void {
    const { text, end, comment } = this;
    const first = comment.charCodeAt(0);
    for (;;) {
      if (this.pos >= end) {
        this.pos = end;
        return;
      }
      const c = text.charCodeAt(this.pos);
      if (isSpace(c)) this.pos++;
      else if (c === first && text.startsWith(comment, this.pos)) {
        const stop = text.indexOf('\n', this.pos);
        this.pos = stop < 0 ? end : Math.min(stop, end);
      } else return;
    }
  }

  atEnd(): boolean {
    this.skip();
    return this.pos >= this.end;
  }

  /** Tells whether `token` (punctuation) is at the position. */
  peek(token: string): boolean {
    this.skip();
    return this.pos < this.end && this.text.startsWith(token, this.pos);
  }

  accept(token: string): boolean {
    if (!this.peek(token)) return false;
    this.pos += token.length;
    return true;
  }

  expect(token: string): void {
    if (!this.accept(token)) this.expected(`'${token}'`);
  }

  /** Tells whether the word is here as a whole. */
  peekWord(word: string): boolean {
    return this.peek(word) && !this.isWordCode(this.text.charCodeAt(this.pos + word.length));
  }

  acceptWord(word: string): boolean {
    if (!this.peekWord(word)) return false;
    this.pos += word.length;
    return true;
  }

  expectWord(word: string): void {
    if (!this.acceptWord(word)) this.expected(`'${word}'`);
  }

  /**
   * The end of the name whose first character is at `from`. @throws E_LIMIT beyond 4,096 characters
   */
  protected wordEnd(from: number): number {
    let at = from;
    while (at < this.end && this.isWordCode(this.text.charCodeAt(at))) at++;
    this.checkLength(from, at);
    return at;
  }

  protected checkLength(from: number, to: number): void {
    if (to - from > MAX_NAME)
      this.fail(
        `a name of ${to - from} characters; at most ${MAX_NAME} are allowed`,
        from,
        'E_LIMIT',
      );
  }

  /** Takes the last open bracket off; told at that bracket where another one should close first. */
  protected closeBracket(open: Bracket[], mark: string): void {
    const last = open.pop();
    if (last === undefined) this.fail(`'${mark}' closes no bracket`);
    else if (CLOSING[last.mark] !== mark)
      this.fail(
        `the bracket '${last.mark}' is not closed before '${mark}'`,
        last.at,
        'E_SYNTAX',
        `'${CLOSING[last.mark]}' closes it`,
      );
  }

  /** Members between brackets, separated by commas. */
  list<T>(open: string, close: string, member: () => T): T[] {
    this.expect(open);
    const out: T[] = [];
    if (this.accept(close)) return out;
    do out.push(member());
    while (this.accept(','));
    this.expect(close);
    return out;
  }
}
