import { expect, test } from 'vitest';

import { importGraph } from '../../../src/import/import.ts';
import { build, type NDArray } from '../../../src/ndarray/array.ts';
import { builtinOperators } from '../../../src/ops/builtin.ts';
import { plannable } from '../../../src/passes/plannable/plannable.ts';
import { leastCostPlan } from '../../../src/plan/least-cost-plan.ts';
import { DEFAULT_REQUEST } from '../../../src/plan/request/request.ts';
import { evaluateGraph } from '../../../src/simulate/evaluate.ts';
import { verify } from '../../../src/simulate/verify.ts';

/** An operator of the text's own, with what it computes as a nested class. */
const TEXT = `class GraphModule(torch.nn.Module):
    def forward(self, x: "f32[8, 4]", w: "f32[4, 4]"):
        gate: "f32[8, 4]" = torch.ops.mine.gate.default(x, w)
        pair = torch.ops.mine.pair.default(gate, x)
        getitem: "f32[8, 4]" = pair[0]
        getitem_1: "f32[8, 4]" = pair[1]
        add: "f32[8, 4]" = torch.ops.aten.add.Tensor(getitem, getitem_1)
        return add

    class mine_gate(torch.nn.Module):
        def forward(self, a: "f32[8, 4]", b: "f32[4, 4]"):
            mm: "f32[8, 4]" = torch.ops.aten.mm.default(a, b)
            relu: "f32[8, 4]" = torch.ops.aten.relu.default(mm)
            return relu

    class mine_pair_default(torch.nn.Module):
        def forward(self, a: "f32[8, 4]", b: "f32[8, 4]"):
            sub: "f32[8, 4]" = torch.ops.aten.sub.Tensor(a, b)
            mul: "f32[8, 4]" = torch.ops.aten.mul.Tensor(a, b)
            return (sub, mul)
`;

const table = builtinOperators();

test('an operator without a record has the rules and the numbers of its body', async () => {
  const graph = importGraph(TEXT);
  expect(graph.notes).toContain(
    'Operators that have the rules of their bodies in the text: mine.gate.default, ' +
      'mine.pair.default.',
  );
  const x = build([8, 4], (i) => (i % 5) - 2, 'f32');
  const w = build([4, 4], (i) => (i % 3) - 1, 'f32');
  const [result] = evaluateGraph(table, plannable(graph, table), [x, w]).outputs;
  const [a, b] = [x, w].map((one) => one.toArray());
  const expected = Array.from({ length: 32 }, (_, i) => {
    const [row, column] = [Math.floor(i / 4), i % 4];
    const sum = [0, 1, 2, 3].reduce((s, k) => s + a[row * 4 + k] * b[k * 4 + column], 0);
    const gate = Math.max(sum, 0);
    return gate - a[i] + gate * a[i];
  });
  expect((result as NDArray).toArray()).toEqual(expected);
  const request = { ...DEFAULT_REQUEST, mesh: 'd=2', cluster: 'dgx-h100' };
  const planned = await leastCostPlan(graph, request);
  if (planned.status !== 'planned') throw new Error(planned.status);
  expect(verify(planned.graph, planned.plan).mismatches).toEqual([]);
});

test('a call with other arguments than its body takes is refused with its line', () => {
  const other = TEXT.replace('gate.default(x, w)', 'gate.default(x, w, 2)');
  expect(() => importGraph(other)).toThrow(
    /mine\.gate\.default is called with 3 arguments, and its class mine_gate takes 2 tensors/,
  );
});
