import { readFileSync } from 'node:fs';

import { describe, expect, test } from 'vitest';

import {
  families,
  FAMILIES_PAGE,
  familiesPage,
  familyGraph,
  preparedFamily,
  resultOf,
  results,
} from '../../scripts/families.ts';
import { flat, NDArray } from '../../src/ndarray/array.ts';
import { builtinOperators } from '../../src/ops/builtin.ts';
import { leastCostPlanOf } from '../../src/plan/least-cost-plan.ts';
import { evaluateGraph, type Value } from '../../src/simulate/evaluate.ts';
import { drawInputs } from '../../src/simulate/inputs.ts';
import { FULL } from '../support/full.ts';

/** Captured graphs of public models are planned again, without Python. */

test('docs/families.md is current (otherwise: npx tsx scripts/families.ts)', async () => {
  expect(readFileSync(FAMILIES_PAGE, 'utf8')).toBe(await familiesPage());
});

describe('captured families', () => {
  // Complex rotary embeddings, sums over windows of images, masks filled by values, weight norms,
  // experts.
  test.each(['llama4', 'hubert', ...(FULL ? ['swin', 'deepseek-v3'] : [])])(
    '%s is planned to the recorded optimum',
    async (name) => {
      const prepared = preparedFamily(families()[name]);
      const solved = await leastCostPlanOf(prepared, {});
      if (solved.status === 'infeasible') throw new Error('no plan fits');
      const recorded = results()[name];
      expect(prepared.question.program.nodes.length).toBe(recorded.nodes);
      expect(solved.plan.proof.status).toBe('optimal');
      expect(solved.plan.objective.seconds).toBeCloseTo(recorded.seconds ?? NaN, 9);
    },
  );

  // Windows of jaxpr and one view taken twice, complex numbers in StableHLO and in ATen, a constant
  // that is not an input.
  test.runIf(FULL).each(['flax-fnet', 'flax-cnn-jaxpr', 'falcon', 'llama4'])(
    '%s is verified',
    async (name) => {
      const { compared, verifyRefused } = await resultOf(families()[name], false, () => undefined);
      expect(verifyRefused).toBeUndefined();
      expect(compared).toBe(results()[name].compared);
    },
  );
});

function numbers(value: Value): Float64Array {
  if (!(value instanceof NDArray)) throw new Error('no tensor');
  return flat(value);
}

// JAX wrote both texts of one program: they give the same numbers, up to the digits of printed
// float32 constants.
test.each([...(FULL ? [['flax-cnn', 'flax-cnn-jaxpr']] : []), ['flax-fnet', 'flax-fnet-jaxpr']])(
  '%s computes what %s does',
  (stablehlo, jaxpr) => {
    const table = builtinOperators();
    const [a, b] = [stablehlo, jaxpr].map((name) => familyGraph(families()[name]));
    const inputs = drawInputs(table, a, 1);
    const [x, y] = [
      evaluateGraph(table, a, inputs).outputs,
      evaluateGraph(table, b, inputs).outputs,
    ];
    expect(y.length).toBe(x.length);
    x.forEach((value, i) => {
      const [left, right] = [numbers(value), numbers(y[i])];
      const scale = Math.max(...left.map(Math.abs));
      expect(scale).toBeGreaterThan(0);
      left.forEach((v, k) => expect(Math.abs(v - right[k])).toBeLessThanOrEqual(1e-7 * scale));
    });
  },
);
