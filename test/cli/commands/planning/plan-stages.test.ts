import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import type { CheckStagesReport } from '../../../../src/cli/commands/written-plan/check-stages.ts';
import { loadPlan } from '../../../../src/cli/input/plan-folder.ts';
import { readStages, type StagesFile } from '../../../../src/cli/input/stages-folder.ts';
import type { StagedPlanReport } from '../../../../src/report/text/stages.ts';
import { OwnProcess } from '../../../support/own-process.ts';
import { cli, fixture } from '../../support.ts';

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'shardwright-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const plan = (model: string, mesh: string, ...more: string[]): ReturnType<typeof cli> =>
  cli('plan', fixture(model), '--mesh', mesh, '--cluster', 'dgx-h100', ...more);

describe('plan FILE --mesh pp=2,dp=2', () => {
  it('prints the stages, and writes a folder of each that check-plan takes', async () => {
    const out = join(folder, 'stages');
    const run = await plan('mlp-loss', 'pp=2,dp=2', '--microbatches', '8', '-o', out);
    expect(run.code, run.err).toBe(0);
    expect(run.out).toMatch(/^model .* which is the program of one microbatch$/m);
    expect(run.out).toMatch(/^pipeline .* a step: 1f1b, 8 microbatches/m);
    expect(run.out).toMatch(/^mesh +2 stages in a row, each on dp=2$/m);
    expect(run.out).toMatch(/^cut +before addmm_1, of 1 cut point/m);
    for (const stage of ['stage-0', 'stage-1']) {
      const check = await cli('check-plan', join(out, stage));
      expect(check.code, check.err).toBe(0);
    }
    expect(existsSync(join(out, 'stage-2'))).toBe(false);
    const all = await cli('check-plan', out);
    expect(all.code, all.err).toBe(0);
    expect(all.out).toMatch(/^stage 1 +is what it says: [^]*go together$/m);
    const report = await cli('report', out);
    expect(report.out).toContain(run.out.slice(0, run.out.indexOf('\nwrote')).trimEnd());
    expect(report.out).toMatch(
      new RegExp(`^reports +report ${out}/stage-0; report ${out}/stage-1$`, 'm'),
    );
  });

  it('check-plan finds changed seconds, and stages of two plans that do not go together', async () => {
    const [one, other] = [join(folder, 'one'), join(folder, 'other')];
    const pinned = (at: string): string[] => [
      '--pin',
      `m.fc1.weight=${at}`,
      '--pin',
      'm.fc2.weight=S(1)',
    ];
    for (const [out, at] of [
      [one, 'S(0)'],
      [other, 'R'],
    ] as const) {
      const run = await plan(
        'mlp-loss',
        'pp=2,tp=2',
        ...pinned(at),
        '--microbatches',
        '4',
        '-o',
        out,
      );
      expect(run.code, run.err).toBe(0);
      expect((await cli('check-plan', out)).code).toBe(0);
    }
    const file = join(one, 'stages.json');
    const said = JSON.parse(readFileSync(file, 'utf8')) as StagesFile;
    const forged = { ...said.pipeline, seconds: said.pipeline.seconds / 2 };
    writeFileSync(file, JSON.stringify({ ...said, pipeline: forged }));
    const changed = await cli('check-plan', one, '--json');
    const found = JSON.parse(changed.out) as CheckStagesReport;
    expect([changed.code, found.ok, found.stages.map(({ ok }) => ok)]).toEqual([
      5,
      false,
      [true, true],
    ]);
    expect(found.differences.map(({ path }) => path)).toEqual(['stages.json $.pipeline.seconds']);
    expect(found.stepSeconds).toBe(said.pipeline.seconds);
    writeFileSync(file, JSON.stringify(said));
    rmSync(join(one, 'stage-1'), { recursive: true });
    cpSync(join(other, 'stage-1'), join(one, 'stage-1'), { recursive: true });
    const mixed = await cli('check-plan', one);
    expect([mixed.code, mixed.out]).toEqual([5, expect.stringMatching(/stage 1 receives relu/)]);
  });

  it('stages receive what is sent in the placement that it has, and say its bytes each way', async () => {
    const out = join(folder, 'agreeing');
    // Columns of the first layer and rows of the second are cut, as in Megatron-LM.
    const pins = ['--pin', 'm.fc1.weight=S(0)', '--pin', 'm.fc2.weight=S(1)'];
    const flags = ['--microbatches', '4', '-o', out, '--json'];
    const run = await plan('mlp-loss', 'pp=2,tp=2', ...pins, ...flags);
    expect(run.code, run.err).toBe(0);
    const [one, other] = (JSON.parse(run.out) as StagedPlanReport).pipeline.stages;
    const files = readStages(out);
    const plans = files.stages.map((stage) => loadPlan(join(out, stage.folder)).plan);
    expect(plans.map(({ hashes }) => hashes?.plan)).toEqual(files.stages.map((s) => s.plan));
    const [{ value, index }] = files.stages[0].sends;
    const placed = (k: number, name: string): string | undefined =>
      plans[k].nodes.find((node) => node.name === name)?.outputs[0];
    const sent = plans[0].outputs.filter(({ role }) => role === 'output')[index];
    expect(sent).toMatchObject({ value, placement: 'S(1)' });
    expect(placed(1, value)).toBe(sent.placement);
    const [back] = files.stages[0].receivesBack;
    const gradient = plans[1].outputs.find(({ role, of }) => role === 'grad' && of === value);
    expect(gradient).toMatchObject({ value: back.value, placement: 'S(1)' });
    expect(placed(0, back.value)).toBe('S(1)');
    // 64 rows of half of 4096 columns, 4 bytes each.
    const bytes = 64 * 2048 * 4;
    expect([one.sendBytes, one.sendBackBytes, other.sendBackBytes]).toEqual([bytes, 0, bytes]);
    const unknown = await plan('mlp-loss', 'pp=2,tp=2', '--pin', 'fc3.weight=R');
    expect([unknown.code, unknown.err]).toEqual([2, expect.stringMatching(/no 'fc3.weight'/)]);
  });

  it.each([
    ['audit', (out: string) => [fixture('mlp-loss'), '--plan', out]],
    ['simulate', (out: string) => [out]],
    ['report', (out: string) => [out, '--format', 'html']],
  ])('%s of a folder of stages says which folders it takes', async (command, words) => {
    const out = join(folder, 'agreeing');
    const run = await cli(command, ...words(out));
    expect([run.code, run.err]).toEqual([
      2,
      expect.stringMatching(/stages? [^]*hint: [^]*stage-0/),
    ]);
  });

  it('--pp 2 --mesh dp=2 is the same question, and --json names every part of the answer', async () => {
    const flags = ['--microbatches', '8', '--schedule', 'zb-h1', '--json'];
    const [one, other] = await Promise.all([
      plan('mlp-loss', 'pp=2,dp=2', ...flags),
      plan('mlp-loss', 'dp=2', '--pp', '2', ...flags),
    ]);
    expect(one.code, one.err).toBe(0);
    const { pipeline, mesh, stepSeconds } = JSON.parse(one.out) as StagedPlanReport;
    expect(JSON.parse(other.out)).toMatchObject({ mesh, stepSeconds });
    expect(mesh).toBe('dp=2');
    expect(pipeline).toMatchObject({
      schedule: 'zb-h1',
      microbatches: 8,
      virtual: 1,
      cuts: ['addmm_1'],
      cutPoints: 1,
      shared: [],
      carried: [],
      fits: true,
    });
    expect(pipeline.stages.map(({ inFlight, parts }) => [inFlight, parts])).toEqual([
      [2, 1],
      [2, 1],
    ]);
    // The slowest stage works eight times, and nobody is done sooner.
    const longest = Math.max(...pipeline.stages.map(({ seconds }) => seconds));
    expect(stepSeconds).toBeGreaterThan(8 * longest);
  });

  it.each([
    ['mlp-loss', ['pp=3,dp=2'], /1 cut point cannot make 3 pipeline stages[^]*at most 2 stages/],
    ['hop-scan-joint', ['pp=2,dp=2'], /scan \(scan\) is one call, never cut[^]*at most 1 stage,/],
    [
      'mlp-loss',
      ['pp=2,dp=1', '--schedule', 'interleaved', '--virtual', '1'],
      /schedule interleaved with 1 chunk/,
    ],
    ['mlp-loss', ['dp=2,pp=2'], /pp is the outermost dim/],
    ['mlp-loss', ['pp=2,dp=2', '--pp', '2'], /with --pp 2/],
    ['mlp-loss', ['pp=2,dp=2', '--checkpoint', 'full'], /--checkpoint does not go with --pp/],
  ])('refuses %s on %j', async (model, [mesh, ...more], says) => {
    const run = await plan(model, mesh, ...more);
    expect(run.code).toBe(2);
    expect(run.err).toMatch(says);
  });

  it('a traced program gets its backward pass, and stages begin at their cuts', async () => {
    const run = await OwnProcess.shared().cli(
      'plan',
      'examples/transformer.ts',
      '--mesh',
      'pp=2,dp=2',
      '--cluster',
      'dgx-h100',
    );
    expect(run.code, run.err).toBe(0);
    expect(run.out).toMatch(/^model .*, with the backward pass that follows from it$/m);
    const cut = /^cut +before (\w+), of (\d+) cut points/m.exec(run.out);
    expect(Number(cut?.[2])).toBeGreaterThan(1);
    expect(run.out).toMatch(new RegExp(`^ +1 +1 +${cut?.[1]} to `, 'm'));
  });

  it('a part that fits no device is named, with the memory that would do', async () => {
    const run = await plan('mlp-loss', 'pp=2,dp=2', '--memory', '1KiB');
    expect(run.code).toBe(3);
    expect(run.err).toMatch(/^E_INFEASIBLE the part from \w+ to \w+: no plan fits/);
  });
});
