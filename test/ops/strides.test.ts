import { describe, expect, test } from 'vitest';

import type { Arg, ValueType } from '../../src/graph/types.ts';
import { contiguousStride, tensorType } from '../../src/graph/value.ts';
import { dimOrder, stridesAt, withStrides } from '../../src/ops/strides.ts';
import { text } from '../import/fixtures.ts';

/**
 * Strides of eager PyTorch: random operands (dims in any memory order, gaps, stretched dims)
 * through views and pointwise operators of torch 2.13 on CPU; operator, [shape, stride] of the
 * operands, further arguments, [shape, stride] of the results.
 */
type Strided = readonly [shape: number[], stride: number[]];
type Case = readonly [
  target: string,
  operands: Strided[],
  args: (number | number[])[],
  results: Strided[],
];

const CASES = JSON.parse(text('strides.json.gz')) as readonly Case[];

function inferred([target, operands, rest, results]: Case): number[][] {
  const types = new Map(
    operands.map(([shape, stride], i) => [`x${i}`, tensorType('f32', shape, stride)]),
  );
  const args: Arg[] = [...[...types.keys()].map((name): Arg => ({ kind: 'value', name })), ...rest];
  const plain = results.map(([shape]) => tensorType('f32', shape));
  const type: ValueType = /split|unbind/.test(target) ? { kind: 'tuple', items: plain } : plain[0];
  const found = withStrides({ target, args, kwargs: {} }, type, (name) => types.get(name)!);
  const items = found.kind === 'tuple' ? found.items : [found];
  return items.map((item) =>
    item.kind === 'tensor'
      ? [...(item.stride ?? contiguousStride(item.shape) ?? [])].map(Number)
      : [],
  );
}

describe('strides that the text does not state', () => {
  const targets = [...new Set(CASES.map(([target]) => target))].sort();

  test('there are thousands of cases, most of them not row-major', () => {
    expect(CASES.length).toBeGreaterThan(3000);
    const odd = CASES.filter(([, , , results]) =>
      results.some(([shape, stride]) => String(stride) !== String(contiguousStride(shape))),
    );
    expect(odd.length).toBeGreaterThan(CASES.length / 3);
    expect(targets).toHaveLength(18);
  });

  test.each(targets)('%s as PyTorch has them', (target) => {
    const own = CASES.filter(([name]) => name === target);
    expect(own.length).toBeGreaterThan(50);
    for (const one of own)
      expect([JSON.stringify(one), inferred(one)]).toEqual([
        JSON.stringify(one),
        one[3].map(([, stride]) => stride),
      ]);
  });
});

describe('the order of the dims in memory', () => {
  /** Strides of a tensor that is row-major once its dims are permuted to this order. */
  const laid = (order: readonly number[], shape: readonly number[]): number[] => {
    const stride = shape.map(() => 0);
    let step = 1;
    for (const dim of [...order].reverse()) {
      stride[dim] = step;
      step *= shape[dim];
    }
    return stride;
  };
  const ORDERS = [
    [0, 1, 2],
    [0, 2, 1],
    [1, 0, 2],
    [1, 2, 0],
    [2, 0, 1],
    [2, 1, 0],
  ];

  test.each(ORDERS)('%i %i %i is read from the strides, and kept at other sizes', (...order) => {
    const type = tensorType('f32', [4, 6, 8], laid(order, [4, 6, 8]));
    expect(dimOrder(type)).toEqual(order);
    const smaller = stridesAt(type, [2, 3, 5]);
    expect(smaller ?? contiguousStride([2, 3, 5])).toEqual(laid(order, [2, 3, 5]));
  });

  test('a dim that repeats its elements stays one, before the dim behind it', () => {
    const type = tensorType('f32', [4, 6, 8], [8, 0, 1]);
    expect(dimOrder(type)).toEqual([0, 1, 2]);
    expect(stridesAt(type, [2, 3, 5])).toEqual([5, 0, 1]);
  });
});
