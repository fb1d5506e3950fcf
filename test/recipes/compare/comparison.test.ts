import { beforeAll, describe, expect, it } from 'vitest';

import { leastCostPlan } from '../../../src/plan/least-cost-plan.ts';
import { DEFAULT_REQUEST } from '../../../src/plan/request/request.ts';
import type { CompareOptions, CompareRequest } from '../../../src/recipes/compare/compare-graph.ts';
import type { Comparison } from '../../../src/recipes/compare/comparison.ts';
import { mergeComparisons } from '../../../src/recipes/compare/conclude-comparison.ts';
import { factorizations, meshCandidates } from '../../../src/recipes/compare/meshes.ts';
import { dominators, paretoFront, shownFront } from '../../../src/recipes/compare/pareto.ts';
import { asComparison } from '../../../src/report/model/comparison-schema.ts';
import { comparisonText } from '../../../src/report/text/comparison.ts';
import { simulate } from '../../../src/simulate/timeline/simulate.ts';
import { compare } from '../../../src/sweep/pipeline/compare.ts';
import { load, TABLE } from '../../plan/support.ts';

const MLP = load('torch/mlp-loss/joint.expanded');

function run(
  more: CompareOptions &
    Partial<Pick<CompareRequest, 'devices' | 'memoryBytes' | 'activations'>> = {},
): Promise<Comparison> {
  const { devices = 8, memoryBytes, activations, ...rest } = more;
  const request = {
    devices,
    cluster: 'dgx-h100',
    ...(memoryBytes !== undefined ? { memoryBytes } : {}),
    ...(activations !== undefined ? { activations } : {}),
  };
  return compare(MLP, request, { table: TABLE, ...rest });
}

describe('meshes of a number of devices', () => {
  it('64 has 28 ordered factorizations in three sizes and 84 in four', () => {
    expect(factorizations(64, 3)).toHaveLength(28);
    expect(factorizations(64, 4)).toHaveLength(84);
    expect(factorizations(64, 3).filter(([, , tp]) => tp <= 8)).toHaveLength(22);
  });

  it('dims of size 1 add nothing, and a host is not cut across', () => {
    expect(meshCandidates(8, { devicesPerHost: 8 }).map((m) => m.sizes.join('x'))).toEqual([
      '8',
      '2x4',
      '4x2',
      '2x2x2',
    ]);
    expect(meshCandidates(64, { devicesPerHost: 8 })).toHaveLength(1 + 5 + 10);
    const odd = meshCandidates(24, { devicesPerHost: 8 }, 2).filter((m) => m.refused !== undefined);
    expect(odd.map((m) => m.sizes.join('x'))).toEqual(['2x12', '4x6', '8x3']);
    expect(meshCandidates(1, { devicesPerHost: 8 }).map((m) => m.sizes)).toEqual([[1]]);
  });
});

describe('the front', () => {
  const at = (
    name: string,
    seconds: number,
    peakBytes: number,
    fits = true,
  ): { name: string; seconds: number; peakBytes: number; fits: boolean } => ({
    name,
    seconds,
    peakBytes,
    fits,
  });

  it('lists what no other plan dominates, by memory', () => {
    const points = [
      at('a', 52, 50),
      at('b', 41, 60),
      at('c', 41, 80),
      at('d', 31, 130),
      at('e', 60, 130),
      at('f', 1, 900, false),
    ];
    expect(paretoFront(points)).toEqual(['a', 'b', 'd']);
    expect(dominators(points)(points[2])).toBe('b');
    expect(dominators(points)(points[4])).toBe('d');
    expect(dominators(points)(points[0])).toBeUndefined();
  });

  it('is what every pair says, with ties', () => {
    let state = 7;
    const random = (n: number): number =>
      (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) % n;
    for (let round = 0; round < 200; round++) {
      const points = Array.from({ length: 1 + random(12) }, (_, k) =>
        at(`p${k}`, random(6), random(6), random(4) > 0),
      );
      const better = (p: (typeof points)[0], q: (typeof points)[0]): boolean =>
        p.seconds <= q.seconds &&
        p.peakBytes <= q.peakBytes &&
        (p.seconds < q.seconds || p.peakBytes < q.peakBytes);
      for (const q of points) {
        const all = points.filter((p) => p.fits && better(p, q));
        all.sort(
          (a, b) =>
            a.seconds - b.seconds || a.peakBytes - b.peakBytes || (a.name < b.name ? -1 : 1),
        );
        expect(dominators(points)(q)).toBe(all[0]?.name);
        if (q.fits) expect(paretoFront(points).includes(q.name)).toBe(all.length === 0);
      }
    }
  });
});

describe('a comparison of the MLP on 8 devices', () => {
  let all: Comparison;
  beforeAll(async () => void (all = await run()), 60_000);

  it('the optimum of a mesh is at most every recipe on it', () => {
    const sizes = (mesh: string): string => mesh.replace(/[a-z_]\w*=/g, '');
    const optima = all.plans.filter((p) => p.origin === 'ilp');
    expect(optima).toHaveLength(4);
    for (const optimum of optima) {
      expect(optimum.proof?.status).toBe('optimal');
      const zoo = all.plans.filter(
        (p) => p.origin === 'zoo' && p.choice && sizes(p.mesh) === sizes(optimum.mesh),
      );
      expect(zoo.length).toBeGreaterThan(0);
      for (const p of zoo) expect(p.seconds).toBeGreaterThanOrEqual(optimum.seconds * (1 - 1e-12));
    }
  });

  it('names are unique, the best is first, every other one says why it is not', () => {
    expect(new Set(all.plans.map((p) => p.name)).size).toBe(all.plans.length);
    const [first, ...others] = all.plans;
    expect(all.best).toBe(first.name);
    expect(first.seconds).toBe(Math.min(...all.plans.map((p) => p.seconds)));
    for (const p of others) expect(p.why).toMatch(/slower|equal|does not fit/);
    expect(all.plans.map((p) => p.plan)).toEqual(
      expect.arrayContaining(['dp', 'zero1', 'zero2', 'fsdp', 'hsdp', 'dp+tp']),
    );
    expect(all.refused.map((r) => r.plan)).toEqual(
      expect.arrayContaining(['dp+cp', 'dp+ep', 'tp+sp']),
    );
  });

  it('ZeRO keeps the states that the paper says', async () => {
    const states = await run({
      activations: 'report',
      plans: ['dp', 'zero1', 'zero2', 'fsdp'],
      maxDims: 1,
    });
    expect([states.holds, all.holds]).toEqual(['states', 'peak']);
    const bytes = (name: string): number =>
      states.plans.find((p) => p.name === name)?.peakBytes ?? NaN;
    // 16 bytes a parameter: weight 4, gradient 4, moments 8; every size here is a multiple of 8.
    expect(bytes('zero1')).toBeCloseTo(bytes('dp') * (0.5 + 0.5 / 8), 0);
    expect(bytes('zero2')).toBeCloseTo(bytes('dp') * (0.25 + 0.75 / 8), 0);
    expect(bytes('fsdp')).toBe(bytes('dp') / 8);
    // At the peak the optimizer's share is saved as well, and activations stay.
    const peak = (name: string): number => all.plans.find((p) => p.name === name)?.peakBytes ?? NaN;
    expect(peak('dp') - peak('zero1')).toBeCloseTo(bytes('dp') - bytes('zero1'), 0);
    expect(peak('zero2')).toBeLessThan(peak('zero1'));
  });

  it('every mesh is accounted for', () => {
    expect(all.meshes.map((m) => [m.mesh, m.status])).toEqual([
      ['d0=8', 'solved'],
      ['d0=2,d1=4', 'solved'],
      ['d0=4,d1=2', 'solved'],
      ['d0=2,d1=2,d2=2', 'solved'],
    ]);
    expect(all.meshes[0].hosts).toEqual([1]);
  });

  it('ranks by the simulated step, in the order of the column that it shows; the sum of calls is another column', async () => {
    const launches = 1e-6 * MLP.nodes.filter((node) => node.kind === 'call').length;
    const simulated = all.plans.filter((p) => p.simulatedSeconds !== undefined);
    expect(simulated).toEqual(all.plans);
    for (const p of simulated) {
      // Between the compute alone and every cost one after another, with a launch before
      // each kernel.
      expect(p.simulatedSeconds).toBeGreaterThanOrEqual(
        (p.seconds - p.communicationSeconds) * (1 - 1e-9),
      );
      expect(p.simulatedSeconds).toBeLessThanOrEqual((p.seconds + 2 * launches) * (1 + 1e-9));
    }
    // A plan of its own on the same mesh, played by itself, has that figure.
    const planned = await leastCostPlan(
      MLP,
      { ...DEFAULT_REQUEST, mesh: 'd0=8', cluster: 'dgx-h100' },
      { table: TABLE },
    );
    if (planned.status !== 'planned') throw new Error(planned.status);
    const optimum = all.plans.find((p) => p.origin === 'ilp' && p.mesh === 'd0=8');
    const { timeline } = simulate(planned.prepared.question.program, planned.plan, {
      table: TABLE,
    });
    expect(optimum?.simulatedSeconds).toBe(timeline.seconds);
    const ranked =
      all.simulatedRanking?.map((name) => all.plans.find((p) => p.name === name)) ?? [];
    expect(new Set(ranked).size).toBe(simulated.filter((p) => p.fits).length);
    for (let i = 1; i < ranked.length; i++)
      expect(ranked[i]?.simulatedSeconds).toBeGreaterThanOrEqual(
        ranked[i - 1]?.simulatedSeconds ?? Infinity,
      );
    expect(all.plans.map((p) => p.stepSeconds)).toEqual(all.plans.map((p) => p.simulatedSeconds));
    expect(all.best).toBe(all.plans[0].name);
    const rising = all.plans.filter((p) => p.fits).map((p) => p.stepSeconds ?? NaN);
    expect(rising).toEqual([...rising].sort((a, b) => a - b));
    expect(all.plans[0]).toMatchObject({ stepBand: null, trainer: 'shardwright' });
    const text = comparisonText(all);
    expect(text).toMatch(/step time +call by call +communication/);
    expect(text).toContain('range  no measured runs of this kind');
    expect(asComparison(JSON.parse(JSON.stringify(all)), 'c.json').simulatedRanking).toEqual(
      all.simulatedRanking,
    );
  });

  it('pieces put together are the whole', async () => {
    const pieces = [
      await run({ slice: { index: 0, count: 2 } }),
      await run({ slice: { index: 1, count: 2 } }),
    ];
    const merged = mergeComparisons(pieces);
    expect(merged.plans).toEqual(all.plans);
    expect(merged.best).toBe(all.best);
    expect(merged.pareto).toEqual(all.pareto);
    expect(merged.simulatedRanking).toEqual(all.simulatedRanking);
    expect(() => mergeComparisons([pieces[0], { ...pieces[1], devices: 16 }])).toThrow(
      /16 devices of dgx-h100/,
    );
  }, 60_000);

  it('a budget below data parallelism: it is listed with the bytes that it lacks, and is not on the front', async () => {
    const small = await run({ memoryBytes: 64 * 2 ** 20, maxDims: 1, plans: ['dp', 'fsdp', 'pp'] });
    const dp = small.plans.find((p) => p.name === 'dp');
    expect(dp).toMatchObject({ fits: false, overBytes: (dp?.peakBytes ?? 0) - 64 * 2 ** 20 });
    expect(small.best).toBe('fsdp');
    expect(small.pareto).toEqual(['fsdp']);
    expect(small.simulatedRanking).toEqual(['fsdp']);
    expect(small.refused.map((r) => r.plan)).toEqual(['pp']);
    expect(small.refused[0].reason).toContain('plan --pp N');
    expect(small.meshes).toMatchObject([{ status: 'not asked' }]);
  });
});

describe('a front as people read it', () => {
  it('has the leanest and the fastest point, and between them steps of a hundredth', () => {
    const points = (...seconds: number[]): { seconds: number }[] =>
      seconds.map((s) => ({ seconds: s }));
    expect(shownFront(points(2, 2, 1.99, 1.97, 1.97, 1, 0.999))).toEqual(points(2, 1.97, 1, 0.999));
    expect(shownFront(points(2, 2))).toEqual(points(2));
    expect(shownFront([])).toEqual([]);
  });
});
