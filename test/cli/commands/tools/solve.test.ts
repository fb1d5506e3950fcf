import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { readIopddl } from '../../../../src/contest/iopddl.ts';
import { verifyCertificate } from '../../../../src/solver/check/verify.ts';
import type { Certificate } from '../../../../src/solver/types.ts';
import { cli } from '../../support.ts';

/**
 * Five nodes in a row; the limit keeps node 2 from its cheapest strategy. Optimum 42 by hand, see
 * `iopddl.test.ts`.
 */
const PROBLEM = {
  problem: {
    name: 'five in a row',
    nodes: {
      intervals: [
        [0, 4],
        [1, 5],
        [2, 6],
        [5, 8],
        [4, 8],
      ],
      costs: [[7], [3, 9], [4, 2, 8], [6, 1], [5]],
      usages: [[2], [3, 1], [4, 6, 1], [2, 2], [3]],
    },
    edges: {
      nodes: [
        [0, 1],
        [0, 2],
        [1, 3],
        [2, 4],
        [3, 4],
      ],
      costs: [
        [2, 8],
        [1, 5, 3],
        [0, 7, 9, 2],
        [4, 6, 1],
        [3, 8],
      ],
    },
    usage_limit: 10,
  },
};

let folder = '';
beforeAll(() => void (folder = mkdtempSync(join(tmpdir(), 'shardwright-'))));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function file(name: string, content: string | Buffer): string {
  const path = join(folder, name);
  writeFileSync(path, content);
  return path;
}

/** Least cost by looking at all twelve choices. */
function least(limit: number): number {
  const { nodes, edges } = PROBLEM.problem;
  let best = Infinity;
  for (let k = 0; k < 12; k++) {
    const x = [0, k % 2, Math.floor(k / 2) % 3, Math.floor(k / 6), 0];
    let cost = nodes.costs.reduce((sum, c, i) => sum + c[x[i]], 0);
    edges.nodes.forEach(
      ([i, j], e) => (cost += edges.costs[e][x[i] * nodes.costs[j].length + x[j]]),
    );
    const peak = Math.max(
      ...[0, 1, 2, 3, 4, 5, 6, 7].map((t) =>
        nodes.intervals.reduce(
          (sum, [lo, hi], i) => (lo <= t && t < hi ? sum + nodes.usages[i][x[i]] : sum),
          0,
        ),
      ),
    );
    if (peak <= limit) best = Math.min(best, cost);
  }
  return best;
}

describe('shardwright solve', () => {
  it('prints one JSON value with status, objective, bound, gap, seconds and choice; the certificate holds', async () => {
    const path = file('five.json', JSON.stringify(PROBLEM));
    const certificate = join(folder, 'five.cert.json');
    const run = await cli(
      'solve',
      path,
      '--json',
      '--threads',
      '1',
      '--rounds',
      '3',
      '--certificate',
      certificate,
    );
    expect(run.code, run.err).toBe(0);
    const answer = JSON.parse(run.out) as Record<string, unknown>;
    expect(answer).toMatchObject({
      status: 'optimal',
      objective: `${least(10)}`,
      bound: `${least(10)}`,
      gap: 0,
    });
    expect(typeof answer.seconds).toBe('number');
    const problem = readIopddl(PROBLEM);
    const choice = answer.choice as number[];
    const proof = JSON.parse(readFileSync(certificate, 'utf8')) as Certificate;
    const verdict = verifyCertificate(problem, {
      choice,
      objective: least(10),
      certificate: proof,
    });
    expect([verdict.accepted, verdict.bound]).toEqual([true, BigInt(least(10))]);
  });

  it('--check replays a certificate against its problem alone, and refuses a changed one with exit code 5', async () => {
    const path = file('checked.json', JSON.stringify(PROBLEM));
    const certificate = join(folder, 'checked.cert.json');
    await cli(
      'solve',
      path,
      '--quiet',
      '--threads',
      '1',
      '--rounds',
      '3',
      '--certificate',
      certificate,
    );
    const held = await cli('solve', path, '--check', certificate, '--json');
    expect(JSON.parse(held.out)).toEqual({
      accepted: true,
      bound: `${least(10)}`,
      infeasible: false,
    });
    expect(held.code).toBe(0);
    expect((await cli('solve', path, '--check', certificate)).out).toContain(
      `no choice costs less than ${least(10)}`,
    );
    const other = file(
      'other.json',
      JSON.stringify(PROBLEM).replace('"usage_limit":10', '"usage_limit":9'),
    );
    const refused = await cli('solve', other, '--check', certificate, '--json');
    expect([refused.code, JSON.parse(refused.out)]).toMatchObject([
      5,
      { accepted: false, bound: null },
    ]);
    const proof = JSON.parse(readFileSync(certificate, 'utf8')) as object;
    const broken = await cli(
      'solve',
      path,
      '--check',
      file('broken.cert.json', JSON.stringify({ ...proof, version: 'x' })),
    );
    expect([broken.code, broken.err]).toEqual([2, expect.stringContaining('$.version')]);
  });

  it('reads gzipped files, told by their content, and writes a line for people', async () => {
    const path = file('five', gzipSync(JSON.stringify(PROBLEM)));
    const run = await cli('solve', path, '--threads', '1', '--rounds', '2');
    expect(run.code, run.err).toBe(0);
    expect(run.out).toContain(`optimal  cost ${least(10)}  bound ${least(10)}  gap 0`);
    expect(run.err).toContain('search  best');
  });

  it('an infeasible limit names the smallest one that works, exit code 3', async () => {
    const { problem } = structuredClone(PROBLEM);
    problem.usage_limit = 4;
    const path = file('tight.json', JSON.stringify({ problem }));
    const run = await cli('solve', path, '--json', '--threads', '1');
    expect(run.code).toBe(3);
    const answer = JSON.parse(run.out) as {
      status: string;
      objective: null;
      smallestBudget: string;
    };
    expect([answer.status, answer.objective]).toEqual(['infeasible', null]);
    const smallest = Number(answer.smallestBudget);
    expect([least(smallest) < Infinity, least(smallest - 1)]).toEqual([true, Infinity]);
  });

  it('refuses what is not a problem with code, place and hint', async () => {
    const broken = structuredClone(PROBLEM);
    broken.problem.edges.costs[3].pop();
    const bad = await cli('solve', file('bad.json', JSON.stringify(broken)), '--json');
    expect(bad.code).toBe(2);
    expect(JSON.parse(bad.out)).toMatchObject({
      error: { code: 'E_FORMAT', where: { path: 'problem.edges.costs[3]' } },
    });
    const text = await cli('solve', file('text.json', 'plainly not'));
    expect([text.code, text.out]).toEqual([2, '']);
    expect(text.err).toContain('E_SYNTAX');
    const missing = await cli('solve', join(folder, 'nowhere.json'));
    expect(missing.err).toContain('E_FILE');
    const usage = await cli('solve', file('ok.json', JSON.stringify(PROBLEM)), '--gap', 'much');
    expect([usage.code, usage.err.includes('--gap')]).toEqual([2, true]);
  });
});

it('--explain-solver prints the phases of the search, and --json has them', async () => {
  const path = file('steps.json', JSON.stringify(PROBLEM));
  const run = await cli('solve', path, '--explain-solver', '--quiet', '--threads', '1');
  expect(run.out).toMatch(/\nsolver     1 solve/);
  expect(run.out).toMatch(/^solve +optimal +35 +35 /m);
  const json = await cli('solve', path, '--explain-solver', '--quiet', '--json', '--threads', '1');
  const { solverSteps } = JSON.parse(json.out) as {
    solverSteps: { step: string; level: number; cost: number }[];
  };
  expect([solverSteps[0].step, solverSteps[0].level, solverSteps[0].cost]).toEqual([
    'solve',
    0,
    35,
  ]);
});
