import { describe, expect, it } from 'vitest';

import type { Plan } from '../../src/plan/record/types.ts';
import { FULL } from '../support/full.ts';
import { cli, fixture } from './support.ts';

const MLP = fixture('mlp-loss');
const ON_H100 = ['--cluster', 'dgx-h100'];
type PlanAnswer = Plan & { readonly fitProbability: number; readonly stepSeconds: number };

describe('what is missing is asked for at once, with a command that has all of it', () => {
  it.each([
    [['plan'], 'plan needs <model> and --cluster', 'plan llama-3.2-1b --devices 8xH100'],
    [['plan', 'gpt2'], 'plan needs --cluster', 'plan gpt2 --devices 8xH100'],
    [
      ['tune', 'mlp.fx.txt', '--run', '--devices', '2'],
      'tune needs --cluster',
      'tune mlp.fx.txt --devices 2 --cluster h100 --run',
    ],
    [['plan', 'gpt2', '--devices', '16'], 'plan needs --cluster', 'plan gpt2 --devices 16xH100'],
    [
      ['plan', 'gpt2', '--mesh', 'dp=4'],
      'plan needs --cluster',
      'plan gpt2 --mesh dp=4 --cluster h100',
    ],
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

describe('a model that there is not is named as such, whatever else is asked', () => {
  it.each([
    [['--for', 'megatron'], 'llama-3.1-8c', "E_REF there is no file and no model 'llama-3.1-8c'"],
    [['--layout', 'tp=2'], 'gpt3', "did you mean 'gpt3-175b' or 'gpt2'?"],
    [['--devices', '8,16'], 'gpt3', "E_REF there is no file and no model 'gpt3'"],
    [['--for', 'megatron'], 'model.fx.txt', 'E_FILE there is no file model.fx.txt'],
  ])('compare with %j of %s', async (flags, model, says) => {
    const { code, err } = await cli('compare', model, '--devices', '8', ...ON_H100, ...flags);
    expect([code, err]).toEqual([2, expect.stringContaining(says)]);
  });
});

describe('plan --risk', () => {
  it('takes a slower plan where the fastest one does not fit so surely', async () => {
    // FSDP that keeps its gathered weights is as fast as the fastest, and smaller.
    const plans = ['plan', 'gpt2', '--layers', '2', '--mesh', 'dp=2,tp=4', '--copies', 'pass'];
    const asked = [...plans, ...ON_H100, '--seq', '512', '--quiet'];
    const plan = async (...more: readonly string[]): Promise<PlanAnswer> => {
      const { out, err } = await cli(...asked, '--json', ...more);
      expect(out, err).not.toBe('');
      return JSON.parse(out) as PlanAnswer;
    };
    // The fastest plan takes 674 MiB, FSDP with Megatron 399.
    const memory = ['--memory', '695MiB'];
    const bold = await plan(...memory, '--risk', '50%');
    // What nobody says is 90 %.
    const careful = await plan(...memory);
    if (FULL) {
      const said = await plan(...memory, '--risk', '90%');
      expect(said.stepSeconds).toBe(careful.stepSeconds);
    }
    expect(bold.fitProbability).toBeLessThan(0.9);
    expect(careful.fitProbability).toBeGreaterThanOrEqual(0.9);
    expect(careful.stepSeconds).toBeGreaterThan(bold.stepSeconds);
    const refused = await cli(...asked, '--risk', '100%');
    expect(refused.err).toContain('is more than measured runs confirm');
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
    const planned = await cli('plan', '-v', MLP, '--devices', '4xH100', ...asked);
    expect(planned.code, planned.err).toBe(0);
    const { request, meshes, objective } = JSON.parse(planned.out) as Plan & {
      readonly meshes: readonly { readonly mesh: string; readonly seconds: number }[];
    };
    expect(meshes.map(({ mesh }) => mesh).sort()).toEqual(['dp=2,tp=2', 'dp=4']);
    expect(meshes[0].mesh).toBe(request.mesh);
    for (const { mesh, seconds } of meshes) {
      const own = await cli('plan', '-v', MLP, '--mesh', mesh, '--cluster', 'h100', ...asked);
      expect((JSON.parse(own.out) as Plan).objective.seconds).toBeCloseTo(seconds, 12);
      expect(objective.seconds).toBeLessThanOrEqual(seconds * (1 + 1e-9));
    }
  });

  it.each(['2x4090', '2 x RTX 4090', '2*rtx4090'])(
    '%s names devices of a graphics card',
    async (of) => {
      const { code, out, err } = await cli('plan', MLP, '--devices', of, '--no-recipes', '--quiet');
      expect(code, err).toBe(0);
      expect(out).toContain('on 2 devices of rtx4090-host');
    },
  );

  it('devices and their cluster must not contradict what stands beside them', async () => {
    const mesh = await cli('plan', '-v', MLP, '--mesh', 'dp=8', '--devices', '4xH100');
    expect(mesh.err).toContain('--mesh dp=8 has 8 devices, and --devices is 4');
    const cluster = await cli('plan', '-v', MLP, '--devices', '4xH100', '--cluster', 'a100');
    expect(cluster.err).toContain('--devices 4xH100 names a cluster, and --cluster a100 another');
  });
});
