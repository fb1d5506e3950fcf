import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { describe, expect, test } from 'vitest';

import { OwnProcess } from '../../../support/own-process.ts';

const example = (name: string): string =>
  fileURLToPath(new URL(`../../../../examples/${name}.ts`, import.meta.url));

describe('shardwright check', () => {
  const other = OwnProcess.shared();

  test('a strict program can be stripped of its types', async () => {
    const { code, out, err } = await other.cli(
      'check',
      example('gated-mlp-strict'),
      '--mode',
      'strict',
      '--json',
    );
    expect([code, err]).toEqual([0, '']);
    expect(JSON.parse(out)).toMatchObject({
      mode: 'strict',
      eraseable: true,
      violations: [],
      localNotGlobal: [],
    });
  });
  test('one without casts cannot, and is told which; findings are not a fault of the input', async () => {
    const types = ['x=P(None, None)', 'w1=P(None, "tp")', 'w2=P("tp", None)'].flatMap((t) => [
      '--type',
      t,
    ]);
    const { code, out } = await other.cli(
      'check',
      example('mlp'),
      '--mode',
      'strict',
      '--mesh',
      'tp=4',
      '--json',
      ...types,
    );
    expect(code).toBe(0);
    const { eraseable, violations } = JSON.parse(out) as {
      eraseable: boolean;
      violations: { fix: string }[];
    };
    expect(eraseable).toBe(false);
    expect(violations.map((v) => v.fix)).toEqual(['convert(x, "tp", I→R)']);
  });
  test('per-device code is traced on the mesh that is asked for', async () => {
    const sizes = async (mesh: string): Promise<unknown> => {
      const { code, out } = await other.cli(
        'check',
        example('megatron-mlp'),
        '--mode',
        'strict',
        '--mesh',
        mesh,
        '--json',
      );
      const { eraseable, violations } = JSON.parse(out) as {
        eraseable: boolean;
        violations: unknown[];
      };
      return [code, eraseable, violations];
    };
    expect(await sizes('dp=2,tp=2')).toEqual([0, true, []]);
    expect(await sizes('tp=8')).toEqual([0, true, []]);
  });
  test('of a plan it lists every collective, those in a region too; verify and simulate run them', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'shardwright-check-'));
    try {
      const mesh = ['--mesh', 'dp=2,tp=2', '--cluster', 'dgx-h100'];
      expect(
        (await other.cli('plan', '-v', example('megatron-mlp'), ...mesh, '-o', folder, '--quiet'))
          .code,
      ).toBe(0);
      const { out } = await other.cli('check', folder, '--mode', 'auto', '--json');
      const { collectives } = JSON.parse(out) as {
        collectives: { node: string; source: string; why: string; bytes: number }[];
      };
      expect(collectives.filter(({ node }) => node === 'local_map/all_reduce')).toMatchObject([
        {
          kind: 'all_reduce',
          meshDims: ['tp'],
          from: 'P',
          to: 'I',
          why: 'as written in the region',
        },
      ]);
      expect(collectives.every(({ source }) => /megatron-mlp\.ts:\d+:\d+$/.test(source))).toBe(
        true,
      );
      const verified = JSON.parse((await other.cli('verify', folder, '--json')).out) as {
        mismatches: unknown[];
        collectives: Record<string, number>;
      };
      expect([verified.mismatches, verified.collectives['all_reduce']]).toEqual([[], 1]);
      const simulated = JSON.parse((await other.cli('simulate', folder, '--json')).out) as {
        exposedCommunicationSeconds: number;
      };
      expect(simulated.exposedCommunicationSeconds).toBeGreaterThan(0);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });
});
