import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { type Audit, audit } from '../../../../src/audit.ts';
import { wholePlan } from '../../../../src/cli/input/plan-folder.ts';
import type { StepKeys } from '../../../../src/plan/record/answer.ts';
import { simulate } from '../../../../src/simulate/timeline/simulate.ts';
import { FULL } from '../../../support/full.ts';
import { cli, fixture } from '../../support.ts';

const MLP = fixture('mlp-loss');
const WHERE = ['--mesh', 'dp=2,tp=4', '--cluster', 'dgx-h100'] as const;
let folder = '';
beforeAll(() => void (folder = mkdtempSync(join(tmpdir(), 'shardwright-'))));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

interface Audited {
  readonly seconds: number;
  readonly optimumSeconds: number;
  readonly bound: number;
  readonly regret: number;
  readonly edits: readonly {
    readonly node: string;
    readonly from: string;
    readonly to: string;
    readonly secondsSaved: number;
    readonly bytesFreed: number;
  }[];
}

describe('audit', () => {
  it.each(FULL ? ['mlp-loss', 'llama-tiny'] : ['mlp-loss'])(
    'a recipe for %s costs the same on a mesh whose dims stand in another order, or have names that say nothing',
    async (model) => {
      const audited = async (mesh: string): Promise<{ seconds: number; notes: string[] }> => {
        const flags = [
          '--plan',
          'recipe:fsdp+tp',
          '--mesh',
          mesh,
          '--cluster',
          'dgx-h100',
          '--edits',
          '0',
          '--json',
          '--quiet',
        ];
        return JSON.parse((await cli('audit', fixture(model), ...flags)).out) as {
          seconds: number;
          notes: string[];
        };
      };
      const [named, turned, unnamed] = [
        await audited('dp=2,tp=4'),
        await audited('tp=4,dp=2'),
        await audited('a=2,b=4'),
      ];
      expect(turned.seconds).toBeCloseTo(named.seconds, 12);
      expect(unnamed.seconds).toBe(named.seconds);
      expect(named.notes.join()).not.toContain('in order');
      expect(unnamed.notes.join()).toContain('dp_shard is a, tp is b');
    },
  );

  it('zoo: is another spelling of recipe:, and zoo of recipes', async () => {
    const audited = (plan: string): ReturnType<typeof cli> =>
      cli(
        'audit',
        fixture('mlp'),
        '--plan',
        plan,
        '--mesh',
        'dp=2',
        '--cluster',
        'dgx-h100',
        '--edits',
        '0',
        '--json',
        '--quiet',
      );
    const [now, before] = [await audited('recipe:dp'), await audited('zoo:dp')];
    expect(before.out).toBe(now.out);
    expect((JSON.parse(now.out) as Audited).seconds).toBeGreaterThan(0);
    expect((await cli('zoo', 'list')).out).toBe((await cli('recipes', 'list')).out);
    expect((await cli('--help')).out).not.toContain('zoo');
  });

  it('of a recipe: regret, edits, exit 4 above the allowed regret', async () => {
    const run = await cli(
      'audit',
      MLP,
      '--plan',
      'recipe:fsdp+tp',
      ...WHERE,
      '--edits',
      '2',
      '--max-regret',
      '3%',
      '--json',
    );
    expect(run.code, run.err).toBe(4);
    const audited = JSON.parse(run.out) as Audited;
    expect(audited.regret).toBeCloseTo(audited.seconds / audited.optimumSeconds - 1, 12);
    expect(audited.bound).toBeLessThanOrEqual(audited.optimumSeconds);
    expect(audited.edits).toHaveLength(2);
    for (const e of audited.edits) {
      expect(e.from).not.toBe(e.to);
      expect(e.secondsSaved).toBeGreaterThan(0);
    }
    const text = await cli('audit', MLP, '--plan', 'recipe:fsdp+tp', ...WHERE, '--edits', '1');
    expect(text.code).toBe(0);
    expect(text.out).toContain('(activations)');
    expect(text.out).toContain('solved exactly');
  });

  it('the allowed regret is one of the step, which costs that overlap do not lengthen', async () => {
    const asked = ['--plan', 'recipe:tp', '--mesh', 'tp=4', '--cluster', 'dgx-h100'];
    const of = (allowed: string): ReturnType<typeof cli> =>
      cli(
        'audit',
        fixture('llama-tiny'),
        ...asked,
        '--edits',
        '0',
        '--max-regret',
        allowed,
        '--quiet',
      );
    const run = await of('1%');
    const [, step, sum] =
      /regret +([\d.]+) % of the step; ([\d.]+) % of the sum/.exec(run.out) ?? [];
    expect(Number(step)).toBeGreaterThan(1);
    expect(Number(sum)).toBeGreaterThan(Number(step) + 1);
    expect([run.code, run.err]).toEqual([
      4,
      `regret ${step} % of the step, allowed 1.00 % (--max-regret)\n`,
    ]);
    // The plan folder below has no regret, and ends with 0.
    if (FULL) expect((await of(`${Number(step) + 0.5}%`)).code).toBe(0);
  });

  it('of a plan folder: the optimum has no regret, and a pinned plan is audited without its pins', async () => {
    const best = join(folder, 'best');
    const pinned = join(folder, 'pinned');
    expect((await cli('plan', '-v', MLP, ...WHERE, '-o', best, '--no-recipes')).code).toBe(0);
    const pins = ['--pin', 'm.fc1.weight=S(0)R'];
    const made = await cli('plan', '-v', MLP, ...WHERE, ...pins, '-o', pinned, '--no-recipes');
    expect(made.code, made.err).toBe(0);
    const none = await cli('audit', MLP, '--plan', best, '--max-regret', '0', '--json');
    expect(none.code, none.err).toBe(0);
    expect(JSON.parse(none.out)).toMatchObject({ regret: 0, edits: [] });
    const run = await cli('audit', MLP, '--plan', join(pinned, 'plan.json'), '--json');
    expect(run.code, run.err).toBe(0);
    const audited = JSON.parse(run.out) as Audited;
    expect(audited.regret).toBeGreaterThan(0);
    expect(audited.optimumSeconds).toBe((JSON.parse(none.out) as Audited).optimumSeconds);
    expect((await cli('audit', MLP, '--plan', best, ...WHERE)).code).toBe(2);
    expect((await cli('audit', fixture('mlp'), '--plan', best)).code).toBe(2);
  });

  it('simulate and explain give the step of the trainer that a plan is made for, as the plan does', async () => {
    const config = join(folder, 'config.json');
    const dense = {
      ...{ model_type: 'llama', hidden_size: 256, intermediate_size: 512, num_hidden_layers: 1 },
      ...{ num_attention_heads: 4, vocab_size: 256, torch_dtype: 'bfloat16' },
    };
    writeFileSync(config, JSON.stringify(dense));
    const out = join(folder, 'trained');
    const asked = [
      '--mesh',
      'dp=2',
      '--cluster',
      'dgx-h100',
      '--seq',
      '512',
      '--for',
      'torchtitan',
    ];
    const made = await cli('plan', config, ...asked, '--recipe', 'fsdp', '-o', out, '--json');
    expect(made.code, made.err).toBe(0);
    const plan = JSON.parse(made.out) as StepKeys;
    expect(plan.trainer).toBe('torchtitan');
    const whole = wholePlan(out);
    const answers: readonly [string, StepKeys][] = [
      ...(await Promise.all(
        [
          ['audit', config, '--seq', '512', '--plan', out],
          ['simulate', out],
          ['explain', out, 'lm_head.weight'],
        ].map(async (asked): Promise<[string, StepKeys]> => {
          const run = await cli(...asked, '--json');
          return [asked.join(' '), JSON.parse(run.out) as StepKeys];
        }),
      )),
      ['simulate of the library', simulate(whole.program, whole.plan).step],
      ['audit of the library', (await audit(whole.program, whole.plan)) as Audit],
    ];
    for (const [asked, said] of answers) {
      const { stepSeconds, ...others } = said;
      expect(stepSeconds, asked).toBeCloseTo(plan.stepSeconds, 12);
      const { stepBand, peakBytes, fitProbability, trainer } = plan;
      expect(others, asked).toMatchObject({ peakBytes, fitProbability, trainer });
      expect(others.stepBand?.[1], asked).toBeCloseTo(stepBand?.[1] ?? NaN, 12);
    }
    const text = await cli('audit', config, '--seq', '512', '--plan', out);
    expect(text.out).toMatch(/^step time {2}\S+ m?s a training step, run by torchtitan$/m);
    if (!FULL) return;
    // A recipe by name is that of the same trainer.
    const named = ['--plan', 'recipe:fsdp', '--edits', '0', '--json'];
    const recipe = JSON.parse((await cli('audit', config, ...asked, ...named)).out) as Audit;
    expect(recipe.stepSeconds).toBeCloseTo(plan.stepSeconds, 12);
    const { peakBytes, trainer, best } = recipe;
    expect([peakBytes, trainer]).toEqual([plan.peakBytes, 'torchtitan']);
    // The best is what plan finds where no recipe is named.
    const free = await cli('plan', config, ...asked, '--json');
    expect(best?.stepSeconds).toBeCloseTo((JSON.parse(free.out) as StepKeys).stepSeconds, 12);
  });

  it('of the shardings that came with the model', async () => {
    const file = fileURLToPath(
      new URL('../../../fixtures/jax/einshard-mlp-tutorial-y/shardy.mlir.gz', import.meta.url),
    );
    const run = await cli(
      'audit',
      file,
      '--plan',
      'given',
      '--mesh',
      'd=8',
      '--cluster',
      'dgx-h100',
      '--json',
    );
    expect(run.code, run.err).toBe(0);
    const audited = JSON.parse(run.out) as Audited;
    expect(audited.seconds).toBeGreaterThanOrEqual(audited.optimumSeconds);
    const without = await cli('audit', MLP, '--plan', 'given', ...WHERE);
    expect(without.code).toBe(2);
    expect(without.err).toContain('no shardings came with the model');
  });

  it('a plan that does not fit is exit 3, and its edits make it fit', async () => {
    const run = await cli(
      'audit',
      MLP,
      '--plan',
      'recipe:dp',
      '--mesh',
      'dp=8',
      '--cluster',
      'dgx-h100',
      '--memory',
      '64MiB',
      '--edits',
      '6',
      '--json',
    );
    expect(run.code, run.err).toBe(3);
    const audited = JSON.parse(run.out) as Audited & {
      fits: boolean;
      overBytes: number;
      editedPeakBytes: number;
    };
    expect(audited.fits).toBe(false);
    // States alone are 67,190,784 over; the batch and what the loss keeps come on top.
    expect(audited.overBytes).toBe(84033544);
    expect(audited.editedPeakBytes).toBeLessThanOrEqual(64 * 2 ** 20);
  });

  it('unknown recipes and plans that do not fit the mesh exit 2 with the edit', async () => {
    const name = await cli('audit', MLP, '--plan', 'recipe:fspd', ...WHERE);
    expect(name.code).toBe(2);
    expect(name.err).toContain("did you mean 'fsdp'?");
    expect((await cli('audit', MLP, '--plan', 'recipe:dp', ...WHERE)).err).toContain('has axes dp');
    expect(
      (await cli('audit', MLP, '--plan', 'recipe:zero1', '--mesh', 'dp=8', '--cluster', 'dgx-h100'))
        .code,
    ).toBe(2);
    expect((await cli('audit', MLP, '--plan', join(folder, 'nothing'))).code).toBe(2);
    expect((await cli('audit', MLP, '--plan', 'recipe:dp')).err).toContain('needs --mesh');
  });
});
