/**
 * The record of Hugging Face Accelerate with transformers: FSDP2 with float32 parameters, which it
 * casts for the products. Sources: Accelerate 1.15, transformers 5.
 */
import { EAGER } from '../framework.ts';
import type { RunLayout, TrainerRuns } from '../runs.ts';
import type { Trainer } from '../trainer.ts';
import { ACCELERATE_EDITS } from './edits.ts';
import { accelerateLaunch } from './launch.ts';
import { readAccelerate } from './read.ts';
import { hfTarget } from './target.ts';

const SETTINGS =
  /^(distributed_type|compute_environment|mixed_precision|num_processes|fsdp_config|parallelism_config):/m;

/** `ParallelismConfig` refuses ranks of tensors or of the sequence beside whole replicas. */
function refuses({
  sizes: { cp, tp },
  kind: { mode },
}: RunLayout): ReturnType<NonNullable<TrainerRuns['refuses']>> {
  if (mode !== 'dp' || tp * cp === 1) return undefined;
  return { setting: `zero=0 with ${tp > 1 ? `tp=${tp}` : `cp=${cp}`}`, nearest: ['zero=3'] };
}

const RUNS: TrainerRuns = {
  source:
    'Accelerate 1.15.0: parallelism_config.py, utils/dataclasses.py ' +
    '(FullyShardedDataParallelPlugin: fsdp_version 2)',
  dims: ['cp', 'tp'],
  modes: ['dp', 'fsdp', 'hsdp'],
  contexts: ['cp', 'ring'],
  // The tensor-parallel plans of transformers leave the residual stream whole.
  sequenceParallel: [false],
  schedules: [],
  policies: ['none', 'full'],
  modules: [],
  gathersOnce: [true, false],
  pairsMicrobatches: false,
  refuses,
};

/** A file may also start DeepSpeed or Megatron-LM, which bring what these run. */
const RUNS_FILE: TrainerRuns = {
  ...RUNS,
  dims: ['pp', 'cp', 'tp'],
  modes: ['dp', 'zero1', 'zero2', 'fsdp', 'hsdp'],
  contexts: ['cp', 'ring', 'ulysses'],
  sequenceParallel: [false, true],
  schedules: ['1f1b'],
  modules: ['core_attn'],
};

export const accelerate = {
  id: 'accelerate',
  title: 'Accelerate',
  release: 'accelerate 1.15',
  software: { accelerate: EAGER },
  profile: 'accelerate',
  adapters: 'PEFT: docs/source/accelerate/fsdp.md',
  runs: RUNS,
  reads: 'Accelerate YAML',
  formats: [
    {
      name: 'Accelerate',
      isIn: (text) => SETTINGS.test(text),
      read: ({ text, setting, yaml }) => readAccelerate(yaml(), text, setting.file),
      runs: RUNS_FILE,
      edits: ACCELERATE_EDITS,
    },
  ],
  writeLaunch: accelerateLaunch,
  target: hfTarget,
} as const satisfies Trainer;
