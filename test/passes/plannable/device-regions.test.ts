import { describe, expect, test } from 'vitest';

import { LOCAL_MAP } from '../../../src/graph/local-map.ts';
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
 * Per-device code of PyTorch 2.13 as regions. The numbers are those that it gives on four gloo
 * processes of the mesh dp=2,tp=2: DEVICE as plain per-device code on the pieces of its inputs, and
 * LOCAL_MAPS as eager `local_map` on DTensors with `loss.backward()`. Element i of an input is
 * `i * step % 7 - 3`.
 */
const DEVICE = `# One device of dp=2,tp=2
# Group 5: tp
# Group 3: dp
# Placement of x: S(0)R
# Placement of w1: RS(1)
# Placement of w2: RS(0)
# Placement of output 0: S(0)R
class GraphModule(torch.nn.Module):
    def forward(self, x: "f32[4, 8]", w1: "f32[8, 8]", w2: "f32[8, 8]"):
        mm: "f32[4, 8]" = torch.ops.aten.mm.default(x, w1);  x = None
        relu: "f32[4, 8]" = torch.ops.aten.relu.default(mm);  mm = None
        mm_1: "f32[4, 8]" = torch.ops.aten.mm.default(relu, w2);  relu = None
        all_reduce: "f32[4, 8]" = torch.ops._c10d_functional.all_reduce.default(mm_1, 'sum', '5')
        wait: "f32[4, 8]" = torch.ops._c10d_functional.wait_tensor.default(all_reduce)
        s: "f32[]" = torch.ops.aten.sum.default(wait)
        most: "f32[]" = torch.ops._c10d_functional.all_reduce.default(s, 'max', '3')
        wait_1: "f32[]" = torch.ops._c10d_functional.wait_tensor.default(most)
        ag: "f32[8, 8]" = torch.ops._c10d_functional.all_gather_into_tensor.default(wait, 2, '3')
        wait_2: "f32[8, 8]" = torch.ops._c10d_functional.wait_tensor.default(ag)
        rs = torch.ops._c10d_functional.reduce_scatter_tensor_coalesced.default([wait_2], 'avg', 2, '3')
        getitem: "f32[4, 8]" = rs[0]
        wait_3: "f32[4, 8]" = torch.ops._c10d_functional.wait_tensor.default(getitem)
        a2a: "f32[4, 8]" = torch.ops._c10d_functional.all_to_all_single.default(wait_3, [2, 2], [2, 2], '3')
        wait_4: "f32[4, 8]" = torch.ops._c10d_functional.wait_tensor.default(a2a)
        return (wait_4, wait_1)
`;

const DEVICE_NUMBERS = [
  [
    190, -6, -188, 127, 113, -125, -111, 190, -154, 140, 42, -154, 42, 140, -56, -154, -74, -108,
    152, 34, -182, 36, 142, -74, 101, 100, -174, -14, 237, -37, -213, 101, 18, -162, 50, 122, -86,
    -84, 142, 18, -25, 158, -72, -134, 217, 43, -187, -25, -136, -2, 146, -42, -146, 128, 52, -136,
    190, -6, -188, 127, 113, -125, -111, 190,
  ],
  [81],
];

/** As the Python package captures a model that calls `local_map`. */
const LOCAL_MAPS = `class inner_f(torch.nn.Module):
    def forward(
        self,
        primals,
        tangents,
    ):
        primals_1: "f32[4, 4]"  # ParamAOTInput(target='a')
        primals_2: "f32[4, 4]"  # ParamAOTInput(target='w1')
        primals_3: "f32[4, 4]"  # ParamAOTInput(target='w2')
        x: "f32[4, 4]"  # PlainAOTInput(idx=0)
        tangents_1: "f32[]"  # TangentAOTInput(output=PlainAOTOutput(idx=0))
        primals_1, primals_2, primals_3, x, tangents_1, = fx_pytree.tree_flatten_spec([primals, tangents], self._in_spec)
        mm: "f32[4, 4]" = torch.ops.aten.mm.default(x, primals_1)
        to_local: "f32[2, 4]" = torch.ops.shardwright.to_local.default(mm, 'dp=2,tp=2', 'S(0)R', 'S(0)P')
        to_local_1: "f32[4, 2]" = torch.ops.shardwright.to_local.default(primals_2, 'dp=2,tp=2', 'RS(1)', 'PS(1)')
        to_local_2: "f32[2, 4]" = torch.ops.shardwright.to_local.default(primals_3, 'dp=2,tp=2', 'RS(0)', 'PS(0)')
        mm_1: "f32[2, 2]" = torch.ops.aten.mm.default(to_local, to_local_1)
        relu: "f32[2, 2]" = torch.ops.aten.relu.default(mm_1)
        detach: "f32[2, 2]" = torch.ops.aten.detach.default(relu)
        mm_2: "f32[2, 4]" = torch.ops.aten.mm.default(relu, to_local_2)
        to_global: "f32[4, 4]" = torch.ops.shardwright.to_global.default(mm_2, 'dp=2,tp=2', 'S(0)P')
        pow_1: "f32[4, 4]" = torch.ops.aten.pow.Tensor_Scalar(to_global, 2)
        sum_1: "f32[]" = torch.ops.aten.sum.default(pow_1)
        expand: "f32[4, 4]" = torch.ops.aten.expand.default(tangents_1, [4, 4])
        pow_2: "f32[4, 4]" = torch.ops.aten.pow.Tensor_Scalar(to_global, 1.0)
        mul: "f32[4, 4]" = torch.ops.aten.mul.Scalar(pow_2, 2.0)
        mul_1: "f32[4, 4]" = torch.ops.aten.mul.Tensor(expand, mul)
        to_local_3: "f32[2, 4]" = torch.ops.shardwright.to_local.default(mul_1, 'dp=2,tp=2', 'S(0)R', 'S(0)P')
        t: "f32[2, 2]" = torch.ops.aten.t.default(relu)
        mm_3: "f32[2, 4]" = torch.ops.aten.mm.default(t, to_local_3)
        t_1: "f32[4, 2]" = torch.ops.aten.t.default(to_local_2)
        mm_4: "f32[2, 2]" = torch.ops.aten.mm.default(to_local_3, t_1)
        detach_1: "f32[2, 2]" = torch.ops.aten.detach.default(detach)
        threshold_backward: "f32[2, 2]" = torch.ops.aten.threshold_backward.default(mm_4, detach_1, 0)
        t_2: "f32[4, 2]" = torch.ops.aten.t.default(to_local)
        mm_5: "f32[4, 2]" = torch.ops.aten.mm.default(t_2, threshold_backward)
        t_3: "f32[2, 4]" = torch.ops.aten.t.default(to_local_1)
        mm_6: "f32[2, 4]" = torch.ops.aten.mm.default(threshold_backward, t_3)
        to_global_1: "f32[4, 4]" = torch.ops.shardwright.to_global.default(mm_3, 'dp=2,tp=2', 'PS(0)')
        to_global_2: "f32[4, 4]" = torch.ops.shardwright.to_global.default(mm_5, 'dp=2,tp=2', 'PS(1)')
        to_global_3: "f32[4, 4]" = torch.ops.shardwright.to_global.default(mm_6, 'dp=2,tp=2', 'S(0)P')
        t_4: "f32[4, 4]" = torch.ops.aten.t.default(x)
        mm_7: "f32[4, 4]" = torch.ops.aten.mm.default(t_4, to_global_3)
        return pytree.tree_unflatten([
            sum_1,  # PlainAOTOutput(idx=0)
            mm_7,  # GradAOTOutput(grad_of=ParamAOTInput(target='a'))
            to_global_2,  # GradAOTOutput(grad_of=ParamAOTInput(target='w1'))
            to_global_1,  # GradAOTOutput(grad_of=ParamAOTInput(target='w2'))
            None,  # None
        ], self._out_spec)
`;

const LOCAL_MAP_NUMBERS = [
  [164877],
  [
    -23404, -17496, 23720, 21368, 18796, 10410, -26228, -19298, -5098, -3404, 13592, 8804, 23382,
    18762, -34116, -21642,
  ],
  [
    -90, 9388, 2054, -9336, -5138, 3044, 1366, -21784, 6908, 5856, -3606, 31120, 10694, -13396,
    -7010, 40456,
  ],
  [
    7830, 72, -11466, 4926, -212, 2564, 4360, -9104, 332, -1148, 7256, -9736, 30876, 3486, -48306,
    20750,
  ],
];

const table = builtinOperators();
const read = (text: string): Graph => plannable(importGraph(text), table);
const input = (shape: number[], step: number): NDArray =>
  build(shape, (i) => ((i * step) % 7) - 3, 'f32');

function verbs(graph: Graph): string[] {
  return Object.values(graph.subgraphs).flatMap(({ nodes }) =>
    nodes.flatMap(({ target, args }) =>
      /^spmd_types\.(?!reinterpret|convert)/.test(target)
        ? [[target.split('.')[1], ...args.filter((arg) => typeof arg !== 'object')].join(' ')]
        : [],
    ),
  );
}

async function planned(graph: Graph): Promise<ReturnType<typeof verify>> {
  const request = { ...DEFAULT_REQUEST, mesh: 'dp=2,tp=2', cluster: 'dgx-h100' };
  const result = await leastCostPlan(graph, request);
  if (result.status !== 'planned') throw new Error(`not planned: ${result.status}`);
  return verify(result.graph, result.plan);
}

describe('the program of one device', () => {
  const graph = read(DEVICE);

  test('is one region, with its collectives as verbs on the axes of their groups', () => {
    expect(graph.nodes.filter(({ target }) => target === LOCAL_MAP)).toHaveLength(1);
    expect(verbs(graph)).toEqual([
      'all_reduce tp 2 P I',
      'all_gather dp 2 V R',
      'all_gather dp 2 S(0) R',
      'reduce_scatter dp 2 P S(0)',
      'all_to_all dp 2 V V',
    ]);
  });

  test('gives the numbers of PyTorch on four processes', () => {
    const operands = [input([8, 8], 3), input([8, 16], 2), input([16, 8], 5)];
    const { outputs } = evaluateGraph(table, graph, operands);
    expect(outputs.map((value) => (value as NDArray).toArray())).toEqual(DEVICE_NUMBERS);
  });

  test('is planned with its own collectives', async () => {
    const found = await planned(graph);
    expect(found.mismatches).toEqual([]);
    expect(found.collectives).toEqual({
      all_gather: 2,
      all_reduce: 1,
      all_to_all: 1,
      reduce_scatter: 1,
    });
  });
});

describe('local_map in a captured step', () => {
  const graph = read(LOCAL_MAPS);

  test('is a region of the forward and one of the backward pass, which reads what it keeps', () => {
    const regions = graph.nodes.filter(({ target }) => target === LOCAL_MAP);
    expect(regions.map(({ kwargs, meta }) => [meta.phase, kwargs.out_specs])).toEqual([
      [
        'forward',
        [
          ['S(0)', 'P'],
          ['S(0)', 'S(0)'],
        ],
      ],
      [
        'backward',
        [
          ['P', 'S(0)'],
          ['P', 'S(1)'],
          ['S(0)', 'P'],
        ],
      ],
    ]);
  });

  test('gives the loss and the gradients of PyTorch on four processes', () => {
    const operands = [2, 5, 4, 3].map((step) => input([4, 4], step));
    const { outputs } = evaluateGraph(table, graph, [...operands, build([], () => 1, 'f32')]);
    const numbers = outputs.flatMap((value) =>
      value === null ? [] : [(value as NDArray).toArray()],
    );
    expect(numbers).toEqual(LOCAL_MAP_NUMBERS);
  });

  test('is planned around, and runs as planned', async () => {
    expect((await planned(graph)).mismatches).toEqual([]);
  });
});

describe('per-device code that does not fit', () => {
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

  test('a reduction that is missing is named, with the collective to insert', () => {
    const without = DEVICE.replace(/all_reduce\.default\(mm_1.*/, 'wait_tensor.default(mm_1)');
    expect(told(without)).toMatch(/^E_SPMD_TYPE .*replication over tp is required.*all_reduce\(/s);
    const whole = LOCAL_MAPS.replace(
      "(mm_5, 'dp=2,tp=2', 'PS(1)')",
      "(mm_5, 'dp=2,tp=2', 'RS(1)')",
    );
    expect(told(whole)).toMatch(/^E_SPMD_TYPE .*replication over dp is required/s);
  });

  test('a group that no line names, and a line that names nothing, are refused', () => {
    expect(told(DEVICE.replace('# Group 5: tp\n', ''))).toBe(
      "E_UNSUPPORTED _c10d_functional.all_reduce.default (%all_reduce): its group '5' is no axis " +
        'of dp=2,tp=2\nsay above the class which axes it is: # Group 5: dp',
    );
    expect(told(DEVICE.replace('of w1:', 'of w3:'))).toMatch(/^E_TYPE .*the text has no 'w3'/);
    expect(told(DEVICE.replace('w2: RS(0)', 'w2: RS(0)S(1)'))).toMatch(/^E_TYPE /);
  });

  test('a product over ranks and unequal exchanges are no verbs', () => {
    expect(told(DEVICE.replace("'max'", "'product'"))).toMatch(
      /^E_UNSUPPORTED .*the reduction is product, and verbs add/,
    );
    expect(told(DEVICE.replace('[2, 2], [2, 2]', '[3, 1], [3, 1]'))).toMatch(
      /^E_UNSUPPORTED .*unequal numbers of rows/,
    );
  });

  test('a value of the whole program inside of a region is refused', () => {
    const mixed = LOCAL_MAPS.replace(
      't_3: "f32[2, 4]" = torch.ops.aten.t.default(to_local_1)',
      't_3: "f32[4, 4]" = torch.ops.aten.t.default(primals_2)',
    ).replace(
      'mm_6: "f32[2, 4]" = torch.ops.aten.mm.default(threshold_backward, t_3)',
      'mm_6: "f32[2, 4]" = torch.ops.aten.mm.default(to_local_3, primals_2)',
    );
    expect(told(mixed)).toMatch(/reads %primals_2, which is whole\nhand it to local_map/);
  });
});
