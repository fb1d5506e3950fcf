import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { coalesce, coalesceModes } from '../../../src/notations/layout/coalesce.ts';
import { complement } from '../../../src/notations/layout/complement.ts';
import { composition } from '../../../src/notations/layout/composition.ts';
import { offsets } from '../../../src/notations/layout/coordinates.ts';
import {
  flatDivide,
  logicalDivide,
  tiledDivide,
  zippedDivide,
} from '../../../src/notations/layout/divide.ts';
import { layoutOfOffsets } from '../../../src/notations/layout/from-offsets.ts';
import {
  type IntTree,
  isTuple,
  type Order,
  reverseTree,
} from '../../../src/notations/layout/int-tree.ts';
import { collision, leftInverse, rightInverse } from '../../../src/notations/layout/inverse.ts';
import {
  compact,
  compatible,
  concat,
  fromModes,
  Layout,
  reverse,
} from '../../../src/notations/layout/layout.ts';
import { parseLayout } from '../../../src/notations/layout/parse.ts';
import {
  blockedProduct,
  logicalProduct,
  rakedProduct,
} from '../../../src/notations/layout/product.ts';
import { FULL } from '../../support/full.ts';
import {
  checkCoalesced,
  checkComplement,
  checkComposed,
  checkDivided,
  checkLeftInverse,
  checkProduct,
  checkRightInverse,
} from '../../support/layout-properties.ts';

/**
 * The truth is written out here once more, in the plainest way: a layout is its list of offsets
 * over all digits. No function of the algebra is used to judge another.
 */
const flat = (tree: IntTree): number[] => (isTuple(tree) ? tree.flatMap((t) => flat(t)) : [tree]);
function values(a: { shape: IntTree; stride: IntTree }, order: Order): number[] {
  const [sizes, strides] = [flat(a.shape), flat(a.stride)];
  const total = sizes.reduce((n, s) => n * s, 1);
  return Array.from({ length: total }, (_, index) => {
    let rest = index;
    let offset = 0;
    const places = sizes.map((_, i) => i);
    for (const i of order === 'colex' ? places : places.reverse()) {
      offset += (rest % sizes[i]) * strides[i];
      rest = Math.floor(rest / sizes[i]);
    }
    return offset;
  });
}

const ORDERS: readonly Order[] = ['lex', 'colex'];
const order = fc.constantFrom<Order>('lex', 'colex');
const shape = fc.letrec<{ tree: IntTree }>((tie) => ({
  tree: fc.oneof(
    { depthSize: 'small', maxDepth: 3 },
    fc.constantFrom(1, 2, 2, 3, 4, 6),
    fc.array(tie('tree'), { minLength: 1, maxLength: 3 }),
  ),
})).tree;
const small = shape.filter((s) => flat(s).reduce((n, x) => n * x, 1) <= 96);
/**
 * Any strides, or those of a permuted compact layout with gaps: so that both refusals and results
 * are common.
 */
const layout = small.chain((s) => {
  const sizes = flat(s);
  const anything = fc.array(fc.constantFrom(0, 1, 2, 3, 4, 6, 8, 12, 16, 24), {
    minLength: sizes.length,
    maxLength: sizes.length,
  });
  const packed = fc
    .tuple(
      fc.shuffledSubarray(
        sizes.map((_, i) => i),
        { minLength: sizes.length },
      ),
      fc.array(fc.constantFrom(1, 1, 1, 2, 3), {
        minLength: sizes.length,
        maxLength: sizes.length,
      }),
    )
    .map(([places, gaps]) => {
      const strides = new Array<number>(sizes.length).fill(0);
      let step = 1;
      places.forEach((p, k) => {
        step *= gaps[k];
        strides[p] = step;
        step *= sizes[p];
      });
      return strides;
    });
  return fc.oneof(anything, packed).map((strides) => {
    let next = 0;
    const nest = (t: IntTree): IntTree => (isTuple(t) ? t.map((x) => nest(x)) : strides[next++]);
    return new Layout(s, nest(s));
  });
});

/** The result, or undefined for a refusal; anything but a refusal fails the test. */
function attempt<T>(run: () => T): T | undefined {
  try {
    return run();
  } catch (error) {
    expect((error as { code?: string }).code).toBe('E_LAYOUT');
    return undefined;
  }
}
const ascending = (list: readonly number[]): number[] => [...list].sort((x, y) => x - y);

describe('properties on random layouts', () => {
  test('offsets, cosize and text agree with enumeration', () => {
    fc.assert(
      fc.property(layout, order, (a, o) => {
        expect(offsets(a, o)).toEqual(values(a, o));
        expect(a.cosize).toBe(Math.max(...values(a, o)) + 1);
        expect(parseLayout(a.text, o).equals(a)).toBe(true);
      }),
    );
  });

  test('coalesce keeps the function, in the fewest modes', () => {
    fc.assert(
      fc.property(layout, order, (a, o) => {
        const result = coalesce(a, o);
        expect(values(result, o)).toEqual(values(a, o));
        checkCoalesced(a, result, o);
        expect(layoutOfOffsets(values(a, o), o)?.rank).toBe(result.rank);
        const modes = coalesceModes(a, o);
        expect(modes.rank).toBe(a.rank);
        modes.modes.forEach((m, i) => expect(values(m, o)).toEqual(values(a.modes[i], o)));
      }),
    );
  });

  test('composition is pointwise, or refused; always refused where B leaves A', () => {
    let results = 0;
    fc.assert(
      fc.property(layout, layout, order, (a, b, o) => {
        const [va, vb] = [values(a, o), values(b, o)];
        const result = attempt(() => composition(a, b, o));
        if (Math.max(...vb) >= va.length) expect(result).toBeUndefined();
        if (result === undefined) return;
        results++;
        expect(values(result, o)).toEqual(vb.map((x) => va[x]));
        expect(compatible(b.shape, result.shape)).toBe(true);
        checkComposed(a, b, result, o);
      }),
      { numRuns: FULL ? 2000 : 500, seed: 7 },
    );
    expect(results).toBeGreaterThan(FULL ? 300 : 75);
  });

  test('modes that carry into each other are refused', () => {
    // (1, 2) of B is 3 + 4 = 7, which is (1, 1) of A and so 19; mode by mode it would be 3 + 4 = 7.
    const [a, b] = [new Layout([6, 2], [1, 18]), new Layout([2, 3], [3, 2])];
    expect(values(b, 'colex').map((x) => values(a, 'colex')[x])).toEqual([0, 3, 2, 5, 4, 19]);
    expect(() => composition(a, b, 'colex')).toThrow(/add up to 7 inside size 6 and carry over/);
  });

  test('one mode in one mode is refused only where it leaves A', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 12 }),
        fc.integer({ min: 1, max: 12 }),
        fc.integer({ min: 1, max: 6 }),
        (n, s, d) => {
          const a = new Layout(n, 5);
          const result = attempt(() => composition(a, new Layout(s, d), 'colex'));
          expect(result !== undefined).toBe((s - 1) * d < n);
        },
      ),
    );
  });

  test('complement is disjoint, ordered, and fills', () => {
    let results = 0;
    fc.assert(
      fc.property(layout, fc.constantFrom(1, 2, 6, 12, 24, 48, 100), order, (a, bound, o) => {
        const moving = fromModes(
          flat(a.shape)
            .map((size, i) => ({ size, stride: flat(a.stride)[i] }))
            .filter((m) => m.stride > 0),
        );
        const result = attempt(() => complement(a, bound, o));
        const own = values(moving, o);
        if (new Set(own).size !== own.length) expect(result).toBeUndefined();
        if (result === undefined || result.size > 5000) return;
        results++;
        const rest = values(result, o);
        expect(rest).toEqual(ascending(rest));
        const sums = own.flatMap((x) => rest.map((y) => x + y));
        expect(new Set(sums).size).toBe(sums.length);
        const reached = new Set(sums);
        for (let i = 0; i < bound; i++) expect(reached.has(i)).toBe(true);
        if (moving.size === a.size) checkComplement(a, bound, result, o);
      }),
      { numRuns: FULL ? 1000 : 250, seed: 7 },
    );
    expect(results).toBeGreaterThan(200);
  });

  test('divides rearrange, or reach all and more; zipped mode 0 is the composition', () => {
    let [results, over] = [0, 0];
    fc.assert(
      fc.property(layout, layout, (a, b) => {
        const result = attempt(() => logicalDivide(a, b));
        if (result === undefined) return;
        const tile = values(b, 'colex');
        const isInjective = new Set(tile).size === tile.length;
        const tiles = concat(b, complement(b, a.size, 'colex'));
        if (attempt(() => composition(a, tiles, 'colex')) === undefined) {
          over++;
          const reached = new Set(values(result, 'colex'));
          const missed = values(a, 'colex').filter((value) => !reached.has(value));
          if (isInjective) expect(missed).toEqual([]);
          return;
        }
        results++;
        if (isInjective)
          expect(ascending(values(result, 'colex'))).toEqual(ascending(values(a, 'colex')));
        checkDivided(a, b, result);
        expect(zippedDivide(a, b).modes[0].text).toBe(composition(a, b, 'colex').text);
        expect(values(tiledDivide(a, b), 'colex')).toEqual(values(result, 'colex'));
        expect(values(flatDivide(a, b), 'colex')).toEqual(values(result, 'colex'));
      }),
      { numRuns: FULL ? 2000 : 500, seed: 7 },
    );
    expect(results).toBeGreaterThan(100);
    expect(over).toBeGreaterThan(20);
  });

  test('divide by mode then zip is a bijection, mode 0 is the composition by mode', () => {
    const pair = fc.tuple(
      fc.constantFrom(2, 3, 4),
      fc.constantFrom(1, 2, 3),
      fc.constantFrom(1, 2, 3),
    );
    fc.assert(
      fc.property(
        fc.array(pair, { minLength: 1, maxLength: 3 }),
        fc.constantFrom(1, 3),
        (parts, scale) => {
          // Mode i has tile * gap * copies places; a tile steps by `gap` inside it.
          const sizes = parts.map(([tile, gap, copies]) => tile * gap * copies);
          const a = new Layout(
            sizes,
            flat(compact(sizes, 'lex').stride).map((s) => s * scale),
          );
          const tiler = parts.map(([tile, gap]) => new Layout(tile, gap));
          const zipped = zippedDivide(a, tiler);
          expect(ascending(values(zipped, 'colex'))).toEqual(ascending(values(a, 'colex')));
          expect(zipped.modes[0].text).toBe(composition(a, tiler, 'colex').text);
          expect(zipped.modes[0].size).toBe(parts.reduce((n, [tile]) => n * tile, 1));
        },
      ),
    );
  });

  test('products copy A to where nothing of A lies', () => {
    let results = 0;
    fc.assert(
      fc.property(layout, layout, (a, b) => {
        const result = attempt(() => logicalProduct(a, b));
        if (result === undefined) return;
        results++;
        checkProduct(a, b, result);
        const [tile, places] = result.modes;
        expect(tile.equals(a)).toBe(true);
        expect(places.size).toBe(b.size);
        const starts = values(b, 'colex');
        const own = new Set(values(a, 'colex'));
        const copies = values(places, 'colex');
        // Equal places of B are equal copies, different ones start elsewhere, where nothing of A
        // lies.
        const isOne = copies.every((c, i) =>
          copies.every((d, j) => (c === d) === (starts[i] === starts[j])),
        );
        expect(isOne).toBe(true);
        for (const c of new Set(copies)) if (c > 0) expect(own.has(c)).toBe(false);
        for (const other of [blockedProduct(a, b), rakedProduct(a, b)])
          expect(ascending(values(other, 'colex'))).toEqual(ascending(values(result, 'colex')));
      }),
      { numRuns: FULL ? 1000 : 250, seed: 7 },
    );
    expect(results).toBeGreaterThan(100);
  });

  test('blocked puts copies side by side, raked deals them out', () => {
    // A block of compact rows x columns, repeated over a compact grid: cell (r, c) of the whole.
    const n = fc.integer({ min: 1, max: 4 });
    fc.assert(
      fc.property(n, n, n, n, (r, c, R, C) => {
        const a = compact([r, c], 'colex');
        const b = compact([R, C], 'colex');
        const inside = (i: number, j: number): number => i + r * j;
        const copy = (i: number, j: number): number => r * c * (i + R * j);
        const blocked: number[] = [];
        const raked: number[] = [];
        for (let j = 0; j < c * C; j++)
          for (let i = 0; i < r * R; i++) {
            blocked.push(inside(i % r, j % c) + copy(Math.floor(i / r), Math.floor(j / c)));
            raked.push(inside(Math.floor(i / R), Math.floor(j / C)) + copy(i % R, j % C));
          }
        expect(values(blockedProduct(a, b), 'colex')).toEqual(blocked);
        expect(values(rakedProduct(a, b), 'colex')).toEqual(raked);
      }),
    );
  });

  test('right inverse: A(R(i)) = i, the longest for injective layouts', () => {
    fc.assert(
      fc.property(layout, order, (a, o) => {
        const result = rightInverse(a, o);
        const va = values(a, o);
        expect(values(result, o).map((at) => va[at])).toEqual(
          Array.from({ length: result.size }, (_, i) => i),
        );
        checkRightInverse(a, result, o);
        // An injective layout that holds 0..n-1 but not n has no longer inverse.
        const held = new Set(va);
        let n = 0;
        while (held.has(n)) n++;
        if (held.size === va.length) expect(result.size).toBe(n);
      }),
      { numRuns: FULL ? 500 : 125 },
    );
  });

  test('left inverse: L(A(i)) = i, or a refusal', () => {
    let results = 0;
    fc.assert(
      fc.property(layout, order, (a, o) => {
        const va = values(a, o);
        const injective = new Set(va).size === va.length;
        expect(collision(a, o) === undefined).toBe(injective);
        const result = attempt(() => leftInverse(a, o));
        if (!injective) expect(result).toBeUndefined();
        if (result === undefined) return;
        results++;
        const vl = values(result, o);
        expect(va.map((x) => vl[x])).toEqual(va.map((_, i) => i));
        checkLeftInverse(a, result, o);
      }),
      { numRuns: FULL ? 1000 : 250, seed: 7 },
    );
    expect(results).toBeGreaterThan(200);
  });

  test('a transposed view is flattened and unflattened without loss', () => {
    const n = fc.integer({ min: 2, max: 5 });
    fc.assert(
      fc.property(n, n, n, order, (x, y, z, o) => {
        const whole = compact([x, y, z], o);
        const [mx, my, mz] = whole.modes;
        const view = concat(mz, concat(mx, my));
        // One integer addresses the tree (x, y); taking it apart by composition gives size and
        // stride back.
        const again = composition(view.modes[1], compact([x, y], o), o);
        expect(again.shape).toEqual([x, y]);
        expect(again.stride).toEqual([mx.stride, my.stride]);
      }),
    );
  });

  test('lex is colex in the mirror', () => {
    fc.assert(
      fc.property(layout, layout, (a, b) => {
        expect(values(reverse(a), 'colex')).toEqual(values(a, 'lex'));
        expect(coalesce(a, 'lex').text).toBe(reverse(coalesce(reverse(a), 'colex')).text);
        const lex = attempt(() => composition(a, b, 'lex'));
        const colex = attempt(() => composition(reverse(a), reverse(b), 'colex'));
        expect(lex?.text).toBe(colex && reverse(colex).text);
        expect(rightInverse(a, 'lex').text).toBe(reverse(rightInverse(reverse(a), 'colex')).text);
        expect(compact(a.shape, 'lex').text).toBe(
          reverse(compact(reverseTree(a.shape), 'colex')).text,
        );
      }),
    );
  });

  test('compatible: every coordinate of A is one of B', () => {
    fc.assert(
      fc.property(small, small, (a, b) => {
        expect(compatible(a, a)).toBe(true);
        if (!compatible(a, b)) return;
        for (const o of ORDERS) expect(values(compact(a, o), o)).toEqual(values(compact(b, o), o));
      }),
    );
  });

  test('a layout is found from its offsets, and only then', () => {
    fc.assert(
      fc.property(layout, order, fc.nat(), (a, o, where) => {
        const list = values(a, o);
        expect(values(layoutOfOffsets(list, o) ?? new Layout(1, 0), o)).toEqual(list);
        const broken = [...list];
        broken[where % list.length] += 1000;
        const found = layoutOfOffsets(broken, o);
        if (found !== undefined) expect(values(found, o)).toEqual(broken);
      }),
    );
    expect(layoutOfOffsets([0, 1, 3], 'lex')).toBeUndefined();
    expect(layoutOfOffsets([1, 2], 'lex')).toBeUndefined();
    expect(layoutOfOffsets([], 'lex')).toBeUndefined();
    expect(layoutOfOffsets([0, 2, 5, 7], 'colex')?.text).toBe('(2,2):(2,5)');
  });

  test('the checks themselves find a wrong result', () => {
    const L = (text: string): Layout => parseLayout(text, 'colex');
    expect(() => checkCoalesced(L('(2,2):(1,2)'), L('4:2'), 'colex')).toThrow(
      /internal: coalesce .* differs at 1/,
    );
    expect(() => checkComposed(L('(4,3):(1,100)'), L('6:1'), L('4:1'), 'colex')).toThrow(
      /does not refine/,
    );
    expect(() => checkComposed(L('20:2'), L('4:1'), L('4:1'), 'colex')).toThrow(/differs at 1/);
    expect(() => checkComplement(L('4:1'), 24, L('5:4'), 'colex')).toThrow(/leave out 20/);
    expect(() => checkComplement(L('4:1'), 4, L('2:2'), 'colex')).toThrow(/shares offset 2/);
    expect(() => checkComplement(L('4:2'), 24, L('(3,2):(8,1)'), 'colex')).toThrow(/not ordered/);
    expect(() => checkDivided(L('4:1'), L('2:1'), L('(2,2):(2,1)'))).toThrow(/differs at/);
    expect(() => checkDivided(L('4:1'), L('2:1'), L('(2,2):(1,1)'))).toThrow(/not a rearrangement/);
    expect(() => checkProduct(L('2:1'), L('2:1'), L('(2,2):(1,3)'))).toThrow(/differs at copy 1/);
    expect(() => checkRightInverse(L('4:1'), L('2:2'), 'colex')).toThrow(/differs at 1/);
    expect(() => checkLeftInverse(L('4:2'), L('8:1'), 'colex')).toThrow(/differs at 1/);
  });
});
