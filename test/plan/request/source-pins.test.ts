import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';

import type { Graph } from '../../../src/graph/types.ts';
import { importGraph } from '../../../src/import/import.ts';
import { parseMesh } from '../../../src/mesh/devices/mesh.ts';
import { inferCall } from '../../../src/ops/record/infer.ts';
import { plannable } from '../../../src/passes/plannable/plannable.ts';
import type { Plan } from '../../../src/plan/record/types.ts';
import { verify } from '../../../src/simulate/verify.ts';
import { scan } from '../../../src/trace/control/loops.ts';
import { input, parameter } from '../../../src/trace/record/spec.ts';
import { withSharding } from '../../../src/trace/tensor/state.ts';
import type { Tensor } from '../../../src/trace/tensor/tensor.ts';
import { trace } from '../../../src/trace/trace.ts';
import { FULL } from '../../support/full.ts';
import { planFor, solveFor, TABLE } from '../support.ts';

/** Shardings that the program states are pins of its plan; what cannot be one is said. */

const MESH = 'dp=2,tp=4';
const placed = (plan: Plan, node: string): string | undefined =>
  plan.nodes.find((n) => n.name === node)?.outputs[0];
const mlp = (sharding: string): Graph =>
  trace(
    ({ x, w, v }: Record<'x' | 'w' | 'v', Tensor>) =>
      withSharding(x.matmul(w), sharding).relu().matmul(v),
    { x: input([8, 16]), w: parameter([16, 32]), v: parameter([32, 16]) },
    { mesh: MESH },
  );
const jax = (file: string): Graph =>
  importGraph(
    readFileSync(fileURLToPath(new URL(`../../fixtures/jax/${file}.gz`, import.meta.url))),
    {
      infer: (call, typeOf) => inferCall(TABLE, call, typeOf),
    },
  );

describe('withSharding', () => {
  test.each([
    ['placements', 'RS(1)', 'RS(1)'],
    ['einshard', 'a b -> 2 b4 a', 'RS(1)'],
    ['a PartitionSpec', 'P(None, "tp")', 'RS(1)'],
    ['a PartitionSpec of one dim', "PartitionSpec('dp')", 'S(0)R'],
    ['a PartitionSpec of two mesh dims', 'P(("dp", "tp"), None)', 'S(0)S(0)'],
  ])('in %s is a pin', async (_, text, sharding) => {
    const graph = mlp(text);
    expect(graph.given).toEqual([{ value: 'mm', sharding, strength: 'pin' }]);
    const plan = await planFor(graph, MESH);
    expect(placed(plan, 'mm')).toBe(sharding);
    expect(plan.assumptions).toContain(
      '1 sharding that the program states is pinned; --ignore-shardings leaves it free.',
    );
    // The same as saying it from outside.
    const pinned = await planFor(graph, MESH, {
      shardings: 'ignore',
      pins: [{ node: 'mm', spec: text }],
    });
    expect(pinned.objective).toEqual(plan.objective);
  });

  it('that is ignored leaves the optimum free', async () => {
    const [free, pinned] = [
      await planFor(mlp('RS(1)'), MESH, { shardings: 'ignore' }),
      await planFor(mlp('RS(1)'), MESH),
    ];
    expect(free.objective.seconds).toBeLessThanOrEqual(pinned.objective.seconds);
    expect(free.assumptions.join()).toContain('left free (--ignore-shardings)');
  });

  it('that contradicts a pin is named beside it', async () => {
    const result = await solveFor(mlp('RS(1)'), MESH, { pins: [{ node: 'mm', spec: 'RR' }] });
    expect(result).toMatchObject({
      status: 'infeasible',
      conflict: ['--pin mm=RR', '%mm=RS(1) of the program'],
    });
  });

  it('of one tensor twice is refused where the two differ', () => {
    const twice = (second: string): Graph =>
      trace(
        ({ x }: { x: Tensor }) => withSharding(withSharding(x.sin(), 'RS(1)'), second),
        { x: input([8, 8]) },
        { mesh: MESH },
      );
    expect(twice('P(None, "tp")').given).toHaveLength(1);
    expect(() => twice('RR')).toThrow('withSharding(%sin, RR): it is RS(1) already');
  });

  test.each([
    ['P("pp")', "no dim 'pp'"],
    ['P(None, None, "tp")', 'has 3 dims, the tensor has 2'],
    ['P(None, reduced={"tp"})', "'reduced' says of the gradient"],
    ['a b -> a4 b 2', 'makes the mesh (4, 2)'],
  ])('%s is refused with the reason', (text, reason) => {
    expect(() => mlp(text)).toThrow(reason);
  });
});

describe('constraints of JAX', () => {
  const stated = { sharding_constraint: 'jaxpr.txt', 'sdy.sharding_constraint': 'shardy.mlir' };
  test.each(Object.entries(stated))('%s is a pin', async (target, file) => {
    const graph = jax(`mlp-constraint/${file}`);
    const plan = await planFor(graph, 'a=2,b=4', { optimizer: 'none' });
    const flat = plannable(graph, TABLE);
    const constraints = flat.nodes
      .filter((n) => n.target === 'sdy.sharding_constraint')
      .map((n) => placed(plan, n.name));
    expect(constraints, target).toEqual(['S(0)S(1)', 'S(0)S(0)']);
  });

  it('over another mesh are said', async () => {
    const plan = await planFor(jax('mlp-constraint/shardy.mlir'), 'a=4,b=2', { optimizer: 'none' });
    expect(plan.assumptions).toContain(
      'The shardings of the source are over mesh p=2,q=4, the plan is on a=4,b=2.',
    );
  });

  it('of results are pins of the outputs', async () => {
    const graph = jax('mlp-constraint/shardy.mlir');
    for (const sharding of ['S(1)S(0)', 'RS(1)', 'RR']) {
      const plan = await planFor(
        { ...graph, given: [{ output: 0, sharding, strength: 'pin' }] },
        'p=2,q=4',
        { optimizer: 'none' },
      );
      expect(plan.outputs.map((o) => o.placement)).toEqual([sharding]);
    }
  });
});

it('what cannot be a pin is said with its reason, and a hint is not a pin', async () => {
  const graph: Graph = {
    ...mlp('RS(1)'),
    given: [
      { value: 'mm', sharding: 'S(0)[1]S(0)[0]', strength: 'pin' },
      { value: 'relu', sharding: 'RS(1)', strength: 'hint' },
    ],
  };
  const { assumptions } = await planFor(graph, MESH);
  expect(assumptions.slice(-2)).toEqual([
    '%relu is RS(1) or finer in the source, which is only a hint.',
    '%mm is S(0)[1]S(0)[0] in the source, which is not pinned: results are cut in the order of the mesh dims; another order is offered for parameters.',
  ]);
});

it('what a type of the text states is a pin', async () => {
  const graph = mlp('RS(1)');
  const nodes = graph.nodes.map((node) =>
    node.name === 'relu' && node.type.kind === 'tensor'
      ? { ...node, type: { ...node.type, given: 'S(0)R' } }
      : node,
  );
  expect(placed(await planFor({ ...graph, nodes, given: [] }, MESH), 'relu')).toBe('S(0)R');
});

it('a value in the body of a loop keeps its pin', async () => {
  const graph = trace(
    ({ x, w }: Record<'x' | 'w', Tensor>) =>
      scan((carry: Tensor, row: Tensor) => [carry.add(row).matmul(w), carry], x.select(0, 0), x),
    { x: input([4, 8, 8]), w: parameter([8, 8]) },
    { mesh: 'd=4' },
  );
  const [[name, body]] = Object.entries(graph.subgraphs);
  for (const sharding of ['S(0)', 'S(1)', 'R']) {
    const stated = { ...body, given: [{ value: 'mm', sharding, strength: 'pin' as const }] };
    const plan = await planFor({ ...graph, subgraphs: { [name]: stated } }, 'd=4');
    const inBody = plan.nodes.filter((n) => n.target === 'aten.mm.default');
    expect(inBody.map((n) => n.outputs)).toEqual([[sharding]]);
  }
});

/** A chain of steps on a matrix of 16 x 16, some of which state where their result lives. */
const step = fc.record({
  kind: fc.constantFrom('matmul', 'relu', 'transpose', 'residual', 'softmax'),
  stated: fc.option(
    fc.array(fc.constantFrom('R', 'S(0)', 'S(1)'), { minLength: 2, maxLength: 2 }),
    { nil: undefined },
  ),
});

test('the plan of a random program with withSharding obeys it, and computes what the program does', async () => {
  const property = fc.asyncProperty(
    fc.constantFrom('a=2,b=2', 'a=2,b=4', 'a=4,b=1'),
    fc.array(step, { minLength: 1, maxLength: 5 }),
    async (mesh, steps) => {
      const { sizes } = parseMesh(mesh);
      const wanted: [string, string][] = [];
      const program = ({ x, w }: Record<'x' | 'w', Tensor>): Tensor => {
        let value = x;
        for (const { kind, stated } of steps) {
          const before = value;
          if (kind === 'matmul') value = value.matmul(w);
          else if (kind === 'transpose') value = value.transpose(0, 1);
          else if (kind === 'softmax') value = value.softmax(-1);
          else value = kind === 'relu' ? value.relu() : value.add(before.matmul(w));
          // Softmax is not cut along the dim that it sums over; a mesh dim of one device cuts
          // nothing.
          const text = stated
            ?.map((s, m) => (sizes[m] === 1 || (kind === 'softmax' && s === 'S(1)') ? 'R' : s))
            .join('');
          if (text === undefined) continue;
          wanted.push([value.name, text]);
          value = withSharding(value, text);
        }
        return value;
      };
      const graph = trace(
        program,
        { x: input([16, 16]), w: parameter([16, 16]) },
        { mesh, checkTwice: false },
      );
      const plan = await planFor(graph, mesh, { optimizer: 'none' });
      for (const [node, sharding] of wanted) expect(placed(plan, node), node).toBe(sharding);
      expect(verify(graph, plan, { table: TABLE, seed: 1 }).mismatches).toEqual([]);
    },
  );
  await fc.assert(property, { numRuns: FULL ? 40 : 15 });
});
