/** Maps indices, coordinates and offsets of a layout to each other. */

import { checkKinds } from '../../arguments.ts';
import { ShardwrightError } from '../../errors.ts';
import {
  type IntTree,
  isTuple,
  leaves,
  type Order,
  treeProduct,
  treeText,
  withNesting,
} from './int-tree.ts';
import { flatModes, type Layout } from './layout.ts';

/** Coordinates that a list of offsets may have. */
export const MAX_OFFSETS = 1 << 20;

/**
 * The natural coordinate (nested as the shape) of an index.
 *
 * @throws E_LAYOUT when the index is not in 0..size-1
 */
export function idx2crd(index: number, shape: IntTree, order: Order): IntTree {
  checkKinds('idx2crd', {
    index: [index, 'number'],
    shape: [shape, 'number', 'trees'],
    order: [order, 'string'],
  });
  const size = treeProduct(shape);
  if (!Number.isSafeInteger(index) || index < 0 || index >= size)
    throw new ShardwrightError(
      'E_LAYOUT',
      `index ${index} is outside 0..${size - 1} of shape ${treeText(shape)}`,
    );
  return withNesting(digits(index, leaves(shape), order), shape);
}

/**
 * The index of a coordinate. The coordinate may be coarser than the shape: an integer where the
 * shape has a tree.
 *
 * @throws E_LAYOUT when the coordinate does not fit the shape or is outside of it
 */
export function crd2idx(coordinate: IntTree, shape: IntTree, order: Order): number {
  checkKinds('crd2idx', {
    coordinate: [coordinate, 'number', 'trees'],
    shape: [shape, 'number', 'trees'],
    order: [order, 'string'],
  });
  return foldDigits(leaves(natural(coordinate, shape, order)), leaves(shape), order);
}

/** The coordinate with every integer that addresses a tree unfolded inside it. */
function natural(coordinate: IntTree, shape: IntTree, order: Order): IntTree {
  if (!isTuple(coordinate)) return idx2crd(coordinate, shape, order);
  const modes = isTuple(shape) ? shape : undefined;
  if (modes?.length !== coordinate.length)
    throw new ShardwrightError(
      'E_LAYOUT',
      `coordinate ${treeText(coordinate)} does not fit shape ${treeText(shape)}: it has ` +
        `${coordinate.length} parts`,
    );
  return coordinate.map((c, i) => natural(c, modes[i], order));
}

/** Offset of a coordinate: an integer, or a tree as deep as the caller likes. */
export function offsetAt(layout: Layout, coordinate: IntTree, order: Order): number {
  checkKinds('offsetAt', {
    layout: [layout, 'layout'],
    coordinate: [coordinate, 'number', 'trees'],
    order: [order, 'string'],
  });
  const at = leaves(natural(coordinate, layout.shape, order));
  return leaves(layout.stride).reduce((sum, stride, i) => sum + stride * at[i], 0);
}

/**
 * Offsets of all coordinates in index order: the layout as a function of one integer.
 *
 * @throws E_LIMIT above `MAX_OFFSETS` coordinates
 */
export function offsets(layout: Layout, order: Order): number[] {
  checkKinds('layoutOffsets', { layout: [layout, 'layout'], order: [order, 'string'] });
  const { size } = layout;
  if (size > MAX_OFFSETS)
    throw new ShardwrightError(
      'E_LIMIT',
      `${layout.text} has ${size} coordinates, more than ${MAX_OFFSETS} to list`,
    );
  const modes = flatModes(layout);
  if (order === 'lex') modes.reverse();
  let out = [0];
  for (const mode of modes) {
    const next = new Array<number>(out.length * mode.size);
    for (let c = 0; c < mode.size; c++)
      for (let i = 0; i < out.length; i++) next[c * out.length + i] = out[i] + c * mode.stride;
    out = next;
  }
  return out;
}

function digits(index: number, sizes: readonly number[], order: Order): number[] {
  const out = new Array<number>(sizes.length);
  let rest = index;
  for (let k = 0; k < sizes.length; k++) {
    const i = order === 'colex' ? k : sizes.length - 1 - k;
    out[i] = rest % sizes[i];
    rest = Math.floor(rest / sizes[i]);
  }
  return out;
}

function foldDigits(at: readonly number[], sizes: readonly number[], order: Order): number {
  let index = 0;
  let step = 1;
  for (let k = 0; k < sizes.length; k++) {
    const i = order === 'colex' ? k : sizes.length - 1 - k;
    index += at[i] * step;
    step *= sizes[i];
  }
  return index;
}
