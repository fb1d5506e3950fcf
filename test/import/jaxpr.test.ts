import { describe, expect, test } from 'vitest';

import { inspectGraph } from '../../src/cli/commands/reading/inspect.ts';
import { ShardwrightError } from '../../src/errors.ts';
import { lintGraph } from '../../src/graph/lint.ts';
import { parseGraph } from '../../src/graph/text/parse.ts';
import { printGraph } from '../../src/graph/text/write.ts';
import type { Graph, Node } from '../../src/graph/types.ts';
import { getOwn, typeText } from '../../src/graph/value.ts';
import { importGraph, importModel } from '../../src/import/import.ts';
import { programFlops } from '../../src/ops/program-flops.ts';
import { flopsEachOnce } from '../support/flops-each-once.ts';
import { withoutLines } from './fixtures.ts';
import { infer, jaxprAnswers, mlirAnswers, packedJax, table } from './support-jax.ts';

const read = (text: string): Graph => importGraph(text, { infer });

/** The index counts a `while` once; its ten trips are known. */
const WHILE_TRIPS: Readonly<Record<string, number>> = { 'ctl-while/jaxpr': 10 };

describe('every jaxpr of the fixtures', () => {
  test('there are 14 of them', () => {
    expect(jaxprAnswers.length).toBe(14);
  });

  test.each(jaxprAnswers.map((a) => [a.id, a] as const))(
    '%s: equations, primitives, FLOPs, types',
    (id, answer) => {
      // With rules: the type of every equation is compared with that of the operator it becomes.
      const { graph, counts, format } = importModel(packedJax(answer.file), { infer });
      expect(format).toBe('jaxpr');
      lintGraph(graph, infer);
      const found = inspectGraph(graph, table, format, counts);
      expect(found.nodes).toBe(answer.eqns_top);
      expect(found.ops).toEqual(answer.by_op);
      expect(found.flops.total).toBe(answer.trips_flops! * (WHILE_TRIPS[id] ?? 1));
      expect(found.unknownOps).toEqual([]);
      // Every equation of the top level is one node that carries its primitive.
      expect(graph.nodes.filter((n) => n.meta.original !== undefined).length).toBe(answer.eqns_top);
      expect(withoutLines(parseGraph(printGraph(graph)))).toEqual(withoutLines(graph));
    },
  );

  const pairs = jaxprAnswers.flatMap((a) => {
    const twin = mlirAnswers.find((m) => m.file === a.file.replace('jaxpr.txt', 'stablehlo.mlir'));
    return twin === undefined ? [] : [[a.id, a.file, twin.file] as const];
  });

  test('there are 12 programs in both forms', () => {
    expect(pairs.length).toBe(12);
  });

  test.each(pairs)(
    '%s equals its StableHLO text in FLOPs, inputs and outputs',
    (id, jaxpr, mlir) => {
      const [a, b] = [jaxpr, mlir].map((file) => importGraph(packedJax(file), { infer }));
      const live = (graph: Graph): number => programFlops(withoutDead(graph), table).total;
      expect(live(a)).toBe(live(b));
      if (id === 'ctl-vmap-remat/jaxpr')
        expect([programFlops(a, table).total, live(a)]).toEqual([6144, 4096]);
      const types = (graph: Graph): unknown[] => [
        // Constants that the function closes over are inputs of a jaxpr only.
        graph.nodes
          .filter((n) => n.kind === 'placeholder' && n.meta.role !== 'constant')
          .map((n) => n.type),
        graph.outputs.map((o) => graph.nodes.find((n) => n.name === o.value)?.type),
      ];
      expect(types(a)).toEqual(types(b));
    },
  );
});

/** The graph without top-level nodes that no output needs. */
function withoutDead(graph: Graph): Graph {
  const byName = new Map(graph.nodes.map((n) => [n.name, n]));
  const live = new Set<string>();
  const work = graph.outputs.flatMap((o) => (o.value === null ? [] : [o.value]));
  for (let name = work.pop(); name !== undefined; name = work.pop()) {
    if (live.has(name)) continue;
    live.add(name);
    const walk = (arg: unknown): void => {
      if (Array.isArray(arg)) arg.forEach(walk);
      else if (
        arg !== null &&
        typeof arg === 'object' &&
        (arg as { kind?: string }).kind === 'value'
      )
        work.push((arg as { name: string }).name);
    };
    byName.get(name)?.args.forEach(walk);
  }
  return {
    ...graph,
    nodes: graph.nodes.filter((n) => n.kind === 'placeholder' || live.has(n.name)),
  };
}

describe('bodies', () => {
  const find = (graph: Graph, target: string): Node =>
    graph.nodes.find((n) => n.target === target)!;
  const body = (graph: Graph, node: Node, at: number): Graph =>
    getOwn(graph.subgraphs, (node.args[at] as { name: string }).name)!;

  test('scan: carry, scanned, constants in this order, as in the StableHLO text', () => {
    const graph = importGraph(packedJax('ctl-scan-rnn/jaxpr.txt.gz'), { infer });
    const scan = find(graph, 'scan');
    expect(scan.kwargs).toEqual({ length: 6, reverse: false });
    expect(scan.args.slice(1)).toEqual(
      [['b'], ['a'], ['c']].map((names) => names.map((name) => ({ kind: 'value', name }))),
    );
    expect(
      body(graph, scan, 0)
        .nodes.slice(0, 3)
        .map((n) => n.name),
    ).toEqual(['g', 'h', 'f']);
  });

  test('shard_map: a manual region, one all-reduce in groups', () => {
    const graph = importGraph(packedJax('shard-map-mlp/jaxpr.txt.gz'), { infer });
    expect(graph.mesh).toBe('data=2,model=4');
    const region = find(graph, 'sdy.manual_computation');
    expect(region.kwargs).toEqual({
      in_shardings: ['S(0)R', 'RS(1)', 'RS(0)'],
      out_shardings: ['S(0)R'],
      manual_axes: ['data', 'model'],
    });
    const reductions = body(graph, region, 0).nodes.filter(
      (n) => n.target === 'stablehlo.all_reduce',
    );
    expect(reductions.map((n) => n.kwargs.replica_groups)).toEqual([
      [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
      ],
    ]);
    expect([programFlops(graph, table).total, 8 * flopsEachOnce(graph, table)]).toEqual([
      196_608, 1_572_864,
    ]);
  });

  test('constraints of mlp-constraint are the pins of its Shardy text', () => {
    const [jaxpr, shardy] = ['jaxpr.txt', 'shardy.mlir'].map((f) =>
      importGraph(packedJax(`mlp-constraint/${f}.gz`), { infer }),
    );
    const constraints = (g: Graph): string[] =>
      (g.given ?? []).flatMap((s) =>
        g.nodes.find((n) => n.name === s.value)?.target === 'sdy.sharding_constraint'
          ? [s.sharding]
          : [],
      );
    expect(constraints(jaxpr)).toEqual(['S(0)S(1)', 'S(0)S(0)']);
    expect([jaxpr.mesh, constraints(jaxpr)]).toEqual([shardy.mesh, constraints(shardy)]);
  });

  test('a remat region keeps its mark', () => {
    const graph = importGraph(packedJax('ctl-vmap-remat/jaxpr.txt.gz'), { infer });
    expect(graph.nodes.filter((n) => n.target === 'call').map((n) => n.kwargs)).toEqual([
      { region: 'remat' },
    ]);
  });
});

describe('text forms', () => {
  test('`in`, `let`, `nan` as variables; one line; equations without results', () => {
    const graph = read(
      '{ lambda ; in:f32[8] let:f32[8]. let y:f32[8] = add in 1.0:f32[]; z:f32[8] = mul y let in (z, in) }',
    );
    expect(graph.nodes.map((n) => n.target)).toEqual([
      'in',
      'let',
      'stablehlo.constant',
      'stablehlo.add',
      'stablehlo.multiply',
    ]);
    expect(graph.outputs.map((o) => o.value)).toEqual(['z', 'in']);
    const more = read(
      '{ lambda ; a:f32[4]. let\n    nan:f32[4] = neg a\n    b:f32[4] = add nan nan:f32[]\n    jit[name=f jaxpr={ lambda ; . let  in () }] \n    c:f32[4] = mul b -inf:f32[]\n  in (c,) }',
    );
    expect(more.nodes.map((n) => n.meta.original)).toEqual([
      undefined,
      'neg',
      undefined,
      'add',
      'jit',
      undefined,
      'mul',
    ]);
  });

  test('wrapped lists, shardings in types, keys, unknown parameters', () => {
    const graph = read(
      "{ lambda ; a:f32[8@data,4]{V:model} k:key<fry>[]. let\n    b:f32[4,8] = transpose[permutation=(1, 0) new_thing=Foo(x=[1, 'a]b'], y={1: 2})]\n      a\n  in (b, k) }",
    );
    expect(
      graph.nodes.map((n) => (n.type.kind === 'tensor' ? [n.type.dtype, n.type.shape] : [])),
    ).toEqual([
      ['f32', [8, 4]],
      ['u32', [2]],
      ['f32', [4, 8]],
    ]);
  });

  test('types over mesh axes, as explicit mode has them, are read, and a note says what is not', () => {
    const text =
      "{ lambda ; a:f32[8,16@tp] b:f32[4@('dp','pod'),8]. let\n" +
      '    c:f32[4@dp,16@tp] = dot_general[dimension_numbers=(([1], [0]), ([], []))] b a\n' +
      '  in (c,) }';
    const { notes = [], nodes } = importGraph(text);
    expect(nodes.map(({ type }) => typeText(type))).toEqual([
      'f32[8, 16]',
      'f32[4, 8]',
      'f32[4, 16]',
    ]);
    expect(notes.join()).toContain('over the mesh axes dp, pod, tp, without their sizes');
    expect(importGraph(text, { ignoreShardings: true }).notes ?? []).toEqual([]);
  });

  test('primitives without a counterpart are typed by their binders and listed', () => {
    const { graph, counts } = importModel(
      '{ lambda ; a:f32[8]. let b:f32[3] = my_prim[k=3] a in (b,) }',
      { infer },
    );
    expect(inspectGraph(graph, table, 'jaxpr', counts)).toMatchObject({
      nodes: 1,
      ops: { my_prim: 1 },
      unknownOps: ['jax.my_prim'],
    });
  });

  test.each<[string, string, string[]]>([
    [
      'reductions',
      '{ lambda ; a:f32[4,6]. let\n b:f32[4] = reduce_sum[axes=(1,)] a\n c:i32[4] = argmax[axes=(1,) index_dtype=int32] a\n d:f32[4,6] = cumsum[axis=1 reverse=False] a\n in (b, c, d) }',
      ['stablehlo.reduce', 'stablehlo.reduce', 'stablehlo.reduce_window'],
    ],
    [
      'powers',
      '{ lambda ; a:f32[4]. let\n b:f32[4] = integer_pow[y=2] a\n c:f32[4] = integer_pow[y=-2] a\n d:f32[4] = exp2 a\n in (b, c, d) }',
      ['stablehlo.multiply', 'stablehlo.divide', 'stablehlo.exponential'],
    ],
    [
      'split',
      '{ lambda ; a:f32[4,6]. let b:f32[4,2] c:f32[4,4] = split[sizes=(2, 4) axis=1] a in (b, c) }',
      ['stablehlo.slice'],
    ],
    [
      'convolution',
      '{ lambda ; x:f32[2,3,8,8] w:f32[16,3,3,3]. let y:f32[2,16,8,8] = conv_general_dilated[batch_group_count=1 dimension_numbers=ConvDimensionNumbers(lhs_spec=(0, 1, 2, 3), rhs_spec=(0, 1, 2, 3), out_spec=(0, 1, 2, 3)) feature_group_count=1 lhs_dilation=(1, 1) padding=((1, 1), (1, 1)) precision=None preferred_element_type=None rhs_dilation=(1, 1) window_strides=(1, 1)] x w in (y,) }',
      ['stablehlo.convolution'],
    ],
    [
      'sorting',
      '{ lambda ; a:f32[4,6]. let\n b:f32[4,6] = sort[dimension=1 is_stable=True num_keys=1] a\n c:f32[4,3] d:i32[4,3] = top_k[k=3 operand=None] a\n in (b, c, d) }',
      ['stablehlo.sort', 'chlo.top_k'],
    ],
  ])('%s', (_, text, targets) => {
    const graph = read(text);
    lintGraph(graph, infer);
    expect(graph.nodes.filter((n) => n.meta.original !== undefined).map((n) => n.target)).toEqual(
      targets,
    );
  });
});

describe('bad text is refused with place and remedy', () => {
  const told = (text: string): string => {
    try {
      read(text);
    } catch (error) {
      if (!(error instanceof ShardwrightError)) throw error;
      return `${error.code} ${error.details.position?.line}:${error.details.position?.column} ${error.message}`;
    }
    throw new Error('the import was not refused');
  };
  test.each<[string, string, string]>([
    [
      'an undefined variable',
      '{ lambda ; a:f32[4]. let b:f32[4] = neg q in (b,) }',
      `E_REF 1:41 'q' is not defined`,
    ],
    [
      'a variable defined twice',
      '{ lambda ; a:f32[4]. let a:f32[4] = neg a in (a,) }',
      `E_DUP 1:26 'a' is defined twice`,
    ],
    [
      'a wrong type',
      '{ lambda ; a:f32[4]. let b:f32[5] = neg a in (b,) }',
      'E_TYPE 1:37 the text says (f32[5]), but neg gives (f32[4])',
    ],
    ['an unknown dtype', '{ lambda ; a:f33[4]. let  in (a,) }', `E_TYPE 1:14 'f33' is not a dtype`],
    [
      'a symbolic size',
      '{ lambda ; a:f32[b,4]. let  in (a,) }',
      'E_UNSUPPORTED 1:18 a symbolic size',
    ],
    [
      'a mutable reference',
      '{ lambda ; a:Ref{f32[4]}. let  in () }',
      'E_UNSUPPORTED 1:14 a mutable reference',
    ],
    [
      'a body that is missing',
      '{ lambda ; a:f32[4]. let b:f32[4] = jit[name=f jaxpr=jaxpr7] a in (b,) }',
      `E_REF 1:54 parameter 'jaxpr' of jit is not a jaxpr`,
    ],
    [
      'an open bracket',
      '{ lambda ; a:f32[4]. let b:f32[4] = neg[x=(1 a in (b,) }',
      `E_SYNTAX 1:43 the bracket '(' is not closed before '}'`,
    ],
    [
      'no end',
      '{ lambda ; a:f32[4]. let b:f32[4] = neg a',
      `E_SYNTAX 1:42 expected a primitive, found the end of the text`,
    ],
    [
      'text behind the end',
      '{ lambda ; a:f32[4]. let  in (a,) } }',
      `E_SYNTAX 1:37 expected the end of the text, found '}'`,
    ],
    [
      'a wrong body',
      '{ lambda ; a:f32[4]. let b:f32[4] = jit[name=f jaxpr={ lambda ; c:f32[5]. let  in (c,) }] a in (b,) }',
      'E_TYPE 1:37 jit: input 0 of a body is f32[5], and gets f32[4]',
    ],
  ])('%s', (_, text, message) => {
    expect(told(text)).toContain(message);
  });

  test('deep nesting, long names and high ranks of a jaxpr are refused with the limit', () => {
    expect(
      told(`{ lambda ; a:f32[4]. let b:f32[4] = neg[x=${'('.repeat(100_000)}] a in (b,) }`),
    ).toMatch(/^E_LIMIT/);
    expect(told(`{ lambda ; ${'x'.repeat(1 << 20)}:f32[4]. let  in () }`)).toMatch(/^E_LIMIT/);
    expect(told(`{ lambda ; a:f32[${'1,'.repeat(1000)}1]. let  in (a,) }`)).toMatch(/^E_LIMIT/);
    expect(told('{ lambda ; a:f32[4]. let b:f32[4] = jit[jaxpr='.repeat(1000))).toMatch(/^E_LIMIT/);
  });

  test.each([
    ['an input', '{ lambda ; b:f32[4]\n a:f32[8796093022208,512]. let in (a,) }'],
    [
      'a stretched operand',
      '{ lambda ; a:f32[4]. let\n b:f32[8796093022208,512] = mul 2.0:f32[] 3.0:f32[]\n in (b,) }',
    ],
  ])('a tensor beyond 2^53 bytes is refused with its line: %s', (_, text) => {
    let place: string | undefined;
    try {
      lintGraph(read(text));
    } catch (error) {
      if (!(error instanceof ShardwrightError)) throw error;
      place = `${error.code} line ${error.details.position?.line}`;
    }
    expect(place).toBe('E_LIMIT line 2');
  });
});
