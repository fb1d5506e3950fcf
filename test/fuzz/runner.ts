/**
 * What all fuzzers share: a fuzzer is a kind of random example and what must hold of it. Goes in: a
 * seed, and how many examples or how long. Comes out: nothing, or a report with the seed and the
 * example, shrunk.
 */
import vm from 'node:vm';

import fc from 'fast-check';

export interface Fuzzer {
  readonly name: string;
  /**
   * Examples of one turn: what `npm run fuzz` runs between two looks at the clock, and `npm test`
   * half of.
   */
  readonly sample: number;
  /** How often each outcome was seen: where there is one only, nothing was tried. */
  readonly outcomes: Map<string, number>;
  /** The report of the first example that fails; undefined where none does. */
  readonly run: (seed: number, examples: number) => Promise<string | undefined>;
}

/** Shrinking ends here: a report of a failure is worth more than its smallest example. */
const MOST_SHRINKING_MS = 60_000;

export function fuzzer<T>(
  name: string,
  sample: number,
  examples: fc.Arbitrary<T>,
  /** Throws where something does not hold; what it returns names the outcome. */
  check: (example: T) => string | Promise<string>,
): Fuzzer {
  const outcomes = new Map<string, number>();
  return {
    name,
    sample,
    outcomes,
    run: async (seed, numRuns) => {
      let failedAt: number | undefined;
      const watched = fc.asyncProperty(examples, async (example) => {
        // After a failure all that runs is a smaller example.
        if (failedAt !== undefined && Date.now() - failedAt > MOST_SHRINKING_MS) return;
        try {
          const outcome = await check(example);
          outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
        } catch (error) {
          failedAt ??= Date.now();
          throw error;
        }
      });
      const found = await fc.check(watched, { seed, numRuns });
      if (!found.failed) return undefined;
      const { errorInstance: error } = found;
      const why = error instanceof Error ? (error.stack ?? error.message) : String(error);
      return `${name}: ${(await fc.asyncDefaultReportMessage(found)) ?? ''}\n${why}`;
    },
  };
}

const SCRIPT = new vm.Script('run()');

/** Runs synchronous code; throws where it does not come to an end. */
export function ending<T>(milliseconds: number, run: () => T): T {
  let result: { readonly value: T } | undefined;
  SCRIPT.runInNewContext(
    { run: () => void (result = { value: run() }) },
    { timeout: milliseconds },
  );
  if (result === undefined) throw new Error('did not run');
  return result.value;
}
