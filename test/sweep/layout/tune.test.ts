import { describe, expect, test } from 'vitest';

import { loadCluster } from '../../../src/cost/hardware/load-cluster.ts';
import { frameworkSoftware } from '../../../src/fidelity/software.ts';
import { parseModelConfig } from '../../../src/models/families.ts';
import { builtinOperators } from '../../../src/ops/builtin.ts';
import { questionOf } from '../../../src/sweep/layout/compare-layout.ts';
import { parseLayout } from '../../../src/sweep/layout/parse-layout.ts';
import { LayoutPricer } from '../../../src/sweep/layout/price-layout.ts';
import { tuneFile } from '../../../src/sweep/layout/tune-file.ts';
import type { SweepQuestion } from '../../../src/sweep/model/question.ts';
import { readLayoutFile } from '../../../src/trainers/read-layout-file.ts';
import { trainerNamed } from '../../../src/trainers/trainers.ts';
import { FULL } from '../../support/full.ts';

const CONFIG = JSON.stringify({
  model_type: 'llama',
  hidden_size: 2048,
  intermediate_size: 8192,
  num_attention_heads: 16,
  num_key_value_heads: 16,
  num_hidden_layers: 8,
  vocab_size: 32000,
  torch_dtype: 'bfloat16',
});
const DEVICES = 4;
const table = builtinOperators();

const FILES: Readonly<Record<string, string>> = {
  torchtitan: `# my run
[training]
local_batch_size = 1   # per GPU
seq_len = 2048

[parallelism]
data_parallel_shard_degree = -1
tensor_parallel_degree = 2   # why not

[activation_checkpoint]
mode = "full"  # to be safe
`,
  accelerate: `# accelerate config
distributed_type: FSDP
mixed_precision: bf16
fsdp_config:
  fsdp_version: 2
  fsdp_activation_checkpointing: true # safe
  fsdp_reshard_after_forward: true
num_processes: 4
`,
  deepspeed: `{
  // mine
  "train_micro_batch_size_per_gpu": 1,
  "gradient_accumulation_steps": 2,
  "bf16": { "enabled": true },
  "zero_optimization": { "stage": 3, "overlap_comm": true },
  "tensor_parallel": { "autotp_size": 2 }
}
`,
  megatron: `#!/bin/bash
TP=2
torchrun --nproc_per_node 4 pretrain_gpt.py \\
  --tensor-model-parallel-size $TP \\
  --pipeline-model-parallel-size 1 \\
  --sequence-parallel \\
  --micro-batch-size 1 --global-batch-size 16 \\
  --seq-length 2048 \\
  --bf16 \\
  --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 \\
  --use-distributed-optimizer
`,
  nemo: `model:
  tensor_model_parallel_size: 2  # wide
  pipeline_model_parallel_size: 1
  sequence_parallel: true
  recompute_granularity: full
  recompute_method: uniform
  recompute_num_layers: 1
train:
  micro_batch_size: 1
  global_batch_size: 16
dataset:
  seq_length: 2048
ddp:
  use_distributed_optimizer: true
mixed_precision: bf16
`,
  maxtext: `base_config: base.yml
ici_tensor_parallelism: 2  # why not
per_device_batch_size: 1
max_target_length: 2048
remat_policy: full
`,
};

interface TunedFile {
  readonly answer: Awaited<ReturnType<typeof tuneFile>>['tuned'];
  readonly edited: string;
  readonly again: { readonly seconds: number; readonly peakBytes: number };
}

const asked = new Map<string, Promise<TunedFile>>();
function tuned(trainer: string): Promise<TunedFile> {
  const known = asked.get(trainer) ?? tunedFile(trainer, FILES[trainer]);
  asked.set(trainer, known);
  return known;
}

/** The answer for a file, and the price of the edited file as `--layout` has it. */
async function tunedFile(trainer: string, text: string): Promise<TunedFile> {
  const { profile } = trainerNamed(trainer, '--for');
  const setting = {
    file: 'mine',
    devices: DEVICES,
    model: parseModelConfig(CONFIG).architecture,
  };
  const read = readLayoutFile(text, setting);
  const question: SweepQuestion = {
    model: 'small',
    config: CONFIG,
    devices: DEVICES,
    cluster: 'dgx-h100',
    sequence: read.sequence ?? 2048,
    globalBatch: read.globalBatch ?? 16,
    cost: 'nccl',
    trainer,
    software: frameworkSoftware(profile, loadCluster('dgx-h100')),
  };
  const layout = parseLayout(read.text, DEVICES);
  const { tuned: answer, text: edited } = await tuneFile(
    question,
    { file: 'mine', text, layout, notPriced: read.notPriced },
    { table, risk: 0.9, ...(read.runs === undefined ? {} : { runs: read.runs }) },
  );
  const back = readLayoutFile(edited, setting);
  expect(back.globalBatch ?? question.globalBatch).toBe(question.globalBatch);
  const stated = parseLayout(back.text, DEVICES);
  const again = await new LayoutPricer(table).price(questionOf(question, stated), stated);
  return { answer, edited, again };
}

describe('tune', () => {
  const written = FULL ? Object.keys(FILES) : ['torchtitan', 'megatron', 'accelerate'];
  test.each(written)(
    'writes for %s a file that has the seconds and bytes of the best layout when it is read back',
    async (trainer) => {
      const { answer, edited, again } = await tuned(trainer);
      const { best, current } = answer;
      if (best === null) throw new Error('nothing fits');
      expect(again.seconds).toBeCloseTo(best.stepSeconds, 12);
      expect(again.peakBytes).toBe(best.peakBytes);
      expect(best.stepSeconds).toBeLessThan(current.stepSeconds);
      expect(best.fitProbability).toBeGreaterThanOrEqual(0.9);
      for (const change of answer.changes) {
        expect(change.stepSeconds).toBeGreaterThanOrEqual(best.stepSeconds);
        expect(change.stepSeconds).toBeLessThan(current.stepSeconds);
      }
      // Every comment of the file is there, and every line that has no setting of the layout.
      const comments = FILES[trainer].match(/(#|\/\/) .*/g) ?? [];
      for (const comment of comments) expect(edited).toContain(comment);
      const lines = new Set(edited.split('\n'));
      const gone = FILES[trainer].split('\n').filter((line) => !lines.has(line));
      expect(gone.length).toBeLessThan(7);
    },
    60_000,
  );

  test('names two settings where they beat every single one', async () => {
    const { answer } = await tuned('torchtitan');
    for (const pair of answer.pairs) {
      expect(pair.set.split(', ')).toHaveLength(2);
      expect(pair.stepSeconds).toBeLessThan(answer.changes[0].stepSeconds);
    }
    expect(answer.changes.map(({ set }) => set)).toContain('recompute=none');
  }, 60_000);
});
