import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { afterAll, describe, expect, it } from 'vitest';

import { COMMAND } from '../../../../scripts/command.ts';
import type { VerifyReport } from '../../../../src/cli/commands/planning/verify.ts';
import type { Plan } from '../../../../src/plan/record/types.ts';
import { temporaryFolder } from '../../../support/temporary-folder.ts';
import { planModelInto } from '../../plan-folders.ts';
import { cli, fixture } from '../../support.ts';

const model = (name: string): string => fixture(name, 'joint.readable');

async function report(...argv: readonly string[]): Promise<VerifyReport> {
  const run = await cli('verify', ...argv, '--json');
  expect(run.err).toBe('');
  expect(run.code, run.out).toBe(0);
  return JSON.parse(run.out) as VerifyReport;
}

describe('verify', () => {
  it('has the JSON keys that tests rely on, and compares everything', async () => {
    const out = await report(
      model('mlp'),
      '--mesh',
      'd=4',
      '--pin',
      'primals_1=S(0)',
      '--pin',
      'primals_3=S(1)',
    );
    expect(Object.keys(out)).toEqual(
      expect.arrayContaining([
        'devices',
        'nodesCompared',
        'maxRelativeError',
        'mismatches',
        'collectives',
      ]),
    );
    expect(out).toMatchObject({ devices: 4, mismatches: [], planned: 'full' });
    expect(out.nodesCompared).toBeGreaterThan(20);
    expect(out.outputsCompared).toBe(5);
    expect(out.maxRelativeError).toBeLessThan(1e-9);
    expect(Object.values(out.collectives).reduce((a, b) => a + b, 0)).toBeGreaterThan(0);
    expect(out.collectives).toEqual(out.promised);
  }, 60_000);

  it('places a model that is too large to run as its full-size plan says', async () => {
    const out = await report(model('gpt2-2l'), '--mesh', 'tp=2', '--quiet');
    expect(out.mismatches).toEqual([]);
    expect(out.sizes).toContainEqual({ from: 50257, to: expect.any(Number) as number });
    expect(out.collectives.all_reduce).toBeGreaterThan(0);
  }, 120_000);

  it('can plan the reduced model instead, or run at the own sizes', async () => {
    expect(await report(model('mlp'), '--mesh', 'd=3', '--replan')).toMatchObject({
      planned: 'reduced',
      mismatches: [],
    });
    expect(await report(model('mlp'), '--mesh', 'd=3', '--no-shrink')).toMatchObject({
      sizes: [],
      mismatches: [],
    });
  }, 60_000);

  it('prints a summary for people', async () => {
    const run = await cli('verify', model('mlp'), '--mesh', 'd=2');
    expect(run.code).toBe(0);
    expect(run.out).toContain('the sharded program gives the numbers of the unsharded one');
    expect(run.out).toMatch(/devices +2 virtual \(d=2\)/);
  }, 60_000);

  it('exits 1 when a tensor is off by more than the tolerance', async () => {
    const run = await cli(
      'verify',
      model('mlp'),
      '--mesh',
      'd=4',
      '--pin',
      'primals_1=S(0)',
      '--pin',
      'primals_3=S(1)',
      '--tolerance',
      '1e-30',
      '--quiet',
      '--json',
    );
    expect(run.code).toBe(1);
    const out = JSON.parse(run.out) as VerifyReport;
    expect(out.mismatches.length).toBeGreaterThan(0);
    expect(out.mismatches[0]).toMatchObject({
      where: expect.any(String) as string,
      relativeError: expect.any(Number) as number,
    });
  }, 120_000);

  it('exits 2 for a mesh that cannot be read, 3 for a budget below every plan', async () => {
    expect((await cli('verify', model('mlp'), '--mesh', 'd=x', '--json')).code).toBe(2);
    const run = await cli('verify', model('mlp'), '--mesh', 'd=2', '--memory', '1KiB', '--json');
    expect(run.code).toBe(3);
    expect(run.out).toContain('E_INFEASIBLE');
  }, 60_000);

  it('runs loops and branches, at reduced sizes', async () => {
    const out = await report(
      model('hop-scan-joint'),
      '--mesh',
      'a=2,b=2',
      '--pin',
      'primals_1=S(0)R',
      '--quiet',
    );
    expect(out.mismatches).toEqual([]);
    expect(out.sizes).toContainEqual({ from: 16, to: 8 });
    // Every trip of both loops is compared, not every body once.
    expect(out.nodesCompared).toBeGreaterThan(60);
    expect(out.collectives).toEqual({ all_gather: 1 });
  }, 60_000);

  it('shares out the rows of a map when asked to', async () => {
    const path = fixture('hop-map', 'export.readable');
    const out = await report(
      path,
      '--mesh',
      'd=2',
      '--maps',
      'rows',
      '--pin',
      'xs=S(0)',
      '--quiet',
    );
    expect(out).toMatchObject({ mismatches: [], collectives: {} });
  }, 60_000);

  it("takes operators of the user's files, with rules and kernels of their own", async () => {
    const folder = temporaryFolder();
    const [ops, path, rules] = ['ops.ts', 'g.swg', 'rules.json'].map((name) => join(folder, name));
    writeFileSync(
      ops,
      `import { defineOp } from 'shardwright/ops';
export const operators = [
  defineOp('my.twice.default', {
    schema: 'Tensor self', cls: 'other', infer: (ctx) => [ctx.inputs[0]],
    shard: () => [{ inputs: [{ kind: 'shard', dim: 0 }], outputs: [{ kind: 'shard', dim: 0 }], origin: 'base' }],
    kernel: (call) => [call.inputs[0]],
  }),
];
`,
    );
    writeFileSync(
      path,
      'swgraph 1\ngraph @g {\n  in %x: f32[8, 6] input "x"\n  %y = my.twice.default(%x): f32[8, 6]\n  out %y output 0\n}\n',
    );
    // A process of its own: a program of the user is loaded by hooks that stay.
    const run = spawnSync(
      process.execPath,
      [
        ...COMMAND,
        'verify',
        path,
        '--mesh',
        'd=2',
        '--ops',
        ops,
        '--pin',
        'y=S(0)',
        '--no-shrink',
        '--quiet',
        '--json',
      ],
      { encoding: 'utf8' },
    );
    expect(run.status, run.stdout + run.stderr).toBe(0);
    expect(JSON.parse(run.stdout)).toMatchObject({ mismatches: [], nodesCompared: 2 });
    // Without the file, and with a name that is there already.
    expect((await cli('verify', path, '--mesh', 'd=2', '--json')).code).toBe(2);
    const entry = { name: 'aten.relu.default', schema: 'Tensor x', outputs: ['x'], rules: [] };
    writeFileSync(rules, JSON.stringify({ format: 'shardwright-rules/1', operators: [entry] }));
    const twice = await cli('verify', path, '--mesh', 'd=2', '--ops', rules, '--json');
    expect(twice.code).toBe(2);
    expect(twice.out).toMatch(/registered twice/);
  }, 60_000);

  describe('of a written plan', () => {
    const root = temporaryFolder(afterAll);

    it('runs the placements of the folder, or of its plan.json, recomputed nodes included', async () => {
      const folder = await planModelInto(model('mlp'), root, 'half', '--checkpoint', '0.5');
      const out = await report(folder);
      expect(out).toMatchObject({ devices: 4, mesh: 'dp=2,tp=2', planned: 'full', mismatches: [] });
      expect(out.sizes.length).toBeGreaterThan(0);
      expect(out.collectives).toEqual(out.promised);
      const { nodes } = JSON.parse(readFileSync(join(folder, 'plan.json'), 'utf8')) as Plan;
      expect(nodes.some((n) => n.name.includes('_recomputed'))).toBe(true);
      expect(await report(join(folder, 'plan.json'))).toEqual(out);
    }, 60_000);

    it('finds a placement that was changed by hand and is not carried out', async () => {
      const folder = await planModelInto(model('mlp'), root, 'mlp', '--pin', 'primals_1=S(0)R');
      expect(await report(folder, '--no-shrink')).toMatchObject({ sizes: [], mismatches: [] });
      const path = join(folder, 'plan.json');
      const plan = JSON.parse(readFileSync(path, 'utf8')) as Plan;
      const [at] = plan.nodes.flatMap((n, i) => (n.redistributions.length > 0 ? [i] : []));
      const nodes = plan.nodes.map((n, i) => (i === at ? { ...n, redistributions: [] } : n));
      writeFileSync(path, JSON.stringify({ ...plan, nodes }));
      const run = await cli('verify', folder, '--no-shrink', '--json');
      expect(run.code).not.toBe(0);
    }, 60_000);

    it('refuses flags of planning, a plan file alone, and what is too large for numbers', async () => {
      const folder = await planModelInto(model('mlp'), root, 'again');
      const refused = async (...argv: readonly string[]): Promise<string> => {
        const run = await cli('verify', ...argv);
        expect(run.code).toBe(2);
        return run.err;
      };
      expect(await refused(folder, '--mesh', 'd=2')).toMatch(
        /--mesh is for a model that is planned here/,
      );
      expect(await refused(folder, '--time-limit', '3')).toMatch(/--time-limit is for a model/);
      expect(await refused(model('mlp'))).toMatch(/--mesh is missing/);
      const alone = join(root, 'alone.json');
      writeFileSync(
        alone,
        readFileSync(join(folder, 'plan.json'), 'utf8').replace(/"hashes"[^}]*},?/, '"x":{}'),
      );
      expect(await refused(alone)).toMatch(/graph.swg is not next to the plan/);
      expect(await refused(join(root, 'nowhere', 'plan.json'))).toMatch(/there is no file/);
      const path = join(root, 'large.swg');
      const type = 'f32[16384, 32768]';
      writeFileSync(
        path,
        `swgraph 1\ngraph @g {\n  in %x: ${type} input "x"\n  %y = aten.relu.default(%x): ${type}\n  out %y output 0\n}\n`,
      );
      const large = await planModelInto(path, root, 'large');
      expect(await refused(large, '--no-shrink')).toMatch(
        /at most 268435456 are simulated[^]*drop --no-shrink/,
      );
    }, 120_000);
  });

  it('refuses by name what has no record', async () => {
    const path = join(temporaryFolder(), 'g.swg');
    writeFileSync(
      path,
      'swgraph 1\ngraph @g {\n  in %x: f32[4] input "x"\n  %y = my.op(%x): f32[4]\n  out %y output 0\n}\n',
    );
    const run = await cli('verify', path, '--mesh', 'd=2', '--json');
    expect(run.code).toBe(2);
    expect(run.out).toContain('the program cannot be run with numbers: my.op (no record; y)');
  }, 60_000);
});
