import { describe, expect, it } from 'vitest';

import { fidelity } from '../../../src/cost/error-bands.ts';
import { loadCluster } from '../../../src/cost/hardware/load-cluster.ts';
import { withCertainty } from '../../../src/recipes/compare/certainty.ts';
import type { ComparedPlan, Comparison } from '../../../src/recipes/compare/comparison.ts';

const plan = (name: string, mesh: string, seconds: number, gigabytes = 10): ComparedPlan => ({
  name: `${name} [${mesh}]`,
  plan: name,
  origin: name === 'optimum' ? 'ilp' : 'zoo',
  mesh,
  seconds,
  communicationSeconds: 0,
  peakBytes: gigabytes * 1e9,
  fits: true,
  choice: true,
});
const { step } = fidelity().pairs;
const compared = (plans: readonly ComparedPlan[], more: Partial<Comparison> = {}): Comparison => ({
  devices: 64,
  cluster: 'dgx-h100',
  budgetBytes: 81e9,
  plans,
  refused: [],
  findings: [],
  meshes: [],
  best: plans[0].name,
  pareto: [],
  ...more,
});
const asked = {
  cluster: loadCluster('dgx-h100'),
  experts: false,
  cost: 'nccl',
  by: 'step',
  trains: true,
} as const;
const simplest = (...plans: readonly ComparedPlan[]): string | null | undefined =>
  withCertainty(compared(plans), asked).certainty?.simplest;

describe('how sure a comparison is', () => {
  it('names what cannot be told from the best, and the simplest of it; the best is what it recommends', () => {
    const plans = [
      plan('pp+fsdp+tp+sp', 'pp=2,dp=8,tp=4', 1),
      plan('fsdp', 'dp=64', 1 + 0.9 * step),
      plan('zero1', 'dp=64', 1 + 0.99 * step),
      plan('dp', 'dp=64', 1 + 1.01 * step),
    ];
    const { certainty, plans: banded, best } = withCertainty(compared(plans), asked);
    expect(certainty?.alike).toEqual(plans.slice(0, 3).map((p) => p.name));
    // States that are whole are simpler than cut ones.
    expect(certainty?.simplest).toBe('zero1 [dp=64]');
    expect(certainty?.recommended).toBe(best);
    expect(best).toBe(plans[0].name);
    for (const p of banded) {
      expect(p.secondsBand?.[0]).toBeCloseTo(p.seconds * certainty!.p10, 12);
      expect(p.secondsBand?.[1]).toBeCloseTo(p.seconds * certainty!.p90, 12);
      expect(p).toMatchObject({ stepSeconds: p.seconds, stepBand: p.secondsBand });
    }
  });

  it('fewer dims before no pipeline, no pipeline before no tensor parallelism, a recipe before free placements', () => {
    const near = 1 + step / 2;
    expect(simplest(plan('fsdp+tp', 'dp=8,tp=8', 1), plan('pp', 'pp=64', near))).toBe('pp [pp=64]');
    expect(simplest(plan('pp+dp', 'pp=8,dp=8', 1), plan('dp+tp', 'dp=8,tp=8', near))).toBe(
      'dp+tp [dp=8,tp=8]',
    );
    expect(simplest(plan('optimum', 'dp=64', 1), plan('fsdp', 'dp=64', near))).toBe('fsdp [dp=64]');
  });

  it('what may not fit is not as good as the best', () => {
    const near = 1 + step / 2;
    const tight = compared([plan('fsdp+tp', 'dp=8,tp=8', 1), plan('dp', 'dp=64', near, 79)], {
      risk: 0.9,
      safeBytes: 60e9,
    });
    expect(withCertainty(tight, asked).certainty?.alike).toEqual(['fsdp+tp [dp=8,tp=8]']);
    const { plans } = withCertainty(
      compared([plan('dp', 'dp=64', 1, 20), plan('dp', 'dp=64', 1, 85)]),
      asked,
    );
    expect(plans[0].fitProbability).toBeGreaterThan(0.9);
    expect(plans[1].fitProbability).toBeLessThan(0.7);
  });

  it('ranges are of runs of the device, the kind of model and the trainer; where there are none there is no range', () => {
    const one = compared([plan('fsdp', 'dp=64', 1)]);
    const of = (more: Partial<Parameters<typeof withCertainty>[1]>): Comparison =>
      withCertainty(one, { ...asked, ...more });
    expect(of({ trainer: 'torchtitan' }).certainty?.from).toBe(
      'dense models on Hopper, several hosts in torchtitan',
    );
    expect(of({ trainer: 'nemo' }).certainty).toEqual(of({ trainer: 'megatron' }).certainty);
    const none = [
      of({ trainer: 'deepspeed' }),
      of({ cluster: loadCluster('mi300x-platform') }),
      of({ cluster: loadCluster('dgx-a100-80gb'), experts: true }),
    ];
    for (const { certainty, unsure, plans } of none) {
      expect([certainty, unsure]).toEqual([undefined, 'no measured runs of this kind']);
      expect(plans[0]).toMatchObject({ stepSeconds: 1, stepBand: null });
      expect(plans[0].secondsBand).toBeUndefined();
    }
    // Of played steps of graphs no runs were measured.
    expect(of({ by: 'calls' }).plans[0]).toMatchObject({ stepBand: null, trainer: 'shardwright' });
  });

  it('says why there is no range: other prices, programs without gradients; states alone have no probability', () => {
    const one = compared([plan('dp', 'dp=64', 1)]);
    expect(withCertainty(one, { ...asked, cost: 'alpha-beta' }).unsure).toContain(
      'the prices of alpha-beta',
    );
    expect(withCertainty(one, { ...asked, trains: false }).unsure).toContain('only training steps');
    const [states] = withCertainty({ ...one, holds: 'states' }, asked).plans;
    expect(states.fitProbability).toBeNull();
  });
});
