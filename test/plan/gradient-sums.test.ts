import { describe, expect, test } from 'vitest';

import { parseGraph } from '../../src/graph/text/parse.ts';
import { jointGraph } from '../../src/passes/autodiff/joint.ts';
import { gradientsIn } from '../../src/passes/training/gradient-dtype.ts';
import { leastCostPlanOf } from '../../src/plan/least-cost-plan.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import type { Plan } from '../../src/plan/record/types.ts';
import { verify } from '../../src/simulate/verify.ts';
import { request, TABLE } from './support.ts';

/**
 * `--gradients`: gradients are cast where they are made, so that what data ranks sum has the bytes
 * of that dtype.
 */

const N = 256;
const ROWS = 64;
const layer = (dtype: string): string => `swgraph 1
graph @main {
  in %w: ${dtype}[${N}, ${N}] parameter "w"
  in %x: ${dtype}[${ROWS}, ${N}] input "x"
  %wt = aten.t.default(%w): ${dtype}[${N}, ${N}]
  %y = aten.mm.default(%x, %wt): ${dtype}[${ROWS}, ${N}]
  %loss = aten.mean.default(%y): ${dtype}[]
  out %loss output 0
}
`;
const joint = (dtype: string): ReturnType<typeof jointGraph> =>
  jointGraph(parseGraph(layer(dtype)), { table: TABLE, seed: 1 });

async function planned(dtype: string, gradients?: 'fp32' | 'bf16'): Promise<Plan> {
  const pins = [
    { node: 'x', spec: 'S(0)' },
    { node: 'w', spec: 'R' },
  ];
  const graph = joint(dtype);
  const sum = graph.nodes.find(
    (n) => n.target === 'aten.mm.default' && n.meta.phase === 'backward',
  );
  if (sum !== undefined) pins.push({ node: sum.name, spec: 'P(sum)' });
  const prepared = prepare(
    graph,
    request('d=4', { pins, ...(gradients === undefined ? {} : { gradients }) }),
    TABLE,
  );
  const result = await leastCostPlanOf(prepared);
  if (result.status !== 'planned') throw new Error(result.status);
  expect(verify(prepared.question.program, result.plan, { table: TABLE }).mismatches).toEqual([]);
  return result.plan;
}

/** Bytes of the collectives that sum the gradient. */
function summedBytes({ nodes, outputs }: Plan): number[] {
  const moves = [...nodes, ...outputs].flatMap((n) =>
    n.redistributions.flatMap((r) => r.collectives),
  );
  return moves.filter((c) => /reduce/.test(c.kind) && c.bytes >= N * N).map((c) => c.bytes);
}

describe('the dtype of sums of gradients', () => {
  test.each([
    ['bf16', undefined, 2],
    ['bf16', 'bf16', 2],
    ['bf16', 'fp32', 4],
    ['f32', undefined, 4],
    // Narrower sums are not priced: gradients of float32 stay as they are, and the plan says so.
    ['f32', 'bf16', 4],
  ] as const)(
    'parameters in %s, gradients in %s: %i bytes an element',
    async (dtype, gradients, bytes) => {
      expect(summedBytes(await planned(dtype, gradients))).toEqual([bytes * N * N]);
    },
  );

  test('is priced: twice the bytes take longer, and a cast is a kernel', async () => {
    const [half, full] = [await planned('bf16'), await planned('bf16', 'fp32')];
    expect(full.objective.communicationSeconds).toBeGreaterThan(
      half.objective.communicationSeconds,
    );
    expect(full.objective.computeSeconds).toBeGreaterThan(half.objective.computeSeconds);
    expect(full.outputs.find((o) => o.role === 'grad')?.placement).toBe('R');
    expect(full.memory.gradientBytes).toBe(4 * N * N);
  });

  test('is cast once, whoever asks again', () => {
    const once = gradientsIn(joint('bf16'), 'f32', TABLE);
    expect(gradientsIn(once, 'f32', TABLE)).toBe(once);
    expect(gradientsIn(joint('f32'), 'f32', TABLE).nodes).toHaveLength(joint('f32').nodes.length);
  });
});
