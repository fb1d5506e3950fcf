import { describe, expect, test } from 'vitest';

import { printGraph } from '../../../src/graph/text/write.ts';
import { importGraph } from '../../../src/import/import.ts';
import { infer } from '../twins.ts';

/** A projection of experts and its gradients, as transformers 5.23 and AOTAutograd write them. */
const text = (dtype: string): string => `class GraphModule(torch.nn.Module):
    def forward(self, x: "${dtype}[12, 16]", w: "${dtype}[4, 16, 8][128, 1, 16]", ends: "i32[4]", g: "${dtype}[12, 8]"):
        y: "${dtype}[12, 8]" = torch.ops.transformers.grouped_mm_fallback.default(x, w, ends)
        both = torch.ops.transformers.grouped_mm_fallback_backward.default(x, w, ends, g)
        dx: "${dtype}[12, 16]" = both[0]
        dw: "${dtype}[4, 16, 8][128, 1, 16]" = both[1]
        return (y, dx, dw)
`;

const calls = (source: string): string[] =>
  printGraph(importGraph(source, { infer }), { source: false })
    .split('\n')
    .filter((line) => line.includes(' = '))
    .map((line) => line.trim());

describe('grouped products of transformers', () => {
  test("are PyTorch's, and so are their gradients, in the memory order of the weights", () => {
    expect(calls(text('f32'))).toMatchInlineSnapshot(`
      [
        "%y = aten._grouped_mm.default(%x, %w, %ends): f32[12, 8] ; forward",
        "%dx_operand = aten.transpose.int(%w, -2, -1): f32[4, 8, 16] ; forward",
        "%dx = aten._grouped_mm.default(%g, %dx_operand, %ends): f32[12, 16] ; forward",
        "%dw_operand = aten.transpose.int(%g, -2, -1): f32[8, 12] ; forward stride=[1, 8]",
        "%dw_t = aten._grouped_mm.default(%dw_operand, %x, %ends): f32[4, 8, 16] ; forward",
        "%dw = aten.transpose.int(%dw_t, -2, -1): f32[4, 16, 8] ; forward stride=[128, 1, 16]",
      ]
    `);
  });

  test('stay what they are in float64, which PyTorch has none of', () => {
    expect(calls(text('f64')).filter((line) => line.includes('grouped_mm'))).toEqual([
      expect.stringContaining('transformers.grouped_mm_fallback.default') as unknown,
      expect.stringContaining('transformers.grouped_mm_fallback_backward.default') as unknown,
    ]);
  });
});
