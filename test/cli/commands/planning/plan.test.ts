import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { parseGraph } from '../../../../src/graph/text/parse.ts';
import { readPlan } from '../../../../src/plan/record/schema.ts';
import type { Plan } from '../../../../src/plan/record/types.ts';
import { FULL } from '../../../support/full.ts';
import { cli, type CliRun, fixture } from '../../support.ts';

const LLAMA = [fixture('llama3-8b-2l-b16'), '--mesh', 'dp=8', '--cluster', 'dgx-h100'] as const;
let folder = '';
beforeAll(() => void (folder = mkdtempSync(join(tmpdir(), 'shardwright-'))));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** `first-screen.test.ts` has the plan on 8 x 8. */
describe('plan of 2 layers of Llama-3 8B on 8 H100s', () => {
  let plan: Plan;
  beforeAll(async () => {
    const out = join(folder, 'a');
    const run = await cli('plan', ...LLAMA, '--json', '--no-recipes', '-o', out);
    expect(run.code, run.err).toBe(0);
    plan = readPlan(run.out);
  });

  let known: Promise<CliRun> | undefined;
  /** The same plan once more, for people, into the folder `b`. */
  const again = (): Promise<CliRun> => {
    const more = ['--program', '--no-recipes', '-o', join(folder, 'b')];
    return (known ??= cli('plan', '-v', ...LLAMA, ...more));
  };

  it('is proven optimal and re-checked', () => {
    expect(plan.proof.status).toBe('optimal');
    expect(plan.proof.gap).toBe(0);
    expect(Math.abs(plan.proof.recheckedSeconds / plan.objective.seconds - 1)).toBeLessThan(1e-9);
    const { computeSeconds, communicationSeconds, seconds } = plan.objective;
    expect(Math.abs((computeSeconds + communicationSeconds) / seconds - 1)).toBeLessThan(1e-9);
  });

  it('has the JSON keys that tests rely on', () => {
    expect(Object.keys(plan)).toEqual(
      expect.arrayContaining([
        'version',
        'mesh',
        'cluster',
        'objective',
        'proof',
        'memory',
        'parameters',
        'nodes',
      ]),
    );
    expect(Object.keys(plan.memory)).toEqual(
      expect.arrayContaining([
        'peakBytes',
        'budgetBytes',
        'parameterBytes',
        'gradientBytes',
        'optimizerBytes',
        'activationBytes',
      ]),
    );
    expect(plan.memory.activationBytes).toBe(plan.memory.timeline?.activationBytes);
    expect(plan.memory.peakBytes).toBe(plan.memory.timeline?.peakBytes);
    expect(plan.parameters).toHaveLength(21);
    // The 601 nodes of the text; transposes of weights are taken again in the backward pass instead
    // of kept.
    expect(plan.nodes.length).toBeGreaterThanOrEqual(601);
    const collectives = plan.nodes.flatMap((n) => n.redistributions.flatMap((r) => r.collectives));
    expect(collectives.length).toBeGreaterThan(0);
    for (const c of collectives) {
      expect(c.bytes).toBeGreaterThan(0);
      expect(c.seconds).toBeGreaterThan(0);
      for (const dim of c.meshDims) expect(dim).toBe('dp');
    }
  });

  it('fits the memory it says: 16 bytes of state for every local element', () => {
    const local = (shape: readonly number[], placement: string): number => {
      const cuts = (placement.match(/S\(\d+\)/g) ?? []).map((s) => Number(s[2]));
      return shape.reduce(
        (n, size, d) => n * Math.ceil(size / 8 ** cuts.filter((c) => c === d).length),
        1,
      );
    };
    const elements = plan.parameters.reduce((sum, p) => sum + local(p.shape, p.placement), 0);
    // Two rotary buffers of 64 float32 values stand beside the parameters.
    const { parameterBytes, gradientBytes, optimizerBytes } = plan.memory;
    expect(parameterBytes + gradientBytes + optimizerBytes).toBe(elements * 16 + 2 * 64 * 4);
  });

  it('greedy propagation is more expensive, and exits 4 because its gap is not 0', async () => {
    const run = await cli('plan', ...LLAMA, '--solver', 'propagate', '--json', '--no-recipes');
    expect(run.code).toBe(4);
    const greedy = readPlan(run.out);
    expect(greedy.proof.status).toBe('feasible');
    expect(greedy.objective.seconds).toBeGreaterThan(plan.objective.seconds);
    expect(greedy.proof.bound).toBeLessThanOrEqual(plan.objective.seconds);
  });

  it('--program prints every line of the program with its placement', async () => {
    const run = await again();
    for (const node of plan.nodes)
      expect(run.out).toMatch(new RegExp(`^(in )?%${node.name}(:| =)`, 'm'));
    expect(run.out).toContain('gradient of model.model.embed_tokens.weight');
  });

  it('-o writes a plan folder, byte for byte the same each time', async () => {
    const [a, b] = [join(folder, 'a'), join(folder, 'b')];
    expect((await again()).code).toBe(0);
    for (const name of ['plan.json', 'graph.swg', 'request.json'])
      expect(readFileSync(join(a, name), 'utf8')).toBe(readFileSync(join(b, name), 'utf8'));
    expect(readPlan(readFileSync(join(a, 'plan.json'), 'utf8')).objective).toEqual(plan.objective);
    expect(parseGraph(readFileSync(join(a, 'graph.swg'), 'utf8')).nodes.map((n) => n.name)).toEqual(
      plan.nodes.map((n) => n.name),
    );
  });

  it('a pinned parameter is where the pin says', async () => {
    const run = await cli(
      'plan',
      ...LLAMA,
      '--no-recipes',
      '--json',
      '--pin',
      'model.lm_head.weight=S(0)',
    );
    const pinned = readPlan(run.out);
    expect(pinned.parameters.find((p) => p.name === 'model.lm_head.weight')?.placement).toBe(
      'S(0)',
    );
    expect(pinned.objective.seconds).toBeGreaterThanOrEqual(plan.objective.seconds);
  });
});

it.runIf(FULL)(
  'a batch of 4 does not fit the data-parallel recipes on 8 x 8, and the answer says so; it is proven optimal',
  async () => {
    const run = await cli(
      'plan',
      '-v',
      fixture('llama3-8b-2l'),
      '--mesh',
      'dp=8,tp=8',
      '--cluster',
      'dgx-h100',
    );
    expect(run.code).toBe(0);
    expect(run.out).toMatch(/^proof {6}optimal \(gap 0\)/m);
    for (const recipe of [
      'data parallel \\(dp\\+tp\\)',
      'FSDP \\(dp\\)',
      'FSDP \\(dp\\) \\+ Megatron \\(tp\\)',
    ])
      expect(run.out).toMatch(new RegExp(`${recipe} .*the batch of 4 .* cannot be cut`));
  },
);

it('recipes that know nothing of demanded inputs may be cheaper than the plan, which is not a fault', async () => {
  const tiny = [fixture('mlp'), '--mesh', 'dp=2,tp=2', '--cluster', 'dgx-h100'];
  const held = join(folder, 'held');
  const [free, told] = [
    await cli('plan', ...tiny, '--json', '--no-recipes'),
    await cli('plan', '-v', ...tiny, '--inputs', 'S(0)R', '-o', held),
  ];
  expect([free.code, told.code]).toEqual([0, 0]);
  const seconds = (text: string): number => readPlan(text).objective.seconds;
  expect(seconds(readFileSync(join(held, 'plan.json'), 'utf8'))).toBeGreaterThan(seconds(free.out));
  expect(told.out).toMatch(/^replicated .* -[\d.]+ %/m);
  expect(told.out).toContain(
    'note  Recipes ignore --inputs; so a recipe may take less time than the plan',
  );
});

it('refuses an unknown optimizer with the nearest name', async () => {
  const run = await cli(
    'plan',
    '-v',
    fixture('llama-tiny'),
    '--mesh',
    'dp=2,tp=2',
    '--cluster',
    'dgx-h100',
    '--optimizer',
    'adm',
  );
  expect(run.code).toBe(2);
  expect(run.err).toContain("--optimizer 'adm' is not one of none, sgd, adam, adamw-mixed");
  expect(run.err).toContain("did you mean 'adam'?");
});

describe('plan files', () => {
  it('are refused with the path of what does not fit', () => {
    expect(() => readPlan('{')).toThrow(/not JSON/);
    expect(() => readPlan('{"version": 99}')).toThrow(/version 99/);
    expect(() => readPlan('{"version": 1, "model": 3}')).toThrow(/\$\.model/);
  });
});
