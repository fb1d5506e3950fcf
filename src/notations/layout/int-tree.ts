/** Nested integers, as the shapes, strides and coordinates of layouts have them. */

import { ShardwrightError } from '../../errors.ts';
import { product } from '../../product.ts';

/**
 * A non-negative integer, or a list of such trees: shapes, strides and coordinates of layouts. `()`
 * does not exist.
 */
export type IntTree = number | readonly IntTree[];

/**
 * Which coordinate runs fastest: `colex` the first (CuTe), `lex` the last (PyTorch, device meshes).
 * There is no default.
 */
export type Order = 'lex' | 'colex';

/** Nesting and number of integers that a tree may have; they bound every recursion over trees. */
export const MAX_TREE_DEPTH = 32;
export const MAX_TREE_LEAVES = 4096;

export function isTuple(tree: IntTree): tree is readonly IntTree[] {
  return Array.isArray(tree);
}

/** The integers of a tree, from left to right. */
export function leaves(tree: IntTree): number[] {
  if (!isTuple(tree)) return [tree];
  return tree.flatMap((t) => leaves(t));
}

/** Nesting: 0 for an integer, 1 for a flat list. */
export function treeDepth(tree: IntTree): number {
  return isTuple(tree) ? 1 + Math.max(0, ...tree.map((t) => treeDepth(t))) : 0;
}

/** Number of top-level modes: 1 for an integer. */
export function treeRank(tree: IntTree): number {
  return isTuple(tree) ? tree.length : 1;
}

/** Top-level modes: an integer is its own only mode. */
export function treeModes(tree: IntTree): readonly IntTree[] {
  return isTuple(tree) ? tree : [tree];
}

/** Product of all integers. @throws E_LAYOUT above 2^53 - 1 */
export function treeProduct(tree: IntTree): number {
  const n = product(leaves(tree));
  if (!Number.isSafeInteger(n))
    throw new ShardwrightError('E_LAYOUT', `the product of ${treeText(tree)} is above 2^53 - 1`);
  return n;
}

/** The mirror image, at every level: how `lex` functions are made of `colex` ones. */
export function reverseTree(tree: IntTree): IntTree {
  return isTuple(tree) ? tree.map((t) => reverseTree(t)).reverse() : tree;
}

/** Tells whether two trees have the same nesting. */
export function sameNesting(a: IntTree, b: IntTree): boolean {
  if (!isTuple(a) || !isTuple(b)) return isTuple(a) === isTuple(b);
  return a.length === b.length && a.every((t, i) => sameNesting(t, b[i]));
}

export function sameTree(a: IntTree, b: IntTree): boolean {
  if (!isTuple(a) || !isTuple(b)) return a === b;
  return a.length === b.length && a.every((t, i) => sameTree(t, b[i]));
}

/** The nesting of `like` around a list of its leaves. */
export function withNesting(values: readonly number[], like: IntTree): IntTree {
  let next = 0;
  const build = (tree: IntTree): IntTree =>
    isTuple(tree) ? tree.map((t) => build(t)) : values[next++];
  return build(like);
}

/** One integer alone, several as a flat list. */
export function flatTree(values: readonly number[]): IntTree {
  return values.length === 1 ? values[0] : [...values];
}

/** `((2,2),3)`; what the parser reads. */
export function treeText(tree: IntTree): string {
  return isTuple(tree) ? `(${tree.map((t) => treeText(t)).join(',')})` : String(tree);
}

/**
 * Refuses a tree that is too deep or too large, has an empty list, or an integer that is not a safe
 * one of at least `least`.
 *
 * @throws E_LAYOUT naming the integer
 */
export function checkTree(tree: IntTree, what: string, least: 0 | 1): void {
  let count = 0;
  // A list of work instead of recursion: the depth is not yet known to be small.
  const work: { tree: IntTree; depth: number }[] = [{ tree, depth: 0 }];
  for (let item = work.pop(); item !== undefined; item = work.pop()) {
    if (isTuple(item.tree)) {
      if (item.tree.length === 0)
        throw new ShardwrightError('E_LAYOUT', `the ${what} has an empty list`);
      if (item.depth >= MAX_TREE_DEPTH)
        throw new ShardwrightError(
          'E_LAYOUT',
          `the ${what} is nested deeper than ${MAX_TREE_DEPTH}`,
        );
      for (const t of item.tree) work.push({ tree: t, depth: item.depth + 1 });
    } else {
      if (!Number.isSafeInteger(item.tree) || item.tree < least)
        throw new ShardwrightError(
          'E_LAYOUT',
          `the ${what} holds ${String(item.tree)}, expected an integer of at least ${least}`,
        );
      count++;
    }
    if (count + work.length > MAX_TREE_LEAVES)
      throw new ShardwrightError(
        'E_LAYOUT',
        `the ${what} has more than ${MAX_TREE_LEAVES} integers`,
      );
  }
}
