import { isDeepStrictEqual } from 'node:util';

import { describe, expect, test } from 'vitest';

import { typesByName } from '../../src/graph/nodes.ts';
import { parseGraph } from '../../src/graph/text/parse.ts';
import type { Graph, Node, ValueType } from '../../src/graph/types.ts';
import { eachOperand, ref, tensorType } from '../../src/graph/value.ts';
import { lower } from '../../src/lower/lower.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import type { Plan } from '../../src/plan/record/types.ts';
import { localCalls } from '../../src/report/analysis/local-calls.ts';
import { verify } from '../../src/simulate/verify.ts';
import { solveFor, TABLE } from '../plan/support.ts';
import { FULL } from '../support/full.ts';

/** Attention of query heads that share key heads, and its gradients. */
function grouped(heads: number, keyHeads: number): Graph {
  const type = (n: number): string => `f32[2, ${n}, 6, 4]`;
  const [q, k] = [type(heads), type(keyHeads)];
  const lse = `f32[2, ${heads}, 6]`;
  const flash = 'aten._scaled_dot_product_flash_attention_for_cpu';
  return parseGraph(
    [
      'swgraph 1',
      'graph @g {',
      `  in %q: ${q} input "q"`,
      `  in %k: ${k} input "k"`,
      `  in %v: ${k} input "v"`,
      `  in %g: ${q} input "g"`,
      `  %f = ${flash}.default(%q, %k, %v, 0.0, true): (${q}, ${lse})`,
      `  %o = operator.getitem(%f, 0): ${q}`,
      `  %l = operator.getitem(%f, 1): ${lse}`,
      `  %b = ${flash}_backward.default(%g, %q, %k, %v, %o, %l, 0.0, true): (${q}, ${k}, ${k})`,
      ...[q, k, k].map((of, i) => `  %d${i} = operator.getitem(%b, ${i}): ${of}`),
      '  out %o output 0',
      ...[0, 1, 2].map((i) => `  out %d${i} output ${i + 1}`),
      '}',
      '',
    ].join('\n'),
  );
}

/** The graph with its tensors of four dims as [batch, length, head, size] in memory. */
function byLength(graph: Graph): Graph {
  const laid = (type: ValueType): ValueType => {
    if (type.kind === 'tuple') return { ...type, items: type.items.map(laid) };
    if (type.kind !== 'tensor' || type.shape.length !== 4) return type;
    const heads = Number(type.shape[1]);
    return tensorType(type.dtype, type.shape, [heads * 24, 4, heads * 4, 1]);
  };
  return { ...graph, nodes: graph.nodes.map((node) => ({ ...node, type: laid(node.type) })) };
}

const isAttention = ({ target }: Pick<Node, 'target'>): boolean => target.includes('flash');

/** Shapes of the operands of the attention calls of a graph, on the first device. */
function operands({ nodes }: Pick<Graph, 'nodes'>): (readonly unknown[])[][] {
  const types = typesByName({ nodes });
  return nodes.filter(isAttention).map((node) => {
    const shapes: (readonly unknown[])[] = [];
    eachOperand(node, (name) => {
      const type = types.get(name);
      if (type?.kind === 'tensor')
        shapes.push(type.shape.map((dim) => (typeof dim === 'number' ? dim : dim.example)));
    });
    return shapes;
  });
}

async function cutHeads(graph: Graph, mesh: string, spec: string, keys?: string): Promise<Plan> {
  const pins = ['o', 'd0'].map((node) => ({ node, spec }));
  if (keys !== undefined) pins.push(...['k', 'v'].map((node) => ({ node, spec: keys })));
  const result = await solveFor(graph, mesh, { pins });
  if (result.status === 'infeasible' || !('plan' in result)) throw new Error('no plan');
  return result.plan;
}

describe('query heads over more devices than key heads', () => {
  test.each([
    // Devices, query heads, key heads, and the key heads that a device takes.
    ['tp=4', 'S(1)', 8, 2, 1],
    ...(FULL ? ([['tp=8', 'S(1)', 8, 2, 1]] as const) : []),
    ['tp=3', 'S(1)', 6, 1, 1],
    ['a=2,b=2', 'S(1)S(1)', 8, 2, 1],
    ['dp=2,tp=4', 'S(0)S(1)', 8, 2, 1],
    // Query heads of one device in several groups: as many heads as their groups have parts.
    ['tp=6', 'S(1)', 12, 4, 2],
    ['tp=3', 'S(1)', 12, 2, 2],
    // Uneven parts: a key head for each query head, or the one that there is.
    ['tp=4', 'S(1)', 14, 2, 4],
    ['tp=4', 'S(1)', 7, 1, 1],
    ['a=2,b=3', 'S(1)S(1)', 20, 5, 4],
    // As many key heads as query heads: both are cut.
    ['tp=4', 'S(1)', 14, 14, 4],
  ] as const)(
    'on %s, %s, %d query heads and %d key heads give what one device gives',
    async (mesh, spec, heads, keyHeads, taken) => {
      const graph = grouped(heads, keyHeads);
      const plan = await cutHeads(graph, mesh, spec);
      const program = lower(graph, plan, { table: TABLE });
      const ran = operands(program.graph);
      for (const shapes of ran) expect(shapes.map((shape) => shape[1])).toContain(taken);
      expect(verify(graph, plan, { table: TABLE }).mismatches).toEqual([]);
      // What is priced is what runs.
      const priced = localCalls(prepare(graph, plan.request, TABLE), plan).filter(({ record }) =>
        isAttention({ target: record.name }),
      );
      expect(priced.map(({ context }) => context.inputs.map(({ shape }) => shape))).toEqual(ran);
    },
  );

  test.each([
    // Mesh, query heads, key heads, their placement, and the key heads that a device has and takes.
    ['a=2,b=2', 'S(1)S(1)', 8, 2, 'S(1)R', 1, 1],
    ...(FULL ? ([['a=2,b=2', 'S(1)S(1)', 16, 4, 'S(1)R', 2, 1]] as const) : []),
    ['a=2,b=3', 'S(1)S(1)', 24, 4, 'S(1)R', 2, 2],
    ...(FULL ? ([['a=2,b=2,c=2', 'S(1)S(1)S(1)', 16, 4, 'S(1)S(1)R', 1, 1]] as const) : []),
    ['a=2,b=2,c=2', 'S(1)S(1)S(1)', 16, 4, 'S(1)RR', 2, 1],
    ['a=2,b=2,c=2', 'S(1)S(0)S(1)', 8, 2, 'S(1)S(0)R', 1, 1],
    // Groups whose heads do not divide over the devices of a group.
    ['a=2,b=2', 'S(1)S(1)', 6, 2, 'S(1)R', 1, 1],
    ['a=2,b=2', 'S(1)S(1)', 12, 4, 'S(1)R', 2, 1],
    ['a=2,b=4', 'S(1)S(1)', 20, 4, 'S(1)R', 2, 3],
  ] as const)(
    'on %s, %s, %d query heads read %d key heads that are %s without a move',
    async (mesh, spec, heads, keyHeads, keys, held, taken) => {
      const graph = grouped(heads, keyHeads);
      const plan = await cutHeads(graph, mesh, spec, keys);
      const program = lower(graph, plan, { table: TABLE });
      expect(program.graph.nodes.filter(({ target }) => target.includes('all_gather'))).toEqual([]);
      const types = typesByName(program.graph);
      expect(types.get('k')).toMatchObject({ shape: [expect.anything(), held, 6, 4] });
      const ran = operands(program.graph);
      for (const shapes of ran) expect(shapes.map((shape) => shape[1])).toContain(taken);
      expect(verify(graph, plan, { table: TABLE }).mismatches).toEqual([]);
      const priced = localCalls(prepare(graph, plan.request, TABLE), plan).filter(({ record }) =>
        isAttention({ target: record.name }),
      );
      expect(priced.map(({ context }) => context.inputs.map(({ shape }) => shape))).toEqual(ran);
    },
  );

  test('key heads that the inner mesh dim cuts are moved: a device reads those of another', async () => {
    const graph = grouped(8, 2);
    const plan = await cutHeads(graph, 'a=2,b=2', 'S(1)S(1)', 'RS(1)');
    const attention = plan.nodes.find(({ name }) => name === 'f');
    expect(attention?.redistributions.map(({ from }) => from)).toEqual(['RS(1)', 'RS(1)']);
    expect(verify(graph, plan, { table: TABLE }).mismatches).toEqual([]);
  });

  test.each([
    ['tp=4', 8, 2, 'constant_pad_nd'],
    ['tp=6', 12, 4, 'index_add'],
  ] as const)(
    'on %s, gradients of key heads are put back in the memory order that they have',
    async (mesh, heads, keyHeads, put) => {
      const graph = byLength(grouped(heads, keyHeads));
      const plan = await cutHeads(graph, mesh, 'S(1)');
      const { nodes } = lower(graph, plan, { table: TABLE }).graph;
      const calls = nodes.filter(({ target }) => target === `aten.${put}.default`);
      expect(calls.map(({ type }) => type)).toMatchObject(
        [1, 2].map(() => ({ shape: [2, 6, keyHeads, 4] })),
      );
      for (const { name } of calls) {
        const [read] = nodes.filter(({ args }) =>
          args.some((arg) => isDeepStrictEqual(arg, ref(name))),
        );
        expect([read.target, read.args[1]]).toEqual(['aten.permute.default', [0, 2, 1, 3]]);
      }
      expect(verify(graph, plan, { table: TABLE }).mismatches).toEqual([]);
    },
  );

  test('a decoding step with two key heads is cut over four devices, which reads half as much', async () => {
    const cache = 'bf16[1, 2, 131072, 128]';
    const graph = parseGraph(
      `swgraph 1\ngraph @g {\n  in %q: bf16[1, 32, 1, 128] input "q"\n  in %k: ${cache} input "k"\n  in %v: ${cache} input "v"\n` +
        '  %o = aten.scaled_dot_product_attention.default(%q, %k, %v, enable_gqa=true): bf16[1, 32, 1, 128]\n  out %o output 0\n}\n',
    );
    const seconds = async (spec?: string): Promise<number> => {
      const pins = spec === undefined ? [] : [{ node: 'o', spec }];
      const result = await solveFor(graph, 'tp=4', { pins });
      if (!('plan' in result)) throw new Error('no plan');
      return result.plan.objective.seconds;
    };
    const [best, heads, whole] = [await seconds(), await seconds('S(1)'), await seconds('R')];
    expect(best).toBe(heads);
    expect(heads / whole).toBeCloseTo(1 / 2, 2);
  });
});

describe('rows whose numbers count from the end', () => {
  test.each([
    ['are read', '%y = aten.index.Tensor(%x, [%n]): f32[3, 6]', 'P(sum)'],
    ['are written', '%y = aten.index_put.default(%x, [%n], %v): f32[8, 6]', 'S(0)'],
  ])('%s where the rows are cut', async (_, call, spec) => {
    const graph = parseGraph(`swgraph 1
graph @g {
  in %x: f32[8, 6] input "x"
  in %v: f32[3, 6] input "v"
  %a = aten.arange.default(3): i64[3]
  %n = aten.sub.Tensor(%a, 5): i64[3]
  ${call}
  out %y output 0
}
`);
    const pins = [
      { node: 'x', spec: 'S(0)' },
      { node: 'y', spec },
    ];
    const made = await solveFor(graph, 'd=2', { pins });
    if (made.status !== 'planned') throw new Error('no plan');
    const { outputsCompared, mismatches } = verify(graph, made.plan, { table: TABLE });
    expect([outputsCompared, mismatches]).toEqual([1, []]);
  });
});
