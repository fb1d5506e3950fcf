/**
 * Keeps fronts of labels (cost, usage of a row): of all sums of two fronts, or of all of several,
 * at most one label in a class of usage stays, the cheapest, and the label of least usage. Labels
 * have their own usage, not that of their class, so that no error adds up.
 */

/** Labels by ascending usage; every one is cheaper than those before it. */
export interface Front {
  readonly cost: Float64Array;
  readonly usage: Float64Array;
}

/** Sums of two fronts: by label the label of the first, and the usage of the second. */
export interface MergedFront extends Front {
  readonly left: Int32Array;
  readonly part: Float64Array;
}

/** Makes fronts whose usage is at most a capacity. */
export class FrontMerger {
  private readonly capacity: number;
  private readonly scale: number;
  /**
   * Class 0 has the label of least usage, class k + 1 what uses k in `classes` or more of the
   * capacity.
   */
  private readonly cost: Float64Array;
  private readonly usage: Float64Array;
  private readonly left: Int32Array;
  private readonly part: Float64Array;

  constructor(classes: number, capacity: number) {
    this.capacity = capacity;
    this.scale = classes / Math.max(1, capacity);
    this.cost = new Float64Array(classes + 2);
    this.usage = new Float64Array(classes + 2);
    this.left = new Int32Array(classes + 2);
    this.part = new Float64Array(classes + 2);
  }

  /** The front of the sums of a label of each of two fronts. */
  sum(one: Front, two: Front): MergedFront {
    this.cost.fill(Infinity);
    for (let x = 0; x < one.cost.length; x++) {
      for (let y = 0; y < two.cost.length; y++) {
        const usage = one.usage[x] + two.usage[y];
        if (usage > this.capacity) break;
        this.add(one.cost[x] + two.cost[y], usage, x, two.usage[y]);
      }
    }
    return this.front();
  }

  /** The front of the labels of several fronts, each at an extra cost. */
  least(fronts: readonly Front[], extra: (front: number) => number): Front {
    this.cost.fill(Infinity);
    fronts.forEach(({ cost, usage }, k) => {
      const more = extra(k);
      if (more === Infinity) return;
      for (let x = 0; x < cost.length && usage[x] <= this.capacity; x++)
        this.add(cost[x] + more, usage[x], 0, 0);
    });
    return this.front();
  }

  private add(cost: number, usage: number, left: number, part: number): void {
    const isLeast =
      this.cost[0] === Infinity ||
      usage < this.usage[0] ||
      (usage === this.usage[0] && cost < this.cost[0]);
    if (isLeast && cost < Infinity) this.set(0, cost, usage, left, part);
    const k = 1 + Math.floor(usage * this.scale);
    if (cost < this.cost[k]) this.set(k, cost, usage, left, part);
  }

  private set(k: number, cost: number, usage: number, left: number, part: number): void {
    this.cost[k] = cost;
    this.usage[k] = usage;
    this.left[k] = left;
    this.part[k] = part;
  }

  private front(): MergedFront {
    const kept: number[] = [];
    let least = Infinity;
    this.cost.forEach((cost, k) => {
      if (cost >= least) return;
      least = cost;
      kept.push(k);
    });
    const pick = (from: Float64Array): Float64Array => Float64Array.from(kept, (k) => from[k]);
    return {
      cost: pick(this.cost),
      usage: pick(this.usage),
      left: Int32Array.from(kept, (k) => this.left[k]),
      part: pick(this.part),
    };
  }
}
