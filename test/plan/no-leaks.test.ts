import { expect, test, vi } from 'vitest';

import type { Plan } from '../../src/plan/record/types.ts';
import { FULL } from '../support/full.ts';

/**
 * One share of an eighth of the states: weights are cut and gathered, so that collectives and
 * copies are in the objective.
 */
const MEMORY_BYTES = (2 * 1024 * 4096 * 16) / 8;
const CASES = [
  ['x=8', 'nccl'],
  ['x=32,y=8', 'autoparallel'],
  ...(FULL
    ? ([
        ['x=2,y=4', 'dtensor'],
        ['x=8', 'alpha-beta'],
        ['x=32,y=8', 'nccl'],
        ['x=8', 'dtensor'],
        ['x=8', 'autoparallel'],
      ] as const)
    : []),
] as const;

type Ask = (mesh: string, cost: string) => Promise<string>;

/** Everything of a plan but the clock. */
function told({ proof, ...rest }: Plan): string {
  return JSON.stringify({ ...rest, proof: { ...proof, solveSeconds: null } });
}

/** A planner whose modules, and so their caches, nobody else has. */
async function fresh(): Promise<Ask> {
  vi.resetModules();
  const { load, planFor } = await import('./support.ts');
  const graph = load('peers/ffn-65536');
  return async (mesh, cost) =>
    told(await planFor(graph, mesh, { cost, memoryBytes: MEMORY_BYTES, activations: 'report' }));
}

test('plans of other meshes and presets before in the same process change no byte of a plan', async () => {
  const alone: string[] = [];
  for (const [mesh, cost] of CASES) alone.push(await (await fresh())(mesh, cost));
  expect(new Set(alone).size).toBe(CASES.length);
  const together = await fresh();
  for (const order of [[...CASES.keys()], [...CASES.keys()].reverse()])
    for (const i of order) {
      const [mesh, cost] = CASES[i];
      expect(await together(mesh, cost), `${mesh} ${cost}`).toBe(alone[i]);
    }
});
