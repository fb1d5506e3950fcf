import { describe, expect, test } from 'vitest';

import { importGraph } from '../../../src/import/import.ts';
import { infer, refusal } from '../twins.ts';

const HEAD =
  'class GraphModule(torch.nn.Module):\n    def forward(self, b_count: "i64[]", x: "f32[4, 16]"):\n';
const build = (body: string): string => HEAD + body.replace(/^/gm, '        ');

describe('values instead of changes in place', () => {
  test('later uses of the old name mean the result; a changed buffer is returned as a mutation', () => {
    const graph = importGraph(
      build(
        'add_: "i64[]" = torch.ops.aten.add_.Tensor(b_count, 1)\n' +
          'relu_: "f32[4, 16]" = torch.ops.aten.relu_.default(x)\n' +
          'mul_: "f32[4, 16]" = torch.ops.aten.mul_.Tensor(relu_, 2)\n' +
          'neg: "f32[4, 16]" = torch.ops.aten.neg.default(x)\n' +
          'sum_1: "f32[4, 16]" = torch.ops.aten.add.Tensor(relu_, b_count)\n' +
          'return (neg, sum_1)',
      ),
      { infer },
    );
    const args = (name: string): unknown => graph.nodes.find((n) => n.name === name)?.args;
    expect(args('neg')).toEqual([{ kind: 'value', name: 'mul_' }]);
    expect(args('sum_1')).toEqual([
      { kind: 'value', name: 'mul_' },
      { kind: 'value', name: 'add_' },
    ]);
    expect(graph.outputs).toEqual([
      { value: 'add_', role: 'mutation', of: 'b_count' },
      { value: 'mul_', role: 'mutation', of: 'x' },
      { value: 'neg', role: 'output', index: 0 },
      { value: 'sum_1', role: 'output', index: 1 },
    ]);
  });

  test.each([
    ['an input', 'relu_: "f32[64]" = torch.ops.aten.relu_.default(view)', 'relu_'],
    [
      'an input that was changed before',
      'add_: "f32[4, 16]" = torch.ops.aten.add_.Tensor(x, 1);  relu_: "f32[64]" = torch.ops.aten.relu_.default(view)',
      'add_',
    ],
  ])(
    '%s that is changed through a view is refused: its new value would be lost',
    (_, change, by) => {
      const text = build(
        `view: "f32[64]" = torch.ops.aten.view.default(x, [64])\n${change.replaceAll(';  ', '\n')}\nneg: "i64[]" = torch.ops.aten.neg.default(b_count)\nreturn (neg,)`,
      );
      expect(refusal(() => importGraph(text, { infer })).headline).toMatch(
        new RegExp(
          `E_UNSUPPORTED '(x|view)' shares memory with a value that ${by} changed in place`,
        ),
      );
    },
  );

  test('a view that is read after its memory was changed through another name is refused', () => {
    const text = build(
      'view: "f32[64]" = torch.ops.aten.view.default(x, [64])\n' +
        'relu_: "f32[4, 16]" = torch.ops.aten.relu_.default(x)\n' +
        'neg: "f32[64]" = torch.ops.aten.neg.default(view)\n' +
        'return (neg, relu_)',
    );
    const error = refusal(() => importGraph(text, { infer }));
    expect(error.headline).toBe(
      `5:1: E_UNSUPPORTED 'view' shares memory with a value that relu_ changed in place (node neg)`,
    );
    expect(error.details.hint).toContain('run_decompositions');
  });

  test.each([
    ['unfold.default(x, 1, 4, 2)', 'f32[4, 7, 4]'],
    ['swapaxes.default(x, 0, 1)', 'f32[16, 4]'],
    ['moveaxis.int(x, 0, 1)', 'f32[16, 4]'],
    ['broadcast_to.default(x, [2, 4, 16])', 'f32[2, 4, 16]'],
    ['ravel.default(x)', 'f32[64]'],
    ['positive.default(x)', 'f32[4, 16]'],
  ])('%s is a view, as its schema says', (call, type) => {
    const text = build(
      `view: "${type}" = torch.ops.aten.${call}\n` +
        'relu_: "f32[4, 16]" = torch.ops.aten.relu_.default(x)\n' +
        `neg: "${type}" = torch.ops.aten.neg.default(view)\n` +
        'return (neg, relu_)',
    );
    expect(refusal(() => importGraph(text, { infer })).headline).toMatch(/shares memory/);
  });

  test('results of one call are memory of their own; pieces of a split are not', () => {
    const two = (call: string, types: [string, string]): string =>
      build(
        `pair = ${call}\na: "${types[0]}" = pair[0]\nb: "${types[1]}" = pair[1]\nc_: "${types[0]}" = torch.ops.aten.mul_.Tensor(a, 2)\nreturn (b, c_)`,
      );
    const topk = two('torch.ops.aten.topk.default(x, 4)', ['f32[4, 4]', 'i64[4, 4]']);
    expect(importGraph(topk, { infer }).outputs).toHaveLength(2);
    const split = two('torch.ops.aten.split.Tensor(x, 2)', ['f32[2, 16]', 'f32[2, 16]']);
    expect(refusal(() => importGraph(split, { infer })).code).toBe('E_UNSUPPORTED');
  });
});
