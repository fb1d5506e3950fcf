/**
 * Divides A into tiles: the first mode runs inside a tile, the second over the tiles. All divides
 * are colex. With a list, every mode of A is divided by its part. They differ in how the modes are
 * gathered:
 *
 * | logical | ((tile0, rest0), (tile1, rest1), more ...) |
 * | zipped  | ((tile0, tile1), (rest0, rest1, more ...)) |
 * | tiled   | ((tile0, tile1), rest0, rest1, more ...)   |
 * | flat    | (tile0, tile1, rest0, rest1, more ...)     |
 */

import { checkKinds } from '../../arguments.ts';
import { complement } from './complement.ts';
import { overTiled } from './composition.ts';
import { concat, Layout } from './layout.ts';
import { byMode, checkModes, type Tiler, viewTiler } from './tiler.ts';

/**
 * A o (B, complement(B, size A)), by mode with a list. The last tile may go beyond A: 10 elements
 * in tiles of 4 make 3 tiles, whose last places are outside. @throws E_LAYOUT where B takes parts
 * of the inner sizes of A that do not divide
 */
export function logicalDivide(a: Layout, b: Tiler): Layout {
  checkKinds('logicalDivide', { a: [a, 'layout'], b: [b, 'null', 'number', 'layout', 'tilers'] });
  const view = viewTiler(b);
  if (view.kind === 'nothing') return a;
  if (view.kind === 'modes') return byMode(a, view.modes, logicalDivide);
  return overTiled(a, concat(view.layout, complement(view.layout, a.size, 'colex')));
}

/**
 * `logicalDivide` with its tiles together: ((tile), (rest)). Colex order. Source: CuTe
 * `zipped_divide`.
 */
export function zippedDivide(a: Layout, b: Tiler): Layout {
  checkKinds('zippedDivide', { a: [a, 'layout'], b: [b, 'null', 'number', 'layout', 'tilers'] });
  return unzip(logicalDivide, a, b);
}

/**
 * `zippedDivide` with the rest spread: ((tile), rest, rest ...). Colex order. Source: CuTe
 * `tiled_divide`.
 */
export function tiledDivide(a: Layout, b: Tiler): Layout {
  checkKinds('tiledDivide', { a: [a, 'layout'], b: [b, 'null', 'number', 'layout', 'tilers'] });
  return spreadRest(zippedDivide(a, b));
}

/**
 * `zippedDivide` with both spread: (tile, tile ..., rest, rest ...). Colex order. Source: CuTe
 * `flat_divide`.
 */
export function flatDivide(a: Layout, b: Tiler): Layout {
  checkKinds('flatDivide', { a: [a, 'layout'], b: [b, 'null', 'number', 'layout', 'tilers'] });
  return spreadAll(zippedDivide(a, b));
}

/** @internal Splits every mode in two by `split` and gathers first halves and second halves. */
export function unzip(split: (a: Layout, b: Tiler) => Layout, a: Layout, b: Tiler): Layout {
  const view = viewTiler(b);
  // A mode left alone has a tile of one element.
  if (view.kind === 'nothing') return concat(new Layout(1, 0), a);
  if (view.kind === 'layout') return split(a, view.layout);
  checkModes(a, view.modes);
  const { modes } = a;
  const halves = view.modes.map((part, i) => unzip(split, modes[i], part).modes);
  return concat(
    concat(...halves.map((h) => h[0])),
    concat(...halves.map((h) => h[1]), ...modes.slice(halves.length)),
  );
}

/** @internal */
export function spreadRest(zipped: Layout): Layout {
  const [tile, rest] = zipped.modes;
  return concat(tile, ...rest.modes);
}

/** @internal */
export function spreadAll(zipped: Layout): Layout {
  const [tile, rest] = zipped.modes;
  return concat(...tile.modes, ...rest.modes);
}
