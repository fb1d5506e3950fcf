/**
 * Finds the spanning forest of a model's variables with the edges of largest weight, in an order in
 * which parents come before their children. Ties go to the edge that comes first. Source: J.
 * Kruskal, "On the shortest spanning subtree of a graph", Proc. AMS 1956.
 */
import type { Model } from '../model/model.ts';

/** A variable, its parent, and the edge between them; both -1 at a root. */
export interface ForestNode {
  readonly variable: number;
  readonly parent: number;
  readonly edge: number;
}

interface SpanningForest {
  readonly order: readonly ForestNode[];
  /** 1 for edges of the forest. */
  readonly onForest: Uint8Array;
}

/** The spanning forest of largest weight. */
export function spanningForest(model: Model, weightOf: (edge: number) => number): SpanningForest {
  const { count, first, second, incident, edge, other } = model;
  const weights = Float64Array.from(first, (_, e) => weightOf(e));
  const edges = Int32Array.from(first.keys()).sort((a, b) =>
    weights[a] === weights[b] ? a - b : weights[b] > weights[a] ? 1 : -1,
  );
  const leader = Int32Array.from({ length: count }, (_, i) => i);
  const leaderOf = (i: number): number => {
    while (leader[i] !== i) i = leader[i] = leader[leader[i]];
    return i;
  };
  const onForest = new Uint8Array(first.length);
  for (const e of edges) {
    const [a, b] = [leaderOf(first[e]), leaderOf(second[e])];
    if (a === b) continue;
    leader[a] = b;
    onForest[e] = 1;
  }
  const order: ForestNode[] = [];
  const seen = new Uint8Array(count);
  for (let root = 0; root < count; root++) {
    if (seen[root] === 1) continue;
    seen[root] = 1;
    const from = order.length;
    order.push({ variable: root, parent: -1, edge: -1 });
    for (let at = from; at < order.length; at++) {
      const { variable: i } = order[at];
      for (let k = incident[i]; k < incident[i + 1]; k++) {
        if (onForest[edge[k]] === 0 || seen[other[k]] === 1) continue;
        seen[other[k]] = 1;
        order.push({ variable: other[k], parent: i, edge: edge[k] });
      }
    }
  }
  return { order, onForest };
}
