import { expect, test } from 'vitest';

import { printGraph } from '../../src/graph/text/write.ts';
import { importGraph } from '../../src/import/import.ts';

/** `def forward(...) -> TYPE:` is read as the same text without the type. */

const text = (annotation: string): string => `class <lambda>(torch.nn.Module):
    def forward(self, arg0_1: "f32[8, 16]")${annotation}:
        permute: "f32[16, 8]" = torch.ops.aten.permute.default(arg0_1, [1, 0]);  arg0_1 = None
        return (permute,)
`;
const read = (annotation: string): string => printGraph(importGraph(text(annotation)));

test.each([
  '"f32[16, 8]"',
  'torch.Tensor',
  'Tuple[torch.Tensor, ...]',
  "List['Tensor']",
  'None',
  '("f32[16, 8]",)',
])('a return annotation %s', (annotation) => {
  expect(read(` -> ${annotation}`)).toBe(read(''));
  expect(read(`->${annotation} `)).toBe(read(''));
});

test.each([
  [' -> ', "expected a type, found ':'"],
  [' -> Tuple[torch.Tensor', "expected ':'"],
  [' -> torch.Tensor)', "')' closes no bracket"],
])('one that is cut off (%s) is refused', (annotation, message) => {
  expect(() => read(annotation)).toThrow(message);
});
