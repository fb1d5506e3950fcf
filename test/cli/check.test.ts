import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, describe, expect, test } from 'vitest';

import { cli, fixture } from './support.ts';

const folder = mkdtempSync(join(tmpdir(), 'check-'));
afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

interface Report {
  readonly mode: string;
  readonly eraseable: boolean;
  readonly violations: readonly {
    node: string;
    meshDim: string;
    rule: string;
    types: string[];
    fix: string;
  }[];
  readonly localNotGlobal: readonly unknown[];
  readonly implicit: readonly unknown[];
  readonly collectives?: readonly { kind: string }[];
}

describe('check', () => {
  test('a model under strict and auto: findings are the answer', async () => {
    const run = async (...more: string[]): Promise<Report> => {
      const { code, out } = await cli('check', fixture('mlp'), '--mesh', 'dp=2', '--json', ...more);
      expect(code).toBe(0);
      return JSON.parse(out) as Report;
    };
    const whole = await run('--mode', 'strict');
    expect(whole).toMatchObject({
      mode: 'strict',
      eraseable: true,
      violations: [],
      localNotGlobal: [],
    });
    const cut = await run('--mode', 'strict', '--type', 'fc1.weight=P("dp",None)');
    expect(cut.eraseable).toBe(false);
    expect(Object.keys(cut.violations[0])).toEqual(
      expect.arrayContaining(['node', 'meshDim', 'rule', 'types', 'fix']),
    );
    expect((await run('--mode', 'auto', '--type', 'fc1.weight=P("dp",None)')).violations).toEqual(
      [],
    );
  });

  test('a plan: every collective that its report counts', async () => {
    const planned = await cli(
      'plan',
      fixture('mlp'),
      '--mesh',
      'dp=2,tp=2',
      '--cluster',
      'dgx-h100',
      '-o',
      join(folder, 'p'),
      '--json',
    );
    expect(planned.code).toBe(0);
    const plan = JSON.parse(readFileSync(join(folder, 'p', 'plan.json'), 'utf8')) as {
      nodes: { redistributions: { copy?: string; collectives: unknown[] }[] }[];
      outputs: { redistributions: { copy?: string; collectives: unknown[] }[] }[];
    };
    const count = [...plan.nodes, ...plan.outputs]
      .flatMap((n) => n.redistributions)
      .filter((r) => r.copy !== 'reused')
      .flatMap((r) => r.collectives).length;
    const { code, out } = await cli('check', join(folder, 'p'), '--mode', 'strict', '--json');
    expect(code).toBe(0);
    const report = JSON.parse(out) as Report;
    expect(report.collectives).toHaveLength(count);
    for (const { fix } of report.violations) expect(fix).toMatch(/→/);
    // A plan has its mesh: another is refused, not ignored.
    const other = await cli('check', join(folder, 'p'), '--mode', 'strict', '--mesh', 'dp=4');
    expect([other.code, other.err]).toEqual([2, expect.stringContaining('a plan has its mesh')]);
  });

  test('a wrong mode, a missing mesh and a wrong type exit 2', async () => {
    expect((await cli('check', fixture('mlp'), '--mode', 'strikt', '--mesh', 'dp=2')).code).toBe(2);
    expect((await cli('check', fixture('mlp'), '--mode', 'strict')).code).toBe(2);
    expect(
      (await cli('check', fixture('mlp'), '--mode', 'strict', '--mesh', 'dp=2', '--type', 'x'))
        .code,
    ).toBe(2);
  });
});
