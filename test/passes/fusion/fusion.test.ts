import { describe, expect, test } from 'vitest';

import { loadCluster } from '../../../src/cost/hardware/load-cluster.ts';
import { eachOperand } from '../../../src/graph/value.ts';
import { importGraph } from '../../../src/import/import.ts';
import {
  compiledTraffic,
  fusedComputeSeconds,
  fusedGroups,
} from '../../../src/passes/fusion/fusion.ts';
import { load, TABLE } from '../../plan/support.ts';

const CLUSTER = loadCluster('dgx-h100');

/** Kernels of a program of these lines, as the calls of each with the bytes that it moves. */
function kernels(...lines: readonly string[]): string[] {
  const graph = importGraph(
    `swgraph 1\ngraph @g {\n${lines.map((line) => `  ${line}`).join('\n')}\n}\n`,
  );
  return fusedGroups(graph, TABLE).map(({ nodes, bytes }) => `${nodes.join(' ')}: ${bytes}`);
}

describe('loops that are joined', () => {
  const x = 'in %x: f32[64, 128] input "x"';

  test('a chain is one kernel, which reads what is outside and writes what is read outside', () => {
    expect(
      kernels(
        x,
        '%exp = aten.exp.default(%x): f32[64, 128]',
        '%neg = aten.neg.default(%exp): f32[64, 128]',
        '%add = aten.add.Tensor(%neg, %x): f32[64, 128]',
        'out %add output 0',
      ),
    ).toEqual([`exp neg add: ${2 * 64 * 128 * 4}`]);
  });

  test('loops that read the same tensor are one kernel, which reads it once', () => {
    expect(
      kernels(
        x,
        '%exp = aten.exp.default(%x): f32[64, 128]',
        '%neg = aten.neg.default(%x): f32[64, 128]',
        'out %exp output 0',
        'out %neg output 1',
      ),
    ).toEqual([`exp neg: ${3 * 64 * 128 * 4}`]);
  });

  test('a product ends a kernel: what it reads is written', () => {
    expect(
      kernels(
        x,
        'in %w: f32[128, 128] parameter "w"',
        '%exp = aten.exp.default(%x): f32[64, 128]',
        '%mm = aten.mm.default(%exp, %w): f32[64, 128]',
        '%add = aten.add.Tensor(%mm, %exp): f32[64, 128]',
        'out %add output 0',
      ),
    ).toEqual([`exp: ${2 * 64 * 128 * 4}`, `add: ${3 * 64 * 128 * 4}`]);
  });

  test('a norm takes in what is before and behind it', () => {
    expect(
      kernels(
        'in %x: bf16[64, 128] input "x"',
        'in %y: bf16[64, 128] input "y"',
        'in %w: bf16[128] parameter "w"',
        '%add = aten.add.Tensor(%x, %y): bf16[64, 128]',
        '%norm = aten._fused_rms_norm.default(%add, [128], %w, 0.00001): (bf16[64, 128], f32[64, 1])',
        '%first = operator.getitem(%norm, 0): bf16[64, 128]',
        '%silu = aten.silu.default(%first): bf16[64, 128]',
        'out %add output 0',
        'out %silu output 1',
      ),
    ).toEqual([`add norm silu: ${4 * 64 * 128 * 2 + 128 * 2}`]);
  });

  test('rows that no cache keeps are read again for the pass behind their sum', () => {
    const loss = (classes: number): string[] =>
      kernels(
        `in %x: bf16[16, ${classes}] input "x"`,
        `%wide = aten._to_copy.default(%x, dtype=dtype:f32): f32[16, ${classes}]`,
        `%soft = aten._log_softmax.default(%wide, 1, false): f32[16, ${classes}]`,
        'out %soft output 0',
      );
    expect(loss(1000)).toEqual([`wide soft: ${16 * 1000 * (2 + 4)}`]);
    expect(loss(128_000)).toEqual([`wide soft: ${16 * 128_000 * (2 * 2 + 4)}`]);
  });

  test('the gradient of a log softmax reads its result once, and the gradient once for each pass', () => {
    const gradient = (classes: number): string[] =>
      kernels(
        `in %g: bf16[16, ${classes}] input "g"`,
        `in %soft: f32[16, ${classes}] input "soft"`,
        `%wide = aten._to_copy.default(%g, dtype=dtype:f32): f32[16, ${classes}]`,
        `%back = aten._log_softmax_backward_data.default(%wide, %soft, 1, dtype:f32): f32[16, ${classes}]`,
        'out %back output 0',
      );
    expect(gradient(1000)).toEqual([`wide back: ${16 * 1000 * (2 + 4 + 4)}`]);
    expect(gradient(128_000)).toEqual([`wide back: ${16 * 128_000 * (2 * 2 + 4 + 4)}`]);
  });

  test('behind a sum across rows, loops over what it leaves are in its kernel', () => {
    expect(
      kernels(
        x,
        '%columns = aten.sum.dim_IntList(%x, [0]): f32[128]',
        '%neg = aten.neg.default(%columns): f32[128]',
        'out %neg output 0',
      ),
    ).toEqual([`columns neg: ${64 * 128 * 4 + 128 * 4}`]);
  });

  test('behind a sum of rows, loops over other elements than the rows or their sums are apart', () => {
    const behind = (width: number): string[] =>
      kernels(
        x,
        `in %y: f32[64, ${width}] input "y"`,
        '%rows = aten.sum.dim_IntList(%x, [1], true): f32[64, 1]',
        `%add = aten.add.Tensor(%y, %rows): f32[64, ${width}]`,
        'out %rows output 0',
        'out %add output 1',
      ).map((kernel) => kernel.split(':')[0]);
    expect(behind(1)).toEqual(['rows add']);
    expect(behind(128)).toEqual(['rows add']);
    expect(behind(32)).toEqual(['rows', 'add']);
  });

  test('a kernel that took in an earlier one does not wait for itself through a product', () => {
    const [most, ...others] = kernels(
      x,
      'in %y: f32[64, 128] input "y"',
      'in %w: f32[128, 128] parameter "w"',
      '%exp = aten.exp.default(%x): f32[64, 128]',
      '%mm = aten.mm.default(%exp, %w): f32[64, 128]',
      '%neg = aten.neg.default(%y): f32[64, 128]',
      '%add = aten.add.Tensor(%exp, %neg): f32[64, 128]',
      '%last = aten.add.Tensor(%mm, %add): f32[64, 128]',
      'out %add output 0',
      'out %last output 1',
    );
    // The product reads what the first kernel writes, and the second kernel reads the product.
    expect(most).toBe(`exp neg add: ${4 * 64 * 128 * 4}`);
    expect(others).toEqual([`last: ${3 * 64 * 128 * 4}`]);
  });

  // Inductor's `realize_reads_threshold`: a buffer of more than four reads is written.
  test.each([
    [4, ['a1 a2 a3 s', 4, 't', 4]],
    [5, ['a1 a2 a3 a4 s', 6, 't', 1]],
  ] as const)('of %i tensors, too, and of more it is not', (count, expected) => {
    const last = `a${count - 1}`;
    const adds = Array.from(
      { length: count - 1 },
      (_, k) =>
        `%a${k + 1} = aten.add.Tensor(%${k === 0 ? 'x0' : `a${k}`}, %x${k + 1}): f32[64, 128]`,
    );
    const found = kernels(
      ...Array.from({ length: count }, (_, k) => `in %x${k}: f32[64, 128] input "x${k}"`),
      ...adds,
      `%s = aten.sum.dim_IntList(%${last}, [1]): f32[64]`,
      `%t = aten.sum.dim_IntList(%${last}, [0]): f32[128]`,
      'out %s output 0',
      'out %t output 1',
    );
    const tensors = found.flatMap((text) => {
      const [names, bytes] = text.split(': ');
      return [names, Math.floor(Number(bytes) / (64 * 128 * 4))];
    });
    expect(tensors).toEqual(expected);
  });

  test('a loop that two kernels need is made again where it reads few tensors', () => {
    expect(
      kernels(
        x,
        '%exp = aten.exp.default(%x): f32[64, 128]',
        '%rows = aten.sum.dim_IntList(%exp, [1]): f32[64]',
        '%columns = aten.sum.dim_IntList(%exp, [0]): f32[128]',
        'out %rows output 0',
        'out %columns output 1',
      ),
    ).toEqual([`exp rows: ${64 * 128 * 4 + 64 * 4}`, `columns: ${64 * 128 * 4 + 128 * 4}`]);
  });

  const WHOLE = 64 * 128 * 4;

  test('of a part of a part that another kernel reads, that part of the sources is read', () => {
    expect(
      kernels(
        x,
        '%half = aten.slice.Tensor(%x, 0, 0, 32): f32[32, 128]',
        '%neg = aten.neg.default(%half): f32[32, 128]',
        '%quarter = aten.slice.Tensor(%neg, 0, 0, 16): f32[16, 128]',
        '%exp = aten.exp.default(%quarter): f32[16, 128]',
        '%columns = aten.sum.dim_IntList(%exp, [0]): f32[128]',
        '%eighth = aten.slice.Tensor(%exp, 0, 0, 8): f32[8, 128]',
        '%all = aten.sum.default(%eighth): f32[]',
        'out %columns output 0',
        'out %all output 1',
      ),
    ).toEqual([`columns: ${WHOLE / 4 + 128 * 4}`, `all: ${WHOLE / 8 + 4}`]);
  });

  test('of a part of what is in memory, that part is read', () => {
    expect(
      kernels(
        x,
        '%exp = aten.exp.default(%x): f32[64, 128]',
        '%rows = aten.sum.dim_IntList(%exp, [1]): f32[64]',
        '%half = aten.slice.Tensor(%exp, 0, 0, 32): f32[32, 128]',
        '%columns = aten.sum.dim_IntList(%half, [0]): f32[128]',
        '%few = aten.slice.Tensor(%rows, 0, 0, 16): f32[16]',
        '%all = aten.sum.default(%few): f32[]',
        'out %exp output 0',
        'out %columns output 1',
        'out %all output 2',
      ),
    ).toEqual([
      `exp rows: ${2 * WHOLE + 64 * 4}`,
      `columns: ${WHOLE / 2 + 128 * 4}`,
      `all: ${16 * 4 + 4}`,
    ]);
  });

  test('what is decided of a value counts for those that are made of it', () => {
    // `b` is read first; `a`, of which it is made, is written, being made of five tensors.
    expect(
      kernels(
        ...Array.from({ length: 5 }, (_, k) => `in %x${k}: f32[64, 128] input "x${k}"`),
        ...[1, 2, 3, 4].map(
          (k) => `%a${k} = aten.add.Tensor(%${k === 1 ? 'x0' : `a${k - 1}`}, %x${k}): f32[64, 128]`,
        ),
        '%b = aten.exp.default(%a4): f32[64, 128]',
        '%first = aten.sum.dim_IntList(%b, [0]): f32[128]',
        '%second = aten.sum.default(%a4): f32[]',
        'out %first output 0',
        'out %second output 1',
      ),
    ).toEqual([`a1 a2 a3 a4 b: ${6 * WHOLE}`, `first: ${WHOLE + 128 * 4}`, `second: ${WHOLE + 4}`]);
  });

  test('a sum is written, also for a kernel that reads what is made of it', () => {
    expect(
      kernels(
        x,
        '%rows = aten.sum.dim_IntList(%x, [1]): f32[64]',
        '%exp = aten.exp.default(%rows): f32[64]',
        '%all = aten.sum.default(%exp): f32[]',
        'out %all output 0',
      ),
    ).toEqual([`rows exp: ${WHOLE + 64 * 4}`, `all: ${64 * 4 + 4}`]);
  });

  test('what is looked up is written for the other kernels that read it, and so is a table that is made', () => {
    const table = 100 * 128 * 4;
    expect(
      kernels(
        'in %w: f32[100, 128] parameter "w"',
        'in %i: i64[64] input "i"',
        '%twice = aten.mul.Tensor(%w, 2): f32[100, 128]',
        '%next = aten.add.Tensor(%i, 1): i64[64]',
        '%found = aten.embedding.default(%twice, %next): f32[64, 128]',
        '%rows = aten.sum.dim_IntList(%found, [1]): f32[64]',
        '%columns = aten.sum.dim_IntList(%found, [0]): f32[128]',
        'out %rows output 0',
        'out %columns output 1',
      ),
    ).toEqual([
      `twice: ${2 * table}`,
      // Numbers of rows, rows that are looked up, those written, and their sums.
      `found rows: ${64 * 8 + 2 * WHOLE + 64 * 4}`,
      `columns: ${WHOLE + 128 * 4}`,
    ]);
  });

  test('what a loop does not read is not read where it is made again', () => {
    const [classes, labels] = [64 * 128 * 4, 64 * 8];
    const found = kernels(
      'in %logits: f32[64, 128] input "logits"',
      'in %labels: i64[64] input "labels"',
      'in %slope: f32[] input "slope"',
      'in %count: f32[] input "count"',
      '%back = aten.nll_loss_backward.default(%slope, %logits, %labels, none, 1, -100, %count): f32[64, 128]',
      '%rows = aten.sum.dim_IntList(%back, [1]): f32[64]',
      '%columns = aten.sum.dim_IntList(%back, [0]): f32[128]',
      'out %rows output 0',
      'out %columns output 1',
    );
    expect(found).toEqual([
      `back rows: ${labels + 2 * 4 + 64 * 4}`,
      `columns: ${labels + 2 * 4 + 128 * 4}`,
    ]);
    expect(classes).toBeGreaterThan(labels);
  });

  test('a tensor that begins the program is written for a product', () => {
    expect(
      kernels(
        '%ones = aten.full.default([64, 64], 1.5): f32[64, 64]',
        '%mm = aten.mm.default(%ones, %ones): f32[64, 64]',
        'out %mm output 0',
      ),
    ).toEqual([`ones: ${64 * 64 * 4}`]);
  });

  test('the backward pass finds what the forward pass left in memory', () => {
    expect(
      kernels(
        x,
        '%exp = aten.exp.default(%x): f32[64, 128] ; forward',
        '%neg = aten.neg.default(%exp): f32[64, 128] ; backward',
        'out %neg grad "x"',
      ),
    ).toEqual([`exp: ${2 * 64 * 128 * 4}`, `neg: ${2 * 64 * 128 * 4}`]);
  });
});

test.each([
  'torch/mlp/joint.expanded',
  'torch/llama-tiny/joint.expanded',
  'torch/gpt2-2l/joint.expanded',
])('%s: no kernel waits for itself, none is in two, and joined kernels move no more', (model) => {
  const graph = load(model);
  const groups = fusedGroups(graph, TABLE);
  const kernelOf = new Map<string, string>(
    groups.flatMap(({ nodes }, k) =>
      nodes.map((node) => [node, `kernel ${k}`] as [string, string]),
    ),
  );
  expect(kernelOf.size).toBe(groups.reduce((sum, { nodes }) => sum + nodes.length, 0));
  // Kernels in an order in which each stands behind those that it reads: there is one if nothing
  // goes round.
  const reads = new Map<string, Set<string>>();
  for (const node of graph.nodes) {
    // A view, and a member of a tuple, is where its source is.
    const isView = node.target === 'operator.getitem' || TABLE.get(node.target)?.cls === 'view';
    if (isView) eachOperand(node, (name) => kernelOf.set(node.name, kernelOf.get(name) ?? name));
    const own = kernelOf.get(node.name) ?? node.name;
    const sources = reads.get(own) ?? new Set<string>();
    reads.set(own, sources);
    eachOperand(node, (name) => {
      const source = kernelOf.get(name) ?? name;
      if (source !== own) sources.add(source);
    });
  }
  for (let left = -1; left !== reads.size;) {
    left = reads.size;
    for (const [kernel, sources] of reads)
      if ([...sources].every((source) => !reads.has(source))) reads.delete(kernel);
  }
  expect([...reads.keys()]).toEqual([]);
  const cost = fusedComputeSeconds(graph, TABLE, CLUSTER);
  expect(cost.fusedSeconds).toBeLessThanOrEqual(cost.eagerSeconds);
  expect(cost.fusedKernels).toBeLessThanOrEqual(cost.eagerKernels);
  for (const [name, { inputs, outputs }] of compiledTraffic(graph, TABLE))
    for (const share of [...inputs, ...outputs]) expect(share, name).toBeGreaterThanOrEqual(0);
});

test.each([
  // Zeros, and one addition for each element of the gradient, which reads and writes the sum.
  ['f32', { inputs: [1 + 2, 1], outputs: [1], kernels: 2 }],
  // The sums have 32 bits, twice those of the table, and are read once more where they are cast.
  ['bf16', { inputs: [1 + 2 * 2, 1], outputs: [2 + 2 + 1], kernels: 3 }],
])('the gradient of a table of %s is added up in 32 bits', (dtype, traffic) => {
  const graph = importGraph(
    `swgraph 1\ngraph @g {
  in %g: ${dtype}[16, 64] input "g"
  in %ids: i64[16] input "ids"
  %table = aten.embedding_dense_backward.default(%g, %ids, 1000, -1, false): ${dtype}[1000, 64]
  out %table output 0
}
`,
  );
  expect(compiledTraffic(graph, TABLE).get('table')).toMatchObject(traffic);
});
