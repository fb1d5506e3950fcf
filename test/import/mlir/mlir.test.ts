import { describe, expect, test } from 'vitest';

import { inspectGraph } from '../../../src/cli/commands/reading/inspect.ts';
import { lintGraph } from '../../../src/graph/lint.ts';
import { parseGraph } from '../../../src/graph/text/parse.ts';
import { printGraph } from '../../../src/graph/text/write.ts';
import type { Graph, Node } from '../../../src/graph/types.ts';
import { getOwn } from '../../../src/graph/value.ts';
import { importGraph, importModel } from '../../../src/import/import.ts';
import { readStablehlo } from '../../../src/import/mlir/import.ts';
import { parseModule } from '../../../src/import/mlir/module.ts';
import { programFlops } from '../../../src/ops/program-flops.ts';
import { inlineCalls } from '../../../src/passes/control/inline-calls.ts';
import { raiseLoops } from '../../../src/passes/control/loops/raise-loops.ts';
import { flopsEachOnce } from '../../support/flops-each-once.ts';
import { FULL } from '../../support/full.ts';
import { withoutLines } from '../fixtures.ts';
import { genericText } from '../support-generic.ts';
import { infer, jaxText, mlirAnswers, packedJax, placementsOf, table } from '../support-jax.ts';

/** Operations of every text, as the specification's acceptance list has them. */
const NODES: readonly (readonly [RegExp, number])[] = [
  [/^einshard-mlp-grad/, 25],
  [/^einshard-mlp-/, 6],
  [/^mlp-constraint/, 8],
  [/^shard-map-mlp\/shardy/, 8],
  [/^shard-map-mlp\/gspmd/, 16],
  [/^ctl-cond/, 7],
  [/^ctl-fori/, 8],
  [/^ctl-while/, 8],
  [/^ctl-scan-rnn-grad/, 56],
  [/^ctl-scan-rnn/, 23],
  [/^ctl-vmap-remat/, 9],
  [/^flax-encoder/, 961],
  [/^lm2-unrolled/, 1230],
  [/^lm(2|32)-scan/, 1050],
];

/** Words that the index counts and that are not operations of the program, or stand in reducers. */
function reconciled(byOp: Readonly<Record<string, number>>, text: string): Record<string, number> {
  const out: Record<string, number> = { ...byOp };
  for (const word of [
    'func.func',
    'sdy.mesh',
    'mhlo.num_replicas',
    'mhlo.num_partitions',
    'mhlo.sharding',
    'sdy.sharding',
    'stablehlo.return',
    'sdy.return',
  ])
    delete out[word];
  const take = (name: string, n: number): void => {
    out[name] -= n;
    if (out[name] === 0) delete out[name];
  };
  for (const [, name] of text.matchAll(/applies (stablehlo\.\w+)/g)) take(name, 1);
  // Bodies of scatter and all_reduce: one operation between the block's head and its return.
  for (const [, name] of text.matchAll(
    /\^bb0\([^)]*\):\s*%\w+ = (stablehlo\.\w+) [^\n]*\n\s*stablehlo\.return/g,
  ))
    take(name, 1);
  // A call without its dialect is not counted there.
  const bare = [...text.matchAll(/= call @/g)].length;
  if (bare > 0) out['func.call'] = (out['func.call'] ?? 0) + bare;
  return out;
}

/** Daily without other cuts of one program of two layers, and without 32 layers. */
const read = mlirAnswers.filter((a) => FULL || !/^(lm2-unrolled-|lm32)/.test(a.file));

describe('every StableHLO text of the fixtures', () => {
  test('there are 33 of them', () => {
    expect(mlirAnswers.length).toBe(33);
  });

  test.each(read.map((a) => [a.file, a] as const))(
    '%s: nodes, operations, FLOPs, types',
    (file, answer) => {
      const text = jaxText(file);
      // With rules: every stated type is compared with the operator's own.
      const { graph, counts, format } = importModel(packedJax(file), { infer });
      expect(format).toBe('stablehlo');
      const found = inspectGraph(graph, table, format, counts);
      expect(found.nodes).toBe(NODES.find(([pattern]) => pattern.test(file))?.[1]);
      expect(found.ops).toEqual(reconciled(answer.by_op, text));
      if (answer.dot_flops !== undefined) {
        expect(found.ops['stablehlo.dot_general']).toBe(answer.dot_flops.dot_generals);
        expect(flopsEachOnce(graph, table)).toBe(answer.dot_flops.flops_each_once);
      }
      expect(found.unknownOps).toEqual([]);
      expect(withoutLines(parseGraph(printGraph(graph)))).toEqual(withoutLines(graph));
    },
  );

  test('functions: 39 in lm2-scan, 12 in lm2-unrolled', () => {
    expect(parseModule(jaxText('lm2-scan/stablehlo.mlir.gz')).module.functions.size).toBe(39);
    expect(parseModule(jaxText('lm2-unrolled/stablehlo.mlir.gz')).module.functions.size).toBe(12);
  });

  test.each([
    ['lm2-scan', 188_743_680],
    ['lm2-unrolled', 188_743_680],
    ['lm32-scan-8b', 1_844_911_791_931_392],
    ['ctl-fori-matmul', 8_192],
    ['ctl-while', 20_480],
    ['ctl-scan-rnn', 12_288],
    ['ctl-scan-rnn-grad', 36_864],
    ['ctl-cond', 2_048],
  ])('%s with trips: %d', (id, flops) => {
    const graph = importGraph(packedJax(`${id}/stablehlo.mlir.gz`), { infer });
    expect(programFlops(graph, table).total).toBe(flops);
    expect(programFlops(inlineCalls(graph), table).total).toBe(flops);
  });

  test.each(read.filter((a) => FULL || !a.file.startsWith('lm2')).map((a) => a.file))(
    '%s in generic form, and with locations, is the same graph',
    (file) => {
      const text = jaxText(file);
      const { graph } = readStablehlo(text, { infer });
      const generic = readStablehlo(genericText(text), { infer });
      // Names of bodies that `applies` makes do not occur in graphs.
      expect(withoutLines(generic.graph)).toEqual(withoutLines(graph));
      const located = text
        .replaceAll(/( -> tensor<[^>]*>)\n/g, '$1 loc(#loc1)\n')
        .concat('#loc1 = loc("f.py":3:5)\n');
      expect(withoutSources(readStablehlo(located, { infer }).graph)).toEqual(
        withoutSources(graph),
      );
    },
  );
});

function withoutSources(graph: Graph): Graph {
  return JSON.parse(
    JSON.stringify(graph, (key, value: unknown) =>
      key === 'source' || key === 'line'
        ? undefined
        : typeof value === 'bigint'
          ? `${value}n`
          : value,
    ),
  ) as Graph;
}

// ---- loops
// -----------------------------------------------------------------------------

const loopsOf = (graph: Graph): Node[] =>
  graph.nodes.filter((n) => ['scan', 'while_loop', 'cond'].includes(n.target));
const shapeOf = (node: Node): unknown[] => [
  node.target,
  node.kwargs,
  ...node.args.map((a) => (Array.isArray(a) ? a.length : '@')),
];

describe('loops are raised to scans', () => {
  const raised = (id: string): Graph => {
    const graph = raiseLoops(importGraph(packedJax(`${id}/stablehlo.mlir.gz`), { infer }));
    lintGraph(graph, infer);
    return graph;
  };
  test.each<[string, unknown[][]]>([
    // body, carry, xs, captured
    ['ctl-scan-rnn', [['scan', { length: 6, reverse: false }, '@', 1, 1, 1]]],
    [
      'ctl-scan-rnn-grad',
      [
        ['scan', { length: 6, reverse: false }, '@', 1, 1, 1],
        ['scan', { length: 6, reverse: true }, '@', 2, 3, 1],
      ],
    ],
    ['ctl-fori-matmul', [['while_loop', { trips: 4 }, '@', '@', 3]]],
    ['ctl-while', [['while_loop', { trips: 10 }, '@', '@', 3]]],
    [
      'lm2-scan',
      [
        ['scan', { length: 2, reverse: false }, '@', 1, 9, 2],
        ['scan', { length: 2, reverse: true }, '@', 1, 33, 1],
      ],
    ],
    [
      'lm32-scan-8b',
      [
        ['scan', { length: 32, reverse: false }, '@', 1, 9, 2],
        ['scan', { length: 32, reverse: true }, '@', 1, 33, 1],
      ],
    ],
  ])('%s', (id, loops) => {
    const graph = raised(id);
    expect(loopsOf(graph).map(shapeOf)).toEqual(loops);
    const flops = programFlops(
      importGraph(packedJax(`${id}/stablehlo.mlir.gz`), { infer }),
      table,
    ).total;
    expect(programFlops(graph, table).total).toBe(flops);
  });

  test('ctl-scan-rnn has one carry and one stacked output', () => {
    const [scan] = loopsOf(raised('ctl-scan-rnn'));
    expect(scan.type).toMatchObject({ items: [{ shape: [4, 16] }, { shape: [6, 4] }] });
  });

  test('ctl-cond: the false branch is the first one of the text', () => {
    const graph = raised('ctl-cond');
    const [cond] = loopsOf(graph);
    const targets = [1, 2].map((at) => {
      const body = getOwn(graph.subgraphs, (cond.args[at] as { name: string }).name)!;
      return body.nodes
        .filter((n) => n.kind === 'call')
        .map((n) => n.target.replace('stablehlo.', ''));
    });
    expect(targets).toEqual([
      ['dot_general', 'tanh'],
      ['constant', 'broadcast_in_dim', 'multiply'],
    ]);
    expect(cond.args[0]).toEqual({ kind: 'value', name: 'arg0' });
  });

  test('an array that is read the other way round is captured whole, and the counter carried', () => {
    const text = jaxText('ctl-scan-rnn-grad/stablehlo.mlir.gz').replace(
      'dynamic_index_in_dim(%iterArg_5, %8)',
      'dynamic_index_in_dim(%iterArg_5, %iterArg_8)',
    );
    const graph = raiseLoops(importGraph(text, { infer }));
    lintGraph(graph, infer);
    expect(shapeOf(loopsOf(graph)[1])).toEqual([
      'scan',
      { length: 6, reverse: true },
      '@',
      3,
      2,
      2,
    ]);
  });
});

// ---- shardings
// -----------------------------------------------------------------------------

describe('given shardings', () => {
  const sharded = mlirAnswers.filter((a) => a.in_shardings !== undefined);
  test.each(sharded.map((a) => [a.file, a] as const))(
    '%s: arguments and results',
    (file, answer) => {
      const graph = importGraph(packedJax(file), { infer });
      const shape = answer.mesh?.shape ?? {};
      const axes = Object.keys(shape);
      expect(graph.mesh?.replaceAll(/\w+=/g, '')).toBe(Object.values(shape).join(','));
      const inputs = graph.nodes.filter((n) => n.kind === 'placeholder');
      const of = new Map(
        (graph.given ?? []).filter((g) => g.value !== undefined).map((g) => [g.value, g]),
      );
      // Long lists of the index stop at 40 entries.
      const listed = answer.in_shardings!.slice(0, 40).filter((spec) => spec.startsWith('P('));
      expect(listed.length).toBeGreaterThan(0);
      listed.forEach((spec, i) => {
        expect([spec, of.get(inputs[i].name)?.sharding]).toEqual([spec, placementsOf(spec, axes)]);
        expect(of.get(inputs[i].name)?.strength).toBe('pin');
      });
      const results = (graph.given ?? []).filter((g) => g.output !== undefined);
      for (const { output, sharding } of results) {
        const spec = answer.out_shardings![output!];
        if (spec?.startsWith('P('))
          expect([output, sharding]).toEqual([output, placementsOf(spec, axes)]);
      }
      if (/^lm2/.test(file)) expect(results.length).toBeGreaterThan(30);
    },
  );

  test('gspmd and shardy state the same for every program that has both', () => {
    const both = sharded.filter((a) => a.file.includes('gspmd'));
    expect(both.length).toBe(6);
    for (const { file } of both) {
      const [gspmd, shardy] = [file, file.replace('gspmd', 'shardy')].map((name) =>
        importGraph(packedJax(name), { infer }),
      );
      expect(gspmd.given).toEqual(shardy.given);
    }
  });

  test('mlp-constraint: two pins on values', () => {
    for (const file of ['mlp-constraint/shardy.mlir.gz', 'mlp-constraint/gspmd.mlir.gz']) {
      const graph = importGraph(packedJax(file), { infer });
      const constraints = graph.nodes
        .filter((n) => n.target === 'sdy.sharding_constraint')
        .map((n) => n.name);
      expect(
        (graph.given ?? [])
          .filter((g) => constraints.includes(g.value ?? ''))
          .map((g) => [g.sharding, g.strength]),
      ).toEqual([
        ['S(0)S(1)', 'pin'],
        ['S(0)S(0)', 'pin'],
      ]);
    }
  });

  // GSPMD's strings have axes without names.
  test.each([
    ['shardy', ['data', 'model']],
    ['gspmd', ['axis_0', 'axis_1']],
  ])(
    'shard-map-mlp in %s: a manual region with local FLOPs and one all-reduce',
    (dialect, axes) => {
      const graph = importGraph(packedJax(`shard-map-mlp/${dialect}.mlir.gz`), { infer });
      lintGraph(graph, infer);
      expect(graph.nodes.map((n) => n.target).slice(3)).toEqual([
        'sdy.manual_computation',
        'operator.getitem',
      ]);
      const region = graph.nodes.find((n) => n.target === 'sdy.manual_computation')!;
      expect(region.kwargs).toEqual({
        in_shardings: ['S(0)R', 'RS(1)', 'RS(0)'],
        out_shardings: ['S(0)R'],
        manual_axes: axes,
      });
      expect(programFlops(graph, table).total).toBe(196_608);
      expect(8 * programFlops(graph, table).total).toBe(1_572_864);
      // GSPMD's text calls a function of the body.
      const [body] = Object.values(inlineCalls(graph).subgraphs);
      const reductions = body.nodes.filter((n) => n.target === 'stablehlo.all_reduce');
      expect(reductions.map((n) => [n.kwargs.reducer, n.kwargs.replica_groups])).toEqual([
        [
          'add',
          [
            [0, 1, 2, 3],
            [4, 5, 6, 7],
          ],
        ],
      ]);
    },
  );

  test('ignoreShardings drops the mesh and the stated shardings', () => {
    const graph = importGraph(packedJax('mlp-constraint/shardy.mlir.gz'), {
      infer,
      ignoreShardings: true,
    });
    expect([graph.mesh, graph.given]).toEqual([undefined, undefined]);
  });
});
