import { describe, expect, it } from 'vitest';

import { DEFAULT_SOFTWARE } from '../../src/cost/kernels/software.ts';
import { recomputeText } from '../../src/recipes/recompute-text.ts';
import {
  type Checkpoint,
  moduleSet,
  RECOMPUTE_MODULES,
  type RecomputeModule,
} from '../../src/step/checkpoints.ts';
import type { LayoutKind, LayoutSizes } from '../../src/step/layout.ts';
import type { CoreUnit } from '../../src/step/units.ts';
import { compareModel } from '../../src/sweep/compare-model.ts';
import { parseLayout } from '../../src/sweep/layout/parse-layout.ts';
import { LayoutPricer } from '../../src/sweep/layout/price-layout.ts';
import type { SweepQuestion } from '../../src/sweep/model/question.ts';
import { type CoreCost, coreRequest } from '../../src/sweep/model/types.ts';
import { CoreSolver } from '../../src/sweep/rank/rank-price.ts';
import { Composer } from '../../src/sweep/step/compose.ts';
import type { Figures } from '../../src/sweep/step/figures.ts';
import { TriedCheckpoints } from '../../src/sweep/step/tried-checkpoints.ts';
import { TABLE } from '../plan/support.ts';
import { FULL } from '../support/full.ts';

const [s, h, f, heads] = [1024, 2048, 8192, 16];
const one: LayoutSizes = { pp: 1, dp_replicate: 1, dp_shard: 1, cp: 1, tp: 1, ep: 1 };
const cut: LayoutKind = { mode: 'dp', context: 'ring', sequenceParallel: true };
const question = (config: object, more: Partial<SweepQuestion> = {}): SweepQuestion => ({
  model: 'small',
  config: JSON.stringify({ torch_dtype: 'bfloat16', ...config }),
  devices: 4,
  cluster: 'dgx-h100',
  sequence: s,
  globalBatch: 16,
  cost: 'nccl',
  software: { ...DEFAULT_SOFTWARE, fusedPointwise: true },
  ...more,
});
const PLAIN = {
  model_type: 'gpt2',
  n_embd: h,
  n_inner: f,
  n_head: heads,
  n_layer: 4,
  vocab_size: 4096,
  n_positions: s,
};
const GATED = {
  model_type: 'llama',
  hidden_size: h,
  intermediate_size: f,
  num_attention_heads: heads,
  num_key_value_heads: heads,
  num_hidden_layers: 4,
  vocab_size: 4096,
};
const LATENT = {
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

/** The programs of a question are made once for all that is asked of it. */
const solvers = new Map<SweepQuestion, CoreSolver>();

async function core(
  asked: SweepQuestion,
  sizes: LayoutSizes,
  more: { readonly recompute?: Checkpoint } = {},
): Promise<CoreCost> {
  const solver = solvers.get(asked) ?? new CoreSolver(asked, TABLE);
  solvers.set(asked, solver);
  const priced = await solver.price({
    ...coreRequest(sizes, cut, 1),
    ...more,
  });
  if (priced.status === 'refused') throw new Error(priced.reason);
  return priced.core;
}
const saved = (unit: CoreUnit, what: Checkpoint): number =>
  unit.keptBytes.none - unit.keptBytes[what];

describe('bytes that a module saves, by the terms of arXiv:2205.05198, section 4 (without dropout)', () => {
  it('GPT 22B over 8 devices: norms 4 sbh, the activation 8 sbh, the feed-forward layer 16 sbh of 32 sbh in all', async () => {
    const [rows, width, count, ways] = [2048, 6144, 64, 8];
    const config = {
      model_type: 'gpt2',
      n_embd: width,
      n_head: count,
      n_layer: 48,
      n_positions: rows,
      vocab_size: 51_200,
    };
    const layer = (
      await core(question(config, { sequence: rows, devices: 8 }), { ...one, tp: ways })
    ).units[2];
    const sbh = (rows * width) / ways;
    // Means and deviations of two norms, and the sums of the rows of attention, 4 bytes each.
    const sums = 2 * 2 * 4 * (rows / ways);
    const rowSums = (4 * rows * count) / ways;
    // Of the published 34 sbh two are masks of dropout, which the model has not.
    expect(layer.keptBytes.none).toBe(32 * sbh + sums + rowSums);
    expect(saved(layer, 'layernorm')).toBe(4 * sbh + sums);
    expect(saved(layer, 'act')).toBe(8 * sbh);
    expect(saved(layer, 'mlp')).toBe(16 * sbh);
    expect(saved(layer, 'layernorm+act')).toBe(12 * sbh + sums);
    // Attention gives what the projection behind it reads: only the sums of its rows go.
    expect(saved(layer, 'core_attn')).toBe(rowSums);
    expect(layer.keptBytes.full).toBe(2 * sbh);
  });

  it('a gated layer: of the activation one of three wide values', async () => {
    const layer = (await core(question(GATED), one)).units[2];
    expect(saved(layer, 'act')).toBe(2 * s * f);
    expect(saved(layer, 'mlp')).toBe(3 * 2 * s * f);
    // The sums of squares go with the norms.
    expect(saved(layer, 'layernorm') - 2 * 2 * s * h).toBeLessThanOrEqual(2 * 4 * s);
    // Seconds: of the two wide products alone a third each of the feed-forward layer's.
    expect(layer.again.mlp.products / layer.forward.products).toBeCloseTo(
      (2 * h * f) / (4 * h * h + 3 * h * f),
      1,
    );
    expect(layer.again.act.products).toBe(0);
  });

  it('multi-head latent attention: queries, keys and values with their rotations', async () => {
    const layer = (await core(question(LATENT), one)).units[3];
    // Eight heads of 96 for queries and keys; values are shown in what came up from the latent, 64
    // of 128 a head.
    expect(saved(layer, 'mla_up_proj')).toBe(2 * s * 8 * (96 + 96 + 128));
    expect(layer.again.mla_up_proj.products).toBeGreaterThan(0);
    expect(layer.again.mla_up_proj.products).toBeLessThan(layer.again.full.products);
  });
});

describe('what a search tries', () => {
  /**
   * Least seconds again to save so many bytes of `layers` equal layers: one choice in as many of
   * them as it takes.
   */
  const least = (
    list: readonly { readonly seconds: number; readonly saved: number }[],
    bytes: number,
    layers: number,
  ): number =>
    Math.min(
      ...list.map((p) =>
        p.saved * layers < bytes ? Infinity : Math.ceil(bytes / p.saved) * p.seconds,
      ),
    );

  it.each([['plain', PLAIN] as const, ...(FULL ? [['gated', GATED] as const] : [])])(
    'is as good as all sets of modules, within a 20th of the range of bytes (%s)',
    async (_, config) => {
      const asked = question(config);
      const names: RecomputeModule[] = [
        'core_attn',
        'layernorm',
        'mlp',
        ...(FULL ? (['act'] as const) : []),
      ];
      const sets = new Set(
        Array.from({ length: 2 ** names.length }, (_, i) =>
          moduleSet(names.filter((_, k) => (i >> k) & 1)),
        ),
      );
      const price = async (checkpoint: Checkpoint): Promise<{ seconds: number; saved: number }> => {
        const { again, keptBytes } = (await core(asked, one, { recompute: checkpoint })).units[2];
        return {
          seconds: again[checkpoint].compute + again[checkpoint].communication,
          saved: keptBytes.none - keptBytes[checkpoint],
        };
      };
      const all = await Promise.all([...sets, 'selective' as const, 'full' as const].map(price));
      const kinds = new CoreSolver(asked, TABLE).kinds;
      const tried = new TriedCheckpoints({ standsFor: kinds.standsFor }).of(
        await core(asked, one),
        undefined,
        one,
      );
      expect(tried[0]).toBe('none');
      expect(tried.at(-1)).toBe('full');
      expect(tried.length).toBeLessThanOrEqual(7);
      const few = await Promise.all(tried.map(price));
      const layers = 64;
      const most = layers * Math.max(...all.map((p) => p.saved));
      for (let k = 1; k <= 20; k++) {
        const bytes = (k / 20) * most;
        expect(least(few, bytes, layers), `${k}`).toBeLessThanOrEqual(
          least(all, Math.min(most, bytes + 0.05 * most), layers) * (1 + 1e-9),
        );
      }
    },
  );

  it('finds a layout that is faster than selective and full recomputation, and says what is recomputed', async () => {
    const open = question(GATED, { devices: 1, globalBatch: 1, sequence: 8192 });
    const solver = new CoreSolver(open, TABLE);
    const priced = await core(open, one);
    const figures = (
      asked: SweepQuestion,
      checkpoint: Checkpoint,
      asStated: boolean,
    ): Figures | undefined => {
      const tuning = {
        microbatch: 1,
        schedule: '1f1b',
        chunks: 1,
        checkpoint,
        once: false,
        ...(asStated ? { asStated } : {}),
      } as const;
      const found = new Composer(asked, solver.kinds).compose(
        { core: priced, routed: undefined, sizes: one, kind: cut, tuning },
        asStated ? {} : { fitting: true },
      );
      return found?.seconds === undefined ? undefined : found;
    };
    // Just what every layer takes without norms and activation functions.
    const memoryBytes = figures(open, 'layernorm+act', true)?.peakBytes ?? 0;
    const asked = { ...open, memoryBytes, risk: 0 };
    const { plans, best } = await compareModel(asked, { table: TABLE, threads: 1, whatIf: false });
    const plan = plans.find((p) => p.name === best);
    expect(plan?.layout?.recomputes).toEqual(['layernorm', 'act']);
    expect(plan?.layout?.checkpoint).toBe('layernorm+act');
    const seconds = (['none', 'selective', 'full'] as const).map(
      (policy) => figures(asked, policy, false)?.seconds,
    );
    expect(seconds[0]).toBeUndefined();
    expect(plan?.seconds).toBeLessThan(Math.min(...seconds.map((t) => t ?? Infinity)));
  });
});

describe('modules of a stated layout', () => {
  const pricer = new LayoutPricer(TABLE);
  const price = (text: string, config: object): ReturnType<LayoutPricer['price']> =>
    pricer.price(question(config), parseLayout(text, 4));

  it('are read in any order, and what another covers is left out', () => {
    const read = (text: string): Checkpoint =>
      parseLayout(`dp=4,recompute=${text}`, 4).tuning.checkpoint;
    expect(read('moe_act+layernorm')).toBe('layernorm+moe_act');
    expect(read('core')).toBe('core_attn');
    expect(read('moe+moe_act+shared_experts+mla_up_proj')).toBe('mla_up_proj+moe');
    expect(() => read('layer_norm')).toThrow('recompute=layer_norm');
    expect(RECOMPUTE_MODULES.map((m) => read(m))).toEqual([...RECOMPUTE_MODULES]);
  });

  it('cost seconds and save bytes, and one that a model does not have is refused', async () => {
    const [none, light, both] = await Promise.all(
      ['none', 'layernorm+moe_act', 'layernorm+moe'].map((m) =>
        price(`dp=4,ep=4,recompute=${m}`, LATENT),
      ),
    );
    expect(light.memory.activationBytes).toBeLessThan(none.memory.activationBytes);
    expect(both.memory.activationBytes).toBeLessThan(light.memory.activationBytes);
    expect(light.seconds).toBeGreaterThan(none.seconds);
    // A layer of experts that is recomputed exchanges its tokens once more.
    expect(both.exchangeSeconds / none.exchangeSeconds).toBeCloseTo(1.5, 6);
    expect(light.exchangeSeconds).toBe(none.exchangeSeconds);
    await expect(price('dp=4,recompute=mla_up_proj', GATED)).rejects.toThrow('mla_up_proj');
    await expect(price('dp=4,recompute=moe_act', GATED)).rejects.toThrow('moe_act');
  });

  it('are named in the answer', () => {
    expect(recomputeText({ checkpoint: 'layernorm+act', unitsAgain: 28 }, 126)).toBe(
      'recomputation of layernorm and act in 28 of 128 units (layers, embedding, head)',
    );
  });
});
