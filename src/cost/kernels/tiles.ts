/**
 * Takes the sizes of a matrix product and gives what the empty places in its last wave of tiles
 * cost.
 */

/**
 * Multiprocessors by accelerator (vendors' architecture papers); none for devices whose matrix
 * units work otherwise.
 */
const PROCESSORS: readonly (readonly [RegExp, number])[] = [
  [/^V100/, 80],
  [/^A100/, 108],
  [/^H/, 132],
  [/^(B|GB)/, 148],
];
/** Tiles that matmul libraries choose from, and the share of the best rate that each reaches. */
const TILES: readonly (readonly [number, number, number])[] = [
  [256, 128, 1],
  [128, 256, 1],
  [128, 128, 0.9],
  [64, 128, 0.7],
];

/** The shorter side of the smallest of them. */
export const NARROWEST_TILE = Math.min(...TILES.map(([rows, columns]) => Math.min(rows, columns)));

/** Multiprocessors of an accelerator; undefined where they are not known. */
export function processorsOf(accelerator: string): number | undefined {
  return PROCESSORS.find(([name]) => name.test(accelerator))?.[1];
}

/** Tells whether a product has a tile of the largest size for every multiprocessor. */
export function fillsWave(m: number, n: number, count: number, accelerator: string): boolean {
  const [[rows, columns]] = TILES;
  const tiles = Math.ceil(m / rows) * Math.ceil(n / columns) * Math.max(1, Math.ceil(count));
  return tiles >= (processorsOf(accelerator) ?? 1);
}

/**
 * Time of a matmul on whole waves of tiles over the time without the empty places of the last wave,
 * at least 1. A multiprocessor works on one tile at a time, so 112 tiles on 108 multiprocessors
 * take as long as 216.
 */
export function tailFactor(m: number, n: number, count: number, accelerator: string): number {
  const processors = processorsOf(accelerator);
  if (processors === undefined) return 1;
  const products = Math.max(1, Math.ceil(count));
  let least = Infinity;
  for (const [rows, columns, share] of TILES) {
    const tiles = Math.ceil(m / rows) * Math.ceil(n / columns) * products;
    const places = Math.ceil(tiles / processors) * processors;
    least = Math.min(least, (places * rows * columns) / (m * n * products * share));
  }
  return Math.max(1, least);
}
