/**
 * Finds neighbourhoods of a choice for large neighbourhood search (Shaw, Using constraint
 * programming and local search methods to solve vehicle routing problems, 1998): the variables
 * around the most expensive parts.
 */
import type { Problem } from '../types.ts';

/** Which variables share an edge. */
export class Regions {
  private readonly start: Int32Array;
  private readonly neighbours: Int32Array;

  constructor({ domains, edges: { first, second } }: Problem) {
    this.start = new Int32Array(domains.length + 1);
    for (const ends of [first, second]) for (const v of ends) this.start[v + 1]++;
    for (let v = 0; v < domains.length; v++) this.start[v + 1] += this.start[v];
    const next = this.start.slice();
    this.neighbours = new Int32Array(2 * first.length);
    first.forEach((a, e) => {
      this.neighbours[next[a]++] = second[e];
      this.neighbours[next[second[e]]++] = a;
    });
  }

  /** The variables nearest to some, those included, until there are so many. */
  around(centers: readonly number[], size: number): ReadonlySet<number> {
    const out = new Set(centers);
    for (const v of out) {
      for (let k = this.start[v]; k < this.start[v + 1] && out.size < size; k++)
        out.add(this.neighbours[k]);
      if (out.size >= size) break;
    }
    return out;
  }
}

/** The two ends of each edge that adds to the cost of a choice, the most first. */
export function costliestEdges(
  { edges, tables, maps }: Problem,
  choice: Int32Array,
): (readonly [number, number])[] {
  const at = (map: number, value: number): number => (map < 0 ? value : maps[map][value]);
  const costs = Float64Array.from(edges.first, (a, e) => {
    const { columns, costs } = tables[edges.table[e]];
    return costs[
      at(edges.firstMap[e], choice[a]) * columns + at(edges.secondMap[e], choice[edges.second[e]])
    ];
  });
  return Array.from(costs.keys())
    .filter((e) => costs[e] > 0)
    .sort((d, e) => costs[e] - costs[d] || d - e)
    .map((e) => [edges.first[e], edges.second[e]]);
}
