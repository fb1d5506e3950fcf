import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { OwnProcess } from '../../../support/own-process.ts';

const example = (name: string): string => fileURLToPath(new URL(`../../../../examples/${name}.ts`, import.meta.url));

describe('shardwright check', () => {
  let other: OwnProcess;
  beforeAll(() => void (other = new OwnProcess()));
  afterAll(() => other.close());

  test('a strict program can be stripped of its types', async () => {
    const { code, out, err } = await other.cli('check', example('gated-mlp-strict'), '--mode', 'strict', '--json');
    expect([code, err]).toEqual([0, '']);
    expect(JSON.parse(out)).toMatchObject({ mode: 'strict', eraseable: true, violations: [], localNotGlobal: [] });
  });
  test('one without casts cannot, and is told which; findings are no fault of the input', async () => {
    const types = ['x=P(None, None)', 'w1=P(None, "tp")', 'w2=P("tp", None)'].flatMap((t) => ['--type', t]);
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
    const { eraseable, violations } = JSON.parse(out) as { eraseable: boolean; violations: { fix: string }[] };
    expect(eraseable).toBe(false);
    expect(violations.map((v) => v.fix)).toEqual(['convert(x, "tp", I→R)']);
  });
});
