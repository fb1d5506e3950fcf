import { describe, expect, it } from 'vitest';

import type { Plan } from '../../src/plan/record/types.ts';
import { cli, fixture } from './support.ts';

const MLP = fixture('mlp-loss');

describe('what is missing is asked for at once, with a command that has all of it', () => {
  it.each([
    [['plan'], 'plan needs <model> and --cluster', 'plan llama-3.2-1b --devices 8xH100'],
    [['plan', 'gpt2'], 'plan needs --cluster', 'plan llama-3.2-1b --devices 8xH100'],
    [['plan', '--cluster', 'h100'], 'plan needs <model>', 'plan llama-3.2-1b --devices 8xH100'],
    [
      ['compare'],
      'compare needs <model>, --devices and --cluster',
      'compare llama-3.1-8b --devices 64xH100',
    ],
    [['compare', 'gpt2', '--devices', '8'], 'compare needs --cluster', 'compare gpt2 --devices'],
    [['audit', 'gpt2', '--plan', 'recipe:dp'], 'needs --mesh and --cluster', 'audit gpt2 --plan'],
    [['audit'], 'audit needs <model> and --plan', 'audit model.fx.txt.gz'],
    [['models', 'show'], 'models show needs <name>', 'models show llama-3.1-8b'],
    [['export', '--target', 'torch'], 'export needs <plan>', 'export plan --target torch'],
  ])('%j', async (argv, says, example) => {
    const { code, err } = await cli(...argv);
    expect(code).toBe(2);
    expect(err).toContain(`E_USAGE ${argv[0] === 'audit' ? 'audit' : says}`);
    expect(err).toContain(says);
    expect(err).toContain(`hint: for example: shardwright ${example}`);
  });
});

describe('mistakes of the parser are in the words of all others', () => {
  it.each([
    [['plan', 'gpt2', '-mesh', 'dp=8'], "unknown option '-mesh'", "did you mean '--mesh'?"],
    [['plan', 'gpt2', '--memroy', '1GiB'], "unknown option '--memroy'", "did you mean '--memory'?"],
    [['plan', 'gpt2', '--cluster'], '--cluster has no value', 'write --cluster <name>.'],
    [['export', '--target', 'tourch'], "no export target 'tourch'", "did you mean 'torch'?"],
    [
      ['plan', 'meta-llama/Llama-3.1-9B', '--cluster', 'h100'],
      "no model 'meta-llama/Llama-3.1-9B'",
      "did you mean 'llama-3.1-8b'",
    ],
  ])('%j', async (argv, says, hint) => {
    const { code, err } = await cli(...argv);
    expect(code).toBe(2);
    expect(err).toMatch(/^E_[A-Z]+ .*\n {2}hint: .*\n$/);
    expect(err).toContain(says);
    expect(err).toContain(hint);
  });
});

describe('devices without a mesh', () => {
  it('plan takes the mesh on which the optimum is fastest', async () => {
    const asked = ['--no-recipes', '--objective', 'serial', '--json', '--quiet'];
    const planned = await cli('plan', MLP, '--devices', '4xH100', ...asked);
    expect(planned.code, planned.err).toBe(0);
    const { request, meshes, objective } = JSON.parse(planned.out) as Plan & {
      readonly meshes: readonly { readonly mesh: string; readonly seconds: number }[];
    };
    expect(meshes.map(({ mesh }) => mesh).sort()).toEqual(['dp=2,tp=2', 'dp=4']);
    expect(meshes[0].mesh).toBe(request.mesh);
    for (const { mesh, seconds } of meshes) {
      const own = await cli('plan', MLP, '--mesh', mesh, '--cluster', 'h100', ...asked);
      expect((JSON.parse(own.out) as Plan).objective.seconds).toBeCloseTo(seconds, 12);
      expect(objective.seconds).toBeLessThanOrEqual(seconds * (1 + 1e-9));
    }
  });

  it('devices and their cluster must not contradict what stands beside them', async () => {
    const mesh = await cli('plan', MLP, '--mesh', 'dp=8', '--devices', '4xH100');
    expect(mesh.err).toContain('--mesh dp=8 has 8 devices, and --devices is 4');
    const cluster = await cli('plan', MLP, '--devices', '4xH100', '--cluster', 'a100');
    expect(cluster.err).toContain('--devices 4xH100 names a cluster, and --cluster a100 another');
  });
});
