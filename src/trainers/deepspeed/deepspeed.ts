/** The record of DeepSpeed. Source: the configuration of DeepSpeed 0.19. */
import { EAGER, MASTER } from '../framework.ts';
import type { Trainer } from '../trainer.ts';
import { readDeepspeed } from './read.ts';
import { deepspeedTarget } from './target.ts';

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
  reads: 'DeepSpeed JSON',
  formats: [
    {
      name: 'DeepSpeed',
      isJson: true,
      isIn: () => true,
      read: ({ text, setting }) => readDeepspeed(text, setting),
    },
  ],
  target: deepspeedTarget,
} as const satisfies Trainer;
