import { describe, expect, it } from 'vitest';

import { DEFAULT_SOFTWARE, type StepSoftware } from '../../src/cost/kernels/software.ts';
import { recomputeText } from '../../src/recipes/recompute-text.ts';
import { type LayoutSizes } from '../../src/step/layout.ts';
import type { SweepQuestion } from '../../src/sweep/model/question.ts';
import { coreRequest } from '../../src/sweep/model/types.ts';
import { CoreSolver } from '../../src/sweep/rank/rank-price.ts';
import { Composer } from '../../src/sweep/step/compose.ts';
import { TABLE } from '../plan/support.ts';

const one: LayoutSizes = { pp: 1, dp_replicate: 1, dp_shard: 1, cp: 1, tp: 1, ep: 1 };
const question = (config: object, more: Partial<SweepQuestion> = {}): SweepQuestion => ({
  model: 'small',
  config: JSON.stringify({ torch_dtype: 'bfloat16', ...config }),
  devices: 16,
  cluster: 'dgx-h100',
  sequence: 1024,
  globalBatch: 64,
  cost: 'alpha-beta',
  ...more,
});

describe('what a layer keeps, under tensor parallelism over 4 with a cut residual stream', () => {
  const [s, h, f, tp] = [1024, 2048, 8192, 4];
  const config = {
    model_type: 'llama',
    hidden_size: h,
    intermediate_size: f,
    num_attention_heads: 16,
    num_key_value_heads: 16,
    num_hidden_layers: 4,
    vocab_size: 4096,
  };
  const sizes = { ...one, tp };
  const kind = { mode: 'dp', context: 'cp', sequenceParallel: true } as const;

  it('full: what the layer hands on; selective: products of matrices, attention, and sums of products once they are summed', async () => {
    const priced = await new CoreSolver(question(config), TABLE).price(coreRequest(sizes, kind, 1));
    if (priced.status === 'refused') throw new Error(priced.reason);
    const layer = priced.core.units[2];
    const stream = (2 * s * h) / tp;
    expect(layer.keptBytes.full).toBe(stream);
    // q, k, v and what attention gives with its row sums (f32, a head each); gate and up; the sum
    // after attention.
    const rowSums = (4 * s * 16) / tp;
    expect(layer.keptBytes.selective).toBe(
      stream + 3 * stream + stream + rowSums + 2 * ((2 * s * f) / tp) + stream,
    );
    expect(layer.keptBytes.none).toBeGreaterThan(layer.keptBytes.selective);
    // The last product of a layer is wanted by nothing that is recomputed: a quarter of the work of
    // all (h f of 4 h h + 3 h f), of their seconds less, since the small ones among them are
    // slower.
    const saved = 1 - layer.again.full.products / layer.forward.products;
    expect(saved).toBeGreaterThan(0.15);
    expect(saved).toBeLessThan(0.25);
    // Selectively the two gathers before the products are recomputed, not the sums that are kept.
    expect(layer.again.selective.communication).toBeLessThan(layer.again.full.communication);
  });
});

describe('what a layer keeps under fused kernels (arXiv:2205.05198, section 4, for a gated layer with fused attention)', () => {
  const [s, h, f, heads] = [1024, 2048, 8192, 16];
  const config = {
    model_type: 'llama',
    hidden_size: h,
    intermediate_size: f,
    num_attention_heads: heads,
    num_key_value_heads: heads,
    num_hidden_layers: 4,
    vocab_size: 4096,
  };
  const keptBy = async (software: Partial<StepSoftware>): Promise<number> => {
    const asked = question(config, {
      cost: 'nccl',
      software: { ...DEFAULT_SOFTWARE, ...software },
    });
    const priced = await new CoreSolver(asked, TABLE).price(
      coreRequest(one, { mode: 'dp', context: 'cp', sequenceParallel: false }, 1),
    );
    if (priced.status === 'refused') throw new Error(priced.reason);
    return priced.core.units[2].keptBytes.none;
  };
  const stream = 2 * s * h;
  const wide = 2 * s * f;
  const sums = 4 * s * (heads + 2);

  it('inputs of two norms and of four products, queries, keys, values, the scores, gate and up', async () => {
    // Norm inputs; what goes into the projections, into the feed-forward layer, and out of
    // attention; queries, keys and values.
    expect(await keptBy({ fusedPointwise: true })).toBe(
      2 * stream + 3 * stream + 3 * stream + 2 * wide + wide + sums,
    );
  });

  it('eager kernels keep the activation besides; norms are one kernel in every framework', async () => {
    expect(await keptBy({ fusedPointwise: false })).toBe(8 * stream + 3 * wide + wide + sums);
  });
});

describe('experts', () => {
  const config = {
    model_type: 'deepseek_v3',
    hidden_size: 512,
    intermediate_size: 1024,
    moe_intermediate_size: 256,
    num_hidden_layers: 8,
    num_attention_heads: 8,
    num_key_value_heads: 8,
    q_lora_rank: 128,
    kv_lora_rank: 64,
    qk_nope_head_dim: 64,
    qk_rope_head_dim: 32,
    v_head_dim: 64,
    n_routed_experts: 32,
    num_experts_per_tok: 8,
    n_shared_experts: 1,
    n_group: 8,
    topk_group: 4,
    first_k_dense_replace: 1,
    vocab_size: 4096,
    topk_method: 'noaux_tc',
    scoring_func: 'sigmoid',
  };

  it('attention whose values have other channels than keys is fused: no scores are kept', async () => {
    const at = async (sequence: number): Promise<number> => {
      const priced = await new CoreSolver(question(config, { sequence }), TABLE).price(
        coreRequest(one, { mode: 'dp', context: 'cp', sequenceParallel: false }, 1),
      );
      if (priced.status === 'refused') throw new Error(priced.reason);
      return priced.core.units[2].keptBytes.none;
    };
    // Twice the tokens, twice the bytes; scores would be four times as many.
    expect((await at(2048)) / (await at(1024))).toBeCloseTo(2, 2);
  });

  it('paired passes: faster by at most what they exchange, and a layer more is kept, not a microbatch', async () => {
    const q = question(config);
    const solver = new CoreSolver(q, TABLE);
    const composer = new Composer(q, solver.kinds);
    const routed = solver.routed(1, 1, [16])!;
    expect(routed.limit).toEqual({ count: 8, kept: 4 });
    const kind = { mode: 'zero1', context: 'cp', sequenceParallel: true } as const;
    const cases = [
      [{ ...one, dp_shard: 16, ep: 16 }, '1f1b', 1],
      [{ ...one, pp: 2, dp_shard: 8, ep: 8 }, 'interleaved', 2],
    ] as const;
    for (const [sizes, schedule, chunks] of cases) {
      const priced = await solver.price(coreRequest(sizes, kind, 1));
      if (priced.status === 'refused') throw new Error(priced.reason);
      const costs = solver.routed(1, 1, [sizes.ep])!;
      const tuning = { microbatch: 1, schedule, chunks, checkpoint: 'none', once: false } as const;
      const [apart, paired] = [tuning, { ...tuning, paired: true }].map((t) =>
        composer.compose({ core: priced.core, routed: costs, sizes, kind, tuning: t })!,
      );
      expect(apart.exchangeSeconds).toBeGreaterThan(0);
      expect(paired.exchangeSeconds).toBe(apart.exchangeSeconds);
      expect(paired.seconds).toBeLessThan(apart.seconds);
      expect(apart.seconds - paired.seconds).toBeLessThan(0.75 * apart.exchangeSeconds);
      expect(paired.computeSeconds).toBe(apart.computeSeconds);
      // What the backward pass of a layer frees, the forward pass of another one takes.
      const more = paired.peakBytes - apart.peakBytes;
      expect(paired.memory.activationBytes).toBe(apart.memory.activationBytes);
      expect(paired.composed.stages[0].inFlight).toBe(apart.composed.stages[0].inFlight);
      expect(more).toBeGreaterThan(0);
      expect(more).toBeLessThan(apart.memory.activationBytes + apart.memory.temporaryBytes);
      const move = composer
        .traffic(priced.core, costs, { sizes, kind }, { ...tuning, paired: true }, paired)
        .find((t) => t.axes === 'ep')!;
      expect(move.exposedSeconds).toBeLessThan(move.seconds);
      expect(move.seconds).toBeCloseTo(apart.exchangeSeconds, 9);
    }
    expect(solver.routed(1, 1, [16])!.active).toBe(8);
  });
});

it('says how many layers are recomputed', () => {
  expect(recomputeText({ checkpoint: 'none' }, 8)).toBe('nothing is recomputed');
  expect(recomputeText({ checkpoint: 'selective', unitsAgain: 28 }, 126)).toBe(
    'selective checkpointing of 28 of 128 units (layers, embedding, head)',
  );
  expect(recomputeText({ checkpoint: 'full' }, 126)).toBe('full checkpointing');
});
