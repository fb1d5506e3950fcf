import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { FAMILIES_PAGE, families, familiesPage, preparedFamily, results } from '../../scripts/families.ts';
import { shardPrepared } from '../../src/plan/shard.ts';

/** Captured graphs of public models are planned again, without Python. */

test('docs/families.md is current (otherwise: npx tsx scripts/families.ts)', async () => {
  expect(readFileSync(FAMILIES_PAGE, 'utf8')).toBe(await familiesPage());
});

describe('issue 18.7: captured families', () => {
  // Complex rotary embeddings, sums over windows of images, masks filled by values, weight norms, experts.
  test.each(['llama4', 'swin', 'hubert', 'deepseek-v3'])('%s is planned to the recorded optimum', async (name) => {
    const prepared = preparedFamily(families()[name]);
    const solved = await shardPrepared(prepared, {});
    if (solved.status === 'infeasible') throw new Error('no plan fits');
    const recorded = results()[name];
    expect(prepared.program.nodes.length).toBe(recorded.nodes);
    expect(solved.plan.proof.status).toBe('optimal');
    expect(solved.plan.objective.seconds).toBeCloseTo(recorded.seconds ?? NaN, 9);
  });
});
