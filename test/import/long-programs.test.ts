import { describe, expect, it } from 'vitest';

import { lintGraph } from '../../src/graph/lint.ts';
import type { Graph } from '../../src/graph/types.ts';
import { importGraph } from '../../src/import/import.ts';
import { FULL } from '../support/full.ts';
import { LONG_PROGRAMS } from './long-programs.ts';
import { infer } from './twins.ts';

/**
 * The time to read a program grows linearly with its length. CPU seconds of this process are
 * compared with each other and not with a limit; `bench/long-programs.ts` has them for a million
 * nodes.
 */

function readIn(text: string): { readonly graph: Graph; readonly seconds: number } {
  const before = process.cpuUsage();
  const graph = importGraph(text, { infer });
  lintGraph(graph, infer);
  const { user, system } = process.cpuUsage(before);
  return { graph, seconds: (user + system) / 1e6 };
}

const LONG = FULL ? 8000 : 4000;

describe.each(LONG_PROGRAMS)('$name', ({ write }) => {
  it('is read whole, and eight times as long in far less than the square of that', () => {
    const [short, long] = [readIn(write(LONG / 8)), readIn(write(LONG))];
    const { nodes, outputs } = long.graph;
    expect(nodes.length + outputs.length).toBeGreaterThanOrEqual(LONG / 4);
    expect(outputs.length).toBeGreaterThan(0);
    // Linear is 8 and less, as code that was just compiled is slower; a square is 64.
    expect(long.seconds).toBeLessThan(24 * short.seconds + 0.5);
  });

  it.skipIf(!FULL)(
    'takes at most twice as long a node when it is ten times as long',
    () => {
      readIn(write(20_000));
      const [short, long] = [readIn(write(40_000)), readIn(write(400_000))];
      // The least of the short one is what a call of the clock and the first compilation take.
      expect(long.seconds).toBeLessThan(20 * short.seconds + 1);
    },
    600_000,
  );
});
