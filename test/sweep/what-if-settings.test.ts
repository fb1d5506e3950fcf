import { describe, expect, it } from 'vitest';

import type { Comparison } from '../../src/recipes/compare/comparison.ts';
import { comparisonText } from '../../src/report/text/comparison.ts';
import { cli } from '../cli/support.ts';

const ASKED = [
  'compare',
  'gpt2',
  '--devices',
  '8',
  '--cluster',
  'dgx-h100',
  '--seq',
  '1024',
  '--global-batch',
  '128',
  '--plans',
  'dp',
  '--quiet',
  '--threads',
  '1',
  // The budget alone decides, so that it can be set to what the plan takes.
  '--risk',
  '0',
] as const;

describe('what would change the answer', () => {
  it('the same plan that must recompute says so', async () => {
    const free = JSON.parse((await cli(...ASKED, '--json')).out) as {
      plans: { peakBytes: number }[];
    };
    const tight = Math.ceil(free.plans[0].peakBytes + 2 ** 20);
    const run = JSON.parse(
      (await cli(...ASKED, '--memory', `${tight}B`, '--json')).out,
    ) as Comparison;
    const less = run.whatIf?.find((w) => w.change.startsWith('1 GiB less'));
    const more = run.whatIf?.find((w) => w.change.startsWith('1 GiB more'));
    expect(less?.same).toBe(true);
    expect(less?.settings).toMatch(/microbatch/);
    expect(more?.settings).toBeUndefined();
    expect(comparisonText(run)).toContain(`the same plan with ${less?.settings ?? ''}`);
  }, 60_000);

  it('with routed experts a plan with tp and a whole residual stream is refused with the plan to ask for', async () => {
    const { code, err } = await cli(
      'compare',
      'mixtral-8x7b',
      '--devices',
      '8',
      '--cluster',
      'dgx-h100',
      '--plans',
      'fsdp+tp',
      '--threads',
      '1',
    );
    expect(code).toBe(2);
    expect(err).toContain('--plans fsdp+tp: tp without sp, and mixtral-8x7b has routed experts');
    expect(err).toContain('megatron-core 0.16 refuses to train without: ask for fsdp+tp+sp');
    const stated = await cli(
      'compare',
      'mixtral-8x7b',
      '--devices',
      '8',
      '--cluster',
      'dgx-h100',
      '--layout',
      'tp=2,dp=4,ep=4,sp=0,zero=1',
    );
    expect(stated.code).toBe(2);
    expect(stated.err).toContain('--layout: sp=0 with tp=2, and mixtral-8x7b has routed experts');
    expect(stated.err).toContain('write sp=1.');
  });
});
