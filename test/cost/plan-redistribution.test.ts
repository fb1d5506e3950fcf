import { describe, expect, test } from 'vitest';

import { loadCluster, planRedistribution } from '../../src/entries/cost.ts';
import { drawSharding, parseMesh, parseSharding } from '../../src/entries/notations.ts';
import { cli } from '../cli/support.ts';

const mesh = parseMesh('dp=2,tp=2');
const [from, to] = ['S(0)S(0)', 'S(1)S(1)'].map((text) => parseSharding(text, mesh));
const shape = [4096, 4096];

describe('the redistribution planner and the drawings as functions', () => {
  test('plan what the command plans', async () => {
    const cluster = loadCluster('dgx-h100');
    const found = planRedistribution({ shape, dtype: 'bf16', mesh, cluster, from, to });
    const args = 'redistribute S(0)S(0) S(1)S(1) --mesh dp=2,tp=2 --shape 4096,4096 --dtype bf16';
    const { out } = await cli(...args.split(' '), '--json');
    const told = JSON.parse(out) as typeof found & { readonly plan: string };
    expect(found.text).toBe(told.plan);
    expect(found.seconds).toBe(told.seconds);
    expect(found.peakBytes).toBe(told.peakBytes);
    expect(found.steps.map(({ kind }) => kind)).toEqual(told.steps.map(({ kind }) => kind));
  });

  test('draw what the command draws', async () => {
    const { out } = await cli(
      ...'draw --shape 4,4 --mesh dp=2,tp=2 --placement S(0)S(1)'.split(' '),
    );
    const drawn = drawSharding(parseSharding('S(0)S(1)', mesh), mesh, [4, 4]);
    expect(`${drawn.text}\n`).toBe(out);
    expect(drawn.svg).toContain('S(0)S(1) on dp=2,tp=2, shape (4, 4)');
  });
});
