/**
 * Parser of jaxpr text. `in` and `let` are also names of variables: the keyword `in` is followed by
 * `(`. Lists of binders and operands wrap over lines, so an equation ends where a binder, a `;`, or
 * a line that is not indented deeper begins.
 */

import { defined } from '../../../defined.ts';
import { suggestion } from '../../../errors.ts';
import type { DType, TensorType } from '../../../graph/types.ts';
import { tensorType } from '../../../graph/value.ts';
import { CHAR, isDigit, isLetterOrDigit } from '../../../text/char.ts';
import { MAX_DEPTH } from '../../../text/place.ts';
import { type Bracket, TextReader } from '../../../text/reader.ts';
import { COMPLEX, LITERAL, scalarValue } from './scalar.ts';
import type { Atom, Equation, Jaxpr, Parameter, Variable } from './syntax.ts';

const MAX_EQUATIONS = 2_000_000;
const MAX_RANK = 64;

const JAX_DTYPES: Readonly<Record<string, DType>> = {
  f64: 'f64',
  f32: 'f32',
  bf16: 'bf16',
  f16: 'f16',
  i64: 'i64',
  i32: 'i32',
  i16: 'i16',
  i8: 'i8',
  u64: 'u64',
  u32: 'u32',
  u16: 'u16',
  u8: 'u8',
  bool: 'b8',
  c64: 'c64',
  c128: 'c128',
  f8_e4m3fn: 'f8e4m3fn',
  float8_e4m3fn: 'f8e4m3fn',
  f8_e5m2: 'f8e5m2',
  float8_e5m2: 'f8e5m2',
  f8_e8m0fnu: 'f8e8m0fnu',
  float8_e8m0fnu: 'f8e8m0fnu',
};
/** Words of a random key, by implementation. */
const KEYS: Readonly<Record<string, number>> = { fry: 2, rbg: 4, urbg: 4 };
export const KEY_WORDS: ReadonlySet<number> = new Set(Object.values(KEYS));

/** @throws E_SYNTAX, E_REF, E_DUP, E_UNSUPPORTED, E_LIMIT, each with line and column */
export function parseJaxpr(
  text: string,
  file?: string,
): { readonly root: Jaxpr; readonly parser: JaxprParser } {
  const parser = new JaxprParser(text, file);
  return { root: parser.program(), parser };
}

export class JaxprParser extends TextReader {
  protected override readonly advice =
    'check the text against str(jax.make_jaxpr(f)(...)); StableHLO text is the more stable form';
  protected override readonly comment = '#';
  /** Mesh axes that the types of the text name, as in `f32[8,64@tp]`. */
  readonly axes = new Set<string>();
  private equations = 0;
  private readonly named = new Map<string, Jaxpr>();
  /** Parameters that name jaxprs, and the named jaxpr that contains them. */
  private readonly references: { from: string; name: string; at: number; bodies: Jaxpr[] }[] = [];
  private within = '';
  private readonly types = new Map<string, TensorType>();

  protected override isWordCode(c: number): boolean {
    return isLetterOrDigit(c) || c === CHAR.UNDERSCORE;
  }

  /** `let NAME = jaxpr in ... jaxpr`. */
  program(): Jaxpr {
    for (;;) {
      if (!this.acceptWord('let')) break;
      this.skip();
      const at = this.pos;
      const name = this.name('the name of a jaxpr');
      if (this.named.has(name)) this.fail(`jaxpr '${name}' is defined twice`, at, 'E_DUP');
      this.expect('=');
      this.within = name;
      this.named.set(name, this.jaxpr());
      this.expectWord('in');
    }
    this.within = '';
    const root = this.jaxpr();
    if (!this.atEnd()) this.expected('the end of the text');
    this.resolve();
    return root;
  }

  /**
   * Inserts the bodies that are named before they appear: JAX prints a caller before its callee.
   */
  private resolve(): void {
    const called = new Map<string, Set<string>>();
    for (const { from, name, at, bodies } of this.references) {
      const found = this.named.get(name);
      if (found === undefined) continue;
      bodies[at] = found;
      called.set(from, (called.get(from) ?? new Set()).add(name));
    }
    // Whatever is not a jaxpr is for the primitive to refuse.
    for (const { name, bodies } of this.references) if (!this.named.has(name)) bodies.length = 0;
    this.refuseCycles(called);
  }

  private refuseCycles(called: ReadonlyMap<string, ReadonlySet<string>>): void {
    const state = new Map<string, 'open' | 'done'>();
    const visit = (name: string): void => {
      if (state.get(name) === 'done') return;
      if (state.get(name) === 'open')
        this.fail(
          `jaxpr '${name}' calls itself`,
          this.named.get(name)?.at,
          'E_REF',
          'a jaxpr has no recursion',
        );
      state.set(name, 'open');
      for (const next of called.get(name) ?? []) visit(next);
      state.set(name, 'done');
    };
    for (const name of called.keys()) visit(name);
  }

  // ---- tokens
  // ---------------------------------------------------------------------------

  /** End of the name that starts here; the position itself where none does. */
  private nameEnd(from: number, hyphens = false): number {
    const first = this.text.charCodeAt(from);
    if (!this.isWordCode(first) || isDigit(first)) return from;
    let at = this.wordEnd(from);
    while (hyphens && this.text[at] === '-') at = this.wordEnd(at + 1);
    this.checkLength(from, at);
    return at;
  }

  private name(what: string, hyphens = false): string {
    this.skip();
    const end = this.nameEnd(this.pos, hyphens);
    if (end === this.pos) this.expected(what);
    const name = this.text.slice(this.pos, end);
    this.pos = end;
    return name;
  }

  // ---- jaxprs
  // ---------------------------------------------------------------------------

  private jaxpr(): Jaxpr {
    return this.nested(() => this.oneJaxpr());
  }

  private oneJaxpr(): Jaxpr {
    this.skip();
    const at = this.pos;
    this.expect('{');
    this.expectWord('lambda');
    const constants = this.binders(';');
    this.expect(';');
    const inputs = this.binders('.');
    this.expect('.');
    this.expectWord('let');
    const equations: Equation[] = [];
    for (;;) {
      this.accept(';');
      this.skip();
      if (this.endsHere()) break;
      equations.push(this.equation());
    }
    this.pos += 2;
    this.expect('(');
    const outputs: Atom[] = [];
    while (!this.accept(')')) {
      outputs.push(this.atom());
      if (!this.accept(',') && !this.text.startsWith(')', this.skipTo()))
        this.expected(`',' or ')'`);
    }
    this.expect('}');
    return { at, constants, inputs, equations, outputs };
  }

  private skipTo(): number {
    this.skip();
    return this.pos;
  }

  /** Tells whether the keyword `in` before the list of outputs follows. */
  private endsHere(): boolean {
    return this.peekWord('in') && /^in\s*\(/.test(this.text.slice(this.pos, this.pos + 200));
  }

  private binders(stop: string): Variable[] {
    const out: Variable[] = [];
    for (;;) {
      this.skip();
      if (this.text[this.pos] === stop || this.nameEnd(this.pos) === this.pos) return out;
      out.push(this.binder());
    }
  }

  private binder(): Variable {
    this.skip();
    const at = this.pos;
    const name = this.name('a variable');
    this.expect(':');
    return { name, at, ...this.type() };
  }

  /** Tells whether a name with a type starts here. */
  private binderHere(): boolean {
    const end = this.nameEnd(this.pos);
    return end > this.pos && this.text[end] === ':';
  }

  private equation(): Equation {
    if (++this.equations > MAX_EQUATIONS)
      this.fail(
        `more than ${MAX_EQUATIONS} equations`,
        this.pos,
        'E_LIMIT',
        'import a smaller part of the program',
      );
    const start = this.pos;
    const results: Variable[] = [];
    while (this.binderHere()) {
      results.push(this.binder());
      this.skip();
    }
    if (results.length > 0) this.expect('=');
    this.skip();
    const at = this.pos;
    const primitive = this.name('a primitive', true);
    const parameters =
      this.text[this.pos] === '[' ? this.parameters() : new Map<string, Parameter>();
    return {
      primitive,
      at,
      results,
      parameters,
      operands: this.operands(column(this.text, start)),
    };
  }

  /** Atoms up to the next equation. */
  private operands(indent: number): Atom[] {
    const out: Atom[] = [];
    for (;;) {
      const before = this.pos;
      this.skip();
      const c = this.text[this.pos];
      if (c === undefined || c === ';' || c === '}' || this.endsHere()) return out;
      const newLine = this.text.slice(before, this.pos).includes('\n');
      if (newLine && column(this.text, this.pos) <= indent) return out;
      // `nan:f32[]` is a literal here; a result of that name would start a line.
      if (
        this.binderHere() &&
        !/^(True|False|inf|nan):/.test(this.text.slice(this.pos, this.pos + 6))
      )
        return out;
      const end = this.nameEnd(this.pos, true);
      // A primitive without results starts with its parameters.
      if (end > this.pos && this.text[end] === '[') return out;
      out.push(this.atom());
    }
  }

  private atom(): Atom {
    this.skip();
    const at = this.pos;
    const ahead = this.text.slice(at, at + 80);
    const found = COMPLEX.exec(ahead) ?? LITERAL.exec(ahead);
    if (found !== null && !this.isWordCode(this.text.charCodeAt(at + found[0].length))) {
      const word = found[0];
      if (this.text[at + word.length] === ':') {
        this.pos = at + word.length + 1;
        const { type } = this.type();
        return { kind: 'literal', at, type, value: scalarValue(word, type.dtype) };
      }
      if (/^[-\d]/.test(word)) this.expected(`a type behind the literal, as in 2.0:f32[]`);
    }
    return { kind: 'variable', at, name: this.name('a variable or a literal') };
  }

  // ---- types
  // ---------------------------------------------------------------------------

  /** `f32[8,64]`, with shardings (`8@data`) and varying axes (`{V:data}`) left out. */
  private type(): Pick<Variable, 'type' | 'key'> {
    this.skip();
    const at = this.pos;
    const word = this.name('a type');
    let tail: number | undefined;
    let implementation: string | undefined;
    if (this.text[this.pos] === '<') {
      const close = this.text.indexOf('>', this.pos);
      const kind = this.text.slice(this.pos + 1, close < 0 ? this.pos + 1 : close);
      if (word !== 'key' || !Object.hasOwn(KEYS, kind))
        this.fail(`type '${word}<${kind.slice(0, 20)}>' is not supported`, at, 'E_UNSUPPORTED');
      tail = KEYS[kind];
      implementation = kind;
      this.pos = close + 1;
    } else if (word === 'Ref' || word === 'MemRef')
      this.fail('a mutable reference', at, 'E_UNSUPPORTED', 'a plan needs a functional program');
    const dtype =
      tail !== undefined ? 'u32' : Object.hasOwn(JAX_DTYPES, word) ? JAX_DTYPES[word] : undefined;
    if (dtype === undefined)
      throw this.error(
        'E_TYPE',
        `'${word}' is not a dtype`,
        at,
        suggestion(word, Object.keys(JAX_DTYPES), 'dtypes'),
      );
    const shape = this.sizes();
    if (tail !== undefined) shape.push(tail);
    if (this.text[this.pos] === '*') this.pos++;
    if (this.text[this.pos] === '{') {
      const close = this.text.indexOf('}', this.pos);
      if (close < 0) this.fail(`'{' is never closed`);
      this.pos = close + 1;
    }
    const key = `${dtype}[${shape.join()}]`;
    let made = this.types.get(key);
    if (made === undefined) this.types.set(key, (made = tensorType(dtype, shape)));
    return { type: made, ...defined({ key: implementation }) };
  }

  private sizes(): number[] {
    const shape: number[] = [];
    if (this.text[this.pos] !== '[') this.expected(`'[' and sizes`);
    this.pos++;
    while (!this.accept(']')) {
      this.skip();
      const at = this.pos;
      let end = at;
      while (isDigit(this.text.charCodeAt(end))) end++;
      const next = this.text[end];
      if (
        end === at ||
        !(next === ',' || next === ']' || next === '@' || next === ' ' || next === '\n')
      ) {
        if (end === at && (next === undefined || next === ',')) this.expected('a size');
        this.fail(
          'a symbolic size',
          at,
          'E_UNSUPPORTED',
          'trace the function with concrete shapes',
        );
      }
      const size = Number(this.text.slice(at, end));
      if (!Number.isSafeInteger(size)) this.fail('the size is beyond 2^53', at, 'E_LIMIT');
      shape.push(size);
      if (shape.length > MAX_RANK)
        this.fail(`more than ${MAX_RANK} dims`, at, 'E_LIMIT', 'no tensor has so many dims');
      this.pos = end;
      if (this.text[this.pos] === '@') {
        this.pos++;
        this.meshAxes();
      }
      if (!this.accept(',') && !this.text.startsWith(']', this.skipTo()))
        this.expected(`',' or ']'`);
    }
    return shape;
  }

  /** `tp`, or `('dp', 'tp')`. */
  private meshAxes(): void {
    if (this.text[this.pos] !== '(') {
      this.axes.add(this.name('a mesh axis'));
      return;
    }
    const close = this.text.indexOf(')', this.pos);
    if (close < 0) this.fail(`'(' is never closed`);
    for (const [axis] of this.text.slice(this.pos, close).matchAll(/[A-Za-z_][\w.-]*/g))
      this.axes.add(axis);
    this.pos = close + 1;
  }

  // ---- parameters
  // ---------------------------------------------------------------------------

  /** `[key=value ...]`: a value reaches up to the next `key=` outside brackets. */
  private parameters(): Map<string, Parameter> {
    const out = new Map<string, Parameter>();
    this.expect('[');
    for (;;) {
      if (this.accept(']')) return out;
      this.skip();
      const at = this.pos;
      const key = this.name('the name of a parameter');
      this.expect('=');
      if (out.has(key)) this.fail(`parameter '${key}' is given twice`, at, 'E_DUP');
      out.set(key, this.parameter(key));
    }
  }

  private parameter(key: string): Parameter {
    this.skip();
    const at = this.pos;
    if (LAMBDA.test(this.text.slice(at, at + 200))) {
      const body = this.jaxpr();
      return { text: this.text.slice(at, this.pos), at, bodies: [body] };
    }
    const isList = key === 'branches' && this.text[at] === '(';
    if (isList || /^\(\s*\{\s*lambda\b/.test(this.text.slice(at, at + 400)))
      return { text: '', at, bodies: this.bodies() };
    const end = this.valueEnd(at);
    const text = this.text.slice(at, end).trim();
    this.pos = end;
    // Bodies that were taken out of line are named by these parameters; `name=silu` is only a name.
    const bodies: Jaxpr[] = [];
    if (/(^|_)jaxpr$/.test(key))
      this.references.push({ from: this.within, name: text, at: 0, bodies });
    return { text, at, bodies };
  }

  /** Bodies between round brackets; those that were taken out of line are there by name. */
  private bodies(): Jaxpr[] {
    this.pos++;
    const bodies: Jaxpr[] = [];
    for (let at = 0; !this.accept(')'); at++) {
      this.skip();
      if (LAMBDA.test(this.text.slice(this.pos, this.pos + 200))) bodies[at] = this.jaxpr();
      else {
        const name = this.name('a body');
        this.references.push({ from: this.within, name, at, bodies });
      }
      this.accept(',');
    }
    return bodies;
  }

  /** End of a value: the closing bracket of the parameters, or the blank before the next `key=`. */
  private valueEnd(from: number): number {
    const { text } = this;
    const open: Bracket[] = [];
    for (let at = from; at < text.length; at++) {
      const c = text.charCodeAt(at);
      if (c === CHAR.APOSTROPHE || c === CHAR.QUOTE) {
        const close = closingQuote(text, at);
        if (close < 0) this.fail('the string has no closing quote', at);
        at = close;
      } else if (c === CHAR.OPEN_PAREN || c === CHAR.OPEN_BRACKET || c === CHAR.OPEN_BRACE) {
        open.push({ mark: text.charAt(at), at });
        if (open.length > MAX_DEPTH)
          this.fail(`brackets nest deeper than ${MAX_DEPTH}`, at, 'E_LIMIT');
      } else if (c === CHAR.CLOSE_PAREN || c === CHAR.CLOSE_BRACKET || c === CHAR.CLOSE_BRACE) {
        if (open.length === 0) {
          if (c !== CHAR.CLOSE_BRACKET)
            this.fail(
              `the bracket '[' of the parameters is not closed before '${text[at]}'`,
              from,
              'E_SYNTAX',
              `']' closes it`,
            );
          return at;
        }
        this.closeBracket(open, text.charAt(at));
      } else if (open.length === 0 && (c === CHAR.SPACE || c === CHAR.NEWLINE)) {
        let next = at;
        while (text.charCodeAt(next) === CHAR.SPACE || text.charCodeAt(next) === CHAR.NEWLINE)
          next++;
        const end = this.nameEnd(next);
        if (text[next] === ']' || (end > next && text[end] === '=' && text[end + 1] !== '='))
          return at;
        at = next - 1;
      }
    }
    return this.fail(
      `the bracket '[' of the parameters is never closed`,
      from,
      'E_SYNTAX',
      'the text seems to be cut',
    );
  }
}

const LAMBDA = /^\{\s*lambda\b/;

function closingQuote(text: string, open: number): number {
  const quote = text.charCodeAt(open);
  for (let at = open + 1; at < text.length; at++) {
    const c = text.charCodeAt(at);
    if (c === CHAR.BACKSLASH) at++;
    else if (c === quote) return at;
    else if (c === CHAR.NEWLINE) return -1;
  }
  return -1;
}

/** Blanks before a place on its line. */
function column(text: string, at: number): number {
  return at - (at === 0 ? 0 : text.lastIndexOf('\n', at - 1) + 1);
}
