import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import type { PlanDiff } from '../../../../src/plan/record/diff.ts';
import { readPlan } from '../../../../src/plan/record/schema.ts';
import type { Plan } from '../../../../src/plan/record/types.ts';
import { planModelInto } from '../../plan-folders.ts';
import { cli, fixture } from '../../support.ts';

let root = '';
const folders: string[] = [];
const plans: Plan[] = [];
beforeAll(async () => {
  root = mkdtempSync(join(tmpdir(), 'shardwright-diff-'));
  const planned = (name: string, ...flags: readonly string[]): Promise<string> =>
    planModelInto(fixture('mlp-loss'), root, name, ...flags);
  folders.push(await planned('a'));
  const [weight] = (JSON.parse(readFileSync(join(folders[0], 'plan.json'), 'utf8')) as Plan)
    .parameters;
  folders.push(await planned('b', '--pin', `${weight.name}=S(1)S(1)`));
  folders.push(await planned('c', '--solver', 'exact', '--optimizer', 'sgd'));
  for (const folder of folders)
    plans.push(readPlan(readFileSync(join(folder, 'plan.json'), 'utf8')));
});
afterAll(() => rmSync(root, { recursive: true, force: true }));

async function diff(a: string, b: string): Promise<PlanDiff> {
  const run = await cli('diff', a, b, '--json');
  expect(run.code, run.err).toBe(0);
  return JSON.parse(run.out) as PlanDiff;
}

describe('diff', () => {
  it('of a plan with itself is empty', async () => {
    const found = await diff(folders[0], folders[0]);
    expect(found).toEqual({
      deltaSeconds: 0,
      deltaPeakBytes: 0,
      terms: [],
      memory: [],
      placements: [],
      collectives: [],
      request: [],
    });
    expect((await cli('diff', folders[0], folders[0])).out).toContain('the plans are the same');
  });

  it('the terms sum to the difference of the objectives', async () => {
    const found = await diff(folders[0], folders[1]);
    const delta = plans[1].objective.seconds - plans[0].objective.seconds;
    expect(found.deltaSeconds).toBe(delta);
    expect(delta).toBeGreaterThan(0);
    const sum = found.terms.reduce((n, t) => n + (t.b - t.a), 0);
    expect(Math.abs(sum - delta)).toBeLessThanOrEqual(1e-12 * plans[1].objective.seconds);
    expect(found.deltaPeakBytes).toBe(plans[1].memory.peakBytes - plans[0].memory.peakBytes);
  });

  it('lists what is placed differently, and nothing else', async () => {
    const found = await diff(folders[0], folders[1]);
    const changed = plans[0].parameters.filter(
      (p, i) => p.placement !== plans[1].parameters[i].placement,
    );
    expect(changed.length).toBeGreaterThan(0);
    const counted = found.placements.reduce((n, p) => n + p.count, 0);
    const nodes = plans[0].nodes.filter((n, i) => {
      const other = plans[1].nodes[i];
      return n.inputs.join() !== other.inputs.join() || n.outputs.join() !== other.outputs.join();
    });
    // A parameter's placeholder is listed under the parameter's name: as many entries as nodes.
    expect(counted).toBe(nodes.length);
    const entry = found.placements.find((p) => p.name === changed[0].name);
    expect(entry ?? found.placements.find((p) => p.name.includes('*'))).toBeDefined();
    expect(found.request).toEqual([
      { key: 'pins', a: '', b: `${plans[0].parameters[0].name}=S(1)S(1)` },
    ]);
    for (const c of found.collectives) expect(c.a).not.toBe(c.b);
    const text = (await cli('diff', folders[0], folders[1])).out;
    expect(text).toContain('step time');
    expect(text).toContain('S(1)S(1)');
  });

  it('another optimizer is a difference of memory and request', async () => {
    const found = await diff(folders[0], folders[2]);
    expect(found.memory.map((m) => m.term)).toEqual(
      expect.arrayContaining(['peakBytes', 'optimizerBytes']),
    );
    expect(found.request).toEqual(
      expect.arrayContaining([
        { key: 'optimizer', a: '(default)', b: 'sgd' },
        { key: 'solver', a: 'auto', b: 'exact' },
      ]),
    );
  });

  it('plans that have nothing in common exit 2', async () => {
    const other = join(root, 'other.json');
    const { hashes: _, ...bare } = plans[0];
    writeFileSync(other, JSON.stringify({ ...bare, parameters: [], nodes: [] }));
    const run = await cli('diff', folders[0], other, '--json');
    expect(run.code).toBe(2);
    expect((JSON.parse(run.out) as { error: { message: string } }).error.message).toContain(
      'nothing in common',
    );
  });
});

describe('hardware', () => {
  it('list names every cluster, show has every constant with a source', async () => {
    const list = await cli('hardware', 'list');
    expect(list.code).toBe(0);
    const json = JSON.parse((await cli('hardware', 'list', '--json')).out) as {
      clusters: { id: string; sources: string[] }[];
    };
    for (const { id, sources } of json.clusters) {
      expect(list.out).toContain(`${id} `);
      expect(sources.length).toBeGreaterThan(0);
    }
    expect(json.clusters.map((c) => c.id)).toEqual(
      expect.arrayContaining(['dgx-h100', 'gb200-nvl72']),
    );
    const show = await cli('hardware', 'show', 'dgx-h100');
    expect(show.out).toContain(`${81_559 * 2 ** 20}`);
    expect(show.out).toMatch(/dense peaks .*bf16 989\.4/);
    // A source stands once, below the table.
    expect(show.out.match(/best measured dense bf16 matmul/g)).toHaveLength(1);
    for (const { id } of json.clusters) {
      const { out } = await cli('hardware', 'show', id);
      for (const line of out.split('\n')) expect(line.length, line).toBeLessThanOrEqual(100);
    }
    expect(show.out).not.toContain('not stated');
    expect(JSON.parse((await cli('hardware', 'show', 'dgx-h100', '--json')).out)).toMatchObject({
      devicesPerHost: 8,
    });
  });

  it('what show --json prints is a cluster file: the same cluster, and the same plan', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'shardwright-hardware-'));
    try {
      for (const name of ['dgx-h100', 'tpu-v5p-pod']) {
        const { out } = await cli('hardware', 'show', name, '--json');
        const file = join(folder, `${name}.json`);
        writeFileSync(file, out);
        expect(JSON.parse((await cli('hardware', 'show', file, '--json')).out)).toEqual(
          JSON.parse(out),
        );
        const plan = async (cluster: string): Promise<string> =>
          (
            await cli(
              'plan',
              '-v',
              fixture('mlp-loss'),
              '--mesh',
              'dp=4',
              '--cluster',
              cluster,
              '--quiet',
            )
          ).out.replace(/, [\d.]+ \S?s;/, ';');
        expect(await plan(file)).toBe(await plan(name));
      }
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });

  it('--cluster dgx-h1000 and show dgx-h1000 suggest dgx-h100, then dgx-h200', async () => {
    const run = await cli('hardware', 'show', 'dgx-h1000');
    expect(run.code).toBe(2);
    expect(run.err).toMatch(/did you mean 'dgx-h100' or 'dgx-h200'/);
  });
});
