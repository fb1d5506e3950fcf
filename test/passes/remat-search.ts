import { ShardwrightError } from '../../src/errors.ts';
import type { RematGraph } from '../../src/passes/checkpoint/checkmate.ts';

/**
 * Judges of rematerialisation: an exact search over what is in memory, for graphs of few nodes, and
 * the graph of the spec's table.
 */

/** Most nodes of the search: one bit each. */
const SEARCH_NODES = 24;

/**
 * Least total time of evaluations that end in the last node, when a node's result and everything it
 * needs must be in memory while it runs and memory never holds more than the limit. Undefined when
 * no order fits.
 *
 * @throws E_LIMIT for more than 24 nodes
 */
export function leastEvaluations(graph: RematGraph, limitBytes: number): number | undefined {
  const { nodes } = graph;
  const n = nodes.length;
  if (n > SEARCH_NODES)
    throw new ShardwrightError(
      'E_LIMIT',
      `the search takes ${SEARCH_NODES} nodes at most, not ${n}`,
    );
  const needs = nodes.map((v) => v.needs.reduce((mask, i) => mask | (1 << i), 0));
  const bytes = new Float64Array(1 << n);
  for (let mask = 1; mask < 1 << n; mask++) {
    const low = 31 - Math.clz32(mask & -mask);
    bytes[mask] = bytes[mask & (mask - 1)] + nodes[low].bytes;
  }
  const goal = 1 << (n - 1);
  const best = new Float64Array(1 << n).fill(Infinity);
  best[0] = 0;
  // Dijkstra with one bucket a distinct time: evaluations rise, so a sorted frontier is enough.
  let frontier: number[] = [0];
  const waiting = new Map<number, number[]>();
  for (let time = 0; ;) {
    for (let q = 0; q < frontier.length; q++) {
      const mask = frontier[q];
      if (best[mask] !== time) continue;
      if ((mask & goal) !== 0) return time;
      for (let v = 0; v < n; v++) {
        if ((mask & (1 << v)) !== 0 || (needs[v] & ~mask) !== 0) continue;
        const spare = mask & ~needs[v];
        // Anything that the node does not need may be dropped before it runs.
        for (let keep = spare; ; keep = (keep - 1) & spare) {
          const after = keep | needs[v] | (1 << v);
          const then = time + nodes[v].seconds;
          if (bytes[after] <= limitBytes && then < best[after]) {
            best[after] = then;
            if (nodes[v].seconds === 0) frontier.push(after);
            else {
              const list = waiting.get(then);
              if (list === undefined) waiting.set(then, [after]);
              else list.push(after);
            }
          }
          if (keep === 0) break;
        }
      }
    }
    if (waiting.size === 0) return undefined;
    time = Math.min(...waiting.keys());
    frontier = waiting.get(time) ?? [];
    waiting.delete(time);
  }
}

/**
 * The chain with a mirrored backward pass: node k needs k - 1, node 2n - i needs node i for i < n.
 * Unit bytes and seconds.
 */
export function mirroredChain(n: number): RematGraph {
  const nodes = Array.from({ length: 2 * n + 1 }, (_, k) => ({
    bytes: 1,
    seconds: 1,
    needs: [...(k > n && 2 * n - k < k - 1 ? [2 * n - k] : []), ...(k > 0 ? [k - 1] : [])],
  }));
  return { nodes };
}
