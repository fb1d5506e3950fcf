/** Parses the types and arguments of graph text. */

import { suggestion } from '../../errors.ts';
import { CHAR } from '../../text/char.ts';
import { type Arg, type Dim, type DType, DTYPES, type Sym, type ValueType } from '../types.ts';
import { NONE_TYPE, ref, tensorType } from '../value.ts';
import { impliedSize } from './sizes.ts';
import { exactInteger, type GraphReader, isNameCode } from './token.ts';

/** How deep lists, tuples and graphs may nest. */
export const MAX_NESTING = 256;
const DTYPE_SET = new Set<string>(DTYPES);

/** A type: `f32[8, s0]`, `(f32[8], none)`, `sym`, `none`. */
export function readType(reader: GraphReader, depth: number): ValueType {
  if (depth > MAX_NESTING) reader.fail(`tuples nest deeper than ${MAX_NESTING}`);
  if (reader.accept('(')) {
    const items: ValueType[] = [];
    while (!reader.peek(')')) {
      items.push(readType(reader, depth + 1));
      if (!reader.accept(',') && !reader.peek(')')) reader.expected(`',' or ')'`);
    }
    reader.expect(')');
    return { kind: 'tuple', items };
  }
  if (reader.word('none')) return NONE_TYPE;
  if (reader.word('sym')) {
    if (!reader.accept('(')) return { kind: 'sym' };
    const { sym } = readSize(reader, ')');
    reader.expect(')');
    return { kind: 'sym', expr: sym };
  }
  reader.blanks();
  const start = reader.pos;
  const dtype = reader.name('a type');
  if (!isDType(dtype))
    reader.fail(`'${dtype}' is not a dtype`, start, suggestion(dtype, DTYPES, 'dtypes'));
  reader.expect('[');
  const shape: Dim[] = [];
  while (!reader.peek(']')) {
    shape.push(readDim(reader));
    if (!reader.accept(',') && !reader.peek(']')) reader.expected(`',' or ']'`);
  }
  reader.expect(']');
  if (reader.peek('{') || reader.peek('@'))
    reader.fail('local-SPMD types and explicit shardings are not read in this version');
  return tensorType(dtype, shape);
}

function isDType(name: string): name is DType {
  return DTYPE_SET.has(name);
}

function readDim(reader: GraphReader): Dim {
  reader.blanks();
  const start = reader.pos;
  const end = reader.skipDigits(start);
  reader.pos = end;
  if (end > start && (reader.peek(',') || reader.peek(']'))) {
    const size = exactInteger(reader.text.slice(start, end));
    if (typeof size === 'bigint') reader.fail('a size beyond 2^53', start);
    return size;
  }
  reader.pos = start;
  return readSize(reader, ',]');
}

/**
 * A size expression up to one of the closing characters at bracket depth 0, with `=INT` or `=none`
 * for an example that does not follow from the dims.
 */
function readSize(reader: GraphReader, closing: string): Sym {
  reader.blanks();
  const start = reader.pos;
  let depth = 0;
  let at = start;
  for (; ; at++) {
    const c = reader.text[at];
    if (c === undefined || c === '\n') reader.fail(`the size expression has no end`, start);
    if (depth === 0 && (closing.includes(c) || c === '=')) break;
    if (c === '(') depth++;
    else if (c === ')') depth--;
    else if (!/[A-Za-z0-9_.+\-*/%, <>!]/.test(c))
      reader.fail(`'${c}' cannot stand in a size expression`, at);
    if (depth > MAX_NESTING) reader.fail(`brackets nest deeper than ${MAX_NESTING}`, at);
  }
  const sym = reader.text.slice(start, at).trim();
  if (sym === '') reader.expected('a size');
  reader.pos = at;
  if (reader.accept('='))
    return reader.word('none') ? { sym } : { sym, example: reader.safeInteger('the example size') };
  const example = impliedSize(sym, reader.examples);
  return example === undefined ? { sym } : { sym, example };
}

/** An argument: a value, a subgraph, a literal, a list or a slice. */
export function readArg(reader: GraphReader, depth: number): Arg {
  if (depth > MAX_NESTING) reader.fail(`lists nest deeper than ${MAX_NESTING}`);
  reader.blanks();
  switch (reader.text[reader.pos]) {
    case '%':
      return ref(readValueUse(reader));
    case '@':
      reader.pos++;
      return { kind: 'graph', name: reader.name('the name of a subgraph') };
    case '"':
      return reader.string('a string');
    case '$': {
      reader.pos++;
      reader.expect('(');
      const size = readSize(reader, ')');
      reader.expect(')');
      return { kind: 'size', size };
    }
    case '[': {
      reader.pos++;
      const items: Arg[] = [];
      while (!reader.peek(']')) {
        items.push(readArg(reader, depth + 1));
        if (!reader.accept(',') && !reader.peek(']')) reader.expected(`',' or ']'`);
      }
      reader.expect(']');
      return items;
    }
    default:
      return readWordArg(reader, depth);
  }
}

/** An argument that begins with a word or a number. */
function readWordArg(reader: GraphReader, depth: number): Arg {
  const { text } = reader;
  if (reader.word('true')) return true;
  if (reader.word('false')) return false;
  if (reader.word('none')) return null;
  if (reader.word('inf')) return { kind: 'float', value: Infinity };
  if (reader.word('nan')) return { kind: 'float', value: NaN };
  if (text.startsWith('-inf', reader.pos)) {
    reader.pos += 4;
    return { kind: 'float', value: -Infinity };
  }
  if (text.startsWith('dtype:', reader.pos)) {
    const start = reader.pos;
    reader.pos += 6;
    const dtype = reader.name('a dtype');
    if (!isDType(dtype))
      reader.fail(`'${dtype}' is not a dtype`, start, suggestion(dtype, DTYPES, 'dtypes'));
    return { kind: 'dtype', dtype };
  }
  if (text.startsWith('device:', reader.pos) || text.startsWith('layout:', reader.pos)) {
    const kind = text.startsWith('device:', reader.pos) ? 'device' : 'layout';
    reader.pos += 7;
    return { kind, word: readWord(reader) };
  }
  if (text.startsWith('slice(', reader.pos)) {
    reader.pos += 6;
    const start = readArg(reader, depth + 1);
    reader.expect(',');
    const stop = readArg(reader, depth + 1);
    reader.expect(',');
    const step = readArg(reader, depth + 1);
    reader.expect(')');
    return { kind: 'slice', start, stop, step };
  }
  return readNumber(reader);
}

function readWord(reader: GraphReader): string {
  if (reader.text[reader.pos] === '"') return reader.string('a word');
  const start = reader.pos;
  let end = start;
  for (
    let c = reader.text.charCodeAt(end);
    isNameCode(c) || c === CHAR.COLON || c === CHAR.MINUS;
    c = reader.text.charCodeAt(++end)
  );
  if (end === start) reader.expected('a word');
  reader.pos = end;
  return reader.text.slice(start, end);
}

function readNumber(reader: GraphReader): Arg {
  const { text } = reader;
  const start = reader.pos;
  const first = text[start] === '-' ? start + 1 : start;
  let end = reader.skipDigits(first);
  if (end === first) reader.expected('a value');
  let float = false;
  if (text[end] === '.') {
    float = true;
    end = reader.skipDigits(end + 1);
  }
  if (text[end] === 'e' || text[end] === 'E') {
    const sign = text[end + 1] === '-' || text[end + 1] === '+' ? end + 2 : end + 1;
    const exponent = reader.skipDigits(sign);
    if (exponent === sign) reader.fail('a number with an empty exponent', start);
    float = true;
    end = exponent;
  }
  if (isNameCode(text.charCodeAt(end))) reader.fail('a number ends in a letter', end);
  reader.pos = end;
  const digits = text.slice(start, end);
  return float ? { kind: 'float', value: Number(digits) } : exactInteger(digits);
}

/** `%name`. */
export function readValueName(reader: GraphReader): string {
  reader.expect('%');
  return reader.name('the name of a value');
}

/** The name of a value that is read here. */
export function readValueUse(reader: GraphReader): string {
  reader.blanks();
  const at = reader.pos;
  const name = readValueName(reader);
  reader.onUse(name, at);
  return name;
}
