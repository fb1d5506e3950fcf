/** Simplifies a layout to the fewest modes with the same function (CuTe's `coalesce`). */

import { checkKinds } from '../../arguments.ts';
import type { Order } from './int-tree.ts';
import { concat, type FlatMode, flatModes, fromModes, type Layout, reverse } from './layout.ts';

/**
 * The same function of one integer in the fewest modes: sizes of 1 are dropped, and neighbours that
 * continue each other are merged (colex `s0:d0, s1:d1` when d1 = s0 * d0; lex when d0 = s1 * d1). A
 * single coordinate is `1:0`.
 */
export function coalesce(layout: Layout, order: Order): Layout {
  checkKinds('coalesce', { layout: [layout, 'layout'], order: [order, 'string'] });
  if (order === 'lex') return reverse(coalesce(reverse(layout), 'colex'));
  return fromModes(mergeColex(flatModes(layout)));
}

/**
 * Coalesces every top-level mode for itself: the rank stays, and so does the function of one
 * integer for each mode.
 */
export function coalesceModes(layout: Layout, order: Order): Layout {
  checkKinds('coalesceModes', { layout: [layout, 'layout'], order: [order, 'string'] });
  return concat(...layout.modes.map((m) => coalesce(m, order)));
}

/** @internal Flat modes in colex order, merged. */
export function mergeColex(modes: readonly FlatMode[]): FlatMode[] {
  const out: FlatMode[] = [];
  for (const mode of modes) {
    if (mode.size === 1) continue;
    const last = out[out.length - 1];
    if (last?.size !== undefined && mode.stride === last.size * last.stride)
      out[out.length - 1] = { size: last.size * mode.size, stride: last.stride };
    else out.push(mode);
  }
  return out;
}
