import { describe, expect, it } from 'vitest';

import { fidelity, fitProbability, safePeakBytes } from '../../../src/cost/error-bands.ts';
import { modelEntry } from '../../../src/models/registry.ts';
import { builtinOperators } from '../../../src/ops/builtin.ts';
import type { ComparedPlan, Comparison } from '../../../src/recipes/compare/comparison.ts';
import {
  concludeComparison,
  mergeComparisons,
  type RawPlan,
} from '../../../src/recipes/compare/conclude-comparison.ts';
import { comparisonText } from '../../../src/report/text/comparison.ts';
import { compareModel } from '../../../src/sweep/compare-model.ts';
import { cli } from '../../cli/support.ts';
import { FULL } from '../../support/full.ts';

const TABLE = builtinOperators();

/**
 * Models by name on so many devices, all plans, with `SHARDWRIGHT_FULL=1`; in every run one mesh
 * whose memory makes a riskier plan faster.
 */
const QUESTIONS = [
  ['gpt2', 8],
  ['mixtral-8x7b', 16],
  ['llama-3.1-8b', 8],
  ['qwen3-4b', 16],
  ['llama-3.1-70b', 16],
  ['llama-3.1-8b', 64],
  ['llama-2-13b', 16],
  ['qwen2.5-32b', 32],
  ['gemma-2-9b', 16],
  ['qwen3-30b-a3b', 32],
  ['llama-3.1-70b', 64],
  ['mistral-7b-v0.1', 8],
] as const;
const DAILY = [['llama-3.1-8b', 2]] as const;
const TIGHT = { memoryBytes: 80 * 2 ** 30 };
const ASKED = FULL ? [...DAILY, ...QUESTIONS] : DAILY;

const compared = (model: string, devices: number, risk?: number): Promise<Comparison> =>
  compareModel(
    {
      model,
      config: JSON.stringify(modelEntry(model).config),
      devices,
      cluster: 'dgx-h100',
      sequence: model === 'gpt2' ? 1024 : 4096,
      globalBatch: devices,
      cost: 'nccl',
      ...(risk === undefined ? {} : { risk }),
      ...(devices === 2 ? TIGHT : {}),
    },
    {
      table: TABLE,
      threads: 1,
      whatIf: false,
      ...(devices === 2 ? { plans: ['tp+sp', 'fsdp'] } : {}),
    },
  );

/** The least seconds of the plans that the comparison lists with at least a probability. */
const fastest = (plans: readonly ComparedPlan[], risk: number): number =>
  Math.min(...plans.flatMap((p) => ((p.fitProbability ?? 0) >= risk ? [p.seconds] : [])));

describe('bytes that fit with a probability', () => {
  it('are the most whose probability is not below it', () => {
    const { ratios } = fidelity().memory;
    for (const risk of [0.02, 0.3, 0.57, 0.5740506329113924, 0.9, 0.99]) {
      const bytes = safePeakBytes(80e9, risk);
      expect(fitProbability(bytes, 80e9)).toBeGreaterThanOrEqual(risk);
      expect(fitProbability(bytes + 2, 80e9)).toBeLessThan(risk);
    }
    expect(safePeakBytes(80e9, 0)).toBe(Infinity);
    expect(safePeakBytes(80e9, 0.99)).toBeLessThan(80e9 / (ratios.at(-2) ?? 1));
    expect(() => safePeakBytes(80e9, 0.999)).toThrow('78 readings of memory confirm at most 0.994');
  });
});

describe('the best plan', () => {
  it.each(ASKED)(
    'of %s on %i devices is the fastest that fits with 90 %%, and a riskier one is what a smaller risk takes',
    async (model, devices) => {
      const found = await compared(model, devices);
      const { plans, risk, best, riskier } = found;
      expect(risk).toBe(0.9);
      const first = plans.find((p) => p.name === best);
      expect(plans[0]).toBe(first);
      expect(first?.fitProbability).toBeGreaterThanOrEqual(0.9);
      expect(first?.seconds).toBe(fastest(plans, 0.9));
      if (devices === 2) expect(riskier).toBeDefined();
      if (riskier === undefined) return;
      expect(riskier.seconds).toBeLessThan(first?.seconds ?? 0);
      expect(riskier.fitProbability).toBeLessThan(0.9);
      const asked = Math.floor(100 * riskier.fitProbability) / 100;
      const bold = await compared(model, devices, asked);
      const bolder = bold.plans.find((p) => p.name === bold.best);
      expect(bolder?.seconds).toBeLessThanOrEqual(riskier.seconds);
      expect(bolder?.fitProbability).toBeGreaterThanOrEqual(asked);
      expect(comparisonText(found)).toContain(`: --risk ${Math.round(100 * asked)}% takes it`);
    },
    240_000,
  );

  it('is none where no plan fits so surely: the safest comes nearest, and its own risk takes it', async () => {
    const args = ['compare', 'llama-3.1-8b', '--devices', '2', '--cluster', 'dgx-h100'];
    const few = ['--plans', 'tp+sp,fsdp', '--memory', '72GiB'];
    const asked = [...args, ...few, '--quiet', '--threads', '1'];
    const run = await cli(...asked, '--json');
    expect(run.code).toBe(3);
    const found = JSON.parse(run.out) as Comparison;
    const { plans, best, safest } = found;
    expect(best).toBeNull();
    const likely = plans.map((p) => p.fitProbability ?? 0);
    const nearest = plans.find((p) => p.name === safest);
    expect(nearest?.fitProbability).toBe(Math.max(...likely));
    expect(Math.max(...likely)).toBeLessThan(0.9);
    const text = comparisonText(found);
    expect(text).toContain('no plan fits with a probability of 90 %');
    const [, share] = /the safest is .*: --risk (\d+)% takes it/.exec(text) ?? [];
    const again = await cli(...asked, '--json', '--risk', `${share}%`);
    expect(again.code).toBe(0);
    expect((JSON.parse(again.out) as Comparison).best).not.toBeNull();
  }, 120_000);

  it('is by one order in each piece and in the whole', () => {
    const raw = (plan: string, seconds: number, peakBytes: number): RawPlan => ({
      plan,
      origin: 'zoo',
      mesh: 'dp=8',
      seconds,
      communicationSeconds: 0,
      peakBytes,
      fits: peakBytes <= 76e9,
      fitProbability: fitProbability(peakBytes, 80e9),
      choice: true,
    });
    const conclude = (...list: readonly RawPlan[]): Comparison =>
      concludeComparison(8, 'dgx-h100', {
        raw: list,
        refused: [],
        findings: [],
        meshes: [],
        budgetBytes: 76e9,
        safeBytes: safePeakBytes(80e9, 0.9),
        risk: 0.9,
      });
    const [risky, slow, quick, large] = [
      raw('risky', 1, 75e9),
      raw('slow', 3, 10e9),
      raw('quick', 2, 60e9),
      raw('large', 0.5, 90e9),
    ];
    const whole = mergeComparisons([conclude(risky, slow), conclude(quick, large)]);
    expect(whole.plans.map((p) => p.name)).toEqual(['quick', 'slow', 'risky', 'large']);
    expect(whole.best).toBe('quick');
    expect(whole.riskier).toMatchObject({ plan: 'risky', faster: 0.5 });
    expect(whole.pareto).toEqual(['slow', 'quick', 'risky']);
    const none = conclude(risky, large);
    expect([none.best, none.safest]).toEqual([null, 'risky']);
    expect(conclude(large).safest).toBeUndefined();
    expect(() => mergeComparisons([none, { ...conclude(slow), risk: 0.5 }])).toThrow(
      'one comparison is of a model on 8 devices of dgx-h100 with a risk of 0.9',
    );
  });

  it('a risk that no measured run confirms, or that is not a share, is refused', async () => {
    const asked = ['compare', 'gpt2', '--devices', '8', '--cluster', 'dgx-h100', '--risk'];
    const sure = await cli(...asked, '99.9%');
    expect([sure.code, sure.err]).toEqual([
      2,
      expect.stringContaining("--risk '99.9%' is more than measured runs confirm"),
    ]);
    expect(sure.err).toContain('give at most 99%');
    const odd = await cli(...asked, '90');
    expect(odd.code).toBe(2);
    expect(odd.err).toContain('write for example 0.9 or 90%');
  });
});
