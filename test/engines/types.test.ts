import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';

import { describe, expect, test } from 'vitest';

import type { DType, ValueType } from '../../src/graph/types.ts';
import { inferCall } from '../../src/ops/record/infer.ts';
import type { ArgSchema } from '../../src/ops/record/schema.ts';
import {
  type CallText,
  parseCall,
  type TensorSpec,
  typeOf,
} from '../../src/ops/samples/call-text.ts';
import { isTorch } from '../../src/ops/samples/table.ts';
import { operators, samples } from './samples/all.ts';
import { type FixtureCall, fixtureCall } from './support/fixture-calls.ts';
import { ABSENT, OTHER_SCHEMA, VALUES_FIRST } from './support/not-run.ts';
import { askTorch } from './support/torch.ts';
import { wireCall } from './support/wire-call.ts';

/** Result types and schemas of every record against PyTorch on fake tensors. */

/**
 * The same call with its free tensors (those written by a word for values) in other dtypes, in
 * turn.
 */
function retyped(call: CallText, dtypes: readonly DType[]): CallText {
  let next = 0;
  const tensors = new Map<string, TensorSpec>();
  for (const [name, tensor] of call.tensors)
    tensors.set(name, tensor.free ? { ...tensor, dtype: dtypes[next++ % dtypes.length] } : tensor);
  return { ...call, text: `${call.text} in ${dtypes.join(', ')}`, tensors };
}

const FLOATS: readonly DType[] = ['f32', 'bf16', 'f16', 'f64'];
const DTYPES: readonly DType[] = [...FLOATS, 'i64', 'i32', 'i16', 'i8', 'u8', 'b8'];
const PROMOTED: readonly DType[] = ['f64', 'f32', 'bf16', 'f16', 'i64', 'i32', 'u8', 'b8'];

/** Records that the samples leave out because no CPU runs them; their types need none. */
const GPU_CALLS = [
  '_scaled_dot_product_flash_attention(bf16[2,4,6,8], bf16[2,4,6,8], bf16[2,4,6,8], 0.0, True)',
  '_scaled_dot_product_flash_attention_backward(bf16[2,4,6,8], bf16[2,4,6,8], bf16[2,4,6,8], bf16[2,4,6,8], bf16[2,4,6,8], f32[2,4,6], None, None, 6, 6, 0.0, False, i64[2], i64[])',
  '_scaled_dot_product_efficient_attention(bf16[2,4,6,8], bf16[2,4,10,8], bf16[2,4,10,16], None, True)',
  '_scaled_dot_product_efficient_attention(f32[2,4,64,8], f32[2,4,10,8], f32[2,4,10,8], f32[2,4,64,10], False)',
  '_scaled_dot_product_efficient_attention_backward(bf16[2,4,64,8], bf16[2,4,64,8], bf16[2,4,10,8], bf16[2,4,10,8], None, bf16[2,4,64,8], f32[2,4,64], i64[], i64[], 0.0, [True,True,True,False])',
  '_scaled_dot_product_cudnn_attention(bf16[2,4,6,8], bf16[2,4,10,8], bf16[2,4,10,8], None, True)',
  '_scaled_dot_product_cudnn_attention_backward(bf16[2,4,6,8], bf16[2,4,6,8], bf16[2,4,10,8], bf16[2,4,10,8], bf16[2,4,6,8], f32[2,4,6], i64[], i64[], None, None, None, 6, 10, 0.0, False)',
];

/**
 * Every sample as it stands and in other dtypes; where several tensors meet, in all pairs of
 * dtypes.
 */
function variants(call: CallText): CallText[] {
  const free = [...call.tensors.values()].filter((t) => t.free).length;
  if (free === 0) return [call];
  const record = operators.get(call.target);
  const promotes = record?.cls === 'pointwise' && free >= 2 && !/_backward\b/.test(call.target);
  const mixes = promotes ? PROMOTED.flatMap((a) => PROMOTED.map((b) => [a, b])) : [];
  // Gradients and losses of integers are not programs; a kernel may even divide by a constant that
  // it cut to zero.
  const dtypes = /_backward|_loss|norm\b/.test(call.target) ? FLOATS : DTYPES;
  return [
    call,
    ...dtypes.map((dtype) => retyped(call, [dtype])),
    ...mixes.map((pair) => retyped(call, pair)),
  ];
}

/** Zero-dim tensors and numbers, which promote in their own way. */
const PROMOTION = [
  'add.Tensor',
  'mul.Tensor',
  'div.Tensor',
  'sub.Tensor',
  'floor_divide',
  'maximum',
  'remainder.Tensor',
  'pow.Tensor_Tensor',
  'eq.Tensor',
  'atan2',
  'fmod.Tensor',
].flatMap((op) =>
  ['x[4,5], x[]', 'x[], x[4,5]', 'x[], x[]', 'x[1,5], x[4,1]', 'x[0,5], x[5]'].map(
    (args) => `${op}(${args})`,
  ),
);
const NUMBERS = [
  'add.Tensor',
  'sub.Tensor',
  'mul.Tensor',
  'div.Tensor',
  'add.Scalar',
  'sub.Scalar',
  'rsub.Scalar',
  'mul.Scalar',
  'div.Scalar',
  'pow.Tensor_Scalar',
  'remainder.Scalar',
  'fmod.Scalar',
  'eq.Scalar',
  'lt.Scalar',
  'clamp_min',
  'clamp_max',
  'clamp',
  'add_.Tensor',
  'mul_.Scalar',
  'full_like',
  'fill.Scalar',
  'masked_fill.Scalar',
  'hardtanh',
  'leaky_relu',
  'where.ScalarOther',
  'where.ScalarSelf',
].flatMap((op) =>
  ['2', '1.5', 'True'].flatMap((n) =>
    ['4,5', ''].map((shape) =>
      op === 'masked_fill.Scalar'
        ? `${op}(x[${shape}], b8[], ${n})`
        : op === 'where.ScalarOther'
          ? `${op}(b8[${shape}], x[${shape}], ${n})`
          : op === 'where.ScalarSelf'
            ? `${op}(b8[${shape}], ${n}, x[${shape}])`
            : `${op}(x[${shape}], ${n})`,
    ),
  ),
);

const fixture = JSON.parse(
  gunzipSync(readFileSync(new URL('../fixtures/ops/calls.json.gz', import.meta.url))).toString(),
) as { readonly calls: readonly FixtureCall[] };

/** Small calls run for real; those of real models, and of GPU kernels, on fake tensors. */
const calls: readonly { readonly call: CallText; readonly run: boolean }[] = [
  ...[...samples, ...[...PROMOTION, ...NUMBERS].map(parseCall)]
    .flatMap(variants)
    .map((call) => ({ call, run: true })),
  ...[...GPU_CALLS.map(parseCall), ...fixture.calls.map(fixtureCall)].map((call) => ({
    call,
    run: false,
  })),
];

type SchemaRow = readonly [name: string, type: string, kwargOnly: boolean, fallback: string | null];
type Types = readonly (string | null)[] | { readonly error: string };
/** The other dialects of the table are not PyTorch's. */
const torchRecords = operators.records.filter((r) => isTorch(r.name));
const known = calls.flatMap(({ call, run }) => {
  const record = operators.get(call.target);
  return record === undefined ? [] : [{ call, wire: { ...wireCall(record, call), run } }];
});
const answer = askTorch<{
  types: readonly Types[];
  schemas: Readonly<Record<string, readonly SchemaRow[] | null>>;
}>('infer_types.py', {
  calls: known.map(({ wire }) => wire),
  targets: torchRecords.map((r) => r.name),
});

/**
 * Saved statistics of 16-bit layer and batch norms are f32 on a GPU, for which we plan, and 16-bit
 * on the CPU that these calls ran on: of those calls only the first result is compared.
 */
const STATISTICS =
  /^aten\.(native_layer_norm|(_?native_)?batch_norm\w*|_native_batch_norm\w*|_batch_norm_with_update\w*)\./;
const on16Bits = (call: CallText): boolean =>
  [...call.tensors.values()].some((t) => t.dtype === 'bf16' || t.dtype === 'f16');

const text = (type: ValueType): string | null =>
  type.kind === 'tensor' ? `${type.dtype}[${type.shape.map(String).join(',')}]` : null;

/** Our types of a call as PyTorch's side prints them. */
function ours(call: CallText): Types {
  try {
    const type = inferCall(operators, call, typeOf(call));
    if (type === undefined) return { error: 'no record' };
    return type.kind === 'tuple' ? type.items.map(text) : [text(type)];
  } catch (error) {
    return { error: String(error) };
  }
}

describe('types of calls against PyTorch', () => {
  test('every call that PyTorch takes gets the dtypes and shapes that PyTorch gives', () => {
    const wrong: string[] = [];
    const reached = new Set<string>();
    let compared = 0;
    let refused = 0;
    known.forEach(({ call }, i) => {
      const want = answer.types[i];
      if ('error' in want) {
        refused++;
        return;
      }
      compared++;
      reached.add(operators.get(call.target)?.name ?? '');
      const got = ours(call);
      const show = (types: Types): string =>
        'error' in types ? types.error : types.map(String).join(' ');
      const same =
        !('error' in got) && got.length === want.length && got.every((t, k) => t === want[k]);
      const statistics = on16Bits(call) && STATISTICS.test(call.target);
      const isEqual = statistics ? !('error' in got) && got[0] === want[0] : same;
      if (!isEqual) wrong.push(`${call.text}: ${show(got)}, PyTorch ${show(want)}`);
    });
    process.stdout.write(
      `${compared} calls of ${reached.size} operators with equal types, statistics of 16-bit norms aside; ${refused} calls that PyTorch refuses\n`,
    );
    expect(wrong).toEqual([]);
    const untried = torchRecords.map((r) => r.name).filter((name) => !reached.has(name));
    expect(untried).toEqual([...ABSENT, ...VALUES_FIRST]);
  });
});

describe('schemas against PyTorch', () => {
  const plain = (type: string): string =>
    type.replace(/List\[(.*)\]/, '$1[]').replace(/Optional\[(.*)\]/, '$1?');

  test('arguments have the names, order and defaults of PyTorch', () => {
    const wrong: string[] = [];
    for (const record of torchRecords) {
      const rows = answer.schemas[record.name];
      if (rows === null) continue;
      const why = compare(record.schema, rows);
      if (why !== undefined) wrong.push(`${record.name}: ${why}`);
    }
    expect(wrong).toEqual(OTHER_SCHEMA);
  });

  test('records that PyTorch has no overload for are listed', () => {
    expect(Object.keys(answer.schemas).filter((name) => answer.schemas[name] === null)).toEqual(
      ABSENT,
    );
  });

  /**
   * Our schema may leave out a tail of keywords that mean nothing to a plan; what it has must be
   * PyTorch's.
   */
  function compare(own: readonly ArgSchema[], rows: readonly SchemaRow[]): string | undefined {
    for (const [k, s] of own.entries()) {
      const row = rows.find(([name]) => name === s.name);
      if (row === undefined) return `PyTorch has no argument '${s.name}'`;
      if (!s.kwargOnly && rows.indexOf(row) !== k)
        return `'${s.name}' is argument ${rows.indexOf(row)} in PyTorch, ${k} here`;
      if (s.kwargOnly && !row[2]) return `'${s.name}' is positional in PyTorch`;
      if (s.required && row[3] !== null) return `'${s.name}' has the default ${row[3]} in PyTorch`;
      if (!s.required && row[3] === null) return `'${s.name}' is required in PyTorch`;
      if (s.type.startsWith('Tensor') !== plain(row[1]).startsWith('Tensor'))
        return `'${s.name}' is a ${row[1]} in PyTorch`;
      if (!s.required && row[3] !== null && !sameDefault(s, row[3]))
        return `'${s.name}' is ${row[3]} by default in PyTorch, ${JSON.stringify(s.default)} here`;
    }
    return undefined;
  }

  function sameDefault(s: ArgSchema, theirs: string): boolean {
    const { default: mine } = s;
    // One number stands for as many equal ones as there are dims.
    const numbers = /^\[(-?\d+)(, \1)*\]$/.exec(theirs)?.[1];
    if (Array.isArray(mine) && mine.length === 1 && numbers !== undefined)
      return Number(numbers) === mine[0];
    if (mine === null || mine === undefined) return theirs === 'None';
    if (typeof mine === 'boolean') return theirs === (mine ? 'True' : 'False');
    if (typeof mine === 'number') return Number(theirs) === mine;
    if (typeof mine === 'string') return theirs === `'${mine}'`;
    return theirs === `[${mine.join(', ')}]` || (mine.length === 1 && Number(theirs) === mine[0]);
  }
});
