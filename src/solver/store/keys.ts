/**
 * Memo keys without strings: a sequence of small integers is interned in one flat array and named
 * by a number.
 */
export class KeyTable {
  // Small at first: a problem of a few variables has a few keys in each of several tables.
  private slots = new Int32Array(64).fill(-1);
  private hashes = new Int32Array(32);
  private starts = new Int32Array(33);
  private words = new Int32Array(256);
  private size = 0;
  private readonly key: number[] = [];

  /** Starts a new key. */
  begin(): this {
    this.key.length = 0;
    return this;
  }

  /** Appends an integer to the key. */
  add(word: number): this {
    this.key.push(word | 0);
    return this;
  }

  /** Number of distinct keys so far: `end()` returns this value exactly for a new key. */
  get count(): number {
    return this.size;
  }

  /** Name of the key: its number in order of first appearance. */
  end(): number {
    const key = this.key;
    let h = key.length;
    for (const w of key) {
      h = Math.imul(h ^ w, 0x9e3779b1);
      h ^= h >>> 15;
    }
    const mask = this.slots.length - 1;
    for (let at = h & mask; ; at = (at + 1) & mask) {
      const id = this.slots[at];
      if (id < 0) return this.insert(at, h);
      if (this.hashes[id] === h && this.same(id)) return id;
    }
  }

  private same(id: number): boolean {
    const start = this.starts[id];
    const key = this.key;
    if (this.starts[id + 1] - start !== key.length) return false;
    for (let k = 0; k < key.length; k++) if (this.words[start + k] !== key[k]) return false;
    return true;
  }

  private insert(at: number, h: number): number {
    const id = this.size++;
    if (id === this.hashes.length) {
      this.hashes = grown(this.hashes, 2 * id);
      this.starts = grown(this.starts, 2 * id + 1);
    }
    const start = this.starts[id];
    const end = start + this.key.length;
    if (end > this.words.length) this.words = grown(this.words, 2 * end);
    this.words.set(this.key, start);
    this.hashes[id] = h;
    this.starts[id + 1] = end;
    this.slots[at] = id;
    if (2 * this.size > this.slots.length) this.rehash();
    return id;
  }

  private rehash(): void {
    const slots = new Int32Array(this.slots.length * 2).fill(-1);
    const mask = slots.length - 1;
    for (let id = 0; id < this.size; id++) {
      let at = this.hashes[id] & mask;
      while (slots[at] >= 0) at = (at + 1) & mask;
      slots[at] = id;
    }
    this.slots = slots;
  }
}

function grown(array: Int32Array, length: number): Int32Array<ArrayBuffer> {
  const out = new Int32Array(length);
  out.set(array);
  return out;
}
