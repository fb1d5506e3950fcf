import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, expect, test } from 'vitest';

import { cli } from '../cli/support.ts';
import { FULL } from '../support/full.ts';

/** The program of `export --check`, whose sizes are small, moves what the plan moves, in its order. */
const folder = mkdtempSync(join(tmpdir(), 'shardwright-small-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** GPT-2 of one layer; the rows of its table do not divide. */
const GPT2 = {
  model_type: 'gpt2',
  architectures: ['GPT2LMHeadModel'],
  n_layer: 1,
  n_head: 12,
  n_embd: 768,
  n_positions: 1024,
  vocab_size: 50257,
};

interface CollectiveFile {
  readonly order: string;
  readonly collectives: readonly {
    readonly phase: string;
    readonly kind: string;
    readonly meshDims: readonly string[];
    readonly op?: string;
  }[];
}

/** Phase, kind, group and reduction of each collective that a function calls, in order. */
function called(file: string): string[] {
  const { collectives } = JSON.parse(readFileSync(join(folder, file), 'utf8')) as CollectiveFile;
  return collectives.map(({ phase, kind, meshDims, op = '' }) =>
    [phase, kind, meshDims.join(), op].join(' '),
  );
}

const each = [
  ['dp=2,tp=2', 'S(1)S(0)'],
  ['dp=4,tp=2', 'S(0)S(0)'],
] as const;
test.each(FULL ? each : each.slice(1))(
  'on %s a table that is %s is checked by the collectives of the plan',
  async (mesh, spec) => {
    writeFileSync(join(folder, 'config.json'), JSON.stringify(GPT2));
    const options = ['--training', '--no-recipes', '--mesh', mesh, '--cluster', 'dgx-h100'];
    const model = join(folder, 'config.json');
    const pin = `transformer.wte.weight=${spec}`;
    const plan = await cli(
      'plan',
      '-v',
      model,
      ...options,
      '--pin',
      pin,
      '-o',
      join(folder, 'plan'),
    );
    expect(plan.code, plan.err).toBe(0);
    const made = ['--target', 'torch', '--check', '--order', 'simulated', '-o', folder];
    const written = await cli('export', join(folder, 'plan'), ...made);
    expect(written.code, written.err).toBe(0);
    expect(called('check/collectives.json')).toEqual(called('collectives.json'));
    expect(called('collectives.json').length).toBeGreaterThan(10);
  },
  60_000,
);
