import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { planModelInto } from '../cli/plan-folders.ts';
import { cli, fixture } from '../cli/support.ts';

/**
 * What a new user gets wrong in the first minutes: exit 2, one line that says what and where, and a
 * hint.
 */
let root = '';
let plan = '';
let other = '';
beforeAll(async () => {
  root = mkdtempSync(join(tmpdir(), 'shardwright-wrong-'));
  plan = await planModelInto(fixture('mlp-loss'), root, 'plan');
  other = await planModelInto(fixture('hop-cond-joint'), root, 'other');
  writeFileSync(join(root, 'text.md'), '# not a plan\n');
  writeFileSync(join(root, 'package.json'), '{"version": "0.1.0", "name": "x"}');
});
afterAll(() => rmSync(root, { recursive: true, force: true }));

const MODEL = fixture('mlp-loss');
const ON = ['--mesh', 'dp=4', '--cluster', 'dgx-h100'];

describe('in part: a slip is answered by what, where and the nearest right word', () => {
  it.each<[string, () => string[], RegExp]>([
    [
      'letters of a model',
      () => ['plan', 'llama3', ...ON],
      /no file and no model 'llama3'\n {2}hint: did you mean 'llama-3\.1-8b'/,
    ],
    [
      'a mesh',
      () => ['plan', MODEL, '--mesh', 'dp8', '--cluster', 'dgx-h100'],
      /^E_USAGE --mesh 'dp8': expected NAME=SIZE.*\n {2}hint: did you mean 'dp=8'\?\n$/,
    ],
    ['a mesh of verify', () => ['verify', MODEL, '--mesh', '8'], /^E_USAGE --mesh '8'/],
    [
      'part of a cluster',
      () => ['plan', MODEL, '--mesh', 'dp=4', '--cluster', 'p5-48xlarge'],
      /did you mean 'aws-p5-48xlarge'/,
    ],
    [
      'no cluster',
      () => ['plan', MODEL, '--mesh', 'dp=4'],
      /plan needs --cluster\n {2}hint: for example: .* --mesh dp=4 --cluster h100\n/,
    ],
    [
      'a choice',
      () => ['plan', MODEL, ...ON, '--solver', 'exat'],
      /--solver 'exat' is not one of .*\n {2}hint: did you mean 'exact'\?/,
    ],
    [
      'a choice far from all',
      () => ['plan', MODEL, ...ON, '--solver', 'gurobi'],
      /--solver 'gurobi' is not one of auto, exact, .*\n$/,
    ],
    [
      'a share',
      () => ['plan', MODEL, ...ON, '--gap', '5'],
      /--gap '5' is not a fraction between 0 and 1/,
    ],
    [
      'the end of a name',
      () => ['explain', plan, 'fc1.weight'],
      /hint: did you mean '\S*\.fc1\.weight'/,
    ],
    [
      'a forced placement',
      () => ['explain', plan, 'mm', '--force', 'RX'],
      /^E_SYNTAX --force RX: /,
    ],
    [
      'a report of text',
      () => ['report', join(root, 'text.md')],
      /text\.md: E_PLAN this is not a plan: not JSON\n {2}hint: give a plan folder/,
    ],
    [
      'a report of other JSON',
      () => ['report', join(root, 'package.json')],
      /E_PLAN this is not a plan\n {2}hint: /,
    ],
    [
      'a folder without a plan',
      () => ['report', root],
      /there is no file \S*plan\.json\n {2}hint: give a plan folder/,
    ],
    [
      'plans of two models',
      () => ['diff', plan, other],
      /E_PLAN the plans have nothing in common: .*\n {2}hint: give two plans of one model/,
    ],
  ])('%s', async (_, words, says) => {
    const run = await cli(...words());
    expect(run.err).toMatch(says);
    expect(run.code).toBe(2);
    expect(run.out).toBe('');
    expect(run.err.trimEnd().split('\n').length).toBeLessThanOrEqual(2);
  });

  it('a missing flag has its hint in the JSON, too', async () => {
    const run = await cli('plan', MODEL, '--mesh', 'dp=4', '--json');
    expect(JSON.parse(run.out)).toMatchObject({
      error: {
        code: 'E_USAGE',
        hint: expect.stringContaining('--mesh dp=4 --cluster h100') as string,
      },
    });
  });

  it('nothing to price says why, by how many meshes each reason stops', async () => {
    const config = join(root, 'llama.json');
    writeFileSync(
      config,
      JSON.stringify({
        model_type: 'llama',
        hidden_size: 64,
        intermediate_size: 128,
        num_attention_heads: 4,
        num_hidden_layers: 2,
        vocab_size: 256,
      }),
    );
    const run = await cli(
      'compare',
      config,
      '--devices',
      '4',
      '--cluster',
      'dgx-h100',
      '--global-batch',
      '3',
      '--seq',
      '64',
      '--plans',
      'fsdp',
      '--quiet',
      '--threads',
      '1',
    );
    expect(run.out).toContain('no plan could be priced');
    expect(run.out).toMatch(/^ +\d+ +ZL02 global batch 3 mod/m);
    expect(run.out).not.toContain('no other plan is better');
    expect(run.code).toBe(2);
  });
});
