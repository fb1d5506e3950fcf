/**
 * The two checkers of certificates beside each other: the one of `src/solver/check` and
 * `python -m shardwright.check`, which was written from `docs/certificates.md`. Both judge what both
 * modes of the solver prove, thousands of changed and of random certificates, and plan folders.
 * `SHARDWRIGHT_FULL=1` judges 100,000.
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gunzipSync, gzipSync } from 'node:zlib';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { planFiles } from '../../src/cli/input/plan-folder.ts';
import { solveAnytime } from '../../src/contest/anytime.ts';
import { dualCertificate } from '../../src/contest/finish/dual-certificate.ts';
import { readIopddl } from '../../src/contest/iopddl.ts';
import { partsCertificate } from '../../src/contest/proof/parts-certificate.ts';
import { leastCostPlan } from '../../src/plan/least-cost-plan.ts';
import { problemsRecord } from '../../src/plan/record/problems.ts';
import type { Plan } from '../../src/plan/record/types.ts';
import { sha256 } from '../../src/platform/platform.ts';
import { ARGUMENTS, STEP } from '../../src/solver/check/certificate-format.ts';
import { hashProblem, NO_CHOICE, verifyCertificate } from '../../src/solver/check/verify.ts';
import { eliminationCertificate } from '../../src/solver/search/answer/certify.ts';
import { solveNow } from '../../src/solver/solve.ts';
import type { Certificate, Problem } from '../../src/solver/types.ts';
import { cli } from '../cli/support.ts';
import { partsOf } from '../contest/bounded.ts';
import { load, request, TABLE } from '../plan/support.ts';
import { changedLists, changedRows, changedSteps } from '../solver/certificate-support.ts';
import { bruteForce, dice, type Flavour, randomChoice } from '../solver/check-support.ts';
import { FULL } from '../support/full.ts';

const python = process.env.SHARDWRIGHT_PYTHON ?? 'python3';
const folder = fileURLToPath(new URL('../../python', import.meta.url));
const env = { ...process.env, PYTHONPATH: folder };

const PLAIN: Flavour = { variables: 5, values: 3, edges: 0.7, forbidden: 0.15, rows: 0 };
const FLAVOURS: readonly Flavour[] = [
  PLAIN,
  { ...PLAIN, forbidden: 0.45 },
  { ...PLAIN, rows: 1, tightness: 0.3 },
  { ...PLAIN, rows: 2, usage: true, tightness: 0.5 },
  { ...PLAIN, variables: 2, layers: 4, edges: 1.2 },
  { ...PLAIN, variables: 2, layers: 3, edges: 1.2, rows: 1 },
];

interface Case {
  readonly problem: Problem;
  readonly optimum: number;
  readonly certificate: Certificate;
}

interface Said {
  readonly accepted: boolean;
  readonly gaveUp?: boolean;
  readonly reason?: string;
  readonly bound?: string | null;
}

/** What the Python checker says of each case. */
function judged(cases: readonly Case[]): Said[] {
  const known = new Map<Problem, object>();
  const lines = cases.map(({ problem, certificate }) => {
    const problems =
      known.get(problem) ?? problemsRecord([{ about: 'test', problem, unitsPerSecond: 1 }], []);
    known.set(problem, problems);
    return JSON.stringify({ problems, certificate });
  });
  const { stdout, stderr, status } = spawnSync(python, ['-m', 'shardwright.check', '--batch'], {
    input: `${lines.join('\n')}\n`,
    encoding: 'utf8',
    env,
    maxBuffer: 2 ** 30,
  });
  expect(status, stderr.slice(-2000)).toBe(0);
  return stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as Said);
}

/** Fails at the first case that one accepts and the other refuses, and at a bound that is too high. */
function agree(cases: readonly Case[]): { accepted: number; tried: number } {
  let accepted = 0;
  const said = judged(cases);
  expect(said).toHaveLength(cases.length);
  cases.forEach(({ problem, optimum, certificate }, k) => {
    const ours = verifyCertificate(problem, { choice: [], objective: Infinity, certificate });
    const bound = ours.bound === NO_CHOICE ? null : `${ours.bound}`;
    const mine: Said = ours.accepted ? { accepted: true, bound } : { accepted: false };
    const theirs: Said = said[k].accepted ? said[k] : { accepted: false };
    if (JSON.stringify(mine) !== JSON.stringify(theirs))
      expect.fail(
        `${JSON.stringify(ours.reason ?? bound)} here, ${JSON.stringify(said[k])} in Python: ` +
          JSON.stringify({
            certificate,
            problems: problemsRecord([{ about: 'test', problem, unitsPerSecond: 1 }], []),
          }),
      );
    if (!ours.accepted) return;
    accepted++;
    if (ours.bound > (optimum === Infinity ? NO_CHOICE : BigInt(optimum)))
      expect.fail(`${bound} is above the optimum ${optimum}: ${JSON.stringify(certificate)}`);
  });
  return { accepted, tried: cases.length };
}

/** Problems with the certificates of both modes, of an ascent, of parts and of plain elimination. */
function honest(seeds: number): Case[] {
  const cases: Case[] = [];
  for (const flavour of FLAVOURS)
    for (let seed = 1; seed <= seeds; seed++) {
      const problem = randomChoice(seed, flavour);
      const optimum = bruteForce(problem).objective;
      const rows = (problem.rows ?? []).map((_, row) => ({ row }));
      const found: (Certificate | undefined)[] = [
        solveNow(problem).certificate,
        eliminationCertificate(problem, hashProblem(problem), rows),
      ];
      const bounded = optimum === Infinity ? undefined : partsOf(problem, optimum);
      if (bounded !== undefined)
        found.push(
          dualCertificate(problem, bounded.reduced, bounded.report),
          partsCertificate(problem, bounded.root, bounded.tree, true),
          partsCertificate(problem, bounded.root, bounded.tree, false),
        );
      for (const certificate of found)
        if (certificate !== undefined) cases.push({ problem, optimum, certificate });
    }
  return cases;
}

const LARGE = [2 ** 49, 2 ** 50, 2 ** 51, 2 ** 52, 2 ** 53, 1e18, 2.5e20];

/** A number, a list or a step changed, or one with numbers at the edge of what is exact. */
function changed({ certificate, ...rest }: Case, roll: (n: number) => number): Case {
  const every = [changedLists, changedSteps, changedSteps, changedRows][roll(4)];
  const all = [...every(certificate)];
  if (all.length === 0 || roll(4) === 0) {
    const lists = certificate.lists.map((list) =>
      list.map((x) =>
        roll(3) === 0 ? (roll(2) === 0 ? 1 : -1) * LARGE[roll(LARGE.length)] + roll(3) : x,
      ),
    );
    return { ...rest, certificate: { ...certificate, lists } };
  }
  return { ...rest, certificate: all[roll(all.length)] };
}

/** Steps of any kind with arguments that mostly exist. */
function random({ problem, optimum }: Case, roll: (n: number) => number): Case {
  const [variables, edges] = [problem.domains.length, Math.max(1, problem.edges.first.length)];
  const rows = (problem.rows ?? []).map((_, row) => ({ row }));
  const lists = Array.from({ length: 12 }, (_, k) =>
    k === 0
      ? rows.map(() => roll(2 ** 30) * 1024)
      : k === 1
        ? [roll(200)]
        : Array.from({ length: roll(5) }, () => roll(9) - 3),
  );
  const steps: number[] = [];
  for (let k = 1 + roll(6); k > 0; k--) {
    const edge = roll(edges + 2);
    const [u, v] = [
      problem.edges.first[edge] ?? roll(variables),
      problem.edges.second[edge] ?? roll(variables),
    ];
    const ends = roll(2) === 0 ? [u, v] : [v, u];
    const list = (): number => 2 + roll(10);
    const pairs: Readonly<Record<number, readonly number[]>> = {
      [STEP.merge]: [...ends, edge],
      [STEP.drop]: [roll(variables), list()],
      [STEP.separate]: [edge],
      [STEP.add]: [edge, roll(edges)],
      [STEP.eliminate]: [roll(variables)],
      [STEP.shift]: [edge, ...ends, list(), list()],
      [STEP.prune]: [roll(2) === 0 ? 1 : list()],
      [STEP.fuse]: [edge, ...ends],
      [STEP.price]: [0],
      [STEP.messages]: [roll(31), 0, list()],
      [STEP.sweep]: [roll(31), 0, roll(4)],
    };
    const code = 1 + roll(ARGUMENTS.length);
    if (code === STEP.branch) {
      const [w, left] = [roll(variables), 2 + roll(10)];
      steps.push(code, w, 2, STEP.part, left, STEP.end, STEP.part, list(), STEP.end);
      break;
    }
    steps.push(code, ...(pairs[code] ?? []));
  }
  const certificate: Certificate = {
    version: 2,
    problem: hashProblem(problem),
    rows,
    steps,
    lists,
  };
  return { problem, optimum, certificate };
}

/** A certificate whose list of rows is long and wrong. */
function millionRows(text: string): string {
  return text.replace('"rows":[', `"rows":[${'1,'.repeat(1_000_000)}`).replace(',]', ']');
}

function withoutHashes({ hashes: _, ...plan }: Plan): Omit<Plan, 'hashes'> {
  return plan;
}

describe('two checkers', () => {
  const all = honest(FULL ? 20 : 4);

  it('accept what both modes of the solver prove, with one bound', () => {
    const { accepted, tried } = agree(all);
    expect([accepted, tried > 60]).toEqual([tried, true]);
  });

  it.each([
    ['changed', changed],
    ['random', random],
  ] as const)(
    'agree on %s certificates, and prove no more than brute force',
    (_, make) => {
      const roll = dice(7);
      let [accepted, tried] = [0, 0];
      for (let left = FULL ? 50_000 : 400; left > 0; left -= 1000) {
        const some = Array.from({ length: Math.min(1000, left) }, () =>
          make(all[roll(all.length)], roll),
        );
        const batch = agree(some);
        accepted += batch.accepted;
        tried += batch.tried;
      }
      expect(accepted).toBeGreaterThan(tried / 50);
      expect(accepted).toBeLessThan(tried);
    },
    3_600_000,
  );

  it('agree on forms that are none', () => {
    const [{ problem, optimum, certificate }] = all;
    const forms = [
      null,
      7,
      [],
      {},
      { ...certificate, steps: [0.5] },
      { ...certificate, steps: [null] },
      { ...certificate, lists: [3] },
      { ...certificate, rows: [{}] },
      { ...certificate, rows: [{ row: 0.5 }] },
      { ...certificate, version: 1 },
      { ...certificate, note: 1 },
      { ...certificate, problem: '0' },
    ];
    const cases = forms.map((form) => ({ problem, optimum, certificate: form as Certificate }));
    expect(agree(cases).accepted).toBe(0);
  });
});

describe('a file of the contest', () => {
  it('and the certificate of its solution are judged alike', async () => {
    const file = fileURLToPath(new URL('../fixtures/iopddl/two-nodes.json', import.meta.url));
    const problem = readIopddl(JSON.parse(readFileSync(file, 'utf8')));
    const at = mkdtempSync(join(tmpdir(), 'second-checker-'));
    const { certificate, bound } = await solveAnytime(problem, { threads: 1, rounds: 2 });
    const path = join(at, 'certificate.json');
    writeFileSync(path, JSON.stringify(certificate));
    const run = (proof: string): ReturnType<typeof spawnSync> =>
      spawnSync(python, ['-m', 'shardwright.check', file, proof], { encoding: 'utf8', env });
    expect(run(path)).toMatchObject({
      status: 0,
      stdout: `accepted: no choice costs less than ${bound}\n`,
    });
    const forged = run(file.replace('.json', '.forged.json'));
    expect(forged).toMatchObject({
      status: 5,
      stdout: 'refused: costs add up to more than 2^52\n',
    });
    rmSync(at, { recursive: true });
  });
});

describe('a plan folder', () => {
  const root = mkdtempSync(join(tmpdir(), 'second-checker-'));
  const said = (): string => {
    const { stdout } = spawnSync(python, ['-m', 'shardwright.check', root], {
      encoding: 'utf8',
      env,
    });
    return stdout;
  };
  beforeAll(async () => {
    const graph = load('torch/mlp-loss/joint.expanded');
    const made = await leastCostPlan(graph, request('dp=2,tp=2'), { table: TABLE });
    if (made.status !== 'planned') throw new Error('no plan');
    for (const [name, text] of planFiles(
      made.plan,
      made.prepared.question.program,
      made.certificate,
      TABLE,
    ))
      writeFileSync(join(root, name), text);
  });
  afterAll(() => rmSync(root, { recursive: true, force: true }));

  it('is accepted as it was written', () => {
    expect(said()).toMatch(/^accepted: the plan takes/);
  });

  it.each([
    [
      'plan.json',
      (text: string) => text.replace(/"seconds": [\d.e-]+/, '"seconds": 1e-9'),
      'the plan says',
    ],
    [
      'plan.json',
      (text: string) => text.replace(/"request": \{/, '$& "memoryBytes": 1,'),
      'the plan states another request than request.json',
    ],
    [
      'plan.json',
      (text: string) => text.replace(/"bound": ([\d.e-]+)/, '"bound": 1e-9'),
      'a gap of 0 is stated',
    ],
    ['graph.swg', (text: string) => `${text}\n`, 'graph.swg is not the file'],
    ['request.json', (text: string) => text.replace('"gap": 0', '"gap": 1'), 'request.json is not'],
    [
      'problems.json.gz',
      (text: string) => text.replace(/"choice":\[\d+/, '"choice":[999'),
      'out of range',
    ],
    [
      'certificate.json.gz',
      (text: string) => text.replace('"steps":[', '"steps":[13,'),
      'not the file',
    ],
  ] as const)('with another %s is refused', (name, change, reason) => {
    const file = join(root, name);
    const before = readFileSync(file);
    const packed = name.endsWith('.gz');
    const text = change((packed ? gunzipSync(before) : before).toString('utf8'));
    writeFileSync(file, packed ? gzipSync(text) : text);
    expect(said()).toContain(`refused: `);
    expect(said()).toContain(reason);
    writeFileSync(file, before);
  });

  /** Writes a changed file with the hashes that make it the plan's own, asks both, and undoes it. */
  async function bothSay(name: string, change: (text: string) => string): Promise<string[]> {
    const [file, planFile] = [join(root, name), join(root, 'plan.json')];
    const [before, plan] = [readFileSync(file), readFileSync(planFile)];
    const packed = name.endsWith('.gz');
    const old = (packed ? gunzipSync(before) : before).toString('utf8');
    const text = change(old);
    expect(text).not.toBe(old);
    writeFileSync(file, packed ? gzipSync(text) : text);
    const parsed = JSON.parse(readFileSync(planFile, 'utf8')) as Plan;
    const { plan: _, ...hashes } = parsed.hashes ?? {};
    if (name === 'certificate.json.gz') Object.assign(hashes, { certificate: sha256(text) });
    const own = sha256(JSON.stringify({ ...withoutHashes(parsed), hashes }));
    writeFileSync(planFile, JSON.stringify({ ...parsed, hashes: { ...hashes, plan: own } }));
    const here = await cli('check-plan', root);
    const { stderr, status } = spawnSync(python, ['-m', 'shardwright.check', root], {
      encoding: 'utf8',
      env,
    });
    writeFileSync(file, before);
    writeFileSync(planFile, plan);
    return [
      here.code === 0 ? 'accepted' : here.code === 1 ? here.err : 'refused',
      status === 0 ? 'accepted' : status === 5 ? 'refused' : stderr,
    ];
  }

  const DEEP = '['.repeat(100_000) + ']'.repeat(100_000);
  it.each<[string, string, (text: string) => string]>([
    ['no version', 'certificate.json.gz', (t) => t.replace('"version":1,', '')],
    ['another key', 'certificate.json.gz', (t) => t.replace('{', '{"toString":1,')],
    ['a key of prototypes', 'certificate.json.gz', (t) => t.replace('{', '{"__proto__":{},')],
    ['no steps', 'certificate.json.gz', (t) => t.replace('"steps"', '"stops"')],
    ['NaN', 'certificate.json.gz', (t) => t.replace('"steps":[', '"steps":[NaN,')],
    ['an infinite number', 'certificate.json.gz', (t) => t.replace('"steps":[', '"steps":[1e999,')],
    ['text for a number', 'certificate.json.gz', (t) => t.replace('"steps":[', '"steps":["4",')],
    ['a million rows of no kind', 'certificate.json.gz', millionRows],
    [
      'lists of great depth',
      'certificate.json.gz',
      (t) => t.replace('"rows":[', `"rows":[${DEEP},`),
    ],
    ['moments that are none', 'certificate.json.gz', (t) => t.replace('{', '{"within":{},')],
    ['no problem', 'certificate.json.gz', () => '[]'],
    ['half of a file', 'certificate.json.gz', (t) => t.slice(0, t.length / 2)],
    ['no edges', 'problems.json.gz', (t) => t.replace('"edges"', '"edgy"')],
    ['a vector from behind', 'problems.json.gz', (t) => t.replace('"unary":[0', '"unary":[-1')],
    [
      'a vector that is not there',
      'problems.json.gz',
      (t) => t.replace('"unary":[0', '"unary":[1e9'),
    ],
    ['text for a cost', 'problems.json.gz', (t) => t.replace('"vectors":[[', '"vectors":[["a",')],
    ['no unit', 'problems.json.gz', (t) => t.replace('"unitsPerSecond"', '"units"')],
    ['a unit of 0', 'problems.json.gz', (t) => t.replace(/("unitsPerSecond":)\d+/, '$10')],
    ['no tables', 'problems.json.gz', (t) => t.replace(/"tables":\[\{/, '"tables":[{"x":1},{')],
    [
      'a table of other cells',
      'problems.json.gz',
      (t) => t.replace(/"rows":\d+,"col/, '"rows":99,"col'),
    ],
    ['a boolean', 'problems.json.gz', (t) => t.replace('"unary":[0', '"unary":[false')],
    ['another plan', 'plan.json', (t) => t.replace(/"seconds": [\d.e-]+/, '"seconds": 1e999')],
    [
      'seconds that rounding cannot explain',
      'plan.json',
      (t) =>
        t
          .replace(/"roundingSeconds": [\d.e-]+/, '"roundingSeconds": 1')
          .replace(/"seconds": [\d.e-]+/, '"seconds": 1e-9'),
    ],
  ])('with %s is refused by both, whatever hashes it has', async (_, name, change) => {
    expect(await bothSay(name, change)).toEqual(['refused', 'refused']);
  });

  it('reads the last of two equal keys, in both', async () => {
    const twice = (t: string): string => t.replace('"lists"', '"lists":[],"lists"');
    expect(await bothSay('certificate.json.gz', twice)).toEqual(['accepted', 'accepted']);
  });
});

describe('a malformed file of the contest', () => {
  const asked = (problem: object): string => {
    const at = mkdtempSync(join(tmpdir(), 'second-checker-'));
    const files = ['problem.json', 'certificate.json'].map((name) => join(at, name));
    writeFileSync(files[0], JSON.stringify({ problem }));
    writeFileSync(files[1], '{}');
    const { stdout, stderr } = spawnSync(python, ['-m', 'shardwright.check', ...files], {
      encoding: 'utf8',
      env,
    });
    rmSync(at, { recursive: true });
    return stdout + stderr;
  };
  const nodes = {
    intervals: [
      [0, 1],
      [0, 1],
    ],
    costs: [
      [1, 2],
      [3, 4],
    ],
    usages: [
      [0, 0],
      [0, 0],
    ],
  };
  const none = { nodes: [], costs: [] };
  const table = [1, 2, 3, 4];

  it.each<[string, object, string]>([
    ['no nodes', { edges: none }, 'the problem has no nodes'],
    ['an edge of three', { nodes, edges: { nodes: [[0, 1, 0]], costs: [table] } }, 'neither one'],
    ['a node from behind', { nodes, edges: { nodes: [[0, -1]], costs: [table] } }, 'out of range'],
    ['too few cells', { nodes, edges: { nodes: [[0, 1]], costs: [[1]] } }, 'pairs of its nodes'],
    [
      'half a cost',
      { nodes: { ...nodes, costs: [[0.5, 1], table.slice(2)] }, edges: none },
      '0.5 is not an integer',
    ],
    [
      'costs that no double tells apart',
      { nodes: { ...nodes, costs: [[2 ** 53, 1], table.slice(2)] }, edges: none },
      'out of range',
    ],
    [
      'costs whose sum is not exact',
      {
        nodes: {
          ...nodes,
          costs: [
            [2 ** 51, 1],
            [2 ** 52, 1],
          ],
        },
        edges: none,
      },
      'more than 2^52',
    ],
    [
      'usages whose sum is not exact',
      {
        nodes: {
          ...nodes,
          usages: [
            [2 ** 51, 1],
            [2 ** 52, 1],
          ],
        },
        edges: none,
        usage_limit: 7,
      },
      'more than 2^52',
    ],
  ])('with %s is refused, as the page says', (_, problem, reason) => {
    expect(asked(problem)).toMatch(/^refused: /);
    expect(asked(problem)).toContain(reason);
    expect(() => readIopddl({ problem })).toThrow();
  });
});
