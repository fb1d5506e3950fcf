/**
 * Random numbers by counter: the value at a position depends on seed, stream and position alone, so
 * a part of a random array is drawn without the rest, and any cut of it gives the same numbers. The
 * generator is Philox 4x32 with ten rounds (Salmon et al., "Parallel random numbers: as easy as 1,
 * 2, 3", 2011).
 */
export interface RandomStream {
  /** Non-negative integer below 2^53. */
  readonly seed: number;
  /**
   * Tells the draws of one program apart: a non-negative integer below 2^32, such as the hash of a
   * node's name.
   */
  readonly stream: number;
  /**
   * Position in the whole array of the element at a position of the part in hand; without it they
   * are the same.
   */
  readonly position?: (flat: number) => number;
}

const M0 = 0xd2511f53;
const M1 = 0xcd9e8d57;
const W0 = 0x9e3779b9;
const W1 = 0xbb67ae85;

/** High 32 bits of a product of two unsigned 32-bit integers. */
function high(a: number, b: number): number {
  const ah = a >>> 16;
  const al = a & 0xffff;
  const bh = b >>> 16;
  const bl = b & 0xffff;
  const low = al * bl;
  const middle = ah * bl + (low >>> 16);
  const other = al * bh + (middle % 0x10000);
  return (ah * bh + Math.floor(middle / 0x10000) + Math.floor(other / 0x10000)) >>> 0;
}

/** Four 32-bit words of the counter and two of the key to four random words. */
export function philox(
  counter: readonly [number, number, number, number],
  key: readonly [number, number],
): [number, number, number, number] {
  let [c0, c1, c2, c3] = counter;
  let [k0, k1] = key;
  for (let round = 0; round < 10; round++) {
    const h0 = high(M0, c0);
    const h1 = high(M1, c2);
    const l0 = Math.imul(M0, c0) >>> 0;
    const l1 = Math.imul(M1, c2) >>> 0;
    c0 = (h1 ^ c1 ^ k0) >>> 0;
    c1 = l1;
    c2 = (h0 ^ c3 ^ k1) >>> 0;
    c3 = l0;
    k0 = (k0 + W0) >>> 0;
    k1 = (k1 + W1) >>> 0;
  }
  return [c0, c1, c2, c3];
}

/**
 * Two independent numbers in [0, 1) with 53 random bits each, for the element at a position of the
 * part in hand.
 */
function uniformPair(stream: RandomStream, flat: number): [number, number] {
  const at = stream.position?.(flat) ?? flat;
  const words = philox(
    [at >>> 0, Math.floor(at / 2 ** 32) >>> 0, stream.stream >>> 0, 0],
    [stream.seed >>> 0, Math.floor(stream.seed / 2 ** 32) >>> 0],
  );
  const unit = (a: number, b: number): number => ((a >>> 5) * 2 ** 26 + (b >>> 6)) / 2 ** 53;
  return [unit(words[0], words[1]), unit(words[2], words[3])];
}

export function uniform(stream: RandomStream, flat: number): number {
  return uniformPair(stream, flat)[0];
}

/** Standard normal, by Box and Muller's transform of two uniform numbers. */
export function normal(stream: RandomStream, flat: number): number {
  const [u, v] = uniformPair(stream, flat);
  return Math.sqrt(-2 * Math.log(1 - u)) * Math.cos(2 * Math.PI * v);
}

/** Exponential with rate 1. */
export function exponential(stream: RandomStream, flat: number): number {
  return -Math.log1p(-uniform(stream, flat));
}

/** A stream number from a name (FNV-1a). */
export function streamOf(name: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < name.length; i++) hash = Math.imul(hash ^ name.charCodeAt(i), 0x01000193);
  return hash >>> 0;
}
