import { describe, expect, test } from 'vitest';

import {
  build,
  type ElementType,
  flat,
  fromList,
  type NDArray,
  scalar,
} from '../../../src/ndarray/array.ts';
import { uniform } from '../../../src/ndarray/random.ts';
import { permute } from '../../../src/ndarray/views.ts';
import {
  evaluateCall,
  type EvaluatedArg,
  operatorsWithoutKernel,
} from '../../../src/ops/kernels/evaluate.ts';
import { operators } from '../../engines/samples/all.ts';
import { difference } from '../support/kernel-record.ts';

/**
 * Kernels of StableHLO against the worked examples of its specification, and against their ATen
 * twins.
 */

type Nested = number | readonly Nested[];

function array(values: Nested, dtype: ElementType = 'f32'): NDArray {
  const shape: number[] = [];
  for (let at = values; Array.isArray(at); at = (at as readonly Nested[])[0]) shape.push(at.length);
  return fromList(shape, [values].flat(8) as number[], dtype);
}

const call = (
  target: string,
  args: readonly EvaluatedArg[],
  kwargs: Readonly<Record<string, EvaluatedArg>> = {},
): EvaluatedArg =>
  evaluateCall(operators, target.includes('.') ? target : `stablehlo.${target}`, args, kwargs);

/** Results as nested lists. */
function nested(value: EvaluatedArg): Nested[] {
  const arrays = (Array.isArray(value) ? value : [value]) as NDArray[];
  return arrays.map((x) => {
    let level: Nested[] = x.toArray().map((v) => v + 0);
    for (let d = x.rank - 1; d >= 1; d--) {
      const size = x.shape[d];
      level = Array.from({ length: level.length / size }, (_, i) =>
        level.slice(i * size, (i + 1) * size),
      );
    }
    return x.rank === 0 ? level[0] : level;
  });
}

const draw = (seed: number, ...shape: number[]): NDArray =>
  build(shape, (i) => 4 * uniform({ seed, stream: 2 }, i) - 2);
const cube = array(
  Array.from({ length: 3 }, (_, b) =>
    Array.from({ length: 4 }, (__, r) => [0, 1].map((c) => 1 + 8 * b + 2 * r + c)),
  ),
  'i32',
);
const num = (value: number): NDArray => scalar(value, 'i64');
const flag = { kind: 'float', value: 0 } as const;

interface Example {
  readonly target: string;
  readonly args: readonly EvaluatedArg[];
  readonly kwargs?: Readonly<Record<string, EvaluatedArg>>;
  readonly want: readonly Nested[];
}

const EXAMPLES: readonly Example[] = [
  {
    target: 'remainder',
    args: [array([17, -17, 17, -17], 'i64'), array([3, 3, -3, -3], 'i64')],
    want: [[2, -2, 2, -2]],
  },
  {
    target: 'divide',
    args: [array([17, -17, 17, -17], 'i64'), array([3, 3, -3, -3], 'i64')],
    want: [[5, -5, -5, 5]],
  },
  { target: 'popcnt', args: [array([0, 1, 2, 127], 'i64')], want: [[0, 1, 1, 7]] },
  {
    target: 'count_leading_zeros',
    args: [
      array(
        [
          [0, 1],
          [128, -1],
        ],
        'i64',
      ),
    ],
    want: [
      [
        [64, 63],
        [56, 0],
      ],
    ],
  },
  {
    target: 'round_nearest_afz',
    args: [array([-2.5, 0.4, 0.5, 0.6, 2.5])],
    want: [[-3, 0, 1, 1, 3]],
  },
  {
    target: 'round_nearest_even',
    args: [array([-2.5, 0.4, 0.5, 0.6, 2.5])],
    want: [[-2, 0, 0, 1, 2]],
  },
  {
    target: 'shift_left',
    args: [array([-1, 0, 1], 'i64'), array([1, 2, 3], 'i64')],
    want: [[-2, 0, 8]],
  },
  {
    target: 'shift_right_arithmetic',
    args: [array([-1, 0, 8], 'i64'), array([1, 2, 3], 'i64')],
    want: [[-1, 0, 1]],
  },
  {
    target: 'shift_right_logical',
    args: [array([-1, 0, 8], 'i32'), array([1, 2, 3], 'i32')],
    want: [[2147483647, 0, 1]],
  },
  { target: 'add', args: [array([0, 1, 1], 'b8'), array([0, 0, 1], 'b8')], want: [[0, 1, 1]] },
  { target: 'multiply', args: [array([0, 1, 1], 'b8'), array([0, 0, 1], 'b8')], want: [[0, 0, 1]] },
  {
    target: 'power',
    args: [array([-2, -1, 0, 1, 2, 3], 'i64'), array([3, -2, 0, -4, -1, 2], 'i64')],
    want: [[-8, 1, 1, 1, 0, 9]],
  },
  {
    target: 'xor',
    args: [
      array(
        [
          [1, 2],
          [3, 4],
        ],
        'i32',
      ),
      array(
        [
          [5, 6],
          [7, 8],
        ],
        'i32',
      ),
    ],
    want: [
      [
        [4, 4],
        [4, 12],
      ],
    ],
  },
  {
    target: 'not',
    args: [
      array(
        [
          [1, 2],
          [3, 4],
        ],
        'i32',
      ),
    ],
    want: [
      [
        [-2, -3],
        [-4, -5],
      ],
    ],
  },
  { target: 'not', args: [array([1, 0], 'b8')], want: [[0, 1]] },
  {
    target: 'clamp',
    args: [array([5, 10, 15], 'i32'), array([3, 13, 23], 'i32'), array([10, 15, 20], 'i32')],
    want: [[5, 13, 20]],
  },
  {
    target: 'compare',
    args: [array([1, 3]), array([1.1, 2.9])],
    kwargs: { comparison_direction: 'LT', compare_type: 'FLOAT' },
    want: [[1, 0]],
  },
  {
    target: 'select',
    args: [
      array(
        [
          [0, 1],
          [1, 0],
        ],
        'b8',
      ),
      array(
        [
          [1, 2],
          [3, 4],
        ],
        'i32',
      ),
      array(
        [
          [5, 6],
          [7, 8],
        ],
        'i32',
      ),
    ],
    want: [
      [
        [5, 2],
        [3, 8],
      ],
    ],
  },
  { target: 'select', args: [scalar(1, 'b8'), array([1, 2]), array([3, 4])], want: [[1, 2]] },
  {
    target: 'iota',
    args: [0],
    kwargs: { dtype: { kind: 'dtype', dtype: 'i32' }, shape: [4, 5] },
    want: [[0, 1, 2, 3].map((v) => [v, v, v, v, v])],
  },
  {
    target: 'iota',
    args: [1],
    kwargs: { dtype: { kind: 'dtype', dtype: 'i32' }, shape: [4, 5] },
    want: [[0, 0, 0, 0].map(() => [0, 1, 2, 3, 4])],
  },
  {
    target: 'constant',
    args: [[0, 1, { kind: 'float', value: 2.5 }, 3]],
    kwargs: { dtype: { kind: 'dtype', dtype: 'f32' }, shape: [2, 2] },
    want: [
      [
        [0, 1],
        [2.5, 3],
      ],
    ],
  },
  {
    target: 'constant',
    args: [true],
    kwargs: { dtype: { kind: 'dtype', dtype: 'b8' }, shape: [2] },
    want: [[1, 1]],
  },
  {
    target: 'broadcast_in_dim',
    args: [array([[1, 2, 3]], 'i32')],
    kwargs: { broadcast_dimensions: [2, 1], shape: [2, 3, 2] },
    want: [
      [
        [
          [1, 1],
          [2, 2],
          [3, 3],
        ],
        [
          [1, 1],
          [2, 2],
          [3, 3],
        ],
      ],
    ],
  },
  {
    target: 'transpose',
    args: [
      array(
        [
          [
            [1, 2],
            [3, 4],
            [5, 6],
          ],
          [
            [7, 8],
            [9, 10],
            [11, 12],
          ],
        ],
        'i32',
      ),
    ],
    kwargs: { permutation: [2, 1, 0] },
    want: [
      [
        [
          [1, 7],
          [3, 9],
          [5, 11],
        ],
        [
          [2, 8],
          [4, 10],
          [6, 12],
        ],
      ],
    ],
  },
  {
    target: 'slice',
    args: [
      array(
        [
          [0, 0, 0, 0],
          [0, 0, 1, 1],
          [0, 0, 1, 1],
        ],
        'i64',
      ),
    ],
    kwargs: { start_indices: [1, 2], limit_indices: [3, 4], strides: [1, 1] },
    want: [
      [
        [1, 1],
        [1, 1],
      ],
    ],
  },
  {
    target: 'pad',
    args: [
      array(
        [
          [1, 2, 3],
          [4, 5, 6],
        ],
        'i32',
      ),
      scalar(0, 'i32'),
    ],
    kwargs: { edge_padding_low: [0, 1], edge_padding_high: [2, 1], interior_padding: [1, 2] },
    want: [
      [
        [0, 1, 0, 0, 2, 0, 0, 3, 0],
        [0, 0, 0, 0, 0, 0, 0, 0, 0],
        [0, 4, 0, 0, 5, 0, 0, 6, 0],
        [0, 0, 0, 0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 0, 0, 0],
      ],
    ],
  },
  {
    target: 'pad',
    args: [array([1, 2, 3, 4], 'i32'), scalar(9, 'i32')],
    kwargs: { edge_padding_low: [-1], edge_padding_high: [-3], interior_padding: [2] },
    want: [[9, 9, 2, 9, 9, 3]],
  },
  {
    target: 'concatenate',
    args: [
      [
        array(
          [
            [1, 2],
            [3, 4],
            [5, 6],
          ],
          'i64',
        ),
        array([[7, 8]], 'i64'),
      ],
    ],
    kwargs: { dimension: 0 },
    want: [
      [
        [1, 2],
        [3, 4],
        [5, 6],
        [7, 8],
      ],
    ],
  },
  {
    target: 'reverse',
    args: [
      array(
        [
          [1, 2],
          [3, 4],
          [5, 6],
        ],
        'i32',
      ),
    ],
    kwargs: { dimensions: [1] },
    want: [
      [
        [2, 1],
        [4, 3],
        [6, 5],
      ],
    ],
  },
  {
    target: 'dynamic_slice',
    args: [
      array(
        [
          [0, 0, 1, 1],
          [0, 0, 1, 1],
          [0, 0, 0, 0],
          [0, 0, 0, 0],
        ],
        'i32',
      ),
      [num(-1), num(3)],
    ],
    kwargs: { slice_sizes: [2, 2] },
    want: [
      [
        [1, 1],
        [1, 1],
      ],
    ],
  },
  {
    target: 'dynamic_update_slice',
    args: [
      array(
        [
          [1, 1, 0, 0],
          [1, 1, 0, 0],
          [1, 1, 1, 1],
          [1, 1, 1, 1],
        ],
        'i32',
      ),
      array(
        [
          [1, 1],
          [1, 1],
        ],
        'i32',
      ),
      [num(-1), num(3)],
    ],
    want: [[1, 1, 1, 1].map(() => [1, 1, 1, 1])],
  },
  {
    target: 'dot_general',
    args: [
      array(
        [
          [
            [1, 2],
            [3, 4],
          ],
          [
            [5, 6],
            [7, 8],
          ],
        ],
        'i64',
      ),
      array(
        [
          [
            [1, 0],
            [0, 1],
          ],
          [
            [1, 0],
            [0, 1],
          ],
        ],
        'i64',
      ),
    ],
    kwargs: {
      lhs_batching_dimensions: [0],
      rhs_batching_dimensions: [0],
      lhs_contracting_dimensions: [2],
      rhs_contracting_dimensions: [1],
    },
    want: [
      [
        [
          [1, 2],
          [3, 4],
        ],
        [
          [5, 6],
          [7, 8],
        ],
      ],
    ],
  },
  {
    target: 'convolution',
    args: [
      array([
        [
          [[1], [2], [5], [6]],
          [[3], [4], [7], [8]],
          [[10], [11], [14], [15]],
          [[12], [13], [16], [17]],
        ],
      ]),
      build([3, 3, 1, 1], () => 1, 'f32'),
    ],
    kwargs: {
      input_dimensions: [0, 3, 1, 2],
      kernel_dimensions: [2, 3, 0, 1],
      output_dimensions: [0, 3, 1, 2],
      window_strides: [4, 4],
      lhs_dilation: [2, 2],
      rhs_dilation: [1, 1],
    },
    want: [
      [
        [
          [[10], [26]],
          [[46], [62]],
        ],
      ],
    ],
  },
  {
    target: 'reduce',
    args: [[array([[0, 1, 2, 3, 4, 5]], 'i64')], [num(0)]],
    kwargs: { dimensions: [1], reducer: 'add' },
    want: [[15]],
  },
  {
    target: 'reduce',
    args: [
      [
        array(
          [
            [1, 2],
            [3, 4],
          ],
          'i64',
        ),
      ],
      [num(10)],
    ],
    kwargs: { dimensions: [0], reducer: 'maximum' },
    want: [[10, 10]],
  },
  {
    target: 'reduce_window',
    args: [
      [
        array(
          [
            [1, 2],
            [3, 4],
            [5, 6],
          ],
          'i64',
        ),
      ],
      [num(0)],
    ],
    kwargs: {
      window_dimensions: [2, 1],
      window_strides: [4, 1],
      base_dilations: [2, 1],
      window_dilations: [3, 1],
      padding: [2, 1, 0, 0],
      reducer: 'add',
    },
    want: [
      [
        [0, 0],
        [3, 4],
      ],
    ],
  },
  {
    target: 'chlo.top_k',
    args: [
      array([
        [1, 2, 3],
        [6, 5, 4],
      ]),
    ],
    kwargs: { k: 2 },
    want: [
      [
        [3, 2],
        [6, 5],
      ],
      [
        [2, 1],
        [0, 1],
      ],
    ],
  },
  {
    target: 'gather',
    args: [
      cube,
      array(
        [
          [
            [0, 0],
            [1, 0],
            [2, 1],
          ],
          [
            [0, 1],
            [1, 1],
            [0, 9],
          ],
        ],
        'i64',
      ),
    ],
    kwargs: {
      offset_dims: [2, 3],
      collapsed_slice_dims: [0],
      start_index_map: [1, 0],
      index_vector_dim: 2,
      slice_sizes: [1, 2, 2],
    },
    want: [
      [
        [
          [
            [1, 2],
            [3, 4],
          ],
          [
            [3, 4],
            [5, 6],
          ],
          [
            [13, 14],
            [15, 16],
          ],
        ],
        [
          [
            [9, 10],
            [11, 12],
          ],
          [
            [11, 12],
            [13, 14],
          ],
          [
            [17, 18],
            [19, 20],
          ],
        ],
      ],
    ],
  },
  {
    target: 'scatter',
    args: [
      [cube],
      array(
        [
          [
            [0, 2],
            [1, 0],
            [2, 1],
          ],
          [
            [0, 1],
            [1, 0],
            [0, 9],
          ],
        ],
        'i64',
      ),
      [build([2, 3, 2, 2], () => 1, 'i32')],
    ],
    kwargs: {
      update_window_dims: [2, 3],
      inserted_window_dims: [0],
      scatter_dims_to_operand_dims: [1, 0],
      index_vector_dim: 2,
      reducer: 'add',
    },
    want: [
      [
        [
          [1, 2],
          [5, 6],
          [7, 8],
          [7, 8],
        ],
        [
          [10, 11],
          [12, 13],
          [14, 15],
          [16, 17],
        ],
        [
          [18, 19],
          [20, 21],
          [21, 22],
          [23, 24],
        ],
      ],
    ],
  },
  {
    target: 'batch_norm_training',
    args: [
      array([
        [
          [1, 2],
          [3, 4],
        ],
        [
          [3, 4],
          [1, 2],
        ],
      ]),
      array([1, 1]),
      array([1, 1]),
    ],
    kwargs: { epsilon: flag, feature_index: 2 },
    want: [
      [
        [
          [0, 0],
          [2, 2],
        ],
        [
          [2, 2],
          [0, 0],
        ],
      ],
      [2, 3],
      [1, 1],
    ],
  },
  {
    target: 'batch_norm_inference',
    args: [
      array([
        [
          [1, 2],
          [3, 4],
        ],
        [
          [3, 4],
          [1, 2],
        ],
      ]),
      array([1, 1]),
      array([1, 1]),
      array([2, 3]),
      array([1, 1]),
    ],
    kwargs: { epsilon: flag, feature_index: 2 },
    want: [
      [
        [
          [0, 0],
          [2, 2],
        ],
        [
          [2, 2],
          [0, 0],
        ],
      ],
    ],
  },
  {
    target: 'get_dimension_size',
    args: [
      array([
        [1, 2, 3],
        [4, 5, 6],
      ]),
    ],
    kwargs: { dimension: 1 },
    want: [3],
  },
];

describe('kernels of StableHLO', () => {
  test.each(EXAMPLES.map((e, i) => ({ ...e, title: `${e.target} ${i}` })))(
    '$title',
    ({ target, args, kwargs, want }) => {
      expect(nested(call(target, args, kwargs))).toEqual(want);
    },
  );

  /** Elementwise names and their twins, which are compared with PyTorch. */
  const TWINS = {
    ceil: 'ceil',
    floor: 'floor',
    exponential: 'exp',
    exponential_minus_one: 'expm1',
    tanh: 'tanh',
    logistic: 'sigmoid',
    negate: 'neg',
    cosine: 'cos',
    sine: 'sin',
    tan: 'tan',
    abs: 'abs',
    'chlo.erf': 'erf',
    'chlo.erfc': 'erfc',
    'chlo.asinh': 'asinh',
    'chlo.sinh': 'sinh',
    'chlo.atan': 'atan',
    'chlo.square': 'square',
    'chlo.lgamma': 'lgamma',
    'chlo.digamma': 'digamma',
    'chlo.cosh': 'cosh',
    'chlo.tan': 'tan',
    is_finite: 'isfinite',
    'chlo.is_inf': 'isinf',
    'chlo.is_neg_inf': 'isneginf',
    'chlo.is_pos_inf': 'isposinf',
  };
  const DOMAIN_TWINS = {
    log: 'log',
    log_plus_one: 'log1p',
    sqrt: 'sqrt',
    rsqrt: 'rsqrt',
    'chlo.acos': 'acos',
    'chlo.asin': 'asin',
    'chlo.atanh': 'atanh',
  };
  test('elementwise functions are those of ATen', () => {
    const any = fromList([9], [-2.5, -1, -0.3, 0.2, 1, 3, Infinity, -Infinity, NaN]);
    const unit = fromList([4], [0.1, 0.5, 0.9, 0.99]);
    for (const [twins, x] of [
      [TWINS, any],
      [DOMAIN_TWINS, unit],
    ] as const)
      for (const [name, twin] of Object.entries(twins)) {
        const want = evaluateCall(operators, `aten.${twin}.default`, [x]) as NDArray;
        expect(difference(call(name, [x]) as NDArray, want), name).toBeUndefined();
      }
    expect(nested(call('cbrt', [array([0, 1, 8, -27])]))).toEqual([[0, 1, 2, -3]]);
    expect(nested(call('sign', [array([-2, 0, 5])]))).toEqual([[-1, 0, 1]]);
    expect(nested(call('chlo.acosh', [array([1])]))).toEqual([[0]]);
  });

  test('binary functions are those of ATen, and CHLO broadcasts', () => {
    const [a, b] = [draw(1, 3, 4), draw(2, 3, 4)];
    const twins = {
      add: 'add.Tensor',
      subtract: 'sub.Tensor',
      multiply: 'mul.Tensor',
      divide: 'div.Tensor',
      remainder: 'fmod.Tensor',
      maximum: 'maximum.default',
      minimum: 'minimum.default',
      atan2: 'atan2.default',
    };
    for (const [name, twin] of Object.entries(twins)) {
      const want = evaluateCall(operators, `aten.${twin}`, [a, b]) as NDArray;
      expect(difference(call(name, [a, b]) as NDArray, want), name).toBeUndefined();
      const row = draw(3, 4);
      const wide = evaluateCall(operators, `aten.${twin}`, [a, row]) as NDArray;
      expect(
        difference(call(`chlo.broadcast_${name}`, [a, row]) as NDArray, wide),
        name,
      ).toBeUndefined();
    }
    const compared = call('chlo.broadcast_compare', [a, draw(3, 4)], {
      comparison_direction: 'GE',
    });
    expect(
      difference(
        compared as NDArray,
        evaluateCall(operators, 'aten.ge.Tensor', [a, draw(3, 4)]) as NDArray,
      ),
    ).toBeUndefined();
  });

  test('a convolution is that of ATen, in other layouts, groups, dilations and directions', () => {
    const [x, w] = [draw(4, 2, 4, 7, 6), draw(5, 6, 2, 3, 2)];
    const want = evaluateCall(operators, 'aten.convolution.default', [
      x,
      w,
      null,
      [2, 1],
      [1, 2],
      [1, 2],
      false,
      [0, 0],
      2,
    ]) as NDArray;
    const got = call('convolution', [permute(x, [0, 2, 3, 1]), permute(w, [2, 3, 1, 0])], {
      input_dimensions: [0, 3, 1, 2],
      kernel_dimensions: [2, 3, 0, 1],
      output_dimensions: [3, 2, 0, 1],
      window_strides: [2, 1],
      padding: [1, 1, 2, 2],
      rhs_dilation: [1, 2],
      feature_group_count: 2,
    }) as NDArray;
    expect(difference(permute(got, [3, 2, 0, 1]), want)).toBeUndefined();
    // A transposed convolution: the image spread by the stride, the kernel turned round.
    const [y, v] = [draw(6, 1, 3, 5), draw(7, 3, 4, 3)];
    const turned = evaluateCall(operators, 'aten.convolution.default', [
      y,
      v,
      null,
      [2],
      [1],
      [1],
      true,
      [1],
      1,
    ]) as NDArray;
    const spread = call('convolution', [y, v], {
      input_dimensions: [0, 1, 2],
      kernel_dimensions: [0, 1, 2],
      output_dimensions: [0, 1, 2],
      padding: [1, 2],
      lhs_dilation: [2],
      window_reversal: [true],
    }) as NDArray;
    expect(difference(spread, turned)).toBeUndefined();
  });

  test('dot and einsum are products', () => {
    const [a, b] = [draw(8, 3, 4), draw(9, 4, 5)];
    const want = evaluateCall(operators, 'aten.mm.default', [a, b]) as NDArray;
    expect(difference(call('dot', [a, b]) as NDArray, want)).toBeUndefined();
    expect(
      difference(
        call('einsum', [a, b], { einsum_config: 'ij,jk->ki' }) as NDArray,
        permute(want, [1, 0]),
      ),
    ).toBeUndefined();
    const general = call('dot_general', [draw(1, 2, 3, 4, 5), draw(2, 5, 6, 2, 4)], {
      lhs_batching_dimensions: [0],
      rhs_batching_dimensions: [2],
      lhs_contracting_dimensions: [3, 2],
      rhs_contracting_dimensions: [0, 3],
    }) as NDArray;
    const by = evaluateCall(operators, 'aten.bmm.default', [
      fromList([2, 3, 20], permute(draw(1, 2, 3, 4, 5), [0, 1, 3, 2]).toArray()),
      fromList([2, 20, 6], permute(draw(2, 5, 6, 2, 4), [2, 0, 3, 1]).toArray()),
    ]) as NDArray;
    expect(difference(general, by)).toBeUndefined();
  });

  test('windows with a maximum are max pooling; gather with batch dims takes along a dim', () => {
    const x = draw(10, 2, 3, 7, 6);
    const want = evaluateCall(operators, 'aten.max_pool2d.default', [
      x,
      [3, 2],
      [2, 1],
      [1, 0],
    ]) as NDArray;
    const [got] = call('reduce_window', [[x], [scalar(-Infinity)]], {
      window_dimensions: [1, 1, 3, 2],
      window_strides: [1, 1, 2, 1],
      padding: [0, 0, 0, 0, 1, 1, 0, 0],
      reducer: 'maximum',
    }) as unknown as NDArray[];
    expect(difference(got, want)).toBeUndefined();
    const [table, at] = [draw(11, 3, 5), fromList([3, 2], [4, 0, 1, 1, 2, 3], 'i64')];
    const taken = call('gather', [table, at], {
      operand_batching_dims: [0],
      start_indices_batching_dims: [0],
      collapsed_slice_dims: [1],
      start_index_map: [1],
      index_vector_dim: 2,
      slice_sizes: [1, 1],
    }) as NDArray;
    expect(
      difference(taken, evaluateCall(operators, 'aten.gather.default', [table, 1, at]) as NDArray),
    ).toBeUndefined();
    const [put] = call('scatter', [[table], at, [draw(12, 3, 2)]], {
      input_batching_dims: [0],
      scatter_indices_batching_dims: [0],
      inserted_window_dims: [1],
      scatter_dims_to_operand_dims: [1],
      index_vector_dim: 2,
      reducer: 'add',
    }) as unknown as NDArray[];
    expect(
      difference(
        put,
        evaluateCall(operators, 'aten.scatter_add.default', [
          table,
          1,
          at,
          draw(12, 3, 2),
        ]) as NDArray,
      ),
    ).toBeUndefined();
  });

  test('the gradient of a batch norm is that of ATen', () => {
    const [x, scale, g] = [draw(13, 4, 3, 5), draw(14, 3), draw(15, 4, 3, 5)];
    const [mean, variance] = [
      [0, 2],
      [0, 2],
    ].map(
      (dims, k) =>
        evaluateCall(
          operators,
          k === 0 ? 'aten.mean.dim' : 'aten.var.correction',
          [x, dims],
          k === 0 ? {} : { correction: 0 },
        ) as NDArray,
    );
    const eps = { kind: 'float', value: 1e-3 } as const;
    const invstd = fromList(
      [3],
      flat(variance).reduce<number[]>((l, v) => [...l, 1 / Math.sqrt(v + 1e-3)], []),
    );
    const want = evaluateCall(operators, 'aten.native_batch_norm_backward.default', [
      g,
      x,
      scale,
      null,
      null,
      mean,
      invstd,
      true,
      eps,
      [true, true, true],
    ]) as NDArray[];
    const got = call('batch_norm_grad', [x, scale, mean, variance, g], {
      epsilon: eps,
      feature_index: 1,
    }) as unknown as NDArray[];
    got.forEach((part, i) => expect(difference(part, want[i])).toBeUndefined());
  });

  test('sort goes by its comparator, or by its first operands; bodies join all inputs of a reduction', () => {
    const rows = array([
      [3, 1, 2],
      [2, 2, 1],
    ]);
    const tags = array(
      [
        [0, 1, 2],
        [0, 1, 2],
      ],
      'i32',
    );
    const descending = ([a, b]: readonly NDArray[]): NDArray[] => [
      scalar(Number(a.item() > b.item()), 'b8'),
    ];
    expect(
      nested(
        call('sort', [[rows, tags]], { dimension: 1, is_stable: true, comparator: descending }),
      ),
    ).toEqual([
      [
        [3, 2, 1],
        [2, 2, 1],
      ],
      [
        [0, 2, 1],
        [0, 1, 2],
      ],
    ]);
    expect(nested(call('sort', [[rows, tags]], { dimension: 1, is_stable: true }))).toEqual([
      [
        [1, 2, 3],
        [1, 2, 2],
      ],
      [
        [1, 2, 0],
        [2, 0, 1],
      ],
    ]);
    const keyed = call('sort', [[array([1, 0, 1, 0]), array([5, 7, 4, 6]), array([0, 1, 2, 3])]], {
      dimension: 0,
      num_keys: 2,
    });
    expect(nested(keyed)).toEqual([
      [0, 0, 1, 1],
      [6, 7, 4, 5],
      [3, 1, 2, 0],
    ]);
    const larger = ([a, i, b, j]: readonly NDArray[]): NDArray[] =>
      a.item() >= b.item() ? [a, i] : [b, j];
    const inits = [scalar(-Infinity, 'f32'), scalar(0, 'i32')];
    expect(
      nested(call('reduce', [[rows, tags], inits], { dimensions: [1], body: larger })),
    ).toEqual([
      [3, 2],
      [0, 0],
    ]);
    expect(
      nested(call('reduce', [[rows, tags], inits], { dimensions: [1], reducer: 'argmax' })),
    ).toEqual([
      [3, 2],
      [0, 0],
    ]);
  });

  test('the gradient of a max pool goes to the place that was selected (example of the specification)', () => {
    const operand = array([
      [1, 5],
      [2, 5],
      [3, 6],
      [4, 4],
    ]);
    const keep = ([a, b]: readonly NDArray[]): NDArray[] => [
      scalar(Number(a.item() >= b.item()), 'b8'),
    ];
    const sum = ([a, b]: readonly NDArray[]): NDArray[] => [scalar(a.item() + b.item(), 'f32')];
    const windows = { window_dimensions: [3, 1], window_strides: [2, 1], padding: [0, 1, 0, 0] };
    const put = call(
      'select_and_scatter',
      [
        operand,
        array([
          [5, 6],
          [7, 8],
        ]),
        scalar(0, 'f32'),
      ],
      { ...windows, select: keep, scatter: sum },
    );
    expect(nested(put)).toEqual([
      [
        [0, 0],
        [0, 0],
        [5, 14],
        [7, 0],
      ],
    ]);
  });

  test('bits of floats, the total order, the inverse error function, triangles', () => {
    const bits = call('bitcast_convert', [array([1, -2, 0.5])], {
      dtype: { kind: 'dtype', dtype: 'u32' },
      shape: [3],
    });
    expect(nested(bits)).toEqual([[0x3f800000, 0xc0000000, 0x3f000000]]);
    const odd = array([-0, NaN, 1]);
    const least = call('compare', [odd, array([0, Infinity, NaN])], {
      comparison_direction: 'LT',
      compare_type: 'TOTALORDER',
    });
    expect(nested(least)).toEqual([[1, 0, 1]]);
    const inverse = call('chlo.erf_inv', [
      array([-0.999, -0.3, 0, 0.5, 0.9]),
    ]) as unknown as NDArray;
    // Values of scipy.special.erfinv.
    [-2.326753765513525, -0.2724627147267543, 0, 0.4769362762044699, 1.1630871536766743].forEach(
      (want, i) => expect(inverse.toArray()[i]).toBeCloseTo(want, 12),
    );
    const a = array(
      [
        [2, 0],
        [1, 4],
      ],
      'f64',
    );
    expect(
      nested(
        call('triangular_solve', [a, array([[2], [9]], 'f64')], { left_side: true, lower: true }),
      ),
    ).toEqual([[[1], [2]]]);
    expect(
      nested(
        call('triangular_solve', [a, array([[4, 8]], 'f64')], { left_side: false, lower: true }),
      ),
    ).toEqual([[[1, 2]]]);
    expect(
      nested(
        call(
          'cholesky',
          [
            array(
              [
                [4, 0],
                [2, 10],
              ],
              'f64',
            ),
          ],
          { lower: true },
        ),
      ),
    ).toEqual([
      [
        [2, 0],
        [1, 3],
      ],
    ]);
  });

  test('what is not evaluated says so', () => {
    expect(() => call('reduce', [[draw(1, 2)], [scalar(0)]], { dimensions: [0] })).toThrow(
      /a body of its own/,
    );
    expect(() =>
      call('constant', ['"0x00"'], { dtype: { kind: 'dtype', dtype: 'f32' }, shape: [20] }),
    ).toThrow(/not known as numbers/);
    expect(() => call('all_gather', [draw(1, 2)], { all_gather_dim: 0, group_size: 2 })).toThrow(
      /has no kernel/,
    );
    const missing = operatorsWithoutKernel(operators);
    expect(missing).toEqual(expect.arrayContaining(['stablehlo.all_reduce']));
    expect(missing).not.toContain('stablehlo.dot_general');
  });
});
