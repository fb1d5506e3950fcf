/**
 * The record of Hugging Face Accelerate with transformers; what it starts (FSDP, DeepSpeed,
 * Megatron-LM) brings the software. Sources: Accelerate 1.15, transformers 5.
 */
import type { Trainer } from '../trainer.ts';
import { readAccelerate } from './read.ts';
import { hfTarget } from './target.ts';

const SETTINGS =
  /^(distributed_type|compute_environment|mixed_precision|num_processes|fsdp_config|parallelism_config):/m;

export const accelerate = {
  id: 'accelerate',
  title: 'Accelerate',
  release: 'accelerate 1.15',
  software: {},
  reads: 'Accelerate YAML',
  formats: [
    {
      name: 'Accelerate',
      isIn: (text) => SETTINGS.test(text),
      read: ({ text, setting, yaml }) => readAccelerate(yaml(), text, setting.file),
    },
  ],
  target: hfTarget,
} as const satisfies Trainer;
