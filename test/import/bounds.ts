/** Bounds of the damage tests: how many cases, and what a single one may take. */

export const FULL = process.env.SHARDWRIGHT_FULL === '1';

/** Cases a format: 10,000 in the full run. */
export function casesOf(sample: number): number {
  return FULL ? 10_000 : sample;
}

const MOST_SECONDS = 2;
const MOST_BYTES = 2 ** 30;

/** Runs one case; in the full run it may take two seconds and leave a heap of one GiB at the most. */
export function bounded<T>(where: string, run: () => T): T {
  if (!FULL) return run();
  const start = process.hrtime.bigint();
  try {
    return run();
  } finally {
    const seconds = Number(process.hrtime.bigint() - start) / 1e9;
    const bytes = process.memoryUsage().heapUsed;
    if (seconds > MOST_SECONDS || bytes > MOST_BYTES)
      throw new Error(`${where}: ${seconds.toFixed(1)} s, a heap of ${bytes} bytes`);
  }
}
