/**
 * Pretty forms of operations, turned into what the generic form says. An operation that is not in
 * the tables is read as an elementwise one (`%a, %b : T`), which covers new functions of a dialect.
 */

import { readAttribute } from './attributes.ts';
import {
  callee,
  type Draft,
  enumeration,
  type Form,
  type FormReader,
  int,
  ints,
  readSignature,
  terminator,
  withDictionary,
} from './forms.ts';
import { STRUCTURED } from './pretty-structured.ts';
import type { MlirReader } from './reader.ts';
import type { MlirAttribute, MlirType, Use } from './syntax.ts';
import { sameMlirType } from './types.ts';

export function readPretty(ops: FormReader, name: string, at: number): Draft {
  const base = name.slice(name.indexOf('.') + 1);
  const structured =
    own(STRUCTURED, name) ?? (isStableHlo(name) ? own(STRUCTURED, base) : undefined);
  if (structured !== undefined) return structured(ops, name);
  const form = isStableHlo(name) ? own(FORMS, base) : undefined;
  if (form !== undefined) return form(ops, name);
  if (!name.includes('.'))
    ops.reader.fail(
      `'${name}' is not an operation`,
      at,
      'E_SYNTAX',
      'operations carry their dialect: stablehlo.add',
    );
  if (!ops.reader.peek('%') && !ops.reader.peek(':'))
    ops.reader.fail(
      `the form of ${name} is not known`,
      at,
      'E_UNSUPPORTED',
      'print the program in generic form (--mlir-print-op-generic), which is the same for ' +
        'every operation',
    );
  return elementwise(ops);
}

function isStableHlo(name: string): boolean {
  return name.startsWith('stablehlo.') || name.startsWith('mhlo.') || name.startsWith('chlo.');
}

function own<T>(table: Readonly<Record<string, T>>, key: string): T | undefined {
  return Object.hasOwn(table, key) ? table[key] : undefined;
}

/**
 * Operands, dictionary, types: `T` is the type of all operands and the result; a last type of
 * several is the result's.
 */
function finish(
  ops: FormReader,
  operands: readonly Use[],
  stated: readonly (readonly [string, MlirAttribute])[],
): Draft {
  const attributes = withDictionary(ops.reader, stated);
  const at = ops.reader.pos;
  const { operandTypes, resultTypes } = readSignature(ops);
  if (resultTypes !== undefined)
    return { operands, attributes, regions: [], operandTypes, resultTypes };
  const [first, second, ...others] = operandTypes;
  if (first !== undefined && second === undefined)
    return {
      operands,
      attributes,
      regions: [],
      operandTypes: operands.map(() => first),
      resultTypes: [first],
    };
  // `select %p, %a, %b : Tp, T`.
  if (first !== undefined && second !== undefined && others.length === 0 && operands.length === 3)
    return {
      operands,
      attributes,
      regions: [],
      operandTypes: [first, second, second],
      resultTypes: [second],
    };
  return ops.reader.fail(
    `${operandTypes.length} types for ${operands.length} operands`,
    at,
    'E_TYPE',
    'write (T, U) -> V',
  );
}

function elementwise(ops: FormReader): Draft {
  return finish(ops, ops.uses(), []);
}

/**
 * `key = value` pairs behind operands, each after a comma: `dims = [0, 2]`, `contracting_dims = [1]
 * x [0]`.
 */
function pairs(
  reader: MlirReader,
  keys: Readonly<Record<string, string>>,
): [string, MlirAttribute][] {
  const out: [string, MlirAttribute][] = [];
  do {
    reader.skip();
    const at = reader.pos;
    const key = reader.word('the name of an attribute');
    const name = own(keys, key);
    if (name === undefined)
      reader.fail(
        `'${key}' is not an attribute of this form`,
        at,
        'E_SYNTAX',
        `expected ${Object.keys(keys).join(', ')}`,
      );
    else {
      reader.expect('=');
      // A colon behind a number starts the types of the operation.
      out.push([name, reader.peekNumber() ? int(reader.size('a number')) : readAttribute(reader)]);
    }
  } while (reader.accept(','));
  return out;
}

/** Operands, then `, key = value` pairs. */
function operandsThenPairs(ops: FormReader, keys: Readonly<Record<string, string>>): Draft {
  const operands: Use[] = [];
  const { reader } = ops;
  let stated: [string, MlirAttribute][] = [];
  if (reader.peek('%')) {
    operands.push(ops.use());
    while (reader.accept(',')) {
      if (reader.peek('%')) operands.push(ops.use());
      else {
        stated = pairs(reader, keys);
        break;
      }
    }
  } else if (!reader.peek(':') && !reader.peek('{')) stated = pairs(reader, keys);
  return finish(ops, operands, stated);
}

const keyed =
  (keys: Readonly<Record<string, string>>): Form =>
  (ops) =>
    operandsThenPairs(ops, keys);

// ---- the forms
// -----------------------------------------------------------------------------

/** `compare LT, %a, %b, SIGNED : (T, U) -> V`; old texts lack the kind, or have two blanks. */
function compare(ops: FormReader): Draft {
  const { reader } = ops;
  const stated: [string, MlirAttribute][] = [
    ['comparison_direction', enumeration(reader.word('a comparison'))],
  ];
  reader.expect(',');
  const operands = [ops.use()];
  reader.expect(',');
  operands.push(ops.use());
  if (reader.accept(','))
    stated.push(['compare_type', enumeration(reader.word('a kind of comparison'))]);
  return finish(ops, operands, stated);
}

/** `constant {attributes} dense<...> : T`; the type belongs to the value. */
function constant(ops: FormReader): Draft {
  const { reader } = ops;
  const attributes = new Map(withDictionary(reader, []));
  reader.skip();
  const at = reader.pos;
  const value = readAttribute(reader);
  if (value.kind !== 'dense' && value.kind !== 'resource')
    return reader.fail('expected dense<...> and a type', at);
  attributes.set('value', value);
  return { operands: [], attributes, regions: [], operandTypes: [], resultTypes: [value.type] };
}

/** `slice %a [0:4, 1:8:2] : (T) -> U`. */
function slice(ops: FormReader): Draft {
  const { reader } = ops;
  const operand = ops.use();
  const ranges = reader.list('[', ']', () => {
    const start = reader.size('the first row');
    reader.expect(':');
    const limit = reader.size('the row behind the last');
    return [start, limit, reader.accept(':') ? reader.size('the step') : 1] as const;
  });
  const column = (k: 0 | 1 | 2): MlirAttribute => ints(ranges.map((range) => range[k]));
  return finish(
    ops,
    [operand],
    [
      ['start_indices', column(0)],
      ['limit_indices', column(1)],
      ['strides', column(2)],
    ],
  );
}

/**
 * `dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = [..],
 * algorithm = <..> : ...`.
 */
function dotGeneral(ops: FormReader): Draft {
  const { reader } = ops;
  const operands = [ops.use()];
  reader.expect(',');
  operands.push(ops.use());
  const dims = new Map<string, MlirAttribute>();
  const stated: [string, MlirAttribute][] = [];
  while (reader.accept(',')) {
    reader.skip();
    const at = reader.pos;
    const key = reader.word('a part of dot_general');
    reader.expect('=');
    if (key === 'batching_dims' || key === 'contracting_dims') {
      const word = key === 'batching_dims' ? 'batching' : 'contracting';
      dims.set(`lhs_${word}_dimensions`, dimList(reader));
      reader.expectWord('x');
      dims.set(`rhs_${word}_dimensions`, dimList(reader));
    } else if (key === 'precision') stated.push(['precision_config', wordList(reader)]);
    else if (key === 'algorithm') {
      reader.expect('<');
      stated.push([
        'algorithm',
        { kind: 'dialect', name: 'stablehlo.dot_algorithm', body: reader.balanced() },
      ]);
    } else reader.fail(`'${key}' is not part of dot_general`, at);
  }
  return finish(ops, operands, [
    ['dot_dimension_numbers', { kind: 'dict', entries: dims }],
    ...stated,
  ]);
}

function dimList(reader: MlirReader): MlirAttribute {
  return ints(reader.list('[', ']', () => reader.size('a dim')));
}

function wordList(reader: MlirReader): MlirAttribute {
  return {
    kind: 'list',
    items: reader.list('[', ']', () => enumeration(reader.word('a precision'))),
  };
}

/** `dot %a, %b, precision = [DEFAULT, DEFAULT] : ...`. */
function dot(ops: FormReader): Draft {
  const { reader } = ops;
  const operands = [ops.use()];
  reader.expect(',');
  operands.push(ops.use());
  const stated: [string, MlirAttribute][] = [];
  if (reader.accept(',')) {
    reader.expectWord('precision');
    reader.expect('=');
    stated.push(['precision_config', wordList(reader)]);
  }
  return finish(ops, operands, stated);
}

/** `composite "name" %a, %b {...} : (T, U) -> V`. */
function composite(ops: FormReader): Draft {
  const name: MlirAttribute = {
    kind: 'string',
    value: ops.reader.string('the name of the composite'),
  };
  return finish(ops, ops.uses(), [['name', name]]);
}

/** `optimization_barrier %a, %b : T, U`: one result an operand. */
function barrier(ops: FormReader): Draft {
  const operands = ops.reader.peek('(') ? ops.reader.list('(', ')', () => ops.use()) : ops.uses();
  const attributes = withDictionary(ops.reader, []);
  const { operandTypes, resultTypes } = readSignature(ops);
  return {
    operands,
    attributes,
    regions: [],
    operandTypes,
    resultTypes: resultTypes ?? operandTypes,
  };
}

/** `get_tuple_element %t[0] : (tuple<...>) -> T`. */
function getTupleElement(ops: FormReader): Draft {
  const operand = ops.use();
  ops.reader.expect('[');
  const index = ops.reader.size('the number of an element');
  ops.reader.expect(']');
  return finish(ops, [operand], [['index', int(index)]]);
}

/** `tuple %a, %b : tuple<T, U>`. */
function tuple(ops: FormReader): Draft {
  const operands = ops.uses();
  const attributes = withDictionary(ops.reader, []);
  const { operandTypes, resultTypes } = readSignature(ops);
  const result = (resultTypes ?? operandTypes)[0];
  const items = result?.kind === 'tuple' ? result.items : [];
  return {
    operands,
    attributes,
    regions: [],
    operandTypes: items,
    resultTypes: result === undefined ? [] : [result],
  };
}

/** `reduce_precision %a, format = e5m10 : T`. */
function reducePrecision(ops: FormReader): Draft {
  const { reader } = ops;
  const operand = ops.use();
  reader.expect(',');
  reader.expectWord('format');
  reader.expect('=');
  reader.skip();
  const at = reader.pos;
  const format = /^e(\d{1,3})m(\d{1,3})$/.exec(reader.word('a format such as e5m10'));
  if (format === null) return reader.fail('expected a format such as e5m10', at);
  return finish(
    ops,
    [operand],
    [
      ['exponent_bits', int(Number(format[1]))],
      ['mantissa_bits', int(Number(format[2]))],
    ],
  );
}

/** `partition_id : T`. */
function nullary(ops: FormReader): Draft {
  const attributes = withDictionary(ops.reader, []);
  const { operandTypes, resultTypes } = readSignature(ops);
  return {
    operands: [],
    attributes,
    regions: [],
    operandTypes: [],
    resultTypes: resultTypes ?? operandTypes,
  };
}

/** `chlo.top_k(%x, k = 4) : T -> (U, V)`. */
function topK(ops: FormReader): Draft {
  const { reader } = ops;
  reader.expect('(');
  const operand = ops.use();
  reader.expect(',');
  reader.expectWord('k');
  reader.expect('=');
  const k = reader.size('k');
  reader.expect(')');
  return finish(ops, [operand], [['k', int(k)]]);
}

const FORMS: Readonly<Record<string, Form>> = {
  compare,
  broadcast_compare: compare,
  constant,
  slice,
  dot_general: dotGeneral,
  dot,
  custom_call: callee('call_target_name'),
  composite,
  optimization_barrier: barrier,
  return: terminator,
  get_tuple_element: getTupleElement,
  tuple,
  reduce_precision: reducePrecision,
  partition_id: nullary,
  replica_id: nullary,
  top_k: topK,
  iota: keyed({ dim: 'iota_dimension' }),
  broadcast_in_dim: keyed({ dims: 'broadcast_dimensions' }),
  transpose: keyed({ dims: 'permutation' }),
  reverse: keyed({ dims: 'dimensions' }),
  concatenate: keyed({ dim: 'dimension' }),
  pad: keyed({ low: 'edge_padding_low', high: 'edge_padding_high', interior: 'interior_padding' }),
  dynamic_slice: keyed({ sizes: 'slice_sizes' }),
  dynamic_update_slice: keyed({}),
  get_dimension_size: keyed({ dim: 'dimension' }),
  set_dimension_size: keyed({ dim: 'dimension' }),
  complex: complexForm,
  cholesky: keyed({ lower: 'lower' }),
  fft: fftForm,
  rng: rngForm,
  rng_bit_generator: rngForm,
};

/** `complex %re, %im : T` names the type of the result; both parts are real. */
function complexForm(ops: FormReader): Draft {
  const draft = elementwise(ops);
  const [type] = draft.resultTypes;
  if (type?.kind !== 'tensor' || !type.dtype.startsWith('c')) return draft;
  const part: MlirType = { ...type, dtype: type.dtype === 'c64' ? 'f32' : 'f64' };
  const stated = draft.operandTypes.map((given) => (sameMlirType(given, type) ? part : given));
  return { ...draft, operandTypes: stated };
}

/** `fft %a, type = RFFT, length = [8] : ...`. */
function fftForm(ops: FormReader): Draft {
  const { reader } = ops;
  const operand = ops.use();
  reader.expect(',');
  reader.expectWord('type');
  reader.expect('=');
  const kind = enumeration(reader.word('a kind of transform'));
  reader.expect(',');
  reader.expectWord('length');
  reader.expect('=');
  return finish(
    ops,
    [operand],
    [
      ['fft_type', kind],
      ['fft_length', readAttribute(reader)],
    ],
  );
}

/**
 * `rng %a, %b, %shape, distribution = UNIFORM : ...` and `rng_bit_generator %s, algorithm = DEFAULT
 * : ...`.
 */
function rngForm(ops: FormReader): Draft {
  const { reader } = ops;
  const operands = [ops.use()];
  let stated: [string, MlirAttribute][] = [];
  while (reader.accept(',')) {
    if (reader.peek('%')) operands.push(ops.use());
    else {
      const key = reader.word('distribution or algorithm');
      reader.expect('=');
      stated = [[`rng_${key}`, enumeration(reader.word('a word'))]];
    }
  }
  return finish(ops, operands, stated);
}
