/**
 * The order in which a block is eliminated: the variable whose table is smallest goes first; when
 * even that table would be too large, the variable that holds most neighbours together is frozen at
 * its present value. On programs of repeated layers a few per cent of frozen variables leave all
 * others to one exact elimination.
 */

interface Arrangement {
  /** Neighbours of every local variable; used up. */
  readonly near: readonly Set<number>[];
  readonly sizes: Int32Array;
  readonly count: number;
  /** Largest table, in cells. */
  readonly cap: number;
  /** The first so many variables are frozen only when nothing else is left to freeze. */
  readonly spared: number;
  /**
   * Factor on a variable's weight when one is to be frozen; drawn once for every variable. Default
   * 1.
   */
  readonly luck?: () => number;
}

/**
 * Writes the order to `order` and 1 for every frozen variable to `frozen`; returns the length of
 * the order and the work it took, in units that compare with cells of an elimination.
 */
export function arrange(
  job: Arrangement,
  order: Int32Array,
  frozen: Uint8Array,
): { ordered: number; work: number } {
  const arranger = new Arranger(job);
  frozen.fill(0, 0, job.count);
  let ordered = 0;
  while (arranger.left.size > 0) {
    const best = arranger.lightest();
    if (arranger.isTooLarge(best)) frozen[arranger.freezeHeaviest(best)] = 1;
    else {
      arranger.eliminate(best);
      order[ordered++] = best;
    }
  }
  return { ordered, work: arranger.work };
}

class Arranger {
  readonly left = new Set<number>();
  work: number;
  /** Cells of the table that the elimination of each variable makes. */
  private readonly weight: Float64Array;
  /** The weight of each neighbour of a variable when one is to be frozen. */
  private readonly hold: Float64Array;
  private readonly heap: Heap;

  constructor(private readonly job: Arrangement) {
    const { count, luck, spared, sizes } = job;
    this.work = SET_COST * count;
    this.weight = new Float64Array(count);
    this.hold = new Float64Array(count);
    this.heap = new Heap(this.weight);
    for (let v = 0; v < count; v++) {
      this.hold[v] =
        (luck === undefined ? 1 : luck()) * (v < spared ? 1e-9 : 1) * Math.log2(1 + sizes[v]);
      this.left.add(v);
      this.weigh(v);
      this.heap.push(v);
    }
  }

  lightest(): number {
    return this.heap.pop((v) => this.left.has(v));
  }

  isTooLarge(v: number): boolean {
    return this.weight[v] * this.job.sizes[v] > this.job.cap;
  }

  /** Takes out the variable that holds most neighbours together; `waiting` is tried again. */
  freezeHeaviest(waiting: number): number {
    const { near } = this.job;
    this.heap.push(waiting);
    let heaviest = -1;
    let load = -1;
    this.work += this.left.size;
    for (const v of this.left) {
      const own = this.hold[v] * near[v].size;
      if (own > load) {
        load = own;
        heaviest = v;
      }
    }
    this.left.delete(heaviest);
    for (const w of near[heaviest]) {
      near[w].delete(heaviest);
      this.renew(w);
    }
    return heaviest;
  }

  /** Takes out a variable and joins its neighbours. */
  eliminate(v: number): void {
    const { near } = this.job;
    this.left.delete(v);
    const around = [...near[v]];
    this.work += SET_COST * around.length * around.length;
    for (const w of around) near[w].delete(v);
    for (let x = 0; x < around.length; x++) {
      for (let y = x + 1; y < around.length; y++) {
        near[around[x]].add(around[y]);
        near[around[y]].add(around[x]);
      }
    }
    for (const w of around) this.renew(w);
  }

  private renew(v: number): void {
    const old = this.weight[v];
    this.weigh(v);
    if (this.weight[v] !== old) this.heap.push(v);
  }

  private weigh(v: number): void {
    const { near, sizes } = this.job;
    let product = 1;
    for (const w of near[v]) product *= sizes[w];
    this.work += near[v].size;
    this.weight[v] = product;
  }
}

/** Cells of an elimination that take as long as one change of a set. */
const SET_COST = 20;

/**
 * Variables by weight, least first, then by number; entries whose weight has changed since are
 * skipped.
 */
class Heap {
  private readonly weight: Float64Array;
  private readonly items: number[] = [];
  private readonly keys: number[] = [];

  constructor(weight: Float64Array) {
    this.weight = weight;
  }

  push(v: number): void {
    const items = this.items;
    const keys = this.keys;
    const key = this.weight[v];
    let at = items.length;
    items.push(v);
    keys.push(key);
    while (at > 0) {
      const up = (at - 1) >> 1;
      if (keys[up] < key || (keys[up] === key && items[up] <= v)) break;
      keys[at] = keys[up];
      items[at] = items[up];
      at = up;
    }
    keys[at] = key;
    items[at] = v;
  }

  /** Takes out the lightest variable that is alive; there is one. */
  pop(alive: (v: number) => boolean): number {
    for (;;) {
      const v = this.items[0];
      const key = this.keys[0];
      this.drop();
      if (alive(v) && this.weight[v] === key) return v;
    }
  }

  private drop(): void {
    const items = this.items;
    const keys = this.keys;
    const v = items.pop() ?? 0;
    const key = keys.pop() ?? 0;
    const { length } = items;
    if (length === 0) return;
    let at = 0;
    for (;;) {
      let down = 2 * at + 1;
      if (down >= length) break;
      if (
        down + 1 < length &&
        (keys[down + 1] < keys[down] ||
          (keys[down + 1] === keys[down] && items[down + 1] < items[down]))
      )
        down++;
      if (key < keys[down] || (key === keys[down] && v <= items[down])) break;
      keys[at] = keys[down];
      items[at] = items[down];
      at = down;
    }
    keys[at] = key;
    items[at] = v;
  }
}
