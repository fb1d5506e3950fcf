import { describe, expect, test } from 'vitest';

import { parseGraph } from '../../../src/graph/text/parse.ts';
import { printGraph } from '../../../src/graph/text/write.ts';
import type { Graph } from '../../../src/graph/types.ts';
import { NDArray } from '../../../src/ndarray/array.ts';
import { defineOp } from '../../../src/ops/record/record.ts';
import { shrinkGraph } from '../../../src/passes/sizes/shrink.ts';
import { evaluateGraph } from '../../../src/simulate/evaluate.ts';
import { drawInputs } from '../../../src/simulate/inputs.ts';
import { load, TABLE } from '../../plan/support.ts';
import { FULL } from '../../support/full.ts';

const graphOf = (body: string): Graph => parseGraph(`swgraph 1\ngraph @g {\n${body}\n}\n`);
const lines = (graph: Graph): string[] =>
  printGraph(graph, { source: false })
    .split('\n')
    .slice(2, -2)
    .map((line) => line.trim());

describe('shrinking a program', () => {
  test('views keep their products, slices their sums, literals follow', () => {
    const graph = graphOf(
      '  in %x: f32[8, 1024, 768] input "x"\n  in %w: f32[768, 2304] parameter "w"\n' +
        '  %v = aten.view.default(%x, [8192, 768]): f32[8192, 768]\n' +
        '  %m = aten.mm.default(%v, %w): f32[8192, 2304]\n' +
        '  %q = aten.slice.Tensor(%m, 1, 768, 1536): f32[8192, 768]\n' +
        '  %h = aten.view.default(%q, [8, 1024, 12, 64]): f32[8, 1024, 12, 64]\n' +
        '  %r = aten.slice.Tensor(%h, 3, 0, 32): f32[8, 1024, 12, 32]\n' +
        '  %p = aten.arange.default(1024): i64[1024]\n' +
        '  %e = aten.expand.default(%p, [8, -1]): i64[8, 1024]\n' +
        '  %n = aten.slice.Tensor(%e, 1, 0, 1023): i64[8, 1023]\n' +
        '  %l = aten.layer_norm.default(%x, [768]): f32[8, 1024, 768]\n' +
        '  out %r output 0\n  out %n output 1\n  out %l output 2',
    );
    const { graph: small, sizes, kept } = shrinkGraph(graph, TABLE, { meshSizes: [2, 2] });
    expect(kept).toEqual([]);
    expect(sizes.map(({ from, to }) => `${from} as ${to}`)).toMatchInlineSnapshot(`
      [
        "8 as 4",
        "12 as 4",
        "32 as 12",
        "64 as 24",
        "768 as 96",
        "1023 as 7",
        "1024 as 8",
        "2304 as 288",
        "8192 as 32",
      ]
    `);
    expect(lines(small)).toMatchInlineSnapshot(`
      [
        "in %x: f32[4, 8, 96] input "x"",
        "in %w: f32[96, 288] parameter "w"",
        "%v = aten.view.default(%x, [32, 96]): f32[32, 96]",
        "%m = aten.mm.default(%v, %w): f32[32, 288]",
        "%q = aten.slice.Tensor(%m, 1, 96, 192): f32[32, 96]",
        "%h = aten.view.default(%q, [4, 8, 4, 24]): f32[4, 8, 4, 24]",
        "%r = aten.slice.Tensor(%h, 3, 0, 12): f32[4, 8, 4, 12]",
        "%p = aten.arange.default(8): i64[8]",
        "%e = aten.expand.default(%p, [4, -1]): i64[4, 8]",
        "%n = aten.slice.Tensor(%e, 1, 0, 7): i64[4, 7]",
        "%l = aten.layer_norm.default(%x, [96]): f32[4, 8, 96]",
        "out %r output 0",
        "out %n output 1",
        "out %l output 2",
      ]
    `);
    // Every size that the mesh cuts evenly stays one that it cuts evenly.
    for (const { from, to } of sizes) if (from % 4 === 0) expect(to % 4, String(from)).toBe(0);
  });

  test('one view taken twice stays one, and different views stay different', () => {
    const twice = graphOf(
      '  in %s: f32[1, 1] input "s"\n  in %x: f32[48, 32] input "x"\n  in %w: f32[32, 32] parameter "w"\n' +
        '  %a = aten.expand.default(%s, [48, 32]): f32[48, 32]\n  %b = aten.expand.default(%s, [48, 32]): f32[48, 32]\n' +
        '  %m = aten.mm.default(%x, %w): f32[48, 32]\n  %y = aten.add.Tensor(%m, %b): f32[48, 32]\n' +
        '  out %y output 0',
    );
    const [a, b] = shrinkGraph(twice, TABLE).graph.nodes.filter(
      ({ target }) => target === 'aten.expand.default',
    );
    expect(a.type).not.toEqual(twice.nodes[3].type);
    expect([a.type, a.args]).toEqual([b.type, b.args]);

    // More rows are picked than a smaller dim has.
    const rows = Array.from({ length: 14 }, (_, i) => i + 1);
    const picked = graphOf(
      `  in %x: f32[16, 96] input "x"\n${rows.map((i) => `  %r${i} = aten.select.int(%x, 0, ${i}): f32[96]\n`).join('')}` +
        rows.map((i) => `  out %r${i} output ${i - 1}`).join('\n'),
    );
    const { graph } = shrinkGraph(picked, TABLE);
    const selects = graph.nodes.filter(({ target }) => target === 'aten.select.int');
    expect(new Set(selects.map(({ args }) => args[2])).size).toBe(14);
  });

  test('equal sizes stay equal, small ones stay, one row stays one row', () => {
    const graph = graphOf(
      '  in %x: f32[1, 3, 96, 96] input "x"\n  %y = aten.transpose.int(%x, 2, 3): f32[1, 3, 96, 96]\n  out %y output 0',
    );
    const { graph: small } = shrinkGraph(graph, TABLE);
    expect(lines(small)[0]).toBe('in %x: f32[1, 3, 2, 2] input "x"');
  });

  test('grouped heads stay multiples of their keys, picked rows exist', () => {
    const graph = graphOf(
      '  in %q: f32[2, 32, 128, 64] input "q"\n  in %k: f32[2, 8, 128, 64] input "k"\n' +
        '  %s = aten.scaled_dot_product_attention.default(%q, %k, %k, none, 0.0, true, enable_gqa=true): f32[2, 32, 128, 64]\n' +
        '  %l = aten.select.int(%s, 2, 5): f32[2, 32, 64]\n  %t = aten.select.int(%s, 2, -1): f32[2, 32, 64]\n  out %l output 0\n  out %t output 1',
    );
    const to = new Map(
      shrinkGraph(graph, TABLE, { meshSizes: [4] }).sizes.map((s) => [s.from, s.to]),
    );
    expect((to.get(32) ?? 0) % (to.get(8) ?? 1)).toBe(0);
    expect(to.get(128)).toBeGreaterThan(5);
  });

  test('spatial sizes of convolutions shrink with batch and channels, windows stay', () => {
    const graph = graphOf(
      '  in %x: f32[64, 48, 14, 14] input "x"\n  in %w: f32[96, 48, 3, 3] parameter "w"\n' +
        '  %y = aten.convolution.default(%x, %w, none, [1, 1], [1, 1], [1, 1], false, [0, 0], 1): f32[64, 96, 14, 14]\n  out %y output 0',
    );
    const to = new Map(shrinkGraph(graph, TABLE).sizes.map((s) => [s.from, s.to]));
    expect(to.get(3)).toBe(3);
    for (const n of [64, 48, 96, 14]) expect(to.get(n), String(n)).toBeLessThan(n);
  });

  test('a call with a literal whose meaning is not known keeps its sizes and is named', () => {
    const tile = defineOp('my.tile.default', {
      schema: 'Tensor self, int n',
      cls: 'other',
      infer: (ctx) => [
        { dtype: ctx.inputs[0].dtype, shape: [ctx.int('n') + 10, ...ctx.inputs[0].shape] },
      ],
    });
    const graph = graphOf(
      '  in %x: f32[100, 60] input "x"\n  %r = aten.sum.dim_IntList(%x, [1]): f32[100]\n  %y = my.tile.default(%r, 40): f32[50, 100]\n  out %y output 0',
    );
    const { sizes, kept } = shrinkGraph(graph, TABLE.with([tile]));
    expect(kept).toEqual([
      { node: 'y', target: 'my.tile.default', reason: expect.stringContaining('f32[50') as string },
    ]);
    const to = new Map(sizes.map((s) => [s.from, s.to]));
    expect([to.get(50), to.get(100)]).toEqual([50, 100]);
    expect(to.get(60)).toBeLessThan(60);
  });

  test('windows: rows of a convolution or pool become the fewest that have the windows that are left', () => {
    const graph = graphOf(
      '  in %x: f32[6, 5, 64, 61] input "x"\n  in %w: f32[8, 5, 7, 5] parameter "w"\n' +
        '  %c = aten.convolution.default(%x, %w, none, [2, 3], [3, 0], [1, 2], false, [0, 0], 1): f32[6, 8, 32, 18]\n' +
        '  %p = aten.max_pool2d.default(%c, [3, 3], [2, 2], [1, 1]): f32[6, 8, 16, 9]\n  out %p output 0',
    );
    const { graph: small, kept } = shrinkGraph(graph, TABLE, { meshSizes: [2] });
    expect(kept).toEqual([]);
    const shape = (name: string): number[] => {
      const type = small.nodes.find((n) => n.name === name)?.type;
      return type?.kind === 'tensor' ? type.shape.map(Number) : [];
    };
    const [x, w, c, p] = ['x', 'w', 'c', 'p'].map(shape);
    const windows = (
      rows: number,
      kernel: number,
      stride: number,
      padding: number,
      dilation: number,
    ): number => Math.floor((rows + 2 * padding - dilation * (kernel - 1) - 1) / stride) + 1;
    expect([c[2], c[3]]).toEqual([windows(x[2], w[2], 2, 3, 1), windows(x[3], w[3], 3, 0, 2)]);
    expect([p[2], p[3]]).toEqual([windows(c[2], 3, 2, 1, 1), windows(c[3], 3, 2, 1, 1)]);
    expect(x[2] * x[3]).toBeLessThan((64 * 61) / 6);
  });

  test('padding stays a number of rows while the rows shrink: labels shifted by a pad, as Hugging Face losses have them', () => {
    const graph = graphOf(
      '  in %labels: i64[4, 256] input "labels"\n  in %logits: f32[1024, 32000] input "logits"\n' +
        '  %p = aten.constant_pad_nd.default(%labels, [0, 1], -100): i64[4, 257]\n' +
        '  %s = aten.slice.Tensor(%p, 1, 1, 9223372036854775807): i64[4, 256]\n' +
        '  %v = aten.view.default(%s, [1024]): i64[1024]\n' +
        '  %l = aten.nll_loss_forward.default(%logits, %v, none, 1, -100): (f32[], f32[])\n' +
        '  %y = operator.getitem(%l, 0): f32[]\n  out %y output 0',
    );
    const { graph: small, kept } = shrinkGraph(graph, TABLE, { meshSizes: [2, 2] });
    expect(kept).toEqual([]);
    const shapes = Object.fromEntries(
      small.nodes.map((n) => [n.name, n.type.kind === 'tensor' ? n.type.shape.map(Number) : []]),
    );
    const [, rows] = shapes['labels'];
    expect(rows).toBeLessThan(20);
    expect(shapes['p']).toEqual([4, rows + 1]);
    expect(shapes['logits'][0]).toBe(4 * rows);
    expect(shapes['logits'][1]).toBeLessThan(40);
    // Labels are classes: the run finds each of them among those that are left, or ignored.
    expect(() => evaluateGraph(TABLE, small, drawInputs(TABLE, small))).not.toThrow();
  });

  test('a size next to one that a large mesh divides becomes small, too', () => {
    const graph = graphOf(
      '  in %labels: i64[16, 8192] input "labels"\n  in %logits: f32[16, 8192, 64] input "logits"\n' +
        '  %s = aten.slice.Tensor(%labels, 1, 1, 9223372036854775807): i64[16, 8191]\n' +
        '  %v = aten.view.default(%s, [131056]): i64[131056]\n' +
        '  %x = aten.slice.Tensor(%logits, 1, 0, -1): f32[16, 8191, 64]\n' +
        '  %w = aten.view.default(%x, [131056, 64]): f32[131056, 64]\n' +
        '  %l = aten.nll_loss_forward.default(%w, %v, none, 1, -100): (f32[], f32[])\n' +
        '  %y = operator.getitem(%l, 0): f32[]\n  out %y output 0',
    );
    const { sizes } = shrinkGraph(graph, TABLE, { meshSizes: [8, 8] });
    // 64 and 128 divide, 127 is the first size next to such a one that 64 devices can cut.
    expect(sizes).toContainEqual({ from: 8191, to: 127 });
    expect(sizes).toContainEqual({ from: 8192, to: 128 });
  });

  test('sizes that are equal by chance are not tied: a width that stays leaves a batch of the same number free', () => {
    const graph = graphOf(
      '  in %x: f32[64, 64, 7] input "x"\n  in %w: f32[64, 64] parameter "w"\n' +
        '  %t = aten.transpose.int(%x, 1, 2): f32[64, 7, 64]\n  %v = aten.view.default(%t, [448, 64]): f32[448, 64]\n' +
        '  %m = aten.mm.default(%v, %w): f32[448, 64]\n  %l = aten.linspace.default(0, 1, 64): f32[64]\n' +
        '  %y = aten.add.Tensor(%m, %l): f32[448, 64]\n  out %y output 0',
    );
    const { graph: small, kept } = shrinkGraph(graph, TABLE);
    expect(kept).toEqual([]);
    const [x, w] = small.nodes.map((n) =>
      n.type.kind === 'tensor' ? n.type.shape.map(Number) : [],
    );
    // A linspace keeps its number of rows, which are the columns of w.
    expect(w[1]).toBe(64);
    expect([x[0], x[1], w[0]].every((n) => n < 16)).toBe(true);
  });

  test('a slice of no rows, positions and depthwise groups follow the sizes', () => {
    const graph = graphOf(
      '  in %x: f32[8, 96, 40] input "x"\n  in %w: f32[96, 1, 4] parameter "w"\n' +
        '  %c = aten.convolution.default(%x, %w, none, [1], [3], [1], false, [0], 96): f32[8, 96, 43]\n' +
        '  %s = aten.slice.Tensor(%c, 2, 0, 40): f32[8, 96, 40]\n' +
        '  %e = aten.slice.Tensor(%s, 1, 96, 9223372036854775807): f32[8, 0, 40]\n' +
        '  %j = aten.cat.default([%s, %e], 1): f32[8, 96, 40]\n  %r = aten.select.int(%j, 2, 39): f32[8, 96]\n  out %r output 0',
    );
    const { graph: small, kept, sizes } = shrinkGraph(graph, TABLE);
    expect(kept).toEqual([]);
    expect(sizes.filter(({ from, to }) => from > 4 && to === from)).toEqual([]);
    const channels = Number(
      small.nodes[0].type.kind === 'tensor' ? small.nodes[0].type.shape[1] : 0,
    );
    expect(small.nodes.find((n) => n.name === 'c')?.args[8]).toBe(channels);
    expect(() => evaluateGraph(TABLE, small, drawInputs(TABLE, small))).not.toThrow();
  });

  test('bodies shrink with the program around them, and a scan makes as many trips as there are rows', () => {
    const graph = parseGraph(`swgraph 1
graph @g {
  in %w: f32[60, 60] parameter "w"
  in %h: f32[100, 60] input "h"
  in %xs: f32[40, 100, 60] input "xs"
  %s = scan(@step, [%h], [%xs], [%w]): (f32[100, 60], f32[40, 6000])
  %y = operator.getitem(%s, 1): f32[40, 6000]
  %t = scan(@tick, [%h], [], [], length=40): (f32[100, 60])
  %z = operator.getitem(%t, 0): f32[100, 60]
  out %y output 0
  out %z output 1
  graph @step {
    in %h: f32[100, 60] arg 0
    in %x: f32[100, 60] arg 1
    in %w: f32[60, 60] arg 2
    %m = aten.mm.default(%h, %w): f32[100, 60]
    %n = aten.add.Tensor(%m, %x): f32[100, 60]
    %v = aten.view.default(%n, [6000]): f32[6000]
    out %n output 0
    out %v output 1
  }
  graph @tick {
    in %h: f32[100, 60] arg 0
    %n = aten.neg.default(%h): f32[100, 60]
    out %n output 0
  }
}
`);
    const { graph: small, sizes, kept } = shrinkGraph(graph, TABLE);
    expect(kept).toEqual([]);
    const to = new Map(sizes.map((s) => [s.from, s.to]));
    const [a, b, rows] = [100, 60, 40].map((n) => to.get(n) ?? n);
    expect(Math.max(a, b, rows)).toBeLessThan(20);
    expect(to.get(6000)).toBe(a * b);
    expect(small.subgraphs['step'].nodes.find((n) => n.name === 'v')?.args[1]).toEqual([a * b]);
    expect(small.nodes.find((n) => n.name === 't')?.kwargs).toEqual({ length: rows });
  });

  test('unknown operators are refused by name, in bodies too', () => {
    const unknown = graphOf(
      '  in %x: f32[100] input "x"\n  %y = my.op.default(%x): f32[100]\n  out %y output 0',
    );
    expect(() => shrinkGraph(unknown, TABLE)).toThrow(/my\.op\.default is not shrunk/);
    const inBody = parseGraph(`swgraph 1
graph @g {
  in %xs: f32[100, 8] input "xs"
  %m = map(@each, [%xs], []): (f32[100, 8])
  %y = operator.getitem(%m, 0): f32[100, 8]
  out %y output 0
  graph @each {
    in %x: f32[8] arg 0
    %z = my.op.default(%x): f32[8]
    out %z output 0
  }
}
`);
    expect(() => shrinkGraph(inBody, TABLE)).toThrow(/my\.op\.default is not shrunk/);
  });
});

/** Models whose joint graph stands with those that `jointGraph` is judged by. */
const FORWARD_ONLY = new Set(['resnet18', 'vit-tiny', 'mixtral-tiny']);

describe('real graphs', () => {
  test.each([
    'mlp-loss',
    'llama-tiny',
    'gpt2-2l',
    'convnet',
    'mixtral-tiny',
    ...(FULL ? ['bert-base', 'llama3-8b-2l', 'resnet18', 'vit-tiny'] : []),
  ])(
    '%s: the reduced graph runs, and is the same program',
    (model) => {
      const graph = load(
        FORWARD_ONLY.has(model) ? `joint/${model}/joint` : `torch/${model}/joint.readable`,
      );
      const { graph: small, sizes, kept } = shrinkGraph(graph, TABLE, { meshSizes: [2, 2] });
      expect(kept).toEqual([]);
      expect(small.nodes.map((n) => [n.name, n.target])).toEqual(
        graph.nodes.map((n) => [n.name, n.target]),
      );
      expect(sizes.every(({ from, to }) => to <= from)).toBe(true);
      const { outputs } = evaluateGraph(TABLE, small, drawInputs(TABLE, small));
      const numbers = outputs.filter((o) => o instanceof NDArray);
      expect(numbers.length).toBeGreaterThan(0);
      // Finite everywhere and not all zero: the run means something.
      for (const x of numbers) expect(x.toArray().every((v) => Number.isFinite(v))).toBe(true);
      expect(numbers.some((x) => x.toArray().some((v) => v !== 0))).toBe(true);
    },
    60_000,
  );
});
