import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { describe, expect, it } from 'vitest';

import { readPlan } from '../../../../src/plan/record/schema.ts';
import { FULL } from '../../../support/full.ts';
import { cli } from '../../support.ts';

const VIT = fileURLToPath(
  new URL('../../../fixtures/torch/vit-tiny/joint.expanded.txt.gz', import.meta.url),
);
const ASK = ['--mesh', 'dp=8', '--cluster', 'dgx-h100', '--quiet', '--json'];

interface Printed {
  readonly name: string;
  readonly simulatedSeconds: number;
  readonly baseSimulatedSeconds: number;
  readonly serialSeconds: number;
  readonly baseSerialSeconds: number;
}

describe('plan takes the known plan of the shortest simulated step', () => {
  it('data parallelism of ViT sums its gradients beside the backward pass, and is written as simulated', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'shardwright-'));
    try {
      const run = await cli('plan', '-v', VIT, ...ASK, '-o', folder);
      expect(run.code, run.err).toBe(0);
      const { simulated } = JSON.parse(run.out) as { simulated: Printed };
      const plan = readPlan(run.out);
      expect(simulated.name).toBe('data parallel (dp)');
      expect(simulated.simulatedSeconds).toBeLessThan(0.995 * simulated.baseSimulatedSeconds);
      expect(simulated.serialSeconds).toBeGreaterThan(simulated.baseSerialSeconds);
      // The proof is that of costs one after another, and its gap what the plan gives away there.
      expect(plan.objective.seconds).toBeCloseTo(simulated.serialSeconds, 12);
      expect(plan.proof.status).toBe('feasible');
      expect(plan.proof.bound).toBeCloseTo(simulated.baseSerialSeconds, 6);
      expect(plan.proof.gap).toBeCloseTo(1 - plan.proof.bound / simulated.serialSeconds, 6);
      expect(plan.proof.evidence.join()).toContain(
        'data parallel (dp): chosen for its simulated step',
      );
      const { out } = await cli('simulate', folder, '--json');
      expect((JSON.parse(out) as { seconds: number }).seconds).toBe(simulated.simulatedSeconds);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it.runIf(FULL)('--objective serial keeps what is proven least one after another', async () => {
    const run = await cli('plan', '-v', VIT, ...ASK, '--objective', 'serial');
    expect(run.code, run.err).toBe(0);
    expect(JSON.parse(run.out)).not.toHaveProperty('simulated');
    expect(readPlan(run.out).proof.status).toBe('optimal');
  });
});
