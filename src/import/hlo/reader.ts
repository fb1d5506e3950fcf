/** Tokenizer of HLO text: names, types with layouts, and attribute values as ranges of the text. */

import { internalError } from '../../errors.ts';
import { CHAR, isDigit, isLetterOrDigit } from '../../text/char.ts';
import { MAX_DEPTH } from '../../text/place.ts';
import { type Bracket, TextReader } from '../../text/reader.ts';
import type { HloType, Span } from './syntax.ts';

const MAX_RANK = 64;
const MAX_ATTRIBUTES = 1000;

/** Bits of an element; HLO's names. `token` and `opaque` hold no data. */
const ELEMENT_BITS: Readonly<Record<string, number>> = {
  pred: 8,
  s1: 1,
  s2: 2,
  s4: 4,
  s8: 8,
  s16: 16,
  s32: 32,
  s64: 64,
  u1: 1,
  u2: 2,
  u4: 4,
  u8: 8,
  u16: 16,
  u32: 32,
  u64: 64,
  f16: 16,
  bf16: 16,
  f32: 32,
  f64: 64,
  c64: 64,
  c128: 128,
  f4e2m1fn: 4,
  f8e3m4: 8,
  f8e4m3: 8,
  f8e4m3fn: 8,
  f8e4m3fnuz: 8,
  f8e4m3b11fnuz: 8,
  f8e5m2: 8,
  f8e5m2fnuz: 8,
  f8e8m0fnu: 8,
  token: 0,
  opaque: 0,
};

/** Bits of an element whose type the reader took. */
export function elementBits(element: string): number {
  const bits = ELEMENT_BITS[element];
  if (bits === undefined) throw internalError(`an element type '${element}' was read`);
  return bits;
}

export class HloReader extends TextReader {
  protected override readonly advice =
    'check the text against what XLA dumped (--xla_dump_hlo_as_text); it may be cut or edited';
  protected override readonly comment = '//';

  /** Letter, digit, `_`, `.` or `-`. */
  protected override isWordCode(c: number): boolean {
    return isLetterOrDigit(c) || c === CHAR.UNDERSCORE || c === CHAR.DOT || c === CHAR.MINUS;
  }

  within(span: Span): HloReader {
    return new HloReader(this.text, this.file, span.from, span.to);
  }

  /** Comments are between slashes and stars, as in long tuples. */
  override skip(): void {
    for (;;) {
      super.skip();
      if (!this.text.startsWith('/*', this.pos) || this.pos >= this.end) return;
      const close = this.text.indexOf('*/', this.pos + 2);
      if (close < 0 || close >= this.end) this.fail('the comment is never closed');
      this.pos = close + 2;
    }
  }

  /** A name, with or without `%` before it. */
  name(what: string): string {
    this.accept('%');
    this.skip();
    const start = this.pos;
    const end = this.wordEnd(start);
    if (end === start) this.expected(what);
    this.pos = end;
    return this.text.slice(start, end);
  }

  integer(what: string): number {
    this.skip();
    const start = this.pos;
    let at = start;
    while (at < this.end && isDigit(this.text.charCodeAt(at))) at++;
    if (at === start) this.expected(what);
    this.checkLength(start, at);
    const value = Number(this.text.slice(start, at));
    if (!Number.isSafeInteger(value)) this.fail(`${what} is beyond 2^53`, start, 'E_LIMIT');
    this.pos = at;
    return value;
  }

  /** `f32[8,64]{1,0}`, `(f32[8], s32[])`, `token[]`; layouts are skipped. */
  type(): HloType {
    if (this.peek('('))
      return this.nested(() => ({ kind: 'tuple', items: this.list('(', ')', () => this.type()) }));
    this.skip();
    const at = this.pos;
    const element = this.name('a type such as f32[8,64]');
    if (!Object.hasOwn(ELEMENT_BITS, element))
      throw this.error(
        'E_TYPE',
        `'${element}' is not an element type of HLO`,
        at,
        `known ones: ${Object.keys(ELEMENT_BITS).join(', ')}`,
      );
    const shape = this.list('[', ']', () => {
      // `<=8` is a size that is at most 8 at run time.
      this.accept('<=');
      return this.integer('a size');
    });
    if (shape.length > MAX_RANK)
      this.fail(`more than ${MAX_RANK} dims`, at, 'E_LIMIT', 'no tensor has so many dims');
    // A layout follows at once; a brace behind a blank opens a computation.
    if (this.text[this.pos] === '{' && this.pos < this.end) this.brackets(true);
    return { kind: 'tensor', element, shape };
  }

  /**
   * `key=value, key=value`: values as ranges, each up to the comma before the next key or the end
   * of the line.
   */
  attributes(): Map<string, Span> {
    const out = new Map<string, Span>();
    while (this.accept(',')) {
      this.skip();
      const at = this.pos;
      const key = this.name('the name of an attribute');
      if (out.has(key))
        this.fail(`attribute '${key}' is given twice`, at, 'E_DUP', 'keep one of them');
      if (out.size >= MAX_ATTRIBUTES)
        this.fail(`more than ${MAX_ATTRIBUTES} attributes`, at, 'E_LIMIT');
      this.expect('=');
      this.skip();
      const from = this.pos;
      this.value();
      // The order of the devices belongs to the mesh before it.
      if (
        this.text.startsWith('mesh[', from) &&
        /^,\s{0,8}device_ids=/.test(this.text.slice(this.pos, this.pos + 24))
      ) {
        this.pos++;
        this.value();
      }
      if (this.pos === from) this.expected(`the value of ${key}`);
      out.set(key, { from, to: this.pos });
    }
    return out;
  }

  /** To the comma, line or bracket that ends a value. */
  private value(): void {
    for (; this.pos < this.end; this.pos++) {
      const c = this.text[this.pos];
      if (c === ',' || c === '\n') return;
      if (c === ')' || c === ']' || c === '}') {
        // The bracket that ends a computation is on its own line.
        if (c === '}' && /\s/.test(this.text.charAt(this.pos - 1))) return;
        this.fail(`'${c}' closes no bracket`);
      }
      if (c === '"') {
        this.quoted();
        this.pos--;
      } else if (c === '{' || c === '[' || c === '(') {
        this.brackets(true);
        this.pos--;
      }
    }
  }

  /** Over a text in quotes. */
  private quoted(): void {
    const start = this.pos;
    for (this.pos++; this.pos < this.end; this.pos++) {
      const c = this.text[this.pos];
      if (c === '\\') this.pos++;
      else if (c === '\n') break;
      else if (c === '"') {
        this.pos++;
        return;
      }
    }
    this.fail(
      'the string has no closing quote',
      start,
      'E_SYNTAX',
      'the text seems to be cut here',
    );
  }

  /**
   * Skips from the bracket at the position to the place after its counterpart; attributes are on
   * one line.
   */
  brackets(onOneLine = false): void {
    const start = this.pos;
    const open: Bracket[] = [];
    for (; this.pos < this.end; this.pos++) {
      const c = this.text[this.pos];
      if (c === '\n' && onOneLine) break;
      if (c === '"') {
        this.quoted();
        this.pos--;
      } else if (c === '{' || c === '[' || c === '(') {
        open.push({ mark: c, at: this.pos });
        if (open.length > MAX_DEPTH)
          this.fail(
            `brackets nest deeper than ${MAX_DEPTH}`,
            this.pos,
            'E_LIMIT',
            'no program needs this',
          );
      } else if (c === '}' || c === ']' || c === ')') {
        this.closeBracket(open, c);
        if (open.length === 0) {
          this.pos++;
          return;
        }
      }
    }
    this.fail(
      `the bracket '${this.text[start]}' is never closed`,
      start,
      'E_SYNTAX',
      'the text seems to be cut',
    );
  }
}
