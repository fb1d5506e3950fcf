/**
 * Repeats A over the places of B: the first mode is A, the second says where each copy starts. All
 * products are colex.
 */

import { checkKinds } from '../../arguments.ts';
import { coalesceModes } from './coalesce.ts';
import { complement } from './complement.ts';
import { composition } from './composition.ts';
import { spreadAll, spreadRest, unzip } from './divide.ts';
import { concat, Layout } from './layout.ts';
import { byMode, type Tiler, viewTiler } from './tiler.ts';

/**
 * (A, complement(A, size A * cosize B) o B), by mode with a list. @throws E_LAYOUT where A has no
 * complement
 */
export function logicalProduct(a: Layout, b: Tiler): Layout {
  checkKinds('logicalProduct', {
    a: [a, 'layout'],
    b: [b, 'null', 'number', 'layout', 'tilers'],
  });
  const view = viewTiler(b);
  if (view.kind === 'nothing') return a;
  if (view.kind === 'modes') return byMode(a, view.modes, logicalProduct);
  const { layout } = view;
  return concat(a, composition(complement(a, a.size * layout.cosize, 'colex'), layout, 'colex'));
}

/** ((A0, A1), (B0, B1, more ...)) by mode. */
export function zippedProduct(a: Layout, b: Tiler): Layout {
  checkKinds('zippedProduct', { a: [a, 'layout'], b: [b, 'null', 'number', 'layout', 'tilers'] });
  return unzip(logicalProduct, a, b);
}

/** ((A0, A1), B0, B1, more ...) by mode. */
export function tiledProduct(a: Layout, b: Tiler): Layout {
  checkKinds('tiledProduct', { a: [a, 'layout'], b: [b, 'null', 'number', 'layout', 'tilers'] });
  return spreadRest(zippedProduct(a, b));
}

/** (A0, A1, B0, B1, more ...) by mode. */
export function flatProduct(a: Layout, b: Tiler): Layout {
  checkKinds('flatProduct', { a: [a, 'layout'], b: [b, 'null', 'number', 'layout', 'tilers'] });
  return spreadAll(zippedProduct(a, b));
}

/** Copies of A side by side: mode i is A's mode i, then B's, coalesced. */
export function blockedProduct(a: Layout, b: Layout): Layout {
  checkKinds('blockedProduct', { a: [a, 'layout'], b: [b, 'layout'] });
  return interleave(a, b, (x, y) => concat(x, y));
}

/** Copies of A dealt out one element at a time: mode i is B's mode i, then A's, coalesced. */
export function rakedProduct(a: Layout, b: Layout): Layout {
  checkKinds('rakedProduct', { a: [a, 'layout'], b: [b, 'layout'] });
  return interleave(a, b, (x, y) => concat(y, x));
}

function interleave(a: Layout, b: Layout, pair: (x: Layout, y: Layout) => Layout): Layout {
  const rank = Math.max(a.rank, b.rank);
  const [left, right] = logicalProduct(padded(a, rank), padded(b, rank)).modes.map((m) => m.modes);
  return coalesceModes(concat(...left.map((mode, i) => pair(mode, right[i]))), 'colex');
}

/** A list of `rank` modes; missing ones are `1:0`. */
function padded(a: Layout, rank: number): Layout {
  const { modes } = a;
  while (modes.length < rank) modes.push(new Layout(1, 0));
  return concat(...modes);
}
