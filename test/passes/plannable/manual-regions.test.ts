import { describe, expect, test } from 'vitest';

import type { Graph } from '../../../src/graph/types.ts';
import { importGraph } from '../../../src/import/import.ts';
import { build, type NDArray } from '../../../src/ndarray/array.ts';
import { builtinOperators } from '../../../src/ops/builtin.ts';
import { plannable } from '../../../src/passes/plannable/plannable.ts';
import { leastCostPlan } from '../../../src/plan/least-cost-plan.ts';
import { DEFAULT_REQUEST } from '../../../src/plan/request/request.ts';
import { evaluateGraph } from '../../../src/simulate/evaluate.ts';
import { verify } from '../../../src/simulate/verify.ts';

/**
 * `shard_map` of JAX 0.10.2 as regions of typed per-device code. The texts are JAX's, and the
 * numbers are those that it gives on four CPU devices:
 *
 * ```python
 * def dev(x, w1, w2):
 *     x = jax.lax.all_gather(x, 'tp', axis=1, tiled=True)
 *     y = jnp.maximum(x @ w1, 0.0) @ w2
 *     y = jax.lax.psum_scatter(y, 'tp', scatter_dimension=1, tiled=True)
 *     z = jax.lax.ppermute(y, 'tp', [(0, 1), (1, 0)])
 *     t = jax.lax.all_to_all(y, 'tp', 0, 1, tiled=True)
 *     i = jax.lax.axis_index('tp').astype(jnp.float32)
 *     return z * i + y, t, jax.lax.psum(y.sum(), ('dp', 'tp'))
 * ```
 *
 * Operand k is `(arange(16) * (3, 2, 5)[k] % 7 - 3).reshape(4, 4)`.
 */

const JAXPR = `let jaxpr = { lambda ; a:f32[2,2]{V:(dp,tp)} b:f32[4,2]{V:tp} c:f32[2,4]{V:tp}. let
    d:f32[2,4]{V:(dp,tp)} = all_gather[
      all_gather_dimension=1
      axis_index_groups=None
      axis_name=('tp',)
      axis_size=2
      tiled=True
    ] a
    e:f32[4,2]{V:(dp,tp)} = pvary[axes=('dp',)] b
    f:f32[2,2]{V:(dp,tp)} = dot_general[
      dimension_numbers=(([1], [0]), ([], []))
      preferred_element_type=float32
    ] d e
    g:f32[]{V:(dp,tp)} = pvary[axes=('dp', 'tp')] 0.0:f32[]
    h:f32[2,2]{V:(dp,tp)} = max f g
    i:f32[2,4]{V:(dp,tp)} = pvary[axes=('dp',)] c
    j:f32[2,4]{V:(dp,tp)} = dot_general[
      dimension_numbers=(([1], [0]), ([], []))
      preferred_element_type=float32
    ] h i
    k:f32[2,2]{V:(dp,tp)} = reduce_scatter[
      axis_index_groups=None
      axis_name=('tp',)
      axis_size=2
      scatter_dimension=1
      tiled=True
    ] j
    l:f32[2,2]{V:(dp,tp)} = ppermute[axis_name=('tp',) perm=((0, 1), (1, 0))] k
    m:f32[1,4]{V:(dp,tp)} = all_to_all[
      axis_index_groups=None
      axis_name=tp
      concat_axis=1
      split_axis=0
      tiled=True
    ] k
    n:i32[]{V:tp} = axis_index[axis_name=tp] 
    o:f32[]{V:tp} = convert_element_type[new_dtype=float32 weak_type=False] n
    p:f32[]{V:(dp,tp)} = pvary[axes=('dp',)] o
    q:f32[2,2]{V:(dp,tp)} = mul l p
    r:f32[2,2]{V:(dp,tp)} = add q k
    s:f32[]{V:(dp,tp)} = reduce_sum[axes=(0, 1) out_sharding=None] k
    t:f32[] = psum_invariant[axes=('dp', 'tp')] s
  in (r, m, t) } in
{ lambda ; u:f32[4,4] v:f32[4,4] w:f32[4,4]. let
    x:f32[4,4] y:f32[2,8] z:f32[] = shard_map[
      check_vma=True
      in_specs=(P('dp', 'tp'), P(None, 'tp'), P('tp', None))
      jaxpr=jaxpr
      mesh=Mesh('dp': 2, 'tp': 2, axis_types=(Auto, Auto))
      newly_manual_axes=frozenset({'dp', 'tp'})
      out_specs=(P('dp', 'tp'), P('dp', 'tp'), P())
    ] u v w
  in (x, y, z) }`;

const SHARDY = `module @jit_dev attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["dp"=2, "tp"=2]> {stablehlo.mesh = {axes = [{name = "dp", size = 2 : i64}, {name = "tp", size = 2 : i64}]}}
  func.func public @main(%arg0: tensor<4x4xf32>, %arg1: tensor<4x4xf32>, %arg2: tensor<4x4xf32>) -> (tensor<4x4xf32> {jax.result_info = "result[0]"}, tensor<2x8xf32> {jax.result_info = "result[1]"}, tensor<f32> {jax.result_info = "result[2]"}) {
    %0:3 = sdy.manual_computation(%arg0, %arg1, %arg2) in_shardings=[<@mesh, [{"dp"}, {"tp"}]>, <@mesh, [{}, {"tp"}]>, <@mesh, [{"tp"}, {}]>] out_shardings=[<@mesh, [{"dp"}, {"tp"}]>, <@mesh, [{"dp"}, {"tp"}]>, <@mesh, []>] manual_axes={"dp", "tp"} (%arg3: tensor<2x2xf32>, %arg4: tensor<4x2xf32>, %arg5: tensor<2x4xf32>) {
      %1 = "stablehlo.all_gather"(%arg3) <{all_gather_dim = 1 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, use_global_device_ids}> : (tensor<2x2xf32>) -> tensor<2x4xf32>
      %2 = stablehlo.dot_general %1, %arg4, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x4xf32>, tensor<4x2xf32>) -> tensor<2x2xf32>
      %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %3 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x2xf32>
      %4 = stablehlo.maximum %2, %3 : tensor<2x2xf32>
      %5 = stablehlo.dot_general %4, %arg5, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x2xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
      %6 = "stablehlo.reduce_scatter"(%5) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, scatter_dimension = 1 : i64, use_global_device_ids}> ({
      ^bb0(%arg6: tensor<f32>, %arg7: tensor<f32>):
        %19 = stablehlo.add %arg6, %arg7 : tensor<f32>
        stablehlo.return %19 : tensor<f32>
      }) : (tensor<2x4xf32>) -> tensor<2x2xf32>
      %7 = "stablehlo.collective_permute"(%6) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, source_target_pairs = dense<[[0, 1], [1, 0], [2, 3], [3, 2]]> : tensor<4x2xi64>}> : (tensor<2x2xf32>) -> tensor<2x2xf32>
      %8 = "stablehlo.all_to_all"(%6) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, concat_dimension = 1 : i64, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, split_count = 2 : i64, split_dimension = 0 : i64}> : (tensor<2x2xf32>) -> tensor<1x4xf32>
      %c = stablehlo.constant dense<1> : tensor<ui32>
      %c_0 = stablehlo.constant dense<2> : tensor<ui32>
      %9 = stablehlo.partition_id : tensor<ui32>
      %10 = stablehlo.divide %9, %c : tensor<ui32>
      %11 = stablehlo.remainder %10, %c_0 : tensor<ui32>
      %12 = stablehlo.convert %11 : (tensor<ui32>) -> tensor<i32>
      %13 = stablehlo.convert %12 : (tensor<i32>) -> tensor<f32>
      %14 = stablehlo.broadcast_in_dim %13, dims = [] : (tensor<f32>) -> tensor<2x2xf32>
      %15 = stablehlo.multiply %7, %14 : tensor<2x2xf32>
      %16 = stablehlo.add %15, %6 : tensor<2x2xf32>
      %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %17 = stablehlo.reduce(%6 init: %cst_1) applies stablehlo.add across dimensions = [0, 1] : (tensor<2x2xf32>, tensor<f32>) -> tensor<f32>
      %18 = "stablehlo.all_reduce"(%17) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
      ^bb0(%arg6: tensor<f32>, %arg7: tensor<f32>):
        %19 = stablehlo.add %arg6, %arg7 : tensor<f32>
        stablehlo.return %19 : tensor<f32>
      }) : (tensor<f32>) -> tensor<f32>
      sdy.return %16, %8, %18 : tensor<2x2xf32>, tensor<1x4xf32>, tensor<f32>
    } : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<2x8xf32>, tensor<f32>)
    return %0#0, %0#1, %0#2 : tensor<4x4xf32>, tensor<2x8xf32>, tensor<f32>
  }
}`;

const JAX = [
  [12.0, 16.0, -10.0, 19.0, 33.0, -13.0, -26.0, 43.0, 9.0, 3.0, 6.0, -6.0, -21.0, 14.0, -21.0, 0.0],
  [12.0, 16.0, -22.0, 3.0, 33.0, -13.0, -59.0, 56.0, 9.0, 3.0, -3.0, -9.0, -21.0, 14.0, 0.0, -14.0],
  [5.0],
];

const table = builtinOperators();
const read = (text: string): Graph => plannable(importGraph(text), table);
const verbs = (graph: Graph): string[] =>
  Object.values(graph.subgraphs).flatMap(({ nodes }) =>
    nodes.flatMap(({ target, args }) =>
      /^spmd_types\.(?!reinterpret)/.test(target)
        ? [[target.split('.')[1], ...args.filter((arg) => typeof arg !== 'object')].join(' ')]
        : [],
    ),
  );

describe.each([
  ['a jaxpr', JAXPR],
  ['Shardy', SHARDY],
])('the region in %s', (_, text) => {
  const graph = read(text);

  test('is typed code with the collectives of JAX as verbs', () => {
    expect(verbs(graph).filter((verb) => !verb.startsWith('axis_index'))).toEqual([
      'all_gather tp 2 S(1) R',
      'reduce_scatter tp 2 P S(1)',
      'permute tp 2',
      'all_to_all tp 2 S(1) S(0)',
      'all_reduce dp 2 P I',
      'all_reduce tp 2 P I',
    ]);
  });

  test('gives the numbers of JAX', () => {
    const operands = [3, 2, 5].map((step) => build([4, 4], (i) => ((i * step) % 7) - 3, 'f32'));
    const { outputs } = evaluateGraph(table, graph, operands);
    expect(outputs.map((value) => (value as NDArray).toArray())).toEqual(JAX);
  });

  test('is planned on its mesh, and runs with its own collectives', async () => {
    const request = { ...DEFAULT_REQUEST, mesh: 'dp=2,tp=2', cluster: 'dgx-h100' };
    const result = await leastCostPlan(graph, request);
    if (result.status !== 'planned') throw new Error(`not planned: ${result.status}`);
    const found = verify(result.graph, result.plan);
    expect(found.mismatches).toEqual([]);
    expect(found.collectives).toMatchObject({
      all_gather: 1,
      all_reduce: 2,
      all_to_all: 1,
      collective_permute: 1,
      reduce_scatter: 1,
    });
  });
});

describe('a region that does not fit', () => {
  const told = (text: string): string => {
    try {
      read(text);
      return 'read';
    } catch (error) {
      const { code, message, details } = error as {
        code: string;
        message: string;
        details: { hint: string };
      };
      return `${code} ${message}\n${details.hint}`;
    }
  };

  test('a reduction that is missing is named, with the call to insert', () => {
    expect(told(JAXPR.replace(/= psum_invariant\[[^\]]*\]/, '= neg'))).toMatch(
      /^E_SPMD_TYPE the manual region %x: .*replication over dp is required.*all_reduce/s,
    );
  });

  test('a maximum is no verb', () => {
    expect(told(JAXPR.replace('psum_invariant', 'pmax'))).toBe(
      'E_UNSUPPORTED the manual region %x: pmax (%t) is not planned: the reduction is maximum, ' +
        'and verbs add\ngather the pieces with all_gather, and reduce them on each device',
    );
  });

  test('a permutation that leaves members out is refused', () => {
    expect(told(JAXPR.replace('perm=((0, 1), (1, 0))', 'perm=((0, 1),)'))).toMatch(
      /^E_UNSUPPORTED the manual region %x: ppermute .* no permutation of the members/,
    );
  });

  test('groups of devices that are no axis are refused', () => {
    const other = SHARDY.replace('dense<[[0, 1], [2, 3]]>', 'dense<[[0, 3], [1, 2]]>');
    expect(told(other)).toMatch(/its groups of devices are not those of axes of the mesh/);
  });
});
