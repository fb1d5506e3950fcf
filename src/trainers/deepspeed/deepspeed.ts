/** The record of DeepSpeed. Source: the configuration of DeepSpeed 0.19. */
import { EAGER, MASTER } from '../framework.ts';
import type { TrainerRuns } from '../runs.ts';
import type { Trainer } from '../trainer.ts';
import { DEEPSPEED_EDITS } from './edits.ts';
import { deepspeedLaunch } from './launch.ts';
import { readDeepspeed } from './read.ts';
import { deepspeedTarget } from './target.ts';

const RUNS: TrainerRuns = {
  source:
    'deepspeed 0.19.8: runtime/config.py (sequence_parallel_size, autotp_size, autoep_size), ' +
    'runtime/zero/config.py (stage, mics_shard_size); its pipelines are programs of ' +
    'PipelineModule, which no configuration states',
  dims: ['cp', 'tp', 'ep'],
  modes: ['dp', 'zero1', 'zero2', 'fsdp', 'hsdp'],
  contexts: ['ulysses'],
  sequenceParallel: [false],
  schedules: [],
  policies: ['none', 'full'],
  modules: [],
  gathersOnce: [false],
  pairsMicrobatches: false,
};

export const deepspeed = {
  id: 'deepspeed',
  title: 'DeepSpeed',
  release: 'deepspeed 0.19.8',
  software: {
    /**
     * Stage 3 keeps 16-bit weights in addition to the master copy, and scatters gradients in 16
     * bits (`communication_data_type`).
     */
    deepspeed: {
      ...EAGER,
      recomputesWhole: true,
      gradientBytes: 2,
      state: { ...MASTER, gradient: 2 },
    },
  },
  profile: 'deepspeed',
  adapters: 'PEFT: docs/source/accelerate/deepspeed.md',
  runs: RUNS,
  reads: 'DeepSpeed JSON',
  formats: [
    {
      name: 'DeepSpeed',
      isJson: true,
      isIn: () => true,
      read: ({ text, setting }) => readDeepspeed(text, setting),
      edits: DEEPSPEED_EDITS,
    },
  ],
  writeLaunch: deepspeedLaunch,
  target: deepspeedTarget,
} as const satisfies Trainer;
