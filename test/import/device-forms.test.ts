import { describe, expect, test } from 'vitest';

import { importGraph } from '../../src/import/import.ts';
import { NDArray } from '../../src/ndarray/array.ts';
import { builtinOperators } from '../../src/ops/builtin.ts';
import { evaluateGraph } from '../../src/simulate/evaluate.ts';
import { drawInputs } from '../../src/simulate/inputs.ts';

/**
 * PyTorch types some results by the device: statistics of 16-bit norms are of 16 bits on a CPU, of
 * 32 on a GPU.
 */

const table = builtinOperators();

function layerNorm(statistic: string): string {
  return `class GraphModule(torch.nn.Module):
    def forward(self, x: "bf16[8, 16][16, 1]cpu", w: "bf16[16][1]cpu", b: "bf16[16][1]cpu"):
        native_layer_norm = torch.ops.aten.native_layer_norm.default(x, [16], w, b, 1e-05);  x = w = b = None
        getitem: "bf16[8, 16][16, 1]cpu" = native_layer_norm[0]
        getitem_1: "${statistic}[8, 1][1, 1]cpu" = native_layer_norm[1]
        getitem_2: "${statistic}[8, 1][1, 1]cpu" = native_layer_norm[2];  native_layer_norm = None
        return (getitem, getitem_1, getitem_2)
`;
}

/** As printed for a bf16 ResNet-50 on a CPU: saved statistics in 16 bits, running ones in 32. */
const BATCH_NORM = `class GraphModule(torch.nn.Module):
    def forward(self, x: "bf16[8, 4, 2, 2][16, 4, 2, 1]cpu", w: "bf16[4][1]cpu", b: "bf16[4][1]cpu", m: "bf16[4][1]cpu", v: "bf16[4][1]cpu"):
        bn = torch.ops.aten._native_batch_norm_legit_functional.default(x, w, b, m, v, True, 0.1, 1e-05);  x = w = b = m = v = None
        getitem: "bf16[8, 4, 2, 2][16, 4, 2, 1]cpu" = bn[0]
        getitem_1: "bf16[4][1]cpu" = bn[1]
        getitem_2: "bf16[4][1]cpu" = bn[2]
        getitem_3: "f32[4][1]cpu" = bn[3]
        getitem_4: "f32[4][1]cpu" = bn[4];  bn = None
        return (getitem, getitem_1, getitem_3)
`;

test('the number of a device is read in each form that Python has for it', () => {
  for (const device of ["device('cuda', 1)", "device(type='cuda', index=1)"]) {
    const graph = importGraph(`class GraphModule(torch.nn.Module):
    def forward(self, x: "f32[4][1]cpu"):
        z: "f32[4][1]cuda:1" = torch.ops.aten.zeros.default([4], device = ${device}, pin_memory = False)
        y: "f32[4][1]cpu" = torch.ops.aten.add.Tensor(x, x);  x = None
        return (y, z)
`);
    expect(graph.nodes.find(({ name }) => name === 'z')?.kwargs.device, device).toEqual({
      kind: 'device',
      word: 'cuda:1',
    });
  }
});

describe('forms of results by device', () => {
  test.each(['bf16', 'f32'])(
    'a layer norm in bf16 with statistics in %s is read and evaluated',
    (type) => {
      const graph = importGraph(layerNorm(type));
      const outputs = evaluateGraph(table, graph, drawInputs(table, graph)).outputs;
      expect(outputs.map((x) => (x instanceof NDArray ? x.dtype : x))).toEqual([
        'bf16',
        type,
        type,
      ]);
    },
  );

  test('batch norms on a CPU save in 16 bits and keep running statistics in 32', () => {
    const graph = importGraph(BATCH_NORM);
    const outputs = evaluateGraph(table, graph, drawInputs(table, graph)).outputs;
    expect(outputs.map((x) => (x instanceof NDArray ? x.dtype : x))).toEqual([
      'bf16',
      'bf16',
      'f32',
    ]);
  });

  test('a type that no device gives is refused', () => {
    expect(() => importGraph(layerNorm('f16'))).toThrow(
      /the file says f16\[8, 1\], but operator.getitem gives f32\[8, 1\]/,
    );
  });
});
