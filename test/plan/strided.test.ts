import { describe, expect, it } from 'vitest';

import { parseMesh } from '../../src/mesh/devices/mesh.ts';
import { StridedShard } from '../../src/mesh/placements/shards/strided.ts';
import { ShardingSpace } from '../../src/mesh/sharding/space.ts';
import { expandRules } from '../../src/ops/expansion/expand.ts';
import { fewFactors, MOST_FACTORS, patternsOf } from '../../src/ops/expansion/patterns.ts';
import { bindText, parseCall } from '../../src/ops/samples/call-text.ts';
import { jointGraph } from '../../src/passes/autodiff/joint.ts';
import { randomPlan } from '../../src/plan/choice/random-plan.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import { verify } from '../../src/simulate/verify.ts';
import { input, parameter } from '../../src/trace/record/spec.ts';
import type { Tensor } from '../../src/trace/tensor/tensor.ts';
import { trace } from '../../src/trace/trace.ts';
import { FULL } from '../support/full.ts';
import { load, planFor, request, solveFor, TABLE } from './support.ts';

/** Cuts in strides of what views merge: batch and sequence become rows before a product. */
const [BATCH, SEQUENCE, WIDTH] = [4, 8, 16];

type Args = Record<'x' | 'up' | 'down', Tensor>;

/** `[batch, sequence, width]`, worked on as rows. */
function rowwise({ x, up, down }: Args): Tensor {
  const hidden = x
    .view([BATCH * SEQUENCE, WIDTH])
    .matmul(up)
    .gelu();
  return hidden.matmul(down).view([BATCH, SEQUENCE, WIDTH]);
}
const inputs = {
  x: input([BATCH, SEQUENCE, WIDTH]),
  up: parameter([WIDTH, 32]),
  down: parameter([32, WIDTH]),
};
const forward = trace(rowwise, inputs);
const training = jointGraph(
  trace((args: Args) => rowwise(args).square().sum(), inputs),
  { seed: 1 },
);

/** Weights whole, and the input cut along its sequence: what context parallelism stores. */
const pins = (x: string, whole: string) => [
  { node: 'x', spec: x },
  ...['up', 'down'].map((node) => ({ node, spec: whole })),
];

describe('a sequence cut goes on through products of rows', () => {
  it.each([
    ['cp=4', 'S(1)', 'R', '_S(0, 4)'],
    ['dp=2,cp=4', 'S(0)S(1)', 'RR', 'S(0)_S(0, 2)'],
    // One sequence a device: its pieces are one run of rows.
    ['dp=4,cp=2', 'S(0)S(1)', 'RR', 'S(0)S(0)'],
    ['cp=2,ring=2', 'S(1)S(1)', 'RR', '_S(0, 4)_S(0, 4)'],
  ])('on %s, %s, without communication', async (mesh, x, whole, rows) => {
    const plan = await planFor(forward, mesh, { pins: pins(x, whole), outputs: x });
    const products = plan.nodes.filter((n) => n.target === 'aten.mm.default');
    expect(products.map((n) => [n.inputs, n.outputs])).toEqual(
      Array(2).fill([[rows, whole], [rows]]),
    );
    expect(plan.objective.communicationSeconds).toBe(0);
    expect(plan.proof.status).toBe('optimal');
    const verified = verify(forward, plan, { table: TABLE });
    expect(verified.mismatches).toEqual([]);
    expect(verified.collectives).toEqual({});
  });

  it('without strides the rows are gathered, which is more expensive', async () => {
    const asked = { pins: pins('S(1)', 'R'), outputs: 'S(1)' };
    const [with_, without] = await Promise.all([
      planFor(forward, 'cp=4', asked),
      planFor(forward, 'cp=4', { ...asked, strided: 'off' }),
    ]);
    expect(
      without.nodes.some((n) => [...n.inputs, ...n.outputs].some((s) => s.includes('_S('))),
    ).toBe(false);
    expect(without.objective.communicationSeconds).toBeGreaterThan(0);
    expect(without.objective.seconds).toBeGreaterThan(with_.objective.seconds);
  });

  it('in training the weights are summed over the pieces of the sequence', async () => {
    const rows = ['mm', 'gelu', 'mm_1'].map((node) => ({ node, spec: 'S(0)_S(0, 2)' }));
    const plan = await planFor(training, 'dp=2,cp=4', {
      pins: [...pins('S(0)S(1)', 'RR'), ...rows],
    });
    const gradients = plan.nodes.filter(
      (n) => n.target === 'aten.mm.default' && n.inputs.join() === 'S(1)_S(1, 2),S(0)_S(0, 2)',
    );
    expect(gradients.map((n) => n.outputs)).toEqual([['P(sum)P(sum)'], ['P(sum)P(sum)']]);
    const verified = verify(training, plan, { table: TABLE });
    expect(verified.mismatches).toEqual([]);
    // Two weights and the loss.
    expect(verified.collectives['all_reduce']).toBe(3);
  });

  it('outer mesh dims cut the first part, unless all orders are asked for', async () => {
    const asked = { pins: pins('S(1)S(0)', 'RR'), outputs: 'S(1)S(0)' };
    const inside = await planFor(forward, 'cp=2,dp=2', asked);
    expect(inside.objective.communicationSeconds).toBeGreaterThan(0);
    const all = await planFor(forward, 'cp=2,dp=2', { ...asked, strided: 'all' });
    expect(all.objective.communicationSeconds).toBe(0);
    expect(verify(forward, all, { table: TABLE }).mismatches).toEqual([]);
  });

  it('meshes of more than three dims leave strides out and say so, unless they are asked for', async () => {
    // No product: of so many mesh dims each has hundreds of placements.
    const rows = ({ x }: Record<'x', Tensor>): Tensor =>
      x
        .view([BATCH * SEQUENCE, WIDTH])
        .gelu()
        .view([BATCH, SEQUENCE, WIDTH]);
    const graph = trace(rows, { x: inputs.x });
    const asked = { pins: [{ node: 'x', spec: 'S(0)S(1)RR' }], outputs: 'S(0)S(1)RR' };
    const plan = await planFor(graph, 'dp=2,cp=2,a=2,b=2', asked);
    expect(plan.assumptions.join()).toMatch(/merge are cut in one piece .* --strided rows/);
    expect(plan.objective.communicationSeconds).toBeGreaterThan(0);
    const strided = await planFor(graph, 'dp=2,cp=2,a=2,b=2', { ...asked, strided: 'rows' });
    expect(strided.assumptions.join()).not.toMatch(/--strided rows/);
    expect(strided.objective.communicationSeconds).toBe(0);
  });

  it('heads merged with what is in a head are cut in strides when all is asked for', async () => {
    const graph = trace(({ x }: Record<'x', Tensor>) => x.view([2, 8, 16]).gelu(), {
      x: input([2, 8, 4, 4]),
    });
    const asked = { inputs: 'S(3)', outputs: 'free', pins: [{ node: 'gelu', spec: '_S(2, 4)' }] };
    const plan = await planFor(graph, 'tp=2', { ...asked, strided: 'all' });
    expect(plan.nodes.flatMap((n) => n.redistributions)).toEqual([]);
    expect(verify(graph, plan, { table: TABLE }).mismatches).toEqual([]);
    await expect(solveFor(graph, 'tp=2', asked)).rejects.toThrow(/--cut offers/);
  });
});

describe('random plans of a model that flattens batch and sequence compute what one device does', () => {
  const llama = load('torch/llama-tiny/joint.expanded');
  it.each(['a=2', 'a=2,b=2', 'a=3,b=2', 'a=2,b=2,c=2'])('%s', (mesh) => {
    let strided = 0;
    // A whole model on three mesh dims takes seconds to be made a problem.
    const models = mesh !== 'a=2,b=2,c=2' || FULL ? [llama] : [];
    const asked = request(mesh, { strided: 'all' });
    const ready = new Map(
      [training, ...models].map((graph) => [graph, prepare(graph, asked, TABLE)]),
    );
    for (const [seed, graph] of [training, training, training, ...models].entries()) {
      const plan = randomPlan(ready.get(graph)!, seed);
      strided += plan.nodes.filter((n) =>
        [...n.inputs, ...n.outputs].some((s) => s.includes('_S(')),
      ).length;
      if (graph !== llama)
        expect(verify(graph, plan, { table: TABLE, seed }).mismatches).toEqual([]);
    }
    expect(strided).toBeGreaterThan(0);
  });
});

describe('patterns', () => {
  const space = new ShardingSpace(parseMesh('a=2,b=2'));
  const { record, ctx } = bindText(TABLE, parseCall('view(f32[4,8,3], [32,3])'));
  const set = expandRules(space, record.shard(ctx), ctx.inputs, ctx.outputs, { uneven: 'allow' });

  it('are those that the view makes, each once', () => {
    const left = Array.from({ length: set.count }, (_, s) => set.specs[2 * s + 1]);
    const found = patternsOf(left, space).map((p) => `${p.dim}: ${p.text}`);
    expect(found.sort()).toEqual([
      '0: -,_S(0, 4)',
      '0: S(0),_S(0, 2)',
      '0: _S(0, 4),-',
      '0: _S(0, 4),S(0)',
      '0: _S(0, 4),_S(0, 4)',
    ]);
  });

  it('a space without numbers left takes no further kinds, and says so', () => {
    const full = new ShardingSpace(parseMesh('a=2'));
    const codes = Array.from({ length: 200 }, (_, k) => full.codeIfAny(new StridedShard(0, k + 2)));
    expect(codes.indexOf(-1)).toBe(160);
    expect(full.hasRefused).toBe(true);
    expect(full.codeIfAny(new StridedShard(0, 2))).toBe(codes[0]);
    expect(space.hasRefused).toBe(false);
  });

  it('of many factors the least are kept', () => {
    const many = Array.from({ length: 12 }, (_, k) => {
      const [pattern] = patternsOf([space.parse(`R_S(0, ${k + 3})`)], space);
      return pattern;
    });
    const factors = fewFactors(many).flatMap((p) => p.strides.map((s) => s.factor));
    expect(factors).toEqual(Array.from({ length: MOST_FACTORS }, (_, k) => k + 3));
  });
});
