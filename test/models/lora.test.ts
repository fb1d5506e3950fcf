import { readFileSync, writeFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';

import { afterAll, describe, expect, it } from 'vitest';

import { roleName } from '../../src/graph/nodes.ts';
import type { Graph } from '../../src/graph/types.ts';
import { buildModel, countParameters } from '../../src/models/build.ts';
import { readModelConfig } from '../../src/models/families.ts';
import { adapterConfig } from '../../src/models/low-rank.ts';
import type { JsonRecord } from '../../src/models/read-config.ts';
import { modelEntry } from '../../src/models/registry.ts';
import { builtinOperators } from '../../src/ops/builtin.ts';
import { programFlops } from '../../src/ops/program-flops.ts';
import type { Comparison } from '../../src/recipes/compare/comparison.ts';
import { cli } from '../cli/support.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { TINY } from './tiny.ts';

/** Low-rank adapters: what PEFT prints, and what their training step computes. */

const folder = temporaryFolder(afterAll);
const kept = async (value: Comparison): Promise<string> => {
  const file = join(folder, 'comparison.json');
  await writeFile(file, JSON.stringify(value));
  return file;
};

const withAdapters = (config: JsonRecord, lora: JsonRecord): ReturnType<typeof readModelConfig> =>
  readModelConfig({ ...config, adapter_config: lora });
const tiny = (lora: JsonRecord, type = 'llama'): ReturnType<typeof readModelConfig> =>
  withAdapters(TINY[type] as JsonRecord, lora);
const joint = (config: ReturnType<typeof readModelConfig>): Graph =>
  buildModel(config, { batch: 2, seq: 16, training: true });

describe('low-rank adapters', () => {
  // `print_trainable_parameters()` of PEFT for these models and targets.
  it.each([
    ['llama-2-7b', adapterConfig(8, ['q_proj', 'v_proj']), 4_194_304, 6_742_609_920],
    ['llama-2-7b', adapterConfig(16, ['q_proj', 'v_proj']), 8_388_608, 6_746_804_224],
    ['mistral-7b-v0.1', adapterConfig(16), 41_943_040, 7_283_675_136],
    ['llama-3.1-8b', adapterConfig(16), 41_943_040, 8_072_204_288],
  ])('%s trains as many parameters as with PEFT', (name, lora, trainable, total) => {
    const config = withAdapters(modelEntry(name).config, lora);
    const counts = countParameters(buildModel(config, { batch: 1, seq: 8 }), config);
    expect([counts.trainable, counts.total]).toEqual([trainable, total]);
  });

  it('gradients are of the adapters alone, and pass frozen weights once', () => {
    const table = builtinOperators();
    const config = tiny(adapterConfig(4));
    const graph = joint(config);
    const names = new Map(graph.nodes.map((node) => [node.name, roleName(node)]));
    const trained = graph.outputs.flatMap(({ role, of = '', value }) =>
      role === 'grad' && value !== null ? [names.get(of) ?? of] : [],
    );
    expect(trained).toHaveLength(2 * 7 * 2);
    expect(trained.every((name) => /\.lora_[AB]\.weight$/.test(name))).toBe(true);
    const plain = programFlops(joint(readModelConfig(TINY.llama as JsonRecord)), table);
    const { forward, backward } = programFlops(graph, table);
    const {
      hidden_size: h,
      intermediate_size: f,
      vocab_size: v,
    } = TINY.llama as {
      readonly [key: string]: number;
    };
    const tokens = 2 * 16;
    // q, k, v, o with two of four heads for keys; gate, up and down; the head.
    const products = 2 * tokens * (2 * (2 * h * h + h * h + 3 * h * f) + h * v);
    const adapters = 2 * tokens * 2 * 4 * (2 * h + 2 * (h + h / 2) + 2 * h + 2 * (h + f) + f + h);
    expect(forward - plain.forward).toBe(adapters);
    // No frozen weight has a gradient. Below the first layer nothing is trained, so that no
    // gradient of its inputs passes the weights of q, k, v there: A has its own.
    const first = 2 * tokens * (h * h + h * h + 4 * (h + h + h));
    expect(plain.backward - backward).toBe(products - 2 * adapters + first);
  });

  it('a config of PEFT is read, and what makes another program is refused', () => {
    const peft = {
      peft_type: 'LORA',
      r: 2,
      lora_alpha: 4,
      target_modules: ['o_proj'],
      bias: 'none',
    };
    const { total, trainable } = ((config) => countParameters(joint(config), config))(tiny(peft));
    expect(trainable).toBe(2 * 2 * (64 + 64));
    expect(total).toBeGreaterThan(trainable);
    for (const [more, at] of [
      [{ use_dora: true }, 'use_dora'],
      [{ bias: 'all' }, 'bias'],
      [{ peft_type: 'IA3' }, 'peft_type'],
      [{ modules_to_save: ['lm_head'] }, 'modules_to_save'],
      [{ target_modules: '.*_proj' }, 'target_modules'],
      [{ r: 0 }, 'r'],
    ] as const)
      expect(() => tiny({ ...peft, ...more })).toThrow(
        expect.objectContaining({
          message: expect.stringContaining(`$.adapter_config.${at}`) as string,
        }),
      );
    expect(() => joint(tiny(adapterConfig(2, ['wq'])))).toThrow(/no linear layer is named wq/);
  });

  it('routers and experts get none; shared layers of experts do', () => {
    const config = tiny(adapterConfig(2), 'deepseek_v3');
    const names = joint(config)
      .nodes.map(roleName)
      .filter((name) => name.includes('lora_A'));
    expect(names.some((name) => name.includes('shared_experts'))).toBe(true);
    expect(names.some((name) => /\.(gate|experts)\./.test(name))).toBe(false);
  });
});

describe('comparisons and plans with adapters', () => {
  const asked = async (...more: readonly string[]): Promise<Comparison> => {
    const size = ['--devices', '8', '--cluster', 'h100', '--plans', 'fsdp', '--threads', '1'];
    const run = await cli('compare', 'llama-3.1-8b', ...size, ...more, '--quiet', '--json');
    expect(run.code, run.err).toBe(0);
    return JSON.parse(run.out) as Comparison;
  };

  it('gradients and states are those of the adapters, the step takes less, and no range is printed', async () => {
    const [low, whole] = [await asked('--lora', '16'), await asked('--for', 'accelerate')];
    const { trainer, adapters, mfuConvention } = low.question!;
    expect(trainer).toBe('accelerate');
    const { trained, parameters } = adapters!;
    expect(trained).toBe(41_943_040);
    expect(mfuConvention).toContain('2 x matrix FLOPs');
    const [fsdp] = low.plans;
    const { parameterBytes, gradientBytes, optimizerBytes } = fsdp.layout!.memory;
    // An eighth of the adapters in float32 with two moments, and of all other weights as they are
    // stored. All are gathered once a step, as are the 64 frequencies of the rotation; gradients are
    // cut where they are made, for the step is one pass.
    expect(fsdp.layout!.gathersOnce).toBe(true);
    expect(gradientBytes).toBe((4 * trained) / 8);
    expect(optimizerBytes).toBe((8 * trained) / 8);
    const eighth = (4 * trained + 2 * (parameters - trained)) / 8;
    expect(parameterBytes).toBe(eighth + 2 * parameters + 4 * 64);
    // A third of the products of frozen weights is left out, and adapters cost less than that.
    const [full] = whole.plans;
    expect(fsdp.seconds / full.seconds).toBeGreaterThan(2 / 3);
    expect(fsdp.seconds / full.seconds).toBeLessThan(1);
    expect(fsdp.peakBytes).toBeLessThan(full.peakBytes);
    expect(fsdp.stepBand).toBeNull();
    expect(low.unsure).toContain('no measured runs');
    const shown = await cli('report', await kept(low), '--format', 'text');
    expect(shown.out).toContain('parameters are trained');
    expect(shown.out).toContain('No configuration of accelerate is written');
  }, 60_000);

  it('a trainer without adapters is refused, and so are other words', async () => {
    const ask = ['llama-3.2-1b', '--devices', '8', '--cluster', 'h100'];
    for (const [more, said] of [
      [['--lora', '8', '--for', 'megatron'], 'megatron: it trains no low-rank adapters'],
      [['--lora', 'all'], "--lora 'all' is neither a rank nor a file"],
      [['--lora', '8:wq'], 'no linear layer is named wq'],
    ] as const) {
      const { code, err } = await cli('compare', ...ask, ...more, '--quiet');
      expect([code, err]).toEqual([2, expect.stringContaining(said)]);
    }
    const file = await cli(
      'plan',
      'examples/mlp.ts',
      '--lora',
      '8',
      '--mesh',
      'dp=2',
      '--cluster',
      'h100',
    );
    expect([file.code, file.err]).toEqual([
      2,
      expect.stringContaining('--lora is for model names'),
    ]);
  });

  it('the sharded step of a tiny model gives the numbers of the whole one', async () => {
    const config = join(folder, 'config.json');
    writeFileSync(config, JSON.stringify({ ...TINY.llama, num_hidden_layers: 1 }));
    const size = ['--batch', '4', '--seq', '8', '--dtype', 'f32', '--mesh', 'dp=2,tp=2'];
    const plan = ['--recipe', 'dp+tp', '--cluster', 'h100', '--lora', '4', '-o', join(folder, 'p')];
    const made = await cli('plan', config, ...size, ...plan, '--quiet', '--no-recipes');
    expect(made.code, made.err).toBe(0);
    const { parameters } = JSON.parse(readFileSync(join(folder, 'p', 'plan.json'), 'utf8')) as {
      readonly parameters: readonly {
        readonly name: string;
        readonly placement: readonly string[] | string;
      }[];
    };
    const placed = (name: string): string =>
      [parameters.find((p) => p.name.endsWith(`${name}.weight`))?.placement].flat().join('');
    // B of a column weight is cut as its result, A of a row weight as its input; the others whole.
    expect(
      ['q_proj.lora_A', 'q_proj.lora_B', 'o_proj.lora_A', 'o_proj.lora_B'].map(placed),
    ).toEqual(['RR', 'RS(0)', 'RS(1)', 'RR']);
    const run = await cli('verify', join(folder, 'p'), '--json');
    expect(run.code, run.err).toBe(0);
    expect(JSON.parse(run.out)).toMatchObject({ mismatches: [] });
  }, 60_000);
});
