import { existsSync } from 'node:fs';

import { describe, expect, test } from 'vitest';

import { EXPORT_TARGETS } from '../../src/export/targets.ts';
import { readLayoutFile } from '../../src/trainers/read-layout-file.ts';
import { FRAMEWORK_NAMES, TRAINERS } from '../../src/trainers/trainers.ts';
import { layoutModel } from './layout-model.ts';

/** The least that somebody writes in each form. */
const WRITTEN: Readonly<Record<string, readonly string[]>> = {
  'Megatron-LM arguments': ['--tensor-model-parallel-size 2 --micro-batch-size 1'],
  'test of Megatron-LM': ['MODEL_ARGS:\n  --tensor-model-parallel-size: 2\n'],
  torchtitan: [
    'ParallelismConfig(tensor_parallel_degree=2)',
    '[parallelism]\ntensor_parallel_degree = 2\n',
  ],
  MaxText: ['ici_tensor_parallelism: 2\nper_device_batch_size: 1\n'],
  'NeMo or Megatron-Bridge': ['model:\n  tensor_model_parallel_size: 2\n'],
  DeepSpeed: ['{"train_micro_batch_size_per_gpu": 1, "tensor_parallel": {"autotp_size": 2}}'],
  Accelerate: ['parallelism_config:\n  parallelism_config_tp_size: 2\n'],
};

describe('the list of trainers', () => {
  test('a form that people write is found in a text of it, and its tensor-parallel size is read', () => {
    const forms = TRAINERS.flatMap(({ formats = [] }) => formats.map(({ name }) => name));
    expect(Object.keys(WRITTEN).sort()).toEqual([...new Set(forms)].sort());
    for (const [format, texts] of Object.entries(WRITTEN))
      for (const text of texts) {
        const read = readLayoutFile(text, {
          file: 'a file',
          devices: 2,
          model: layoutModel({ layers: 4, routed: false }),
        });
        expect(read).toMatchObject({ format, text: expect.stringContaining('tp=2') as string });
      }
  });

  test('names of trainers and of their profiles are given once', () => {
    const ids = TRAINERS.map(({ id }) => id);
    expect(new Set(ids).size).toBe(ids.length);
    const profiles = TRAINERS.flatMap(({ software }) => Object.keys(software));
    expect(profiles).toEqual(FRAMEWORK_NAMES);
  });

  test('a trainer that reads or writes files has a folder of its name and an export target that is listed', () => {
    for (const { id, formats, writeLaunch, target } of TRAINERS) {
      if ((formats ?? writeLaunch ?? target) === undefined) continue;
      expect(existsSync(new URL(`../../src/trainers/${id}/${id}.ts`, import.meta.url)), id).toBe(
        true,
      );
      if (target !== undefined) expect(EXPORT_TARGETS).toContain(target);
    }
  });
});
