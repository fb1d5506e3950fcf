/**
 * Shortest paths in a compressed graph whose prices stand behind slots, all rows wanted sooner or later. Typed arrays only.
 *
 * Dijkstra with one addition: a settled state whose own row is known is not expanded; its row is added to the distance
 * instead, and states reached that way need no expansion either, because what lies behind them is in the row too. After the
 * first few sources a search is little more than the merge of the rows of the neighbours.
 */
export class PathFinder {
  private readonly heap: Int32Array;
  /** Place of a state in the heap; -1 not in it. */
  private readonly place: Int32Array;
  /** Key under which a state is in the heap. */
  private readonly heapKey: Float64Array;
  /** 1 where the distance was found through a known row. */
  private readonly covered: Uint8Array;

  constructor(
    private readonly edgeStart: Int32Array,
    private readonly edgeTarget: Int32Array,
    private readonly edgeSlot: Int32Array,
  ) {
    const n = edgeStart.length - 1;
    this.heap = new Int32Array(n);
    this.place = new Int32Array(n);
    this.heapKey = new Float64Array(n);
    this.covered = new Uint8Array(n);
  }

  /**
   * Least price to every state.
   *
   * @param prices of the slots, at least 0; Infinity bars an edge. Sums must be exact (see `quantized`) if rows are not to
   *   depend on which others are known.
   * @param rows distances found before under the same prices, by source
   */
  from(source: number, prices: Float64Array, rows: readonly (Float64Array | undefined)[]): Float64Array {
    const { heap, place, heapKey, covered, edgeStart, edgeTarget, edgeSlot } = this;
    const n = place.length;
    const dist = new Float64Array(n).fill(Infinity);
    place.fill(-1);
    covered.fill(0);
    dist[source] = 0;
    heapKey[source] = 0;
    heap[0] = source;
    place[source] = 0;
    let size = 1;
    while (size > 0) {
      const u = heap[0];
      place[u] = -1;
      const last = heap[--size];
      if (size > 0) {
        // Sift the last state down from the root.
        const key = heapKey[last];
        let i = 0;
        for (;;) {
          let child = 2 * i + 1;
          if (child >= size) break;
          if (child + 1 < size && heapKey[heap[child + 1]] < heapKey[heap[child]]) child++;
          if (heapKey[heap[child]] >= key) break;
          heap[i] = heap[child];
          place[heap[i]] = i;
          i = child;
        }
        heap[i] = last;
        place[last] = i;
      }
      if (covered[u] === 1) continue;
      const base = dist[u];
      const row = rows[u];
      if (row !== undefined) {
        for (let v = 0; v < n; v++) {
          const d = base + row[v];
          if (d <= dist[v]) {
            dist[v] = d;
            covered[v] = 1;
          }
        }
        continue;
      }
      const end = edgeStart[u + 1];
      for (let e = edgeStart[u]; e < end; e++) {
        const v = edgeTarget[e];
        const d = base + prices[edgeSlot[e]];
        if (d >= dist[v]) continue;
        dist[v] = d;
        heapKey[v] = d;
        covered[v] = 0;
        let i = place[v];
        if (i < 0) i = size++;
        while (i > 0) {
          const parent = (i - 1) >> 1;
          const w = heap[parent];
          if (heapKey[w] <= d) break;
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

const QUANTUM = 2 ** -52;

/**
 * Seconds rounded to a multiple of 2^-52 s (0.2 fs). Sums of such numbers are exact below two seconds, so that the price of
 * a path does not depend on the order of adding and the triangle inequality holds to the last bit.
 */
export function quantized(seconds: number): number {
  return seconds < 1 ? Math.round(seconds / QUANTUM) * QUANTUM : seconds;
}
