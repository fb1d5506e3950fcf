/**
 * The record of AutoParallel, which compiles a joint graph with the placements that it is given.
 * Source: the placements that AutoParallel saves.
 */
import { RUNS_ALL } from '../runs.ts';
import type { Trainer } from '../trainer.ts';
import { autoparallelTarget } from './target.ts';

export const autoparallel = {
  id: 'autoparallel',
  title: 'AutoParallel',
  software: {},
  runs: { ...RUNS_ALL, dims: ['tp'], source: 'the placements of a graph on a mesh' },
  target: autoparallelTarget,
} as const satisfies Trainer;
