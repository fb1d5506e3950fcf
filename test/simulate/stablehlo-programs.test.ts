import { describe, expect, test } from 'vitest';

import { parseGraph } from '../../src/graph/text/parse.ts';
import { importGraph } from '../../src/import/import.ts';
import { plannable } from '../../src/passes/plannable/plannable.ts';
import { shrinkGraph } from '../../src/passes/sizes/shrink.ts';
import { randomPlan } from '../../src/plan/choice/random-plan.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import { verify } from '../../src/simulate/verify.ts';
import { request, TABLE } from '../plan/support.ts';

/**
 * StableHLO programs under plans drawn at random: local forms of calls with cut operands, and
 * bodies of calls in bodies.
 */
const PROGRAMS: Readonly<Record<string, string>> = {
  'shapes are written out, counters go on from the first row of the rank, constants are cut': `
  in %x: f32[6, 8] input "x"
  in %v: f32[8] input "v"
  %i = stablehlo.iota(iota_dimension=1, dtype=dtype:f32, shape=[6, 8]): f32[6, 8]
  %c = stablehlo.constant(2.5, dtype=dtype:f32, shape=[6, 8]): f32[6, 8]
  %l = stablehlo.constant([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], dtype=dtype:f32, shape=[8]): f32[8]
  %w = stablehlo.add(%v, %l): f32[8]
  %b = stablehlo.broadcast_in_dim(%w, broadcast_dimensions=[1], shape=[6, 8]): f32[6, 8]
  %p = stablehlo.add(%x, %b): f32[6, 8]
  %q = stablehlo.multiply(%p, %i): f32[6, 8]
  %r = stablehlo.add(%q, %c): f32[6, 8]
  %f = stablehlo.reshape(%r, shape=[3, 2, 8]): f32[3, 2, 8]
  out %f output 0`,
  'slices keep a whole dim cut, in steps too': `
  in %x: f32[6, 8] input "x"
  %s = stablehlo.slice(%x, start_indices=[0, 2], limit_indices=[6, 5], strides=[1, 1]): f32[6, 3]
  %t = stablehlo.slice(%x, start_indices=[0, 0], limit_indices=[6, 8], strides=[1, 2]): f32[6, 4]
  %u = stablehlo.concatenate([%s, %t], dimension=1): f32[6, 7]
  out %u output 0`,
  'a row at a runtime position is read and written where it lies, also past the end': `
  in %x: f32[6, 8] input "x"
  in %row: f32[1, 8] input "row"
  in %at: i32[] input "at"
  in %far: i32[] input "far"
  %k = stablehlo.constant(97, dtype=dtype:i32, shape=[]): i32[]
  %past = stablehlo.add(%far, %k): i32[]
  %z = stablehlo.constant(0, dtype=dtype:i32, shape=[]): i32[]
  %r = stablehlo.dynamic_slice(%x, [%at, %z], slice_sizes=[1, 8]): f32[1, 8]
  %e = stablehlo.dynamic_slice(%x, [%past, %z], slice_sizes=[1, 8]): f32[1, 8]
  %s = stablehlo.add(%r, %e): f32[1, 8]
  %u = stablehlo.add(%s, %row): f32[1, 8]
  %y = stablehlo.dynamic_update_slice(%x, %u, [%at, %z]): f32[6, 8]
  %q = stablehlo.dynamic_update_slice(%y, %row, [%past, %z]): f32[6, 8]
  out %q output 0`,
  'rows are gathered and scattered by index vectors': `
  in %x: f32[6, 8] input "x"
  in %at: i32[4, 1] input "at"
  in %pair: i32[4, 2] input "pair"
  in %v: f32[4] input "v"
  %g = stablehlo.gather(%x, %at, offset_dims=[1], collapsed_slice_dims=[0], start_index_map=[0], index_vector_dim=1, slice_sizes=[1, 8]): f32[4, 8]
  %s = stablehlo.scatter([%x], %at, [%g], update_window_dims=[1], inserted_window_dims=[0], scatter_dims_to_operand_dims=[0], index_vector_dim=1, reducer="add"): (f32[6, 8])
  %y = operator.getitem(%s, 0): f32[6, 8]
  %h = stablehlo.gather(%y, %pair, offset_dims=[], collapsed_slice_dims=[0, 1], start_index_map=[0, 1], index_vector_dim=1, slice_sizes=[1, 1]): f32[4]
  %w = stablehlo.add(%h, %v): f32[4]
  %t = stablehlo.scatter([%y], %pair, [%w], inserted_window_dims=[0, 1], scatter_dims_to_operand_dims=[0, 1], index_vector_dim=1, reducer="add"): (f32[6, 8])
  %z = operator.getitem(%t, 0): f32[6, 8]
  out %z output 0`,
  'channels of a convolution are cut between whole groups': `
  in %x: f32[4, 8, 6] input "x"
  in %w: f32[8, 2, 3] parameter "w"
  %y = stablehlo.convolution(%x, %w, input_dimensions=[0, 1, 2], kernel_dimensions=[1, 0, 2], output_dimensions=[0, 1, 2], feature_group_count=4): f32[4, 8, 4]
  out %y output 0`,
};

function check(body: string): void {
  const graph = plannable(parseGraph(`swgraph 1\ngraph @g {${body}\n}\n`), TABLE);
  for (const mesh of ['d=2', 'd=2,e=2', 'd=3', 'd=4']) {
    const prepared = prepare(graph, request(mesh), TABLE);
    for (const seed of [1, 2, 3, 4]) {
      const found = verify(graph, randomPlan(prepared, seed), { table: TABLE, seed });
      expect(found.mismatches).toEqual([]);
      expect(found.nodesCompared).toBeGreaterThan(2);
    }
  }
}

describe('StableHLO on simulated devices', () => {
  test.each(Object.entries(PROGRAMS))('%s', (_, body) => check(body), 120_000);
});

/**
 * What JAX 0.10 prints for `jnp.sort` of the carry of a `fori_loop`: a call in a loop body, with a
 * comparator of its own.
 */
const SORT_IN_LOOP = `module @jit__lambda attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<64x32xf32>) -> (tensor<64x32xf32> {jax.result_info = "result"}) {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0:2 = stablehlo.while(%iterArg = %c, %iterArg_0 = %arg0) : tensor<i32>, tensor<64x32xf32>
    cond {
      %c_1 = stablehlo.constant dense<3> : tensor<i32>
      %1 = stablehlo.compare  LT, %iterArg, %c_1,  SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %1 = func.call @sort(%iterArg_0) : (tensor<64x32xf32>) -> tensor<64x32xf32>
      %c_1 = stablehlo.constant dense<1> : tensor<i32>
      %2 = stablehlo.add %iterArg, %c_1 : tensor<i32>
      stablehlo.return %2, %1 : tensor<i32>, tensor<64x32xf32>
    }
    return %0#1 : tensor<64x32xf32>
  }
  func.func private @sort(%arg0: tensor<64x32xf32>) -> tensor<64x32xf32> {
    %0 = "stablehlo.sort"(%arg0) <{dimension = 1 : i64, is_stable = true}> ({
    ^bb0(%arg1: tensor<f32>, %arg2: tensor<f32>):
      %1 = stablehlo.compare  LT, %arg1, %arg2,  TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    }) : (tensor<64x32xf32>) -> tensor<64x32xf32>
    return %0 : tensor<64x32xf32>
  }
}
`;

describe('bodies that operators take', () => {
  test('a comparator in a loop body is carried through planning, shrinking and lowering', () => {
    const graph = plannable(importGraph(SORT_IN_LOOP), TABLE);
    const { graph: small } = shrinkGraph(graph, TABLE, { meshSizes: [2, 2] });
    const prepared = prepare(small, request('a=2,b=2'), TABLE);
    const found = verify(small, randomPlan(prepared, 1), { table: TABLE, seed: 1 });
    expect(found.mismatches).toEqual([]);
    expect(found.nodesCompared).toBeGreaterThan(5);
  });
});
