import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import type { ExplainResult } from '../../../../src/cli/commands/written-plan/explain.ts';
import { planAnswer } from '../../../../src/plan/record/answer.ts';
import { readPlan } from '../../../../src/plan/record/schema.ts';
import type { Plan } from '../../../../src/plan/record/types.ts';
import { FULL } from '../../../support/full.ts';
import { planModelInto } from '../../plan-folders.ts';
import { cli, fixture } from '../../support.ts';

let root = '';
let folder = '';
let plan: Plan;
beforeAll(async () => {
  root = mkdtempSync(join(tmpdir(), 'shardwright-explain-'));
  folder = await planned('plan');
  plan = readPlan(readFileSync(join(folder, 'plan.json'), 'utf8'));
});
afterAll(() => rmSync(root, { recursive: true, force: true }));

/** Plans a model of two layers into a folder. */
const planned = (name: string, ...flags: readonly string[]): Promise<string> =>
  planModelInto(fixture('mlp-loss'), root, name, ...flags);

async function explain(...argv: string[]): Promise<ExplainResult> {
  const run = await cli('explain', folder, ...argv, '--json');
  expect(run.code, run.err).toBe(0);
  return JSON.parse(run.out) as ExplainResult;
}

describe('explain', () => {
  it('lists every strategy of a node with its costs, the chosen one first', async () => {
    const weight = plan.parameters.find((p) => p.shape.length === 2)!;
    const found = await explain(weight.name);
    expect(Object.keys(found)).toEqual(
      expect.arrayContaining(['node', 'chosen', 'strategies', 'attribution', 'changedNodes']),
    );
    expect(found.chosen).toBe(weight.placement);
    expect(found).toMatchObject(planAnswer(plan));
    expect(found.strategies[0]).toMatchObject({
      class: 'CHOSEN',
      spec: weight.placement,
      localSeconds: 0,
    });
    expect(found.strategies.filter((c) => c.class === 'CHOSEN')).toHaveLength(1);
    // A proven optimum: with everything else fixed nothing is cheaper.
    expect(plan.proof.status).toBe('optimal');
    for (const c of found.strategies) {
      if (c.localSeconds !== null) expect(c.localSeconds).toBeGreaterThanOrEqual(0);
      else expect(c.class).toBe('UNAVAILABLE');
    }
    expect(found.globalAtLeastSeconds).toBeCloseTo(plan.proof.bound - plan.objective.seconds, 12);
  });

  it('states the compute of the chosen strategy as the plan does', async () => {
    const node = plan.nodes.find((n) => n.target === 'aten.mm.default')!;
    const found = await explain(node.name);
    expect(found.chosen).toBe(`${node.inputs.join(', ')} -> ${node.outputs.join(', ')}`);
    expect(found.strategies[0].computeSeconds).toBe(node.seconds);
  });

  it('--force of the chosen placement gives 0', async () => {
    const weight = plan.parameters[0];
    const found = await explain(weight.name, '--force', weight.placement);
    expect(found.forced?.globalSeconds).toBe(0);
    expect(found.attribution).toEqual([]);
    expect(found.changedNodes).toEqual([]);
  });

  it('--force solves again: as expensive as a plan with that pin, and the terms sum to the difference', async () => {
    const weight = plan.parameters.find((p) => p.shape.length === 2)!;
    const others = (await explain(weight.name)).strategies.filter((c) => c.class !== 'CHOSEN');
    for (const { spec } of others.slice(0, FULL ? 2 : 1)) {
      const found = await explain(weight.name, '--force', spec);
      const pinned = await planned('pinned', '--pin', `${weight.name}=${spec}`);
      const other = readPlan(readFileSync(join(pinned, 'plan.json'), 'utf8'));
      expect(found.forced?.seconds).toBe(other.objective.seconds);
      const delta = found.forced!.globalSeconds;
      expect(delta).toBe(other.objective.seconds - plan.objective.seconds);
      const sum = found.attribution.reduce((n, t) => n + t.delta, 0);
      expect(Math.abs(sum - delta)).toBeLessThanOrEqual(1e-12 * plan.objective.seconds);
      expect(found.forced?.changes).toEqual([`pins: + ${weight.name}=${spec}`]);
      // Local leaves the neighbours where they are, so that it cannot be below global.
      const local = found.strategies.find((c) => c.spec === spec)!.localSeconds;
      if (local !== null) expect(delta).toBeLessThanOrEqual(local + 1e-12 * plan.objective.seconds);
    }
  });

  it('a placement over the budget says by how much, and --force exits 3 with the smallest budget', async () => {
    const model = fixture('mlp-loss');
    const least = await cli(
      'plan',
      model,
      '--mesh',
      'dp=2,tp=2',
      '--cluster',
      'dgx-h100',
      '--memory',
      '1B',
      '--activations',
      'report',
      '--json',
    );
    expect(least.code).toBe(3);
    const { smallestBudgetBytes } = JSON.parse(least.out) as { smallestBudgetBytes: number };
    const tight = await planModelInto(
      model,
      root,
      'tight',
      '--memory',
      `${smallestBudgetBytes}B`,
      '--activations',
      'report',
    );
    const [{ name }] = readPlan(readFileSync(join(tight, 'plan.json'), 'utf8')).parameters;
    const run = await cli('explain', tight, name, '--json');
    expect(run.code, run.err).toBe(0);
    const found = JSON.parse(run.out) as ExplainResult;
    const over = found.strategies.filter((c) => c.class === 'OVER BUDGET');
    expect(over.length).toBeGreaterThan(0);
    expect(found.limits[0]).toMatch(/^Memory: /);
    const forced = await cli('explain', tight, name, '--force', over[0].spec);
    expect(forced.code).toBe(3);
    // At the least budget every other parameter is at its smallest, so what is over is what is
    // missing.
    expect(forced.err).toContain(`${smallestBudgetBytes + over[0].overBytes!} bytes`);
  });

  it('--force given twice prices the second placement on top of the first', async () => {
    const [first, second] = plan.parameters.filter((p) => p.shape.length === 2);
    const spec = (await explain(first.name)).strategies.find((c) => c.class === 'COSTLIER')!.spec;
    const chain = ['--force', spec, '--force', `${second.name}=RR`];
    const found = await explain(first.name, ...chain);
    const pins = [`${first.name}=${spec}`, `${second.name}=RR`];
    const flags = pins.flatMap((pin) => ['--pin', pin]);
    const pinned = await planned('pinned-twice', ...flags);
    const other = readPlan(readFileSync(join(pinned, 'plan.json'), 'utf8'));
    expect(found.steps?.map(({ node }) => node)).toEqual([first.name, second.name]);
    expect(found.steps?.at(-1)?.seconds).toBe(other.objective.seconds);
    expect(found.forced).toMatchObject({
      globalSeconds: other.objective.seconds - plan.objective.seconds,
      changes: pins.map((pin) => `pins: + ${pin}`),
    });
    const run = await cli('explain', folder, first.name, ...chain);
    expect(run.code, run.err).toBe(0);
    expect(run.out).toContain(`force ${pins[0]}: global`);
    expect(run.out).toMatch(
      /\n2 together: global .* in all, optimal\nchanged in the request: pins: \+ .*; pins: \+ .*\n$/,
    );
    const wrong = await cli(
      'explain',
      folder,
      first.name,
      '--force',
      spec,
      '--force',
      'nowhere=RR',
    );
    expect(wrong.code).toBe(2);
    expect(wrong.err).toContain("no node 'nowhere'");
  });

  it('prints a table for people, with the reason of the change', async () => {
    const weight = plan.parameters.find((p) => p.shape.length === 2)!;
    const spec = (await explain(weight.name)).strategies.find((c) => c.class === 'COSTLIER')!.spec;
    const run = await cli('explain', folder, weight.name, '--force', spec, '--limit', '3');
    expect(run.code, run.err).toBe(0);
    expect(run.out).toContain('CHOSEN');
    expect(run.out).toContain(`changed in the request: pins: + ${weight.name}=${spec}`);
    expect(run.out).toContain('because of');
  });
});

describe('wrong input exits with 2 and says what to write', () => {
  it.each<[string[], string, string]>([
    [['no_such_node'], "no node 'no_such_node'", 'hint'],
    [['mm_9'], 'no node', 'did you mean'],
    [['NAME', '--force', 'S(9)R'], 'E_', ''],
    [['NAME', '--limit', '0'], '--limit', '1 or more'],
  ])('%j', async (argv, what, hint) => {
    const names = argv.map((a) => (a === 'NAME' ? plan.parameters[0].name : a));
    const run = await cli('explain', folder, ...names);
    expect(run.code, run.err).toBe(2);
    expect(run.err).toContain(what);
    expect(run.err).toContain(hint);
    expect(run.out.includes('CHOSEN')).toBe(false);
  });

  it('a plan without its graph, a changed graph, a file that is not there', async () => {
    const alone = join(root, 'alone.json');
    const { hashes: _, ...bare } = plan;
    writeFileSync(alone, JSON.stringify(bare));
    const without = await cli('explain', alone, 'x');
    expect(without.code).toBe(2);
    expect(without.err).toContain('graph.swg is not next to the plan');
    const changed = await planned('changed');
    const graph = join(changed, 'graph.swg');
    writeFileSync(graph, readFileSync(graph, 'utf8').replace('graph @', 'graph  @'));
    const run = await cli('explain', changed, 'x');
    expect(run.code).toBe(2);
    expect(run.err).toContain('graph.swg is not the file the plan was made with');
    const absent = await cli('explain', join(root, 'absent'), 'x');
    expect(absent.code).toBe(2);
    expect(absent.err).toContain('cannot read the plan');
  });
});
