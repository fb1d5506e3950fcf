import { describe, expect, test } from 'vitest';

import { parseGraph } from '../../src/graph/text/parse.ts';
import { functionalForm } from '../../src/ops/record/in-place.ts';
import { COMPOSITES } from '../../src/ops/vjp/composite/composite.ts';
import { isRowMajor, splitsOnly, statedOrder } from '../../src/ops/vjp/layout.ts';
import { vjpOf } from '../../src/ops/vjp/table.ts';
import { forwardPart, withoutDeadCode } from '../../src/passes/dead-code.ts';
import { graphOf, table } from './joint-support.ts';

describe('dead code', () => {
  test('calls and bodies that no output needs go, placeholders stay', () => {
    const graph = parseGraph(`swgraph 1
graph @main {
  in %x: f32[2] input "x"
  in %unused: f32[2] input "unused"
  %a = aten.sin.default(%x): f32[2]
  %b = aten.cos.default(%a): f32[2]
  %c = map(@body, [%x], []): (f32[2])
  out %a output 0
  graph @body {
    in %y: f32[] arg 0
    %z = aten.sin.default(%y): f32[]
    out %z output 0
  }
}
`);
    const kept = withoutDeadCode(graph);
    expect(kept.nodes.map((node) => node.name)).toEqual(['x', 'unused', 'a']);
    expect(Object.keys(kept.subgraphs)).toEqual([]);
    expect(withoutDeadCode(kept)).toBe(kept);
  });

  test('the forward part of a joint graph has no tangents, gradients or saved copies', () => {
    const forward = forwardPart(graphOf('mlp', 'joint'));
    expect(forward.nodes.filter((n) => n.kind === 'call').map((n) => n.name)).toEqual([
      't',
      'addmm',
      'relu',
      't_1',
      'addmm_1',
    ]);
    expect(forward.outputs.map((o) => o.role)).toEqual(['output']);
  });
});

describe('what derivatives are made with', () => {
  test('every in-place operator has a functional form in the table, but for random fills', () => {
    const inPlace = table.records
      .map((r) => r.name)
      .filter((name) => /[a-z0-9]_\.\w+$|^aten\.__i/.test(name));
    const without = inPlace.filter((name) => table.get(functionalForm(name) ?? '') === undefined);
    expect(without).toEqual(
      [
        'bernoulli_.float',
        'normal_.default',
        'uniform_.default',
        'exponential_.default',
        'log_normal_.default',
        'geometric_.default',
        'cauchy_.default',
      ].map((n) => `aten.${n}`),
    );
    expect(functionalForm('aten.index_put_.default')).toBe('aten.index_put.default');
    expect(functionalForm('aten.add.Tensor')).toBeUndefined();
  });

  test('a composite operator is either replaced or differentiated by itself, and listed in order', () => {
    const both = Object.keys(COMPOSITES)
      .sort()
      .filter((name) => vjpOf(name) !== undefined);
    // Both ways: as a view, and as the call with what its derivative needs.
    expect(both).toEqual(
      [
        '_scaled_dot_product_efficient_attention.default',
        'flatten.using_ints',
        'reshape.default',
        'to.dtype',
        'unflatten.int',
      ].map((n) => `aten.${n}`),
    );
  });

  test.each<[readonly number[], readonly number[], boolean]>([
    [[6, 4], [2, 3, 4], true],
    [[6, 4], [24], false],
    [[6, 4], [6, 1, 2, 2], true],
    [[2, 3], [3, 2], false],
    [[1, 6], [6], true],
    [[4, 6], [2, 4, 3], false],
    [[], [1, 1], true],
  ])('a reshape of %j to %j only splits dims: %s', (from, to, splits) => {
    expect(splitsOnly(from, to)).toBe(splits);
  });

  test('the memory order follows the strides', () => {
    const order = (shape: readonly number[], stride?: readonly number[]) =>
      statedOrder({
        kind: 'tensor',
        dtype: 'f32',
        shape,
        ...(stride === undefined ? {} : { stride }),
      });
    expect(order([2, 3], [1, 2])).toEqual([1, 0]);
    expect(order([2, 3])).toEqual([0, 1]);
    expect(order([2, 4, 32, 16], [2048, 16, 64, 1])).toEqual([0, 2, 1, 3]);
    // Every second column, and one row shown twice.
    expect(order([2, 3], [6, 2])).toBeNull();
    expect(order([2, 3], [0, 1])).toBeNull();
    expect(isRowMajor(order([2, 1, 3], [3, 1, 1]))).toBe(true);
  });
});
