/** Products in WebAssembly against the loops in JavaScript, bit by bit. */
import { expect, test } from 'vitest';

import { throughColumns, throughRows } from '../../../src/solver/dual/inner-loops.ts';
import { TableKernels } from '../../../src/solver/store/table-kernels.ts';
import { mulberry32 } from '../support.ts';

test('rows and columns of tables of many shapes, some costs and cells Infinity', () => {
  const random = mulberry32(3);
  const numbers = (count: number): Float64Array =>
    Float64Array.from({ length: count }, () =>
      random() < 0.1 ? Infinity : Math.floor((random() - 0.2) * 2 ** 45),
    );
  const kernels = new TableKernels();
  // Around the widths of vectors and of cache lines, and tall and wide ones; each stays in memory
  // while the next is used.
  const shapes = [
    [23, 23],
    [8, 64],
    [64, 8],
    [1, 513],
    [513, 1],
    [2, 300],
    [33, 17],
    [32, 16],
    [100, 31],
    [7, 601],
  ];
  for (const [rows, columns] of [...shapes, ...shapes]) {
    const cells = numbers(rows * columns);
    const place = kernels.place(cells, rows, columns);
    expect(place).toBeGreaterThanOrEqual(0);
    for (const [product, own, size, width] of [
      ['throughRows', throughRows, rows, columns],
      ['throughColumns', throughColumns, columns, rows],
    ] as const) {
      const costs = numbers(size);
      const there = 3;
      const expected = new Float64Array(width + 2 * there);
      const found = new Float64Array(width + 2 * there);
      own(cells, costs, rows, columns, expected, there);
      kernels[product](place, costs, rows, columns, found, there);
      expect(found, `${product} of ${rows} x ${columns}`).toEqual(expected);
    }
    expect(kernels.place(cells, rows, columns), 'copied once').toBe(place);
  }
});

test('small and very wide tables are left to the loops', () => {
  const kernels = new TableKernels();
  expect(kernels.place(new Float64Array(16), 4, 4)).toBe(-1);
  expect(kernels.place(new Float64Array(20_000), 2, 10_000)).toBe(-1);
});
