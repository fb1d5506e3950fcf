/** The record of torchtitan. Sources: `JobConfig` of 0.2.1, `torchtitan.config` of 0.3.0. */
import { EAGER } from '../framework.ts';
import type { Trainer } from '../trainer.ts';
import { TORCHTITAN_RUNS, torchtitanLaunch } from './launch.ts';
import { readTorchtitanPython, readTorchtitanToml } from './read.ts';
import { torchtitanTarget } from './target.ts';

export const torchtitan = {
  id: 'torchtitan',
  title: 'torchtitan',
  release: 'torchtitan 0.3.0',
  software: { torchtitan: { ...EAGER, microbatchOfEachStage: { until: 2025 } } },
  runs: TORCHTITAN_RUNS,
  reads: 'torchtitan TOML and Python',
  formats: [
    {
      name: 'torchtitan',
      isIn: (text) =>
        /\bParallelismConfig\b|\.parallelism\.\w+\s*=|\btorchtitan\b.*\bimport\b/.test(text),
      read: ({ text, setting: { file, configuration } }) =>
        readTorchtitanPython(text, file, configuration),
    },
    {
      name: 'torchtitan',
      isIn: (text) => /^\s*\[(parallelism|training|job)\]/m.test(text),
      read: ({ text, setting: { file } }) => readTorchtitanToml(text, file),
    },
  ],
  writeLaunch: torchtitanLaunch,
  target: torchtitanTarget,
} as const satisfies Trainer;
