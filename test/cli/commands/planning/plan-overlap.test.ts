import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { describe, expect, it } from 'vitest';

import { readPlan } from '../../../../src/plan/record/schema.ts';
import { FULL } from '../../../support/full.ts';
import { cli, fixture } from '../../support.ts';

const BLOCK = fileURLToPath(new URL('../../../fixtures/peers/block-2048.txt.gz', import.meta.url));
/**
 * A 64th of the states of the block and a little: the last weight may be cut by one mesh dim only.
 */
const BUDGET = Math.floor((((4 * 6144 * 6144 + 2 * 6144 * 24576) * 16) / 64) * 1.0001);
const ON_2D = [
  '--mesh',
  'x=32,y=8',
  '--inputs',
  'S(0)R',
  '--outputs',
  'S(0)R',
  '--memory',
  `${BUDGET}B`,
  '--activations',
  'report',
];
/** Prices by formulas, with which overlap changes the plan. */
const FORMULAS = ['--cost', 'alpha-beta'];
const ASK = ['--cluster', 'dgx-h100', '--no-recipes', '--quiet'];

interface Printed {
  readonly changed: boolean;
  readonly simulatedSeconds: number;
  readonly baseSimulatedSeconds: number;
  readonly boundSeconds: number;
  readonly gap: number;
  readonly serialSeconds: number;
  readonly baseSerialSeconds: number;
  readonly rounds: number;
}

describe('plan --overlap', () => {
  it.runIf(FULL)(
    'takes the plan that is faster when simulated, says what it gives away, and writes it',
    async () => {
      const folder = mkdtempSync(join(tmpdir(), 'shardwright-'));
      try {
        const serial = await cli('plan', BLOCK, ...ON_2D, ...ASK, ...FORMULAS, '--json');
        const run = await cli(
          'plan',
          BLOCK,
          ...ON_2D,
          ...ASK,
          ...FORMULAS,
          '--json',
          '--overlap',
          '-o',
          folder,
        );
        expect(run.code, run.err).toBe(0);
        const { overlap } = JSON.parse(run.out) as { overlap: Printed };
        const [before, after] = [
          readPlan(serial.out),
          readPlan(readFileSync(join(folder, 'plan.json'), 'utf8')),
        ];
        expect(overlap.changed).toBe(true);
        expect(overlap.simulatedSeconds).toBeLessThan(overlap.baseSimulatedSeconds);
        expect(after.objective.seconds).toBeCloseTo(overlap.serialSeconds, 9);
        expect(overlap.serialSeconds).toBeGreaterThan(overlap.baseSerialSeconds);
        expect(overlap.boundSeconds).toBeLessThanOrEqual(overlap.simulatedSeconds);
        expect(overlap.gap).toBeCloseTo(1 - overlap.boundSeconds / overlap.simulatedSeconds, 8);
        // The bound is that of costs one after another, and the gap what is given away.
        expect(after.proof.bound).toBeCloseTo(before.proof.bound, 12);
        expect(after.proof.gap).toBeCloseTo(1 - after.proof.bound / after.objective.seconds, 6);
        expect(after.proof.evidence.join()).toContain('chosen for its simulated step');
        expect(after.request.overlap).toBe(true);
        const simulated = await cli('simulate', folder, '--json');
        expect((JSON.parse(simulated.out) as { seconds: number }).seconds).toBe(
          overlap.simulatedSeconds,
        );
      } finally {
        rmSync(folder, { recursive: true });
      }
    },
  );

  it('keeps the plan of least seconds where no other is faster, and says so', async () => {
    const mlp = ['plan', fixture('mlp'), '--mesh', 'd=2', ...ASK];
    const run = await cli(...mlp, '--overlap');
    expect(run.code, run.err).toBe(0);
    expect(run.out).toMatch(/^asked {6}overlap$/m);
    expect(run.out).toMatch(
      /^overlap {4}\S+ µs simulated; no plan takes less than \S+ µs \(gap [\d.]+ %\); \d+ plans? simulated$/m,
    );
  });

  it('is refused with what it does not look at', async () => {
    for (const [flag, value] of [
      ['--objective', 'parameter-memory'],
      ['--solver', 'propagate'],
      ['--frontier', '3'],
    ]) {
      const run = await cli(
        'plan',
        '-v',
        fixture('mlp'),
        '--mesh',
        'd=2',
        ...ASK,
        '--overlap',
        flag,
        value,
      );
      expect([flag, run.code]).toEqual([flag, 2]);
      expect(run.err).toContain('--overlap');
    }
  });
});
