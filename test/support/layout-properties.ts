import { internalError } from '../../src/errors.ts';
import { complement } from '../../src/notations/layout/complement.ts';
import { idx2crd, MAX_OFFSETS, offsetAt, offsets } from '../../src/notations/layout/coordinates.ts';
import type { Order } from '../../src/notations/layout/int-tree.ts';
import { collision } from '../../src/notations/layout/inverse.ts';
import { compatible, concat, type Layout } from '../../src/notations/layout/layout.ts';

/**
 * Checks of results against what the functions promise, coordinate by coordinate. Tests and callers
 * that doubt a result run them; they cost one evaluation for every coordinate and throw E_INTERNAL
 * at the first that is wrong.
 */

/** The same function of one integer, and no two neighbours that could merge. */
export function checkCoalesced(a: Layout, result: Layout, order: Order): void {
  must(result.size === a.size, `coalesce changed the size of ${a.text} to ${result.text}`);
  must(result.depth <= 1, `coalesce left ${result.text} nested`);
  const want = offsets(a, order);
  offsets(result, order).forEach((o, i) =>
    must(o === want[i], `coalesce of ${a.text} differs at ${i}`),
  );
}

/** R(c) = A(B(c)) for every coordinate c of B, and B's shape is compatible with R's. */
export function checkComposed(a: Layout, b: Layout, result: Layout, order: Order): void {
  must(
    compatible(b.shape, result.shape),
    `the shape of ${result.text} does not refine that of ${b.text}`,
  );
  bounded(b);
  for (let i = 0; i < b.size; i++) {
    const c = idx2crd(i, b.shape, order);
    const want = offsetAt(a, offsetAt(b, c, order), order);
    must(
      offsetAt(result, c, order) === want,
      `${a.text} o ${b.text} = ${result.text} differs at ${i}`,
    );
  }
}

/**
 * Strides increase away from the fastest mode, only offset 0 is shared with A, and (A, A*) reaches
 * every offset below the bound.
 */
export function checkComplement(a: Layout, bound: number, result: Layout, order: Order): void {
  const list = offsets(result, order);
  for (let i = 1; i < list.length; i++)
    must(list[i] > list[i - 1], `complement ${result.text} is not ordered at ${i}`);
  const own = new Set(offsets(a, order));
  for (const o of list)
    must(o === 0 || !own.has(o), `complement ${result.text} shares offset ${o} with ${a.text}`);
  const reached = new Set(offsets(concat(a, result), order));
  for (let o = 0; o < bound; o++)
    must(reached.has(o), `${a.text} and its complement ${result.text} leave out ${o}`);
}

/**
 * A divide with its modes gathered as (tile, rest): element t of tile r is A(B(t) + B*(r)), and
 * every offset of A is there once. `result` is the logical divide of a whole layout (colex).
 */
export function checkDivided(a: Layout, b: Layout, result: Layout): void {
  const rest = complement(b, a.size, 'colex');
  const sorted = (x: Layout): number[] => offsets(x, 'colex').sort((p, q) => p - q);
  const want = sorted(a);
  // A tile that holds a place twice repeats elements, which is what it says.
  if (collision(b, 'colex') === undefined) {
    must(result.size === a.size, `divide of ${a.text} changed its size`);
    sorted(result).forEach((o, i) =>
      must(o === want[i], `divide of ${a.text} by ${b.text} is not a rearrangement`),
    );
  }
  const [tiles, places] = [offsets(b, 'colex'), offsets(rest, 'colex')];
  places.forEach((p, r) =>
    tiles.forEach((t, i) =>
      must(
        offsetAt(result, [i, r], 'colex') === offsetAt(a, t + p, 'colex'),
        `divide of ${a.text} by ${b.text} differs at (${i}, ${r})`,
      ),
    ),
  );
}

/**
 * A product: the first mode is A; the second has B's shape at its base and starts copies where
 * nothing of A lies (colex).
 */
export function checkProduct(a: Layout, b: Layout, result: Layout): void {
  const [tile, places] = result.modes;
  must(result.rank === 2 && tile.equals(a), `the first mode of ${result.text} is not ${a.text}`);
  must(
    compatible(b.shape, places.shape),
    `the second mode of ${result.text} does not have the coordinates of ${b.text}`,
  );
  const free = complement(a, a.size * b.cosize, 'colex');
  const starts = offsets(b, 'colex');
  offsets(places, 'colex').forEach((o, i) =>
    must(
      o === offsetAt(free, starts[i], 'colex'),
      `the product of ${a.text} and ${b.text} differs at copy ${i}`,
    ),
  );
}

/** A(R(i)) = i. */
export function checkRightInverse(a: Layout, result: Layout, order: Order): void {
  offsets(result, order).forEach((at, i) =>
    must(offsetAt(a, at, order) === i, `right inverse ${result.text} of ${a.text} differs at ${i}`),
  );
}

/** L(A(i)) = i. */
export function checkLeftInverse(a: Layout, result: Layout, order: Order): void {
  offsets(a, order).forEach((at, i) =>
    must(
      offsetAt(result, at, order) === i,
      `left inverse ${result.text} of ${a.text} differs at ${i}`,
    ),
  );
}

function bounded(layout: Layout): void {
  must(layout.size <= MAX_OFFSETS, `${layout.text} is too large to check`);
}

function must(holds: boolean, message: string): void {
  if (!holds) throw internalError(message);
}
