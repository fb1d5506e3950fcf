import { describe, expect, test } from 'vitest';

import { loadCluster } from '../../src/cost/hardware/load-cluster.ts';
import { frameworkSoftware } from '../../src/fidelity/software.ts';
import { parseModelConfig } from '../../src/models/families.ts';
import { builtinOperators } from '../../src/ops/builtin.ts';
import { compareModel } from '../../src/sweep/compare-model.ts';
import { checkLayout } from '../../src/sweep/layout/compare-layout.ts';
import { parseLayout } from '../../src/sweep/layout/parse-layout.ts';
import { LayoutPricer } from '../../src/sweep/layout/price-layout.ts';
import type { SweepQuestion } from '../../src/sweep/model/question.ts';
import { launchFiles } from '../../src/trainers/launch-files.ts';
import { readLayoutFile } from '../../src/trainers/read-layout-file.ts';
import { trainerNamed } from '../../src/trainers/trainers.ts';
import { FULL } from '../support/full.ts';

const SMALL = {
  hidden_size: 512,
  intermediate_size: 1024,
  num_attention_heads: 8,
  num_key_value_heads: 8,
  num_hidden_layers: 8,
  vocab_size: 1024,
  torch_dtype: 'bfloat16',
};
const CONFIGS = {
  dense: JSON.stringify({ model_type: 'llama', ...SMALL }),
  experts: JSON.stringify({
    model_type: 'mixtral',
    ...SMALL,
    num_local_experts: 8,
    num_experts_per_tok: 2,
  }),
};
/** A smaller batch has fewer sizes of microbatches, each of which is a program. */
const BATCH = FULL ? 8 : 4;
/** Each part of a plan, in every run; with `SHARDWRIGHT_FULL=1` every plan. */
const MIXED = ['dp', 'pp+zero1', 'fsdp+tp+sp', 'fsdp+cp', 'hsdp', 'fsdp+ep', 'fsdp+tp+sp+ep'];
const table = builtinOperators();

describe('every plan of a comparison for a trainer is written as it was priced', () => {
  // The best layouts of Megatron, torchtitan and Accelerate are read back in every run
  // (test/sweep/layout/tune.test.ts): here, one trainer whose file states all, and one that states
  // part of it.
  const each = [
    ['maxtext', 'experts'],
    ['deepspeed', 'dense'],
    ['megatron', 'dense'],
    ['torchtitan', 'dense'],
    ['accelerate', 'dense'],
    ['maxtext', 'dense'],
    ['nemo', 'dense'],
    ['megatron-bridge', 'experts'],
    ['megatron', 'experts'],
  ] as const;
  test.each(FULL ? each : each.slice(0, 2))(
    'for %s, a model with %s layers: its file and --layout give its seconds and bytes',
    async (trainer, kind) => {
      const config = CONFIGS[kind];
      const cluster = loadCluster('dgx-h100');
      const question: SweepQuestion = {
        model: 'small',
        config,
        devices: 4,
        cluster: cluster.id,
        sequence: 256,
        globalBatch: BATCH,
        cost: 'nccl',
        trainer,
        software: frameworkSoftware(trainerNamed(trainer, '--for').profile, cluster),
      };
      const compared = await compareModel(question, {
        table,
        threads: 1,
        whatIf: false,
        exhaustive: true,
        ...(FULL || kind === 'dense' ? {} : { plans: MIXED }),
      });
      const pricer = new LayoutPricer(table);
      // What their files cannot state is of the training script: no file is written then.
      const isPartial = trainer === 'deepspeed' || trainer === 'accelerate';
      let written = 0;
      expect(compared.plans.length).toBeGreaterThan(6);
      for (const plan of compared.plans) {
        const texts = [plan.layout?.stated ?? ''];
        const files = launchFiles(plan, compared);
        if (!isPartial) expect(files.length, plan.name).toBe(1);
        written += files.length;
        for (const { text, file } of files) {
          const model = parseModelConfig(config).architecture;
          const read = readLayoutFile(text, { file, devices: 4, model });
          const stated = [read.sequence, read.globalBatch].filter((n) => n !== undefined);
          expect([256, BATCH]).toEqual(expect.arrayContaining(stated));
          if (!isPartial) expect(stated).toEqual([256, BATCH]);
          texts.push(read.text);
        }
        for (const text of texts) {
          const layout = parseLayout(text, 4);
          checkLayout(question, layout);
          const { seconds, peakBytes } = await pricer.price(question, layout);
          expect(Math.abs(seconds / plan.seconds - 1), `${plan.name}: ${text}`).toBeLessThan(0.01);
          expect(Math.abs(peakBytes / plan.peakBytes - 1), `${plan.name}: ${text}`).toBeLessThan(
            0.01,
          );
        }
      }
      expect(written).toBeGreaterThan(isPartial ? 0 : 6);
    },
    120_000,
  );
});
