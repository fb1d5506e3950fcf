import { join } from 'node:path';

import { describe, expect, test } from 'vitest';

import { lintGraph } from '../../src/graph/lint.ts';
import { importGraph, importModel } from '../../src/import/import.ts';
import { programFlops } from '../../src/ops/program-flops.ts';
import { cli } from '../cli/support.ts';
import { corpus, corpusFile, fileOf } from './corpus.ts';
import { text } from './fixtures.ts';
import { content, infer, refusal, table } from './twins.ts';

/**
 * Repro files of Inductor, written by torch 2.13
 * (`torch._dynamo.repro.after_aot.save_graph_repro`): the two graphs of the MLP of the corpus
 * compiled with a dynamic batch of 8, and a program with collectives over a fake group of 8.
 */
const FORWARD = text('repro/mlp-forward.py.gz');
const BACKWARD = text('repro/mlp-backward.py.gz');
const SHARDED = text('repro/sharded.py.gz');

const shapes = (source: string): unknown[] =>
  importGraph(source, { infer }).nodes.map(({ name, type }) => [
    name,
    type.kind === 'tensor'
      ? [type.dtype, ...type.shape.map((d) => (typeof d === 'number' ? d : d.sym))]
      : type.kind === 'sym'
        ? type.expr
        : type.kind,
  ]);

describe('Inductor repro files', () => {
  test('types come from load_args: default float32, a size, strides; all others are inferred', () => {
    const { graph, format } = importModel(FORWARD, { infer });
    expect([format, graph.name]).toEqual(['fx', 'Repro']);
    expect(shapes(FORWARD)).toEqual([
      ['primals_1', ['f32', 256, 128]],
      ['primals_2', ['f32', 256]],
      ['primals_3', 's33'],
      ['primals_4', ['f32', 's33', 128]],
      ['primals_5', ['f32', 64, 256]],
      ['primals_6', ['f32', 64]],
      ['t', ['f32', 128, 256]],
      ['addmm', ['f32', 's33', 256]],
      ['relu', ['f32', 's33', 256]],
      ['detach', ['f32', 's33', 256]],
      ['t_1', ['f32', 256, 64]],
      ['addmm_1', ['f32', 's33', 64]],
    ]);
    const backward = importGraph(BACKWARD, { infer });
    expect(backward.nodes.find((n) => n.name === 't_1')?.type).toEqual({
      kind: 'tensor',
      dtype: 'f32',
      shape: [256, 64],
      stride: [1, 256],
    });
  });

  test('the work is that of the graphs of the corpus: the example batch is known', () => {
    for (const [source, id] of [
      [FORWARD, 'mlp/forward'],
      [BACKWARD, 'mlp/backward'],
    ]) {
      const record = corpus.find((r) => r.id === id)!;
      const twin = importGraph(corpusFile(fileOf(record, '.readable.txt')!), { infer });
      const graph = importGraph(source, { infer });
      expect(programFlops(graph, table).total).toBe(record.graph_flops?.total);
      expect(programFlops(graph, table).total).toBe(programFlops(twin, table).total);
    }
  });

  test('typed by hand, the same graph', () => {
    // The class alone, with the annotations that print_readable writes.
    const typed = FORWARD.slice(FORWARD.indexOf('class Repro'), FORWARD.indexOf('def load_args'))
      .replace('class Repro', 'class Graph')
      .replace(
        'primals_1, primals_2, primals_3, primals_4, primals_5, primals_6)',
        'primals_1: "f32[256, 128]", primals_2: "f32[256]", primals_3: "Sym(s33)", primals_4: "f32[s33, 128]", primals_5: "f32[64, 256]", primals_6: "f32[64]")',
      );
    expect(content(importGraph(FORWARD, { infer }))).toEqual(
      content(importGraph(typed, { infer })),
    );
  });

  test('a program of one rank: collectives have types, the group is noted, plan refuses it', async () => {
    const graph = importGraph(SHARDED, { infer });
    lintGraph(graph, infer);
    expect(shapes(SHARDED).slice(0, 3)).toEqual([
      ['x_1', ['f32', 16, 64]],
      ['w_1', ['f32', 8, 32]],
      ['idx_1', ['i64', 16, 3]],
    ]);
    // Shapes that PyTorch gave when it ran the program.
    const type = (name: string): unknown => graph.nodes.find((n) => n.name === name)?.type;
    expect([type('wait_tensor'), type('wait_tensor_2'), type('wait_tensor_3')]).toMatchObject([
      { shape: [64, 32] },
      { shape: [2, 32] },
      { shape: [16, 3] },
    ]);
    expect(graph.notes?.join(' ')).toContain(`already sharded: rank 0 of 8 in group '0'`);
    const file = join(import.meta.dirname, '..', 'fixtures', 'torch', 'repro', 'sharded.py.gz');
    const run = await cli(
      'plan',
      '-v',
      file,
      '--mesh',
      'x=8',
      '--cluster',
      'dgx-h100',
      '--unknown',
      'replicate',
    );
    expect([run.code, run.err]).toEqual([
      2,
      expect.stringContaining('already the program of one rank'),
    ]);
  });

  test('older files: sizes without an expression, settings before the imports, an int64 input', () => {
    const old = FORWARD.slice(FORWARD.indexOf('import torch'))
      .replaceAll('s33', '8')
      .replace(`reader.symint(8, expr='8')`, 'reader.symint(8)');
    const env = `os.environ['A'] = 'b'\n${old}`;
    expect(shapes(env).slice(2, 4)).toEqual([
      ['primals_3', '8'],
      ['primals_4', ['f32', 8, 128]],
    ]);
    const typed = SHARDED.replace('dtype=torch.int64, is_leaf', 'dtype=torch.int32, is_leaf');
    expect(shapes(typed)[2]).toEqual(['idx_1', ['i32', 16, 3]]);
  });

  const told = (source: string): string => {
    const { headline, details } = refusal(() => importGraph(source, { infer }));
    expect(details.hint ?? '').not.toBe('');
    return headline;
  };
  const line = (part: string): number => FORWARD.slice(0, FORWARD.indexOf(part)).split('\n').length;
  test.each<[what: string, from: string, to: string, at: string, column: number, message: string]>([
    [
      'no load_args',
      'def load_args',
      'def other_args',
      'def load_args',
      1,
      `E_SYNTAX expected 'def load_args(reader):' behind the class, which gives the types of the inputs`,
    ],
    [
      'an input too few',
      '    reader.tensor(buf4, (64,), is_leaf=True)  # primals_6\n',
      '',
      'def load_args',
      1,
      'E_TYPE load_args makes 5 values, forward takes 6',
    ],
    [
      'an order of its own',
      '# primals_1',
      '# primals_2',
      '# primals_1',
      5,
      `E_REF value 0 of load_args is 'primals_2', input 0 of forward is 'primals_1'`,
    ],
    [
      'an unknown storage',
      'reader.tensor(buf1',
      'reader.tensor(buf7',
      'reader.tensor(buf1',
      19,
      `E_REF storage 'buf7' is not defined`,
    ],
    [
      'a storage too small',
      '(None, 1024)',
      '(None, 1020)',
      'reader.tensor(buf1',
      19,
      `E_TYPE the tensor needs 1024 bytes, 'buf1' has 1020`,
    ],
    [
      'an unknown dtype',
      '(64,), is_leaf',
      '(64,), dtype=torch.int63, is_leaf',
      '(64,), is_leaf',
      38,
      `E_TYPE 'torch.int63' is not a dtype`,
    ],
    ['a negative size', '(256,)', '(-256,)', '(256,)', 26, `E_TYPE '-256' is not a size`],
    [
      'an open bracket',
      '(256,), is_leaf=True)',
      '(256,, is_leaf=True)',
      '(256,), is_leaf',
      58,
      `E_SYNTAX expected ')', found the end of the line`,
    ],
    [
      'a generator',
      `reader.symint(8, expr='s33')`,
      `reader.generator('cpu', 0)`,
      'reader.symint',
      5,
      'E_UNSUPPORTED reader.generator: an input that is neither a tensor nor a size',
    ],
    [
      'code',
      `reader.symint(8, expr='s33')`,
      '__import__("os").system("x")',
      'reader.symint',
      5,
      `E_SYNTAX expected a call of reader, found '__import__("os").system("x")  # primals_'`,
    ],
    [
      'a wrong graph',
      'addmm.default(primals_2, primals_4, t)',
      'addmm.default(primals_2, primals_4, q)',
      'addmm.default(primals_2',
      68,
      `E_REF 'q' is not defined`,
    ],
  ])('%s', (_, from, to, at, column, message) => {
    expect(FORWARD).toContain(from);
    expect(told(FORWARD.replace(from, to))).toBe(`${line(at)}:${column}: ${message}`);
  });

  test('a scatter that does not divide, an exchange of other sizes', () => {
    expect(told(SHARDED.replace(`(mm, 'sum', 8`, `(mm, 'sum', 7`))).toContain(
      'reduce_scatter_tensor.default: 16 rows over 7 members',
    );
    expect(
      told(SHARDED.replace('(idx_1, [2, 2,', '(idx_1, [2, 3,').replace('], [2, 2,', '], [3, 2,')),
    ).toContain('sends 17 rows of 16');
  });
});
