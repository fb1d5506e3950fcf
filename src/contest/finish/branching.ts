/**
 * From a plan on the reduced model to one on the problem: its variables, values, rows and integer
 * prices.
 */
import type { Presolved } from '../model/presolve.ts';
import { type BranchTree, pricedRows } from './branch-tree.ts';
import type { Branching, BranchingNode } from './close.ts';
import { sourceOf } from './dual-certificate.ts';

const PRICE_SCALE = 2 ** 20;

/** The plan of a tree on `reduced.model`. */
export function branchingOf(reduced: Presolved, tree: BranchTree): Branching {
  const rows = pricedRows(tree);
  const place = new Map(rows.map((row, k) => [row, k]));
  const translate = (node: BranchTree): BranchingNode => {
    if ('prices' in node) {
      const prices = rows.map(() => 0n);
      for (const { row, price } of node.prices)
        prices[place.get(row) ?? 0] = BigInt(Math.round(price * PRICE_SCALE));
      return { prices };
    }
    const { variable, values, parts } = node;
    return {
      variable: reduced.roots[variable],
      values: values.map((a) => reduced.values[variable][a]),
      parts: [translate(parts[0]), translate(parts[1])],
    };
  };
  return { rows: rows.map((t) => sourceOf(reduced.model.sources[t])), root: translate(tree) };
}
