/** Reads the right-hand sides of FX statements into operations. */

import { exactInteger } from '../../../graph/text/token.ts';
import type { Arg } from '../../../graph/types.ts';
import { NO_KWARGS, setOwn } from '../../../graph/value.ts';
import { itemAt } from '../../../item-at.ts';
import { CHAR, isDigit } from '../../../text/char.ts';
import {
  END,
  FLOAT,
  INTEGER,
  NAME,
  NEWLINE,
  OPERATOR,
  type Scanner,
  STRING,
} from '../../file/scan.ts';
import {
  DICTIONARY,
  INFIX,
  PREFIX,
  pythonString,
  torchConstant,
  WITHOUT_DICTIONARIES,
} from './literal.ts';
import type { Names } from './names.ts';
import { targetName, WITH_OPTIONS } from './target.ts';

const MAX_NESTING = 256;

/** One operator of a statement: what becomes a node. */
interface Operation {
  readonly kind: 'get_attr' | 'call';
  readonly target: string;
  readonly args: readonly Arg[];
  readonly kwargs: Readonly<Record<string, Arg>>;
}

/**
 * Reads the right-hand side of statements. FX prints one operator a statement; its arguments are
 * values and literals. Names are resolved at once, so that every error has its place.
 */
export class ExpressionReader {
  /** Value of the last statement that was not an operation. */
  result: Arg = null;
  /** True inside of a call that may hold a dictionary of options. */
  private hasOptions = false;
  private readonly targets = new Map<string, string>();

  constructor(
    private readonly scanner: Scanner,
    private readonly names: Names,
  ) {}

  /** Reads a right-hand side: an operation, or undefined with the plain value in `result`. */
  statement(): Operation | undefined {
    const { scanner } = this;
    let operation: Operation | undefined;
    let value: Arg = null;
    const prefix = PREFIX.get(this.operator());
    if (prefix !== undefined && !this.numberFollows()) {
      scanner.next();
      operation = { kind: 'call', target: prefix, args: [this.value(0)], kwargs: NO_KWARGS };
    } else if (scanner.at(NAME)) {
      operation = this.named();
      value = this.result;
    } else {
      value = this.value(0);
    }
    const infix = INFIX.get(this.operator());
    if (infix !== undefined) {
      if (operation !== undefined) this.nested();
      scanner.next();
      const right = this.value(0);
      operation = { kind: 'call', target: infix, args: [value, right], kwargs: NO_KWARGS };
      if (INFIX.has(this.operator())) this.nested();
    }
    if (operation === undefined) this.result = value;
    return operation;
  }

  /** Text of the current token if it is an operator, else ''. */
  private operator(): string {
    const { kind } = this.scanner;
    if (kind === OPERATOR) return this.scanner.word();
    return kind > OPERATOR && kind !== CHAR.EQUALS ? String.fromCharCode(kind) : '';
  }

  /** Tells whether the sign in hand belongs to a number: `-1`, `-inf`. */
  private numberFollows(): boolean {
    const { text, end } = this.scanner;
    const c = text.charCodeAt(end);
    return isDigit(c) || c === CHAR.DOT || /^(inf|nan)\b/.test(text.slice(end, end + 4));
  }

  /**
   * A statement that starts with a name: call, method, attribute, index, or an alias (undefined,
   * value in `result`).
   */
  private named(): Operation | undefined {
    const { scanner } = this;
    const { start } = scanner;
    const first = scanner.word();
    const kind = scanner.next();
    if (kind === CHAR.DOT) return this.dotted(first, start);
    if (kind === CHAR.OPEN_PAREN) {
      if (this.names.has(first))
        scanner.fail('E_UNSUPPORTED', `the value '${first}' is called`, start);
      if (first === 'device') {
        this.result = this.device();
        return undefined;
      }
      return this.call(`builtins.${first}`, []);
    }
    const value = this.names.lookup(first, start);
    if (kind === CHAR.OPEN_BRACKET) {
      scanner.next();
      const index = this.index();
      this.closeOne();
      return { kind: 'call', target: 'operator.getitem', args: [value, index], kwargs: NO_KWARGS };
    }
    this.result = value;
    return undefined;
  }

  /**
   * `a.b.c`, up to a call or the end: operator, torch constant, attribute of self, method or
   * attribute of a value.
   */
  private dotted(first: string, start: number): Operation | undefined {
    const { scanner } = this;
    let end = scanner.end;
    let last = first;
    let links = 0;
    while (scanner.at(CHAR.DOT)) {
      scanner.next();
      scanner.expect(NAME, 'a name');
      end = scanner.end;
      last = scanner.word();
      links++;
      scanner.next();
    }
    const called = scanner.at(CHAR.OPEN_PAREN);
    const bound = this.names.get(first);
    if (bound !== undefined || first === 'self') {
      if (first === 'self' && bound === undefined) {
        if (called)
          scanner.fail(
            'E_UNSUPPORTED',
            `the module self.${last} is called`,
            start,
            'trace to aten operators first (torch.export, AOTAutograd)',
          );
        return {
          kind: 'get_attr',
          target: scanner.text.slice(start + 5, end),
          args: [],
          kwargs: NO_KWARGS,
        };
      }
      if (links > 1) this.nested(start);
      if (called) return this.call(`torch.Tensor.${last}`, [bound ?? null]);
      return {
        kind: 'call',
        target: 'builtins.getattr',
        args: [bound ?? null, last],
        kwargs: NO_KWARGS,
      };
    }
    if (called) return this.call(this.target(start, end), []);
    if (first === 'torch' && links === 1) {
      this.result = this.torchValue(last, start);
      return undefined;
    }
    const written = scanner.text.slice(start, end);
    if (written.startsWith('torch.ops.')) scanner.expected(`'(' behind the operator ${written}`);
    return this.names.unknown(written, start);
  }

  /**
   * Name of a called function in the vocabulary of the graph; interned, as most texts call few
   * operators often.
   */
  private target(start: number, end: number): string {
    const written = this.scanner.text.slice(start, end);
    const known = this.targets.get(written);
    if (known !== undefined) return known;
    const target = targetName(written);
    this.targets.set(written, target);
    return target;
  }

  /** Arguments of a call, the scanner on '('. */
  private call(target: string, given: Arg[]): Operation {
    const { scanner } = this;
    const args = given;
    let kwargs: Record<string, Arg> | undefined;
    this.hasOptions = WITH_OPTIONS.has(target);
    scanner.next();
    while (!scanner.at(CHAR.CLOSE_PAREN)) {
      if (scanner.at(NAME) && this.equalsFollows()) {
        const { start } = scanner;
        const key = scanner.word();
        scanner.next();
        scanner.next();
        kwargs ??= {};
        if (Object.hasOwn(kwargs, key))
          scanner.fail('E_SYNTAX', `argument '${key}' is given twice`, start);
        setOwn(kwargs, key, this.value(0));
      } else {
        if (kwargs !== undefined)
          scanner.fail('E_SYNTAX', 'a positional argument follows a keyword');
        args.push(this.value(0));
      }
      if (scanner.at(CHAR.COMMA)) scanner.next();
      else if (!scanner.at(CHAR.CLOSE_PAREN)) scanner.expected(`',' or ')'`);
    }
    this.closeOne();
    return { kind: 'call', target, args, kwargs: kwargs ?? NO_KWARGS };
  }

  /** Tells whether a single '=' follows the current name. */
  private equalsFollows(): boolean {
    const { text, end } = this.scanner;
    let at = end;
    while (text.charCodeAt(at) === CHAR.SPACE) at++;
    return text.charCodeAt(at) === CHAR.EQUALS && text.charCodeAt(at + 1) !== CHAR.EQUALS;
  }

  /**
   * Steps over the closing bracket; an operator applied to the result would be a second operation.
   */
  private closeOne(): void {
    const { scanner } = this;
    scanner.next();
    if (scanner.at(CHAR.DOT) || scanner.at(CHAR.OPEN_PAREN) || scanner.at(CHAR.OPEN_BRACKET))
      this.nested();
  }

  private nested(start = this.scanner.start): never {
    this.scanner.fail(
      'E_UNSUPPORTED',
      'more than one operator in a statement',
      start,
      'write one operator a statement, as FX does',
    );
  }

  /** A value or literal; an operation is refused here. */
  value(depth: number): Arg {
    const { scanner } = this;
    if (depth > MAX_NESTING) scanner.fail('E_LIMIT', `lists nest deeper than ${MAX_NESTING}`);
    const { start } = scanner;
    switch (scanner.kind) {
      case NAME: {
        const name = scanner.word();
        const kind = scanner.next();
        if (kind === CHAR.DOT || kind === CHAR.OPEN_PAREN)
          return this.literalCall(name, start, depth);
        if (kind === CHAR.OPEN_BRACKET) this.nested(start);
        return this.names.lookup(name, start);
      }
      case INTEGER: {
        const digits = scanner.word();
        scanner.next();
        return exactInteger(digits);
      }
      case FLOAT: {
        const value = Number(scanner.word());
        scanner.next();
        return { kind: 'float', value };
      }
      case STRING: {
        const text = pythonString(scanner.word());
        scanner.next();
        if (scanner.at(STRING)) scanner.expected(`',' or ')'`);
        return text;
      }
      case CHAR.MINUS:
      case CHAR.PLUS: {
        const negative = scanner.at(CHAR.MINUS);
        scanner.next();
        return negate(this.value(depth + 1), negative) ?? this.nested();
      }
      case CHAR.OPEN_PAREN:
        return this.tuple(depth);
      case CHAR.OPEN_BRACKET: {
        scanner.next();
        const items = this.members(CHAR.CLOSE_BRACKET, depth);
        scanner.next();
        return items;
      }
      case CHAR.OPEN_BRACE:
        return this.hasOptions
          ? this.options(depth)
          : scanner.fail('E_UNSUPPORTED', DICTIONARY, start, WITHOUT_DICTIONARIES);
      case END:
      case NEWLINE:
      default:
        return scanner.expected('a value');
    }
  }

  /** `(a, b)`, or `(a)` for grouping. */
  private tuple(depth: number): Arg {
    const { scanner } = this;
    scanner.next();
    if (scanner.at(CHAR.CLOSE_PAREN)) {
      scanner.next();
      return [];
    }
    const first = this.value(depth + 1);
    if (scanner.at(CHAR.CLOSE_PAREN)) {
      scanner.next();
      return first;
    }
    scanner.expect(CHAR.COMMA, `',' or ')'`);
    scanner.next();
    const items = [first, ...this.members(CHAR.CLOSE_PAREN, depth)];
    scanner.next();
    return items;
  }

  /** `{'a': 1, 'b': 2}` as a list of pairs. */
  private options(depth: number): Arg {
    const { scanner } = this;
    const pairs: Arg[] = [];
    scanner.next();
    while (!scanner.at(CHAR.CLOSE_BRACE)) {
      const key = this.value(depth + 1);
      scanner.expect(CHAR.COLON, `':'`);
      scanner.next();
      pairs.push([key, this.value(depth + 1)]);
      if (scanner.at(CHAR.COMMA)) scanner.next();
      else if (!scanner.at(CHAR.CLOSE_BRACE)) scanner.expected(`',' or '}'`);
    }
    scanner.next();
    return pairs;
  }

  /** Comma-separated values up to the closing bracket, which stays current. */
  private members(close: number, depth: number): Arg[] {
    const { scanner } = this;
    const items: Arg[] = [];
    while (!scanner.at(close)) {
      items.push(this.value(depth + 1));
      if (scanner.at(CHAR.COMMA)) scanner.next();
      else if (!scanner.at(close)) scanner.expected(`',' or '${String.fromCharCode(close)}'`);
    }
    return items;
  }

  /** Inside `x[...]`: a value, a slice `a:b:c`, or several of them. */
  private index(): Arg {
    const { scanner } = this;
    const items: Arg[] = [];
    let several = false;
    for (;;) {
      items.push(this.subscript());
      if (!scanner.at(CHAR.COMMA)) break;
      several = true;
      scanner.next();
      if (scanner.at(CHAR.CLOSE_BRACKET)) break;
    }
    scanner.expect(CHAR.CLOSE_BRACKET, `',' or ']'`);
    return several ? items : itemAt(items, 0);
  }

  private subscript(): Arg {
    const { scanner } = this;
    const bound = (): Arg =>
      scanner.at(CHAR.COLON) || scanner.at(CHAR.COMMA) || scanner.at(CHAR.CLOSE_BRACKET)
        ? null
        : this.value(0);
    if (!scanner.at(CHAR.COLON)) {
      const value = this.value(0);
      if (!scanner.at(CHAR.COLON)) return value;
      return this.sliceFrom(value, bound);
    }
    return this.sliceFrom(null, bound);
  }

  private sliceFrom(start: Arg, bound: () => Arg): Arg {
    const { scanner } = this;
    scanner.next();
    const stop = bound();
    if (!scanner.at(CHAR.COLON)) return { kind: 'slice', start, stop, step: null };
    scanner.next();
    return { kind: 'slice', start, stop, step: bound() };
  }

  /** `torch.float32`, `device(type='cpu')`, `slice(None, 4, None)` and their like. */
  private literalCall(name: string, start: number, depth: number): Arg {
    const { scanner } = this;
    if (scanner.at(CHAR.OPEN_PAREN)) {
      if (name === 'device') return this.device();
      if (name === 'slice') {
        scanner.next();
        const parts = this.members(CHAR.CLOSE_PAREN, depth);
        scanner.next();
        if (parts.length < 1 || parts.length > 3)
          scanner.fail('E_SYNTAX', `slice takes 1 to 3 arguments, got ${parts.length}`, start);
        const [first = null, second = null, step = null] = parts;
        return parts.length === 1
          ? { kind: 'slice', start: null, stop: first, step: null }
          : { kind: 'slice', start: first, stop: second, step };
      }
      return this.nested(start);
    }
    scanner.next();
    scanner.expect(NAME, 'a name');
    const member = scanner.word();
    const kind = scanner.next();
    if (name === 'torch' && !this.names.has('torch')) {
      if (kind === CHAR.DOT && member === 'ops') return this.operatorName(start);
      if (kind === CHAR.OPEN_PAREN && member === 'device') return this.device();
      if (kind !== CHAR.DOT && kind !== CHAR.OPEN_PAREN) return this.torchValue(member, start);
    }
    if (kind === CHAR.OPEN_PAREN || this.names.has(name)) return this.nested(start);
    return this.names.unknown(`${name}.${member}`, start);
  }

  /** An operator as an argument, `torch.ops.aten.mm.default`: its name, as targets have it. */
  private operatorName(start: number): Arg {
    const { scanner } = this;
    let end = scanner.start;
    while (scanner.at(CHAR.DOT)) {
      scanner.next();
      scanner.expect(NAME, 'a name');
      end = scanner.end;
      scanner.next();
    }
    return scanner.at(CHAR.OPEN_PAREN) ? this.nested(start) : this.target(start, end);
  }

  private torchValue(member: string, start: number): Arg {
    const value = torchConstant(member);
    if (value !== undefined) return value;
    return this.scanner.fail(
      'E_UNSUPPORTED',
      `'torch.${member}' is neither a dtype nor a memory format that graphs hold`,
      start,
      'supported are torch.float32 and its like, torch.strided, torch.contiguous_format',
    );
  }

  /** `device(type='cuda', index=0)` or `device('cuda:0')`, the scanner on '('. */
  private device(): Arg {
    const { scanner } = this;
    const at = scanner.start;
    const { args, kwargs } = this.call('device', []);
    const type = args[0] ?? (Object.hasOwn(kwargs, 'type') ? kwargs.type : undefined);
    const index = args[1] ?? (Object.hasOwn(kwargs, 'index') ? kwargs.index : undefined);
    if (typeof type !== 'string')
      return scanner.fail('E_SYNTAX', 'a device needs a type in quotes', at);
    return { kind: 'device', word: typeof index === 'number' ? `${type}:${index}` : type };
  }
}

/** The literal with its sign; undefined where it is not a number. */
function negate(value: Arg, negative: boolean): Arg | undefined {
  if (typeof value === 'number') return negative ? (value === 0 ? 0 : -value) : value;
  if (typeof value === 'bigint') return negative ? -value : value;
  if (typeof value === 'object' && value !== null && 'kind' in value && value.kind === 'float')
    return { kind: 'float', value: negative ? -value.value : value.value };
  return undefined;
}
