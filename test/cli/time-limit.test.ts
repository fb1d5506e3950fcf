import { spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, expect, it } from 'vitest';

import { COMMAND } from '../../scripts/command.ts';
import { parseSeconds } from '../../src/cli/input/flags/read.ts';
import { runCli } from '../../src/cli/program.ts';
import type { RunControl } from '../../src/cli/thread/run-control.ts';
import { readPlan } from '../../src/plan/record/schema.ts';
import { Deadline } from '../../src/plan/request/deadline.ts';
import { percentText, secondsText } from '../../src/units.ts';
import { cli, type CliRun, fixture } from './support.ts';

/**
 * `--time-limit` as a user meets it: an answer with its bound, or a line that says where the time
 * went.
 */
const root = mkdtempSync(join(tmpdir(), 'time-limit-'));
afterAll(() => rmSync(root, { recursive: true, force: true }));

/**
 * The clock stands until the command has an answer, and then counts what this process computes: a
 * busy machine changes nothing.
 */
function fromTheFirstAnswerOn(): RunControl {
  let began: NodeJS.CpuUsage | undefined;
  const now = (): number => {
    if (began === undefined) return 0;
    const { user, system } = process.cpuUsage(began);
    return (user + system) / 1e3;
  };
  return {
    deadline: (limitSeconds) => new Deadline(limitSeconds, { clock: { now }, since: 0 }),
    answers: () => (began ??= process.cpuUsage()),
  };
}

async function underControl(control: RunControl, argv: readonly string[]): Promise<CliRun> {
  let [out, err] = ['', ''];
  const code = await runCli(
    argv,
    {
      stdout: (text) => void (out += text),
      stderr: (text) => void (err += text),
      isTerminal: false,
    },
    control,
  );
  return { code, out, err };
}

it('a limit in the middle of a hard search exits 4 with the bound, the gap and a plan folder that can be used', async () => {
  // A budget that binds: the proof takes minutes.
  const out = join(root, 'late');
  const hard = [
    'plan',
    fixture('llama-tiny'),
    '--mesh',
    'a=2,b=2',
    '--cluster',
    'dgx-h100',
    '--memory',
    '1.06MiB',
    '--activations',
    'report',
    '--no-recipes',
  ];
  const run = await underControl(fromTheFirstAnswerOn(), [
    ...hard,
    '--time-limit',
    '0.2',
    '-o',
    out,
  ]);
  expect(run.code, run.err).toBe(4);
  const plan = readPlan(readFileSync(join(out, 'plan.json'), 'utf8'));
  expect(plan.proof.status).toBe('feasible');
  expect(plan.proof.bound).toBeGreaterThan(0);
  expect(plan.proof.bound).toBeLessThan(plan.objective.seconds);
  expect(plan.proof.gap).toBeGreaterThan(0);
  expect(run.out.replace(/\s+/g, ' ')).toContain(
    `no plan has a smaller sum of compute and communication than ` +
      `${secondsText(plan.proof.bound)}; this one has ${secondsText(plan.objective.seconds)} ` +
      `(gap ${percentText(plan.proof.gap)})`,
  );
  expect(run.err).toContain(`stopped at gap ${percentText(plan.proof.gap)}`);
  expect(plan.memory.peakBytes).toBeLessThanOrEqual(1.06 * 2 ** 20);
  expect((await cli('check-plan', out)).code).toBe(0);
  const played = await cli('simulate', out, '--json');
  expect(played.code, played.err).toBe(0);
  expect((JSON.parse(played.out) as { seconds: number }).seconds).toBeGreaterThan(0);
});

it('one matmul on six dims of two, the most placements that a call can have, ends near its limit', async () => {
  const model = join(root, 'matmul.fx.txt');
  const type = '"f32[4096, 4096]"';
  writeFileSync(
    model,
    `class G(torch.nn.Module):\n    def forward(self, a, b):\n        a: ${type}\n        b: ${type}\n        mm: ${type} = torch.ops.aten.mm.default(a, b)\n        return (mm,)\n`,
  );
  const mesh = 'a=2,b=2,c=2,d=2,e=2,f=2';
  const limitSeconds = 0.5;
  const child = spawn(process.execPath, [
    ...COMMAND,
    'plan',
    model,
    '--mesh',
    mesh,
    '--cluster',
    'dgx-h100',
    '--time-limit',
    `${limitSeconds}`,
  ]);
  const began = performance.now();
  let [out, err] = ['', ''];
  child.stdout.setEncoding('utf8').on('data', (text: string) => void (out += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => void (err += text));
  const code = await new Promise((resolve) => child.on('close', resolve));
  // With a plan it says how far that may be from the best; without one, that there is none, and
  // what to do.
  if (out === '')
    expect([code, err]).toEqual([
      4,
      expect.stringMatching(/^E_TIME_LIMIT .*\n {2}hint: raise --time-limit/m),
    ]);
  else if (code === 0) expect(out).toMatch(/^proof +optimal/m);
  else
    expect([code, out]).toEqual([
      4,
      expect.stringMatching(/^proof +feasible: no plan has a smaller sum .*\s.*\(gap /m),
    ]);
  // Without the limit it takes minutes; loading the sources alone takes some seconds on a busy
  // machine.
  expect((performance.now() - began) / 1e3).toBeLessThan(limitSeconds + 30);
}, 120_000);

it.each([
  ['600', 600],
  ['90s', 90],
  ['10m', 600],
  ['1.5h', 5400],
])('a time limit of %s is %i seconds', (text, seconds) => {
  expect(parseSeconds(text, '--time-limit')).toBe(seconds);
});

it.each(['0', '-1', '10w', 'm', '', '1e400'])('a time limit of %j is refused', (text) => {
  expect(() => parseSeconds(text, '--time-limit')).toThrow(/is not a time above zero/);
});

it('a plan that the limit leaves no time to check is written without it, and is what it says', async () => {
  const out = join(root, 'unchecked');
  const argv = ['plan', fixture('mlp'), '--mesh', 'a=2', '--cluster', 'dgx-h100', '-o', out];
  await cli(...argv);
  expect(readdirSync(out)).toContain('problems.json.gz');
  let now = 0;
  let err = '';
  // The time is over once the answer is printed.
  const code = await runCli(
    [...argv, '--time-limit', '100'],
    {
      stdout: () => void (now = 1e6),
      stderr: (text) => void (err += text),
      isTerminal: false,
    },
    {
      deadline: (limitSeconds) =>
        new Deadline(limitSeconds, { clock: { now: () => now }, since: 0 }),
      answers: () => undefined,
    },
  );
  expect(code, err).toBe(0);
  expect(err).toContain('the plan is written without its check');
  expect(err).toMatch(/exceeded by .* printing .*, writing /);
  // No file of the plan that was there before.
  expect(readdirSync(out)).not.toContain('problems.json.gz');
  const checked = await cli('check-plan', out);
  expect([checked.code, checked.out]).toEqual([0, expect.stringContaining('is what it says')]);
});
