/** Splits MLIR text into tokens with positions for errors. */

import { exactInteger } from '../../../graph/text/token.ts';
import { CHAR, isDigit, isLetterOrDigit } from '../../../text/char.ts';
import { MAX_DEPTH } from '../../../text/place.ts';
import { type Bracket, TextReader } from '../../../text/reader.ts';
import type { MlirTensor } from './syntax.ts';

/**
 * Tokenizer of MLIR text: names with sigils, strings, numbers and balanced bodies of dialect
 * attributes.
 */
export class MlirReader extends TextReader {
  protected override readonly advice =
    'check the text against what the compiler printed; it may be cut or edited';
  protected override readonly comment = '//';
  /** Tensor types by their text, one object each; of the whole text, parts included. */
  readonly tensorTypes: Map<string, MlirTensor>;

  constructor(
    text: string,
    file: string | undefined,
    from?: number,
    end?: number,
    whole?: MlirReader,
  ) {
    super(text, file, from, end);
    this.tensorTypes = whole?.tensorTypes ?? new Map<string, MlirTensor>();
  }

  /** Letter, digit, `_`, `$` or `.`. */
  protected override isWordCode(c: number): boolean {
    return isLetterOrDigit(c) || c === CHAR.UNDERSCORE || c === CHAR.DOLLAR || c === CHAR.DOT;
  }

  /** A reader of a part of the text, for bodies of dialect attributes; errors keep their place. */
  within(span: { readonly from: number; readonly to: number }): MlirReader {
    return new MlirReader(this.text, this.file, span.from, span.to, this);
  }

  /**
   * Reads a bare name with dots, `stablehlo.add`; undefined, and nothing read, where there is none.
   */
  wordHere(): string | undefined {
    this.skip();
    const start = this.pos;
    const c = this.text.charCodeAt(start);
    if (start >= this.end || !this.isWordCode(c) || isDigit(c) || c === CHAR.DOT) return undefined;
    this.pos = this.wordEnd(start);
    return this.text.slice(start, this.pos);
  }

  word(what: string): string {
    return this.wordHere() ?? this.expected(what);
  }

  /**
   * Reads the name after one of `%`, `^`, `@`, `#`, `!`: a bare name (digits too), or a string
   * after `@`.
   */
  sigil(mark: '%' | '^' | '@' | '#' | '!', what: string): string {
    if (!this.accept(mark)) this.expected(what);
    const start = this.pos;
    if (mark === '@' && this.text.charCodeAt(start) === CHAR.QUOTE) return this.string(what);
    const end = this.wordEnd(start);
    if (end === start) this.expected(`a name after '${mark}'`);
    this.pos = end;
    return this.text.slice(start, end);
  }

  /** A string with MLIR's escapes: `\n`, `\t`, `\"`, `\\` and two hexadecimal digits. */
  string(what: string): string {
    this.skip();
    const start = this.pos;
    if (this.text.charCodeAt(start) !== CHAR.QUOTE || start >= this.end) this.expected(what);
    let at = start + 1;
    let plain = true;
    for (;;) {
      const c = at < this.end ? this.text.charCodeAt(at) : CHAR.NEWLINE;
      if (c === CHAR.QUOTE) break;
      if (c === CHAR.NEWLINE)
        this.fail(
          'the string has no closing quote',
          start,
          'E_SYNTAX',
          'the text seems to be cut here',
        );
      if (c === CHAR.BACKSLASH) {
        plain = false;
        at++;
      }
      at++;
    }
    this.pos = at + 1;
    const raw = this.text.slice(start + 1, at);
    return plain ? raw : this.unescape(raw, start + 1);
  }

  private unescape(raw: string, from: number): string {
    let out = '';
    for (let i = 0; i < raw.length; i++) {
      if (raw[i] !== '\\') {
        out += raw[i];
        continue;
      }
      const next = raw.charAt(i + 1);
      const simple = { n: '\n', t: '\t', '"': '"', '\\': '\\' }[next];
      if (simple !== undefined) {
        out += simple;
        i++;
      } else if (/^[0-9A-Fa-f]{2}$/.test(raw.slice(i + 1, i + 3))) {
        out += String.fromCharCode(Number.parseInt(raw.slice(i + 1, i + 3), 16));
        i += 2;
      } else
        this.fail(
          `'\\${next ?? ''}' is not an escape`,
          from + i,
          'E_SYNTAX',
          'write \\22 for a quote, \\5C for a backslash',
        );
    }
    return out;
  }

  /** Tells whether a number (with its sign) is at the position. */
  peekNumber(): boolean {
    this.skip();
    const c = this.text.charCodeAt(this.pos);
    const first = c === CHAR.MINUS ? this.text.charCodeAt(this.pos + 1) : c;
    return this.pos < this.end && isDigit(first);
  }

  /**
   * A decimal, hexadecimal or floating-point number; `float` tells the last two apart from
   * integers.
   */
  number(): { readonly text: string; readonly form: 'int' | 'hex' | 'float' } {
    if (!this.peekNumber()) this.expected('a number');
    const start = this.pos;
    const { text, end } = this;
    let at = text[start] === '-' ? start + 1 : start;
    if (text[at] === '0' && text[at + 1] === 'x' && isHex(text.charCodeAt(at + 2))) {
      at += 2;
      while (at < end && isHex(text.charCodeAt(at))) at++;
      this.pos = at;
      return { text: text.slice(start, at), form: 'hex' };
    }
    const digits = (): void => {
      while (at < end && isDigit(text.charCodeAt(at))) at++;
    };
    digits();
    let form: 'int' | 'float' = 'int';
    if (text[at] === '.' && at < end) {
      form = 'float';
      at++;
      digits();
    }
    const exponent = /^[eE][-+]?\d+/.exec(text.slice(at, Math.min(end, at + 12)));
    if (exponent !== null && form === 'float') at += exponent[0].length;
    this.checkLength(start, at);
    this.pos = at;
    return { text: text.slice(start, at), form };
  }

  integer(what: string): number | bigint {
    this.skip();
    const start = this.pos;
    if (!this.peekNumber()) this.expected(what);
    const { text, form } = this.number();
    if (form === 'float') this.fail(`expected ${what}, found '${text}'`, start);
    return form === 'hex' ? exactInteger(String(BigInt(text))) : exactInteger(text);
  }

  /** An integer that counts something: exact and in range. */
  size(what: string): number {
    this.skip();
    const start = this.pos;
    const value = this.integer(what);
    if (typeof value === 'bigint') this.fail(`${what}: ${value} is beyond 2^53`, start, 'E_LIMIT');
    return value;
  }

  /** Reads the range up to the bracket that closes the `<` before the reader, and moves past it. */
  balanced(): Span {
    const from = this.pos;
    const open: Bracket[] = [{ mark: '<', at: from - 1 }];
    for (; this.pos < this.end; this.pos++) {
      const c = this.text[this.pos];
      if (c === '"') {
        this.string('a string');
        this.pos--;
      } else if (c === '-' && this.text[this.pos + 1] === '>') this.pos++;
      else if (c === '<' || c === '[' || c === '(' || c === '{') {
        open.push({ mark: c, at: this.pos });
        if (open.length > MAX_DEPTH)
          this.fail(`brackets nest deeper than ${MAX_DEPTH}`, this.pos, 'E_LIMIT');
      } else if (c === '>' || c === ']' || c === ')' || c === '}') {
        this.closeBracket(open, c);
        if (open.length === 0) return { from, to: this.pos++ };
      }
    }
    return this.fail(
      `the bracket '<' is never closed`,
      from,
      'E_SYNTAX',
      'the text seems to be cut',
    );
  }
}

interface Span {
  readonly from: number;
  readonly to: number;
}

function isHex(c: number): boolean {
  return isDigit(c) || (c >= 65 && c <= 70) || (c >= 97 && c <= 102);
}
