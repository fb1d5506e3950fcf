/** Gives the layout of the offsets that a layout leaves out (CuTe's `complement`). */

import { checkKinds } from '../../arguments.ts';
import { ShardwrightError } from '../../errors.ts';
import { mergeColex } from './coalesce.ts';
import type { Order } from './int-tree.ts';
import { type FlatMode, flatModes, fromModes, type Layout, reverse } from './layout.ts';

/**
 * The offsets that A leaves out, as a layout A*: its strides increase (colex; decrease in lex), it
 * shares only offset 0 with A, and (A, A*) reaches every offset below `bound`, rounded up to whole
 * copies. Modes of size 1 or stride 0 count for nothing.
 *
 * @throws E_LAYOUT when modes of A overlap, or a stride below the bound is not a multiple of what
 * the smaller modes span: nothing fills that gap
 */
export function complement(a: Layout, bound: number, order: Order): Layout {
  checkKinds('complement', {
    a: [a, 'layout'],
    bound: [bound, 'number'],
    order: [order, 'string'],
  });
  if (!Number.isSafeInteger(bound) || bound < 1)
    throw new ShardwrightError(
      'E_LAYOUT',
      `the complement of ${a.text} is asked up to ${bound}, expected at least 1`,
    );
  if (order === 'lex') return reverse(complementColex(reverse(a), bound, a));
  return complementColex(a, bound, a);
}

/** @param shown the layout as the caller gave it, for errors */
function complementColex(a: Layout, bound: number, shown: Layout): Layout {
  const out: FlatMode[] = [];
  let span = 1;
  for (const mode of sortedModes(a)) {
    if (mode.stride < span)
      throw new ShardwrightError(
        'E_LAYOUT',
        `${shown.text} has no complement: mode ${mode.size}:${mode.stride} overlaps the ` +
          `modes below it, which span ${span}`,
      );
    const copies = Math.floor(mode.stride / span);
    // Whole copies of what lies below end before this mode starts: nothing can fill the rest.
    if (copies * span !== mode.stride && bound > copies * span)
      throw new ShardwrightError(
        'E_LAYOUT',
        `${shown.text} has no complement up to ${bound}: stride ${mode.stride} is not a ` +
          `multiple of ${span}, what the modes below it span`,
      );
    out.push({ size: copies, stride: span });
    span = mode.size * mode.stride;
  }
  out.push({ size: Math.ceil(bound / span), stride: span });
  return fromModes(mergeColex(out));
}

/** @internal Modes that move, by increasing stride, then size. */
function sortedModes(a: Layout): FlatMode[] {
  return flatModes(a)
    .filter((m) => m.size > 1 && m.stride > 0)
    .sort((x, y) => x.stride - y.stride || x.size - y.size);
}
