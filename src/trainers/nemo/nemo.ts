/**
 * The record of NeMo, whose configurations have the settings of Megatron-Core. Source: the recipes
 * of NeMo.
 */
import { type Framework, MASTER } from '../framework.ts';
import { MEGATRON_CORE, MEGATRON_RUNS } from '../megatron/megatron.ts';
import type { ConfigFormat, Trainer } from '../trainer.ts';
import { NEMO_EDITS } from './edits.ts';
import { megatronYaml } from './launch.ts';
import { readMegatronYaml } from './read.ts';

export const NEMO: Framework = { ...MEGATRON_CORE, tensorOverlap: 1 };

/** Dumps of NeMo and of Megatron-Bridge have the same names. */
export const MEGATRON_YAML: ConfigFormat = {
  name: 'NeMo or Megatron-Bridge',
  isIn: (text) =>
    /^\s*(tensor_model_parallel_size|pipeline_model_parallel_size|micro_batch_size):/m.test(text),
  read: ({ text, setting, yaml }) => readMegatronYaml(yaml(), text, setting),
  wantsCutTokens: true,
  edits: NEMO_EDITS,
};

export const nemo = {
  id: 'nemo',
  title: 'NeMo',
  software: {
    // It came before scales of present values. Its performance recipes sum and keep gradients in 16
    // bits (`grad_reduce_in_fp32 = False`).
    nemo: {
      ...NEMO,
      fp8Recipe: 'delayed',
      gradientBytes: 2,
      state: { ...MASTER, gradient: 2 },
    },
  },
  profile: 'nemo',
  adapters: 'NeMo: collections/llm/peft/lora.py',
  runs: MEGATRON_RUNS,
  reads: 'NeMo YAML',
  formats: [MEGATRON_YAML],
  writeLaunch: (layout) => megatronYaml(layout, 'NeMo', 'nemo.yaml'),
} as const satisfies Trainer;
