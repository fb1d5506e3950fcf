/** Reads the type annotations of FX text, such as `bf16[2, 512][512, 1]cuda:0`. */

import { suggestion } from '../../../errors.ts';
import {
  type Dim,
  type DType,
  DTYPES,
  type TensorType,
  type ValueType,
} from '../../../graph/types.ts';
import { tensorType, typeText } from '../../../graph/value.ts';
import { CHAR, isDigit, isLowerLetter } from '../../../text/char.ts';
import type { Scanner } from '../../file/scan.ts';

const MAX_RANK = 64;
const DTYPE_SET = new Set<string>(DTYPES);

/**
 * Type annotations: `f32[4, 16]`, `bf16[2, 512][512, 1]cuda:0`, `f32[]`, `Sym(s77)`,
 * `DTensor(f32[8, 16], S(0)R)`. Each text is parsed once, and equal types are one frozen object, so
 * that later stages can key tables on identity.
 */
export class Annotations {
  private readonly byText = new Map<string, ValueType>();
  private readonly byMeaning = new Map<string, TensorType>();

  /** Type of the annotation in the current STRING token. */
  read(scanner: Scanner): ValueType {
    const text = scanner.text.slice(scanner.start + 1, scanner.end - 1);
    const known = this.byText.get(text);
    if (known !== undefined) return known;
    const type = this.parse(text, scanner);
    this.byText.set(text, type);
    return type;
  }

  private parse(text: string, scanner: Scanner): ValueType {
    const at = scanner.start + 1;
    if (text.startsWith('Sym(') && text.endsWith(')'))
      return Object.freeze({ kind: 'sym', expr: text.slice(4, -1) });
    const open = text.indexOf('(');
    const bracket = text.indexOf('[');
    if (open >= 0 && (bracket < 0 || open < bracket)) return this.wrapped(text, open, scanner, at);
    return this.tensor(text, 0, text.length, undefined, scanner, at);
  }

  /**
   * `DTensor(core, S(0)R)` states a sharding; any other wrapper `Name(core)` is a subclass and
   * means its core.
   */
  private wrapped(text: string, open: number, scanner: Scanner, at: number): TensorType {
    if (!text.endsWith(')'))
      bad(scanner, at + text.length, `the annotation '${text}' has no closing parenthesis`);
    const close = text.lastIndexOf(']');
    const comma = text.indexOf(', ', close);
    const end = comma < 0 ? text.length - 1 : comma;
    const given = comma < 0 ? undefined : text.slice(comma + 2, -1).trim();
    const isDTensor = text.slice(0, open) === 'DTensor';
    if (isDTensor && given === undefined)
      bad(scanner, at, 'a DTensor annotation states its placements after the type');
    return this.tensor(text, open + 1, end, isDTensor ? given : undefined, scanner, at);
  }

  private tensor(
    text: string,
    from: number,
    to: number,
    given: string | undefined,
    scanner: Scanner,
    at: number,
  ): TensorType {
    const bracket = text.indexOf('[', from);
    if (bracket < 0 || bracket >= to)
      bad(
        scanner,
        at + from,
        `expected a type such as f32[4, 16], found '${text.slice(from, to)}'`,
      );
    const name = text.slice(from, bracket);
    if (!isDType(name))
      scanner.fail(
        'E_TYPE',
        `'${name}' is not a dtype`,
        at + from,
        suggestion(name, DTYPES, 'dtypes'),
      );
    const shape: Dim[] = [];
    let end = readDims(text, bracket, to, shape, scanner, at);
    let stride: Dim[] | undefined;
    if (text[end] === '[' && end < to) {
      stride = [];
      const strideAt = end;
      end = readDims(text, end, to, stride, scanner, at);
      if (stride.length !== shape.length)
        scanner.fail(
          'E_TYPE',
          `${shape.length} sizes but ${stride.length} strides in '${text}'`,
          at + strideAt,
          'write one stride a size',
        );
    }
    for (let i = end; i < to; i++) {
      const c = text.charCodeAt(i);
      const word = isLowerLetter(c) || isDigit(c) || c === CHAR.COLON || c === CHAR.UNDERSCORE;
      if (!word) bad(scanner, at + i, `expected a device, found '${text.slice(end, to)}'`);
    }
    return this.intern(tensorType(name, shape, stride, given));
  }

  private intern(type: TensorType): TensorType {
    const stride =
      type.stride === undefined
        ? ''
        : typeText({ kind: 'tensor', dtype: type.dtype, shape: type.stride });
    const meaning = `${typeText(type)}|${stride}|${type.given ?? ''}`;
    const known = this.byMeaning.get(meaning);
    if (known !== undefined) return known;
    this.byMeaning.set(meaning, type);
    return type;
  }
}

/** Reads `[a, b, c]` starting at `open`; returns the offset behind it. */
function readDims(
  text: string,
  open: number,
  to: number,
  dims: Dim[],
  scanner: Scanner,
  at: number,
): number {
  let pos = open + 1;
  for (;;) {
    while (text.charCodeAt(pos) === CHAR.SPACE) pos++;
    if (pos >= to) bad(scanner, at + to, `the annotation '${text}' ends inside its sizes`);
    if (text.charCodeAt(pos) === CHAR.CLOSE_BRACKET) {
      if (dims.length > 0) bad(scanner, at + pos, `expected a size, found ']'`);
      return pos + 1;
    }
    const start = pos;
    let value = 0;
    for (let c = text.charCodeAt(pos); isDigit(c); c = text.charCodeAt(++pos))
      value = value * 10 + (c - CHAR.ZERO);
    const next = text.charCodeAt(pos);
    if (pos > start && (next === CHAR.COMMA || next === CHAR.CLOSE_BRACKET)) {
      if (!Number.isSafeInteger(value))
        scanner.fail('E_LIMIT', `the size ${text.slice(start, pos)} is beyond 2^53`, at + start);
      dims.push(value);
    } else {
      pos = endOfSize(text, start, to, scanner, at);
      dims.push({ sym: text.slice(start, pos).trim() });
    }
    if (dims.length > MAX_RANK)
      scanner.fail(
        'E_LIMIT',
        `more than ${MAX_RANK} dims`,
        at + open,
        'no tensor has so many dims',
      );
    if (text.charCodeAt(pos) === CHAR.CLOSE_BRACKET) return pos + 1;
    pos++;
  }
}

/** End of a sympy expression: the comma or bracket at depth 0. */
function endOfSize(text: string, from: number, to: number, scanner: Scanner, at: number): number {
  let depth = 0;
  let letters = false;
  for (let pos = from; pos < to; pos++) {
    const c = text.charAt(pos);
    if (depth === 0 && (c === ',' || c === ']')) {
      if (!letters)
        scanner.fail(
          'E_TYPE',
          `'${text.slice(from, pos)}' is not a size`,
          at + from,
          'a size is an integer of at least 0 or an expression in symbols',
        );
      return pos;
    }
    if (c === '(') depth++;
    else if (c === ')') depth--;
    else if (!/[A-Za-z0-9_+\-*/%,. <>=]/.test(c)) break;
    if (depth < 0) break;
    letters ||= /[A-Za-z]/.test(c);
  }
  return bad(scanner, at + from, `'${text.slice(from, Math.min(to, from + 40))}' is not a size`);
}

function bad(scanner: Scanner, at: number, message: string): never {
  scanner.fail(
    'E_SYNTAX',
    message,
    at,
    'a type reads dtype[sizes][strides]device, for example "f32[4, 16][16, 1]cpu"',
  );
}

function isDType(name: string): name is DType {
  return DTYPE_SET.has(name);
}
