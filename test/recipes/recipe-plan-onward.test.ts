import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { afterAll, expect, it } from 'vitest';

import { cli } from '../cli/support.ts';
import { FULL } from '../support/full.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const root = temporaryFolder(afterAll);
const COMMON = {
  hidden_size: 64,
  intermediate_size: 128,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 4,
  vocab_size: 256,
  torch_dtype: 'bfloat16',
};
const dense = config('dense', { ...COMMON, model_type: 'llama' });
const mixture = config('mixture', {
  ...COMMON,
  model_type: 'mixtral',
  num_hidden_layers: FULL ? 2 : 1,
  num_local_experts: 4,
  num_experts_per_tok: 2,
});

function config(name: string, record: Readonly<Record<string, unknown>>): string {
  const path = join(root, `${name}.json`);
  writeFileSync(path, JSON.stringify(record));
  return path;
}

interface Planned {
  readonly step: unknown;
  readonly parameters: unknown;
}

/** Runs a command that has to succeed, and gives what it prints. */
async function run(...args: readonly string[]): Promise<string> {
  const { code, out, err } = await cli(...args);
  expect([args[0], code], err).toEqual([args[0], 0]);
  return out;
}

const RECIPES = [['ep', 'ep=4', mixture]] as const;
const OTHERS = [
  ['fsdp+tp+sp', 'dp=2,tp=2', dense],
  ['dp', 'dp=4', dense],
  ['hsdp', 'dp_replicate=2,dp_shard=2', dense],
  ['fsdp+cp', 'dp_shard=2,cp=2', dense],
  ['fsdp+ulysses', 'dp_shard=2,sp=2', dense],
] as const;

it.each(FULL ? [...RECIPES, ...OTHERS] : RECIPES)(
  'the plan of %s on %s is a plan for every command',
  async (recipe, mesh, model) => {
    const folder = join(root, recipe.replaceAll('+', '-'));
    const asked = ['--mesh', mesh, '--cluster', 'dgx-h100', '--seq', '32', '--batch', '8'];
    await run('plan', model, ...asked, '--recipe', recipe, '--quiet', '-o', folder);
    const plan = JSON.parse(readFileSync(join(folder, 'plan.json'), 'utf8')) as Planned;
    expect(await run('check-plan', folder)).toContain('the plan is what it says');

    const verified = JSON.parse(await run('verify', folder, '--json', '--quiet')) as {
      readonly mismatches: readonly unknown[];
      readonly nodesCompared: number;
    };
    expect(verified.mismatches).toEqual([]);
    expect(verified.nodesCompared).toBeGreaterThan(50);
    const played = JSON.parse(await run('simulate', folder, '--json')) as {
      readonly seconds: number;
    };
    expect(played.seconds).toBeGreaterThan(0);

    const torch = join(folder, 'torch');
    await run('export', folder, '--target', 'torch', '--check', '-o', torch);
    const placements = readFileSync(join(torch, 'placements.json'), 'utf8');
    expect(placements).toContain('mesh');
    // Counts of tokens by expert have no text in HLO.
    if (model === dense) await run('export', folder, '--target', 'jax', '-o', join(folder, 'jax'));

    await run('report', folder, '-o', join(folder, 'report.html'));
    const data = /<script type="application\/json"[^>]*>(.*?)<\/script>/s.exec(
      readFileSync(join(folder, 'report.html'), 'utf8'),
    );
    const { command } = JSON.parse(data?.[1] ?? '{}') as { readonly command: string };
    // What the page says to type makes this plan again, by the same trainer.
    const [, , graph, ...again] = command.split(' ');
    const made = JSON.parse(await run('plan', join(folder, graph), ...again, '--json')) as Planned;
    expect([made.step, made.parameters]).toEqual([plan.step, plan.parameters]);
  },
);
