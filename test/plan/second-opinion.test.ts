import { expect, it } from 'vitest';

import { cli, fixture } from '../cli/support.ts';
import { load, solveFor } from './support.ts';

/** A plan as its folder holds it, without the name of the solver that was asked for. */
async function recordOf(
  solver: 'auto' | 'exact',
): Promise<{ readonly record: string; readonly opinion: string | undefined }> {
  const result = await solveFor(load('torch/mlp/joint.expanded'), 'dp=2', { solver });
  if (result.status !== 'planned') throw new Error('infeasible');
  const { plan, secondOpinion } = result;
  const request = { ...plan.request, solver: null };
  return {
    record: JSON.stringify({ ...plan, request, proof: { ...plan.proof, solveSeconds: null } }),
    opinion: secondOpinion,
  };
}

it('the second opinion, which the clock may cut short, is said and is not part of the plan', async () => {
  const [asked, unasked] = [await recordOf('auto'), await recordOf('exact')];
  expect(asked.opinion).toMatch(/^javascript-lp-solver agrees: \d+$/);
  expect(unasked.opinion).toBeUndefined();
  expect(asked.record).toBe(unasked.record);
});

it('the command prints it under the proof', async () => {
  const { out } = await cli(
    'plan',
    '-v',
    fixture('mlp'),
    '--mesh',
    'dp=2',
    '--cluster',
    'dgx-h100',
  );
  expect(out).toMatch(/proof +optimal .*\n +javascript-lp-solver agrees: \d+\n/);
});
