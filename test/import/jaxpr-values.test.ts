import { describe, expect, it } from 'vitest';

import { builtinOperators } from '../../src/entries/ops.ts';
import { importGraph } from '../../src/import/import.ts';
import { type ElementType, flat, fromFlat, NDArray } from '../../src/ndarray/array.ts';
import { evaluateGraph } from '../../src/simulate/evaluate.ts';
import { refusal } from '../support/thrown.ts';

const table = builtinOperators();
const array = (dtype: ElementType, shape: readonly number[], data: readonly number[]): NDArray =>
  fromFlat(shape, Float64Array.from(data), dtype);

/** The numbers of each result of a jaxpr. */
function results(text: string, inputs: readonly NDArray[]): number[][] {
  const { outputs } = evaluateGraph(table, importGraph(text), inputs);
  return outputs.map((value) => (value instanceof NDArray ? [...flat(value)] : []));
}

/** Texts are those that JAX 0.10.2 prints, numbers those that it computes. */
describe('a jaxpr has the numbers of JAX', () => {
  it('reshape that reads dims in another order, as the gradient of a grouped convolution does', () => {
    const text = `{ lambda ; a:f32[2,3]. let
    b:f32[6] = reshape[dimensions=(1, 0) new_sizes=(6,) sharding=None] a
    c:f32[2,1,3] = expand_dims[dimensions=(1,)] a
    d:f32[2,3] = squeeze[dimensions=(1,)] c
  in (b, d) }`;
    const numbers = [0, 1, 2, 3, 4, 5];
    expect(results(text, [array('f32', [2, 3], numbers)])).toEqual([[0, 3, 1, 4, 2, 5], numbers]);
  });

  it('tile and stack', () => {
    const text = `{ lambda ; a:f32[1,2]. let
    b:f32[2,4] = tile[reps=(2, 2)] a
    c:f32[1,2,2] = stack[axis=2] a a
  in (b, c) }`;
    expect(results(text, [array('f32', [1, 2], [7, 8])])).toEqual([
      [7, 8, 7, 8, 7, 8, 7, 8],
      [7, 7, 8, 8],
    ]);
  });

  it('select_n of a number, as vmap of a switch makes it', () => {
    const text = `{ lambda ; a:i32[4] b:f32[4] c:f32[4] d:f32[4]. let
    e:f32[4] = select_n a b c d
  in (e,) }`;
    const of = (...data: readonly number[]): NDArray => array('f32', [4], data);
    const which = array('i32', [4], [2, 0, 1, 2]);
    expect(results(text, [which, of(1, 2, 3, 4), of(5, 6, 7, 8), of(9, 10, 11, 12)])).toEqual([
      [9, 2, 7, 12],
    ]);
  });

  const gather = (mode: string, fill: string): string => `{ lambda ; a:f32[3,2] b:i32[4,2]. let
    c:f32[4,1] = gather[
      dimension_numbers=GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0, 1), operand_batching_dims=(), start_indices_batching_dims=())
      fill_value=${fill}
      indices_are_sorted=False
      mode=GatherScatterMode.${mode}
      slice_sizes=(1, 1)
      unique_indices=False
    ] a b
  in (c,) }`;

  it('a gather that fills what lies behind the end with a number', () => {
    const table = array('f32', [3, 2], [0, 1, 2, 3, 4, 5]);
    const rows = array('i32', [4, 2], [0, 1, 3, 0, 2, 1, 1, -1]);
    expect(results(gather('FILL_OR_DROP', '9.0'), [table, rows])).toEqual([[1, 9, 5, 9]]);
    expect(results(gather('CLIP', 'None'), [table, rows])).toEqual([[1, 4, 5, 2]]);
  });

  it('a gather that fills with the value of its dtype, of which narrow indices know no bound', () => {
    const take = (
      dtype: string,
      index: string,
      fill: string,
    ): string => `{ lambda ; a:${dtype}[200] b:${index}[3,1]. let
    c:${dtype}[3] = gather[
      dimension_numbers=GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,), operand_batching_dims=(), start_indices_batching_dims=())
      fill_value=${fill}
      indices_are_sorted=False
      mode=GatherScatterMode.FILL_OR_DROP
      slice_sizes=(1,)
      unique_indices=False
    ] a b
  in (c,) }`;
    const numbers = Array.from({ length: 200 }, (_, i) => i);
    const of = (
      dtype: ElementType,
      rows: readonly number[],
      index: ElementType = 'i32',
    ): NDArray[] => [
      array(dtype, [200], dtype === 'b8' ? numbers.map(() => 0) : numbers),
      array(index, [3, 1], rows),
    ];
    expect(results(take('f32', 'i32', 'nan'), of('f32', [5, 200, -1]))).toEqual([[5, NaN, NaN]]);
    expect(results(take('f32', 'i32', 'None'), of('f32', [5, 200, -1]))).toEqual([[5, NaN, NaN]]);
    expect(results(take('f32', 'i32', '-inf'), of('f32', [199, 200, 0]))).toEqual([
      [199, -Infinity, 0],
    ]);
    expect(results(take('f32', 'i8', 'nan'), of('f32', [5, 127, -1], 'i8'))).toEqual([
      [5, 127, NaN],
    ]);
    expect(results(take('i32', 'i32', 'None'), of('i32', [5, 200, -1]))).toEqual([
      [5, -(2 ** 31), -(2 ** 31)],
    ]);
    expect(results(take('u32', 'i32', '4294967295'), of('u32', [5, 200, 1]))).toEqual([
      [5, 2 ** 32 - 1, 1],
    ]);
    expect(results(take('bool', 'i32', 'True'), of('b8', [5, 200, 1]))).toEqual([[0, 1, 0]]);
  });

  it('a gather and a scatter of one place, which no index names', () => {
    const text = `{ lambda ; a:f32[3] b:i32[0] c:f32[3]. let
    d:f32[3] = gather[
      dimension_numbers=GatherDimensionNumbers(offset_dims=(0,), collapsed_slice_dims=(), start_index_map=(), operand_batching_dims=(), start_indices_batching_dims=())
      fill_value=nan
      indices_are_sorted=False
      mode=GatherScatterMode.FILL_OR_DROP
      slice_sizes=(3,)
      unique_indices=False
    ] a b
    e:f32[3] = scatter-add[
      dimension_numbers=ScatterDimensionNumbers(update_window_dims=(0,), inserted_window_dims=(), scatter_dims_to_operand_dims=(), operand_batching_dims=(), scatter_indices_batching_dims=())
      indices_are_sorted=False
      mode=GatherScatterMode.CLIP
      unique_indices=False
      update_consts=()
      update_jaxpr=None
    ] a b c
  in (d, e) }`;
    const [a, c] = [array('f32', [3], [1, 2, 3]), array('f32', [3], [10, 20, 30])];
    expect(results(text, [a, array('i32', [0], []), c])).toEqual([
      [1, 2, 3],
      [11, 22, 33],
    ]);
  });

  const scatter = (
    primitive: string,
    mode: string,
    body = 'None',
  ): string => `{ lambda ; a:f32[4] b:i32[4,1] c:f32[4,2]. let
    d:f32[4] = ${primitive}[
      dimension_numbers=ScatterDimensionNumbers(update_window_dims=(1,), inserted_window_dims=(), scatter_dims_to_operand_dims=(0,), operand_batching_dims=(), scatter_indices_batching_dims=())
      indices_are_sorted=False
      mode=GatherScatterMode.${mode}
      unique_indices=False
      update_consts=()
      update_jaxpr=${body}
    ] a b c
  in (d,) }`;

  it('a scatter of windows that lie partly or wholly outside', () => {
    const inputs = [
      array('f32', [4], [0, 1, 2, 3]),
      array('i32', [4, 1], [3, 1, -1, 7]),
      array('f32', [4, 2], [10, 20, 1, 2, 100, 200, 5, 5]),
    ];
    expect(results(scatter('scatter-add', 'FILL_OR_DROP'), inputs)).toEqual([[0, 2, 4, 3]]);
    expect(results(scatter('scatter-add', 'PROMISE_IN_BOUNDS'), inputs)).toEqual([[0, 2, 4, 3]]);
    expect(results(scatter('scatter-add', 'CLIP'), inputs)).toEqual([[100, 202, 19, 28]]);
    expect(results(scatter('scatter-sub', 'FILL_OR_DROP'), inputs)).toEqual([[0, 0, 0, 3]]);
  });

  it('a scatter that moves vectors of two indices inside', () => {
    const text = `{ lambda ; a:f32[2,3] b:i32[3,2] c:f32[3]. let
    d:f32[2,3] = scatter[
      dimension_numbers=ScatterDimensionNumbers(update_window_dims=(), inserted_window_dims=(0, 1), scatter_dims_to_operand_dims=(1, 0), operand_batching_dims=(), scatter_indices_batching_dims=())
      indices_are_sorted=False
      mode=GatherScatterMode.CLIP
      unique_indices=False
      update_consts=()
      update_jaxpr=None
    ] a b c
  in (d,) }`;
    const inputs = [
      array('f32', [2, 3], [0, 0, 0, 0, 0, 0]),
      array('i32', [3, 2], [9, 0, -4, 9, 1, -1]),
      array('f32', [3], [1, 2, 3]),
    ];
    expect(results(text, inputs)).toEqual([[0, 3, 1, 2, 0, 0]]);
  });

  it('a function that is applied in place', () => {
    const body = '{ lambda ; e:f32[] f:f32[]. let g:f32[] = mul e e in (g,) }';
    const inputs = [
      array('f32', [4], [2, 3, 4, 5]),
      array('i32', [4, 1], [0, 3, 9, -1]),
      array('f32', [4, 2], [0, 0, 0, 0, 0, 0, 0, 0]),
    ];
    expect(results(scatter('scatter', 'FILL_OR_DROP', body), inputs)).toEqual([[4, 9, 4, 5]]);
  });

  it('a mode that JAX does not run either is refused', () => {
    expect(refusal(() => importGraph(gather('ONE_HOT', 'None'))).headline).toMatch(
      /^6:12: E_UNSUPPORTED gather of mode ONE_HOT/,
    );
  });

  it('branches of which some are taken out of line, as those of diagonal for a platform', () => {
    const text = `let jaxpr = { lambda ; a:f32[2] b:f32[2]. let c:f32[2] = add a b in (c,) } in
let jaxpr1 = { lambda ; a:f32[2] b:f32[2]. let c:f32[2] = mul a b in (c,) } in
{ lambda ; d:i32[] e:f32[2]. let
    f:f32[2] = cond[
      branches=(
        jaxpr
        { lambda ; a:f32[2] b:f32[2]. let c:f32[2] = sub a b in (c,) }
        jaxpr1
      )
    ] d e e
  in (f,) }`;
    for (const [which, wanted] of [
      [0, [4, 10]],
      [1, [0, 0]],
      [2, [4, 25]],
    ] as const)
      expect(results(text, [array('i32', [], [which]), array('f32', [2], [2, 5])])).toEqual([
        wanted,
      ]);
  });
});
