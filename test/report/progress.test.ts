import { createHash } from 'node:crypto';
import {
  cpSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { stillPage } from '../../scripts/gallery.ts';
import { readPlan } from '../../src/plan/record/schema.ts';
import { type Incumbents, thinned } from '../../src/report/analysis/incumbents.ts';
import type { Report } from '../../src/report/model/data.ts';
import { secondsText } from '../../src/units.ts';
import { cli, fixture } from '../cli/support.ts';
import { textOf } from './html-reader.ts';

/**
 * The solver's steps: written beside the plan, because they have clock times, and read by its
 * report.
 */
interface Progress {
  readonly version: number;
  readonly plan: string;
  readonly steps: readonly {
    phase: string;
    seconds: number | null;
    boundSeconds: number | null;
    clockSeconds: number;
  }[];
}

let root = '';
/** Two folders of the same request, with the recipes as starting points. */
let folders: readonly string[] = [];
beforeAll(async () => {
  root = mkdtempSync(join(tmpdir(), 'shardwright-progress-'));
  folders = [await planInto('a'), await planInto('b')];
});
afterAll(() => rmSync(root, { recursive: true, force: true }));

async function planInto(name: string, ...flags: string[]): Promise<string> {
  const out = join(root, name);
  const run = await cli(
    'plan',
    '-v',
    fixture('mlp-loss'),
    '--mesh',
    'dp=2,tp=2',
    '--cluster',
    'dgx-h100',
    '--inputs',
    'S(0)R',
    '-o',
    out,
    ...flags,
  );
  expect(run.code, run.err).toBe(0);
  return out;
}

const text = (folder: string, name: string): string => readFileSync(join(folder, name), 'utf8');
const progressOf = (folder: string): Progress =>
  JSON.parse(text(folder, 'progress.json')) as Progress;
/** Reports that were made already: the folders are not changed. */
const known = new Map<string, string>();
async function made(folder: string, format: string): Promise<string> {
  const key = `${folder} ${format}`;
  const run = known.has(key) ? undefined : await cli('report', folder, '--format', format);
  if (run !== undefined) {
    expect(run.code, run.err).toBe(0);
    known.set(key, run.out);
  }
  return known.get(key) ?? '';
}

describe('two runs, from the request on', () => {
  it('plan.json, graph.swg and request.json have the same bytes, the steps differ by their clock alone', () => {
    const [a, b] = folders;
    expect(readdirSync(a)).toEqual([
      'certificate.json.gz',
      'graph.swg',
      'plan.json',
      'problems.json.gz',
      'progress.json',
      'request.json',
    ]);
    const files = [
      'plan.json',
      'graph.swg',
      'request.json',
      'certificate.json.gz',
      'problems.json.gz',
    ];
    for (const name of files) expect(text(a, name)).toBe(text(b, name));
    const still = (folder: string): unknown =>
      progressOf(folder).steps.map(({ clockSeconds: _, ...step }) => step);
    expect(still(a)).toEqual(still(b));
  });

  it('report.json without `run`, and the page without what it draws of it, too; Markdown and text have no clock', async () => {
    const [a, b] = folders;
    const [json, other] = [await made(a, 'json'), await made(b, 'json')];
    const still = (out: string): string => {
      const { run, ...rest } = JSON.parse(out) as Report;
      expect(run.incumbentSeconds).toHaveLength(rest.solverTrace!.incumbents!.length);
      return JSON.stringify(rest);
    };
    expect(still(json)).toBe(still(other));
    // What to type next names the folder of the plan.
    const unnamed = async (folder: string, format: string): Promise<string> =>
      (await made(folder, format)).replaceAll(folder, 'PLAN');
    expect(stillPage(await unnamed(a, 'html'))).toBe(stillPage(await unnamed(b, 'html')));
    for (const format of ['md', 'text'])
      expect(await unnamed(a, format)).toBe(await unnamed(b, format));
  });

  it('from report.json alone: the objective, summed over the nodes and over the terms, to the printed digits', async () => {
    const { plan, terms, answer } = JSON.parse(await made(folders[0], 'json')) as Report;
    const moves = [...plan.nodes, ...plan.outputs].flatMap((n) =>
      n.redistributions.map((r) => r.seconds),
    );
    const nodes = plan.nodes.flatMap((n) => [n.seconds, n.internalSeconds ?? 0]);
    const sum = (list: readonly number[]): number => list.reduce((total, s) => total + s, 0);
    for (const seconds of [sum([...nodes, ...moves]), sum(terms.map((t) => t.seconds))]) {
      expect(Math.abs(seconds / plan.objective.seconds - 1)).toBeLessThan(1e-9);
      expect(answer.find((a) => a.label === 'One after another')!.text).toContain(
        secondsText(seconds),
      );
    }
  });
});

describe('progress.json', () => {
  it('belongs to the plan by its hash; plans fall and bounds rise to what the plan says, from the recipes on', () => {
    const [folder] = folders;
    const { version, plan, steps } = progressOf(folder);
    expect(version).toBe(1);
    expect(plan).toBe(createHash('sha256').update(text(folder, 'plan.json')).digest('hex'));
    const { objective, proof } = readPlan(text(folder, 'plan.json'));
    expect(steps.at(-1)).toMatchObject({ seconds: objective.seconds, boundSeconds: proof.bound });
    expect(steps[0].seconds).toBeGreaterThan(objective.seconds);
    steps.slice(1).forEach((step, k) => {
      expect(step.clockSeconds).toBeGreaterThanOrEqual(steps[k].clockSeconds);
      if (steps[k].seconds !== null) expect(step.seconds!).toBeLessThanOrEqual(steps[k].seconds);
      if (steps[k].boundSeconds !== null)
        expect(step.boundSeconds!).toBeGreaterThanOrEqual(steps[k].boundSeconds);
    });
  });

  it('is in the report without solving anew: table in every format, drawing on the page', async () => {
    const { steps } = progressOf(folders[0]);
    const report = JSON.parse(await made(folders[0], 'json')) as Report;
    expect(report.solverTrace?.incumbentsFrom).toBe('plan');
    expect(report.solverTrace?.incumbents).toEqual(
      steps.map(({ phase, seconds, boundSeconds }) => ({ phase, seconds, bound: boundSeconds })),
    );
    expect(report.run.incumbentSeconds).toEqual(steps.map((s) => s.clockSeconds));
    expect(report.missing.join()).not.toContain('steps of the solver');
    const html = await made(folders[0], 'html');
    for (const out of [textOf(html), await made(folders[0], 'md'), await made(folders[0], 'text')])
      expect(out).toContain('While this plan was made');
    expect(html.includes('incumbents-title')).toBe(steps.length >= 3);
  });

  it('of another plan is left out and named; a broken one is refused with its place', async () => {
    const other = join(root, 'other');
    cpSync(folders[0], other, { recursive: true });
    const file = join(other, 'progress.json');
    const said = progressOf(other);
    writeFileSync(
      file,
      JSON.stringify({ ...said, plan: said.plan.replace(/^./, (c) => (c === '0' ? '1' : '0')) }),
    );
    const run = await cli('report', other, '--no-recipes', '--json');
    expect(run.code).toBe(0);
    expect(run.err).toContain('progress.json is not that of the plan next to it');
    const report = JSON.parse(run.out) as Report;
    expect([report.solverTrace?.incumbents, report.solverTrace?.incumbentsFrom]).toEqual([
      null,
      null,
    ]);
    expect(report.missing.join()).toContain('progress.json is not that of the plan next to it');
    writeFileSync(file, JSON.stringify({ ...said, steps: [{ phase: 3 }] }));
    const broken = await cli('report', other, '--no-recipes');
    expect(broken.code).toBe(2);
    expect(broken.err).toContain('$.steps.0.phase');
    writeFileSync(file, '{');
    expect((await cli('report', other, '--no-recipes')).err).toContain('not JSON');
  });

  it('is not kept where the budget limits peak memory: many problems lead to such a plan; an earlier one goes', async () => {
    const held = join(root, 'held');
    cpSync(folders[0], held, { recursive: true });
    await planInto('held', '--activations', 'constraint', '--no-recipes');
    expect(existsSync(join(held, 'plan.json'))).toBe(true);
    expect(existsSync(join(held, 'progress.json'))).toBe(false);
  });

  it('long logs keep every better plan and the last step, and thin out what raises the bound alone', () => {
    const steps: Incumbents['steps'][number][] = [];
    for (let k = 0; k < 5000; k++)
      steps.push({ phase: 'x', seconds: 100 - Math.floor(k / 500), bound: k / 100 });
    const { steps: kept, seconds } = thinned({ steps, seconds: steps.map((_, k) => k) });
    expect(kept.length).toBeLessThanOrEqual(420);
    expect(seconds).toHaveLength(kept.length);
    expect(kept.at(-1)).toBe(steps.at(-1));
    expect(new Set(kept.map((s) => s.seconds)).size).toBe(10);
    for (const at of [0, 500, 4500]) expect(seconds).toContain(at);
  });
});
