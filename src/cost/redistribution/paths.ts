/**
 * Finds the shortest paths from one state of a compressed graph whose prices are behind slots. It
 * uses typed arrays only.
 */
export class PathFinder {
  private readonly heap: Int32Array;
  /** Place of a state in the heap; -1 not in it. */
  private readonly place: Int32Array;

  constructor(
    private readonly edgeStart: Int32Array,
    private readonly edgeTarget: Int32Array,
    private readonly edgeSlot: Int32Array,
  ) {
    const n = edgeStart.length - 1;
    this.heap = new Int32Array(n);
    this.place = new Int32Array(n);
  }

  /**
   * Least price to every state (Dijkstra with an indexed binary heap).
   *
   * @param prices of the slots, at least 0; Infinity bars an edge
   */
  from(source: number, prices: Float64Array): Float64Array {
    const { heap, place, edgeStart, edgeTarget, edgeSlot } = this;
    const dist = new Float64Array(place.length).fill(Infinity);
    place.fill(-1);
    dist[source] = 0;
    heap[0] = source;
    let size = 1;
    while (size > 0) {
      const u = heap[0];
      const last = heap[--size];
      if (size > 0) {
        // Sift the last state down from the root.
        const key = dist[last];
        let i = 0;
        for (;;) {
          let child = 2 * i + 1;
          if (child >= size) break;
          if (child + 1 < size && dist[heap[child + 1]] < dist[heap[child]]) child++;
          const w = heap[child];
          if (dist[w] >= key) break;
          heap[i] = w;
          place[w] = i;
          i = child;
        }
        heap[i] = last;
        place[last] = i;
      }
      const base = dist[u];
      const end = edgeStart[u + 1];
      for (let e = edgeStart[u]; e < end; e++) {
        const v = edgeTarget[e];
        const d = base + prices[edgeSlot[e]];
        // A settled state is never improved, so no mark of it is needed.
        if (d >= dist[v]) continue;
        dist[v] = d;
        let i = place[v];
        if (i < 0) i = size++;
        while (i > 0) {
          const parent = (i - 1) >> 1;
          const w = heap[parent];
          if (dist[w] <= d) break;
          heap[i] = w;
          place[w] = i;
          i = parent;
        }
        heap[i] = v;
        place[v] = i;
      }
    }
    return dist;
  }
}

/**
 * The composition of the paths of least price: for every state, the least sum of each part along
 * any of them. Where several paths cost the same each part is that of the path with the least of
 * it, so that the parts together never exceed a path.
 *
 * @param source where the paths begin; others may be as near as it, by steps without a price
 * @param dist prices as `PathFinder.from` gives them
 * @param parts of the prices of the slots
 */
export function partsAlong(
  graph: {
    readonly edgeStart: Int32Array;
    readonly edgeTarget: Int32Array;
    readonly edgeSlot: Int32Array;
  },
  source: number,
  dist: Float64Array,
  prices: Float64Array,
  parts: readonly Float64Array[],
): Float64Array[] {
  const { edgeStart, edgeTarget, edgeSlot } = graph;
  const sums = parts.map(() => new Float64Array(dist.length).fill(Infinity));
  const order = new Int32Array(dist.length);
  for (let state = 0; state < order.length; state++) order[state] = state;
  order.sort((a, b) => (dist[a] < dist[b] ? -1 : dist[a] > dist[b] ? 1 : a - b));
  const place = new Int32Array(dist.length);
  for (let at = 0; at < order.length; at++) place[order[at]] = at;
  for (const sum of sums) sum[source] = 0;
  // One pass is enough unless there are steps without a price, whose two ends may be in any order.
  for (let again = true; again;) {
    again = false;
    for (let at = 0; at < order.length && dist[order[at]] !== Infinity; at++) {
      const u = order[at];
      for (let e = edgeStart[u]; e < edgeStart[u + 1]; e++) {
        const v = edgeTarget[e];
        // Paths that cost the same to a billionth are equal to the planner of redistributions.
        if (!(dist[u] + prices[edgeSlot[e]] <= dist[v] * (1 + TIE))) continue;
        for (let k = 0; k < sums.length; k++) {
          const sum = sums[k][u] + parts[k][edgeSlot[e]];
          if (sum >= sums[k][v]) continue;
          sums[k][v] = sum;
          if (place[v] < place[u]) again = true;
        }
      }
    }
  }
  return sums;
}

/** Paths whose prices differ by this share are equal. */
export const TIE = 1e-9;

const QUANTUM = 2 ** -52;

/**
 * Seconds rounded to a multiple of 2^-52 s (0.2 fs). Sums of such numbers are exact below two
 * seconds, so that the price of a path does not depend on the order of adding, equal plans have
 * equal prices, and the triangle inequality holds to the last bit.
 */
export function quantizedSeconds(seconds: number): number {
  return seconds < 1 ? Math.round(seconds / QUANTUM) * QUANTUM : seconds;
}
