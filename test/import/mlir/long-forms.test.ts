import { expect, test } from 'vitest';

import { importGraph } from '../../../src/import/import.ts';
import { infer } from '../support-jax.ts';

/** As `operation.get_asm(print_generic_op_form=True)` of JAX 0.10.2 prints a `shard_map`. */
const LONG = `"builtin.module"() <{sym_name = "jit_f"}> ({
  "sdy.mesh"() <{mesh = #sdy.mesh<["x"=2]>, sym_name = "mesh"}> : () -> ()
  "func.func"() <{arg_attrs = [{sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}], function_type = (tensor<8x8xf32>) -> tensor<8x8xf32>, sym_name = "main", sym_visibility = "public"}> ({
  ^bb0(%arg0: tensor<8x8xf32>):
    %1 = "sdy.sharding_constraint"(%arg0) <{sharding = #sdy.sharding<@mesh, [{}, {"x"}]>}> : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %2 = "sdy.manual_computation"(%1) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"x"}, {}]>]>, manual_axes = #sdy<manual_axes{"x"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"x"}, {}]>]>}> ({
    ^bb0(%arg1: tensor<4x8xf32>):
      %3 = "stablehlo.cosine"(%arg1) : (tensor<4x8xf32>) -> tensor<4x8xf32>
      "sdy.return"(%3) : (tensor<4x8xf32>) -> ()
    }) : (tensor<8x8xf32>) -> tensor<8x8xf32>
    "func.return"(%2) : (tensor<8x8xf32>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 2 : i32} : () -> ()
`;

test('the manual axes of a generic form are those of the region', () => {
  const graph = importGraph(LONG, { infer });
  const region = graph.nodes.find((node) => node.target === 'sdy.manual_computation');
  expect(region?.kwargs).toEqual({
    in_shardings: ['S(0)'],
    out_shardings: ['S(0)'],
    manual_axes: ['x'],
  });
  expect(graph.given?.map(({ sharding }) => sharding)).toEqual(['S(0)', 'S(1)']);
});
