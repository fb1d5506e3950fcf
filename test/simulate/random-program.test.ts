import { describe, expect, test } from 'vitest';
import { kernelOf } from '../../src/ops/kernels/table.ts';
import { hasLocalForm } from '../../src/plan/lower/rewrite.ts';
import { printGraph } from '../../src/graph/text.ts';
import { randomProgram, runRandom, runSolved } from './random/program.ts';
import { TABLE } from './random/builder.ts';

const PROGRAMS = process.env.SHARDWRIGHT_FULL === '1' ? 10_000 : 300;
/** Programs per test, so that a failure names a small range. */
const BATCH = 50;

describe('random programs, random meshes, random feasible placements', () => {
  const batches = Array.from({ length: PROGRAMS / BATCH }, (_, i) => i * BATCH);
  test.each(batches)(
    'sharded equals unsharded, seeds from %i',
    (first) => {
      const faults: string[] = [];
      let compared = 0;
      let communicated = 0;
      for (let seed = first; seed < first + BATCH; seed++) {
        const { fault, mesh, verification } = runRandom(seed);
        if (fault !== undefined) faults.push(`seed ${seed} on (${mesh}): ${fault}`);
        compared += verification?.nodesCompared ?? 0;
        for (const n of Object.values(verification?.collectives ?? {})) communicated += n;
      }
      expect(faults).toEqual([]);
      // Not vacuous: many tensors, and most programs communicate.
      expect(compared).toBeGreaterThan(3 * BATCH);
      expect(communicated).toBeGreaterThan(BATCH);
    },
    120_000,
  );

  test('plans of the solver, too', async () => {
    const faults: string[] = [];
    const count = process.env.SHARDWRIGHT_FULL === '1' ? 500 : 30;
    for (let seed = 50_000; seed < 50_000 + count; seed++) {
      const { fault, mesh } = await runSolved(seed);
      if (fault !== undefined) faults.push(`seed ${seed} on (${mesh}): ${fault}`);
    }
    expect(faults).toEqual([]);
  }, 300_000);

  test('same seed, same program', () => {
    expect(printGraph(randomProgram(11))).toBe(printGraph(randomProgram(11)));
    expect(printGraph(randomProgram(11))).not.toBe(printGraph(randomProgram(12)));
  });

  test('the programs reach most operators, and rules with a local form of their own', () => {
    const targets = new Set<string>();
    for (let seed = 0; seed < 600; seed++) for (const node of randomProgram(seed).nodes) targets.add(node.target);
    const reached = TABLE.records.filter((r) => targets.has(r.name) && kernelOf(r.name) !== undefined);
    expect(reached.length).toBeGreaterThan(130);
    expect(reached.filter((r) => hasLocalForm(r.name)).length).toBeGreaterThan(45);
  });
});
