import { ShardwrightError } from '../../errors.ts';
import { exactInteger } from '../../graph/token.ts';
import { excerptAt, positionAt } from '../fx/scan.ts';

/**
 * Tokenizer of MLIR text: reads one token where it is asked for one, by character codes. Blanks and `//` comments count
 * nowhere but inside strings. Nesting is counted here, so that no text can exhaust the stack.
 */

const MAX_NAME = 4096;
const MAX_DEPTH = 256;

export class MlirReader {
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

  /** A reader of a part of the text, for bodies of dialect attributes; errors keep their place. */
  within(span: { readonly from: number; readonly to: number }): MlirReader {
    return new MlirReader(this.text, this.file, span.from, span.to);
  }

  error(code: string, message: string, at: number, hint?: string, node?: string): ShardwrightError {
    return new ShardwrightError(code, message, {
      ...(this.file !== undefined ? { file: this.file } : {}),
      position: positionAt(this.text, at),
      excerpt: excerptAt(this.text, at),
      ...(node !== undefined ? { node } : {}),
      hint: hint ?? 'check the text against what the compiler printed; it may be cut or edited',
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
    const word = /^[%@#^!]?[\w$.]+|^./.exec(this.text.slice(this.pos, Math.min(this.end, this.pos + 40)));
    return `'${word?.[0] ?? this.text[this.pos]}'`;
  }

  /** Runs `read` one level deeper. @throws E_LIMIT at depth 256 */
  nested<T>(read: () => T): T {
    if (++this.depth > MAX_DEPTH)
      this.fail(`brackets and regions nest deeper than ${MAX_DEPTH}`, this.pos, 'E_LIMIT', 'no program needs this');
    try {
      return read();
    } finally {
      this.depth--;
    }
  }

  /** Moves behind blanks and comments. */
  skip(): void {
    const { text, end } = this;
    for (;;) {
      const c = text.charCodeAt(this.pos);
      if (this.pos >= end) {
        this.pos = end;
        return;
      }
      if (c === 32 || c === 10 || c === 13 || c === 9) this.pos++;
      else if (c === 47 && text.charCodeAt(this.pos + 1) === 47) {
        const stop = text.indexOf('\n', this.pos);
        this.pos = stop < 0 ? end : Math.min(stop, end);
      } else return;
    }
  }

  atEnd(): boolean {
    this.skip();
    return this.pos >= this.end;
  }

  /** Whether `token` (punctuation) stands here. */
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

  /** Whether the word stands here as a whole. */
  peekWord(word: string): boolean {
    return this.peek(word) && !isWordCode(this.text.charCodeAt(this.pos + word.length));
  }

  acceptWord(word: string): boolean {
    if (!this.peekWord(word)) return false;
    this.pos += word.length;
    return true;
  }

  expectWord(word: string): void {
    if (!this.acceptWord(word)) this.expected(`'${word}'`);
  }

  /** A bare name with dots, `stablehlo.add`; undefined, and nothing read, where none stands. */
  wordHere(): string | undefined {
    this.skip();
    const start = this.pos;
    const c = this.text.charCodeAt(start);
    if (start >= this.end || !isWordCode(c) || (c >= 48 && c <= 57) || c === 46) return undefined;
    let at = start + 1;
    while (at < this.end && isWordCode(this.text.charCodeAt(at))) at++;
    this.checkLength(start, at);
    this.pos = at;
    return this.text.slice(start, at);
  }

  word(what: string): string {
    return this.wordHere() ?? this.expected(what);
  }

  private checkLength(from: number, to: number): void {
    if (to - from > MAX_NAME)
      this.fail(`a name of ${to - from} characters; at most ${MAX_NAME} are allowed`, from, 'E_LIMIT');
  }

  /** What follows one of `%`, `^`, `@`, `#`, `!`: a bare name (digits too), or a string after `@`. */
  sigil(mark: '%' | '^' | '@' | '#' | '!', what: string): string {
    if (!this.accept(mark)) this.expected(what);
    const start = this.pos;
    if (mark === '@' && this.text.charCodeAt(start) === 34) return this.string(what);
    let at = start;
    while (at < this.end && isWordCode(this.text.charCodeAt(at))) at++;
    if (at === start) this.expected(`a name after '${mark}'`);
    this.checkLength(start, at);
    this.pos = at;
    return this.text.slice(start, at);
  }

  /** A string with MLIR's escapes: `\n`, `\t`, `\"`, `\\` and two hexadecimal digits. */
  string(what: string): string {
    this.skip();
    const start = this.pos;
    if (this.text.charCodeAt(start) !== 34 || start >= this.end) this.expected(what);
    let at = start + 1;
    let plain = true;
    for (;;) {
      const c = at < this.end ? this.text.charCodeAt(at) : 10;
      if (c === 34) break;
      if (c === 10) this.fail('the string has no closing quote', start, 'E_SYNTAX', 'the text seems to be cut here');
      if (c === 92) {
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
      const next = raw[i + 1];
      const simple = { n: '\n', t: '\t', '"': '"', '\\': '\\' }[next];
      if (simple !== undefined) {
        out += simple;
        i++;
      } else if (/^[0-9A-Fa-f]{2}$/.test(raw.slice(i + 1, i + 3))) {
        out += String.fromCharCode(Number.parseInt(raw.slice(i + 1, i + 3), 16));
        i += 2;
      } else
        this.fail(
          `'\\${next ?? ''}' is no escape`,
          from + i,
          'E_SYNTAX',
          'write \\22 for a quote, \\5C for a backslash',
        );
    }
    return out;
  }

  /** Whether a number (with its sign) stands here. */
  peekNumber(): boolean {
    this.skip();
    const c = this.text.charCodeAt(this.pos);
    const first = c === 45 ? this.text.charCodeAt(this.pos + 1) : c;
    return this.pos < this.end && first >= 48 && first <= 57;
  }

  /** A decimal, hexadecimal or floating-point number; `float` tells the last two apart from integers. */
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
      while (at < end && text.charCodeAt(at) >= 48 && text.charCodeAt(at) <= 57) at++;
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

  /** The range up to the bracket that closes `<`, which stands before the reader; moves behind it. */
  balanced(): Span {
    const from = this.pos;
    const open: string[] = ['<'];
    for (; this.pos < this.end; this.pos++) {
      const c = this.text[this.pos];
      if (c === '"') {
        this.string('a string');
        this.pos--;
      } else if (c === '-' && this.text[this.pos + 1] === '>') this.pos++;
      else if (c === '<' || c === '[' || c === '(' || c === '{') {
        open.push(c);
        if (open.length > MAX_DEPTH) this.fail(`brackets nest deeper than ${MAX_DEPTH}`, this.pos, 'E_LIMIT');
      } else if (c === '>' || c === ']' || c === ')' || c === '}') {
        const want = { '<': '>', '[': ']', '(': ')', '{': '}' }[open.pop() ?? ''];
        if (want !== c) this.fail(`expected '${want ?? ''}', found '${c}'`);
        if (open.length === 0) return { from, to: this.pos++ };
      }
    }
    return this.fail(`the bracket '<' is never closed`, from, 'E_SYNTAX', 'the text seems to be cut');
  }
}

interface Span {
  readonly from: number;
  readonly to: number;
}

function isHex(c: number): boolean {
  return (c >= 48 && c <= 57) || (c >= 65 && c <= 70) || (c >= 97 && c <= 102);
}

/** Letter, digit, `_`, `$` or `.`. */
function isWordCode(c: number): boolean {
  return (c >= 97 && c <= 122) || (c >= 65 && c <= 90) || (c >= 48 && c <= 57) || c === 95 || c === 36 || c === 46;
}
