import { execFileSync, spawnSync } from 'node:child_process';
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { stripVTControlCharacters } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

/** `examples/train_llama` as its README says, on this machine; Ray Train where this Python has it. */
const python = process.env.SHARDWRIGHT_PYTHON ?? 'python3';
const root = fileURLToPath(new URL('../../', import.meta.url));
const example = join(root, 'examples/train_llama');
const folder = mkdtempSync(join(tmpdir(), 'shardwright-llama-'));
const hasRay = spawnSync(python, ['-c', 'import ray.train.torch, pyarrow']).status === 0;
const env = { ...process.env, PYTHONPATH: join(root, 'python'), PATH: `${folder}:${process.env.PATH ?? ''}`, OMP_NUM_THREADS: '1' }; // prettier-ignore
const run = (...argv: string[]): string => execFileSync(python, argv, { env, cwd: folder, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] }); // prettier-ignore
const losses = (text: string): number[] => [...stripVTControlCharacters(text).matchAll(/(?:^|\) )\d+ (\d\.\d+)$/gm)].map(([, loss]) => Number(loss)); // prettier-ignore
const committed = readFileSync(join(example, 'loss.txt'), 'utf8').trim().split('\n').slice(1).map((line) => line.trim().split(/ +/).map(Number)); // prettier-ignore

function expectCurve(found: readonly number[], column: number): void {
  expect(found.length).toBe(20);
  found.forEach((loss, step) => expect(Math.abs(loss / committed[step][column] - 1), `step ${step}`).toBeLessThan(1e-5)); // prettier-ignore
}

describe('a small Llama, by its plan', () => {
  beforeAll(() => {
    const loader = join(root, 'node_modules/tsx/dist/loader.mjs');
    const command = join(folder, 'shardwright');
    writeFileSync(command, `#!/bin/sh\nexec '${process.execPath}' --import '${loader}' '${join(root, 'src/cli/main.ts')}' "$@"\n`); // prettier-ignore
    chmodSync(command, 0o755);
    run(join(example, 'plan.py'));
  }, 600_000);
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  test('both curves of loss.txt are one curve', () => {
    for (const [step, one, four] of committed) expect(Math.abs(four / one - 1), `step ${step}`).toBeLessThan(1e-5);
    expect(committed[19][1]).toBeLessThan(committed[0][1] / 1.5);
  });

  test('one process', () => expectCurve(losses(run(join(example, 'train.py'), '--single')), 1), 300_000);

  test('four processes under torchrun, with the collectives that the README counts', () => {
    expectCurve(losses(run('-m', 'torch.distributed.run', '--standalone', '--nproc-per-node', '4', join(example, 'train.py'))), 2); // prettier-ignore
    const { collectives } = JSON.parse(readFileSync(join(folder, 'plan/torch/collectives.json'), 'utf8')) as { collectives: { kind: string }[] }; // prettier-ignore
    const count = (kind: string): number => collectives.filter((c) => c.kind === kind).length;
    const readme = readFileSync(join(example, 'README.md'), 'utf8');
    expect(readme).toContain(`${count('all_gather')} all-gathers, ${count('all_reduce')} all-reduces and ${count('reduce_scatter')} reduce-scatters`); // prettier-ignore
  }, 600_000);

  test.skipIf(!hasRay)(`four workers of Ray Train${hasRay ? '' : ' (this Python has no ray[train])'}`, () => {
    expectCurve(losses(run(join(example, 'train_ray.py'))), 2);
  }, 600_000); // prettier-ignore
});
