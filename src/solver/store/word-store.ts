/** Stores integer arrays once by content, and names each by a small integer. */

/** Multiplier of the hashes. */
export const GOLDEN = 0x9e3779b1 | 0;

/** Hash of the bits of an array, order-sensitive; callers compare content on equal hashes. */
function hashWords(words: Int32Array, seed: number): number {
  let h = seed ^ words.length;
  for (let i = 0; i < words.length; i++) {
    h = Math.imul(h ^ words[i], GOLDEN);
    h ^= h >>> 15;
  }
  return h;
}

function sameWords(a: Int32Array, b: Int32Array): boolean {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}

/** The bits of an array. */
export function wordsOf(v: Float64Array): Int32Array {
  return new Int32Array(v.buffer, v.byteOffset, v.length * 2);
}

/** One content-addressed store of integer arrays. */
export class Store {
  private readonly byHash = new Map<number, number[]>();
  private readonly words: Int32Array[] = [];

  /** Id of the content, and whether it was new. */
  add(words: Int32Array, seed = 0): number {
    const h = hashWords(words, seed);
    const bucket = this.byHash.get(h);
    if (bucket !== undefined) {
      for (const id of bucket) if (sameWords(this.words[id], words)) return id;
      bucket.push(this.words.length);
    } else {
      this.byHash.set(h, [this.words.length]);
    }
    this.words.push(words);
    return this.words.length - 1;
  }

  get count(): number {
    return this.words.length;
  }
}
