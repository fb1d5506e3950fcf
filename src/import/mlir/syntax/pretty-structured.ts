/**
 * Pretty forms with regions or a grammar of their own: loops, reductions, convolutions, the
 * operations of Shardy.
 */

import { itemAt } from '../../../item-at.ts';
import { optionalDictionary, readAttribute } from './attributes.ts';
import {
  callee,
  type Draft,
  type Form,
  type FormReader,
  int,
  ints,
  readSignature,
  terminator,
  withDictionary,
} from './forms.ts';
import type { MlirReader } from './reader.ts';
import {
  type BlockArgument,
  type MlirAttribute,
  type MlirType,
  NO_ATTRIBUTES,
  type Region,
  type Use,
} from './syntax.ts';
import { readType } from './types.ts';

/** `while(%i = %x, %j = %y) : T, U attributes {..} cond {..} do {..}`. */
function whileForm(ops: FormReader): Draft {
  const { reader } = ops;
  const names: { id: string; at: number }[] = [];
  const operands: Use[] = reader.list('(', ')', () => {
    reader.skip();
    names.push({ at: reader.pos, id: reader.sigil('%', 'the name of a carried value') });
    reader.expect('=');
    return ops.use();
  });
  const types: MlirType[] = [];
  if (reader.accept(':')) {
    do types.push(readType(reader));
    while (reader.accept(','));
  }
  if (types.length !== names.length)
    reader.fail(`${types.length} types for ${names.length} carried values`, reader.pos, 'E_TYPE');
  const args = names.map(({ id, at }, i): BlockArgument => ({
    id,
    at,
    type: itemAt(types, i),
    attributes: NO_ATTRIBUTES,
  }));
  const attributes = reader.acceptWord('attributes') ? withDictionary(reader, []) : NO_ATTRIBUTES;
  reader.expectWord('cond');
  const condition = ops.region(args);
  reader.expectWord('do');
  const body = ops.region(args);
  return {
    operands,
    attributes,
    regions: [condition, body],
    operandTypes: types,
    resultTypes: types,
  };
}

/**
 * `reduce(%x init: %c), (%y init: %d) applies stablehlo.add across dimensions = [1] : ...
 * reducer(...) (...) {..}`.
 */
function reduceForm(ops: FormReader): Draft {
  const { reader } = ops;
  const inputs: Use[] = [];
  const inits: Use[] = [];
  do {
    reader.expect('(');
    inputs.push(ops.use());
    reader.expectWord('init');
    reader.expect(':');
    inits.push(ops.use());
    reader.expect(')');
  } while (reader.accept(','));
  reader.skip();
  const at = reader.pos;
  const applied = reader.acceptWord('applies') ? reader.word('an operation') : undefined;
  reader.expectWord('across');
  reader.expectWord('dimensions');
  reader.expect('=');
  const dims = readAttribute(reader);
  const attributes = withDictionary(reader, [['dimensions', dims]]);
  const { operandTypes, resultTypes } = readSignature(ops);
  const operands = [...inputs, ...inits];
  if (resultTypes === undefined || operandTypes.length !== operands.length)
    return reader.fail(
      `types of ${operands.length} operands and of the results are needed`,
      at,
      'E_TYPE',
    );
  const body =
    applied !== undefined
      ? appliedBody(applied, itemAt(operandTypes, 1), at)
      : reducer(ops, inputs.length);
  return { operands, attributes, regions: [body], operandTypes, resultTypes };
}

/** The body that `applies OP` means. Its ids are not ids of texts, so that they hide nothing. */
function appliedBody(name: string, type: MlirType, at: number): Region {
  const [a, b, r] = ['<lhs>', '<rhs>', '<result>'];
  const use = (id: string): Use => ({ id, result: 0, at });
  const argument = (id: string): BlockArgument => ({ id, type, at, attributes: NO_ATTRIBUTES });
  return {
    at,
    args: [argument(a), argument(b)],
    operations: [
      {
        name,
        at,
        results: [{ id: r, count: 1, at }],
        operands: [use(a), use(b)],
        attributes: NO_ATTRIBUTES,
        regions: [],
        operandTypes: [type, type],
        resultTypes: [type],
      },
      {
        name: 'stablehlo.return',
        at,
        results: [],
        operands: [use(r)],
        attributes: NO_ATTRIBUTES,
        regions: [],
        operandTypes: [type],
        resultTypes: [],
      },
    ],
  };
}

/**
 * `reducer(%a: t, %b: t) (%c: u, %d: u) {..}`: a pair an input; the block lists all first, then all
 * second members.
 */
function reducer(ops: FormReader, count: number): Region {
  const { reader } = ops;
  reader.expectWord('reducer');
  const first: BlockArgument[] = [];
  const second: BlockArgument[] = [];
  for (let i = 0; i < count; i++) {
    reader.expect('(');
    first.push(ops.argument());
    reader.expect(',');
    second.push(ops.argument());
    reader.expect(')');
  }
  return ops.region([...first, ...second]);
}

// ---- convolution
// -----------------------------------------------------------------------------

/**
 * `convolution(%a, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {stride = [2], ...}
 * {...} : ...`.
 */
function convolutionForm(ops: FormReader): Draft {
  const { reader } = ops;
  const operands = reader.list('(', ')', () => ops.use());
  reader.expectWord('dim_numbers');
  reader.expect('=');
  const stated: [string, MlirAttribute][] = [['dimension_numbers', readConvolutionDims(reader)]];
  reader.expect(',');
  reader.expectWord('window');
  reader.expect('=');
  reader.skip();
  const at = reader.pos;
  const window = optionalDictionary(reader);
  if (window === undefined) return reader.expected('the window');
  for (const [key, value] of window) {
    const name = Object.hasOwn(WINDOW, key) ? WINDOW[key] : undefined;
    if (name === undefined) reader.fail(`'${key}' is not a property of a window`, at);
    else stated.push([name, value]);
  }
  const attributes = withDictionary(reader, stated);
  const { operandTypes, resultTypes } = readSignature(ops);
  return { operands, attributes, regions: [], operandTypes, resultTypes: resultTypes ?? [] };
}

const WINDOW: Readonly<Record<string, string>> = {
  stride: 'window_strides',
  pad: 'padding',
  lhs_dilate: 'lhs_dilation',
  rhs_dilate: 'rhs_dilation',
  reverse: 'window_reversal',
};

/**
 * `[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]` as positions: batch (input feature), feature (output
 * feature), spatial dims.
 */
export function readConvolutionDims(reader: MlirReader): MlirAttribute {
  const entries = new Map<string, MlirAttribute>();
  const side = (name: string, first: string, second: string): void => {
    reader.skip();
    const at = reader.pos;
    const labels = reader.list('[', ']', () =>
      reader.peekNumber() ? reader.size('a spatial dim') : reader.word('a dim'),
    );
    const spatial = labels.filter((label) => typeof label === 'number').length;
    const order = [first, second, ...Array.from({ length: spatial }, (_, i) => i)];
    const positions = order.map((label) => labels.indexOf(label));
    if (labels.length !== order.length || positions.includes(-1))
      reader.fail(
        `expected ${first}, ${second} and the spatial dims 0 to ${spatial - 1}, each once`,
        at,
      );
    entries.set(name, ints(positions));
  };
  side('input_dimensions', 'b', 'f');
  reader.expectWord('x');
  side('kernel_dimensions', 'i', 'o');
  reader.expect('->');
  side('output_dimensions', 'b', 'f');
  return { kind: 'dict', entries };
}

// ---- Shardy
// -----------------------------------------------------------------------------

/** The body of a sharding without its name: `<@mesh, [...]>`. */
function sharding(reader: MlirReader): MlirAttribute {
  reader.expect('<');
  return { kind: 'dialect', name: 'sdy.sharding', body: reader.balanced() };
}

/** `sdy.sharding_constraint %x <@mesh, [...]> : T`, and `sdy.reshard` likewise. */
function constraint(ops: FormReader): Draft {
  const operands = [ops.use()];
  const stated: [string, MlirAttribute][] = [['sharding', sharding(ops.reader)]];
  return sameType(ops, operands, stated);
}

function sameType(
  ops: FormReader,
  operands: readonly Use[],
  stated: readonly [string, MlirAttribute][],
): Draft {
  const attributes = withDictionary(ops.reader, stated);
  const { operandTypes, resultTypes } = readSignature(ops);
  const all = resultTypes ?? operandTypes;
  return { operands, attributes, regions: [], operandTypes, resultTypes: all };
}

/**
 * `sdy.all_gather [{}, {"x"}] %a out_sharding=<...> : T` and the other steps that a partitioner
 * writes.
 */
function partitioned(ops: FormReader): Draft {
  const { reader } = ops;
  // Which axes move follows from the two shardings.
  if (reader.accept('[') || reader.accept('{')) {
    reader.pos--;
    skipBrackets(reader);
  }
  const operands = [ops.use()];
  reader.expectWord('out_sharding');
  reader.expect('=');
  return sameType(ops, operands, [['out_sharding', sharding(reader)]]);
}

/** Moves behind one pair of brackets. */
function skipBrackets(reader: MlirReader): void {
  const open = reader.text.charAt(reader.pos);
  const close = open === '[' ? ']' : '}';
  let depth = 0;
  do {
    if (reader.peek('"')) reader.string('a string');
    else if (reader.accept(open)) depth++;
    else if (reader.accept(close)) depth--;
    else if (reader.atEnd()) reader.expected(`'${close}'`);
    else reader.pos++;
  } while (depth > 0);
}

/**
 * `sdy.propagation_barrier %a allowed_direction=BACKWARD : T`, `sdy.sharding_group %a group_id=0 :
 * T`.
 */
function marked(ops: FormReader, name: string): Draft {
  const { reader } = ops;
  const operands = [ops.use()];
  const key = reader.word('an attribute');
  reader.expect('=');
  const value: MlirAttribute = reader.peekNumber()
    ? int(reader.size('a number'))
    : { kind: 'string', value: reader.word('a word') };
  const draft = sameType(ops, operands, [[key, value]]);
  return name === 'sdy.sharding_group' ? { ...draft, resultTypes: [] } : draft;
}

/**
 * `sdy.manual_computation(%a) in_shardings=[<..>] out_shardings=[<..>] manual_axes={"x"} (%arg: T)
 * {..} : (U) -> V`.
 */
function manual(ops: FormReader): Draft {
  const { reader } = ops;
  const operands = reader.list('(', ')', () => ops.use());
  const perValue = (key: string): [string, MlirAttribute] => {
    reader.expectWord(key);
    reader.expect('=');
    reader.skip();
    const from = reader.pos;
    if (!reader.peek('[')) reader.expected(`'['`);
    skipBrackets(reader);
    return [
      key,
      { kind: 'dialect', name: 'sdy.sharding_per_value', body: { from, to: reader.pos } },
    ];
  };
  const stated = [perValue('in_shardings'), perValue('out_shardings')];
  reader.expectWord('manual_axes');
  reader.expect('=');
  const axes = reader.list('{', '}', (): MlirAttribute => ({
    kind: 'string',
    value: reader.string('a mesh axis'),
  }));
  stated.push(['manual_axes', { kind: 'list', items: axes }]);
  const args = reader.peek('(') ? reader.list('(', ')', () => ops.argument()) : [];
  const body = ops.region(args);
  const attributes = withDictionary(reader, stated);
  reader.expect(':');
  return { operands, attributes, regions: [body], ...ops.functionType() };
}

/** By full name, or by base name for operations of `stablehlo`, `mhlo` and `chlo`. */
export const STRUCTURED: Readonly<Record<string, Form>> = {
  while: whileForm,
  reduce: reduceForm,
  convolution: convolutionForm,
  'func.call': callee('callee'),
  'func.return': terminator,
  'sdy.return': terminator,
  'sdy.sharding_constraint': constraint,
  'sdy.reshard': constraint,
  'sdy.manual_computation': manual,
  'sdy.propagation_barrier': marked,
  'sdy.sharding_group': marked,
  ...Object.fromEntries(
    [
      'all_gather',
      'all_slice',
      'all_to_all',
      'all_reduce',
      'reduce_scatter',
      'collective_permute',
      'sharded_to_unreduced',
      'replicated_to_unreduced',
    ].map((n) => [`sdy.${n}`, partitioned]),
  ),
};
