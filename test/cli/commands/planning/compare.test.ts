import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { cli, fixture } from '../../support.ts';

const MLP = [fixture('mlp-loss'), '--devices', '8', '--cluster', 'dgx-h100'] as const;
let folder = '';
beforeAll(() => void (folder = mkdtempSync(join(tmpdir(), 'shardwright-'))));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

interface Compared {
  readonly plans: readonly {
    readonly name: string;
    readonly plan: string;
    readonly mesh: string;
    readonly seconds: number;
    readonly peakBytes: number;
    readonly fits: boolean;
    readonly communicationSeconds: number;
  }[];
  readonly best: string | null;
  readonly pareto: readonly string[];
}

describe('compare --for', () => {
  const small = (): string => {
    const path = join(folder, 'small.json');
    writeFileSync(
      path,
      JSON.stringify({
        model_type: 'llama',
        hidden_size: 256,
        intermediate_size: 512,
        num_attention_heads: 4,
        num_hidden_layers: 3,
        vocab_size: 512,
        torch_dtype: 'bfloat16',
      }),
    );
    return path;
  };
  const ask = async (...more: readonly string[]): ReturnType<typeof cli> =>
    cli(
      'compare',
      small(),
      '--devices',
      '2',
      ...(more.includes('--cluster') ? [] : ['--cluster', 'dgx-h100']),
      '--seq',
      '128',
      '--global-batch',
      '2',
      ...(more.includes('--plans') ? [] : ['--plans', 'dp']),
      '--quiet',
      '--threads',
      '1',
      ...more,
    );

  it('an eager host launches the kernels of a small model slower than a compiled step', async () => {
    const [eager, compiled] = await Promise.all([
      ask('--for', 'torchtitan', '--json'),
      ask('--for', 'torchtitan', '--compiled', '--json'),
    ]);
    const seconds = ({ out }: { readonly out: string }): number =>
      (JSON.parse(out) as Compared).plans[0].seconds;
    expect(seconds(eager)).toBeGreaterThan(1.2 * seconds(compiled));
  });

  it('gradients are kept and summed as the framework does, or as --gradients says', async () => {
    const states = async (
      ...more: readonly string[]
    ): Promise<{ readonly bytes: number; readonly seconds: number; readonly notes: string }> => {
      const { out } = await ask('--json', ...more);
      const { plans, notes } = JSON.parse(out) as Compared & { readonly notes: readonly string[] };
      return {
        bytes: plans[0].peakBytes,
        seconds: plans[0].communicationSeconds,
        notes: notes.join(' '),
      };
    };
    const [plain, megatron, narrow] = await Promise.all([
      states(),
      states('--for', 'megatron'),
      states('--framework', 'megatron-core', '--gradients', 'bf16'),
    ]);
    // Two bytes more for each parameter: two tables, three layers, and the last norm.
    const parameters = 2 * 512 * 256 + 3 * (4 * 256 ** 2 + 3 * 256 * 512 + 2 * 256) + 256;
    expect(megatron.bytes - narrow.bytes).toBe(2 * parameters);
    expect(megatron.seconds).toBeGreaterThan(narrow.seconds);
    // Without a name it is the trainer that most people take on these devices.
    expect(plain).toEqual(megatron);
    expect(narrow.notes).not.toContain('in 32 bits');
    expect(megatron.notes).toContain(
      'Gradients are kept in 32 bits, and summed over data ranks in 32 bits',
    );
  });

  it.each([
    ['dgx-h100', [], 'for       Megatron-LM, megatron-core 0.16.1 (--for asks for another)'],
    ['tpu-v5e', [], 'for       MaxText (--for asks for another)'],
    ['dgx-h100', ['--for', 'torchtitan'], 'for       torchtitan, torchtitan 0.3.0'],
    ['dgx-h100', ['--cost', 'alpha-beta'], undefined],
  ] as const)('names the trainer of a model on %s with %j', async (cluster, flags, line) => {
    const { out } = await ask('--cluster', cluster, ...flags, '-v');
    if (line === undefined) expect(out).not.toMatch(/^for /m);
    else expect(out).toContain(line);
  });

  it.each([
    [['--gradients', 'fp16'], /fp32/],
    [['--framework', 'megatron-cor'], /megatron-core/],
    [['--for', 'torchtitn'], /torchtitan/],
    [['--for', 'nemo', '--framework', 'torchtitan'], /mean the same/],
    [['--for', 'maxtext', '--plans', 'zero2'], /maxtext does not run zero=2[^]*zero=3, zero=1/],
    [['--for', 'deepspeed', '--layout', 'pp=2'], /deepspeed does not run pp=2[^]*pp=1/],
    [['--compiled', '--cost', 'alpha-beta'], /--compiled goes with --cost nccl, not alpha-beta/],
    [['--plans', 'dp+optimum'], /megatron does not run optimum[^]*--for shardwright/],
    [['--layout', 'pp=2,schedule=zb-h1'], /schedule=zb-h1[^]*--for shardwright/],
    [['--for', 'torchtitan', '--cost', 'alpha-beta'], /goes with --cost nccl, not alpha-beta/],
  ])('%j is refused with what would do', async (flags, message) => {
    const run = await ask(...flags);
    expect(run.code).toBe(2);
    expect(run.err).toMatch(message);
  });
});

describe('compare', () => {
  it('prints plans, the best and the front as one JSON value', async () => {
    const run = await cli('compare', ...MLP, '--max-dims', '2', '--json');
    expect(run.code, run.err).toBe(0);
    const compared = JSON.parse(run.out) as Compared;
    for (const p of compared.plans) {
      expect(p.seconds).toBeGreaterThan(0);
      expect(p.communicationSeconds).toBeGreaterThanOrEqual(0);
      expect(p.communicationSeconds).toBeLessThan(p.seconds);
      expect(p.mesh).toMatch(/^\w+=\d+(,\w+=\d+)?$/);
    }
    expect(compared.best).toBe('optimum');
    const front = compared.pareto.map((name) => compared.plans.find((p) => p.name === name));
    for (let i = 1; i < front.length; i++)
      expect(front[i]!.seconds).toBeLessThanOrEqual(front[i - 1]!.seconds);
    expect(run.err).toContain('mesh 2 x 4: solving');
  });

  it('one plan alone that does not fit: by how much, exit 3', async () => {
    const alone = ['compare', ...MLP, '--plans', 'dp', '--memory', '64MiB', '-v'] as const;
    const run = await cli(...alone);
    expect(run.code).toBe(3);
    expect(run.out).toContain('64.0 MiB each for peak memory, activations included');
    expect(run.out).toContain('does not fit: 80.1 MiB over the budget');
    expect(run.out).toContain('no plan fits the budget');
    const states = await cli(...alone, '--activations', 'report');
    expect(states.code).toBe(3);
    expect(states.out).toContain('64.0 MiB each for states (activations are not counted)');
    expect(states.out).toContain('does not fit: 64.1 MiB over the budget');
  });

  it('names and sizes that are nearly right', async () => {
    const plan = await cli('compare', ...MLP, '--plans', 'fspd');
    expect(plan.code).toBe(2);
    expect(plan.err).toContain("did you mean 'fsdp'?");
    const memory = await cli('compare', ...MLP, '--memory', '60');
    expect(memory.code).toBe(2);
    expect(memory.err).toContain('60GiB');
    const command = await cli('comapre', 'x');
    expect(command.code).toBe(2);
    expect(command.err).toMatch(/did you mean 'compare'/i);
    expect((await cli('compare', MLP[0])).code).toBe(2);
  });

  it('a plan that the linter stops, named alone, is bad input', async () => {
    const run = await cli(
      'compare',
      fixture('llama-tiny'),
      '--devices',
      '8',
      '--cluster',
      'dgx-h100',
      '--plans',
      'dp',
      '--json',
    );
    expect(run.code).toBe(2);
    expect(JSON.parse(run.out)).toMatchObject({
      plans: [],
      best: null,
      refused: [{ plan: 'dp', code: 'ZL02' }],
    });
  });

  it('slices put together are the whole, and the same bytes on every run', async () => {
    const plans = ['--plans', 'dp,fsdp,dp+tp,optimum', '--max-dims', '2', '--json', '--quiet'];
    const whole = await cli('compare', ...MLP, ...plans);
    expect((await cli('compare', ...MLP, ...plans)).out).toBe(whole.out);
    const files: string[] = [];
    for (const slice of ['1/2', '2/2']) {
      const piece = await cli('compare', ...MLP, ...plans, '--slice', slice);
      expect(piece.code).toBe(0);
      files.push(join(folder, `${slice[0]}.json`));
      writeFileSync(files.at(-1)!, piece.out);
    }
    const merged = await cli('compare', '--merge', files[0], '--merge', files[1], '--json');
    expect(merged.code).toBe(0);
    const [a, b] = [JSON.parse(merged.out) as Compared, JSON.parse(whole.out) as Compared];
    expect(a.plans).toEqual(b.plans);
    expect([a.best, a.pareto]).toEqual([b.best, b.pareto]);
    writeFileSync(files[0], '{"devices": 8}');
    const wrong = await cli('compare', '--merge', files[0]);
    expect(wrong.code).toBe(2);
    expect(wrong.err).toContain('$.cluster');
    expect((await cli('compare', ...MLP, '--slice', '3/2')).code).toBe(2);
  });
});
