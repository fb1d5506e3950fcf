/**
 * Tokenizer of the Python subset that FX prints. One pass over character codes, one token at a
 * time, no token objects: the fields `kind`, `start` and `end` describe the current token. Newlines
 * count only outside brackets.
 */

import { defined } from '../../defined.ts';
import { ShardwrightError } from '../../errors.ts';
import { MAX_DEPTH, MAX_NAME, placeAt } from '../../text/place.ts';

export const END = 0;
export const NEWLINE = 1;
export const NAME = 2;
export const INTEGER = 3;
export const FLOAT = 4;
export const STRING = 5;
/** An operator of two or three characters; a single character is its own character code as kind. */
export const OPERATOR = 6;

// Character classes: 1 starts a name, 2 digit, 3 blank.
const CLASS = new Uint8Array(128);
for (let c = 0; c < 128; c++) {
  if ((c >= 97 && c <= 122) || (c >= 65 && c <= 90) || c === 95) CLASS[c] = 1;
  else if (c >= 48 && c <= 57) CLASS[c] = 2;
  else if (c === 32 || c === 9 || c === 13 || c === 12) CLASS[c] = 3;
}

export class Scanner {
  kind = NEWLINE;
  start = 0;
  end = 0;
  /** 1-based line of the current token. */
  line = 1;
  /** Offset of the first character of the current token's line. */
  lineStart = 0;
  /**
   * Comment skipped on the way to the current token, `[commentStart, commentEnd)`; start -1 when
   * there was none.
   */
  commentStart = -1;
  commentEnd = -1;
  /** The last comment alone on its line, -1 before the first. */
  loneComment = -1;
  private depth = 0;

  constructor(
    readonly text: string,
    readonly file: string | undefined,
    /** The end of the text; a signature may follow it. */
    private readonly limit = text.length,
  ) {}

  /** Moves on to the next token and returns its kind. */
  next(): number {
    const { text, limit } = this;
    let pos = this.end;
    this.commentStart = -1;
    for (;;) {
      if (pos >= limit) {
        this.start = this.end = limit;
        return (this.kind = END);
      }
      const c = text.charCodeAt(pos);
      const cls = c < 128 ? CLASS[c] : 1;
      if (cls === 3) {
        pos++;
        continue;
      }
      if (cls === 1) {
        this.start = pos;
        do pos++;
        while (pos < limit && isNamePart(text.charCodeAt(pos)));
        this.end = pos;
        if (pos - this.start > MAX_NAME)
          this.fail(
            'E_LIMIT',
            `a name of ${pos - this.start} characters; at most ${MAX_NAME} are allowed`,
          );
        return (this.kind = NAME);
      }
      if (c === 10) {
        // `lineStart` still belongs to the line that ends here; it moves once the newline is
        // consumed.
        if (this.depth > 0) {
          this.line++;
          this.lineStart = ++pos;
          continue;
        }
        if (this.kind === NEWLINE) {
          this.line++;
          this.lineStart = ++pos;
          continue;
        }
        this.start = pos;
        this.end = pos + 1;
        this.line++;
        this.lineStart = pos + 1;
        return (this.kind = NEWLINE);
      }
      if (c === 35) {
        let stop = text.indexOf('\n', pos);
        if (stop < 0 || stop > limit) stop = limit;
        this.commentStart = pos;
        this.commentEnd = stop;
        if (this.kind === NEWLINE && this.depth === 0) this.loneComment = pos;
        pos = stop;
        continue;
      }
      this.start = pos;
      if (cls === 2 || (c === 46 && isDigit(text.charCodeAt(pos + 1)))) return this.number(pos);
      if (c === 34 || c === 39) return this.string(pos, c);
      return this.punctuation(pos, c);
    }
  }

  private number(from: number): number {
    const { text } = this;
    let pos = from;
    let kind = INTEGER;
    while (isDigit(text.charCodeAt(pos))) pos++;
    if (text.charCodeAt(pos) === 46) {
      kind = FLOAT;
      pos++;
      while (isDigit(text.charCodeAt(pos))) pos++;
    }
    const e = text.charCodeAt(pos);
    if (e === 101 || e === 69) {
      const sign = text.charCodeAt(pos + 1);
      let digits = sign === 43 || sign === 45 ? pos + 2 : pos + 1;
      if (isDigit(text.charCodeAt(digits))) {
        kind = FLOAT;
        while (isDigit(text.charCodeAt(digits))) digits++;
        pos = digits;
      }
    }
    this.end = pos;
    if (pos < this.limit && isNamePart(text.charCodeAt(pos)))
      this.fail('E_SYNTAX', `expected a number, found '${text.slice(from, pos + 1)}'`, pos);
    return (this.kind = kind);
  }

  private string(from: number, quote: number): number {
    const { text, limit } = this;
    let pos = from + 1;
    for (;;) {
      const c = pos < limit ? text.charCodeAt(pos) : 10;
      if (c === quote) break;
      if (c === 92) pos++;
      else if (c === 10)
        this.fail(
          'E_SYNTAX',
          'the string has no closing quote',
          from,
          'the text seems to be cut here',
        );
      pos++;
    }
    this.end = pos + 1;
    return (this.kind = STRING);
  }

  private punctuation(pos: number, c: number): number {
    const { text } = this;
    this.end = pos + 1;
    switch (c) {
      case 40: // ( [ {
      case 91:
      case 123:
        if (++this.depth > MAX_DEPTH)
          this.fail(
            'E_LIMIT',
            `brackets nest deeper than ${MAX_DEPTH}`,
            pos,
            'no graph needs this; check that the text is a graph',
          );
        return (this.kind = c);
      case 41: // ) ] }
      case 93:
      case 125:
        if (--this.depth < 0) this.fail('E_SYNTAX', `'${text[pos]}' closes no bracket`, pos);
        return (this.kind = c);
      case 44: // , : ; .
      case 58:
      case 59:
      case 46:
        return (this.kind = c);
      default:
        break;
    }
    const d = text.charCodeAt(pos + 1);
    // ** // << >> == != <= >= += -= *= /= %= @= &= |= ^= ->
    const doubled = d === c && (c === 42 || c === 47 || c === 60 || c === 62);
    const withEquals = d === 61 && '=!<>+-*/%@&|^'.includes(text[pos]);
    if (doubled || withEquals || (c === 45 && d === 62)) {
      this.end = pos + 2;
      if (doubled && text.charCodeAt(pos + 2) === 61) this.end++;
      return (this.kind = OPERATOR);
    }
    if (!'=+-*/%@<>&|^~'.includes(text[pos]))
      this.fail('E_SYNTAX', `expected a statement, found '${text[pos]}'`, pos);
    return (this.kind = c);
  }

  /** Text of the current token. */
  word(): string {
    return this.text.slice(this.start, this.end);
  }

  /** Tells whether the current token is this name. */
  is(word: string): boolean {
    return (
      this.kind === NAME &&
      this.end - this.start === word.length &&
      this.text.startsWith(word, this.start)
    );
  }

  /** Tells whether the current token is of this kind. */
  at(kind: number): boolean {
    return this.kind === kind;
  }

  atEnd(): boolean {
    return this.kind === END;
  }

  /** Column (0-based) of the current token. */
  indent(): number {
    return this.start - this.lineStart;
  }

  expect(kind: number, what: string): void {
    if (this.kind !== kind) this.expected(what);
  }

  expected(what: string): never {
    this.fail('E_SYNTAX', `expected ${what}, found ${this.found()}`);
  }

  found(): string {
    if (this.kind === END) return 'the end of the text';
    if (this.kind === NEWLINE) return 'the end of the line';
    const word = this.word();
    return `'${word.length > 40 ? `${word.slice(0, 40)}...` : word}'`;
  }

  /** Throws with line, column and the wrong line's text. */
  fail(code: string, message: string, at = this.start, hint?: string): never {
    throw this.error(code, message, at, hint);
  }

  error(code: string, message: string, at: number, hint?: string, node?: string): ShardwrightError {
    return new ShardwrightError(code, message, {
      ...placeAt(this.text, at, this.file),
      ...defined({ node }),
      hint:
        hint ?? 'check the text against the output of print_readable(); it may be cut or edited',
    });
  }
}

function isDigit(c: number): boolean {
  return c >= 48 && c <= 57;
}

function isNamePart(c: number): boolean {
  return c < 128 ? CLASS[c] === 1 || CLASS[c] === 2 : true;
}
