/**
 * Reductions of JAX in StableHLO: over whole dims, to positions, and running. Each names the value
 * that it starts from.
 */

import type { DType } from '../../../graph/types.ts';
import { tensorType } from '../../../graph/value.ts';
import { dtypeArg, numbers } from '../builder.ts';
import { dtypeOf, type Lower, operand, shapeOf } from '../equation.ts';

/** The value that leaves every other as it is. */
export function neutral(reducer: string, dtype: DType): number | bigint | boolean {
  const float = /^(f|bf|c)/.test(dtype);
  const bits = BigInt(/\d+/.exec(dtype)?.[0] ?? 64);
  const unsigned = dtype.startsWith('u');
  switch (reducer) {
    case 'multiply':
      return 1;
    case 'maximum':
      return dtype === 'b8'
        ? false
        : float
          ? -Infinity
          : unsigned
            ? 0
            : exact(-(2n ** (bits - 1n)));
    case 'minimum':
      return dtype === 'b8'
        ? true
        : float
          ? Infinity
          : exact(unsigned ? 2n ** bits - 1n : 2n ** (bits - 1n) - 1n);
    case 'and':
      return dtype === 'b8' ? true : unsigned ? exact(2n ** bits - 1n) : -1;
    default:
      return dtype === 'b8' ? false : 0;
  }
}

function exact(value: bigint): number | bigint {
  return Number.isSafeInteger(Number(value)) ? Number(value) : value;
}

const reduction =
  (reducer: string): Lower =>
  (b, e) => {
    const { dtype } = b.tensor(operand(b, e));
    b.emit(
      e,
      'stablehlo.reduce',
      [[b.value(operand(b, e))], [b.constant(neutral(reducer, dtype), dtype, [])]],
      {
        dimensions: [...b.ints(e, 'axes')],
        reducer,
      },
    );
  };

/**
 * Position of the largest: a reduction of values and positions together, of which the second result
 * counts.
 */
const argument =
  (reducer: string): Lower =>
  (b, e) => {
    const type = b.tensor(operand(b, e));
    const [axis] = b.ints(e, 'axes');
    const index = dtypeOf(e);
    const shape = numbers(type);
    const positions = b.helper(
      'stablehlo.iota',
      [axis ?? 0],
      { dtype: dtypeArg(index), shape },
      tensorType(index, shape),
    );
    const value = reducer === 'argmax' ? 'maximum' : 'minimum';
    const inits = [
      b.constant(neutral(value, type.dtype), type.dtype, []),
      b.constant(0, index, []),
    ];
    const values = { name: '_', at: e.at, type: tensorType(type.dtype, shapeOf(e)) };
    b.emit(
      { ...e, results: [values, ...e.results] },
      'stablehlo.reduce',
      [[b.value(operand(b, e)), positions], inits],
      {
        dimensions: [axis ?? 0],
        reducer,
      },
    );
  };

/** A running reduction is a window that reaches back to the start. */
const cumulative =
  (reducer: string): Lower =>
  (b, e) => {
    const type = b.tensor(operand(b, e));
    const shape = numbers(type);
    const axis = b.int(e, 'axis');
    const rows = shape[axis] ?? 1;
    const back = b.bool(e, 'reverse');
    b.emit(
      e,
      'stablehlo.reduce_window',
      [[b.value(operand(b, e))], [b.constant(neutral(reducer, type.dtype), type.dtype, [])]],
      {
        window_dimensions: shape.map((_, d) => (d === axis ? rows : 1)),
        padding: shape.flatMap((_, d) =>
          d !== axis ? [0, 0] : back ? [0, rows - 1] : [rows - 1, 0],
        ),
        reducer,
      },
    );
  };

/** The reductions by primitive. */
export const REDUCTIONS: readonly (readonly [string, Lower])[] = [
  ['reduce_sum', reduction('add')],
  ['reduce_max', reduction('maximum')],
  ['reduce_min', reduction('minimum')],
  ['reduce_prod', reduction('multiply')],
  ['reduce_and', reduction('and')],
  ['reduce_or', reduction('or')],
  ['reduce_xor', reduction('xor')],
  ['argmax', argument('argmax')],
  ['argmin', argument('argmin')],
  ['cumsum', cumulative('add')],
  ['cumprod', cumulative('multiply')],
  ['cummax', cumulative('maximum')],
  ['cummin', cumulative('minimum')],
];
