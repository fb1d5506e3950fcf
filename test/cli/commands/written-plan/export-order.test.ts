import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, beforeAll, describe, expect, test } from 'vitest';

import { planModelInto } from '../../plan-folders.ts';
import { cli, fixture } from '../../support.ts';

/** `export --target torch --order`: what is written, what is said, what is refused. */
const root = mkdtempSync(join(tmpdir(), 'shardwright-order-'));
let plan: string;
beforeAll(async () => {
  plan = await planModelInto(fixture('mlp-loss'), root, 'plan', '--inputs', 'S(0)R');
});
afterAll(() => rmSync(root, { recursive: true, force: true }));

interface List {
  readonly order: string;
  readonly seconds: number;
  readonly peakBytes: number;
}
const list = (folder: string): List =>
  JSON.parse(readFileSync(join(folder, 'collectives.json'), 'utf8')) as List;

describe('export --target torch --order', () => {
  test('the faster order by default; both are at hand by name', async () => {
    const written: Record<string, List> = {};
    for (const order of ['program', 'simulated', 'default']) {
      const out = join(root, order);
      const run = await cli(
        'export',
        plan,
        '--target',
        'torch',
        '-o',
        out,
        ...(order === 'default' ? [] : ['--order', order]),
      );
      expect(run.code, run.err).toBe(0);
      written[order] = list(out);
      expect(run.err).toContain(`note  order  ${written[order].order}, `);
      expect(readFileSync(join(out, 'program.py'), 'utf8')).toContain(
        `\norder  ${written[order].order}, `,
      );
    }
    const { program, simulated } = written;
    expect([program.order, simulated.order]).toEqual(['program', 'simulated']);
    expect(written.default).toEqual(simulated.seconds < program.seconds ? simulated : program);
  });

  test('flags of another target, another order, and no bucket at all', async () => {
    for (const [flags, said] of [
      [['--target', 'jax', '--order', 'program'], '--target jax takes no --order'],
      [['--target', 'shardy', '--bucket', '0'], '--target shardy takes no --bucket'],
      [
        ['--target', 'torch', '--order', 'program', '--bucket', '25MiB'],
        '--order program calls collectives one by one',
      ],
      [['--target', 'torch', '--order', 'fastest'], '--order'],
    ] as const) {
      const run = await cli('export', plan, '-o', join(root, 'refused'), ...flags);
      expect(run.code).toBe(2);
      expect(run.err).toContain(said);
    }
  });
});
