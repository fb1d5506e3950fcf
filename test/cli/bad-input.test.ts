import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { cli, type CliRun, fixture } from './support.ts';

const MLP = gunzipSync(readFileSync(fixture('mlp'))).toString('utf8');
let folder = '';
beforeAll(() => void (folder = mkdtempSync(join(tmpdir(), 'shardwright-'))));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function file(name: string, text: string | Buffer): string {
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
}

const PLAN = ['--mesh', 'x=8', '--cluster', 'dgx-h100', '--no-recipes'] as const;

/** A refusal: the exit code, a first line with place and reason, a hint, and nothing on stdout. */
function refused(run: CliRun, code: number, ...words: readonly string[]): void {
  expect(run.code, run.err).toBe(code);
  expect(run.out).toBe('');
  const [first] = run.err.split('\n');
  expect(run.err).toMatch(/\n {2}hint: ./);
  for (const word of words) expect(run.err).toContain(word);
  expect(first.length).toBeGreaterThan(20);
}

describe('bad input is refused with place and fix', () => {
  it('a text that is cut off is refused at its last line', async () => {
    const path = file('cut.txt', MLP.slice(0, MLP.length / 2));
    refused(await cli('inspect', path), 2, 'cut.txt:24:', 'hint');
  });

  it('wrong type in an annotation: names the node, both types and the line', async () => {
    const path = file('type.txt', MLP.replace('mm: "f32[8, 256]', 'mm: "f32[8, 255]'));
    refused(await cli('inspect', path), 2, 'type.txt:16:9: E_TYPE addmm', '[8, 255]', '[8, 256]');
  });

  it('a dtype that does not exist', async () => {
    const path = file('dtype.txt', MLP.replace('mm: "f32[8, 256]', 'mm: "f33[8, 256]'));
    refused(await cli('inspect', path), 2, 'dtype.txt:', 'f33');
  });

  it('--dtype of weights in 8 bits: names the flag that prices their products in fp8', async () => {
    for (const dtype of ['fp8', 'float8_e4m3fn', 'mxfp8'])
      refused(
        await cli('compare', 'gpt2', '--devices', '8', '--cluster', 'dgx-h100', '--dtype', dtype),
        2,
        `E_USAGE --dtype '${dtype}' is not an element type of weights`,
        'compare MODEL --fp8 RECIPE',
        'delayed, current',
      );
  });

  it('an unknown operator: name, count and line; planned replicated when asked', async () => {
    const path = file('op.txt', MLP.replaceAll('aten.relu.default', 'mylib.fancy.default'));
    const run = await cli('plan', '-v', path, ...PLAN);
    refused(
      run,
      2,
      'op.txt:17:1: E_UNKNOWN_OP',
      'mylib.fancy.default (1 node, first on line 17)',
      '--unknown replicate',
    );
    const replicated = await cli('plan', '-v', path, ...PLAN, '--unknown', 'replicate');
    expect(replicated.code).toBe(0);
    expect(replicated.out).toMatch(/^note .*mylib\.fancy\.default .*planned replicated/m);
  });

  it('an undefined name, with the name it may have meant', async () => {
    const path = file('undefined.txt', MLP.replace('relu.default(addmm)', 'relu.default(admm)'));
    refused(await cli('inspect', path), 2, "undefined.txt:17:70: E_REF 'admm'", 'addmm');
  });

  it('a cycle: a value used before it is made', async () => {
    const path = file(
      'cycle.txt',
      MLP.replace('aten.relu.default(addmm)', 'aten.relu.default(mm)'),
    );
    refused(
      await cli('inspect', path),
      2,
      "cycle.txt:17:70: E_REF 'mm' is used 5 lines above its definition",
      'hint',
    );
  });

  it('a mesh larger than the dim that a pin cuts', async () => {
    const run = await cli(
      'plan',
      '-v',
      fixture('mlp'),
      '--mesh',
      'x=16',
      '--cluster',
      'dgx-h100',
      '--pin',
      'primals_5=S(0)',
    );
    refused(
      run,
      2,
      "E_PIN --pin primals_5=S(0): 'primals_5' [8, 128] cannot be S(0): dim 0 has 8 rows",
      'it can be R S(1)',
    );
  });

  it('a mesh larger than the dim that --inputs cuts, and outputs that cannot be: the flag, and what would do', async () => {
    const inputs = await cli(
      'plan',
      '-v',
      fixture('mlp'),
      '--mesh',
      'x=16',
      '--cluster',
      'dgx-h100',
      '--inputs',
      'S(0)',
    );
    refused(
      inputs,
      3,
      'E_INFEASIBLE no plan exists with --inputs S(0)',
      'a dim of n rows is cut into n pieces at most',
    );
    const outputs = await cli('plan', '-v', fixture('mlp'), ...PLAN, '--outputs', 'P(sum)');
    refused(outputs, 3, 'E_INFEASIBLE no plan exists with --outputs P(sum)', 'drop it');
  });

  it.each([
    [
      'a list',
      '[]',
      '1:1: E_CLUSTER the cluster file does not fit: expected an object, found a list',
    ],
    ['a number', ' 5', '1:2: E_CLUSTER the cluster file does not fit: expected an object'],
    [
      'a list that is cut off',
      '[',
      '1:2: E_CLUSTER the cluster file is not JSON: expected a value',
    ],
    ['nothing', '', '1:1: E_CLUSTER the cluster file is not JSON: expected a value, found the end'],
    ['a comment', '// mine\n{"base": "dgx-h100"}', '1:1: E_CLUSTER the cluster file is not JSON: '],
    ['YAML', 'base: dgx-h100', '1:1: E_CLUSTER the cluster file is not JSON: '],
    ['a comma too many', '{"base":\n "dgx-h100",}', '2:13: E_CLUSTER the cluster file is not JSON'],
  ])('a cluster file that holds %s: the file, line and column', async (_, text, words) => {
    const path = file('own-cluster.json', text);
    const mesh = ['--mesh', 'x=8', '--cluster', path];
    refused(await cli('plan', fixture('mlp'), ...mesh), 2, `own-cluster.json:${words}`);
    refused(await cli('hardware', 'show', path), 2, `own-cluster.json:${words}`);
  });

  it('a cluster file begins with a byte order mark, or has another ending', async () => {
    const marked = file('marked.JSON', '\ufeff{"base": "dgx-h100"}');
    expect((await cli('hardware', 'show', marked)).out).toContain('dgx-h100');
    const yaml = file('own.yaml', 'base: dgx-h100\n');
    refused(await cli('hardware', 'show', yaml), 2, 'own.yaml:1:1: E_CLUSTER', "found 'base'");
    const absent = join(folder, 'absent');
    refused(await cli('hardware', 'show', absent), 2, `E_IO cannot read the cluster file`, absent);
  });

  it('a rules file that is not one is named', async () => {
    const path = file('own-rules.json', '{"format":\n 1,}');
    refused(
      await cli('rules', '--ops', path),
      2,
      'own-rules.json:2:4: E_RULES the rules file is not',
    );
    const list = file('list.json', '[]');
    refused(
      await cli('rules', '--ops', list),
      2,
      'list.json: E_RULES rules file: expected an object',
    );
  });

  it('an unknown cluster, with the nearest name', async () => {
    const run = await cli('plan', '-v', fixture('mlp'), '--mesh', 'x=8', '--cluster', 'dgx-h10');
    refused(run, 2, 'dgx-h10', 'dgx-h100');
  });

  it('a mesh that cannot be read', async () => {
    for (const mesh of ['dp', 'dp=0', 'dp=2,dp=4', 'dp=two'])
      refused(
        await cli('plan', '-v', fixture('mlp'), '--mesh', mesh, '--cluster', 'dgx-h100'),
        2,
        'dp',
      );
  });

  it('a mesh of more devices than there can be: the product that is too large', async () => {
    const run = await cli(
      'plan',
      '-v',
      fixture('mlp'),
      '--mesh',
      'dp=8192,tp=8192',
      '--cluster',
      'dgx-h100',
    );
    refused(
      run,
      2,
      'E_MESH the mesh has 67108864 devices',
      '(8192 x 8192) may be 16777216 at most',
    );
  });

  it('a role or a tie that is wrong, by its flag', async () => {
    const gpt2 = [fixture('gpt2-2l'), '--mesh', 'x=2', '--cluster', 'dgx-h100'];
    refused(
      await cli('plan', '-v', ...gpt2, '--role', 'primals_1'),
      2,
      "--role 'primals_1' is not NAME=parameter",
      'write --role NAME=parameter',
    );
    refused(
      await cli('plan', '-v', ...gpt2, '--role', 'nothing=parameter'),
      2,
      'E_REF --role nothing=parameter: there is no input',
    );
    refused(
      await cli('plan', '-v', ...gpt2, '--tie', 'model.lm_head.weight=nothing'),
      2,
      'E_REF --tie model.lm_head.weight=nothing: there is no input',
    );
  });

  it('a tie that was given is not asked for again', async () => {
    const asks = '--tie A=B counts it once';
    expect((await cli('inspect', fixture('gpt2-2l'))).out).toContain(asks);
    const tied = await cli(
      'inspect',
      fixture('gpt2-2l'),
      '--tie',
      'model.transformer.wte.weight=model.lm_head.weight',
    );
    expect([tied.code, tied.out.includes(asks)]).toEqual([0, false]);
  });

  it('pins that contradict each other: infeasible, both named, exit 3', async () => {
    const run = await cli(
      'plan',
      '-v',
      fixture('mlp'),
      ...PLAN,
      '--pin',
      'fc1.weight=S(0)',
      '--pin',
      'fc1.weight=R',
    );
    refused(run, 3, 'fc1.weight=S(0)', 'fc1.weight=R');
  });

  it('a pin of a node that does not exist', async () => {
    const run = await cli('plan', '-v', fixture('mlp'), ...PLAN, '--pin', 'fc1.weigth=R');
    refused(run, 2, 'E_REF', 'fc1.weigth');
  });

  it('a memory budget that nothing fits: exit 3, what is needed and a budget that works; of states alone the smallest', async () => {
    const run = await cli('plan', '-v', fixture('mlp'), ...PLAN, '--memory', '10KiB');
    refused(
      run,
      3,
      'E_INFEASIBLE',
      '10.0 KiB',
      'none needs less than 97.0 KiB, activations included',
    );
    const enough = /give --memory (\d+KiB) or more/.exec(run.err)![1];
    expect((await cli('plan', '-v', fixture('mlp'), ...PLAN, '--memory', enough)).code).toBe(0);
    const states = await cli(
      'plan',
      '-v',
      fixture('mlp'),
      ...PLAN,
      '--memory',
      '10KiB',
      '--activations',
      'report',
    );
    refused(
      states,
      3,
      'E_INFEASIBLE',
      '10.0 KiB',
      'smallest budget',
      'give --memory 97KiB or more',
    );
    expect(
      (
        await cli(
          'plan',
          '-v',
          fixture('mlp'),
          ...PLAN,
          '--memory',
          '97KiB',
          '--activations',
          'report',
        )
      ).code,
    ).toBe(0);
    const bytes = Number(/\((\d+) bytes\)/.exec(states.err)?.[1]);
    // 16 bytes a parameter in float32 Adam; every parameter of the MLP can be cut 8 ways.
    expect(bytes).toBe((49472 * 16) / 8);
    expect(
      (
        await cli(
          'plan',
          '-v',
          fixture('mlp'),
          ...PLAN,
          '--memory',
          `${bytes}B`,
          '--activations',
          'report',
        )
      ).code,
    ).toBe(0);
    expect(
      (
        await cli(
          'plan',
          '-v',
          fixture('mlp'),
          ...PLAN,
          '--memory',
          `${bytes - 1}B`,
          '--activations',
          'report',
        )
      ).code,
    ).toBe(3);
  });

  it('a size without unit is refused with both readings', async () => {
    refused(await cli('plan', '-v', fixture('mlp'), ...PLAN, '--memory', '80'), 2, '80GiB', '80GB');
  });

  it('a file that is missing, empty, not text, or of another format', async () => {
    refused(await cli('inspect', join(folder, 'nothing.txt')), 2, 'nothing.txt');
    refused(await cli('inspect', file('empty.txt', '')), 2, 'empty.txt');
    refused(
      await cli('inspect', file('bytes.txt', Buffer.from([0x63, 0xff, 0xfe, 0x00]))),
      2,
      'bytes.txt',
    );
    refused(
      await cli('inspect', file('x.mlir', 'module @jit_f {\n}\n')),
      2,
      'x.mlir:1:1',
      'E_REF',
      'no function',
    );
    refused(await cli('inspect', file('x.hlo', 'HloModule f\n')), 2, 'hlo');
  });

  it('--json prints one JSON value also for errors', async () => {
    const run = await cli('inspect', join(folder, 'nothing.txt'), '--json');
    expect(run.code).toBe(2);
    const value = JSON.parse(run.out) as { error: { code: string; message: string } };
    expect(value.error.code).toMatch(/^E_/);
  });

  it('an unknown command or flag: usage, exit 2', async () => {
    expect((await cli('plann')).code).toBe(2);
    expect((await cli('inspect', '--what')).code).toBe(2);
  });
});
