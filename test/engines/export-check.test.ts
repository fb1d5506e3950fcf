import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { afterAll, expect, test } from 'vitest';

import { torchTarget } from '../../src/export/torch/target.ts';
import { runningPlans } from '../export/running-plans.ts';
import { type Checked, startChecks } from './support/checks.ts';
import { torchrun } from './support/torchrun.ts';

/**
 * `check.py` of `export --target torch --check`: four processes at small sizes beside one, and a
 * program that is wrong on purpose.
 */
const python = process.env.SHARDWRIGHT_PYTHON ?? 'python3';
const checked = startChecks();
const folder = mkdtempSync(join(tmpdir(), 'shardwright-check-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** As a user starts it. */
function launched(): Omit<Checked, 'status'> & { readonly status: number | null } {
  const { status, stdout, stderr } = spawnSync(python, torchrun(folder, join(folder, 'check.py')), {
    encoding: 'utf8',
    env: { ...process.env, OMP_NUM_THREADS: '1' },
  });
  const line = stdout.split('\n').find((text) => text.startsWith('{'));
  if (line === undefined) throw new Error(stderr);
  return { ...(JSON.parse(line) as Omit<Checked, 'status'>), status };
}

async function write(model: string): Promise<void> {
  const [optimum] = await runningPlans(model, 'dp=2,tp=2', []);
  for (const { name, text } of torchTarget.check?.(optimum.source) ?? []) {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), text);
  }
}

test('a while loop and a map are what they are before they are cut', async () => {
  await write('iterated');
  const program = readFileSync(join(folder, 'check/program.py'), 'utf8');
  expect(program).toMatch(
    / = while_loop\(here, while_cond\w+, while_body\w+, first_while_loop, \[/,
  );
  expect(program).toMatch(/ = scan\(here, map_body\w+, \[\], \[\w+\], \[/);
  const answer = await checked(folder, 4);
  expect(answer).toMatchObject({ status: 0, compared: 1, failed: [] });
  expect(answer.worst).toBeLessThan(1e-9);
}, 600_000);

test('the check of a Llama passes, and fails where one sum is left out', async () => {
  await write('llama-sdpa');
  const sizes = JSON.parse(readFileSync(join(folder, 'check/placements.json'), 'utf8')) as {
    primals: { shape: number[] }[];
  };
  expect(Math.max(...sizes.primals.flatMap(({ shape }) => shape))).toBeLessThan(512 / 4);
  const right = launched();
  expect(right).toMatchObject({ status: 0, failed: [] });
  expect(right.compared).toBeGreaterThanOrEqual(22);
  expect(right.worst).toBeLessThan(1e-9);
  const program = readFileSync(join(folder, 'check/program.py'), 'utf8');
  const at = program.lastIndexOf(' = all_reduce(here, ');
  const wrong =
    program.slice(0, at) +
    program.slice(at).replace(/all_reduce\(here, (\w+), "sum", "[\w,]+"\)/, '$1.clone()');
  expect(wrong).not.toBe(program);
  writeFileSync(join(folder, 'check/program.py'), wrong);
  const broken = await checked(folder, 4);
  expect(broken.status).not.toBe(0);
  expect(broken.failed.length).toBeGreaterThan(0);
}, 600_000);

test('the Python that exported programs are written from compiles, with all of its functions', () => {
  const texts = new URL('../../data/export/', import.meta.url);
  const paths = readdirSync(texts)
    .filter((name) => name.endsWith('.py'))
    .map((name) => fileURLToPath(new URL(name, texts)));
  expect(paths.length).toBeGreaterThanOrEqual(3);
  const program = 'import ast, sys\nfor path in sys.argv[1:]: ast.parse(open(path).read(), path)';
  const { status, stderr } = spawnSync(python, ['-c', program, ...paths], { encoding: 'utf8' });
  expect(status, stderr).toBe(0);
});
