/** The second argument of compositions, divides and products: one layout, or one for each mode. */

import { ShardwrightError } from '../../errors.ts';
import { type IntTree, treeText } from './int-tree.ts';
import { concat, Layout } from './layout.ts';

/**
 * Second argument of compositions, divides and products: a layout, applied to the whole; or one
 * tiler for each mode of the first argument. An integer n is `n:1`, a shape is a list of its modes,
 * `null` leaves a mode alone.
 */
export type Tiler = Layout | IntTree | null | readonly Tiler[];

/** The kinds of tilers: nothing, one layout, or a list by mode. */
type TilerView =
  | { readonly kind: 'nothing' }
  | { readonly kind: 'layout'; readonly layout: Layout }
  | { readonly kind: 'modes'; readonly modes: readonly Tiler[] };

export function viewTiler(tiler: Tiler): TilerView {
  if (tiler === null) return { kind: 'nothing' };
  if (tiler instanceof Layout) return { kind: 'layout', layout: tiler };
  if (typeof tiler === 'number') return { kind: 'layout', layout: new Layout(tiler, 1) };
  return { kind: 'modes', modes: tiler };
}

/** `<3:4,(2,4):(1,8)>`, `_` for a mode left alone. */
export function tilerText(tiler: Tiler): string {
  if (tiler === null) return '_';
  if (tiler instanceof Layout) return tiler.text;
  if (typeof tiler === 'number') return treeText(tiler);
  return `<${tiler.map((t) => tilerText(t)).join(',')}>`;
}

/**
 * Applies `f` to each mode of `a` with its tiler; modes beyond the list stay as they are.
 *
 * @throws E_LAYOUT when the list has more parts than `a` has modes
 */
export function byMode(
  a: Layout,
  tilers: readonly Tiler[],
  f: (mode: Layout, tiler: Tiler) => Layout,
): Layout {
  checkModes(a, tilers);
  return concat(...a.modes.map((mode, i) => (i < tilers.length ? f(mode, tilers[i]) : mode)));
}

export function checkModes(a: Layout, tilers: readonly Tiler[]): void {
  if (tilers.length > a.rank)
    throw new ShardwrightError(
      'E_LAYOUT',
      `the tiler ${tilerText(tilers)} has ${tilers.length} parts, but ${a.text} has ` +
        `${a.rank} mode${a.rank === 1 ? '' : 's'}`,
      { hint: 'give at most one part for each mode' },
    );
}
