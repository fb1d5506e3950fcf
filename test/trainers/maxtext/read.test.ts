import { expect, it } from 'vitest';

import { readLayoutFile } from '../../../src/trainers/read-layout-file.ts';
import { layoutModel } from '../layout-model.ts';

const read = (text: string, devices = 32): ReturnType<typeof readLayoutFile> =>
  readLayoutFile(text, { file: 'run.yml', devices, model: layoutModel() });

// What is not stated is as in base.yml: dcn_data and ici_fsdp take the devices that are left, and
// layers are recomputed whole.
it.each([
  [
    'per_device_batch_size: 2\nici_fsdp_parallelism: -1',
    'dp=32,mbs=2,zero=3,reshard=1,recompute=full',
  ],
  [
    'per_device_batch_size: 1\nici_tensor_parallelism: 4\nremat_policy: minimal',
    'dp=8,tp=4,sp=0,mbs=4,zero=3,reshard=1,recompute=products',
  ],
  [
    'per_device_batch_size: .5\nici_tensor_sequence_parallelism: 4\ndcn_data_parallelism: 2\n' +
      'remat_policy: none',
    'dp_replicate=2,dp=4,tp=4,sp=1,mbs=2,zero=3,reshard=1,recompute=none',
  ],
  [
    'per_device_batch_size: 1\nici_fsdp_parallelism: 1\nici_data_parallelism: 8\n' +
      'dcn_data_parallelism: -1\nshard_optimizer_over_data: true',
    'dp=32,mbs=1,zero=1,recompute=full',
  ],
  [
    'per_device_batch_size: 1\nici_context_parallelism: 4\ncontext_parallel_strategy: ring',
    'dp=8,cp=4,mbs=4,zero=3,reshard=1,recompute=full,context=ring',
  ],
  [
    'per_device_batch_size: 2\nici_pipeline_parallelism: 4\nnum_pipeline_microbatches: 8\n' +
      'ici_fsdp_parallelism: 8\ndcn_data_parallelism: 1',
    'pp=4,dp=8,mbs=1,zero=3,reshard=1,recompute=full,schedule=gpipe',
  ],
])('%s is %s', (text, layout) => {
  expect(read(`base_config: base.yml\nmax_target_length: 4096\n${text}\n`)).toMatchObject({
    format: 'MaxText',
    trainers: ['maxtext'],
    text: layout,
    sequence: 4096,
  });
});

it('a batch is that of all devices and of all microbatches that are added up', () => {
  const text =
    'per_device_batch_size: 2\ngradient_accumulation_steps: 4\nici_tensor_parallelism: 8\n';
  expect(read(text)).toMatchObject({ globalBatch: 2 * 32 * 4, text: /mbs=16,/ });
});

it.each([
  [
    'ici_fsdp_parallelism: 16\ndcn_data_parallelism: 1',
    /the axes make 16 devices, and --devices is 32/,
  ],
  ['ici_fsdp_parallelism: -1\nici_data_parallelism: -1', /ici_fsdp and ici_data are -1/],
  ['ici_tensor_parallelism: 3', /the axes make 3 devices/],
  ['ici_fsdp_transpose_parallelism: 2', /ici_fsdp_transpose_parallelism: found 2, wanted 1/],
  ['ici_tensro_parallelism: 2', /ici_tensro_parallelism: found 2, wanted 1/],
  ['ici_tensor_parallelism: two', /found 'two', wanted a whole number/],
  ['ici_tensor_parallelism: 4\nper_device_batch_size: .1', /found '0.1', which gives a data rank/],
])('%s is refused with its place', (text, message) => {
  expect(() => read(text)).toThrow(
    expect.objectContaining({
      code: 'E_INPUT',
      message: expect.stringMatching(message) as string,
    }) as Error,
  );
});

it('settings without a price are listed', () => {
  const text = 'ici_fsdp_parallelism: -1\nquantization: fp8\nremat_policy: save_qkv_proj\n';
  expect(read(text).notPriced.map(({ key }) => key)).toEqual(['quantization', 'remat_policy']);
});
