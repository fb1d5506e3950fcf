/**
 * Tokenizer of the Python subset that FX prints. One pass over character codes, one token at a
 * time, no token objects: the fields `kind`, `start` and `end` describe the current token. Newlines
 * count only outside brackets.
 */

import { defined } from '../../defined.ts';
import { ShardwrightError } from '../../errors.ts';
import { CHAR, isDigit, isLetter } from '../../text/char.ts';
import { MAX_DEPTH, MAX_NAME, placeAt } from '../../text/place.ts';

/** The way out where a text has a complex number. */
const COMPLEX =
  'write it as a tensor, torch.ops.aten.complex.default(re, im) of two aten.full; capture of the ' +
  'Python package does.';

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
  if (isLetter(c) || c === CHAR.UNDERSCORE) CLASS[c] = 1;
  else if (isDigit(c)) CLASS[c] = 2;
  else if (c === CHAR.SPACE || c === CHAR.TAB || c === CHAR.RETURN || c === CHAR.FORM_FEED)
    CLASS[c] = 3;
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
      if (cls === 1) return this.name(pos);
      if (c === CHAR.NEWLINE) {
        const at = pos++;
        this.line++;
        this.lineStart = pos;
        // An empty line ends no statement, and neither does a line inside brackets.
        if (this.depth > 0 || this.kind === NEWLINE) continue;
        this.start = at;
        this.end = pos;
        return (this.kind = NEWLINE);
      }
      if (c === CHAR.HASH) {
        pos = this.comment(pos);
        continue;
      }
      this.start = pos;
      if (cls === 2 || (c === CHAR.DOT && isDigit(text.charCodeAt(pos + 1))))
        return this.number(pos);
      if (c === CHAR.QUOTE || c === CHAR.APOSTROPHE) return this.string(pos, c);
      return this.punctuation(pos, c);
    }
  }

  private name(from: number): number {
    const { text, limit } = this;
    let pos = from;
    do pos++;
    while (pos < limit && isNamePart(text.charCodeAt(pos)));
    this.start = from;
    this.end = pos;
    if (pos - from > MAX_NAME)
      this.fail('E_LIMIT', `a name of ${pos - from} characters; at most ${MAX_NAME} are allowed`);
    return (this.kind = NAME);
  }

  /** Notes a comment and returns where it ends. */
  private comment(from: number): number {
    const stop = this.text.indexOf('\n', from);
    this.commentStart = from;
    this.commentEnd = stop < 0 || stop > this.limit ? this.limit : stop;
    if (this.kind === NEWLINE && this.depth === 0) this.loneComment = from;
    return this.commentEnd;
  }

  private number(from: number): number {
    const { text } = this;
    let pos = from;
    let kind = INTEGER;
    while (isDigit(text.charCodeAt(pos))) pos++;
    if (text.charCodeAt(pos) === CHAR.DOT) {
      kind = FLOAT;
      pos++;
      while (isDigit(text.charCodeAt(pos))) pos++;
    }
    const e = text.charCodeAt(pos);
    if (e === 101 || e === 69) {
      const sign = text.charCodeAt(pos + 1);
      let digits = sign === CHAR.PLUS || sign === CHAR.MINUS ? pos + 2 : pos + 1;
      if (isDigit(text.charCodeAt(digits))) {
        kind = FLOAT;
        while (isDigit(text.charCodeAt(digits))) digits++;
        pos = digits;
      }
    }
    this.end = pos;
    if (pos < this.limit && isNamePart(text.charCodeAt(pos))) {
      const found = text.slice(from, pos + 1);
      if (found.endsWith('j') && !isNamePart(text.charCodeAt(pos + 1)))
        this.fail('E_UNSUPPORTED', `the complex number ${found}`, from, COMPLEX);
      this.fail('E_SYNTAX', `expected a number, found '${found}'`, pos);
    }
    return (this.kind = kind);
  }

  private string(from: number, quote: number): number {
    const { text, limit } = this;
    let pos = from + 1;
    for (;;) {
      const c = pos < limit ? text.charCodeAt(pos) : CHAR.NEWLINE;
      if (c === quote) break;
      if (c === CHAR.BACKSLASH) pos++;
      else if (c === CHAR.NEWLINE)
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
      case CHAR.OPEN_PAREN:
      case CHAR.OPEN_BRACKET:
      case CHAR.OPEN_BRACE:
        if (++this.depth > MAX_DEPTH)
          this.fail(
            'E_LIMIT',
            `brackets nest deeper than ${MAX_DEPTH}`,
            pos,
            'no graph needs this; check that the text is a graph',
          );
        return (this.kind = c);
      case CHAR.CLOSE_PAREN:
      case CHAR.CLOSE_BRACKET:
      case CHAR.CLOSE_BRACE:
        if (--this.depth < 0) this.fail('E_SYNTAX', `'${text[pos]}' closes no bracket`, pos);
        return (this.kind = c);
      case CHAR.COMMA:
      case CHAR.COLON:
      case CHAR.SEMICOLON:
      case CHAR.DOT:
        return (this.kind = c);
      default:
        break;
    }
    const d = text.charCodeAt(pos + 1);
    // ** // << >> == != <= >= += -= *= /= %= @= &= |= ^= ->
    const doubled =
      d === c && (c === CHAR.STAR || c === CHAR.SLASH || c === CHAR.LESS || c === CHAR.GREATER);
    const withEquals = d === CHAR.EQUALS && '=!<>+-*/%@&|^'.includes(text.charAt(pos));
    if (doubled || withEquals || (c === CHAR.MINUS && d === CHAR.GREATER)) {
      this.end = pos + 2;
      if (doubled && text.charCodeAt(pos + 2) === CHAR.EQUALS) this.end++;
      return (this.kind = OPERATOR);
    }
    if (!'=+-*/%@<>&|^~'.includes(text.charAt(pos)))
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

function isNamePart(c: number): boolean {
  return c < 128 ? CLASS[c] === 1 || CLASS[c] === 2 : true;
}
