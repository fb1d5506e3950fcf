import { describe, expect, it } from 'vitest';

import { fitProbability } from '../../src/cost/error-bands.ts';
import { loadCluster } from '../../src/cost/hardware/load-cluster.ts';
import { DEFAULT_SOFTWARE, type MemoryHabits } from '../../src/cost/kernels/software.ts';
import { frameworkSoftware } from '../../src/fidelity/software.ts';
import { modelEntry } from '../../src/models/registry.ts';
import { builtinOperators } from '../../src/ops/builtin.ts';
import { questionOf } from '../../src/sweep/layout/compare-layout.ts';
import { parseLayout } from '../../src/sweep/layout/parse-layout.ts';
import { LayoutPricer } from '../../src/sweep/layout/price-layout.ts';
import type { SweepQuestion } from '../../src/sweep/model/question.ts';
import type { Figures } from '../../src/sweep/step/figures.ts';
import type { FrameworkName } from '../../src/trainers/trainers.ts';

const pricer = new LayoutPricer(builtinOperators());

interface Asked {
  readonly model: string;
  readonly config?: Readonly<Record<string, unknown>>;
  readonly devices: number;
  readonly sequence: number;
  readonly globalBatch: number;
  readonly layout: string;
}

function priced(
  { model, config, devices, sequence, globalBatch, layout: text }: Asked,
  software: NonNullable<SweepQuestion['software']>,
): Promise<Figures> {
  const layout = parseLayout(text, devices);
  const question: SweepQuestion = {
    ...{ model, devices, sequence, globalBatch, software },
    config: JSON.stringify(config ?? modelEntry(model).config),
    cluster: 'dgx-h100',
    cost: 'nccl',
    dtype: 'bf16',
  };
  return pricer.price(questionOf(question, layout), layout);
}

describe('layouts that ran fit', () => {
  const { memoryBytes } = loadCluster('dgx-h100');
  const of = (asked: Asked, trainer: FrameworkName): Promise<Figures> =>
    priced(asked, frameworkSoftware(trainer, loadCluster('dgx-h100')));

  it.each<readonly [string, FrameworkName, Asked]>([
    [
      'sinks and windows are inside of the attention kernel',
      'megatron-bridge',
      {
        model: 'gpt-oss-20b',
        devices: 64,
        sequence: 8192,
        globalBatch: 256,
        layout: 'dp=64,ep=8,zero=1',
      },
    ],
    [
      'so is the cap of scores',
      'torchtitan',
      {
        model: 'gemma-2-27b',
        devices: 64,
        sequence: 8192,
        globalBatch: 256,
        layout: 'dp=64,zero=3,recompute=full',
      },
    ],
    [
      'Megatron-Bridge trains it so on 2,048 H100 and fewer (its recipes)',
      'megatron-bridge',
      {
        model: 'deepseek-v3',
        devices: 2048,
        sequence: 4096,
        globalBatch: 15_360,
        layout: 'pp=8,vp=4,dp=128,tp=2,ep=64,zero=1,recompute=mla_up_proj+mlp,dtype=fp8',
      },
    ],
  ])('%s', async (_, trainer, asked) => {
    const { peakBytes } = await of(asked, trainer);
    expect(fitProbability(peakBytes, memoryBytes)).toBeGreaterThan(0.9);
  });

  it('405 billion parameters on 16,384 devices, nothing recomputed (arXiv:2407.21783, table 4)', async () => {
    const figures = await of(
      {
        model: 'llama-3.1-405b',
        devices: 16_384,
        sequence: 8192,
        globalBatch: 2048,
        layout: 'pp=16,dp=128,tp=8,vp=8,zero=3',
      },
      'llama3-herd',
    );
    expect(figures.peakBytes).toBeLessThan(memoryBytes);
    // FSDP cuts gradients there: of 405e9 x 4 bytes a device has a part of 16,384.
    expect(figures.memory.gradientBytes).toBeLessThan(0.2e9);
  });
});

describe('what software keeps otherwise than a program says', () => {
  const tokens = 2048;
  const [layers, width, heads, keyHeads, vocabulary] = [4, 1024, 16, 4, 32_000];
  const plain = {
    num_hidden_layers: layers,
    hidden_size: width,
    num_attention_heads: heads,
    num_key_value_heads: keyHeads,
    head_dim: 64,
    intermediate_size: 2816,
    vocab_size: vocabulary,
    max_position_embeddings: tokens,
    tie_word_embeddings: false,
  };
  const dense = { ...plain, model_type: 'llama' };
  const routed = {
    ...plain,
    model_type: 'qwen3_moe',
    num_experts: 8,
    num_experts_per_tok: 2,
    moe_intermediate_size: 512,
    norm_topk_prob: true,
    decoder_sparse_step: 1,
    mlp_only_layers: [],
  };
  const under = (
    config: Readonly<Record<string, unknown>>,
    memory: MemoryHabits,
    layout = 'dp=1',
    devices = 1,
    passes = 1,
  ): Promise<Figures> =>
    priced(
      { model: 'small', config, devices, sequence: tokens, globalBatch: passes * devices, layout },
      { ...DEFAULT_SOFTWARE, memory },
    );

  it('a fused loss: of the 12 bytes of a logit and its gradients in float32 it keeps its own', async () => {
    const [whole, fused] = await Promise.all([under(dense, {}), under(dense, { logitBytes: 2 })]);
    const saved = (whole.peakBytes - fused.peakBytes) / (tokens * vocabulary);
    // The gradient of the head, which is not a logit, is there besides.
    expect(saved).toBeGreaterThan(0.9 * (12 - 2));
    expect(saved).toBeLessThanOrEqual(12 - 2);
  });

  it('kernels for grouped queries: no copies of keys and values for the queries that share them', async () => {
    const [copied, grouped] = await Promise.all([
      under(dense, {}),
      under(dense, { groupedKeys: true }),
    ]);
    const saved = copied.memory.activationBytes - grouped.memory.activationBytes;
    expect(saved).toBe(layers * tokens * 2 * (heads - keyHeads) * 64 * 2);
    expect(grouped.seconds).toBe(copied.seconds);
  });

  it('shares inside experts: no results of theirs for the shares', async () => {
    const [behind, within] = await Promise.all([
      under(routed, {}),
      under(routed, { sharesInExperts: true }),
    ]);
    const saved = behind.memory.activationBytes - within.memory.activationBytes;
    expect(saved).toBe(layers * tokens * 2 * width * 2);
  });

  it('gathers of one weight at a time, and gradients that are cut while parameters stay whole', async () => {
    const layered = await under(dense, {}, 'dp=8,zero=3', 8);
    const single = await under(dense, { gathersByWeight: true }, 'dp=8,zero=3', 8);
    expect(single.memory.temporaryBytes).toBeLessThan(layered.memory.temporaryBytes);
    // Gradients of two passes are added up whole; those of one are cut where they are made.
    const kept = 'dp=8,zero=3,reshard=0';
    const [whole, cut] = [await under(dense, {}, kept, 8, 2), await under(dense, {}, kept, 8)];
    expect(whole.memory.gradientBytes / cut.memory.gradientBytes).toBeCloseTo(8, 1);
    const cutAlways = await under(dense, { cutsGradients: true }, kept, 8, 2);
    expect(cutAlways.memory.gradientBytes).toBe(cut.memory.gradientBytes);
  });

  it('what waits on the host leaves two layers of it on the device, and comes no faster than the link', async () => {
    const habits = { groupedKeys: true, logitBytes: 2 } as const;
    const [plain, offloaded] = await Promise.all([
      under(dense, habits),
      under(dense, habits, 'dp=1,offload=1'),
    ]);
    const gone = plain.memory.activationBytes - offloaded.memory.activationBytes;
    const besides = offloaded.memory.temporaryBytes - plain.memory.temporaryBytes;
    expect(gone).toBeGreaterThan(0.5 * plain.memory.activationBytes);
    expect(besides).toBeLessThanOrEqual((2 * gone) / layers);
    // 64 GB/s of PCI Express, 80 % of it, in both directions.
    expect(offloaded.seconds).toBeGreaterThan((2 * gone) / (0.8 * 64e9));
    expect(offloaded.seconds).toBeGreaterThan(plain.seconds);
  });

  it('a share that the process holds besides counts for what comes and goes, not for states', async () => {
    const [bare, held] = await Promise.all([under(dense, {}), under(dense, { heldShare: 1.25 })]);
    const { parameterBytes, gradientBytes, optimizerBytes } = bare.memory;
    const states = parameterBytes + gradientBytes + optimizerBytes;
    expect((held.peakBytes - states) / (bare.peakBytes - states)).toBeCloseTo(1.25, 6);
  });
});
