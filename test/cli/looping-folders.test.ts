import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import type { ExplainResult } from '../../src/cli/commands/written-plan/explain.ts';
import { printGraph } from '../../src/graph/text/write.ts';
import type { Graph } from '../../src/graph/types.ts';
import { jointGraph } from '../../src/passes/autodiff/joint.ts';
import { readPlan } from '../../src/plan/record/schema.ts';
import type { Plan } from '../../src/plan/record/types.ts';
import type { Report } from '../../src/report/model/data.ts';
import { cond } from '../../src/trace/control/cond.ts';
import { scan, whileLoop } from '../../src/trace/control/loops.ts';
import { input, parameter, type Tensor, trace } from '../../src/trace/trace.ts';
import { cli } from './support.ts';

/** Plan folders of programs with control flow keep the program, bodies and trips included. */

const [rows, width, length] = [1024, 2048, 7];
const weights = { wx: parameter([width, width]), wh: parameter([width, width]) };
const step =
  (wx: Tensor, wh: Tensor) =>
  (h: Tensor, x: Tensor): readonly [Tensor, Tensor] => {
    const next = x.matmul(wx).add(h.matmul(wh)).tanh();
    return [next, next];
  };

const PROGRAMS: Readonly<Record<string, () => Graph>> = {
  scan: () =>
    trace(({ wx, wh, h, xs }) => scan(step(wx, wh), h, xs)[0].sum(), {
      ...weights,
      h: input([rows, width]),
      xs: input([length, rows, width]),
    }),
  'scan-joint': () => jointGraph(PROGRAMS.scan(), { seed: 1 }),
  while: () =>
    trace(
      ({ wh, h }) =>
        whileLoop(
          ({ i }) => i.lt(length),
          ({ i, h: now }) => ({ i: i.add(1), h: now.matmul(wh).tanh() }),
          { i: 0, h },
          { maxTrips: length },
        ).h.sum(),
      { wh: weights.wh, h: input([rows, width]) },
    ),
  nested: () =>
    trace(
      ({ wx, wh, h, xs }) =>
        scan(
          (now, x: Tensor) => [
            cond(
              x.sum().gt(0),
              () => scan(step(wx, wh), now, x.view(1, rows, width))[0],
              () => now,
            ),
            null,
          ],
          h,
          xs,
        )[0].sum(),
      { ...weights, h: input([rows, width]), xs: input([length, rows, width]) },
    ),
};

let root = '';
const folderOf = (name: string): string => join(root, name);
const planOf = (folder: string): Plan => readPlan(readFileSync(join(folder, 'plan.json'), 'utf8'));
const SETTINGS = ['--mesh', 'd=4', '--cluster', 'dgx-h100', '--quiet'];

async function plan(model: string, folder: string, ...more: string[]): Promise<Plan> {
  const run = await cli('plan', '-v', model, ...SETTINGS, '--no-recipes', '-o', folder, ...more);
  expect(run.code, run.err).toBe(0);
  return planOf(folder);
}

beforeAll(async () => {
  root = mkdtempSync(join(tmpdir(), 'shardwright-loops-'));
  mkdirSync(join(root, 'models'));
  for (const [name, make] of Object.entries(PROGRAMS)) {
    writeFileSync(join(root, 'models', `${name}.swg`), printGraph(make()));
    await plan(join(root, 'models', `${name}.swg`), folderOf(name));
  }
});
afterAll(() => rmSync(root, { recursive: true, force: true }));

describe.each(Object.keys(PROGRAMS))('the plan folder of %s', (name) => {
  it('keeps the bodies and the trips: planned again from it, the same plan comes out', async () => {
    const text = readFileSync(join(folderOf(name), 'graph.swg'), 'utf8');
    expect(text).toMatch(/ = (scan|while_loop|cond)\(@/);
    const again = await plan(join(folderOf(name), 'graph.swg'), join(root, `${name}-again`));
    const first = planOf(folderOf(name));
    // The name of a model is that of its file.
    expect({ ...again, model: '', hashes: {} }).toEqual({ ...first, model: '', hashes: {} });
    expect(first.nodes.some((node) => node.times === length)).toBe(true);
  });

  it('explain prices what stands in a body by its trips', async () => {
    const inBody = planOf(folderOf(name)).nodes.filter(
      (n) => n.target === 'aten.mm.default' && n.times === length,
    );
    expect(inBody.length).toBeGreaterThan(0);
    for (const node of inBody) {
      const run = await cli('explain', folderOf(name), node.name, '--json');
      expect(run.code, run.err).toBe(0);
      const found = JSON.parse(run.out) as ExplainResult;
      expect(found.chosen).toBe(`${node.inputs.join(', ')} -> ${node.outputs.join(', ')}`);
      expect(found.strategies[0]).toMatchObject({ class: 'CHOSEN', localSeconds: 0 });
      expect(found.strategies[0].computeSeconds).toBeCloseTo(node.seconds * length, 12);
      for (const c of found.strategies) expect(c.localSeconds ?? 0).toBeGreaterThanOrEqual(0);
    }
  });

  it('report names the recipes, and its rows are those of the plan', async () => {
    const run = await cli('report', folderOf(name), '--json');
    expect([run.code, run.err]).toEqual([0, '']);
    const report = JSON.parse(run.out) as Report;
    expect(report.zoo?.length).toBeGreaterThan(2);
    expect(report.missing.join()).not.toMatch(/graph|request/);
    const total = report.terms.reduce((n, term) => n + term.seconds, 0);
    expect(total).toBeCloseTo(report.plan.objective.seconds, 12);
    const html = await cli('report', folderOf(name), '--no-recipes');
    for (const node of planOf(folderOf(name)).nodes.filter((n) => n.times === length))
      expect(html.out).toContain(node.name);
    const csv = await cli('report', folderOf(name), '--format', 'csv');
    expect(csv.out.trim().split('\n').length).toBeGreaterThan(planOf(folderOf(name)).nodes.length);
  });
});

describe('questions about a loop', () => {
  it('explain --force solves the loop again', async () => {
    const node = planOf(folderOf('scan')).nodes.find(
      (n) => n.target === 'aten.mm.default' && n.times === length,
    )!;
    const run = await cli(
      'explain',
      folderOf('scan'),
      node.name,
      '--force',
      'R',
      '--json',
      '--quiet',
    );
    const { forced, attribution } = JSON.parse(run.out) as ExplainResult;
    const direct = await plan(
      join(root, 'models/scan.swg'),
      join(root, 'pinned'),
      '--pin',
      `${node.name}=R`,
    );
    expect(forced?.seconds).toBeCloseTo(direct.objective.seconds, 12);
    expect(forced?.globalSeconds).toBeGreaterThan(0);
    const sum = attribution.reduce((total, term) => total + term.delta, 0);
    expect(sum).toBeCloseTo(forced?.globalSeconds ?? NaN, 12);
    const diff = await cli('diff', folderOf('scan'), join(root, 'pinned'));
    expect(diff.code).toBe(0);
    expect(diff.out).toContain(node.name);
  });

  it('a folder of another program is refused', async () => {
    const mixed = join(root, 'mixed');
    mkdirSync(mixed);
    for (const file of ['plan.json', 'request.json'])
      writeFileSync(join(mixed, file), readFileSync(join(folderOf('scan'), file)));
    writeFileSync(join(mixed, 'graph.swg'), readFileSync(join(folderOf('while'), 'graph.swg')));
    const run = await cli('explain', mixed, 'wh');
    expect(run.code).toBe(2);
    expect(run.err).toContain('graph.swg is not the file the plan was made with');
  });
});
