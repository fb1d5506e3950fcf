import { readdirSync, readFileSync } from 'node:fs';

import { describe, expect, test } from 'vitest';

import { importGraph } from '../../src/import/import.ts';
import { leastCostPlan } from '../../src/plan/least-cost-plan.ts';
import { DEFAULT_REQUEST } from '../../src/plan/request/request.ts';
import { FULL } from '../support/full.ts';
import { TABLE } from './support.ts';

/** The training steps of `python/tests/jax_programs.py`; `write.py` beside them writes both texts. */
const FOLDER = new URL('../fixtures/jax-steps/', import.meta.url);
const STEPS = readdirSync(FOLDER).flatMap((file) =>
  file.endsWith('.mlir.gz') ? [file.slice(0, -'.mlir.gz'.length)] : [],
);
const MESHES = ['dp=1', 'dp=2,tp=2'];
/** Those of every run: random bits on one device, and moved tensors. */
const DAILY = [
  ['dropout', 'dp=1'],
  ['mlp', 'dp=2,tp=2'],
];
const ASKED = FULL ? STEPS.flatMap((step) => MESHES.map((mesh) => [step, mesh])) : DAILY;

/** Seconds of the best plan of a text. */
async function seconds(file: string, mesh: string): Promise<number> {
  const graph = importGraph(readFileSync(new URL(file, FOLDER)));
  const asked = { ...DEFAULT_REQUEST, mesh, cluster: 'dgx-h100', optimizer: 'none' as const };
  const result = await leastCostPlan(graph, asked, { table: TABLE });
  if (result.status !== 'planned') throw new Error(`${file} is not planned`);
  return result.plan.objective.seconds;
}

describe('a step of JAX has one price in both of its texts', () => {
  test('there are twelve steps', () => {
    expect(STEPS.length).toBe(12);
  });

  test.each(ASKED)(
    '%s on %s',
    async (step, mesh) => {
      const stablehlo = await seconds(`${step}.mlir.gz`, mesh);
      const jaxpr = await seconds(`${step}.jaxpr.txt.gz`, mesh);
      expect(Math.abs(stablehlo / jaxpr - 1)).toBeLessThan(0.02);
    },
    120_000,
  );
});
