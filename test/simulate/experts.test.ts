import { describe, expect, test } from 'vitest';

import type { ValueType } from '../../src/graph/types.ts';
import { atSizes } from '../../src/ops/record/context.ts';
import { bindText, parseCall } from '../../src/ops/samples/call-text.ts';
import { jointGraph } from '../../src/passes/autodiff/joint.ts';
import { verify } from '../../src/simulate/verify.ts';
import { input, parameter } from '../../src/trace/record/spec.ts';
import { apply, type Tensor } from '../../src/trace/tensor/tensor.ts';
import { trace } from '../../src/trace/trace.ts';
import { planFor, TABLE } from '../plan/support.ts';

/**
 * Experts spread over devices: each holds the matrices of some experts and computes their groups of
 * rows. Which rows there are is data, so the program turns its own groups to the front and leaves
 * the rows of the others zero.
 */
const [ROWS, WIDTH, HIDDEN, EXPERTS] = [12, 16, 24, 6];

type Args = Record<'x' | 'expert' | 'up' | 'down', Tensor>;

function layer({ x, expert, up, down }: Args): Tensor {
  const { values, indices } = expert.sort();
  const counts = apply('aten.histc.default', [values.to('f32'), EXPERTS, 0, EXPERTS - 1]);
  const ends = apply('aten.cumsum.default', [counts, 0], {
    dtype: { kind: 'dtype', dtype: 'i32' },
  });
  const hidden = apply('aten._grouped_mm.default', [x.index(indices), up, ends]).silu();
  return apply('aten._grouped_mm.default', [hidden, down, ends]).square().sum();
}

const inputs = {
  x: input([ROWS, WIDTH]),
  expert: input([ROWS], 'i64'),
  up: parameter([EXPERTS, WIDTH, HIDDEN]),
  down: parameter([EXPERTS, HIDDEN, WIDTH]),
};
const training = jointGraph(trace(layer, inputs), { seed: 1 });

const products = (plan: {
  nodes: readonly { target: string; inputs: readonly string[]; outputs: readonly string[] }[];
}) => plan.nodes.filter((n) => n.target === 'aten._grouped_mm.default');

describe('grouped products with cut experts', () => {
  test.each([
    ['ep=2', 'S(0)', 'R'],
    ['ep=3', 'S(0)', 'R'],
    ['ep=6', 'S(0)', 'R'],
    ['ep=3,tp=2', 'S(0)R', 'RR'],
    ['dp=2,ep=3', 'RS(0)', 'S(0)R'],
  ])('on %s forward and backward are those of one device', async (mesh, weights, rows) => {
    const wanted = training.nodes
      .filter((n) => n.target === 'aten._grouped_mm.default')
      .slice(0, 2);
    const pins = [
      ...['up', 'down'].map((node) => ({ node, spec: weights })),
      ...wanted.map(({ name }) => ({
        node: name,
        spec: weights.replace('S(0)', 'P(sum)').replace('R', rows[0] === 'S' ? 'S(0)' : 'R'),
      })),
    ];
    const plan = await planFor(training, mesh, { pins });
    expect(products(plan)[0].inputs[1]).toBe(weights);
    const verified = verify(training, plan, { table: TABLE });
    expect(verified.mismatches).toEqual([]);
    expect(verified.maxRelativeError).toBeLessThan(1e-9);
  });

  test('the gradient of an expert is made where the expert is, from whole rows', async () => {
    const weightLike = (type: ValueType): boolean =>
      type.kind === 'tensor' && type.shape.length === 3;
    const gradients = training.nodes.filter(
      (n) => n.target === 'aten._grouped_mm.default' && weightLike(n.type),
    );
    expect(gradients).toHaveLength(2);
    const pins = [...['up', 'down'], ...gradients.map((n) => n.name)].map((node) => ({
      node,
      spec: 'S(0)',
    }));
    const plan = await planFor(training, 'ep=3', { pins });
    for (const { name } of gradients)
      expect(plan.nodes.find((n) => n.name === name)?.inputs.slice(0, 2)).toEqual(['R', 'R']);
    expect(verify(training, plan, { table: TABLE }).mismatches).toEqual([]);
  });

  test('a device with a third of the experts has a third of the work', () => {
    const { record, ctx } = bindText(
      TABLE,
      parseCall('_grouped_mm(bf16[12,16], bf16[6,16,24], ends12[6])'),
    );
    const [rows, weights, ends] = ctx.inputs;
    const local = atSizes(ctx, [rows, { ...weights, shape: [2, 16, 24] }, ends], ctx.outputs);
    expect(record.flops(ctx).matrix).toBe(2 * 12 * 16 * 24);
    expect(record.flops(local).matrix).toBe(record.flops(ctx).matrix / 3);
  });
});
