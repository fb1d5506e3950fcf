import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { printGraph } from '../../../../src/graph/text/write.ts';
import { input, parameter, trace } from '../../../../src/trace/trace.ts';
import { cli } from '../../support.ts';

/** `plan --emit strict`: the plan as a typed program, which other commands read. */

let folder = '';
let ask: readonly string[] = [];
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'shardwright-'));
  const model = join(folder, 'mlp.swg');
  const shapes = { x: input([8, 128]), w1: parameter([128, 256]), w2: parameter([256, 64]) };
  const graph = trace(({ x, w1, w2 }) => x.matmul(w1).relu().matmul(w2), shapes);
  writeFileSync(model, printGraph(graph));
  ask = [
    'plan',
    model,
    ...['--mesh', 'tp=4', '--cluster', 'dgx-h100', '--no-recipes', '--outputs', 'R'],
    ...['--pin', 'w1=S(1)', '--pin', 'w2=S(0)'],
  ];
});
afterAll(() => rmSync(folder, { recursive: true }));

describe('plan --emit strict', () => {
  it('prints a program that check --mode strict takes, and that plans to the same collective', async () => {
    const { code, out } = await cli(...ask, '--emit', 'strict');
    expect(code).toBe(0);
    const file = join(folder, 'typed.swg');
    writeFileSync(file, out);
    const { eraseable, violations } = JSON.parse(
      (await cli('check', file, '--mode', 'strict', '--json')).out,
    ) as { eraseable: boolean; violations: unknown[] };
    expect([eraseable, violations]).toEqual([true, []]);
    const again = (await cli('plan', file, '--mesh', 'tp=4', '--cluster', 'dgx-h100', '--json'))
      .out;
    const kinds = [...again.matchAll(/"collectives":\[\{"kind":"(\w+)"/g)].map(([, kind]) => kind);
    expect(kinds).toEqual(['all_reduce']);
  });

  it('with --json is the text of the program', async () => {
    const [text, json] = [
      (await cli(...ask, '--emit', 'strict')).out,
      (await cli(...ask, '--emit', 'strict', '--json')).out,
    ];
    expect(JSON.parse(json)).toEqual({ program: text });
  });

  it('is of one plan', async () => {
    const { code, err } = await cli(...ask, '--emit', 'strict', '--frontier');
    expect([code, err]).toEqual([2, expect.stringContaining('--emit')]);
  });
});
