import { createHash } from 'node:crypto';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync, gzipSync } from 'node:zlib';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import type { CheckPlanReport } from '../../../../src/cli/commands/written-plan/checked-plan.ts';
import type { PlanCertificate } from '../../../../src/plan/record/certificate.ts';
import type { Plan } from '../../../../src/plan/record/types.ts';
import { VERSION } from '../../../../src/version.ts';
import { FULL } from '../../../support/full.ts';
import { planModelInto } from '../../plan-folders.ts';
import { cli, type CliRun, fixture } from '../../support.ts';

type Mutable<T> = T extends object ? { -readonly [K in keyof T]: Mutable<T[K]> } : T;

const root = mkdtempSync(join(tmpdir(), 'check-plan-'));
let whole: string;
let copies = 0;

beforeAll(async () => {
  whole = await planModelInto(
    fixture('mlp-loss'),
    root,
    'whole',
    '--inputs',
    'S(0)S(0)',
    '--outputs',
    'RR',
  );
});

afterAll(() => rmSync(root, { recursive: true, force: true }));

const sha = (text: string): string => createHash('sha256').update(text).digest('hex');

/**
 * A copy of the folder with another plan in it; whoever changes it is able to make the hashes fit
 * again.
 */
function changed(change: (plan: Mutable<Plan>) => void, hashesFit = true): string {
  const folder = join(root, `${++copies}`);
  cpSync(whole, folder, { recursive: true });
  rmSync(join(folder, 'progress.json'), { force: true });
  const file = join(folder, 'plan.json');
  const plan = JSON.parse(readFileSync(file, 'utf8')) as Mutable<Plan>;
  change(plan);
  if (hashesFit && plan.hashes !== undefined) {
    const { plan: _, ...others } = plan.hashes;
    plan.hashes.plan = sha(JSON.stringify({ ...plan, hashes: others }));
  }
  writeFileSync(file, JSON.stringify(plan));
  return folder;
}

/** A copy with another certificate, tied to the plan again. */
function recertified(change: (certificate: Mutable<PlanCertificate>) => void): string {
  const certificate = JSON.parse(
    gunzipSync(readFileSync(join(whole, 'certificate.json.gz'))).toString('utf8'),
  ) as Mutable<PlanCertificate>;
  change(certificate);
  const text = JSON.stringify(certificate);
  const folder = changed(
    (plan) => void (plan.hashes = { ...plan.hashes!, certificate: sha(text) }),
  );
  writeFileSync(join(folder, 'certificate.json.gz'), gzipSync(text));
  return folder;
}

const moved = (plan: Mutable<Plan>): number =>
  plan.nodes.findIndex((n) => n.redistributions.length > 0);

async function check(
  folder: string,
): Promise<{ readonly run: CliRun; readonly report: CheckPlanReport }> {
  const run = await cli('check-plan', folder, '--json');
  return { run, report: JSON.parse(run.out) as CheckPlanReport };
}

describe('check-plan', () => {
  it('accepts a plan as it was written, and says what it proved', async () => {
    const { run, report } = await check(whole);
    const plan = JSON.parse(readFileSync(join(whole, 'plan.json'), 'utf8')) as Plan;
    expect(run.code).toBe(0);
    expect(report).toMatchObject({ ok: true, differences: [], producer: `shardwright ${VERSION}` });
    // The certificate alone: the bound of an optimal plan is its seconds.
    expect(plan.proof.status).toBe('optimal');
    expect(report.boundSeconds).toBeCloseTo(plan.objective.seconds, 15);
    expect(report.certificateNumbers).toBeGreaterThan(1000);
    const text = await cli('check-plan', whole);
    expect(text.out).toContain('the plan is what it says');
    // White space is not a content.
    expect((await check(changed(() => undefined, false))).run.code).toBe(0);
  });

  it.each<readonly [string, string, (plan: Mutable<Plan>) => void]>([
    ['an objective of 1e-12 s', '$.objective.seconds', (p) => void (p.objective.seconds = 1e-12)],
    [
      'all of the objective and its bound',
      '$.objective.seconds',
      (p) => {
        for (const key of ['seconds', 'computeSeconds', 'communicationSeconds'] as const)
          p.objective[key] /= 2;
        p.proof.bound = p.objective.seconds;
        p.proof.recheckedSeconds = p.objective.seconds;
      },
    ],
    ['a bound above what is proven', '$.proof.bound', (p) => void (p.proof.bound *= 1.01)],
    [
      'redistributions that are gone',
      'redistributions',
      (p) => void (p.nodes[moved(p)].redistributions = []),
    ],
    [
      'seconds of a node',
      '.seconds',
      (p) => void (p.nodes.find((n) => n.seconds > 0)!.seconds *= 2),
    ],
    [
      'bytes of a collective',
      '.bytes',
      (p) => void (p.nodes[moved(p)].redistributions[0].collectives[0].bytes += 1),
    ],
    [
      'the placement of a parameter in the list',
      '$.parameters[0].placement',
      (p) => void (p.parameters[0].placement = 'P(sum)R'),
    ],
    ['bytes of the peak', '$.memory.peakBytes', (p) => void (p.memory.peakBytes -= 1024)],
    ['hosts of a mesh dim', '$.mesh[0].hosts', (p) => void (p.mesh[0].hosts = 7)],
    ['the cluster', '$.cluster', (p) => void (p.cluster = 'dgx-b200')],
    ['an assumption that is gone', '$.assumptions', (p) => void p.assumptions.shift()],
    ['the greedy baseline', '$.greedySeconds', (p) => void (p.greedySeconds = 1)],
    ['the request beside another', '$.request.seed', (p) => void (p.request.seed = 3)],
  ])('names the field: %s', async (_, path, change) => {
    const { run, report } = await check(changed(change));
    expect(run.code).toBe(5);
    expect(report.ok).toBe(false);
    expect(report.differences.map((d) => d.path).join(' ')).toContain(path);
  });

  it('knows by its hash a plan whose words no one can derive', async () => {
    const { run, report } = await check(
      changed((p) => void p.proof.evidence.push('another engine agrees'), false),
    );
    expect(run.code).toBe(5);
    expect(report.differences[0]).toMatchObject({ path: '$.hashes.plan' });
  });

  it('a plan cannot drop its own hash and keep those of its files', async () => {
    const folder = changed((p) => void delete p.hashes!.plan, false);
    expect(await cli('check-plan', folder)).toMatchObject({
      code: 2,
      err: expect.stringMatching(/E_PLAN.*\$\.hashes\.plan is missing/) as string,
    });
  });

  it('refuses a status that the certificate does not prove', async () => {
    // Without its certificate only the sum of all least prices is a bound: the plan is no longer
    // optimal.
    const bare = recertified((c) => void delete c.free);
    const { run, report } = await check(bare);
    expect(run.code).toBe(5);
    expect(report.differences.map((d) => d.path)).toEqual(
      expect.arrayContaining(['$.proof.bound', '$.proof.status']),
    );
    const honest = changed(
      (p) =>
        void (p.proof = {
          ...p.proof,
          status: 'feasible',
          bound: report.boundSeconds,
          gap: 1 - report.boundSeconds / p.objective.seconds,
        }),
    );
    expect((await check(honest)).run.code).toBe(0);
  });

  it('replays the certificate: no changed one proves more', async () => {
    const problem = recertified((c) => void (c.free!.problem = '0'.repeat(16)));
    const { report, run } = await check(problem);
    expect(run.code).toBe(5);
    expect(JSON.stringify(report.differences)).toContain('it is about problem 0000000000000000');
    let least = Infinity;
    for (let k = 0; k < (FULL ? 12 : 4); k++) {
      const folder = recertified((c) => {
        const list = c.free!.lists[(k * 7) % c.free!.lists.length];
        list[k % Math.max(1, list.length)] = 1e6 * (k + 1);
      });
      const found = await check(folder);
      least = Math.min(least, found.report.boundSeconds);
      const plan = JSON.parse(readFileSync(join(folder, 'plan.json'), 'utf8')) as Plan;
      expect(found.report.boundSeconds).toBeLessThanOrEqual(plan.objective.seconds * (1 + 1e-9));
    }
    expect(least).toBeLessThan((await check(whole)).report.boundSeconds);
  });

  it('says whose prices a plan of another version has', async () => {
    const other = changed((p) => {
      p.producer = 'shardwright 0.0.9';
      p.objective.seconds *= 1.1;
    });
    const text = await cli('check-plan', other);
    expect(text.code).toBe(5);
    expect(text.out).toContain(
      `of shardwright 0.0.9, compared with those of shardwright ${VERSION}`,
    );
    expect((await cli('simulate', other)).err).toContain(
      'the plan has the prices of shardwright 0.0.9',
    );
    const format = changed((p) => void Object.assign(p, { version: 9 }));
    const run = await cli('check-plan', format);
    expect(run.code).toBe(2);
    expect(run.err).toContain(
      `plan version 9, with the prices of shardwright ${VERSION}; this program`,
    );
  });

  it.each<readonly [string, string, (plan: Mutable<Plan>) => void]>([
    ['no outputs', '$.outputs', (p) => void delete (p as Partial<Mutable<Plan>>).outputs],
    ['fewer outputs', '$.outputs', (p) => void (p.outputs = [])],
    ['no inputs', '.inputs', (p) => void (p.nodes.find((n) => n.inputs.length > 0)!.inputs = [])],
    ['a number for a placement', '.outputs[0]', (p) => void (p.nodes[0].outputs = [3 as never])],
    ['no placement', '$.nodes[0].outputs[0]', (p) => void (p.nodes[0].outputs = ['Q(0)R'])],
    [
      'a copy that nothing made',
      '.copy',
      (p) => void (p.nodes[moved(p)].redistributions[0].copy = 'reused'),
    ],
    [
      'an input that is not there',
      '.input',
      (p) => void (p.nodes[moved(p)].redistributions[0].input = 99),
    ],
    [
      'a collective that is none',
      '.kind',
      (p) => void (p.nodes[moved(p)].redistributions[0].collectives[0].kind = 'all_magic'),
    ],
    [
      'a mesh dim that is not there',
      '.meshDims[0]',
      (p) => void (p.nodes[moved(p)].redistributions[0].collectives[0].meshDims = ['zz']),
    ],
    ['a node less', '$.nodes', (p) => void p.nodes.pop()],
    ['another node', '$.nodes[1].name', (p) => void (p.nodes[1].name = 'nobody')],
    ['null for a list', '$.nodes', (p) => void ((p as { nodes: unknown }).nodes = null)],
  ])('refuses a damaged plan with its JSON path, in every command: %s', async (_, path, change) => {
    const folder = changed(change);
    for (const command of [
      'check-plan',
      'verify',
      'simulate',
      'report',
      'diff',
      'explain',
    ] as const) {
      const more = command === 'diff' ? [whole] : command === 'explain' ? ['x'] : [];
      const run = await cli(command, folder, ...more);
      expect([command, run.code, run.out]).toEqual([command, 2, '']);
      expect(run.err).toMatch(/E_PLAN|E_TYPE/);
      expect(run.err).toContain(path);
      expect(run.err).not.toContain('internal');
    }
  });
});

describe('what reads a plan', () => {
  it.each([['verify'], ['report'], ['simulate'], ['explain'], ['diff']])(
    '%s exits 5, names the field and calls nothing optimal',
    async (command) => {
      const edited = changed((p) => void (p.objective.seconds = 1e-12));
      const node = (JSON.parse(readFileSync(join(edited, 'plan.json'), 'utf8')) as Plan).nodes[0]
        .name;
      const more = command === 'diff' ? [whole] : command === 'explain' ? [node] : [];
      for (const json of [[], ['--json']]) {
        const run = await cli(command, edited, ...more, ...json);
        expect(run.code).toBe(5);
        expect(run.out + run.err).toContain('$.objective.seconds');
        expect(run.out + run.err).not.toMatch(/optimal|nothing is cheaper/);
      }
      // The same words about the plan as it was written are said.
      expect((await cli(command, whole, ...more)).code).toBe(0);
    },
  );

  it('verify finds redistributions that were taken out', async () => {
    const edited = changed(
      (p) =>
        void p.nodes.forEach(
          (n) => (n.redistributions = n.redistributions.filter((r) => r.copy !== undefined)),
        ),
    );
    const run = await cli('verify', edited);
    expect(run.code).toBe(5);
    expect(run.err).toMatch(/\$\.nodes\[\d+\]\.redistributions/);
  });

  it('says of a plan file without graph and request that nothing was checked', async () => {
    const alone = join(root, 'alone.json');
    writeFileSync(alone, readFileSync(join(whole, 'plan.json')));
    const run = await cli('report', alone, '--format', 'text');
    expect(run.code).toBe(0);
    expect(run.err).toContain('not checked');
    expect(run.out).toMatch(/Proof +not checked; the plan states optimal/);
    // Everywhere else it is a claim, too.
    for (const format of ['text', 'md', 'html'])
      expect((await cli('report', alone, '--format', format)).out).not.toMatch(
        /nothing is cheaper|What is proven|Proven lower bound/,
      );
    writeFileSync(
      alone,
      readFileSync(
        join(
          changed((p) => void (p.objective.seconds = 1e-12), false),
          'plan.json',
        ),
      ),
    );
    expect((await cli('report', alone, '--format', 'text')).code).toBe(5);
  });
});

describe('plans of every kind of proof', () => {
  it.each<readonly [string, string, string, readonly string[], readonly string[]]>([
    [
      'least memory first',
      'mlp-loss',
      'dp=2,tp=2',
      ['--objective', 'parameter-memory'],
      ['free', 'leastBytes'],
    ],
    ['greedy propagation', 'mlp-loss', 'dp=2,tp=2', ['--solver', 'propagate'], []],
    // Of its certificate it is the one of a checkpoint policy below.
    ...(FULL
      ? ([['a library', 'mlp-loss', 'dp=2', ['--solver', 'highs'], ['free']]] as const)
      : []),
    [
      'a budget on peak memory',
      'mlp-loss',
      'dp=2,tp=2',
      ['--memory', '90MB', '--activations', 'constraint'],
      ['free', 'within'],
    ],
    // By the library small ones are checked every time: test/plan/memory-within.test.ts.
    ...(FULL
      ? ([
          [
            'recomputed nodes',
            'llama-tiny',
            'dp=2',
            ['--memory', '2400KiB', '--checkpoint', 'auto'],
            ['free', 'within', 'program'],
          ],
        ] as const)
      : []),
    ['a checkpoint policy', 'mlp-loss', 'dp=2', ['--checkpoint', 'full'], ['free']],
    ['overlap', 'mlp-loss', 'dp=2,tp=2', ['--overlap', '--inputs', 'S(0)S(0)'], ['free']],
  ])('%s', async (name, model, mesh, flags, parts) => {
    const folder = join(root, name.replaceAll(' ', '-'));
    const plan = await cli(
      'plan',
      '-v',
      fixture(model),
      '--mesh',
      mesh,
      '--cluster',
      'dgx-h100',
      '--no-recipes',
      '-o',
      folder,
      ...flags,
    );
    expect([0, 4]).toContain(plan.code);
    const packed = gunzipSync(readFileSync(join(folder, 'certificate.json.gz'))).toString('utf8');
    expect(Object.keys(JSON.parse(packed) as object)).toEqual(['version', ...parts]);
    const { run, report } = await check(folder);
    expect(report.differences).toEqual([]);
    expect(run.code).toBe(0);
    const stated = (JSON.parse(readFileSync(join(folder, 'plan.json'), 'utf8')) as Plan).proof
      .bound;
    expect(report.boundSeconds).toBeGreaterThanOrEqual(stated * (1 - 1e-9));
  });
});
