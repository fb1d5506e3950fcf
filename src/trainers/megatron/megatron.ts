/**
 * The record of Megatron-LM, with the generations of it that were measured. Source: the argument
 * parser of megatron-core 0.16.
 */
import { EAGER, type Framework, MASTER } from '../framework.ts';
import type { RunLayout, TrainerRuns } from '../runs.ts';
import type { Trainer } from '../trainer.ts';
import { isMegatronArguments, readMegatronArguments, readMegatronTest } from './arguments.ts';
import { MEGATRON_EDITS } from './edits.ts';
import { megatronLaunch } from './launch.ts';
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
  // The loss of a cut vocabulary: float32 logits become their own gradient, beside 16 bits of one
  // of them (`core/tensor_parallel/cross_entropy.py`).
  memory: { ...EAGER.memory, logitBytes: 6, groupedKeys: true, sharesInExperts: true },
  state: MASTER,
};

/** Parameters and gradients are cut by Megatron-FSDP, which is not for pipelines. */
function refuses({
  sizes,
  kind: { mode },
}: RunLayout): ReturnType<NonNullable<TrainerRuns['refuses']>> {
  if (sizes.pp === 1 || mode === 'dp' || mode === 'zero1') return undefined;
  return {
    setting: `pp=${sizes.pp} with zero=${mode === 'zero2' ? 2 : 3}`,
    nearest: ['zero=1', 'pp=1'],
  };
}

export const MEGATRON_RUNS: TrainerRuns = {
  source:
    'megatron-core 0.16.1: model_parallel_config.py, transformer_config.py ' +
    '(recompute_modules, cp_comm_type), pipeline_parallel/schedules.py; Megatron-FSDP: ' +
    'the developer guide of megatron-core (compatible with TP, EP and CP)',
  dims: ['pp', 'cp', 'tp', 'ep', 'etp'],
  modes: ['dp', 'zero1', 'zero2', 'fsdp', 'hsdp'],
  contexts: ['ring', 'cp', 'ulysses'],
  sequenceParallel: [true, false],
  schedules: ['1f1b', 'interleaved'],
  policies: ['none', 'full'],
  // It has no name for the activation of a dense feed-forward layer (`act`).
  modules: ['core_attn', 'layernorm', 'mla_up_proj', 'mlp', 'shared_experts', 'moe_act', 'moe'],
  gathersOnce: [false],
  pairsMicrobatches: true,
  // `fine_grained_activation_offloading` of transformer_config.py.
  offloads: true,
  refuses,
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
  profile: 'megatron-core',
  runs: MEGATRON_RUNS,
  reads: 'launch scripts, arguments and tests of Megatron-LM',
  formats: [
    {
      name: 'Megatron-LM arguments',
      isIn: isMegatronArguments,
      read: ({ text, setting }) => readMegatronArguments(text, setting),
      wantsCutTokens: true,
      edits: MEGATRON_EDITS,
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
