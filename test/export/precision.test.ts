import { expect, test } from 'vitest';

import { precisionOf } from '../../src/export/torch/precision.ts';
import { parseGraph } from '../../src/graph/text/parse.ts';

test('a result is as exact as the coarsest dtype that it is computed from', () => {
  const graph = parseGraph(`swgraph 1
graph @g {
  in %x: bf16[4] input "x"
  in %w: f32[4] parameter "w"
  in %u: f64[4] parameter "u"
  %fine = aten.neg.default(%w): f32[4]
  %loss = aten.mul.Tensor(%fine, %x): f32[4]
  %whole = aten.neg.default(%u): f64[4]
  %same = aten.eq.Tensor(%loss, %fine): b8[4]
  out %loss output 0
  out %fine output 1
  out %whole output 2
  out %same output 3
  out %loss grad "w"
  out none grad "u"
}
`);
  expect(precisionOf(graph)).toEqual({
    'output 0': 'bfloat16',
    'output 1': 'float32',
    'output 3': 'bfloat16',
    'grad w': 'bfloat16',
  });
});
