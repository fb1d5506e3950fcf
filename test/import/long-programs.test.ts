import { describe, expect, it } from 'vitest';

import { lintGraph } from '../../src/graph/lint.ts';
import { importGraph } from '../../src/import/import.ts';
import { FULL } from '../support/full.ts';
import { LONG_PROGRAMS } from './long-programs.ts';
import { infer } from './twins.ts';

/**
 * The time to read a program grows linearly with its length. CPU seconds of this process are
 * compared with each other and not with a limit; `bench/long-programs.ts` has them for a million
 * nodes.
 */

function secondsOf(text: string): number {
  const before = process.cpuUsage();
  lintGraph(importGraph(text, { infer }), infer);
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1e6;
}

const LONG = FULL ? 8000 : 4000;

describe.each(LONG_PROGRAMS)('$name', ({ write }) => {
  it('is read whole, and eight times as long in far less than the square of that', () => {
    const { nodes, outputs } = importGraph(write(LONG), { infer });
    expect(nodes.length + outputs.length).toBeGreaterThanOrEqual(LONG / 4);
    expect(outputs.length).toBeGreaterThan(0);
    const [short, long] = [secondsOf(write(LONG / 8)), secondsOf(write(LONG))];
    // Linear is 8 and less, as code that was just compiled is slower; a square is 64.
    expect(long).toBeLessThan(24 * short + 0.5);
  });

  it.skipIf(!FULL)(
    'takes at most twice as long a node when it is ten times as long',
    () => {
      secondsOf(write(20_000));
      const [short, long] = [secondsOf(write(40_000)), secondsOf(write(400_000))];
      // The least of the short one is what a call of the clock and the first compilation take.
      expect(long).toBeLessThan(20 * short + 1);
    },
    600_000,
  );
});
