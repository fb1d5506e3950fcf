import { expect, test } from 'vitest';

import { importGraph } from '../../src/import/import.ts';
import { fromList, type NDArray } from '../../src/ndarray/array.ts';
import { evaluateGraph } from '../../src/simulate/evaluate.ts';
import { infer, table } from './support-jax.ts';

/**
 * nn.LSTMCell as PyTorch 2.13 traces it: its gates are parts of `unsafe_split`, each changed in
 * place; values of that run.
 */
const TEXT = `
class GraphModule(torch.nn.Module):
    def forward(self, wi_1: "f64[8, 3]", wh_1: "f64[8, 2]", bi_1: "f64[8]", bh_1: "f64[8]", x_1: "f64[2, 3]", h_1: "f64[2, 2]", c_1: "f64[2, 2]"):
        t: "f64[2, 8]" = torch.ops.aten.t.default(wh_1);  wh_1 = None
        addmm: "f64[2, 8]" = torch.ops.aten.addmm.default(bh_1, h_1, t);  bh_1 = h_1 = t = None
        t_1: "f64[3, 8]" = torch.ops.aten.t.default(wi_1);  wi_1 = None
        addmm_1: "f64[2, 8]" = torch.ops.aten.addmm.default(bi_1, x_1, t_1);  bi_1 = x_1 = t_1 = None
        add_: "f64[2, 8]" = torch.ops.aten.add_.Tensor(addmm, addmm_1);  addmm = addmm_1 = None
        unsafe_split = torch.ops.aten.unsafe_split.Tensor(add_, 2, 1);  add_ = None
        getitem: "f64[2, 2]" = unsafe_split[0]
        getitem_1: "f64[2, 2]" = unsafe_split[1]
        getitem_2: "f64[2, 2]" = unsafe_split[2]
        getitem_3: "f64[2, 2]" = unsafe_split[3];  unsafe_split = None
        sigmoid_: "f64[2, 2]" = torch.ops.aten.sigmoid_.default(getitem);  getitem = None
        sigmoid__1: "f64[2, 2]" = torch.ops.aten.sigmoid_.default(getitem_1);  getitem_1 = None
        tanh_: "f64[2, 2]" = torch.ops.aten.tanh_.default(getitem_2);  getitem_2 = None
        sigmoid__2: "f64[2, 2]" = torch.ops.aten.sigmoid_.default(getitem_3);  getitem_3 = None
        mul: "f64[2, 2]" = torch.ops.aten.mul.Tensor(sigmoid__1, c_1);  sigmoid__1 = c_1 = None
        mul_1: "f64[2, 2]" = torch.ops.aten.mul.Tensor(sigmoid_, tanh_);  sigmoid_ = tanh_ = None
        add__1: "f64[2, 2]" = torch.ops.aten.add_.Tensor(mul, mul_1);  mul = mul_1 = None
        tanh: "f64[2, 2]" = torch.ops.aten.tanh.default(add__1)
        mul_2: "f64[2, 2]" = torch.ops.aten.mul.Tensor(sigmoid__2, tanh);  sigmoid__2 = tanh = None
        return (mul_2, add__1)
`;
const SHAPES = [[8, 3], [8, 2], [8], [8], [2, 3], [2, 2], [2, 2]];
const INPUTS: readonly (readonly number[])[] = [
  [
    -1.5, -0.6875, 0.5, -0.9375, -0.0625, 0.5625, -0.0, -1.1875, -0.5625, 2.8125, 0.875, 0.9375,
    -1.0625, 1.0, -0.0625, 0.875, -0.25, 0.875, 1.5, -0.0, -0.75, 1.3125, 0.0625, -1.0,
  ],
  [
    0.1875, 0.9375, -1.75, 1.0, 0.125, -1.375, -0.125, 0.3125, 0.4375, 1.5625, 0.0625, 1.5, 1.0,
    0.875, 0.125, 0.6875,
  ],
  [-1.0, 0.6875, -0.75, -0.625, -0.625, -0.1875, -1.75, 0.875],
  [0.25, -0.125, -0.1875, -0.625, 0.25, 0.5625, -0.6875, -1.1875],
  [1.375, 2.375, -0.5625, -1.125, -2.5, 0.875],
  [-2.6875, -0.0625, 0.5, -0.5],
  [-0.25, -1.0625, -0.5625, -0.125],
];
const RESULTS: readonly (readonly number[])[] = [
  [-0.0005764921540813513, -0.5864675670280135, -0.007889013553903609, 0.0018903876013553467],
  [-0.009114677639060105, -0.8311450821708046, -1.430067588323412, 0.04394700785629308],
];

test('LSTMCell: unsafe_split with gates in place gives the values of PyTorch', () => {
  const graph = importGraph(TEXT, { infer });
  const inputs = INPUTS.map((values, i) => fromList(SHAPES[i], values, 'f64'));
  const outputs = evaluateGraph(table, graph, inputs).outputs as readonly NDArray[];
  outputs.forEach((x, i) => {
    expect(x.shape).toEqual([2, 2]);
    x.toArray().forEach((v, k) => {
      expect(v).toBeCloseTo(RESULTS[i][k], 12);
    });
  });
});
