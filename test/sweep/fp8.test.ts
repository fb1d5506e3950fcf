import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';

import { describe, expect, it } from 'vitest';

import { inFp8, narrowText } from '../../src/cost/kernels/fp8-recipes.ts';
import { DEFAULT_SOFTWARE, FP8_RECIPES, type Fp8Recipe } from '../../src/cost/kernels/software.ts';
import { RunPredictor } from '../../src/fidelity/predict-run.ts';
import { parseRuns } from '../../src/fidelity/runs.ts';
import { compareLayout } from '../../src/sweep/layout/compare-layout.ts';
import { parseLayout } from '../../src/sweep/layout/parse-layout.ts';
import { LayoutPricer } from '../../src/sweep/layout/price-layout.ts';
import { softwareInFp8, type SweepQuestion } from '../../src/sweep/model/question.ts';
import type { Figures } from '../../src/sweep/step/figures.ts';
import { TABLE } from '../plan/support.ts';
import { FULL } from '../support/full.ts';

const [h, f, layers, heads, vocabulary] = [1024, 4096, 4, 16, 4096];
const QUESTION: SweepQuestion = {
  model: 'small',
  config: JSON.stringify({
    model_type: 'llama',
    hidden_size: h,
    intermediate_size: f,
    num_attention_heads: heads,
    num_key_value_heads: heads,
    num_hidden_layers: layers,
    vocab_size: vocabulary,
    torch_dtype: 'bfloat16',
  }),
  devices: 4,
  cluster: 'dgx-h100',
  sequence: 2048,
  globalBatch: 16,
  cost: 'nccl',
};
const pricer = new LayoutPricer(TABLE);
const price = (
  text: string,
  recipe?: Fp8Recipe,
  more: Partial<SweepQuestion> = {},
): Promise<Figures> => {
  const question = { ...QUESTION, ...more };
  const software =
    recipe === undefined ? DEFAULT_SOFTWARE : softwareInFp8(question, recipe, 'test');
  return pricer.price({ ...question, software }, parseLayout(text, 4));
};

describe('recipes of fp8', () => {
  it('say what their casts move and keep, by their scales and by what products of the device read', () => {
    const of = (
      recipe: Fp8Recipe,
      accelerator: string,
    ): readonly (number | string | undefined)[] => {
      const { narrowCastBytes, savedOperandBytes, keptWeightBytes, largest } = inFp8(
        DEFAULT_SOFTWARE,
        recipe,
        accelerator,
      );
      return [narrowCastBytes, savedOperandBytes, keptWeightBytes, largest];
    };
    // A quarter of the casts reads its 16 bits, the others stand in the kernel before; two looks
    // where the scale is of present values.
    expect(of('delayed', 'H100-SXM')).toEqual([0.5 + 2, 1, 2, 'step']);
    expect(of('delayed', 'B200')).toEqual([0.5 + 1, 1, 1, 'step']);
    expect(of('current', 'H100-SXM')).toEqual([2.5 + 2, 1, 2, 'tensor']);
    expect(of('blockwise', 'H100-SXM')).toEqual([
      0.5 + 2 * (1 + 4 / 128),
      1 + 4 / 128,
      2 * (1 + 4 / 128),
      undefined,
    ]);
    expect(of('mxfp8', 'GB200')).toEqual([
      0.5 + 2 * (1 + 1 / 32),
      1 + 1 / 32,
      2 * (1 + 1 / 32),
      undefined,
    ]);
    // Software that keeps no cast weights casts in kernels of its own.
    expect(
      inFp8({ ...DEFAULT_SOFTWARE, castWeightsKept: false }, 'current', 'H100-SXM'),
    ).toMatchObject({ narrowCastBytes: 6, keptWeightBytes: 0 });
    for (const recipe of FP8_RECIPES) {
      const once = inFp8(DEFAULT_SOFTWARE, recipe, 'B200');
      expect(inFp8(inFp8(DEFAULT_SOFTWARE, 'current', 'B200'), recipe, 'B200')).toEqual(once);
      expect(narrowText(once)).toContain(`(${recipe})`);
    }
    expect(narrowText(DEFAULT_SOFTWARE)).toBeUndefined();
  });

  it('keep cast weights of the layers beside weights that stay whole, and none beside those that are gathered', async () => {
    const weights = layers * (4 * h * h + 3 * h * f);
    const parameters = async (text: string, recipe?: Fp8Recipe): Promise<number> =>
      (await price(text, recipe)).memory.parameterBytes;
    expect((await parameters('dp=4', 'current')) - (await parameters('dp=4'))).toBe(2 * weights);
    expect((await parameters('tp=4', 'delayed')) - (await parameters('tp=4'))).toBe(
      (2 * weights) / 4,
    );
    expect(await parameters('dp=4,zero=3', 'current')).toBe(await parameters('dp=4,zero=3'));
  });

  it('deepseek: moments of 16 bits beside a float32 master copy, gradients in float32', async () => {
    const [plain, narrow] = [
      (await price('dp=4')).memory,
      (await price('dp=4', 'deepseek')).memory,
    ];
    expect(narrow.optimizerBytes / plain.optimizerBytes).toBeCloseTo(8 / 12, 9);
    expect(narrow.gradientBytes / plain.gradientBytes).toBeCloseTo(4 / 2, 9);
  });

  it('gather operands of products in fp8 under tensor parallelism, but for scales of rows', async () => {
    // Wide enough that norms lie in parts, and what they make is gathered.
    const config = QUESTION.config
      .replace('1024', '4096')
      .replace('4096,"num_att', '14336,"num_att');
    const wide = { config, sequence: 4096 };
    const [plain, tensor, row] = [
      await price('tp=4', undefined, wide),
      await price('tp=4', 'delayed', wide),
      await price('tp=4', 'rowwise', wide),
    ];
    expect(tensor.communicationSeconds).toBeLessThan(0.85 * plain.communicationSeconds);
    expect(row.communicationSeconds).toBeCloseTo(plain.communicationSeconds, 9);
  });

  it('are refused by name where a device has none', async () => {
    const ask = (text: string, cluster: string): Promise<unknown> =>
      compareLayout({ ...QUESTION, cluster }, { text, layout: parseLayout(text, 4) }, TABLE);
    await expect(ask('dp=4,dtype=fp8:mxfp8', 'dgx-h100')).rejects.toThrow(
      'dtype=fp8:mxfp8 on dgx-h100',
    );
    await expect(ask('dp=4,dtype=fp8:current', 'dgx-a100-80gb')).rejects.toThrow('dgx-a100-80gb');
    expect(() => parseLayout('dp=4,dtype=fp8:fast', 4)).toThrow('dtype=fp8:fast');
    const found = (await ask('dp=4,dtype=fp8', 'dgx-b200')) as { assumes?: string };
    expect(found.assumes).toContain('fp8 (mxfp8)');
  });

  it.runIf(FULL)(
    'tell what was measured: scales of rows cost torchtitan more than scales of tensors (64 H100s, tp=8)',
    async () => {
      const text = gunzipSync(
        readFileSync(new URL('../fixtures/runs/measured.csv.gz', import.meta.url)),
      ).toString();
      const others = gunzipSync(
        readFileSync(new URL('../fixtures/runs/others.csv.gz', import.meta.url)),
      ).toString();
      const runs = [text, others]
        .flatMap((csv) => parseRuns(csv).runs)
        .filter((r) => /asyncTP 2025-06/.test(r.source));
      const predictor = new RunPredictor(TABLE);
      const errors: number[] = [];
      const seconds = new Map<string, number>();
      for (const run of runs) {
        const found = await predictor.predict(run);
        if ('reason' in found) throw new Error(found.reason);
        errors.push(Math.abs(found.seconds / (run.stepSeconds ?? NaN) - 1));
        seconds.set(run.id, found.seconds);
      }
      expect(runs).toHaveLength(6);
      expect(errors.reduce((a, b) => a + b, 0) / errors.length).toBeLessThan(0.12);
      // r0027 and r0028 by tensors, r0029 and r0030 by rows.
      expect(seconds.get('r0029')).toBeGreaterThan(seconds.get('r0027') ?? Infinity);
      expect(seconds.get('r0030')).toBeGreaterThan(seconds.get('r0028') ?? Infinity);
    },
  );
});
