import { expect, test } from 'vitest';

import { importGraph } from '../../../src/index.ts';

const factory = (annotation: string, call: string): string =>
  `class m(torch.nn.Module):
    def forward(self, x: "f32[8, 16]"):
        made: "${annotation}" = torch.ops.aten.${call}
        return (made, x)
`;

test.each([
  ['bf16[8, 16]', "ones.default([8, 16], device = device(type='cpu'), pin_memory = False)", 'bf16'],
  ['f64[8, 16]', 'zeros.default([8, 16])', 'f64'],
  ['f16[8]', 'linspace.default(0, 1, 8)', 'f16'],
  ['f64[]', 'scalar_tensor.default(1.5)', 'f64'],
])('a factory of %s without dtype gets the one that the text states', (type, call, dtype) => {
  const graph = importGraph(factory(type, call));
  const made = graph.nodes.find(({ name }) => name === 'made');
  expect(made?.type).toMatchObject({ dtype });
  expect(made?.kwargs.dtype).toEqual({ kind: 'dtype', dtype });
});

test('a factory of the usual default is left as it is written', () => {
  const graph = importGraph(factory('f32[8]', 'ones.default([8])'));
  expect(graph.nodes.find(({ name }) => name === 'made')?.kwargs).toEqual({});
});

test.each([
  ['bf16[8, 16]', 'ones.default([8, 16], dtype = torch.float32)'],
  ['bf16[8, 16]', 'ones.default([8, 4])'],
  ['i64[8]', 'ones.default([8])'],
  ['bf16[8, 16]', 'relu.default(x)'],
])('%s of %s is still refused', (type, call) => {
  expect(() => importGraph(factory(type, call))).toThrow('the file says');
});
