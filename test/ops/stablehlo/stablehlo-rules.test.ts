import { describe, expect, test } from 'vitest';

import { P, R, type Rule, rule, ruleText, S } from '../../../src/ops/record/rule.ts';
import { OperatorTable } from '../../../src/ops/record/table.ts';
import { stablehloOps } from '../../../src/ops/stablehlo/operators.ts';
import { makeCall, type TestArg } from '../support/calls.ts';
import { draw } from '../support/draw.ts';
import { admitted, judge } from '../support/ranks.ts';
import { stablehloKernels } from '../support/stablehlo-kernels.ts';

/**
 * Every rule of the StableHLO records is run on simulated ranks: worlds of 2, 3 and 4, and all
 * pairs of rules on a (2,2) mesh, on even and uneven sizes, against the unsharded result in
 * float64.
 */
const table = new OperatorTable(stablehloOps);

const t = (...shape: number[]): TestArg => ({ t: shape });
const pos = (...shape: number[]): TestArg => ({ t: shape, init: 'pos' });
const ints = (hi: number, ...shape: number[]): TestArg => ({
  t: shape,
  dt: 'i32',
  init: 'int',
  hi,
});
const signed = (hi: number, ...shape: number[]): TestArg => ({
  t: shape,
  dt: 'i32',
  init: 'signed',
  hi,
});
const perm = (hi: number, ...shape: number[]): TestArg => ({
  t: shape,
  dt: 'i32',
  init: 'perm',
  hi,
});
const bools = (...shape: number[]): TestArg => ({ t: shape, dt: 'bool', init: 'bool' });
type Sample = readonly [
  op: string,
  args: readonly TestArg[],
  kwargs?: Readonly<Record<string, TestArg>>,
];

const rows = {
  offset_dims: [2],
  collapsed_slice_dims: [0],
  start_index_map: [0],
  index_vector_dim: 2,
  slice_sizes: [1, 5],
};
const batched = {
  offset_dims: [],
  collapsed_slice_dims: [2],
  operand_batching_dims: [0, 1],
  start_indices_batching_dims: [0, 1],
  start_index_map: [2],
  index_vector_dim: 3,
  slice_sizes: [1, 1, 1],
};
const scatterRows = {
  update_window_dims: [2],
  inserted_window_dims: [0],
  scatter_dims_to_operand_dims: [0],
  index_vector_dim: 2,
};
const window = {
  window_dimensions: [1, 1, 3],
  window_strides: [1, 1, 2],
  padding: [0, 0, 0, 0, 1, 1],
};

const samples: readonly Sample[] = [
  ...['negate', 'abs', 'ceil', 'sign', 'exponential', 'tanh', 'logistic', 'sine', 'is_finite'].map(
    (n): Sample => [`stablehlo.${n}`, [t(5, 4)]],
  ),
  ['stablehlo.rsqrt', [pos(5, 4)]],
  ['stablehlo.not', [bools(5, 4)]],
  ['chlo.erfc', [t(5, 4)]],
  ['chlo.square', [t(5, 4)]],
  ...['add', 'subtract', 'multiply', 'maximum', 'minimum'].map((n): Sample => [
    `stablehlo.${n}`,
    [t(5, 4), t(5, 4)],
  ]),
  ['stablehlo.divide', [t(5, 4), pos(5, 4)]],
  ['stablehlo.power', [pos(5, 4), t(5, 4)]],
  ...['and', 'or'].map((n): Sample => [`stablehlo.${n}`, [bools(5, 4), bools(5, 4)]]),
  ...['EQ', 'NE', 'LT', 'LE', 'GT', 'GE'].map((c): Sample => [
    'stablehlo.compare',
    [t(5, 4), t(5, 4)],
    { comparison_direction: c },
  ]),
  ['stablehlo.select', [bools(5, 4), t(5, 4), t(5, 4)]],
  ['stablehlo.select', [bools(), t(5, 4), t(5, 4)]],
  ['stablehlo.clamp', [t(), t(5, 4), pos()]],
  ['stablehlo.clamp', [t(5, 4), t(5, 4), pos(5, 4)]],
  ['stablehlo.convert', [t(5, 4), null], {}],
  [
    'stablehlo.dot_general',
    [t(5, 6), t(6, 4)],
    { lhs_contracting_dimensions: [1], rhs_contracting_dimensions: [0] },
  ],
  [
    'stablehlo.dot_general',
    [t(4, 5, 3, 6), t(4, 7, 3, 6)],
    {
      lhs_batching_dimensions: [0, 2],
      rhs_batching_dimensions: [0, 2],
      lhs_contracting_dimensions: [3],
      rhs_contracting_dimensions: [3],
    },
  ],
  [
    'stablehlo.dot_general',
    [t(4, 5, 3), t(4, 5, 6)],
    { lhs_contracting_dimensions: [0, 1], rhs_contracting_dimensions: [0, 1] },
  ],
  [
    'stablehlo.convolution',
    [t(4, 5, 5, 4), t(3, 3, 4, 6)],
    {
      input_dimensions: [0, 3, 1, 2],
      kernel_dimensions: [2, 3, 0, 1],
      output_dimensions: [0, 3, 1, 2],
      window_strides: [2, 2],
      padding: [1, 1, 1, 1],
    },
  ],
  [
    'stablehlo.convolution',
    [t(4, 12, 5), t(12, 2, 3)],
    {
      input_dimensions: [0, 1, 2],
      kernel_dimensions: [1, 0, 2],
      output_dimensions: [0, 1, 2],
      window_strides: [1],
      padding: [0, 0],
      feature_group_count: 6,
    },
  ],
  ['stablehlo.broadcast_in_dim', [t(5, 1)], { broadcast_dimensions: [1, 2], shape: [4, 5, 6] }],
  ['stablehlo.broadcast_in_dim', [t()], { broadcast_dimensions: [], shape: [5, 4] }],
  ['stablehlo.broadcast_in_dim', [t(4, 5)], { broadcast_dimensions: [2, 0], shape: [5, 3, 4] }],
  ['stablehlo.reshape', [t(4, 6, 5)], { shape: [24, 5] }],
  ['stablehlo.reshape', [t(12, 8)], { shape: [3, 4, 1, 8] }],
  ['stablehlo.transpose', [t(4, 5, 3)], { permutation: [2, 0, 1] }],
  ['stablehlo.slice', [t(8, 6)], { start_indices: [0, 1], limit_indices: [8, 5], strides: [1, 2] }],
  [
    'stablehlo.slice',
    [t(12, 6)],
    { start_indices: [0, 0], limit_indices: [12, 6], strides: [2, 1] },
  ],
  [
    'stablehlo.pad',
    [t(5, 4), t()],
    { edge_padding_low: [0, 1], edge_padding_high: [0, 2], interior_padding: [0, 1] },
  ],
  ['stablehlo.concatenate', [[t(3, 4), t(5, 4)]], { dimension: 0 }],
  ['stablehlo.reverse', [t(5, 4)], { dimensions: [0] }],
  ['stablehlo.iota', [1], { dtype: 'i32', shape: [5, 8] }],
  ['stablehlo.constant', [3.5], { dtype: 'f32', shape: [5, 4] }],
  ['stablehlo.dynamic_slice', [t(6, 5), [signed(8), signed(3)]], { slice_sizes: [1, 5] }],
  ['stablehlo.dynamic_slice', [t(6, 5), [signed(8), signed(3)]], { slice_sizes: [3, 5] }],
  ['stablehlo.dynamic_update_slice', [t(6, 5), t(1, 5), [signed(8), signed(3)]]],
  ['stablehlo.dynamic_update_slice', [t(6, 5), t(3, 5), [signed(8), signed(3)]]],
  ['stablehlo.gather', [t(7, 5), signed(9, 4, 6, 1)], rows],
  ['stablehlo.gather', [t(4, 5, 6), ints(6, 4, 5, 1, 1)], batched],
  [
    'stablehlo.gather',
    [t(4, 5, 6), ints(6, 1)],
    {
      offset_dims: [0, 1],
      collapsed_slice_dims: [2],
      start_index_map: [2],
      index_vector_dim: 0,
      slice_sizes: [4, 5, 1],
    },
  ],
  ['stablehlo.gather', [bools(7, 5), ints(7, 4, 6, 1)], rows],
  ...['add', 'maximum', 'minimum'].map((reducer): Sample => [
    'stablehlo.scatter',
    [[t(7, 5)], signed(8, 4, 6, 1), [t(4, 6, 5)]],
    { ...scatterRows, reducer },
  ]),
  // Overwriting is only defined where no place is written twice.
  [
    'stablehlo.scatter',
    [[t(24, 5)], perm(24, 4, 6, 1), [t(4, 6, 5)]],
    { ...scatterRows, reducer: 'second' },
  ],
  [
    'stablehlo.scatter',
    [[t(4, 5, 6)], ints(6, 4, 5, 2, 1), [t(4, 5, 2)]],
    {
      inserted_window_dims: [2],
      input_batching_dims: [0, 1],
      scatter_indices_batching_dims: [0, 1],
      scatter_dims_to_operand_dims: [2],
      index_vector_dim: 3,
      reducer: 'add',
    },
  ],
  ...['add', 'maximum', 'minimum', 'multiply'].map((reducer): Sample => [
    'stablehlo.reduce',
    [[t(5, 4, 6)], [t()]],
    { dimensions: [1], reducer },
  ]),
  ...['and', 'or', 'add', 'maximum'].map((reducer): Sample => [
    'stablehlo.reduce',
    [[bools(5, 4)], [bools()]],
    { dimensions: [0], reducer },
  ]),
  [
    'stablehlo.reduce',
    [
      [t(5, 4), ints(9, 5, 4)],
      [t(), ints(9)],
    ],
    { dimensions: [1], reducer: 'argmax' },
  ],
  ...['add', 'maximum'].map((reducer): Sample => [
    'stablehlo.reduce_window',
    [[t(4, 5, 6)], [t()]],
    { ...window, reducer },
  ]),
  [
    'stablehlo.select_and_scatter',
    [t(4, 5, 6), t(4, 5, 3), t()],
    { window_dimensions: [1, 1, 2], window_strides: [1, 1, 2] },
  ],
  ['stablehlo.sort', [[t(5, 4)]], { dimension: 1 }],
  ['chlo.top_k', [t(5, 4)], { k: 3 }],
  ['stablehlo.optimization_barrier', [[t(5, 4), t(4), t()]]],
  ['sdy.sharding_constraint', [t(5, 4)]],
];

function load([op, args, kwargs]: Sample, seed: number) {
  const record = table.get(op);
  if (record === undefined) throw new Error(`no record ${op}`);
  // A dtype stands as text in these samples.
  const dtyped = (value: TestArg): TestArg =>
    value === 'i32' || value === 'f32' ? ({ kind: 'dtype', dtype: value } as never) : value;
  const named = Object.fromEntries(
    Object.entries(kwargs ?? {}).map(([key, value]) => [key, dtyped(value)]),
  );
  const call = makeCall(
    record,
    args.map((a) => (a === null ? dtyped('f32') : a)),
    named,
  );
  return {
    ctx: call.ctx,
    inputs: call.tensors.map((arg, i) => draw(arg, seed + 7 * i)),
    kernel: stablehloKernels[op],
    rules: record.shard(call.ctx),
  };
}

const title = ([op, args, kwargs]: Sample): string =>
  `${op} ${JSON.stringify(args)} ${JSON.stringify(kwargs ?? {})}`;

describe('every rule gives the unsharded result', () => {
  test.each(samples.map((s) => [title(s), s] as const))('%s', (_, sample) => {
    const wrong: string[] = [];
    const idle = new Set(load(sample, 1).rules.map(ruleText));
    for (const seed of [1, 2]) {
      const { ctx, inputs, kernel, rules } = load(sample, seed);
      const meshes: [number[], Rule[][]][] = [[2], [3], [4]].map((sizes): [number[], Rule[][]] => [
        sizes,
        rules.map((r) => [r]),
      ]);
      if (seed === 1) meshes.push([[2, 2], rules.flatMap((a) => rules.map((b) => [a, b]))]);
      for (const [sizes, combinations] of meshes)
        for (const chosen of combinations) {
          if (!admitted(ctx, chosen, sizes)) continue;
          if (chosen.length === 1) idle.delete(ruleText(chosen[0]));
          const why = judge(ctx, inputs, kernel, chosen, sizes);
          if (why !== undefined) wrong.push(why);
        }
    }
    expect(wrong).toEqual([]);
    expect([...idle]).toEqual([]);
  });
});

test('a reduction over windows takes an operation for each element of each window', () => {
  const { ctx } = load(
    ['stablehlo.reduce_window', [[t(4, 5, 6)], [t()]], { ...window, reducer: 'add' }],
    1,
  );
  // Of 6 elements padded to 8, windows of 3 begin at 0, 2 and 4.
  expect(table.get('stablehlo.reduce_window')?.flops(ctx)).toEqual({
    matrix: 0,
    vector: 4 * 5 * 3 * 3,
  });
});

describe('rules that must be offered', () => {
  const offered = (
    op: string,
    args: readonly TestArg[],
    kwargs: Readonly<Record<string, TestArg>> = {},
  ): string[] => load([op, args, kwargs], 1).rules.map(ruleText);
  test.each<[string, readonly TestArg[], Readonly<Record<string, TestArg>>, string[]]>([
    [
      'stablehlo.dot_general',
      [t(4, 6), t(6, 8)],
      { lhs_contracting_dimensions: [1], rhs_contracting_dimensions: [0] },
      ['S(1), S(0) -> P(sum)', 'S(0), R -> S(0)', 'R, S(1) -> S(1)', 'P(sum), R -> P(sum)'],
    ],
    [
      'stablehlo.reduce',
      [[t(4, 6)], [t()]],
      { dimensions: [1], reducer: 'add' },
      ['S(0), R -> S(0)', 'S(1), P(sum) -> P(sum)', 'P(sum), P(sum) -> P(sum)'],
    ],
    [
      'stablehlo.gather',
      [t(7, 5), ints(7, 4, 6, 1)],
      rows,
      ['S(1), R -> S(2)', 'R, S(0) -> S(0)', 'S(0), R -> P(sum)', 'P(sum), R -> P(sum)'],
    ],
    [
      'stablehlo.scatter',
      [[t(7, 5)], ints(7, 4, 6, 1), [t(4, 6, 5)]],
      { ...scatterRows, reducer: 'add' },
      ['P(sum), S(0), S(0) -> P(sum)', 'S(0), R, R -> S(0)', 'S(1), R, S(2) -> S(1)'],
    ],
    ['stablehlo.select', [bools(5, 4), t(5, 4), t(5, 4)], {}, ['R, P(sum), P(sum) -> P(sum)']],
    [
      'stablehlo.broadcast_in_dim',
      [t(5)],
      { broadcast_dimensions: [1], shape: [4, 5] },
      ['R -> S(0)', 'S(0) -> S(1)', 'P(sum) -> P(sum)'],
    ],
  ])('%s', (op, args, kwargs, rules) => {
    expect(offered(op, args, kwargs)).toEqual(expect.arrayContaining(rules));
  });

  test('and rules that must not', () => {
    expect(offered('stablehlo.multiply', [t(4, 4), t(4, 4)])).not.toContain(
      'P(sum), P(sum) -> P(sum)',
    );
    expect(offered('stablehlo.add', [t(4, 4), t(4, 4)])).not.toContain('P(sum), R -> P(sum)');
    expect(offered('stablehlo.abs', [t(4, 4)])).not.toContain('P(max) -> P(max)');
    expect(offered('stablehlo.divide', [ints(9, 4, 4), ints(9, 4, 4)])).not.toContain(
      'P(sum), R -> P(sum)',
    );
    expect(offered('stablehlo.reshape', [t(4, 4)], { shape: [2, 8] })).not.toContain(
      'S(1) -> S(1)',
    );
  });
});

describe('the validator finds wrong rules', () => {
  test.each<[Sample, Rule]>([
    [
      ['stablehlo.reduce', [[t(4, 6)], [pos()]], { dimensions: [1], reducer: 'add' }],
      rule([S(1), R], [P()]),
    ],
    [
      [
        'stablehlo.scatter',
        [[t(7, 5)], ints(7, 4, 6, 1), [t(4, 6, 5)]],
        { ...scatterRows, reducer: 'add' },
      ],
      rule([R, S(0), S(0)], [R]),
    ],
    [
      [
        'stablehlo.pad',
        [t(4), pos()],
        { edge_padding_low: [1], edge_padding_high: [0], interior_padding: [0] },
      ],
      rule([P(), R], [P()]),
    ],
    [['stablehlo.iota', [1], { dtype: 'i32', shape: [5, 8] }], rule([], [P()])],
  ])('%s', (sample, wrong) => {
    const { ctx, inputs, kernel } = load(sample, 3);
    expect(judge(ctx, inputs, kernel, [wrong], [2])).toBeDefined();
  });
});

/**
 * Records whose rules are not run here: element-wise ones made by the same constructor with no rule
 * of their own, and the few others with the reason.
 */
const NOT_RUN: Readonly<Record<string, string>> = {
  ...Object.fromEntries(
    [
      'floor',
      'round_nearest_afz',
      'round_nearest_even',
      'exponential_minus_one',
      'cbrt',
      'cosine',
      'tan',
      'log',
      'log_plus_one',
      'sqrt',
      'popcnt',
      'count_leading_zeros',
      'real',
      'imag',
      'reduce_precision',
      'xor',
      'remainder',
      'shift_left',
      'shift_right_arithmetic',
      'shift_right_logical',
      'atan2',
      'complex',
    ].map((n) => [`stablehlo.${n}`, 'element-wise']),
  ),
  ...Object.fromEntries(
    stablehloOps
      .filter((r) => r.name.startsWith('chlo.') && r.cls === 'pointwise')
      .map((r) => [r.name, 'element-wise']),
  ),
  'stablehlo.dot': 'dot_general with fixed dims',
  'stablehlo.einsum': 'the generator that dot_general uses',
  'stablehlo.map': 'element-wise with a body',
  'stablehlo.triangular_solve': 'batch dims and columns, no kernel here',
  'stablehlo.cholesky': 'batch dims only',
  'stablehlo.fft': 'batch dims and linearity only',
  'stablehlo.bitcast_convert': 'dims follow, bits are not numbers',
  'stablehlo.get_dimension_size': 'reads no element',
  'stablehlo.batch_norm_training': 'features only',
  'stablehlo.batch_norm_inference': 'features and element-wise dims',
  'stablehlo.batch_norm_grad': 'features only',
  'stablehlo.all_reduce': 'communicates on mesh dims that the rules do not speak of',
  'stablehlo.all_gather': 'communicates on mesh dims that the rules do not speak of',
  'stablehlo.reduce_scatter': 'communicates on mesh dims that the rules do not speak of',
  'stablehlo.all_to_all': 'communicates on mesh dims that the rules do not speak of',
  'stablehlo.collective_permute': 'communicates on mesh dims that the rules do not speak of',
  'stablehlo.collective_broadcast': 'communicates on mesh dims that the rules do not speak of',
  'stablehlo.partition_id': 'no rules',
  'stablehlo.replica_id': 'no rules',
  'stablehlo.rng': 'no rules',
  'stablehlo.rng_bit_generator': 'no rules',
  'jax.random_bits': 'no rules',
  'jax.random_split': 'no rules',
  'jax.random_fold_in': 'no rules',
  'sdy.reshard': 'as sdy.sharding_constraint',
};

test('every record is run or listed with the reason', () => {
  const run = new Set(samples.map(([op]) => op));
  const silent = stablehloOps
    .map((r) => r.name)
    .filter((name) => !run.has(name) && !(name in NOT_RUN));
  expect(silent).toEqual([]);
  expect(Object.keys(NOT_RUN).filter((name) => table.get(name) === undefined)).toEqual([]);
});
