import { describe, expect, test } from 'vitest';

import { parseGraph } from '../../src/graph/text/parse.ts';
import { printGraph } from '../../src/graph/text/write.ts';
import type { Graph, Node } from '../../src/graph/types.ts';
import { lower } from '../../src/lower/lower.ts';
import { programDifference } from '../../src/lower/program-difference.ts';
import { strictProgram } from '../../src/lower/strict-program.ts';
import { erase } from '../../src/lower/typed/erased.ts';
import { jointGraph } from '../../src/passes/autodiff/joint.ts';
import { leastCostPlan } from '../../src/plan/least-cost-plan.ts';
import type { Plan } from '../../src/plan/record/types.ts';
import { DEFAULT_REQUEST, type PlanRequest } from '../../src/plan/request/request.ts';
import { check } from '../../src/simulate/strip.ts';
import { scan } from '../../src/trace/control/loops.ts';
import { assertType, convert } from '../../src/trace/spmd/verbs.ts';
import { arange, embedding, full } from '../../src/trace/tensor/functional.ts';
import { input, parameter, type Tensor, trace } from '../../src/trace/trace.ts';
import { FULL } from '../support/full.ts';

const mlp = (): Graph =>
  trace(({ x, w1, w2 }) => x.matmul(w1).relu().matmul(w2), {
    x: input([64, 64]),
    w1: parameter([64, 128]),
    w2: parameter([128, 64]),
  });

const block = (): Graph =>
  trace(
    ({ x, wq, wk, wv, wo, g, w1, w2 }) => {
      const heads = (y: typeof x) => y.reshape([4, 16, 4, 8]).transpose(1, 2);
      const n = x.layerNorm([32], g);
      const [q, k, v] = [wq, wk, wv].map((w) => heads(n.matmul(w)));
      const p = q.matmul(k.transpose(2, 3)).mul(0.35).softmax(-1);
      const o = p.matmul(v).transpose(1, 2).reshape([4, 16, 32]).matmul(wo);
      const y = x.add(o);
      return y.add(y.matmul(w1).gelu().matmul(w2)).mean();
    },
    {
      x: input([4, 16, 32]),
      wq: parameter([32, 32]),
      wk: parameter([32, 32]),
      wv: parameter([32, 32]),
      wo: parameter([32, 32]),
      g: parameter([32]),
      w1: parameter([32, 64]),
      w2: parameter([64, 32]),
    },
  );

/** A result that is made in pieces: its operands are whole, and so is the table that it adds. */
const made = (): Graph =>
  trace(
    ({ x, b }) => {
      const rows = b.unsqueeze(0).expand([64, 32]);
      return rows.mul(x).add(full([64, 32], 0.5));
    },
    { x: input([64, 32]), b: parameter([32]) },
  );

const looked = (): Graph =>
  trace(({ table, ids }) => embedding(table, ids), {
    table: parameter([64, 32]),
    ids: input([16], 'i64'),
  });

type Asked = Pick<PlanRequest, 'mesh'> & Partial<PlanRequest>;

const planned = async (graph: Graph, request: Asked): Promise<{ graph: Graph; plan: Plan }> => {
  const result = await leastCostPlan(graph, {
    ...DEFAULT_REQUEST,
    ...request,
    cluster: 'dgx-h100',
  });
  if (result.status !== 'planned') throw new Error(`not planned: ${result.status}`);
  return result;
};

const pins = (specs: Readonly<Record<string, string>>): Pick<PlanRequest, 'pins'> => ({
  pins: Object.entries(specs).map(([node, spec]) => ({ node, spec })),
});

/** Programs, meshes and pins that lead to every kind of redistribution. */
const CASES: readonly (readonly [string, () => Graph, Asked])[] = [
  [
    'columns and rows',
    () => mlp(),
    { mesh: 'tp=4', inputs: 'R', outputs: 'R', ...pins({ w1: 'S(1)', w2: 'S(0)' }) },
  ],
  ['data parallel', () => jointGraph(mlp()), { mesh: 'dp=4', ...pins({ x: 'S(0)', w1: 'R' }) }],
  [
    'fully sharded',
    () => jointGraph(mlp()),
    { mesh: 'dp=4', ...pins({ x: 'S(0)', w1: 'S(0)', w2: 'S(0)' }) },
  ],
  [
    'fully sharded and by columns and rows',
    () => jointGraph(mlp()),
    { mesh: 'dp=2,tp=2', ...pins({ x: 'S(0)R', w1: 'S(0)S(1)', w2: 'S(0)S(0)' }) },
  ],
  [
    'collectives over two mesh dims at once',
    () => jointGraph(mlp()),
    { mesh: 'dp=2,tp=2', ...pins({ x: 'S(0)S(0)', w1: 'RR', w2: 'S(0)S(0)' }) },
  ],
  [
    'results made in pieces',
    made,
    { mesh: 'dp=4', ...pins({ x: 'S(0)', b: 'R', expand: 'S(0)', full: 'S(0)' }) },
  ],
  [
    'a transformer block, forward',
    block,
    { mesh: 'dp=2,tp=2', ...pins({ x: 'S(0)R', wq: 'RS(1)' }) },
  ],
  ...(FULL
    ? [
        [
          'a transformer block with gradients',
          () => jointGraph(block()),
          { mesh: 'dp=2,tp=2', ...pins({ x: 'S(0)R', wq: 'RS(1)', w1: 'S(0)S(1)' }) },
        ] as const,
      ]
    : []),
  [
    'a transformer block, its sequence cut',
    () => jointGraph(block()),
    { mesh: 'tp=4', ...pins({ x: 'S(1)', wq: 'S(1)', w1: 'S(1)' }) },
  ],
];

describe('a plan as a strict program', () => {
  test.each(CASES)(
    '%s: nothing is forbidden, it runs as one device does, and erased it is what was lowered',
    async (_, graph, request) => {
      const result = await planned(graph(), request);
      const typed = parseGraph(printGraph(strictProgram(result.graph, result.plan)));
      const { violations, refusals, runs } = check(typed, { mode: 'strict' });
      expect([...violations, ...refusals].map(({ message }) => message)).toEqual([]);
      for (const { maxRelativeError } of runs) expect(maxRelativeError).toBeLessThan(1e-9);
      const [erased, lowered] = [erase(typed).graph, lower(result.graph, result.plan).graph];
      expect(targets(erased)).toEqual(targets(lowered));
      expect(programDifference(erased, lowered)).toBeUndefined();
    },
  );

  test('one verb stands for a collective over two mesh dims', async () => {
    const result = await planned(jointGraph(mlp()), {
      mesh: 'dp=2,tp=2',
      ...pins({ x: 'S(0)S(0)', w1: 'RR', w2: 'S(0)S(0)' }),
    });
    const verbs = strictProgram(result.graph, result.plan).nodes.filter(
      ({ target }) => target === 'spmd_types.redistribute.default',
    );
    expect(verbs.map(({ args: [, ...rest] }) => rest)).toContainEqual(['dp,tp', 4, 'S(0)', 'R']);
  });

  test('what is made in pieces of whole operands says so: a broadcast, a constant', async () => {
    const result = await planned(made(), {
      mesh: 'dp=4',
      outputs: 'S(0)',
      ...pins({ x: 'S(0)', b: 'R', expand: 'S(0)', full: 'S(0)' }),
    });
    const stated = strictProgram(result.graph, result.plan).nodes.filter(
      ({ target }) => target === 'spmd_types.assert_type.default',
    );
    expect(stated.map(({ name, args: [, types] }) => [name, types])).toMatchInlineSnapshot(`
      [
        [
          "b_typed",
          [
            "dp: I",
          ],
        ],
        [
          "x_typed",
          [
            "dp: S(0)",
          ],
        ],
        [
          "expand_typed",
          [
            "dp: S(0)",
          ],
        ],
        [
          "full_typed",
          [
            "dp: S(0)",
          ],
        ],
      ]
    `);
  });

  test('a rule that masks rows is refused with the node, because no verb says it', async () => {
    const { graph, plan } = await planned(looked(), {
      mesh: 'tp=4',
      ...pins({ table: 'S(0)', embedding: 'P(sum)' }),
    });
    expect(() => strictProgram(graph, plan)).toThrow(
      expect.objectContaining({
        code: 'E_UNSUPPORTED',
        details: expect.objectContaining({ node: 'embedding' }) as unknown,
      }),
    );
  });

  test('a loop is refused', async () => {
    const graph = trace(
      ({ x, w, xs }) => scan((c: Tensor, row: Tensor) => [c.matmul(w).add(row), row], x, xs)[0],
      { x: input([16, 16]), w: parameter([16, 16]), xs: input([4, 16, 16]) },
    );
    const result = await planned(graph, { mesh: 'tp=2' });
    expect(() => strictProgram(result.graph, result.plan)).toThrow(/loops, branches or regions/);
  });
});

describe('a constant whose cut is stated', () => {
  test.each([
    ['by all of its uses', false],
    ['by one of them', true],
  ])('%s is a piece on each device', (_, alsoWhole) => {
    const graph = trace(
      ({ x }) => {
        const half = arange(8).to('f32');
        const own = assertType(x, 'P("tp")').mul(assertType(half, 'P("tp")'));
        return alsoWhole ? own.add(convert(half.sum(), 'tp', { src: 'R', dst: 'R' })) : own;
      },
      { x: input([8]) },
      { mesh: 'tp=4' },
    );
    const { violations, refusals, runs } = check(graph, { mode: 'strict' });
    expect([...violations, ...refusals].map(({ message }) => message)).toEqual([]);
    expect(runs[0].maxRelativeError).toBe(0);
  });
});

describe('a program that is compared with another', () => {
  const twice = (): Graph => trace(({ x }) => x.relu().neg(), { x: input([4]) });

  test.each<[string, (graph: Graph) => Graph, RegExp]>([
    ['a call', (g) => swapped(g, 1, { target: 'aten.neg.default' }), /another call/],
    ['an operand', (g) => swapped(g, 2, { args: [{ kind: 'value', name: 'x' }] }), /other argum/],
    ['a node', (g) => ({ ...g, nodes: g.nodes.slice(0, 2) }), /2 nodes/],
    ['a result', (g) => ({ ...g, outputs: [{ ...g.outputs[0], value: 'relu' }] }), /output 0/],
  ])('%s that is another is found', (_, change, text) => {
    expect(programDifference(change(twice()), twice())?.text).toMatch(text);
    expect(programDifference(twice(), twice())).toBeUndefined();
  });
});

function swapped(graph: Graph, at: number, by: Partial<Node>): Graph {
  return { ...graph, nodes: graph.nodes.map((node, n) => (n === at ? { ...node, ...by } : node)) };
}

const targets = (graph: Graph): string[] =>
  graph.nodes.flatMap(({ kind, target }) => (kind === 'call' ? [target] : []));
