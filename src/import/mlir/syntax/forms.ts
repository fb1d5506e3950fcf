/**
 * Shared by the readers of pretty forms: the interface to the reader of operations, and the parts
 * that many forms have.
 */

import { optionalDictionary } from './attributes.ts';
import type { MlirReader } from './reader.ts';
import {
  type Attributes,
  type BlockArgument,
  type MlirAttribute,
  type MlirType,
  NO_ATTRIBUTES,
  type Region,
  type Use,
} from './syntax.ts';
import { readType } from './types.ts';

/** The contents of the form of an operation, before results and location. */
export interface Draft {
  readonly operands: readonly Use[];
  readonly attributes: ReadonlyMap<string, MlirAttribute>;
  readonly regions: readonly Region[];
  readonly operandTypes: readonly MlirType[];
  readonly resultTypes: readonly MlirType[];
}

/** The services of the reader of operations that a form may use. */
export interface FormReader {
  readonly reader: MlirReader;
  use(): Use;
  uses(): Use[];
  argument(): BlockArgument;
  region(given?: readonly BlockArgument[]): Region;
  functionType(): { operandTypes: readonly MlirType[]; resultTypes: readonly MlirType[] };
}

export type Form = (ops: FormReader, name: string) => Draft;

export const int = (value: number): MlirAttribute => ({ kind: 'int', value });
export const ints = (values: readonly number[]): MlirAttribute => ({
  kind: 'list',
  items: values.map(int),
});

/**
 * Reads the optional attribute dictionary before the types and joins it with the attributes of the
 * form.
 */
export function withDictionary(
  reader: MlirReader,
  stated: readonly (readonly [string, MlirAttribute])[],
): Attributes {
  reader.skip();
  const at = reader.pos;
  const dictionary = optionalDictionary(reader);
  if (stated.length === 0 && dictionary === undefined) return NO_ATTRIBUTES;
  const attributes = new Map(stated);
  for (const [key, value] of dictionary ?? []) {
    if (attributes.has(key))
      reader.fail(`attribute '${key}' is given twice`, at, 'E_DUP', 'keep one of them');
    attributes.set(key, value);
  }
  return attributes;
}

interface Signature {
  /** `(T) -> U` or `T -> U`: both sides; else the types listed. */
  readonly operandTypes: readonly MlirType[];
  readonly resultTypes: readonly MlirType[] | undefined;
}

/** Reads the signature after the colon. */
export function readSignature(ops: FormReader): Signature {
  const { reader } = ops;
  reader.expect(':');
  if (reader.peek('(')) return ops.functionType();
  const types: MlirType[] = [];
  do types.push(readType(reader));
  while (reader.accept(','));
  if (!reader.accept('->')) return { operandTypes: types, resultTypes: undefined };
  const resultTypes = reader.peek('(')
    ? reader.list('(', ')', () => readType(reader))
    : [readType(reader)];
  return { operandTypes: types, resultTypes };
}

/** A word as enumeration value. */
export const enumeration = (word: string): MlirAttribute => ({ kind: 'string', value: word });

/** `custom_call @name(%a, %b) {...} : (T, U) -> V`, and `call @f(%a) : ...`. */
export const callee =
  (attribute: string): Form =>
  (ops) => {
    const { reader } = ops;
    const name = reader.sigil('@', 'the name of a function');
    const operands = reader.list('(', ')', () => ops.use());
    const value: MlirAttribute =
      attribute === 'callee' ? { kind: 'symbol', name } : { kind: 'string', value: name };
    const attributes = withDictionary(reader, [[attribute, value]]);
    reader.expect(':');
    return { operands, attributes, regions: [], ...ops.functionType() };
  };

/** `return %a, %b : T, U`. */
export function terminator(ops: FormReader): Draft {
  const operands = ops.uses();
  const attributes = withDictionary(ops.reader, []);
  if (operands.length === 0)
    return { operands, attributes, regions: [], operandTypes: [], resultTypes: [] };
  const operandTypes: MlirType[] = [];
  ops.reader.expect(':');
  do operandTypes.push(readType(ops.reader));
  while (ops.reader.accept(','));
  return { operands, attributes, regions: [], operandTypes, resultTypes: [] };
}
