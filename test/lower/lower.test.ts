import { describe, expect, test } from 'vitest';

import { loadCluster } from '../../src/cost/hardware/load-cluster.ts';
import { collectiveModel } from '../../src/cost/presets/presets.ts';
import { Redistributor } from '../../src/cost/redistribution/redistribute.ts';
import { parseGraph } from '../../src/graph/text/parse.ts';
import { printGraph } from '../../src/graph/text/write.ts';
import type { Graph } from '../../src/graph/types.ts';
import { lower, type LowerablePlan } from '../../src/lower/lower.ts';
import { type DeviceProgram, programAtRank } from '../../src/lower/program/program.ts';
import { parseMesh } from '../../src/mesh/devices/mesh.ts';
import { ShardingSpace } from '../../src/mesh/sharding/space.ts';
import { build } from '../../src/ndarray/array.ts';
import { decode } from '../../src/plan/choice/decode.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import { runDevices } from '../../src/simulate/ranks/devices.ts';
import { layOut, putTogether } from '../../src/simulate/ranks/laid-out.ts';
import { verify } from '../../src/simulate/verify.ts';
import { request, TABLE } from '../plan/support.ts';
import { FULL } from '../support/full.ts';

const graphOf = (body: string): Graph => parseGraph(`swgraph 1\ngraph @g {\n${body}\n}\n`);

/** A plan that places every node as said: `name: inputs -> outputs`; redistributions follow. */
function placed(
  graph: Graph,
  mesh: string,
  spec: Readonly<Record<string, string>>,
  outputs: readonly string[],
): LowerablePlan {
  const prepared = prepare(graph, request(mesh), TABLE);
  const { model } = prepared;
  const { space, nodeVariable, strategies } = model;
  const choice = new Int32Array(model.variables.length).fill(-1);
  graph.nodes.forEach((node, n) => {
    const set = strategies.nodes[n]?.set;
    const want = spec[node.name];
    if (set === undefined || want === undefined) return;
    const [left, right] = want.includes('->') ? want.split('->') : ['', want];
    const ids = [...left.split(' '), ...right.split(' ')]
      .filter((t) => t !== '')
      .map((t) => space.parse(t));
    for (let s = 0; s < set.count; s++)
      if (ids.every((id, t) => set.specs[s * ids.length + t] === id)) choice[nodeVariable[n]] = s;
    if (choice[nodeVariable[n]] < 0) throw new Error(`no strategy ${want} of ${node.name}`);
  });
  model.variables.forEach((v, variable) => {
    if (v.kind === 'output') choice[variable] = v.specs.indexOf(space.parse(outputs[v.output]));
    if (v.kind === 'copy') {
      const { value, owned, copy } = model.copies[v.copy];
      const { node, result } = model.flow.values[value];
      const set = strategies.nodes[node]!.set;
      const own =
        set.specs[
          choice[nodeVariable[node]] * (set.inputCount + set.outputCount) + set.inputCount + result
        ];
      owned.forEach((id, z) => void (id === own && copy[z] < 0 && (choice[variable] = z)));
    }
  });
  const { nodes, outputs: out } = decode(model, choice);
  return { request: prepared.question.request, nodes, outputs: out };
}

const callsOf = (program: DeviceProgram): string[] =>
  printGraph(program.graph, { source: false })
    .split('\n')
    .filter((line) => line.includes(' = '))
    .map((line) => line.trim());

describe('programs of one device', () => {
  const mlp = graphOf(
    '  in %x: f32[8, 12] input "x"\n  in %w1: f32[12, 16] parameter "w1"\n  in %w2: f32[16, 12] parameter "w2"\n' +
      '  %h = aten.mm.default(%x, %w1): f32[8, 16]\n  %a = aten.relu.default(%h): f32[8, 16]\n' +
      '  %y = aten.mm.default(%a, %w2): f32[8, 12]\n  out %y output 0',
  );

  test('tensor parallel mlp: columns, then rows, then one all-reduce', () => {
    const plan = placed(
      mlp,
      'tp=4',
      {
        x: 'R',
        w1: 'S(1)',
        w2: 'S(0)',
        h: 'R S(1)->S(1)',
        a: 'S(1)->S(1)',
        y: 'S(1) S(0)->P(sum)',
      },
      ['R'],
    );
    const program = lower(mlp, plan, { table: TABLE });
    expect(callsOf(program)).toMatchInlineSnapshot(`
      [
        "%h = aten.mm.default(%x, %w1): f32[8, 4]",
        "%a = aten.relu.default(%h): f32[8, 4]",
        "%y = aten.mm.default(%a, %w2): f32[8, 12]",
        "%y_all_reduce = _c10d_functional.all_reduce.default(%y, "sum", "tp"): f32[8, 12] ; forward",
      ]
    `);
    expect(program.symbols.size).toBe(0);
    expect(verify(mlp, plan, { table: TABLE })).toMatchObject({
      mismatches: [],
      collectives: { all_reduce: 1 },
    });
  });

  test('gathers on another dim than the first bring it to the front, and a reduce-scatter leaves a cut', () => {
    const plan = placed(
      mlp,
      'tp=4',
      {
        x: 'S(1)',
        w1: 'S(1)',
        w2: 'S(0)',
        h: 'R S(1)->S(1)',
        a: 'S(1)->S(1)',
        y: 'S(1) S(0)->P(sum)',
      },
      ['S(1)'],
    );
    expect(callsOf(lower(mlp, plan, { table: TABLE }))).toMatchInlineSnapshot(`
      [
        "%x_all_gather = _c10d_functional.all_gather_into_tensor.default(%x, 4, "tp"): f32[32, 3] ; forward",
        "%view = aten.view.default(%x_all_gather, [4, 8, 3]): f32[4, 8, 3] ; forward",
        "%permute = aten.permute.default(%view, [1, 0, 2]): f32[8, 4, 3] ; forward",
        "%contiguous = aten.contiguous.default(%permute): f32[8, 4, 3] ; forward",
        "%view_1 = aten.view.default(%contiguous, [8, 12]): f32[8, 12] ; forward",
        "%h = aten.mm.default(%view_1, %w1): f32[8, 4]",
        "%a = aten.relu.default(%h): f32[8, 4]",
        "%y = aten.mm.default(%a, %w2): f32[8, 12]",
        "%view_2 = aten.view.default(%y, [8, 4, 3]): f32[8, 4, 3] ; forward",
        "%permute_1 = aten.permute.default(%view_2, [1, 0, 2]): f32[4, 8, 3] ; forward",
        "%contiguous_1 = aten.contiguous.default(%permute_1): f32[4, 8, 3] ; forward",
        "%view_3 = aten.view.default(%contiguous_1, [32, 3]): f32[32, 3] ; forward",
        "%view_3_reduce_scatter = _c10d_functional.reduce_scatter_tensor.default(%view_3, "sum", 4, "tp"): f32[8, 3] ; forward",
      ]
    `);
    expect(verify(mlp, plan, { table: TABLE })).toMatchObject({
      mismatches: [],
      collectives: { all_gather: 1, reduce_scatter: 1 },
    });
  });

  test('uneven cuts are padded before a collective and cut to size after', () => {
    const graph = graphOf(
      '  in %x: f32[5] input "x"\n  %y = aten.neg.default(%x): f32[5]\n  out %y output 0',
    );
    const plan = placed(graph, 'd=3', { x: 'S(0)', y: 'S(0)->S(0)' }, ['R']);
    const program = lower(graph, plan, { table: TABLE });
    expect(callsOf(program)).toMatchInlineSnapshot(`
      [
        "%y = aten.neg.default(%x): f32[rows(5, d)=2]",
        "%constant_pad_nd = aten.constant_pad_nd.default(%y, [0, $(2 - size of neg=0)], 0): f32[2] ; forward",
        "%constant_pad_nd_all_gather = _c10d_functional.all_gather_into_tensor.default(%constant_pad_nd, 3, "d"): f32[6] ; forward",
        "%slice = aten.slice.Tensor(%constant_pad_nd_all_gather, 0, 0, 5): f32[5] ; forward",
      ]
    `);
    expect([...program.symbols]).toMatchInlineSnapshot(`
      [
        [
          "rows(5, d)",
          [
            2,
            2,
            1,
          ],
        ],
        [
          "2 - size of neg",
          [
            0,
            0,
            1,
          ],
        ],
      ]
    `);
    // No rank has a symbol left in its own program.
    for (const rank of [0, 1, 2])
      expect(printGraph(programAtRank(program, rank), { source: false })).not.toMatch(/rows\(/);
    expect(verify(graph, plan, { table: TABLE }).mismatches).toEqual([]);
  });

  test('a table cut by rows is looked up with shifted, masked indices', () => {
    const graph = graphOf(
      '  in %w: f32[6, 4] parameter "w"\n  in %i: i64[3] input "i"\n  %e = aten.embedding.default(%w, %i): f32[3, 4]\n  out %e output 0',
    );
    const plan = placed(graph, 'd=2', { w: 'S(0)', i: 'R', e: 'S(0) R->P(sum)' }, ['R']);
    expect(callsOf(lower(graph, plan, { table: TABLE }))).toMatchInlineSnapshot(`
      [
        "%sub = aten.sub.Tensor(%i, $(start(6, d)=0)): i64[3]",
        "%lt = aten.lt.Scalar(%sub, 0): b8[3]",
        "%ge = aten.ge.Scalar(%sub, 3): b8[3]",
        "%bitwise_or = aten.bitwise_or.Tensor(%lt, %ge): b8[3]",
        "%masked_fill = aten.masked_fill.Scalar(%sub, %bitwise_or, 0): i64[3]",
        "%embedding = aten.embedding.default(%w, %masked_fill, padding_idx=-1): f32[3, 4]",
        "%reshape = aten.reshape.default(%bitwise_or, [3, 1]): b8[3, 1]",
        "%e = aten.masked_fill.Scalar(%embedding, %reshape, 0): f32[3, 4]",
        "%e_all_reduce = _c10d_functional.all_reduce.default(%e, "sum", "d"): f32[3, 4] ; forward",
      ]
    `);
    expect(verify(graph, plan, { table: TABLE }).mismatches).toEqual([]);
  });

  test('statistics of a norm have the dtype that the graph states, as a device has it', () => {
    const graph = graphOf(
      [
        '  in %x: bf16[4, 6] input "x"',
        '  in %w: bf16[6] parameter "w"',
        '  %n = aten.native_layer_norm.default(%x, [6], %w, %w, 1e-05): (bf16[4, 6], bf16[4, 1], bf16[4, 1])',
        '  %y = operator.getitem(%n, 0): bf16[4, 6]',
        '  %m = operator.getitem(%n, 1): bf16[4, 1]',
        '  out %y output 0',
        '  out %m output 1',
      ].join('\n'),
    );
    const plan = placed(graph, 'd=2', { x: 'S(0)', w: 'R', n: 'S(0) R R->S(0) S(0) S(0)' }, [
      'S(0)',
      'S(0)',
    ]);
    const local = lower(graph, plan, { table: TABLE }).graph.nodes;
    expect(local.find(({ target }) => target.includes('layer_norm'))?.type).toMatchObject({
      items: [2, 2, 2].map(() => ({ dtype: 'bf16' })),
    });
    expect(verify(graph, plan, { table: TABLE }).mismatches).toEqual([]);
  });

  test('bags of a transposed table have the bag of each index, as its kernel gives it', () => {
    const graph = graphOf(
      [
        '  in %w: f32[8, 12] parameter "w"',
        '  in %i: i64[10] input "i"',
        '  in %o: i64[4] input "o"',
        '  %t = aten.t.default(%w): f32[12, 8]',
        '  %b = aten._embedding_bag.default(%t, %i, %o): (f32[4, 8], i64[10], i64[4], i64[4])',
        '  %y = operator.getitem(%b, 0): f32[4, 8]',
        '  %m = operator.getitem(%b, 1): i64[10]',
        '  out %y output 0',
        '  out %m output 1',
      ].join('\n'),
    );
    const spec = { w: 'S(0)', t: 'S(0)->S(1)', i: 'R', o: 'R', b: 'S(1) R R->S(1) R R R' };
    const plan = placed(graph, 'd=2', spec, ['S(1)', 'R']);
    const local = lower(graph, plan, { table: TABLE }).graph.nodes;
    expect(local.find(({ target }) => target.includes('bag'))?.type).toMatchObject({
      items: [[4, 4], [10], [4], [4]].map((shape) => ({ shape })),
    });
    expect(verify(graph, plan, { table: TABLE }).mismatches).toEqual([]);
  });

  test('a range of floats is counted in integers, the only ones that PyTorch counts', () => {
    const graph = graphOf(
      '  %a = aten.arange.start(1, 6, dtype=dtype:bf16): bf16[5]\n' +
        '  %l = aten.linspace.default(0.5, 2.0, 5, dtype=dtype:bf16): bf16[5]\n  out %a output 0\n  out %l output 1',
    );
    const plan = placed(graph, 'd=2', { a: '->S(0)', l: '->S(0)' }, ['S(0)', 'S(0)']);
    const program = lower(graph, plan, { table: TABLE });
    expect(
      program.graph.nodes.filter(({ kind }) => kind === 'call').map(({ target }) => target),
    ).toEqual([
      'prims.iota.default',
      'prims.convert_element_type.default',
      'prims.iota.default',
      'prims.convert_element_type.default',
      'aten.mul.Tensor',
      'aten.add.Tensor',
      'prims.convert_element_type.default',
    ]);
    const counted = program.graph.nodes.filter(({ target }) => target === 'prims.iota.default');
    expect(counted.map(({ type }) => type)).toMatchObject([{ dtype: 'i64' }, { dtype: 'i64' }]);
    expect(verify(graph, plan, { table: TABLE }).mismatches).toEqual([]);
  });

  test.each([
    [[4, 6], 'f32[]', 1],
    [[2, 6, 7], 'f32[]', 1],
    [[2, 6, 7], 'f32[2, 7]', 0],
    [[2, 6, 3, 2], 'f32[2, 3, 2]', 0],
    [[2, 6, 3, 2, 2], 'f32[2, 3, 2, 2]', 0],
  ] as const)(
    'cross entropy of %j with cut classes takes the likelihood of rows or of images',
    (shape, loss, reduction) => {
      const places = shape.filter((_, d) => d !== 1);
      const graph = graphOf(
        `  in %x: f32[${shape.join(', ')}] input "x"\n  in %t: i64[${places.join(', ')}] input "t"\n` +
          `  %c = aten.cross_entropy_loss.default(%x, %t, none, ${reduction}): ${loss}\n  out %c output 0`,
      );
      const plan = placed(graph, 'd=2', { x: 'S(1)', t: 'R', c: 'S(1) R->P(sum)' }, ['R']);
      const { graph: program } = lower(graph, plan, { table: TABLE });
      const taken = program.nodes.filter(({ target }) => target.includes('nll_loss'));
      expect(taken.map(({ target }) => target)).toEqual([
        shape.length === 2 ? 'aten.nll_loss_forward.default' : 'aten.nll_loss2d_forward.default',
      ]);
      expect(verify(graph, plan, { table: TABLE }).mismatches).toEqual([]);
    },
  );

  test('regression: a rank without columns of a softmax brings minus infinity to the maximum', () => {
    const graph = graphOf(
      '  in %x: f32[2, 5] input "x"\n  %s = aten._log_softmax.default(%x, 1, false): f32[2, 5]\n  out %s output 0',
    );
    const plan = placed(graph, 'd=4', { x: 'S(1)', s: 'S(1)->S(1)' }, ['R']);
    expect(verify(graph, plan, { table: TABLE })).toMatchObject({
      mismatches: [],
      collectives: { all_gather: 1, all_reduce: 2 },
    });
  });

  test('a program text is read back as it was', () => {
    const graph = graphOf(
      '  in %x: f32[7, 4] input "x"\n  %y = aten.tril.default(%x): f32[7, 4]\n  out %y output 0',
    );
    const plan = placed(graph, 'a=2,b=2', { x: 'S(0)S(1)', y: 'S(0)S(1)->S(0)S(1)' }, ['S(1)S(0)']);
    const { graph: program } = lower(graph, plan, { table: TABLE });
    const text = printGraph(program);
    expect(printGraph(parseGraph(text))).toBe(text);
  });
});

describe('every redistribution, lowered and run', () => {
  const cases = [
    ['d=3', [5, 4]],
    ['d=4', [8, 5]],
    ['a=2,b=2', [4, 6]],
    ['a=2,b=3', [7, 6]],
    ['a=2,b=2', [5, 9]],
  ] as const;
  test.each(cases)(
    'mesh (%s), shape %j: the tensor is what it was, the collectives are the priced ones',
    (mesh, shape) => {
      const space = new ShardingSpace(parseMesh(mesh));
      const redistributor = new Redistributor(
        space,
        collectiveModel('alpha-beta', loadCluster('dgx-h100'), space.mesh),
      );
      const graph = graphOf(`  in %x: f32[${shape.join(', ')}] input "x"\n  out %x output 0`);
      const x = build(shape, (i) => Math.sin(i), 'f32');
      const fits = (id: number): boolean =>
        [...space.get(id).orders.keys()].every((d) => space.pieces(id, d) <= shape[d]);
      const sources = space.enumerate(2, { orders: true }).filter(fits);
      const targets = space
        .enumerate(2, { orders: true, partialOps: ['sum', 'max', 'avg'] })
        .filter(fits);
      let moved = 0;
      for (const [i, from] of sources.entries())
        for (const [j, to] of targets.entries()) {
          // Daily every third target of many, other ones of the next source.
          if (!FULL && targets.length > 20 && (i + j) % 3 !== 1) continue;
          const plan = redistributor.plan({ shape, itemBytes: 4 }, from, to);
          if (plan === undefined) continue;
          const [a, b] = [space.text(from), space.text(to)];
          const lowerable: LowerablePlan = {
            request: { ...request(mesh), cost: 'alpha-beta' },
            nodes: [
              {
                name: 'x',
                target: 'placeholder',
                inputs: [],
                outputs: [a],
                seconds: 0,
                redistributions: [],
              },
            ],
            outputs: [
              {
                value: 'x',
                role: 'output',
                placement: b,
                redistributions:
                  from === to
                    ? []
                    : [{ input: 0, from: a, to: b, collectives: [], seconds: plan.seconds }],
              },
            ],
          };
          const program = lower(graph, lowerable, { table: TABLE });
          const run = runDevices(TABLE, program, [
            layOut(program.space, program.space.parse(a), x),
          ]);
          const [out] = run.outputs;
          const together = putTogether(program.space, program.space.parse(b), shape, out ?? []);
          expect(together.disagreement, `${a} -> ${b}`).toBe(0);
          together.data.forEach((v, i) =>
            expect(Math.abs(v - Math.sin(i)), `${a} -> ${b}`).toBeLessThan(1e-12),
          );
          const priced = plan.steps.filter(
            (s) => !['slice', 'to_partial', 'relabel'].includes(s.kind) && s.groupSize > 1,
          );
          expect(
            run.collectives.map((c) => [c.kind, c.meshDims, c.bytes]),
            `${a} -> ${b}`,
          ).toEqual(priced.map((s) => [s.kind, s.meshDims, s.bytes]));
          if (priced.length > 0) moved++;
        }
      expect(moved).toBeGreaterThan(3);
    },
    60_000,
  );
});
