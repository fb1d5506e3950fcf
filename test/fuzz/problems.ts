/**
 * Random choice problems that can be shrunk: plain numbers, read modulo the sizes that are left.
 * Comes out: the plain form that brute force reads (`test/solver/support.ts`).
 */
import fc from 'fast-check';

import type { PlainProblem } from '../solver/support.ts';

const MOST_VARIABLES = 6;
const MOST_VALUES = 4;

const costs = (length: number): fc.Arbitrary<number[]> =>
  fc.array(
    fc.oneof(
      { arbitrary: fc.nat(9), weight: 20 },
      { arbitrary: fc.nat(1000), weight: 10 },
      { arbitrary: fc.constant(Infinity), weight: 1 },
    ),
    { minLength: length, maxLength: length },
  );
const amounts = fc.array(fc.nat(50), { minLength: MOST_VALUES, maxLength: MOST_VALUES });
/**
 * Where a limit lies between the least and the most that can be used; a little below 0 nothing
 * fits.
 */
const tightness = fc.oneof(
  { arbitrary: fc.integer({ min: 20, max: 100 }), weight: 3 },
  fc.integer({ min: -3, max: 30 }),
);

const KINDS = ['any', 'any', 'sum', 'follow', 'classes', 'classes', 'zero'] as const;
const edges = fc.array(
  fc.record({
    i: fc.nat(MOST_VARIABLES - 1),
    j: fc.nat(MOST_VARIABLES - 1),
    kind: fc.constantFrom(...KINDS),
    cells: costs(MOST_VALUES ** 2),
  }),
  { maxLength: 10 },
);
const rows = fc.array(
  fc.record({
    amounts: fc.array(amounts, { minLength: MOST_VARIABLES, maxLength: MOST_VARIABLES }),
    tightness,
  }),
  { maxLength: 2 },
);
const usage = fc.record({
  pieces: fc.array(
    fc.record({ variable: fc.nat(MOST_VARIABLES - 1), lo: fc.nat(7), length: fc.nat(4), amounts }),
    { maxLength: 7 },
  ),
  tightness,
});

/** Problems with `scales` as the units of their costs, some of which are negative. */
export function problems(
  scales: readonly number[] = [1, 7, 2 ** 20, 1e9],
): fc.Arbitrary<PlainProblem> {
  return fc
    .record({
      unary: fc.array(fc.integer({ min: 1, max: MOST_VALUES }).chain(costs), {
        minLength: 1,
        maxLength: MOST_VARIABLES,
      }),
      edges,
      rows,
      usage: fc.option(usage, { nil: undefined }),
      scale: fc.constantFrom(...scales),
      amountScale: fc.constantFrom(1, 1, 2 ** 30, 999_999_937),
      below: fc.constantFrom(0, 0, 5),
    })
    .map((raw): PlainProblem => {
      const price = (cost: number): number => (cost - raw.below) * raw.scale;
      const unary = raw.unary.map((list) => list.map(price));
      const n = unary.length;
      const fit = (list: readonly number[], v: number): number[] =>
        unary[v].map((_, a) => list[a] * raw.amountScale);
      const limit = (least: number, most: number, tight: number): number =>
        Math.max(0, Math.floor(least + (tight / 100) * (most - least)));
      const linear = raw.rows.map((row, r) => {
        const table = unary.map((_, v) => fit(row.amounts[v], v));
        const sum = (pick: (list: number[]) => number): number =>
          table.reduce((s, list) => s + pick(list), 0);
        const bound = limit(
          sum((list) => Math.min(...list)),
          sum((list) => Math.max(...list)),
          row.tightness,
        );
        return { name: `row ${r}`, variables: unary.map((_, v) => v), amounts: table, bound };
      });
      const pieces = raw.usage?.pieces.map(({ variable, lo, length, amounts: list }) => ({
        variable: variable % n,
        lo,
        hi: lo + length,
        amounts: fit(list, variable % n),
      }));
      const peak = (pick: (list: readonly number[]) => number): number =>
        Math.max(
          0,
          ...(pieces ?? []).map(({ lo }) =>
            (pieces ?? []).reduce((s, p) => (p.lo <= lo && lo < p.hi ? s + pick(p.amounts) : s), 0),
          ),
        );
      return {
        unary,
        edges: raw.edges.map(({ i, j, kind, cells }) => [
          i % n,
          j % n,
          tableOf(kind, cells.map(price), unary[i % n].length, unary[j % n].length),
        ]),
        rows: linear,
        ...(pieces === undefined
          ? {}
          : {
              pieces,
              limit: limit(
                peak((list) => Math.min(...list)),
                peak((list) => Math.max(...list)),
                raw.usage?.tightness ?? 0,
              ),
            }),
      };
    });
}

function tableOf(
  kind: (typeof KINDS)[number],
  cells: readonly number[],
  k: number,
  l: number,
): number[] {
  return Array.from({ length: k * l }, (_, at) => {
    const [a, b] = [Math.floor(at / l), at % l];
    switch (kind) {
      case 'any':
        return cells[a * MOST_VALUES + b];
      case 'sum':
        return cells[a] + cells[MOST_VALUES + b];
      case 'follow':
        return a % Math.max(k, l) === b ? cells[b] : Infinity;
      case 'classes':
        return cells[(a % 2) * 2 + (b % 2)];
      case 'zero':
        return 0;
    }
  });
}
