import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import loadHighs from 'highs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { leastCostPlanOf } from '../../../../src/plan/least-cost-plan.ts';
import { prepare } from '../../../../src/plan/prepare/prepare.ts';
import { readPlan } from '../../../../src/plan/record/schema.ts';
import { load, request, TABLE } from '../../../plan/support.ts';
import { FULL } from '../../../support/full.ts';
import { cli, fixture } from '../../support.ts';

// A slow cluster and inputs that are cut, outputs that are whole: the small program has to
// communicate, so that placements matter.
const SLOW = {
  base: 'dgx-a100-80gb',
  launchSeconds: 1e-9,
  matmulLaunchSeconds: 1e-9,
  baseLatencySeconds: 1e-8,
};
let folder = '';
let plan: readonly string[] = [];
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'shardwright-'));
  const cluster = join(folder, 'slow.json');
  writeFileSync(cluster, JSON.stringify(SLOW));
  plan = [
    'plan',
    fixture('mlp'),
    '--mesh',
    'x=4',
    '--cluster',
    cluster,
    '--json',
    '--no-recipes',
    '--inputs',
    'S(0)',
    '--outputs',
    'R',
  ];
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe('--solver', () => {
  it('exact, highs and javascript-lp-solver end at the seconds of auto; a library is named, its bound is ours', async () => {
    const auto = readPlan((await cli(...plan)).out);
    expect(auto.objective.communicationSeconds).toBeGreaterThan(0);
    for (const name of ['exact', 'highs', 'javascript-lp-solver']) {
      const run = await cli(...plan, '--solver', name);
      expect(run.code, run.err).toBe(0);
      const { proof, objective } = readPlan(run.out);
      expect([proof.status, proof.gap, objective.seconds], name).toEqual([
        'optimal',
        0,
        auto.objective.seconds,
      ]);
      expect(Math.abs(proof.recheckedSeconds - objective.seconds), name).toBeLessThanOrEqual(
        proof.roundingSeconds!,
      );
      if (name === 'exact') continue;
      expect(proof.solver).toBe(name);
      expect(proof.evidence?.join('; ')).toMatch(
        new RegExp(`^${name}: .*; the bound \\d+ is our own engine's`),
      );
    }
  });

  it('a problem above what a library takes is refused with its size and the way out, exit 2', async () => {
    for (const [name, model, mesh] of [
      ['highs', 'llama-tiny', 'dp=2,tp=2'],
      ['javascript-lp-solver', 'mlp', 'dp=2,tp=2'],
    ] as const) {
      const run = await cli(
        'plan',
        '-v',
        fixture(model),
        '--mesh',
        mesh,
        '--cluster',
        'dgx-h100',
        '--solver',
        name,
      );
      expect([run.code, run.out]).toEqual([2, '']);
      expect(run.err).toMatch(
        new RegExp(
          `^E_LIMIT ${name} cannot take this problem: it has \\d+ binaries.*\n {2}hint: use --solver auto`,
        ),
      );
    }
  });
});

it('--emit-ilp writes the program of the plan: HiGHS reads the file and ends at the seconds of the plan', async () => {
  const file = join(folder, 'mlp.lp');
  const { objective } = readPlan((await cli(...plan, '--emit-ilp', file)).out);
  const answer = (await loadHighs()).solve(readFileSync(file, 'utf8'), { mip_rel_gap: 0 });
  expect(answer.Status).toBe('Optimal');
  // One unit of the program is a nanosecond divided by a power of two.
  const halvings = Math.log2(answer.ObjectiveValue / (objective.seconds * 1e9));
  expect(Math.abs(halvings - Math.round(halvings))).toBeLessThan(1e-6);
});

it('a limit that comes before the solver begins names the step, and exits 4', async () => {
  const llama = [
    'plan',
    fixture('llama3-8b-2l-b16'),
    '--mesh',
    'dp=8,tp=8',
    '--cluster',
    'dgx-h100',
  ] as const;
  const run = await cli(...llama, '--time-limit', '0.001');
  expect(run.code).toBe(4);
  expect(run.err).toMatch(
    /^E_TIME_LIMIT the time limit of 1\.00 ms came while .*, before the solver began/m,
  );
});

it.runIf(FULL)(
  'an answer at the time limit is feasible with a true bound, never optimal',
  async () => {
    // The limit of a request that is prepared counts from the solver on.
    const asked = request('dp=8,tp=8', { timeLimitSeconds: 0.001 });
    const result = await leastCostPlanOf(
      prepare(load('torch/llama3-8b-2l-b16/joint.expanded'), asked, TABLE),
    );
    if (result.status !== 'planned') throw new Error('infeasible');
    const { proof, objective, greedySeconds } = result.plan;
    expect(proof.status).toBe('feasible');
    // The greedy plan is never better than the answer.
    expect(objective.seconds).toBeLessThanOrEqual(greedySeconds! * (1 + 1e-9));
    expect(proof.gap).toBeGreaterThan(0);
    expect(proof.bound).toBeLessThan(objective.seconds);
    expect(Math.abs(proof.recheckedSeconds / objective.seconds - 1)).toBeLessThan(1e-9);
    // The optimum of this case, which the tests beside this one prove, is 46.0 ms.
    expect(proof.bound).toBeLessThan(0.0461);
    expect(objective.seconds).toBeGreaterThan(0.0459);
  },
);

describe('--explain-solver', () => {
  /** Prices under which the relaxation is tight, so that there is one solve of one step. */
  const tight = (): string[] => [...plan, '--cost', 'dtensor'];

  it('prints the steps of the solver: a line each, and what each is', async () => {
    const run = await cli(
      ...tight().filter((word) => word !== '--json'),
      '--explain-solver',
      '--quiet',
    );
    expect(run.code, run.err).toBe(0);
    const [, text] = run.out.split('\nsolver     ');
    expect(text).toMatch(/^1 solve; cost and bound in units of each problem/);
    expect(text).toMatch(/^step +came to +cost +bound +gap +work +values +cells +time$/m);
    expect(text).toMatch(/^solve +optimal; \d+ variables, \d+ edges, row memory /m);
    expect(text).toMatch(/^ {2}relaxation +tight and proven /m);
    expect(text).toMatch(/^ {2}solve +one problem/m);
  });

  it('adds them to --json, and changes nothing else', async () => {
    const [told, plain] = [await cli(...tight(), '--explain-solver'), await cli(...tight())];
    const { solverSteps, ...rest } = JSON.parse(told.out) as {
      solverSteps: { step: string; level: number; solve: number }[];
    };
    expect(solverSteps.map(({ step, level, solve }) => [step, level, solve])).toEqual([
      ['solve', 0, 0],
      ['relaxation', 1, 0],
    ]);
    const timeless = (text: string): string =>
      text.replaceAll(/"(solveSeconds|seconds)":[\d.e-]+/g, '');
    expect(timeless(JSON.stringify(rest))).toBe(timeless(plain.out.trim()));
  });

  it('names a library, and says what it reports', async () => {
    const run = await cli(...plan, '--explain-solver', '--solver', 'highs');
    const { solverSteps } = JSON.parse(run.out) as {
      solverSteps: { step: string; outcome: string }[];
    };
    expect(solverSteps.find(({ step }) => step === 'library')?.outcome).toMatch(/^highs: /);
  });
});
