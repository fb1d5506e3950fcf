import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { describe, expect, it } from 'vitest';

import { evenBounds } from '../../../../src/sweep/step/stages/stage-bounds.ts';
import { FULL } from '../../../support/full.ts';
import { cli } from '../../support.ts';

const ASKED = [
  'compare',
  'gpt2',
  '--devices',
  '8',
  '--cluster',
  'dgx-h100',
  '--seq',
  '512',
  '--global-batch',
  '16',
  '--plans',
  'fsdp',
  '--quiet',
  '--threads',
  '1',
] as const;

interface Layout {
  readonly text: string;
  readonly name: string;
  readonly mesh: string;
  readonly seconds: number;
  readonly tokensPerSecond: number;
  readonly overBest: number;
  readonly fits: boolean;
  readonly microbatches: number;
  readonly edits: readonly { readonly change: string; readonly seconds: number }[];
}

describe('compare --layout', () => {
  it.each([
    ['llama3.1-8b', "no file and no model 'llama3.1-8b'", "did you mean 'llama-3.1-8b'"],
    ['nowhere', 'no file nowhere', 'models list'],
  ])(
    'of %s, which is not a model, says so and not what the flag is for',
    async (name, is, hint) => {
      const { code, err } = await cli('compare', name, ...ASKED.slice(2), '--layout', 'tp=2');
      expect([code, err]).toEqual([2, expect.stringContaining(is)]);
      expect(err).toContain(hint);
    },
  );

  const text = 'tp=2,dp=4,mbs=2,zero=1,recompute=full';

  it('prices the stated layout, says how far it is from the best, and which settings bring it nearer', async () => {
    const run = await cli(...ASKED, '--layout', text, '--json');
    expect(run.code, run.err).toBe(0);
    const { layout, plans, best } = JSON.parse(run.out) as {
      layout: Layout;
      plans: { name: string; seconds: number }[];
      best: string;
    };
    expect(layout).toMatchObject({
      text,
      name: 'zero1+tp+sp',
      mesh: 'dp=4,tp=2',
      fits: true,
      microbatches: 2,
    });
    const bestSeconds = plans.find((p) => p.name === best)?.seconds ?? NaN;
    expect(layout.overBest).toBeCloseTo(layout.seconds / bestSeconds - 1, 12);
    expect(layout.tokensPerSecond).toBeCloseTo((16 * 512) / layout.seconds, 6);
    // An edit that is named gives what the edited layout gives when it is asked for.
    const [edit] = layout.edits;
    expect(edit.change).toBe('mbs=4');
    const again = await cli(...ASKED, '--layout', text.replace('mbs=2', edit.change), '--json');
    const edited = (JSON.parse(again.out) as { layout: Layout }).layout;
    expect(edited.seconds).toBeCloseTo(edit.seconds, 12);
    expect(edited.seconds).toBeLessThan(layout.seconds);
  });

  it('layers that do not divide lie in parts that differ by one layer', async () => {
    for (const [layers, chunks] of [
      [61, 16],
      [61, 32],
      [16, 6],
      [7, 7],
      [32, 5],
      [48, 8],
    ] as const) {
      const bounds = evenBounds(layers, chunks);
      // The embedding is with the first part, the head with the last.
      const held = bounds
        .slice(1)
        .map((end, k) => end - bounds[k] - Number(k === 0) - Number(k === chunks - 1));
      expect(held.reduce((sum, n) => sum + n, 0)).toBe(layers);
      expect(Math.max(...held) - Math.min(...held)).toBe(layers % chunks === 0 ? 0 : 1);
    }
    const run = await cli(...ASKED, '--layout', 'pp=2,dp=4,vp=4', '--json');
    expect(run.code, run.err).toBe(0);
    expect((JSON.parse(run.out) as { layout: Layout }).layout).toMatchObject({
      name: 'pp+dp',
      fits: true,
    });
  });

  it.runIf(FULL)(
    'stages of one layer each: embedding and head take the places of two',
    async () => {
      const run = await cli(...ASKED, '--layout', 'pp=2,dp=4,vp=7,mbs=1', '--json');
      expect(run.code, run.err).toBe(0);
      const { layout } = JSON.parse(run.out) as { layout: Layout };
      expect(layout).toMatchObject({ name: 'pp+dp' });
    },
  );

  it('the dtypes of states decide bytes, and that of sums decides seconds', async () => {
    const priced = async (more: string): Promise<Layout & { peakBytes: number }> => {
      const run = await cli(...ASKED, '--layout', `dp=8,dtype=bf16,${more}`, '--json');
      expect(run.code, run.err).toBe(0);
      return (JSON.parse(run.out) as { layout: Layout & { peakBytes: number } }).layout;
    };
    const wide = await priced('gradients=fp32,states=fp32');
    const narrow = await priced('gradients=bf16,states=bf16');
    // Weights, gradients and two moments: four elements of two bytes less for each parameter.
    const GPT2 = 124_439_808;
    expect(wide.peakBytes - narrow.peakBytes).toBe(8 * GPT2);
    if (FULL)
      expect(wide.peakBytes - (await priced('gradients=fp32,states=fp32:bf16')).peakBytes).toBe(
        4 * GPT2,
      );
    expect(narrow.seconds).toBeLessThan(wide.seconds);
  });

  it('reads it from the configuration of a trainer, with sequence and batch, and lists what it cannot price', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'shardwright-layout-'));
    try {
      const path = join(folder, 'ds_config.json');
      const config = {
        train_micro_batch_size_per_gpu: 2,
        gradient_accumulation_steps: 1,
        bf16: { enabled: true },
        zero_optimization: { stage: 1, offload_optimizer: { device: 'cpu' } },
      };
      writeFileSync(path, JSON.stringify(config));
      const run = await cli(...ASKED, '--layout', path, '--json');
      expect(run.code, run.err).toBe(0);
      const { layout } = JSON.parse(run.out) as { layout: Layout & { from: unknown } };
      expect(layout).toMatchObject({
        text: 'dp=8,mbs=2,zero=1,dtype=bf16',
        name: 'zero1',
        microbatches: 1,
      });
      expect(layout.from).toEqual({
        file: 'ds_config.json',
        format: 'DeepSpeed',
        notPriced: [
          {
            key: 'zero_optimization.offload_optimizer.device',
            value: 'cpu',
            why: 'nothing is moved to the host',
          },
        ],
      });
      // What does not fit the model names the file, and how it was read.
      const args = join(folder, 'megatron.args');
      writeFileSync(args, '--micro-batch-size 2 --global-batch-size 100 --bf16\n');
      const torn = await cli(
        ...ASKED.filter((word) => word !== '--global-batch' && word !== '16'),
        '--layout',
        args,
      );
      expect(torn.code).toBe(2);
      expect(torn.err).toMatch(
        /^megatron\.args: E_INPUT the global batch of 100 does not divide over 8 data ranks with mbs=2; the file states dp=8,mbs=2,zero=0,gradients=fp32,dtype=bf16\n {2}hint: .* a batch of 96 or 112 would fit\.\n$/,
      );
      writeFileSync(path, JSON.stringify(config));
      // The file's batch is 8 x 2 sequences; the command says 32.
      const other = await cli(
        ...ASKED.map((word) => (word === '16' ? '32' : word)),
        '--layout',
        path,
        '-v',
      );
      // It is printed under the comparison.
      expect(other.out).toMatch(
        /^layout {4}dp=8,mbs=2,zero=1,dtype=bf16\b[^]*\n {10}zero1 on dp=8: /m,
      );
      expect(other.out).toMatch(
        /tokens\/s; [\d.]+ % (slower than the best|faster than the best that was priced)/,
      );
      expect(other.out).toContain('read from ds_config.json, DeepSpeed');
      expect(other.out).toContain('not counted: global batch 16: --global-batch is 32');
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it.each([
    ['no-such-file.yaml', 'no-such-file.yaml', 'give settings such as'],
    ['tp=2,dp=4,reshard=1', 'reshard=1 with zero=0', 'only zero=3'],
    ['dp=8,pair=1', 'pair=1 without ep', 'exchanges with experts'],
    ['dp=8,dtype=int8', 'dtype=int8', 'fp8'],
    ['tp=3,dp=2', 'pp x dp_replicate x dp x cp x tp is 6, and --devices is 8', 'do not count'],
    ['tp=2,dp=2', 'is 4, and --devices is 8', 'dp=4 would fit'],
    ['tp=2,dq=4', "no key 'dq'", "did you mean 'dp'"],
    ['tp=2,tp=4', "'tp' is given twice", 'leave one'],
    ['tp=2,dp', "'dp' is not KEY=VALUE", 'write for example'],
    ['tp=2,dp=4,mbs=0', 'mbs=0 is not a whole number', 'write mbs=1'],
    ['tp=2,dp=4,zero=4', 'zero=4 is not a stage', '0, 1, 2 and 3'],
    ['dp_replicate=2,dp=4,zero=1', 'dp_replicate=2 with zero=1', 'need zero=3'],
    ['dp=8,recompute=most', 'recompute=most', 'none'],
    ['dp=8,mbs=8', 'does not divide over 8 data ranks with mbs=8', 'change --global-batch'],
    ['tp=4,dp=2,ep=2', 'has no routed experts', 'leave ep and etp out'],
    ['dp=8,dtype=fp4', 'dtype=fp4 on dgx-h100', 'on devices with such a unit'],
    ['dp=8,offload=2', 'offload=2', '0'],
    ['pp=2,dp=4,vp=8', '12 layers do not make pp x vp = 16 parts', 'at most 12'],
  ])('%s is refused in one line', async (layout, found, hint) => {
    const run = await cli(...ASKED, '--layout', layout);
    expect(run.code).toBe(2);
    if (!layout.endsWith('.yaml')) expect(run.err).toContain('--layout: ');
    expect(run.err).toContain(found);
    expect(run.err).toContain(hint);
  });

  it('a graph has no layers to lay out', async () => {
    const run = await cli(
      'compare',
      'examples/mlp.ts',
      '--devices',
      '4',
      '--cluster',
      'dgx-h100',
      '--layout',
      'dp=4',
    );
    expect(run.code).toBe(2);
    expect(run.err).toContain('--layout is for models by name or config');
  });
});
