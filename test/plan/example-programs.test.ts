import { describe, expect, it } from 'vitest';

import * as earlyExit from '../../examples/early-exit-cond.ts';
import * as rnn from '../../examples/rnn-scan.ts';
import * as transformer from '../../examples/transformer.ts';
import { evaluateEinshardProgram } from '../../src/notations/einshard-program/program.ts';
import { readEinshardProgram } from '../../src/notations/einshard-program/steps.ts';
import { jointGraph } from '../../src/passes/autodiff/joint.ts';
import { unrollScan } from '../../src/passes/control/loops/unroll-scan.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import type { Plan } from '../../src/plan/record/types.ts';
import { einshardParameters } from '../../src/report/text/einshard-plan.ts';
import { input, trace } from '../../src/trace/trace.ts';
import { placed, planFor, request, TABLE } from './support.ts';

/** What the head of each example claims. `test/examples.test.ts` holds what they print. */

const collectivesOf = (plan: Plan): { kind: string; bytes: number }[] =>
  [...plan.nodes, ...plan.outputs].flatMap((n) =>
    n.redistributions.flatMap((r) => [...r.collectives]),
  );

describe('transformer.ts under 1-D tensor parallelism', async () => {
  const graph = trace(transformer.model, transformer.inputs, { name: 'transformer' });
  const pins = ['table', 'attention.norm', 'mlp.norm'].map((node) => ({ node, spec: 'R' }));
  const plan = await planFor(graph, 'd=8', {
    inputs: 'R',
    outputs: 'R',
    pins,
    objective: 'parameter-memory',
  });
  const expressions = new Map(
    einshardParameters(plan, {
      'attention.wq': 'dhk',
      'attention.wo': 'hkd',
      'mlp.w1': 'df',
      'mlp.w2': 'fd',
    }).map(({ name, expression }) => [name, expression]),
  );

  it("is the einshard tutorial's recipe: q, k, v by head, MLP column then row, embedding and norms whole", () => {
    expect(plan.proof.status).toBe('optimal');
    expect(Object.fromEntries(plan.parameters.map((p) => [p.name, p.placement]))).toEqual({
      table: 'R',
      'attention.norm': 'R',
      'attention.wq': 'S(1)', // [width, heads, head width]
      'attention.wk': 'S(1)',
      'attention.wv': 'S(1)',
      'attention.wo': 'S(0)', // [heads, head width, width]
      'mlp.norm': 'R',
      'mlp.w1': 'S(1)',
      'mlp.w2': 'S(0)',
    });
    expect(expressions.get('attention.wq')).toBe('d h k -> h8 d k');
    expect(expressions.get('mlp.w1')).toBe('d f -> f8 d');
    expect(expressions.get('mlp.w2')).toBe('f d -> f8 d');
    expect(expressions.get('table')).toBe('a b -> 8 a b');
  });

  it('asks for one all-reduce a pair of products, as the expressions do when einshard propagates them', () => {
    const hidden = { kind: 'all_reduce', bytes: 4 * 128 * 256 * 4 };
    expect(collectivesOf(plan).map(({ kind, bytes }) => ({ kind, bytes }))).toEqual([
      hidden,
      hidden,
    ]);
    const weight = (name: string, shape: number[]) => ({
      name,
      shape,
      expression: expressions.get(name),
    });
    const x = { name: 'X', shape: [4, 128, 256], expression: 'b s d -> 8 b s d' };
    const query = 'd h k -> h8 d k';
    const attention = evaluateEinshardProgram(
      readEinshardProgram(
        JSON.stringify({
          devices: 8,
          tensors: [
            x,
            weight('attention.wq', [256, 8, 32]),
            { name: 'wk', shape: [256, 8, 32], expression: query },
            { name: 'wv', shape: [256, 8, 32], expression: query },
            weight('attention.wo', [8, 32, 256]),
          ],
          steps: [
            'Q = bsd,dhk->bhsk (X, attention.wq)',
            'K = btd,dhk->bhtk (X, wk)',
            'V = btd,dhk->bhtk (X, wv)',
            'A = bhsk,bhtk->bhst (Q, K)',
            'E = exp (A)',
            'M = bhst,bhtk->bhsk (E, V)',
            'O = bhsk,hkd->bsd (M, attention.wo)',
          ],
        }),
      ),
    );
    const mlp = evaluateEinshardProgram(
      readEinshardProgram(
        JSON.stringify({
          devices: 8,
          tensors: [x, weight('mlp.w1', [256, 1024]), weight('mlp.w2', [1024, 256])],
          steps: ['H = bsd,df->bsf (X, mlp.w1)', 'G = gelu (H)', 'Y = bsf,fd->bsd (G, mlp.w2)'],
        }),
      ),
    );
    for (const { collectives } of [attention, mlp])
      expect(collectives.map(({ kind, shape }) => ({ kind, shape }))).toEqual([
        { kind: 'all_reduce', shape: [4, 128, 256] },
      ]);
  });
});

describe('rnn-scan.ts', () => {
  const step = (trips: number) =>
    jointGraph(trace(rnn.model, { ...rnn.inputs, xs: input([trips, 64, 2048]) }), { seed: 1 });

  it('a training step gets the layout of its unrolled twin', async () => {
    const graph = trace(rnn.model, { ...rnn.inputs, xs: input([4, 64, 2048]) });
    const loop = await planFor(jointGraph(graph, { seed: 1 }), 'd=8');
    const twin = await planFor(jointGraph(unrollScan(graph), { seed: 1 }), 'd=8');
    expect([loop.proof.status, twin.proof.status]).toEqual(['optimal', 'optimal']);
    for (const name of ['wx', 'wh']) expect(placed(loop, name)).toBe(placed(twin, name));
    expect(placed(loop, 'wx')).not.toBe('R');
    // The products of the forward body are placed as those of every step of the twin.
    const products = (plan: Plan, phase: RegExp) =>
      plan.nodes
        .filter((n) => n.target === 'aten.mm.default' && phase.test(n.name))
        .map((n) => n.outputs[0]);
    expect(products(loop, /^scan\./)).toEqual(['S(1)', 'S(1)']);
    expect(new Set(products(twin, /^mm(_[1-3])?$/))).toEqual(new Set(['S(1)']));
  });

  it('the problem is the same whatever the number of trips; that of the twin grows', () => {
    const size = (graph: Parameters<typeof prepare>[0]): number[] => {
      const {
        left: { problem },
      } = prepare(graph, request('d=8'), TABLE);
      return [problem.domains.length, problem.edges.first.length];
    };
    expect(size(step(4000))).toEqual(size(step(4)));
    const twin = (trips: number) =>
      jointGraph(unrollScan(trace(rnn.model, { ...rnn.inputs, xs: input([trips, 64, 2048]) })), {
        seed: 1,
      });
    expect(size(twin(8))[0]).toBeGreaterThan(1.7 * size(twin(4))[0]);
  });
});

describe('early-exit-cond.ts', () => {
  it('both branches end in one placement and the predicate is whole', async () => {
    const plan = await planFor(trace(earlyExit.model, earlyExit.inputs), 'd=8', {
      objective: 'parameter-memory',
    });
    const meet = plan.nodes.find((n) => n.name === 'cond.out.0');
    expect(meet?.inputs[0]).toBe('R');
    expect(new Set([...(meet?.inputs.slice(1) ?? []), ...(meet?.outputs ?? [])]).size).toBe(1);
    const { nodes } = plan;
    // The expensive branch counts whole, the cheap one has nothing to compute.
    expect(nodes.filter((n) => n.name.startsWith('cond.1.')).map((n) => n.target)).toContain(
      'aten.mm.default',
    );
  });
});
