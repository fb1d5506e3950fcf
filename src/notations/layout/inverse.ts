/** Gives the right inverse and the left inverse of a layout (CuTe). */

import { checkKinds } from '../../arguments.ts';
import { ShardwrightError } from '../../errors.ts';
import { mergeColex } from './coalesce.ts';
import { MAX_OFFSETS, offsets } from './coordinates.ts';
import type { Order } from './int-tree.ts';
import { type FlatMode, flatModes, fromModes, type Layout, reverse } from './layout.ts';

/**
 * R with A(R(i)) = i for i in 0..size(R)-1, on the longest prefix of the integers that a layout can
 * reach (for an injective A; of overlapping modes the longest that continues is taken). `1:0` where
 * A never steps by 1.
 */
export function rightInverse(a: Layout, order: Order): Layout {
  checkKinds('rightInverse', { a: [a, 'layout'], order: [order, 'string'] });
  if (order === 'lex') return reverse(rightInverse(reverse(a), 'colex'));
  const out: FlatMode[] = [];
  let reached = 1;
  // Sorted by stride, the widest first: a mode continues the prefix only if it steps by exactly
  // what was reached.
  const placed = placedModes(a).sort((x, y) => x.stride - y.stride || y.size - x.size);
  for (const mode of placed) {
    if (mode.stride !== reached) continue;
    out.push({ size: mode.size, stride: mode.index });
    reached *= mode.size;
  }
  return fromModes(mergeColex(out));
}

/**
 * L with L(A(i)) = i for every i. Offsets that A leaves out get integers from size(A) on.
 *
 * @throws E_LAYOUT when A is not injective (with two coordinates of one offset), or its inverse is
 *   no layout
 */
export function leftInverse(a: Layout, order: Order): Layout {
  checkKinds('leftInverse', { a: [a, 'layout'], order: [order, 'string'] });
  const refuse = (): never => refuseInverse(a, order);
  return order === 'lex' ? reverse(leftColex(reverse(a), refuse)) : leftColex(a, refuse);
}

function leftColex(a: Layout, refuse: () => never): Layout {
  const modes = placedModes(a).sort((x, y) => x.stride - y.stride);
  const out: FlatMode[] = [];
  let next = a.size;
  let covered = 1;
  modes.forEach(({ size, stride, index }, i) => {
    if (stride < covered || stride % covered !== 0) refuse();
    // The gap between the modes below and this one.
    if (stride > covered) {
      out.push({ size: stride / covered, stride: next });
      next *= stride / covered;
    }
    const above = modes[i + 1]?.stride;
    // A next stride that is not a multiple of this mode's span widens the mode: its extra digits
    // never occur.
    const wide =
      above !== undefined &&
      above % (stride * size) !== 0 &&
      above % stride === 0 &&
      above >= stride * size;
    const span = wide ? above / stride : size;
    out.push({ size: span, stride: index });
    covered = stride * span;
  });
  if (modes.length < flatModes(a).filter((m) => m.size > 1).length) refuse();
  return fromModes(mergeColex(out));
}

/** Modes that move, each with the index step of its digit in A (colex). */
function placedModes(a: Layout): (FlatMode & { index: number })[] {
  let index = 1;
  const out: (FlatMode & { index: number })[] = [];
  for (const mode of flatModes(a)) {
    if (mode.size > 1 && mode.stride > 0) out.push({ ...mode, index });
    index *= mode.size;
  }
  return out;
}

function refuseInverse(a: Layout, order: Order): never {
  const clash = collision(a, order);
  throw new ShardwrightError(
    'E_LAYOUT',
    clash === undefined
      ? `${a.text} has no left inverse that is a layout: its strides do not divide each other`
      : `${a.text} has no left inverse: ${clash}`,
  );
}

/**
 * Two coordinates with one offset, as a phrase; undefined when the layout is injective.
 *
 * @throws E_LIMIT when only a list of all offsets could tell and there are too many
 */
export function collision(a: Layout, order: Order): string | undefined {
  if (plainlyInjective(a)) return undefined;
  if (a.size > MAX_OFFSETS)
    throw new ShardwrightError(
      'E_LIMIT',
      `${a.text} is too large to tell whether two coordinates share an offset`,
    );
  const seen = new Map<number, number>();
  for (const [i, offset] of offsets(a, order).entries()) {
    const before = seen.get(offset);
    if (before !== undefined)
      return `its coordinates ${before} and ${i} (${order}) have one offset, ${offset}`;
    seen.set(offset, i);
  }
  return undefined;
}

/**
 * Tells whether the strides alone show that no two coordinates meet: each is beyond what all
 * smaller ones reach together.
 */
function plainlyInjective(a: Layout): boolean {
  let reach = 0;
  for (const { size, stride } of flatModes(a)
    .filter((m) => m.size > 1)
    .sort((x, y) => x.stride - y.stride)) {
    if (stride <= reach) return false;
    reach += (size - 1) * stride;
  }
  return true;
}
