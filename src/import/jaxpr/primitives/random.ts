/**
 * Random keys of JAX: arrays of words, the last dim. Seeding and taking apart are exact; new keys
 * and bits come from `rng_bit_generator`, so a program that is evaluated draws the numbers of our
 * own generator and not those of JAX.
 */

import type { ValueRef } from '../../../graph/types.ts';
import { tensorType } from '../../../graph/value.ts';
import { dtypeArg, type GraphOfJaxpr, numbers } from '../builder.ts';
import { dtypeOf, type Lower, operand, shapeOf } from '../equation.ts';
import type { Atom, Equation } from '../text/syntax.ts';

/** A number as two words, the high one first. */
function twoWords(b: GraphOfJaxpr, atom: Atom): ValueRef {
  const { dtype, shape } = b.tensor(atom);
  const sizes = shape.map(Number);
  const words = [...sizes, 1];
  const half = tensorType('u32', words);
  const word = (value: ValueRef): ValueRef => {
    const converted = b.helper(
      'stablehlo.convert',
      [value, dtypeArg('u32')],
      {},
      tensorType('u32', sizes),
    );
    return b.helper('stablehlo.reshape', [converted], { shape: words }, half);
  };
  const value = b.value(atom);
  const high = dtype.endsWith('64')
    ? word(
        b.helper(
          'stablehlo.shift_right_logical',
          [value, b.constant(32, dtype, sizes)],
          {},
          tensorType(dtype, sizes),
        ),
      )
    : b.constant(0, 'u32', words);
  return b.helper(
    'stablehlo.concatenate',
    [[high, word(value)]],
    { dimension: sizes.length },
    tensorType('u32', [...sizes, 2]),
  );
}

/** Keys of four words hold the two words twice. */
function twice(pair: ValueRef, words: number): ValueRef[] {
  return new Array<ValueRef>(words / 2).fill(pair);
}

const seed: Lower = (b, e) => {
  const rank = shapeOf(e).length;
  const parts = twice(twoWords(b, operand(b, e)), shapeOf(e).at(-1) ?? 2);
  b.emit(e, 'stablehlo.concatenate', [parts], { dimension: rank - 1 });
};

function draw(
  b: GraphOfJaxpr,
  e: Equation,
  state: ValueRef,
  type: ReturnType<typeof tensorType>,
): void {
  const moved = { name: '_', at: e.at, type };
  b.emit({ ...e, results: [moved, ...e.results] }, 'stablehlo.rng_bit_generator', [state], {
    rng_algorithm: numbers(type).at(-1) === 4 ? 'DEFAULT' : 'THREE_FRY',
    dtype: dtypeArg(dtypeOf(e)),
    shape: shapeOf(e),
  });
}

const bits: Lower = (b, e) => {
  draw(b, e, b.value(operand(b, e)), b.tensor(operand(b, e)));
};

/** The key of a number: drawn from the key, mixed with the words of the number. */
const foldIn: Lower = (b, e) => {
  const [key, data] = [operand(b, e), operand(b, e, 1)];
  const type = b.tensor(key);
  const shape = numbers(type);
  const sizes = numbers(b.tensor(data));
  const words = shape.at(-1) ?? 2;
  const pairs = b.helper(
    'stablehlo.concatenate',
    [twice(twoWords(b, data), words)],
    { dimension: sizes.length },
    tensorType('u32', [...sizes, words]),
  );
  const dims = [...sizes.map((_, d) => d), shape.length - 1];
  const spread = b.helper(
    'stablehlo.broadcast_in_dim',
    [pairs],
    { broadcast_dimensions: dims, shape },
    type,
  );
  draw(b, e, b.helper('stablehlo.xor', [b.value(key), spread], {}, type), type);
};

const same: Lower = (b, e) => {
  b.emit(e, 'stablehlo.convert', [b.value(operand(b, e)), dtypeArg(dtypeOf(e))]);
};

/** The primitives by name. */
export const RANDOM: readonly (readonly [string, Lower])[] = [
  ['random_seed', seed],
  ['random_wrap', same],
  ['random_unwrap', same],
  ['random_clone', same],
  ['random_bits', bits],
  ['random_split', bits],
  ['random_fold_in', foldIn],
];
