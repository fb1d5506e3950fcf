/**
 * The record of our own PyTorch program (`export --target torch`, and the Python package): every
 * placement that the planner finds is run, call by call.
 */
import { EAGER, MASTER } from '../framework.ts';
import { RUNS_ALL } from '../runs.ts';
import type { Trainer } from '../trainer.ts';

export const shardwright = {
  id: 'shardwright',
  title: 'the program of shardwright',
  software: {
    /** 16 bytes a parameter: weights and gradients in 16 bits, a float32 copy and two moments. */
    shardwright: { ...EAGER, gradientBytes: 2, state: { ...MASTER, gradient: 2 } },
  },
  profile: 'shardwright',
  adapters: 'the plan itself is the program',
  runs: { ...RUNS_ALL, source: 'the plan itself is the program' },
} as const satisfies Trainer;
