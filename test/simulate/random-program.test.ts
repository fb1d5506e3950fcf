import { describe, expect, test } from 'vitest';

import { CONTROL_TARGETS } from '../../src/graph/control.ts';
import { printGraph } from '../../src/graph/text/write.ts';
import { LOCAL_FORMS } from '../../src/lower/rewrites/table.ts';
import { kernelOf } from '../../src/ops/kernels/table.ts';
import { FULL } from '../support/full.ts';
import { TABLE } from './random/builder.ts';
import { type Kind, randomProgram, runRandom, runSolved } from './random/program.ts';

const PROGRAMS = FULL ? 10_000 : 25;
/** Programs per test, so that a failure names a small range. */
const BATCH = FULL ? 50 : 25;

/** Loops and branches run their bodies several times: fewer programs take as long. */
const LOOPED = FULL ? 10_020 : 6;
const LOOPED_BATCH = FULL ? 30 : 6;

describe('random programs with loops, branches and backward passes', () => {
  const first = (kind: Kind, count: number): [Kind, number][] =>
    Array.from({ length: count / LOOPED_BATCH }, (_, i): [Kind, number] => [
      kind,
      i * LOOPED_BATCH,
    ]);
  test.each([...first('control', LOOPED), ...first('joint', LOOPED)])(
    '%s: sharded equals unsharded, seeds from %i',
    (kind, from) => {
      const faults: string[] = [];
      let compared = 0;
      let communicated = 0;
      for (let seed = from; seed < from + LOOPED_BATCH; seed++) {
        const { fault, mesh, verification } = runRandom(seed, kind);
        if (fault !== undefined) faults.push(`seed ${seed} on (${mesh}): ${fault}`);
        compared += verification?.nodesCompared ?? 0;
        for (const n of Object.values(verification?.collectives ?? {})) communicated += n;
      }
      expect(faults).toEqual([]);
      expect(compared).toBeGreaterThan(10 * LOOPED_BATCH);
      expect(communicated).toBeGreaterThan(LOOPED_BATCH);
    },
    120_000,
  );

  test.each(['control', 'joint'] as const)(
    '%s: plans of the solver, too',
    async (kind) => {
      const faults: string[] = [];
      const count = FULL ? 500 : 2;
      for (let seed = 50_000; seed < 50_000 + count; seed++) {
        const { fault, mesh } = await runSolved(seed, kind);
        if (fault !== undefined) faults.push(`seed ${seed} on (${mesh}): ${fault}`);
      }
      expect(faults).toEqual([]);
    },
    600_000,
  );

  test('they have all kinds of bodies, bodies in bodies, and gradients through them', () => {
    const counts: Record<string, number> = {};
    const count = (key: string): void => void (counts[key] = (counts[key] ?? 0) + 1);
    for (let seed = 0; seed < 40; seed++)
      for (const kind of ['control', 'joint'] as const) {
        const graph = randomProgram(seed, kind);
        for (const node of graph.nodes)
          if (CONTROL_TARGETS.includes(node.target)) count(node.target);
        if (Object.values(graph.subgraphs).some((body) => Object.keys(body.subgraphs).length > 0))
          count('nested');
        if (graph.outputs.some((o) => o.role === 'grad' && o.value !== null)) {
          count('gradients');
          if (graph.nodes.some((n) => CONTROL_TARGETS.includes(n.target)))
            count('gradients around bodies');
        }
      }
    for (const kind of [
      'cond',
      'case',
      'scan',
      'map',
      'while_loop',
      'nested',
      'gradients',
      'gradients around bodies',
    ])
      expect(counts[kind], kind).toBeGreaterThan(2);
  });
});

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
    const count = FULL ? 500 : 4;
    for (let seed = 50_000; seed < 50_000 + count; seed++) {
      const { fault, mesh } = await runSolved(seed);
      if (fault !== undefined) faults.push(`seed ${seed} on (${mesh}): ${fault}`);
    }
    expect(faults).toEqual([]);
  }, 300_000);

  test('equal seeds draw equal programs', () => {
    expect(printGraph(randomProgram(11))).toBe(printGraph(randomProgram(11)));
    expect(printGraph(randomProgram(11))).not.toBe(printGraph(randomProgram(12)));
  });

  test('the programs reach most operators, and rules with a local form of their own', () => {
    const targets = new Set<string>();
    for (let seed = 0; seed < 600; seed++)
      for (const node of randomProgram(seed).nodes) targets.add(node.target);
    const reached = TABLE.records.filter(
      (r) => targets.has(r.name) && kernelOf(r.name) !== undefined,
    );
    expect(reached.length).toBeGreaterThan(130);
    expect(reached.filter((r) => LOCAL_FORMS.has(r.name)).length).toBeGreaterThan(45);
  });
});
