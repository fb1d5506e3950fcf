import { describe, expect, test } from 'vitest';

import { parseLayout } from '../../src/sweep/layout/parse-layout.ts';
import type { LaunchFile } from '../../src/trainers/layout/launched-layout.ts';
import { readLayoutFile } from '../../src/trainers/read-layout-file.ts';
import { type Asked, BATCH, launched, LAYERS } from './launched.ts';
import { layoutModel } from './layout-model.ts';

const CASES: readonly Asked[] = [
  { sizes: { dp_shard: 64 }, mode: 'fsdp', more: { checkpoint: 'full', unitsAgain: 16 } },
  {
    sizes: { dp_shard: 8, tp: 8 },
    mode: 'zero1',
    sequenceParallel: true,
    more: { checkpoint: 'core_attn' },
  },
  { sizes: { dp_shard: 4, tp: 2 }, mode: 'zero2' },
  { sizes: { dp_shard: 16 }, mode: 'dp' },
  { sizes: { dp_replicate: 4, dp_shard: 8, tp: 2 }, mode: 'hsdp', sequenceParallel: true },
  { sizes: { dp_shard: 4, cp: 4 }, mode: 'fsdp', context: 'ring' },
  { sizes: { dp_shard: 4, cp: 4 }, mode: 'fsdp', context: 'cp' },
  { sizes: { dp_shard: 4, cp: 4 }, mode: 'fsdp', context: 'ulysses' },
  {
    sizes: { pp: 4, dp_shard: 4, tp: 4 },
    mode: 'zero1',
    sequenceParallel: true,
    more: { schedule: 'interleaved', chunks: 2 },
  },
  {
    sizes: { pp: 4, dp_shard: 4, tp: 4 },
    mode: 'fsdp',
    sequenceParallel: true,
    more: { microbatch: 1 },
  },
  { sizes: { dp_shard: 16, tp: 2, ep: 8 }, mode: 'fsdp', sequenceParallel: true },
  {
    sizes: { pp: 2, dp_shard: 16, tp: 2, ep: 8, etp: 2 },
    mode: 'zero1',
    sequenceParallel: true,
    more: { chunks: 2, schedule: 'interleaved', pairsMicrobatches: true },
  },
];

/** What `--layout` understands of a file. */
function readBack(
  { text, file, trainer }: LaunchFile,
  devices: number,
  routed: boolean,
): ReturnType<typeof parseLayout> {
  const read = readLayoutFile(text, {
    file,
    devices,
    model: layoutModel({ layers: LAYERS, routed }),
  });
  // Sequences of DeepSpeed are of the training script.
  expect(read.sequence).toBe(trainer === 'DeepSpeed' ? undefined : 8192);
  expect(read.globalBatch).toBe(BATCH);
  return parseLayout(read.text, devices);
}

describe('launch configurations of a compared plan', () => {
  test.each(CASES)('what a trainer is told reads back as the layout: %j', (asked) => {
    const { files, devices } = launched(asked);
    const {
      sizes = {},
      mode = 'dp',
      context = 'ring',
      sequenceParallel = false,
      more = {},
    } = asked;
    const checked = files.filter(({ trainer }) => trainer !== 'MaxText');
    // Megatron-LM has all of these.
    expect(checked.map(({ trainer }) => trainer)).toContain('Megatron-LM');
    for (const file of checked) {
      const { sizes: own, kind, tuning } = readBack(file, devices, (sizes.ep ?? 1) > 1);
      expect(own).toEqual({ pp: 1, dp_replicate: 1, dp_shard: 1, cp: 1, tp: 1, ep: 1, ...sizes });
      expect(kind.mode).toBe(mode);
      if ((sizes.cp ?? 1) > 1) expect(kind.context).toBe(context);
      expect(kind.sequenceParallel).toBe(sequenceParallel);
      expect(tuning).toMatchObject({
        microbatch: more.microbatch ?? 2,
        chunks: more.chunks ?? 1,
        checkpoint: more.checkpoint ?? 'none',
        schedule: more.schedule ?? '1f1b',
      });
      expect(tuning.paired ?? false).toBe(more.pairsMicrobatches ?? false);
    }
  });

  test('the dims of MaxText make up the devices, on host links no more than a host has', () => {
    for (const asked of CASES) {
      const { files, devices } = launched(asked);
      const maxtext = files.find(({ trainer }) => trainer === 'MaxText');
      if (maxtext === undefined) continue;
      const sizes = [...maxtext.text.matchAll(/^(ici|dcn)_\w+_parallelism: (\d+)$/gm)];
      const product = (kind: string): number =>
        sizes.filter(([, k]) => k === kind).reduce((n, [, , size]) => n * Number(size), 1);
      expect(product('ici') * product('dcn')).toBe(devices);
    }
  });

  test.each([
    ['a schedule', { sizes: { pp: 2, dp_shard: 8 }, more: { schedule: 'zb-h1' } }],
    ['a ring and ZeRO-1', { sizes: { dp_shard: 8, cp: 2 }, mode: 'zero1' }],
    [
      'some layers recomputed',
      { sizes: { dp_shard: 16 }, mode: 'fsdp', more: { checkpoint: 'full', unitsAgain: 5 } },
    ],
    ['operators recomputed', { sizes: { dp_shard: 16 }, more: { checkpoint: 'selective' } }],
  ] satisfies [string, Asked][])('no file is written that means another layout: %s', (_, asked) => {
    const { files } = launched({ ...asked, trainer: 'torchtitan' });
    expect(files).toEqual([]);
  });

  test('the trainer that was asked for is written alone', () => {
    const asked: Asked = { sizes: { dp_shard: 64 }, mode: 'fsdp', more: { checkpoint: 'full' } };
    expect(launched(asked).files.map(({ trainer }) => trainer)).toEqual([
      'Megatron-LM',
      'torchtitan',
      'NeMo',
      'Megatron-Bridge',
      'MaxText',
    ]);
    for (const [trainer, title] of [
      ['megatron', 'Megatron-LM'],
      ['maxtext', 'MaxText'],
    ])
      expect(launched({ ...asked, trainer }).files.map((file) => file.trainer)).toEqual([title]);
    expect(launched({ ...asked, trainer: 'deepspeed' }).files).toEqual([]);
  });

  test('a free plan is launched where its placements are those of a recipe', () => {
    const free = launched({ sizes: { dp_shard: 8, tp: 4 }, mode: 'fsdp', plan: 'fsdp+optimum' });
    expect(free.files).toEqual([]);
    const placed = launched({
      sizes: { dp_shard: 8, tp: 4 },
      plan: 'fsdp+optimum',
      more: { placements: 'fsdp+tp on dp=8,tp=4' },
    });
    expect(placed.files[0].text).not.toContain('--sequence-parallel');
  });
});
