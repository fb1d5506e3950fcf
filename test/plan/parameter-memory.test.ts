/** The objective `parameter-memory`: least bytes of states first, then least seconds. */
import { describe, expect, it } from 'vitest';

import { leastCostPlan } from '../../src/plan/least-cost-plan.ts';
import { withMemoryBound } from '../../src/plan/record/certificate.ts';
import { evaluate } from '../../src/solver/check/verify.ts';
import type { Problem } from '../../src/solver/types.ts';
import { FULL } from '../support/full.ts';
import { load, planFor, request, TABLE } from './support.ts';

/** Two variables of three values; their bytes share one row. */
const problem = (bound: number): Problem => ({
  constant: 0,
  domains: Int32Array.of(3, 3),
  unary: Int32Array.of(0, 1),
  vectors: [Float64Array.of(5, 3, 0), Float64Array.of(4, 2, 1)],
  edges: {
    first: Int32Array.of(0),
    second: Int32Array.of(1),
    table: Int32Array.of(0),
    firstMap: Int32Array.of(-1),
    secondMap: Int32Array.of(-1),
  },
  tables: [{ rows: 3, columns: 3, costs: Float64Array.of(0, 1, 2, 3, 0, 1, 2, 0, 7) }],
  maps: [],
  rows: [
    {
      name: 'memory',
      variables: Int32Array.of(0, 1),
      amounts: [Float64Array.of(2, 4, 8), Float64Array.of(1, 3, 6)],
      bound,
    },
  ],
});

describe('least bytes of parameters, then least seconds', () => {
  it('a bounded memory row leaves the very choices that keep it', () => {
    for (let bytes = 2; bytes <= 14; bytes++) {
      const bounded = withMemoryBound(problem(14), bytes);
      for (let a = 0; a < 3; a++)
        for (let b = 0; b < 3; b++) {
          const choice = Int32Array.of(a, b);
          const taken = [2, 4, 8][a] + [1, 3, 6][b];
          const before = evaluate(problem(14), choice);
          const { cost, violations } = evaluate(bounded, choice);
          expect(violations.length === 0).toBe(taken <= bytes);
          if (taken <= bytes) expect(cost).toEqual(before.cost);
        }
    }
  });

  it('the optimum is that of an independent integer program', async () => {
    const graph = load('torch/mlp-loss/joint.expanded');
    for (const mesh of FULL ? ['a=2', 'a=2,b=2'] : ['a=2']) {
      const asked = { objective: 'parameter-memory', activations: 'report' } as const;
      const plan = await planFor(graph, mesh, asked);
      const other = await planFor(graph, mesh, { ...asked, solver: 'highs' });
      expect(plan.proof.status).toBe('optimal');
      expect(plan.memory.parameterBytes).toBe(other.memory.parameterBytes);
      expect(plan.objective.seconds).toBeCloseTo(other.objective.seconds, 12);
    }
  });

  it.each(['torch/gpt2-2l/joint.expanded', ...(FULL ? ['joint/llama3-8b-2l/joint_inductor'] : [])])(
    '%s on two mesh dims is proven within counted work',
    async (name) => {
      const asked = request('dp=2,tp=4', { objective: 'parameter-memory', cost: 'nccl' });
      const result = await leastCostPlan(load(name), asked, {
        table: TABLE,
        workLimit: 20_000_000,
      });
      expect(result.status === 'planned' && result.plan.proof.status).toBe('optimal');
    },
  );
});
