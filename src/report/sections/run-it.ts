/**
 * Makes the section that says how to run the best plan of a comparison: the configuration of the
 * trainer that was asked for, and the layout as `--layout` takes it.
 */

import type { Comparison } from '../../recipes/compare/comparison.ts';
import { launchFiles } from '../../trainers/launch-files.ts';
import type { Block, Section } from '../model/blocks.ts';

export function runItSection(c: Comparison): Section[] {
  const best = c.plans.find((p) => p.name === c.best);
  const files = best === undefined ? [] : launchFiles(best, c);
  const stated = best?.layout?.stated;
  if (files.length === 0 && stated === undefined) return [];
  const held = c.held;
  const hosts =
    held === undefined
      ? ''
      : ` torchrun --nnodes ${held.hosts} --nproc-per-node ${held.usedPerHost} starts a ` +
        'process on each device.';
  const what =
    files.length === 0
      ? `No configuration of ${c.question?.trainer ?? 'a trainer'} is written.`
      : 'What was priced, as trainers take it. Model, data, optimizer and tokenizer are yours ' +
        `to add.${hosts}`;
  return [
    {
      id: 'run-it',
      title: 'Run it',
      sheet: true,
      blocks: [
        { kind: 'text', text: what },
        ...files.flatMap(({ trainer, file, text }): Block[] => [
          { kind: 'heading', text: `${trainer}: ${file}` },
          { kind: 'code', text: text.trimEnd() },
        ]),
        ...(stated === undefined
          ? []
          : [
              { kind: 'heading', text: 'The layout as compare --layout takes it' } as const,
              { kind: 'code', text: stated } as const,
            ]),
      ],
    },
  ];
}
