import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

import { describe, expect, test } from 'vitest';

import {
  CONFIG_RECORD,
  CONFIG_TARGETS,
  configFiles,
  type ConfigRecord,
} from '../export/config-record.ts';
import { hashOf } from '../export/jax-record.ts';
import { megatronSource } from '../export/recipe-plans.ts';
import { type Asked, launched } from '../trainers/launched.ts';
import { runPython } from './support/torch.ts';

/**
 * Configurations of a Llama plan (data parallel over dp, Megatron over tp) read by the packages
 * that they are for, which `scripts/test-engines.sh` installs. Under another Python, a package that
 * it does not have is named and left out; `SHARDWRIGHT_RECORD=1` writes the answers when all are
 * there.
 */
type Answer =
  | { readonly version: string; readonly made: unknown }
  | { readonly missing: string }
  | { readonly error: string };

const folder = mkdtempSync(join(tmpdir(), 'shardwright-configs-'));
const source = await megatronSource();
const files = configFiles(source);
for (const { name, text } of files) {
  mkdirSync(dirname(join(folder, name)), { recursive: true });
  writeFileSync(join(folder, name), text);
}
writeFileSync(join(folder, 'world'), String(source.mesh.size));
const answers = JSON.parse(
  runPython('read_configs.py', [folder]).split('\n').at(-1) ?? '',
) as Record<string, Answer>;
rmSync(folder, { recursive: true, force: true });
const missing = Object.entries(answers).flatMap(([name, answer]) =>
  'missing' in answer ? [`${name} (no ${answer.missing})`] : [],
);
if (process.env['SHARDWRIGHT_RECORD'] === '1' && missing.length === 0)
  writeFileSync(CONFIG_RECORD, `${JSON.stringify({ files: hashOf(files), answers }, null, 1)}\n`);
const record = JSON.parse(readFileSync(CONFIG_RECORD, 'utf8')) as ConfigRecord;

describe('configurations read by their packages', () => {
  for (const [name, answer] of Object.entries(answers))
    test.skipIf('missing' in answer)(
      `${name}${'missing' in answer ? ` (this Python has no ${answer.missing})` : ''}`,
      () => {
        expect(answer).toEqual(record.answers[name]);
      },
    );

  test('the record is of every target', () => {
    expect(Object.keys(record.answers).length).toBe(CONFIG_TARGETS.length);
  });
});

test('trainers read the launch configuration of a compared layout', () => {
  const into = mkdtempSync(join(tmpdir(), 'shardwright-launch-'));
  const { files, devices } = launched({
    sizes: { pp: 2, dp_shard: 4, cp: 2, tp: 2 },
    mode: 'fsdp',
    context: 'cp',
    sequenceParallel: true,
    more: { checkpoint: 'full' },
  });
  // The arguments of the model are the user's.
  const model = '--num-layers 16\n--hidden-size 64\n--num-attention-heads 8\n';
  for (const [name, text] of [
    ['megatron/megatron.args', files[0].text + model],
    ['torchtitan/torchtitan_config.py', files[1].text],
    ['world', String(devices)],
  ] as const) {
    mkdirSync(dirname(join(into, name)), { recursive: true });
    writeFileSync(join(into, name), text);
  }
  const read = JSON.parse(
    runPython('read_configs.py', [into, 'torchtitan', 'megatron-core']).split('\n').at(-1) ?? '',
  ) as Record<string, Answer>;
  rmSync(into, { recursive: true, force: true });
  const { torchtitan, 'megatron-core': megatron } = read;
  if (!('missing' in torchtitan))
    expect(torchtitan).toMatchObject({ made: { tp: 2, dp_replicate: 1, dp_shard: 4, world: 32 } });
  if (!('missing' in megatron)) {
    expect(megatron).toMatchObject({ made: { tp: 2, layers: 16 } });
    expect(megatron).toHaveProperty('made.groups.length', 16);
  }
});

test('DeepSpeed and Accelerate read the launch configurations of compared layouts', () => {
  const into = mkdtempSync(join(tmpdir(), 'shardwright-launch-'));
  const written = (asked: Asked): ReturnType<typeof launched>['files'][number] => {
    const [file] = launched(asked).files;
    if (file === undefined) throw new Error('no file is written');
    return file;
  };
  const sizes = { dp_replicate: 2, dp_shard: 4, tp: 2 };
  for (const [name, text] of [
    ['deepspeed/ds_config.json', written({ sizes: { tp: 2 }, trainer: 'deepspeed' }).text],
    [
      'hf/accelerate.yaml',
      written({
        sizes,
        mode: 'hsdp',
        more: { microbatch: 1, checkpoint: 'full' },
        trainer: 'accelerate',
      }).text,
    ],
  ] as const) {
    mkdirSync(dirname(join(into, name)), { recursive: true });
    writeFileSync(join(into, name), text);
  }
  const read = JSON.parse(
    runPython('read_configs.py', [into, 'deepspeed', 'accelerate']).split('\n').at(-1) ?? '',
  ) as Record<string, Answer>;
  rmSync(into, { recursive: true, force: true });
  const { deepspeed, accelerate } = read;
  if (!('missing' in deepspeed))
    expect(deepspeed).toMatchObject({ made: { batch: 2, stage: 0, autotp: 2 } });
  if (!('missing' in accelerate))
    expect(accelerate).toMatchObject({
      made: {
        type: 'DistributedType.FSDP',
        processes: 16,
        parallelism: {
          parallelism_config_dp_replicate_size: 2,
          parallelism_config_dp_shard_size: 4,
          parallelism_config_tp_size: 2,
        },
      },
    });
});
