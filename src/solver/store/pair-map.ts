/**
 * A map from pairs of small non-negative integers to integers, by open addressing in flat arrays: a
 * look-up allocates nothing and costs a fraction of a `Map` with combined float keys.
 */
export class PairMap {
  private slots = new Int32Array(3 * 256).fill(-1);
  private mask = 255;
  private count = 0;

  /** The value of the pair, or -1. */
  get(a: number, b: number): number {
    const slots = this.slots;
    const mask = this.mask;
    for (let at = hash(a, b) & mask; ; at = (at + 1) & mask) {
      const p = 3 * at;
      if (slots[p] < 0) return -1;
      if (slots[p] === a && slots[p + 1] === b) return slots[p + 2];
    }
  }

  /** Adds a pair that is not there yet. */
  set(a: number, b: number, value: number): void {
    if (2 * ++this.count > this.mask) this.grow();
    place(this.slots, this.mask, a, b, value);
  }

  private grow(): void {
    const old = this.slots;
    this.mask = 2 * this.mask + 1;
    this.slots = new Int32Array(3 * (this.mask + 1)).fill(-1);
    for (let p = 0; p < old.length; p += 3) {
      if (old[p] >= 0) place(this.slots, this.mask, old[p], old[p + 1], old[p + 2]);
    }
  }
}

function hash(a: number, b: number): number {
  const h = Math.imul(Math.imul(a, 0x9e3779b1) ^ b, 0x85ebca6b);
  return h ^ (h >>> 15);
}

function place(slots: Int32Array, mask: number, a: number, b: number, value: number): void {
  let at = hash(a, b) & mask;
  while (slots[3 * at] >= 0) at = (at + 1) & mask;
  slots[3 * at] = a;
  slots[3 * at + 1] = b;
  slots[3 * at + 2] = value;
}
