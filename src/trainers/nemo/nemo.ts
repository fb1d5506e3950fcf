/**
 * The record of NeMo with its AutoModel and Megatron-Bridge, whose configurations have the settings
 * of Megatron-Core. Sources: `ConfigContainer` and the performance recipes of Megatron-Bridge; the
 * recipes of NeMo.
 */
import { type Framework, MASTER } from '../framework.ts';
import { MEGATRON_CORE } from '../megatron/megatron.ts';
import type { Trainer } from '../trainer.ts';
import { readMegatronYaml } from './read.ts';

const NEMO: Framework = { ...MEGATRON_CORE, tensorOverlap: 1 };

export const nemo = {
  id: 'nemo',
  title: 'NeMo and Megatron-Bridge',
  software: {
    // It came before scales of present values.
    nemo: { ...NEMO, fp8Recipe: 'delayed' },
    /**
     * Its recipes load weights in 16 bits and run Adam on them, moments in 16 bits too; FSDP2
     * scatters gradients in float32.
     */
    'nemo-automodel': { ...NEMO, state: { parameter: 2, gradient: 2, optimizer: 4 } },
    /**
     * All of its performance recipes sum gradients in 16 bits (`grad_reduce_in_fp32 = False`); none
     * for the measured models recomputes layers: cheap modules, or nothing (published_runs.json).
     */
    'megatron-bridge': {
      ...NEMO,
      gradientBytes: 2,
      state: { ...MASTER, gradient: 2 },
      silentRecompute: ['none', 'modules'],
      // Blackwell recipes, by the notes of releases 0.5 and 0.5.1.
      wholeGraphs: { since: 26.06, devices: /^(GB|B)/ },
      // HybridEP.
      expertTokensOnceSince: 26,
      expertOverlap: true,
      offloadsActivations: /^GB/,
    },
  },
  reads: 'NeMo and Megatron-Bridge YAML',
  formats: [
    {
      name: 'NeMo or Megatron-Bridge',
      isIn: (text) =>
        /^\s*(tensor_model_parallel_size|pipeline_model_parallel_size|micro_batch_size):/m.test(
          text,
        ),
      read: ({ text, setting, yaml }) => readMegatronYaml(yaml(), text, setting),
      wantsCutTokens: true,
    },
  ],
} as const satisfies Trainer;
