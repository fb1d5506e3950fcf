/**
 * The record of AutoParallel, which compiles a joint graph with the placements that it is given.
 * Source: the placements that AutoParallel saves.
 */
import type { Trainer } from '../trainer.ts';
import { autoparallelTarget } from './target.ts';

export const autoparallel = {
  id: 'autoparallel',
  title: 'AutoParallel',
  software: {},
  target: autoparallelTarget,
} as const satisfies Trainer;
