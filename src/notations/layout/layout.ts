/** The layout `shape : stride` of CuTe: a function from coordinates to offsets. */

import { checkKinds } from '../../arguments.ts';
import { ShardwrightError } from '../../errors.ts';
import {
  checkTree,
  flatTree,
  type IntTree,
  isTuple,
  leaves,
  type Order,
  reverseTree,
  sameNesting,
  sameTree,
  treeDepth,
  treeModes,
  treeProduct,
  treeRank,
  treeText,
  withNesting,
} from './int-tree.ts';

/**
 * A layout `shape : stride`, two trees of integers with the same nesting: the function from
 * coordinates to offsets that takes the dot product with the strides. A mode may be a tree that one
 * integer addresses; how that integer is unfolded inside the tree (the order) is an argument of
 * every function that needs it. Definitions: NVIDIA CuTe, layout algebra.
 */
export class Layout {
  /**
   * @param shape sizes, each at least 1
   * @param stride offsets of one step, each at least 0
   * @throws E_LAYOUT when the trees differ in nesting, or size or largest offset is above 2^53 - 1
   */
  constructor(
    readonly shape: IntTree,
    readonly stride: IntTree,
  ) {
    checkKinds('Layout', {
      shape: [shape, 'number', 'list'],
      stride: [stride, 'number', 'list'],
    });
    checkTree(shape, 'shape', 1);
    checkTree(stride, 'stride', 0);
    if (!sameNesting(shape, stride))
      throw new ShardwrightError(
        'E_LAYOUT',
        `shape ${treeText(shape)} and stride ${treeText(stride)} are nested differently`,
        { hint: 'give one stride for each size, in the same brackets' },
      );
    treeProduct(shape);
    if (!Number.isSafeInteger(this.cosize))
      throw new ShardwrightError(
        'E_LAYOUT',
        `the largest offset of ${this.text} is above 2^53 - 1`,
      );
  }

  /** Number of coordinates. */
  get size(): number {
    return treeProduct(this.shape);
  }
  /** Largest offset + 1. */
  get cosize(): number {
    let last = 0;
    for (const { size, stride } of flatModes(this)) last += (size - 1) * stride;
    return last + 1;
  }
  /** Number of top-level modes; an integer shape has one. */
  get rank(): number {
    return treeRank(this.shape);
  }
  /** Nesting: 0 for `4:1`, 1 for `(2,2):(1,2)`. */
  get depth(): number {
    return treeDepth(this.shape);
  }
  /** Top-level modes as layouts. */
  get modes(): Layout[] {
    const strides = treeModes(this.stride);
    return treeModes(this.shape).map((s, i) => new Layout(s, strides[i]));
  }
  /** `((2,2),3):((24,2),8)`; what `parseLayout` reads. */
  get text(): string {
    return `${treeText(this.shape)}:${treeText(this.stride)}`;
  }
  toString(): string {
    return this.text;
  }
  /** Same trees; two layouts may be one function without being equal. */
  equals(other: Layout): boolean {
    return sameTree(this.shape, other.shape) && sameTree(this.stride, other.stride);
  }
}

/** One size with its stride. */
export interface FlatMode {
  readonly size: number;
  readonly stride: number;
}

/** All sizes with their strides, from left to right, without nesting. */
export function flatModes(layout: {
  readonly shape: IntTree;
  readonly stride: IntTree;
}): FlatMode[] {
  const strides = leaves(layout.stride);
  return leaves(layout.shape).map((size, i) => ({ size, stride: strides[i] }));
}

/** A layout of depth at most 1 from a list of modes; no modes at all are `1:0`. */
export function fromModes(modes: readonly FlatMode[]): Layout {
  if (modes.length === 0) return new Layout(1, 0);
  return new Layout(flatTree(modes.map((m) => m.size)), flatTree(modes.map((m) => m.stride)));
}

/** A layout whose top-level modes are the given layouts: `(A, B)`. */
export function concat(...parts: readonly Layout[]): Layout {
  return new Layout(
    parts.map((p) => p.shape),
    parts.map((p) => p.stride),
  );
}

/** The same function without nesting: `((2,2),3):((24,2),8)` becomes `(2,2,3):(24,2,8)`. */
export function flatten(layout: Layout): Layout {
  return fromModes(flatModes(layout));
}

/** The mirror image: `lex f(args) = reverse(colex f(reverse args))`. */
export function reverse(layout: Layout): Layout {
  return new Layout(reverseTree(layout.shape), reverseTree(layout.stride));
}

/**
 * The layout of a shape whose offsets are 0, 1, 2 ... in the given order: CuTe's LayoutLeft
 * (`colex`, prefix products) or LayoutRight (`lex`, suffix products), over the leaves.
 */
export function compact(shape: IntTree, order: Order): Layout {
  checkKinds('compact', { shape: [shape, 'number', 'list'], order: [order, 'string'] });
  checkTree(shape, 'shape', 1);
  const sizes = leaves(shape);
  const strides = new Array<number>(sizes.length);
  let step = 1;
  for (let k = 0; k < sizes.length; k++) {
    const i = order === 'colex' ? k : sizes.length - 1 - k;
    strides[i] = step;
    step *= sizes[i];
  }
  return new Layout(shape, withNesting(strides, shape));
}

/**
 * `compatible(A, B)`: the sizes are equal and every coordinate of A is one of B, so that B refines
 * A. `24` is compatible with `(4,6)`, `(4,6)` with `((2,2),6)`; `(24)` is not with `24`.
 */
export function compatible(a: IntTree, b: IntTree): boolean {
  checkKinds('compatible', { a: [a, 'number', 'list'], b: [b, 'number', 'list'] });
  if (!isTuple(a)) return a === treeProduct(b);
  return isTuple(b) && a.length === b.length && a.every((t, i) => compatible(t, b[i]));
}
