/**
 * The record of Megatron-LM, with the generations of it that were measured. Source: the argument
 * parser of megatron-core 0.16.
 */
import { EAGER, type Framework, MASTER } from '../framework.ts';
import type { Trainer } from '../trainer.ts';
import { isMegatronArguments, readMegatronArguments, readMegatronTest } from './arguments.ts';
import { MEGATRON_RUNS, megatronLaunch } from './launch.ts';
import { megatronTarget } from './target.ts';

/** Megatron-LM before FlashAttention, and what was built on it. */
const MEGATRON_2022: Framework = {
  ...EAGER,
  flashAttention: false,
  fusedPointwise: true,
  fusedProjections: true,
  recomputesWhole: true,
  overlap: false,
  dropout: true,
  gradientBytes: 4,
  // One buffer of all gradients, summed behind the backward pass.
  bucket: { elements: Infinity, perRank: 0 },
  state: MASTER,
};
export const MEGATRON_CORE: Framework = {
  ...EAGER,
  vendorKernels: true,
  fusedPointwise: true,
  fusedProjections: true,
  recomputesWhole: true,
  savesNarrow: true,
  gradientBytes: 4,
  // DistributedDataParallelConfig: max(40e6, 1e6 x ranks) elements.
  bucket: { elements: 40e6, perRank: 1e6 },
  state: MASTER,
};

export const megatron = {
  id: 'megatron',
  title: 'Megatron-LM',
  release: 'megatron-core 0.16.1',
  software: {
    'megatron-lm': MEGATRON_2022,
    /** DeepSpeed's stage 0 and 1 sum gradients in 16 bits. */
    'megatron-deepspeed': {
      ...MEGATRON_2022,
      gradientBytes: 2,
      // `reduce_bucket_size` and `allgather_bucket_size`.
      bucket: { elements: 5e8, perRank: 0 },
      state: { ...MASTER, gradient: 2 },
    },
    'megatron-core': MEGATRON_CORE,
  },
  runs: MEGATRON_RUNS,
  reads: 'launch scripts, arguments and tests of Megatron-LM',
  formats: [
    {
      name: 'Megatron-LM arguments',
      isIn: isMegatronArguments,
      read: ({ text, setting }) => readMegatronArguments(text, setting),
      wantsCutTokens: true,
    },
    {
      name: 'test of Megatron-LM',
      isIn: (text) => /^MODEL_ARGS:/m.test(text),
      read: ({ text, setting, yaml }) => readMegatronTest(yaml(), text, setting),
      wantsCutTokens: true,
    },
  ],
  writeLaunch: megatronLaunch,
  target: megatronTarget,
} as const satisfies Trainer;
