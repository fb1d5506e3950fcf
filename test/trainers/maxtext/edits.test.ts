import { expect, test } from 'vitest';

import type { EditedLayout } from '../../../src/trainers/layout/edited-layout.ts';
import { MAXTEXT_EDITS } from '../../../src/trainers/maxtext/edits.ts';
import { readLayoutFile } from '../../../src/trainers/read-layout-file.ts';
import { layoutModel } from '../layout-model.ts';

const HEAD = 'base_config: base.yml\nmax_target_length: 4096\n';
const ONE = { pp: 1, dp_replicate: 1, dp_shard: 1, cp: 1, tp: 1, ep: 1, etp: 1 };

/** A layout on 32 devices with full recomputation. */
function layout(
  sizes: Partial<EditedLayout['sizes']>,
  kind: Partial<EditedLayout['kind']>,
  more: { readonly microbatch?: number; readonly microbatches?: number } = {},
): EditedLayout {
  const { microbatch = 1, microbatches = 1 } = more;
  return {
    sizes: { ...ONE, ...sizes },
    kind: { mode: 'fsdp', context: 'cp', sequenceParallel: false, ...kind },
    tuning: { microbatch, schedule: 'gpipe', chunks: 1, checkpoint: 'full', once: false },
    layers: 32,
    microbatches,
    globalBatch: 32,
  };
}

/** The settings that are written into a file, and the layout that MaxText takes from them. */
function writtenAndRead(asked: EditedLayout, text = HEAD): string {
  const settings = MAXTEXT_EDITS.settings(asked, text);
  if (settings === undefined) return 'not stated';
  const file = MAXTEXT_EDITS.edit(text, settings);
  return readLayoutFile(file, { file: 'run.yml', devices: 32, model: layoutModel() }).text;
}

test.each<[string, EditedLayout]>([
  ['dp=32,mbs=2,zero=3,reshard=1,recompute=full', layout({ dp_shard: 32 }, {}, { microbatch: 2 })],
  [
    'dp=8,tp=4,sp=0,mbs=4,zero=3,reshard=1,recompute=full',
    layout({ dp_shard: 8, tp: 4 }, {}, { microbatch: 4 }),
  ],
  [
    'dp=8,tp=4,sp=1,mbs=4,zero=3,reshard=1,recompute=full',
    layout({ dp_shard: 8, tp: 4 }, { sequenceParallel: true }, { microbatch: 4 }),
  ],
  [
    'dp=8,cp=4,mbs=4,zero=3,reshard=1,recompute=full,context=ring',
    layout({ dp_shard: 8, cp: 4 }, { context: 'ring' }, { microbatch: 4 }),
  ],
  [
    'pp=4,dp=8,mbs=1,zero=3,reshard=1,recompute=full,schedule=gpipe',
    layout({ dp_shard: 8, pp: 4 }, {}, { microbatches: 8 }),
  ],
  ['dp=32,mbs=1,zero=1,recompute=full', layout({ dp_shard: 32 }, { mode: 'zero1' })],
])('a file of MaxText that is written for %s is read as that', (text, asked) => {
  expect(writtenAndRead(asked)).toBe(text);
});

test('degrees between slices stay, and what they do not divide is not stated', () => {
  const between = `${HEAD}dcn_fsdp_parallelism: 2\n`;
  expect(MAXTEXT_EDITS.settings(layout({ dp_shard: 32 }, {}), between)).toMatchObject({
    ici_fsdp_parallelism: 16,
  });
  expect(writtenAndRead(layout({ dp_shard: 32 }, {}, { microbatch: 2 }), between)).toBe(
    'dp=32,mbs=2,zero=3,reshard=1,recompute=full',
  );
  expect(
    writtenAndRead(layout({ dp_shard: 8, tp: 4 }, {}), `${HEAD}dcn_tensor_parallelism: 3\n`),
  ).toBe('not stated');
  expect(writtenAndRead(layout({ dp_shard: 32 }, { mode: 'zero2' }))).toBe('not stated');
});
