/**
 * Random keys of JAX: arrays of words, the last dim. Seeding and taking apart are exact. Bits and
 * new keys stay calls of JAX: a program that is evaluated draws the numbers of our own generator,
 * one that is exported those of JAX.
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

/** Names of the implementations by the tags that types have. */
const IMPLEMENTATIONS: ReadonlyMap<string, string> = new Map([
  ['fry', 'threefry2x32'],
  ['rbg', 'rbg'],
  ['urbg', 'unsafe_rbg'],
]);

/** The implementation of keys that an equation gives. */
function implementationOf(b: GraphOfJaxpr, e: Equation): string {
  const name = IMPLEMENTATIONS.get(e.results[0]?.key ?? '');
  if (name === undefined) throw b.error('E_TYPE', `${e.primitive} gives no random keys`, e.at);
  return name;
}

const seed: Lower = (b, e) => {
  const rank = shapeOf(e).length;
  const parts = twice(twoWords(b, operand(b, e)), shapeOf(e).at(-1) ?? 2);
  b.emit(e, 'stablehlo.concatenate', [parts], { dimension: rank - 1 });
};

const bits: Lower = (b, e) => {
  const keys = operand(b, e);
  b.emit(e, 'jax.random_bits', [b.value(keys)], {
    // Both implementations of four words draw the same bits.
    impl: numbers(b.tensor(keys)).at(-1) === 2 ? 'threefry2x32' : 'rbg',
    bit_width: b.int(e, 'bit_width'),
    shape: [...b.ints(e, 'shape')],
  });
};

const split: Lower = (b, e) => {
  b.emit(e, 'jax.random_split', [b.value(operand(b, e))], {
    impl: implementationOf(b, e),
    shape: [...b.ints(e, 'shape')],
  });
};

const foldIn: Lower = (b, e) => {
  b.emit(e, 'jax.random_fold_in', [b.value(operand(b, e)), b.value(operand(b, e, 1))], {
    impl: implementationOf(b, e),
  });
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
  ['random_split', split],
  ['random_fold_in', foldIn],
];
