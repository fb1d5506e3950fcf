/**
 * The order in which messages visit variables. What a variable knows it shares among its later
 * neighbours, so the bound climbs fast where each has few of them: breadth first, as orders of
 * small bandwidth go (E. Cuthill and J. McKee, "Reducing the bandwidth of sparse symmetric
 * matrices", 1969). The order of a program would send all that the forward pass saves for the
 * backward pass ahead of it.
 */
import type { Network } from './network.ts';

/** The place of every variable of a pairwise network, 0 for the first. */
export function sweepPlaces(net: Network): Int32Array {
  const neighbours = neighboursOf(net);
  const place = new Int32Array(net.count).fill(-1);
  const queue: number[] = [];
  const enter = (i: number): void => {
    if (place[i] < 0) place[i] = queue.push(i) - 1;
  };
  for (let i = 0, at = 0; i < net.count; i++) {
    enter(i);
    for (; at < queue.length; at++) neighbours[queue[at]].forEach(enter);
  }
  return place;
}

/**
 * Distinct neighbours of every variable, the last one first, because the backward pass puts its
 * results next to their operands.
 */
function neighboursOf(net: Network): readonly (readonly number[])[] {
  const sets = Array.from({ length: net.count }, () => new Set<number>());
  for (const f of net.factors) {
    if (f === undefined) continue;
    const [i, j] = f.vars;
    sets[i].add(j);
    sets[j].add(i);
  }
  return sets.map((set) => [...set].sort((a, b) => b - a));
}
