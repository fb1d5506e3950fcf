import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { cli } from '../../support.ts';

const folder = mkdtempSync(join(tmpdir(), 'shardwright-export-refused-'));
/** A layer of Llama with two heads for keys and values, and a batch of two. */
const GRAPH = join(folder, 'llama.json');
const SIZES = ['--batch', '2', '--seq', '16'];
beforeAll(() => {
  const heads = { num_attention_heads: 4, num_key_value_heads: 2, num_hidden_layers: 1 };
  const widths = { hidden_size: 64, intermediate_size: 128, vocab_size: 128 };
  writeFileSync(GRAPH, JSON.stringify({ model_type: 'llama', ...heads, ...widths }));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

async function planned(name: string, ...args: readonly string[]): Promise<string> {
  const path = join(folder, name);
  const asked = [
    '--cluster',
    'dgx-h100',
    '--objective',
    'serial',
    '--no-recipes',
    '--quiet',
    '-o',
    path,
  ];
  const run = await cli('plan', '-v', ...args, ...asked);
  expect([run.code === 0 || run.code === 4, run.err]).toEqual([true, '']);
  return path;
}

/** The command that a hint names. */
function commandOf(hint: string): readonly string[] {
  const [, command] = /: shardwright (plan .*) -o plan; or export/.exec(hint) ?? [];
  return command?.split(' ') ?? [];
}

describe('an export that no trainer runs', () => {
  it('names the nearest plan that can be written, its step and the command that makes it', async () => {
    const path = await planned('four', GRAPH, ...SIZES, '--mesh', 'tp=4', '--recipe', 'tp');
    const refused = await cli('export', path, '--target', 'megatron', '-o', join(path, 'launch'));
    expect(refused.code).toBe(2);
    expect(refused.err).toContain('key and value heads do not divide over tensor parallelism of 4');
    const [, step, memory] = /written takes (.+) a step and (.+?): /.exec(refused.err) ?? [];
    const [command, ...args] = commandOf(refused.err);
    const near = join(folder, 'near');
    const run = await cli(command ?? '', ...args, '--objective', 'serial', '--quiet', '-o', near);
    expect(run.out).toContain(`step time  ${step} `);
    expect(run.out).toContain(`memory     ${memory} of `);
    const launch = join(folder, 'launch');
    const written = await cli('export', near, '--target', 'megatron', '-o', launch);
    expect([written.code, written.err]).toEqual([0, expect.not.stringContaining('lost')]);
  });

  it('says why where the nearest known plan is none of this program', async () => {
    const path = await planned('eight', GRAPH, ...SIZES, '--mesh', 'tp=8', '--recipe', 'tp');
    const refused = await cli('export', path, '--target', 'megatron', '-o', join(path, 'launch'));
    expect(refused.code).toBe(2);
    expect(refused.err).toContain('the batch of 2 (input input_ids) cannot be cut 4 ways');
    expect(refused.err).toContain('export with --target torch');
  });
});
