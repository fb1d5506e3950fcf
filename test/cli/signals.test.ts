import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, describe, expect, it } from 'vitest';

import { COMMAND } from '../../scripts/command.ts';
import { FULL } from '../support/full.ts';
import { cli, fixture } from './support.ts';

/**
 * SIGHUP, SIGINT and SIGTERM give the best so far with its bound; where there is nothing yet, they say so.
 * Each run is a process of its own, and gets its signal when it says or shows that it searches:
 * nothing here waits for a clock.
 */
const root = mkdtempSync(join(tmpdir(), 'signals-'));
afterAll(() => rmSync(root, { recursive: true, force: true }));

interface Ended {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

/**
 * Runs a command, and sends signals one after another as soon as `ready` says so of what was
 * printed on stderr.
 */
function interrupted(
  args: readonly string[],
  signals: readonly NodeJS.Signals[],
  ready: (err: string) => boolean,
): Promise<Ended> {
  const child = spawn(process.execPath, [...COMMAND, ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let [out, err] = ['', ''];
  const left = [...signals];
  const look = (): void => {
    // The second signal goes out when the first has been heard.
    const heard = signals.length - left.length === 0 ? ready(err) : /ends at once/.test(err);
    const next = heard ? left.shift() : undefined;
    if (next !== undefined) child.kill(next);
  };
  child.stdout.setEncoding('utf8').on('data', (text: string) => void (out += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    err += text;
    look();
  });
  const timer = setInterval(look, 50);
  return new Promise((resolve) => {
    child.on('close', (code) => {
      clearInterval(timer);
      resolve({ code, out, err });
    });
  });
}

/** Placements of this program within this budget take minutes to prove. */
const HARD = ['--cluster', 'dgx-h100', '--memory', '1.06MiB'];
const TINY = fixture('llama-tiny');

/**
 * A program of integers without a structure: a complete graph of 30 variables with 12 values each.
 */
function noise(): string {
  let state = 7;
  const next = (): number => (state = (Math.imul(state, 48271) >>> 0) % 0x7fffffff) % 1000;
  const [nodes, values] = [30, 12];
  const list = (n: number): number[] => Array.from({ length: n }, next);
  const pairs = Array.from({ length: nodes }, (_, i) =>
    Array.from({ length: nodes - 1 - i }, (__, k) => [i, i + 1 + k]),
  ).flat();
  const body = {
    name: 'noise',
    nodes: {
      intervals: Array.from({ length: nodes }, () => [0, 1]),
      costs: Array.from({ length: nodes }, () => list(values)),
      usages: Array.from({ length: nodes }, () => Array<number>(values).fill(0)),
    },
    edges: { nodes: pairs, costs: pairs.map(() => list(values * values)) },
    usage_limit: 10,
  };
  const path = join(root, 'noise.json');
  writeFileSync(path, JSON.stringify({ problem: body }));
  return path;
}

const COMMANDS: Readonly<
  Record<
    string,
    {
      readonly args: (folder: string) => readonly string[];
      readonly ready: (err: string) => boolean;
    }
  >
> = {
  // The integer program is written just before the search.
  plan: {
    args: (folder) => [
      'plan',
      TINY,
      '--mesh',
      'a=2,b=2',
      ...HARD,
      '--no-recipes',
      '--emit-ilp',
      `${folder}.lp`,
      '-o',
      folder,
    ],
    ready: () => false,
  },
  compare: {
    args: () => ['compare', TINY, '--devices', '4', ...HARD],
    ready: (err) => err.includes('mesh 2 x 2: solving'),
  },
  audit: {
    args: () => ['audit', TINY, '--plan', 'recipe:dp+tp', '--mesh', 'a=2,b=2', ...HARD],
    ready: (err) => err.includes('solving the optimum'),
  },
  solve: {
    args: (folder) => ['solve', noise(), '--threads', '1', '--certificate', `${folder}.json`],
    ready: (err) => err.includes('search  best'),
  },
};

function run(command: string, folder: string, signals: readonly NodeJS.Signals[]): Promise<Ended> {
  const { args, ready } = COMMANDS[command];
  return interrupted(
    args(folder),
    signals,
    command === 'plan' ? () => existsSync(`${folder}.lp`) : ready,
  );
}

/** The plan was written whole, and says how far from the optimum it may be. */
function isBestSoFar(signal: string, plan: Ended, folder: string): void {
  expect(plan.err).toContain(`${signal}: ending with the best so far`);
  expect(plan.err).toMatch(
    /^interrupted: the best plan so far takes .*, none takes less than .*, gap [\d.]+ %$/m,
  );
  expect([plan.code, plan.out]).toEqual([
    4,
    expect.stringMatching(/^proof +feasible: no plan has a smaller sum/m),
  ]);
  expect(readdirSync(folder).sort()).toEqual([
    'certificate.json.gz',
    'graph.swg',
    'plan.json',
    'problems.json.gz',
    'progress.json',
    'request.json',
  ]);
}

describe('a signal', () => {
  // The road of SIGINT, by another name.
  it.runIf(FULL)(
    'SIGTERM to plan gives the best so far with its bound and gap, exit 4',
    async () => {
      const folder = join(root, 'SIGTERM-plan');
      isBestSoFar('SIGTERM', await run('plan', folder, ['SIGTERM']), folder);
    },
  );

  it.runIf(FULL)(
    'SIGINT to compare and audit gives the best so far with its bound, exit 4 or what the answer says',
    async () => {
      const [compare, audit] = await Promise.all(
        ['compare', 'audit'].map((command) =>
          run(command, join(root, `SIGINT-${command}`), ['SIGINT']),
        ),
      );
      for (const { err } of [compare, audit])
        expect(err).toContain('SIGINT: ending with the best so far');

      // Every recipe was priced before the search for the last optimum began.
      expect(compare.out).toMatch(/^best {7}\S+ on /m);
      expect([compare.code, compare.err]).toEqual([
        4,
        expect.stringMatching(/d0=2,d1=2: stopped at gap|1 question not asked/),
      ]);

      expect(audit.err).toMatch(
        /^interrupted: the bound is .*, so the regret is at most [\d.]+ %/m,
      );
      expect(audit.out).toMatch(/^regret /m);
      // The plan asked about is over the budget, which comes first.
      expect(audit.code).toBe(3);
    },
  );

  it('SIGINT to plan and SIGHUP to solve give the best so far with its bound and gap', async () => {
    const signal = 'SIGINT';
    const folders = ['plan', 'solve'].map((command) => join(root, `${signal}-${command}`));
    const [plan, solve] = await Promise.all(
      (
        [
          ['plan', signal],
          ['solve', 'SIGHUP'],
        ] as const
      ).map(([command, own], i) => run(command, folders[i], [own])),
    );
    expect(solve.err).toContain('SIGHUP: ending with the best so far');

    isBestSoFar(signal, plan, folders[0]);
    expect((await cli('check-plan', folders[0])).code).toBe(0);

    expect(solve.err).toMatch(
      /^interrupted: the best choice so far costs \d+, none costs less than -?\d+, gap [\d.]+ %$/m,
    );
    expect([solve.code, solve.out]).toEqual([
      4,
      expect.stringMatching(/^feasible {2}cost \d+ {2}bound/),
    ]);
    const checked = await cli('solve', join(root, 'noise.json'), '--check', `${folders[1]}.json`);
    expect(checked.out).toMatch(/^accepted/);
  });
});

describe('a signal that cannot wait', () => {
  it.each(FULL ? ['solve', 'plan'] : ['solve'])(
    'again ends %s at once, with the code of the second',
    async (command) => {
      const ended = await run(command, join(root, `twice-${command}`), ['SIGINT', 'SIGTERM']);
      // It may have been done before the second came.
      expect([4, 143]).toContain(ended.code);
      expect(ended.err).toContain(
        'SIGINT: ending with the best so far; a second signal ends at once',
      );
    },
  );

  it.each<readonly [NodeJS.Signals, number]>([
    ['SIGHUP', 129],
    ...(FULL
      ? ([
          ['SIGINT', 130],
          ['SIGTERM', 143],
        ] as const)
      : []),
  ])(
    '%s while the model is read says that there is nothing, exit %i, and leaves no file',
    async (signal, code) => {
      const path = join(root, `${signal}.model.mjs`);
      writeFileSync(
        path,
        "process.stderr.write('reading\\n');\nawait new Promise((resolve) => setTimeout(resolve, 600_000));\n",
      );
      const folder = join(root, `reading-${signal}`);
      const args = ['plan', path, '--mesh', 'a=2', '--cluster', 'dgx-h100', '-o', folder];
      const ended = await interrupted(args, [signal], (err) => err.includes('reading'));
      expect([ended.code, ended.out]).toEqual([code, '']);
      expect(ended.err).toContain(
        `E_INTERRUPTED ${signal} came before there was anything to answer with`,
      );
      expect(existsSync(folder)).toBe(false);
    },
  );
});

it('a command that searches prints and ends in its thread as it does without one', async () => {
  const args = ['plan', fixture('mlp-loss'), '--mesh', 'a=2', '--cluster', 'dgx-h100', '--json'];
  const never = (): boolean => false;
  const [threaded, plain] = [await interrupted(args, [], never), await cli(...args)];
  const plan = (out: string): unknown =>
    JSON.parse(out, (key, value: unknown) => (key === 'solveSeconds' ? null : value));
  expect([threaded.code, plan(threaded.out)]).toEqual([plain.code, plan(plain.out)]);
});
