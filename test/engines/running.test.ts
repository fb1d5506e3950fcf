import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { afterAll, beforeAll, describe, expect, test } from 'vitest';

import type { PlanRequest } from '../../src/index.ts';
import {
  caseName,
  expectAsOneProcess,
  type Outcome,
  RUNNING,
  type RunningCase,
} from '../export/running-matrix.ts';
import { captureRecord, LATE, runningPlans } from '../export/running-plans.ts';
import { FULL } from '../support/full.ts';

/**
 * Every plan of the matrix on real processes, beside one process. `SHARDWRIGHT_RECORD=1` writes
 * what `npm test` reads; `SHARDWRIGHT_RECORD=changed` runs for it only plans whose program or
 * memory is not the recorded one.
 */
const python = process.env.SHARDWRIGHT_PYTHON ?? 'python3';
const scripts = fileURLToPath(new URL('./running/', import.meta.url));
const env = {
  ...process.env,
  PYTHONPATH: fileURLToPath(new URL('../../python', import.meta.url)),
  // Every rank would start processes that compile, each of which imports PyTorch.
  TORCHINDUCTOR_COMPILE_THREADS: '1',
};
const results = fileURLToPath(new URL('../fixtures/running/results.json', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'shardwright-running-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const WORLDS = [2, 4, 8];
/** Plans that one start of Python runs. */
const JOBS = 16;
/**
 * Cases that are run every time, each kind once; all others with SHARDWRIGHT_FULL=1. `npm test` holds
 * the programs of all to those that were run.
 */
function isDaily({ model, mesh, request, order }: RunningCase, world: number): boolean {
  if (model === 'mlp' && world === 8) return mesh.startsWith('pod') && request === undefined;
  // Links on which collectives come late are those of two mesh dims.
  if (model === 'mlp') return request?.cluster === undefined || mesh === 'dp=2,tp=2';
  const { checkpoint, ...others } = request ?? {};
  const isPlain = order === undefined && Object.keys(others).length === 0;
  return model === 'llama-sdpa' && world === 4 && isPlain;
}
const isChanged = process.env.SHARDWRIGHT_RECORD === 'changed';
const isRecording = isChanged || process.env.SHARDWRIGHT_RECORD === '1';
const isFull = FULL || isRecording;
/** AdamW steps of a plan: sixteen more take four fifths of the time, and find what four find. */
const STEPS = isFull ? 20 : 4;
const recorded: Partial<Record<string, { program: string } & Outcome>> =
  isRecording && existsSync(results)
    ? (JSON.parse(readFileSync(results, 'utf8')) as typeof recorded)
    : {};

/** How PyTorch tells that a process was ended by a fault of native code. */
const CRASHED = /terminated with signal SIG(SEGV|ABRT)/;

/**
 * gloo corrupts its heap once in a hundred or more runs with many collectives in flight (PyTorch
 * 2.13: `malloc(): unaligned tcache chunk detected` in `pt_gloo_runloop`), which no Python program
 * can cause. Such a run is told and done once more; wrong numbers and exceptions are not.
 */
function run(world: number, jobs: readonly string[], steps: number): Outcome[] {
  const once = (): string =>
    execFileSync(python, [join(scripts, 'compare.py'), String(world), String(steps), ...jobs], {
      env,
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'pipe'],
    });
  let out: string;
  try {
    out = once();
  } catch (error) {
    if (!CRASHED.test((error as { stderr?: string }).stderr ?? '')) throw error;
    process.stderr.write(`a process of gloo crashed; its ${jobs.length} plans run again\n`);
    out = once();
  }
  return out
    .split('\n')
    .filter((line) => line.startsWith('{'))
    .map((line) => JSON.parse(line) as Outcome);
}

describe.each(WORLDS)('%i processes', (world) => {
  const size = (mesh: string): number =>
    mesh.split(',').reduce((n, dim) => n * Number(dim.split('=')[1]), 1);
  const cases = RUNNING.filter(
    (one) => size(one.mesh) === world && (isFull || isDaily(one, world)),
  );
  const models = [...new Set(cases.map(({ model }) => model))];

  test.each(models)(
    '%s: loss, gradients and AdamW steps equal one process, and the collectives are the plan’s',
    async (model) => {
      const jobs: { job: string; name: string; program: string; plannedBytes: number }[] = [];
      for (const one of cases.filter((each) => each.model === model))
        for (const { name, files, program, plannedBytes } of await runningPlans(
          model,
          one.mesh,
          one.known,
          one.request,
          one.order,
        )) {
          const then = recorded[caseName(name, one)];
          if (
            isChanged &&
            then?.program === program &&
            (then.refused !== undefined || then.plannedBytes === plannedBytes)
          )
            continue;
          const at = join(folder, `${world}-${model}-${jobs.length}`);
          mkdirSync(at);
          for (const file of files) writeFileSync(join(at, file.name), file.text);
          const record = captureRecord(model);
          if (record !== undefined) writeFileSync(join(at, 'capture.json'), record);
          jobs.push({ job: `${model}=${at}`, name: caseName(name, one), program, plannedBytes });
        }
      const outcomes: Outcome[] = [];
      // Every job makes process groups of its own, which hold files open.
      for (let k = 0; k < jobs.length; k += JOBS)
        outcomes.push(
          ...run(
            world,
            jobs.slice(k, k + JOBS).map(({ job }) => job),
            STEPS,
          ),
        );
      expect(outcomes.length).toBe(jobs.length);
      const compared = outcomes.map((outcome, k): Outcome =>
        outcome.refused === undefined
          ? { ...outcome, plannedBytes: jobs[k].plannedBytes }
          : outcome,
      );
      compared.forEach(
        ({ plan: _, ...outcome }, k) =>
          (recorded[jobs[k].name] = { program: jobs[k].program, ...outcome }),
      );
      if (isRecording) writeFileSync(results, `${JSON.stringify(sorted(recorded), null, 1)}\n`);
      compared.forEach((outcome, k) => expectAsOneProcess(jobs[k].name, model, outcome));
    },
    1_200_000,
  );
});

function sorted(of: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(of).sort(([a], [b]) => (a < b ? -1 : 1)));
}

/**
 * What is compiled, in one start of the processes: an exported plan of a model, and how. AOTAutograd
 * partitions the optimum of a Llama, and a plan that computes again in the backward pass.
 */
const COMPILED: Readonly<
  Record<string, { model: string; how: string; late?: true; request?: Partial<PlanRequest> }>
> = {
  looped: { model: 'looped', how: 'compiled' },
  recurrent: { model: 'recurrent', how: 'compiled' },
  joint: { model: 'llama-sdpa', how: 'joint' },
  checkpointed: { model: 'llama-sdpa', how: 'joint', request: { checkpoint: 'full' } },
  'joint buckets': { model: 'mlp', how: 'joint-inductor', late: true },
  ...(isFull
    ? {
        buckets: { model: 'mlp', how: 'compiled', late: true },
        controlled: { model: 'controlled', how: 'compiled' },
        'joint Inductor': { model: 'llama-sdpa', how: 'joint-inductor' },
      }
    : {}),
};

describe('compiled programs', () => {
  const outcomes: Record<string, Outcome> = {};

  beforeAll(async () => {
    const jobs: string[] = [];
    for (const { model, how, late, request } of Object.values(COMPILED)) {
      const known = late === undefined ? [] : ['FSDP (dp) + Megatron (tp)'];
      const links = late === undefined ? {} : { cluster: LATE };
      const plans = await runningPlans(model, 'dp=2,tp=2', known, { ...request, ...links });
      const { files } = plans[known.length];
      const at = mkdtempSync(join(folder, 'compiled-'));
      for (const file of files) writeFileSync(join(at, file.name), file.text);
      const record = captureRecord(model);
      if (record !== undefined) writeFileSync(join(at, 'capture.json'), record);
      if (late !== undefined)
        for (const kind of ['all_gather', 'reduce_scatter'])
          expect(files.find(({ name }) => name === 'program.py')?.text).toContain(
            `) = ${kind}_coalesced(here, [`,
          );
      jobs.push(`${model}:${how}=${at}`);
    }
    const found = run(4, jobs, 0);
    expect(found.length).toBe(jobs.length);
    Object.keys(COMPILED).forEach((name, k) => (outcomes[name] = found[k]));
  }, 1_200_000);

  test.each(['looped', ...(isFull ? ['buckets'] : [])])(
    'compile=True: Inductor takes %s',
    (name) => {
      for (const error of [outcomes[name].loss, outcomes[name].gradient])
        expect(error).toBeLessThan(1e-9);
    },
  );

  test.each(['recurrent', ...(isFull ? ['controlled'] : [])])(
    'compile=True: what Inductor cannot take of %s is named',
    (name) => {
      const refused: Record<string, string> = {
        recurrent: 'scan.cond (cond), scan_1.cond_1 (cond)',
        controlled: 'cond (cond), cond_1 (cond)',
      };
      expect(outcomes[name].refused).toContain(`E_COMPILE values decide what ${refused[name]} run`);
    },
  );

  /**
   * Inductor takes sine, exponential and logarithm of float32, which a Llama has in its rotary
   * embedding and its loss, by functions of its own.
   */
  test.each([
    ['joint', 1e-9],
    ['checkpointed', 1e-9],
    ['joint buckets', 1e-9],
    ...(isFull ? [['joint Inductor', 1e-6] as const] : []),
  ] as const)(
    '%s: AOTAutograd partitions the program of the plan, and its collectives stay',
    (name, bound) => {
      const { loss, gradient, collectives, asPlanned } = outcomes[name];
      for (const error of [loss, gradient]) expect(error).toBeLessThan(bound);
      expect(collectives).toBeGreaterThan(0);
      expect(asPlanned).toBe(true);
    },
  );
});

test('PyTorch captures the committed graphs again', () => {
  execFileSync(python, [join(scripts, 'capture.py'), folder, 'mlp', 'dropout'], {
    env,
    stdio: 'ignore',
  });
  for (const model of ['mlp', 'dropout']) {
    const fresh = JSON.parse(readFileSync(join(folder, `${model}.fx.txt.json`), 'utf8')) as {
      torch: string;
    };
    const committed = JSON.parse(captureRecord(model) ?? '') as { torch: string };
    expect({ ...fresh, torch: '' }).toEqual({ ...committed, torch: '' });
  }
});
