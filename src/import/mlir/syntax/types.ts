/** Types of MLIR text. Element types that a graph does not know are errors, never defaults. */

import { suggestion } from '../../../errors.ts';
import type { DType } from '../../../graph/types.ts';
import { CHAR, isDigit } from '../../../text/char.ts';
import type { MlirReader } from './reader.ts';
import type { MlirTensor, MlirType } from './syntax.ts';

const MAX_RANK = 64;

const ELEMENTS: Readonly<Record<string, DType>> = {
  f64: 'f64',
  f32: 'f32',
  bf16: 'bf16',
  f16: 'f16',
  f8E4M3FN: 'f8e4m3fn',
  f8E5M2: 'f8e5m2',
  f8E8M0FNU: 'f8e8m0fnu',
  i64: 'i64',
  i32: 'i32',
  i16: 'i16',
  i8: 'i8',
  si64: 'i64',
  si32: 'i32',
  si16: 'i16',
  si8: 'i8',
  ui64: 'u64',
  ui32: 'u32',
  ui16: 'u16',
  ui8: 'u8',
  i1: 'b8',
};

function elementOf(word: string): DType | undefined {
  return Object.hasOwn(ELEMENTS, word) ? ELEMENTS[word] : undefined;
}

/** Element types that exist and that graphs do not hold. */
const FOREIGN = /^([su]?i(2|4)|f4\w+|f6\w+|f8\w+|tf32|f80|f128|index|i\d+|ui\d+|si\d+)$/;

export function readType(reader: MlirReader): MlirType {
  return knownTensor(reader) ?? reader.nested(() => readOneType(reader));
}

/**
 * A tensor type whose text was read before: a program has few types and names them in every
 * operation.
 */
function knownTensor(reader: MlirReader): MlirTensor | undefined {
  if (!reader.peek('tensor<')) return undefined;
  const end = reader.text.indexOf('>', reader.pos) + 1;
  const known = reader.tensorTypes.get(reader.text.slice(reader.pos, end));
  if (known !== undefined && end <= reader.end) {
    reader.pos = end;
    return known;
  }
  return undefined;
}

function readOneType(reader: MlirReader): MlirType {
  reader.skip();
  const at = reader.pos;
  if (reader.peek('(')) {
    const inputs = reader.list('(', ')', () => readType(reader));
    reader.expect('->');
    return { kind: 'function', inputs, results: readResultTypes(reader) };
  }
  if (reader.peek('!')) {
    let text = `!${reader.sigil('!', 'a type')}`;
    if (reader.accept('<')) {
      const { from, to } = reader.balanced();
      text += `<${reader.text.slice(from, Math.min(to, from + 60))}>`;
    }
    return { kind: 'other', text };
  }
  const word = reader.word('a type');
  switch (word) {
    case 'tensor': {
      const type = readTensor(reader, at);
      // Where the type ends with the first bracket, the text up to there is all of it.
      if (reader.text.indexOf('>', at) === reader.pos - 1)
        reader.tensorTypes.set(reader.text.slice(at, reader.pos), type);
      return type;
    }
    case 'tuple':
      return { kind: 'tuple', items: reader.list('<', '>', () => readType(reader)) };
    case 'complex': {
      const dtype = readComplex(reader);
      return { kind: 'other', text: `complex<${dtype === 'c64' ? 'f32' : 'f64'}>`, dtype };
    }
    case 'vector':
    case 'memref':
    case 'memref_unranked':
      reader.expect('<');
      reader.balanced();
      return { kind: 'other', text: word };
    default: {
      const dtype = elementOf(word);
      if (dtype !== undefined) return { kind: 'other', text: word, dtype };
      if (word === 'none' || FOREIGN.test(word)) return { kind: 'other', text: word };
      return reader.fail(
        `'${word}' is not a type`,
        at,
        'E_SYNTAX',
        'a tensor type reads tensor<4x16xf32>',
      );
    }
  }
}

/** `T` or `(T, U)` after an arrow. */
function readResultTypes(reader: MlirReader): MlirType[] {
  return reader.peek('(') ? reader.list('(', ')', () => readType(reader)) : [readType(reader)];
}

/** `tensor<4x16xf32>`: sizes are glued to `x`, so this goes by characters. */
function readTensor(reader: MlirReader, at: number): MlirTensor {
  reader.expect('<');
  const shape: number[] = [];
  for (;;) {
    reader.skip();
    const start = reader.pos;
    const c = reader.text.charCodeAt(start);
    if (c === CHAR.QUESTION)
      reader.fail(
        'the tensor has a size that is only known at run time',
        start,
        'E_UNSUPPORTED',
        'export the program for the sizes you will run: a plan needs concrete shapes ' +
          '(jax.export with fixed shapes, or --refine-shapes)',
      );
    if (c === CHAR.STAR)
      reader.fail(
        'the rank of the tensor is not known',
        start,
        'E_UNSUPPORTED',
        'export with concrete shapes',
      );
    if (!isDigit(c)) break;
    let end = start;
    while (isDigit(reader.text.charCodeAt(end))) end++;
    const size = Number(reader.text.slice(start, end));
    if (!Number.isSafeInteger(size))
      reader.fail('the size is beyond 2^53', start, 'E_LIMIT', 'no tensor is so large');
    if (reader.text[end] !== 'x') {
      reader.pos = end;
      reader.expected(`'x' and an element type after the size`);
    }
    reader.pos = end + 1;
    shape.push(size);
    if (shape.length > MAX_RANK)
      reader.fail(`more than ${MAX_RANK} dims`, at, 'E_LIMIT', 'no tensor has so many dims');
  }
  const dtype = readElement(reader);
  if (reader.accept(',')) {
    const from = reader.pos;
    const { to } = reader.balanced();
    if (/sparse/.test(reader.text.slice(from, to)))
      reader.fail(
        'a sparse tensor',
        from,
        'E_UNSUPPORTED',
        'export the program with dense tensors',
      );
    return { kind: 'tensor', dtype, shape };
  }
  reader.expect('>');
  return { kind: 'tensor', dtype, shape };
}

function readElement(reader: MlirReader): DType {
  reader.skip();
  const at = reader.pos;
  if (reader.peek('!'))
    reader.fail(
      'a tensor of quantised or opaque elements',
      at,
      'E_UNSUPPORTED',
      'export the program with plain element types',
    );
  const word = reader.word('an element type such as f32');
  const plain = elementOf(word);
  if (plain !== undefined) return plain;
  if (word === 'complex') return readComplex(reader);
  // Numbers of dims in the layouts of a custom call; as wide as a pointer.
  if (word === 'index') return 'i64';
  if (FOREIGN.test(word))
    reader.fail(
      `element type '${word}' is not supported`,
      at,
      'E_UNSUPPORTED',
      `supported: ${Object.keys(ELEMENTS).join(', ')}`,
    );
  return reader.fail(
    `'${word}' is not an element type`,
    at,
    'E_TYPE',
    suggestion(word, Object.keys(ELEMENTS), 'element types'),
  );
}

function readComplex(reader: MlirReader): DType {
  reader.expect('<');
  const at = reader.pos;
  const part = reader.word('f32 or f64');
  reader.expect('>');
  if (part === 'f32') return 'c64';
  if (part === 'f64') return 'c128';
  return reader.fail(`complex<${part}> is not supported`, at, 'E_UNSUPPORTED');
}

export function typeName(type: MlirType): string {
  switch (type.kind) {
    case 'tensor':
      return `tensor<${[...type.shape, elementName(type.dtype)].join('x')}>`;
    case 'tuple':
      return `tuple<${type.items.map(typeName).join(', ')}>`;
    case 'function':
      return (
        `(${type.inputs.map(typeName).join(', ')}) -> ` +
        `(${type.results.map(typeName).join(', ')})`
      );
    case 'other':
      return type.text;
  }
}

const NAMES = new Map<DType, string>(
  Object.entries(ELEMENTS).map(([name, dtype]) => [dtype, name]),
);

/** MLIR's name of a dtype. Signless integers are the signed ones. */
function elementName(dtype: DType): string {
  if (dtype === 'c64') return 'complex<f32>';
  if (dtype === 'c128') return 'complex<f64>';
  const signless = /^i\d+$/.test(dtype) ? dtype : undefined;
  return signless ?? NAMES.get(dtype) ?? dtype;
}

export function sameMlirType(a: MlirType, b: MlirType): boolean {
  return a === b || typeName(a) === typeName(b);
}
