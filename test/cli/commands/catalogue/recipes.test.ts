import { describe, expect, it } from 'vitest';

import { cli, fixture } from '../../support.ts';

describe('recipes list', () => {
  it('prints every plan with its axes and collectives', async () => {
    const run = await cli('recipes', 'list', '--json');
    expect(run.code).toBe(0);
    const { plans } = JSON.parse(run.out) as {
      plans: { name: string; axes: string[]; outside?: string }[];
    };
    expect(plans.map((p) => p.name)).toEqual(
      expect.arrayContaining([
        'dp',
        'zero1',
        'zero2',
        'fsdp',
        'hsdp',
        'dp+tp',
        'dp+tp+sp',
        'hsdp+tp',
        'dp+cp',
        'dp+ulysses',
        'dp+cp+tp',
        'dp+ep',
        'pp',
      ]),
    );
    expect(plans.find((p) => p.name === 'pp')?.outside).toContain('plan --pp N');
    expect(plans.find((p) => p.name === 'dp+tp')).toMatchObject({
      axes: ['dp', 'tp'],
      step: 'all_reduce of gradients over dp',
    });
  });

  it('with a mesh, the process groups of each axis and the hosts that they touch', async () => {
    const run = await cli('recipes', 'list', '--mesh', 'a=2,b=4', '--json');
    const { plans } = JSON.parse(run.out) as { plans: { name: string; groups: unknown }[] };
    expect(plans.find((p) => p.name === 'hsdp')?.groups).toEqual([
      {
        axis: 'dp_replicate',
        hosts: 1,
        groups: [
          [0, 4],
          [1, 5],
          [2, 6],
          [3, 7],
        ],
      },
      {
        axis: 'dp_shard',
        hosts: 1,
        groups: [
          [0, 1, 2, 3],
          [4, 5, 6, 7],
        ],
      },
    ]);
    const turned = await cli('recipes', 'list', '--mesh', 'tp=2,dp=4', '--json');
    const named = (JSON.parse(turned.out) as { plans: typeof plans }).plans;
    expect(named.map((p) => p.name)).not.toContain('hsdp');
    expect(named.find((p) => p.name === 'dp+tp')?.groups).toEqual([
      {
        axis: 'dp',
        hosts: 1,
        groups: [
          [0, 1, 2, 3],
          [4, 5, 6, 7],
        ],
      },
      {
        axis: 'tp',
        hosts: 1,
        groups: [
          [0, 4],
          [1, 5],
          [2, 6],
          [3, 7],
        ],
      },
    ]);
    const none = await cli('recipes', 'list', '--mesh', 'a=2,b=2,c=2,d=2,e=2');
    expect([none.code, none.out]).toEqual([2, '']);
    expect(none.err).toContain('no recipe has the axes of the mesh a=2,b=2,c=2,d=2,e=2');
    const wide = await cli('recipes', 'list', '--mesh', 'dp=4,tp=8');
    expect(wide.out).toContain('8 groups on 4 hosts each');
    expect(wide.out).toContain('4 groups on 1 host each');
  });
});

it('zoo is the earlier name of the command: it works, and help shows the new one only', async () => {
  expect((await cli('recipes', 'list')).out).toBe((await cli('recipes', 'list')).out);
  const help = await cli('--help');
  expect(help.out).toMatch(/^ +recipes +the recipes/m);
  expect(help.out).not.toMatch(/zoo/);
  expect((await cli('recipes', '--help')).out).not.toMatch(/zoo/);
});

describe('recipes lint', () => {
  const llama = fixture('llama3-8b-2l-b16');

  it('KV heads fewer than tp are a warning; heads that tp does not divide an error, exit 5', async () => {
    const warned = await cli(
      'recipes',
      'lint',
      llama,
      '--plan',
      'dp+tp',
      '--mesh',
      'dp=4,tp=16',
      '--json',
    );
    expect(warned.code).toBe(0);
    const { findings } = JSON.parse(warned.out) as {
      findings: { code: string; severity: string; values: object }[];
    };
    expect(findings.map((f) => [f.code, f.severity])).toEqual([
      ['ZL04', 'warn'],
      ['ZL11', 'warn'],
    ]);
    expect(findings[0].values).toEqual({ kvHeads: 8, tp: 16, copies: 2 });
    const wrong = await cli('recipes', 'lint', llama, '--plan', 'dp+tp', '--mesh', 'dp=2,tp=12');
    expect(wrong.code).toBe(5);
    expect(wrong.out).toContain('ZL03  error  heads 32 mod tp 12 is 8');
    expect(wrong.out).toContain('nearest: 8, 16');
  });

  it('the order of the mesh says which groups are across hosts', async () => {
    const lint = async (...mesh: string[]): Promise<string> =>
      (await cli('recipes', 'lint', llama, '--plan', 'dp+tp', '--mesh', ...mesh)).out;
    const apart = 'tp groups of 8 span hosts of 8 devices: their ranks are 2 devices apart';
    expect(await lint('dp=2,tp=8')).not.toContain('ZL11');
    expect(await lint('tp=8,dp=2')).toContain(apart);
    expect(await lint('tp=8,dp=-1', '--devices', '16')).toContain(apart);
  });

  it('a size of -1 is filled', async () => {
    const args = ['recipes', 'lint', llama, '--plan', 'hsdp+tp', '--devices', '32', '--mesh'];
    expect((await cli(...args, 'dp_replicate=2,dp_shard=-1,tp=4')).code).toBe(0);
    const wrong = await cli(...args, 'dp_replicate=2,dp_shard=-1,tp=3');
    expect(wrong.code).toBe(5);
    expect(wrong.out).toContain('ZL01');
  });

  it('--batch and --seq are the sizes that are checked', async () => {
    const sizes = async (...more: string[]): Promise<string> =>
      (await cli('recipes', 'lint', llama, '--plan', 'fsdp+tp+sp', '--mesh', 'dp=2,tp=4', ...more))
        .out;
    expect(await sizes()).not.toMatch(/ZL02|ZL06/);
    expect(await sizes('--batch', '3')).toContain('ZL02  error  global batch 3 mod 2');
    expect(await sizes('--seq', '1001')).toContain('ZL06  error  sequence 1001 mod 4 is 1');
  });

  it('axes are found by name, in any order', async () => {
    const sizes = async (mesh: string): Promise<string> =>
      (await cli('recipes', 'lint', llama, '--plan', 'fsdp+tp', '--mesh', mesh)).out;
    expect(await sizes('tp=12,dp=2')).toContain('heads 32 mod tp 12 is 8');
    expect(await sizes('dp=2,tp=12')).toContain('heads 32 mod tp 12 is 8');
    const strange = await cli('recipes', 'lint', llama, '--plan', 'fsdp+tp', '--mesh', 'cp=2,tp=4');
    expect(strange.code).toBe(2);
    expect(strange.err).toContain("'fsdp+tp' has axes dp_shard, tp, and none is the mesh dim 'cp'");
  });

  it('a mesh of other axes than the plan is bad input', async () => {
    const run = await cli('recipes', 'lint', llama, '--plan', 'dp+tp', '--mesh', 'dp=4', '--json');
    expect(run.code).toBe(2);
    expect(JSON.parse(run.out)).toMatchObject({ error: { code: 'E_USAGE' } });
  });
});
