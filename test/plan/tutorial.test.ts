import { describe, expect, it } from 'vitest';

import { input, parameter, trace } from '../../src/trace/trace.ts';
import { placed, planFor } from './support.ts';

describe('the MLP of the einshard tutorial', () => {
  const graph = trace(({ x, w1, w2 }) => x.matmul(w1).relu().matmul(w2), {
    x: input([8, 128]),
    w1: parameter([128, 256]),
    w2: parameter([256, 64]),
  });

  it('inputs and outputs whole, least weight memory, 8 devices: W1 S(1), W2 S(0), one all-reduce of f32[8,64]', async () => {
    const plan = await planFor(graph, 'd=8', {
      inputs: 'R',
      outputs: 'R',
      objective: 'parameter-memory',
    });
    expect(placed(plan, 'w1')).toBe('S(1)');
    expect(placed(plan, 'w2')).toBe('S(0)');
    const collectives = [...plan.nodes, ...plan.outputs].flatMap((n) =>
      n.redistributions.flatMap((r) => r.collectives),
    );
    expect(collectives).toHaveLength(1);
    expect(collectives[0]).toMatchObject({
      kind: 'all_reduce',
      meshDims: ['d'],
      bytes: 8 * 64 * 4,
    });
    expect(plan.proof.status).toBe('optimal');
  });
});
