/**
 * Computes SHA-256, MD5 and CRC-32 of UTF-8 text or bytes in plain JavaScript, for a page: the
 * page's own hashes give promises, and the planner's callers do not wait. Source: FIPS 180-4, RFC
 * 1321, RFC 1952 §8.
 */

/**
 * The first 32 bits of the fraction of the `power`-th root of the first `count` primes: the
 * constants of SHA-256.
 */
function rootsOfPrimes(count: number, power: number): Uint32Array {
  const primes: number[] = [];
  for (let n = 2; primes.length < count; n++) if (primes.every((p) => n % p !== 0)) primes.push(n);
  return Uint32Array.from(primes, (p) => fraction(p, power));
}

/**
 * floor(frac(p^(1/power)) * 2^32), in integers so that no rounding of the machine's roots can show.
 */
function fraction(p: number, power: number): number {
  const target = BigInt(p) << BigInt(32 * power);
  let [low, high] = [0n, BigInt(p) << 32n];
  while (high - low > 1n) {
    const middle = (low + high) >> 1n;
    if (middle ** BigInt(power) <= target) low = middle;
    else high = middle;
  }
  return Number(low & 0xffffffffn);
}

const ROUNDS = rootsOfPrimes(64, 3);
const START = rootsOfPrimes(8, 2);

/** Text in UTF-8, a one bit, zeros, and its length in bits: whole blocks of 64 bytes. */
function padded(text: string, littleEndian: boolean): DataView {
  const bytes = new TextEncoder().encode(text);
  const whole = new Uint8Array((Math.floor((bytes.length + 8) / 64) + 1) * 64);
  whole.set(bytes);
  whole[bytes.length] = 0x80;
  const view = new DataView(whole.buffer);
  view.setBigUint64(whole.length - 8, BigInt(bytes.length) * 8n, littleEndian);
  return view;
}

const turned = (x: number, n: number): number => (x >>> n) | (x << (32 - n));

export function sha256(text: string): string {
  const view = padded(text, false);
  const state = START.slice();
  const w = new Uint32Array(64);
  for (let at = 0; at < view.byteLength; at += 64) {
    for (let t = 0; t < 16; t++) w[t] = view.getUint32(at + 4 * t);
    for (let t = 16; t < 64; t++) {
      const [x, y] = [w[t - 15], w[t - 2]];
      const low = turned(x, 7) ^ turned(x, 18) ^ (x >>> 3);
      const high = turned(y, 17) ^ turned(y, 19) ^ (y >>> 10);
      w[t] = (w[t - 16] + low + w[t - 7] + high) | 0;
    }
    let [a, b, c, d, e, f, g, h] = state;
    for (let t = 0; t < 64; t++) {
      const one =
        (h +
          (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) +
          ((e & f) ^ (~e & g)) +
          ROUNDS[t] +
          w[t]) |
        0;
      const two =
        ((turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      [h, g, f, e, d, c, b, a] = [g, f, e, (d + one) | 0, c, b, a, (one + two) | 0];
    }
    [a, b, c, d, e, f, g, h].forEach((value, k) => (state[k] += value));
  }
  return Array.from(state, (word) => word.toString(16).padStart(8, '0')).join('');
}

const TURNS = [7, 12, 17, 22, 5, 9, 14, 20, 4, 11, 16, 23, 6, 10, 15, 21];

export function md5(text: string): string {
  const view = padded(text, true);
  const state = Uint32Array.of(0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476);
  for (let at = 0; at < view.byteLength; at += 64) {
    let [a, b, c, d] = state;
    for (let t = 0; t < 64; t++) {
      const round = t >> 4;
      const mix = [(b & c) | (~b & d), (d & b) | (~d & c), b ^ c ^ d, c ^ (b | ~d)][round];
      const word = [t, 5 * t + 1, 3 * t + 5, 7 * t][round] % 16;
      const sum =
        (a +
          mix +
          Math.floor(Math.abs(Math.sin(t + 1)) * 2 ** 32) +
          view.getUint32(at + 4 * word, true)) |
        0;
      const n = TURNS[4 * round + (t % 4)];
      [a, d, c, b] = [d, c, b, (b + ((sum << n) | (sum >>> (32 - n)))) | 0];
    }
    [a, b, c, d].forEach((value, k) => (state[k] += value));
  }
  const out = new DataView(new ArrayBuffer(16));
  state.forEach((word, k) => out.setUint32(4 * k, word, true));
  return Array.from(new Uint8Array(out.buffer), (byte) => byte.toString(16).padStart(2, '0')).join(
    '',
  );
}

const CRC = Uint32Array.from({ length: 256 }, (_, n) => {
  let c = n;
  for (let k = 0; k < 8; k++) c = c & 1 ? 0xedb88320 ^ (c >>> 1) : c >>> 1;
  return c;
});

/** @param before the checksum of what came before, to go on with it */
export function crc32(bytes: Uint8Array, before = 0): number {
  let c = ~before;
  for (let i = 0; i < bytes.length; i++) c = CRC[(c ^ bytes[i]) & 0xff] ^ (c >>> 8);
  return ~c >>> 0;
}
