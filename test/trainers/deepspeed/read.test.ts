import { readFileSync } from 'node:fs';

import { describe, expect, it } from 'vitest';

import { ShardwrightError } from '../../../src/errors.ts';
import { readLayoutFile } from '../../../src/trainers/read-layout-file.ts';
import { refusal } from '../../support/thrown.ts';
import { layoutModel } from '../layout-model.ts';

interface Recorded {
  readonly text: string;
  readonly ranks: number;
  readonly refused?: string;
  readonly batch?: number;
  readonly microbatch?: number;
  readonly stage?: number;
}

/** Answers of DeepSpeed 0.19.8, recorded by `record_deepspeed.py`. */
const RECORDED = JSON.parse(
  readFileSync(new URL('../../fixtures/trainers/deepspeed.json', import.meta.url), 'utf8'),
) as readonly Recorded[];

const read = (text: string, devices: number): ReturnType<typeof readLayoutFile> =>
  readLayoutFile(text, { file: 'ds.json', devices, model: layoutModel() });

describe('a configuration of DeepSpeed', () => {
  it.each(RECORDED)('is what DeepSpeed makes of it on $ranks ranks: $text', (recorded) => {
    const { text, ranks, refused, batch, microbatch, stage } = recorded;
    if (refused !== undefined) {
      expect(() => read(text, ranks)).toThrow(ShardwrightError);
      return;
    }
    const found = read(text, ranks);
    expect(found.globalBatch).toBe(batch);
    expect(found.text).toContain(`mbs=${microbatch},zero=${stage}`);
  });

  it('its refusals name the settings, their line and column', () => {
    const triple =
      '{"train_batch_size": 32,\n "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4}';
    expect(refusal(() => read(triple, 16)).headline).toBe(
      'ds.json:1:3: E_INPUT train_batch_size: found 32, wanted train_micro_batch_size_per_gpu x ' +
        'gradient_accumulation_steps x data ranks = 1 x 4 x 16 = 64',
    );
    const both =
      '{"train_batch_size": 16,\n "fp16": {"enabled": true},\n "bf16": {"enabled": true}}';
    expect(refusal(() => read(both, 16)).headline).toContain(
      'ds.json:3:12: E_INPUT fp16.enabled and bf16.enabled: found both',
    );
  });

  it('bf16 has its old name, too', () => {
    const text = (more: string): string =>
      `{"train_batch_size": 16, "bfloat16": {"enabled": true}${more}}`;
    expect(read(text(''), 16).text).toContain('dtype=bf16');
    expect(() => read(text(', "fp16": {"enabled": true}'), 16)).toThrow(/found both/);
  });

  it('settings that may change a step are listed, and those of logs and rates are not', () => {
    const text = `{"train_batch_size": 16, "steps_per_print": 10, "gradient_clipping": 1.0,
      "data_types": {"grad_accum_dtype": "fp32"}, "communication_data_type": "bf16",
      "optimizer": {"type": "OneBitAdam", "params": {"lr": 1e-4}}, "scheduler": {"type": "WarmupLR"}}`;
    expect(read(text, 16).notPriced.map(({ key }) => key)).toEqual([
      'data_types.grad_accum_dtype',
      'communication_data_type',
      'optimizer.type',
    ]);
  });
});
