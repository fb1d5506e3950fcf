/** Tokenizer of graph text: by character codes, positions for every error, no look-behind. */

import { type ErrorDetails, ShardwrightError } from '../../errors.ts';
import { CHAR, isDigit, isLetterOrDigit } from '../../text/char.ts';
import { MAX_NAME, placeAt } from '../../text/place.ts';

export class GraphReader {
  pos = 0;
  /** Told of every `%name` that an argument or output reads, with its place. */
  onUse: (name: string, at: number) => void = () => undefined;
  /** Examples of the dims of the outermost graph, by name. */
  readonly examples = new Map<string, number>();
  constructor(
    readonly text: string,
    readonly file: string | undefined,
  ) {}

  /** The E_GRAPH_PARSE error at `at`, with line, column and the line's text. */
  fail(message: string, at = this.pos, hint?: string): never {
    throw new ShardwrightError('E_GRAPH_PARSE', message, {
      ...this.place(at),
      hint:
        hint ??
        'the grammar of graph text is in the documentation, "Graph text"; `printGraph` writes it',
    });
  }

  /** Line, column and text of the line of a place, for errors. */
  place(at: number): Pick<ErrorDetails, 'file' | 'position' | 'excerpt'> {
    return placeAt(this.text, at, this.file);
  }

  expected(what: string): never {
    this.fail(`expected ${what}, found ${this.found()}`);
  }

  /** The text at the position, for messages. */
  found(): string {
    if (this.pos >= this.text.length) return 'the end of the text';
    if (this.text[this.pos] === '\n') return 'the end of the line';
    const rest = this.text.slice(this.pos, this.pos + 24).split('\n')[0];
    return `'${rest.split(/[\s,()[\]]/)[0] || rest[0]}'`;
  }

  /** Skips blanks and, at its place, a comment; stays before a newline. */
  blanks(): void {
    const { text } = this;
    for (;;) {
      const c = text.charCodeAt(this.pos);
      if (c === CHAR.SPACE || c === CHAR.TAB || c === CHAR.RETURN) {
        this.pos++;
      } else if (c === CHAR.HASH) {
        const end = text.indexOf('\n', this.pos);
        this.pos = end < 0 ? text.length : end;
        return;
      } else return;
    }
  }

  /** Skips blanks, comments and newlines. */
  space(): void {
    for (;;) {
      this.blanks();
      if (this.text.charCodeAt(this.pos) !== CHAR.NEWLINE) return;
      this.pos++;
    }
  }

  endLine(): void {
    this.blanks();
    if (this.pos >= this.text.length) return;
    if (this.text.charCodeAt(this.pos) !== CHAR.NEWLINE) this.expected('the end of the line');
    this.pos++;
  }

  peek(char: string): boolean {
    this.blanks();
    return this.text[this.pos] === char;
  }

  accept(char: string): boolean {
    if (!this.peek(char)) return false;
    this.pos++;
    return true;
  }

  expect(char: string): void {
    if (!this.accept(char)) this.expected(`'${char}'`);
  }

  /** Accepts the word if it is here as a whole. */
  word(word: string): boolean {
    this.blanks();
    if (!this.text.startsWith(word, this.pos)) return false;
    if (isNameCode(this.text.charCodeAt(this.pos + word.length))) return false;
    this.pos += word.length;
    return true;
  }

  /** `[A-Za-z_][A-Za-z0-9_.]*`, or a JSON string for names with other characters. */
  name(what: string): string {
    this.blanks();
    if (this.text[this.pos] === '"') return this.string(what);
    const start = this.pos;
    const first = this.text.charCodeAt(start);
    if (!isNameCode(first) || isDigit(first) || first === CHAR.DOT) this.expected(what);
    let end = start + 1;
    while (isNameCode(this.text.charCodeAt(end))) end++;
    if (end - start > MAX_NAME)
      this.fail(`a name of ${end - start} characters; at most ${MAX_NAME} are allowed`, start);
    this.pos = end;
    return this.text.slice(start, end);
  }

  string(what: string): string {
    this.blanks();
    const start = this.pos;
    if (this.text[start] !== '"') this.expected(what);
    let end = start + 1;
    for (;;) {
      const c = this.text.charCodeAt(end);
      if (Number.isNaN(c) || c === CHAR.NEWLINE)
        this.fail('the string has no closing quote', start);
      if (c === CHAR.BACKSLASH) end += 2;
      else if (c === CHAR.QUOTE) break;
      else end++;
    }
    this.pos = end + 1;
    try {
      return JSON.parse(this.text.slice(start, end + 1)) as string;
    } catch {
      return this.fail(
        'the string is not a JSON string',
        start,
        'escape quotes, backslashes and control characters',
      );
    }
  }

  /** An integer of any size: a number where that is exact, else a bigint. */
  integer(what: string): number | bigint {
    this.blanks();
    const start = this.pos;
    const digits = this.skipDigits(this.text[start] === '-' ? start + 1 : start);
    if (digits === (this.text[start] === '-' ? start + 1 : start)) this.expected(what);
    this.pos = digits;
    return exactInteger(this.text.slice(start, digits));
  }

  safeInteger(what: string): number {
    this.blanks();
    const start = this.pos;
    const value = this.integer(what);
    if (typeof value === 'bigint') this.fail(`${what} must be at most 2^53`, start);
    return value;
  }

  skipDigits(from: number): number {
    let end = from;
    for (let c = this.text.charCodeAt(end); isDigit(c); c = this.text.charCodeAt(++end));
    return end;
  }
}

/** The integer a decimal text means: a number where that is exact, else a bigint. */
export function exactInteger(digits: string): number | bigint {
  const value = Number(digits);
  if (Number.isSafeInteger(value)) return value === 0 ? 0 : value;
  return BigInt(digits);
}

/** Letter, digit, `_` or `.`. */
export function isNameCode(c: number): boolean {
  return isLetterOrDigit(c) || c === CHAR.UNDERSCORE || c === CHAR.DOT;
}
