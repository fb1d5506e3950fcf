import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { readPlan } from '../../../../src/plan/record/schema.ts';
import { cli, fixture } from '../../support.ts';

const DRAWING =
  '  0,8 |  1,9\n------+------\n 2,10 | 3,11\n------+------\n 4,12 | 5,13\n------+------\n 6,14 | 7,15';
const COMMAND = ['einshard', 'a b -> 2 a2* b*', '--shape', '4,8', '--devices', '16'] as const;

describe('einshard EXPR', () => {
  it('--json gives the keys of the result, and --draw its drawing', async () => {
    const run = await cli(...COMMAND, '--json');
    expect(run.code, run.err).toBe(0);
    const keys = {
      expression: 'a b -> 2 a2* b*',
      mesh: [2, 4, 2],
      axes: [null, 'a', 'b'],
      placements: ['R', 'S(0)', 'S(1)'],
      spec: [['a'], ['b']],
      localShape: [1, 4],
      blocks: [0, 1, 2, 3, 4, 5, 6, 7].map((n) => ({
        index: [Math.floor(n / 2), n % 2],
        devices: [n, n + 8],
      })),
    };
    expect(JSON.parse(run.out)).toEqual(keys);
    const drawn = await cli(...COMMAND, '--json', '--draw');
    expect(JSON.parse(drawn.out)).toEqual({ ...keys, drawing: DRAWING });
    const text = await cli(...COMMAND, '--draw');
    expect(text.code).toBe(0);
    expect(text.out.endsWith(`\n\n${DRAWING}\n`)).toBe(true);
  });

  it('prints the canonical expression, mesh, placements, local shape and blocks', async () => {
    const run = await cli('einshard', ' a  ... ->1 *  a2* ...', '--shape', '4,6', '--devices', '8');
    expect(run.out).toMatchInlineSnapshot(`
      "a ... -> 1 * a2* ...
      mesh         DeviceMesh((axis0=1, axis1=2, a=4, axis3=1), stride=(8, 4, 1, 1))
      placements   R R S(0) R
      spec         P(a, None)
      local shape  [1, 6] of [4, 6]
      blocks       4
        (0, 0)  {0, 4}
        (1, 0)  {1, 5}
        (2, 0)  {2, 6}
        (3, 0)  {3, 7}
      "
    `);
  });

  it('an error of grammar shows the place, exit 2', async () => {
    const run = await cli('einshard', 'a b -> 2a b', '--shape', '4,8', '--devices', '2');
    expect(run.code).toBe(2);
    expect(run.out).toBe('');
    expect(run.err).toBe(
      '1:9: E_SYNTAX expected eof at position 8\n  a b -> 2a b\n          ^\n  hint: the name is written before the number, as in a2\n',
    );
    const json = await cli('einshard', 'a b -> 2 a', '--shape', '4,8', '--devices', '2', '--json');
    expect(JSON.parse(json.out)).toMatchObject({
      error: { code: 'E_EINSHARD', where: { line: 1, column: 3 } },
    });
  });

  it.each([
    [['einshard'], 'an expression'],
    [['einshard', 'a -> a'], '--shape'],
    [['einshard', 'a -> a', '--shape', '3'], '--devices'],
    [['einshard', 'a -> a', '--program', 'x.json'], "not the expression 'a -> a'"],
    [['einshard', '--devices', '3', '--program', 'x.json'], 'not devices'],
    [
      ['einshard', '--program', '/nowhere/x.json'],
      'cannot read the program: there is no file /nowhere/x.json',
    ],
    [['einshard', 'a -> a', '--shape', '3,x', '--devices', '1'], "size 1 is 'x'"],
  ])('%j is a wrong use', async (argv, message) => {
    const run = await cli(...argv);
    expect(run.code).toBe(2);
    expect(run.err).toContain(message);
  });
});

describe('einshard --program', () => {
  let folder = '';
  beforeAll(() => void (folder = mkdtempSync(join(tmpdir(), 'shardwright-'))));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  it('the table, and its JSON', async () => {
    const path = join(folder, 'mlp.json');
    const tensors = [
      { name: 'X', shape: [8, 128], expression: 'b x -> b2 x 4' },
      { name: 'W1', shape: [128, 256], expression: 'x y -> 2 x y4' },
      { name: 'W2', shape: [256, 64], expression: 'y z -> 2 y4 z' },
    ];
    writeFileSync(
      path,
      JSON.stringify({ devices: 8, tensors, steps: ['Y = bx,xy->by', 'relu', 'Z = by,yz->bz'] }),
    );
    const run = await cli('einshard', '--program', path);
    expect(run.code, run.err).toBe(0);
    expect(run.out).toMatchInlineSnapshot(`
      "mesh  (2, 4)

      tensor  type           placements           by name              local shape
      X       f32[8, 128]    S(0)R                S(b)R                [4, 128]
      W1      f32[128, 256]  RS(1)                RS(y)                [128, 64]
      W2      f32[256, 64]   RS(0)                RS(y)                [64, 64]
      Y       f32[8, 256]    S(0)S(1)             S(b)S(y)             [4, 64]
      Z       f32[8, 64]     S(0)P(sum) -> S(0)R  S(b)P(sum) -> S(b)R  [4, 64]

      collective  result      tensor  before   groups
      all_reduce  f32[4, 64]  Z       the end  {0,1,2,3}{4,5,6,7}
      "
    `);
    const json = JSON.parse((await cli('einshard', '--program', path, '--json')).out) as Record<
      string,
      unknown
    >;
    expect(json.collectives).toMatchObject([
      {
        kind: 'all_reduce',
        dtype: 'f32',
        shape: [4, 64],
        groups: [
          [0, 1, 2, 3],
          [4, 5, 6, 7],
        ],
      },
    ]);
    expect(json.tensors).toMatchObject([
      { name: 'X', placements: ['S(0)', 'R'], localShape: [4, 128] },
      { name: 'W1', placements: ['R', 'S(1)'], localShape: [128, 64] },
      { name: 'W2', placements: ['R', 'S(0)'], localShape: [64, 64] },
      { name: 'Y', placements: ['S(0)', 'S(1)'], localShape: [4, 64] },
      { name: 'Z', placements: ['S(0)', 'R'], localShape: [4, 64] },
    ]);
  });

  it('a program that does not fit is refused with the file and the step', async () => {
    const path = join(folder, 'bad.json');
    writeFileSync(path, JSON.stringify({ devices: 2, tensors: [], steps: ['softmaks'] }));
    const run = await cli('einshard', '--program', path);
    expect(run.code).toBe(2);
    expect(run.err).toContain(
      `${path}: E_SYNTAX step 1, 'softmaks': expected a function of one tensor at position 0`,
    );
  });
});

describe('einshard text where plan takes a sharding', () => {
  const PLAN = [
    'plan',
    fixture('mlp'),
    '--mesh',
    'dp=2,tp=2',
    '--cluster',
    'dgx-h100',
    '--no-recipes',
    '--json',
  ] as const;
  const placements = async (...flags: string[]): Promise<(string | undefined)[]> => {
    const run = await cli(...PLAN, ...flags);
    expect(run.code, run.out).toBe(0);
    const plan = readPlan(run.out);
    return ['fc1.weight', 'fc2.weight'].map(
      (name) => plan.parameters.find((p) => p.name === name)?.placement,
    );
  };

  it('--pin: the same plan as with placements', async () => {
    expect(
      await placements('--pin', 'fc1.weight=o i -> 2 o2 i', '--pin', 'fc2.weight=o i -> i2 o2'),
    ).toEqual(['RS(0)', 'S(1)S(0)']);
    expect(await placements('--pin', 'fc1.weight=RS(0)', '--pin', 'fc2.weight=S(1)S(0)')).toEqual([
      'RS(0)',
      'S(1)S(0)',
    ]);
  });

  it('--inputs and --outputs: each tensor by its own rank', async () => {
    const run = async (...flags: string[]): Promise<unknown> => {
      const { code, out } = await cli(...PLAN, ...flags);
      expect(code, out).toBe(0);
      const plan = readPlan(out);
      return [plan.objective, plan.parameters];
    };
    expect(await run('--inputs', 'b ... -> b2 2 ...', '--outputs', 'b ... -> b2 2 ...')).toEqual(
      await run('--inputs', 'S(0)R', '--outputs', 'S(0)R'),
    );
  });

  it('another mesh is refused with both, and an error names the flag', async () => {
    const other = await cli(...PLAN, '--pin', 'fc1.weight=o i -> o4 i');
    expect(other.code).toBe(2);
    expect(JSON.parse(other.out)).toMatchObject({
      error: {
        code: 'E_MESH',
        message:
          "--pin fc1.weight=o i -> o4 i: 'o i -> o4 i' makes the mesh (4), but the mesh is dp=2,tp=2, that is (2, 2)",
      },
    });
    const bad = await cli(...PLAN, '--inputs', 'b ... -> 2b ...');
    expect(bad.code).toBe(2);
    expect(bad.out).toContain('expected eof at position 10');
    expect(bad.out).toContain('--inputs (');
  });
});
