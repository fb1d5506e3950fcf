/**
 * Chooses among the shortest paths over placement states: the one with the fewest collectives, then
 * the fewest steps, then the smallest step list, so that a plan does not depend on the order of the
 * edges. Reads a state back as a sharding.
 */

import { internalError } from '../../errors.ts';
import type { Placement } from '../../mesh/placements/placement.ts';
import { REPLICATE } from '../../mesh/placements/replicate.ts';
import { isPending, pendingTogether, Sharding } from '../../mesh/sharding/sharding.ts';
import type { ShardingSpace } from '../../mesh/sharding/space.ts';
import { TIE } from './paths.ts';
import { before } from './plan.ts';
import { communicates } from './slots.ts';
import type { StateGraph } from './states.ts';

/** A state graph and the shardings that its states are. */
interface PathSite {
  readonly graph: StateGraph;
  readonly space: ShardingSpace;
  /** Mesh dims of more than one device. */
  readonly active: readonly number[];
}

/**
 * Fewest collectives, fewest steps, smallest step list among the paths of least price: the edges in
 * order.
 */
export function bestPath(
  site: PathSite,
  prices: Float64Array,
  dist: Float64Array,
  {
    source,
    target,
    from,
  }: { readonly source: number; readonly target: number; readonly from: number },
): number[] {
  const { graph } = site;
  const { edgeStart, edgeTarget, edgeSlot } = graph;
  interface Tail {
    readonly collectives: number;
    readonly steps: number;
    readonly text: string;
    readonly edges: readonly number[];
  }
  const memo = new Map<number, Tail | undefined>();
  const tail = (s: number): Tail | undefined => {
    if (s === target) return { collectives: 0, steps: 0, text: '', edges: [] };
    if (memo.has(s)) return memo.get(s);
    memo.set(s, undefined);
    let best: Tail | undefined;
    for (let e = edgeStart[s]; e < edgeStart[s + 1]; e++) {
      const v = edgeTarget[e];
      const reach = dist[s] + prices[edgeSlot[e]];
      if (
        v === s ||
        v === source ||
        !(reach <= dist[v] * (1 + TIE)) ||
        dist[v] > dist[target] * (1 + TIE)
      )
        continue;
      const rest = tail(v);
      if (rest === undefined) continue;
      const dims = graph.dimLists[graph.edgeDims[e]].join(',');
      const next: Tail = {
        collectives: rest.collectives + (communicates(graph.slots[edgeSlot[e]]) ? 1 : 0),
        steps: rest.steps + 1,
        text: `${dims}:${shardingOfState(site, v, from).orderedText};${rest.text}`,
        edges: [e, ...rest.edges],
      };
      if (best === undefined || before(next, best)) best = next;
    }
    memo.set(s, best);
    return best;
  };
  const found = tail(source);
  if (found === undefined)
    throw internalError(`no path among the shortest ones from ${site.space.text(from)}`);
  return [...found.edges];
}

/** The state as a sharding; mesh dims that take no part keep what `like` has there. */
export function shardingOfState(
  { space, active, graph }: PathSite,
  state: number,
  like: number,
): Sharding {
  const old = space.get(like);
  const placements: Placement[] = [...old.placements];
  const orders = new Map<number, number[]>();
  old.placements.forEach((p, m) => {
    if (p.dim !== undefined && !active.includes(m))
      orders.set(p.dim, [...(orders.get(p.dim) ?? []), m]);
  });
  const cut: { dim: number; position: number; m: number }[] = [];
  active.forEach((m, a) => {
    const p = space.placementOf(graph.codeAt(state, a));
    placements[m] = p;
    if (p.dim !== undefined) cut.push({ dim: p.dim, position: graph.positionAt(state, a), m });
  });
  // A reduction on a mesh dim of one device is done already: it gives way to one that is really
  // pending.
  const pending = active.map((m) => placements[m]).find(isPending);
  placements.forEach((p, m) => {
    if (pending !== undefined && isPending(p) && !pendingTogether(p, pending))
      placements[m] = REPLICATE;
  });
  cut.sort((x, y) => x.position - y.position);
  for (const { dim, m } of cut) orders.set(dim, [...(orders.get(dim) ?? []), m]);
  // Mesh dims of one device carry no data: where they sit in an order means nothing, so mesh order
  // is kept if it can be.
  for (const [dim, order] of orders) {
    const real = order.filter((m) => active.includes(m));
    if (real.every((m, i) => i === 0 || real[i - 1] < m))
      orders.set(
        dim,
        order.sort((a, b) => a - b),
      );
  }
  return new Sharding(placements, orders);
}
