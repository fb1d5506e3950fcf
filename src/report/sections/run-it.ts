/**
 * Makes the section that says how to run the best plan of a comparison: the configuration of each
 * trainer, and what differs there.
 */

import type { Comparison } from '../../recipes/compare/comparison.ts';
import { launchFiles } from '../../trainers/launch-files.ts';
import type { Section } from '../model/blocks.ts';

export function runItSection(c: Comparison): Section[] {
  const best = c.plans.find((p) => p.name === c.best);
  const files = best === undefined ? [] : launchFiles(best, c);
  if (files.length === 0) return [];
  const held = c.held;
  const hosts =
    held === undefined
      ? ''
      : ` torchrun --nnodes ${held.hosts} --nproc-per-node ${held.usedPerHost} starts a ` +
        'process on each device.';
  return [
    {
      id: 'run-it',
      title: 'Run it',
      sheet: true,
      blocks: [
        {
          kind: 'text',
          text:
            'The layout of the best plan as trainers take it. Model, data, optimizer and ' +
            `tokenizer are yours to add.${hosts}`,
        },
        ...files.flatMap(({ trainer, file, text }) => [
          { kind: 'heading' as const, text: `${trainer}: ${file}` },
          { kind: 'code' as const, text: text.trimEnd() },
        ]),
      ],
    },
  ];
}
