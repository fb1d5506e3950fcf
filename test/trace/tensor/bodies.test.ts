import { describe, expect, it } from 'vitest';

import { lintGraph } from '../../../src/graph/lint.ts';
import { parseGraph } from '../../../src/graph/text/parse.ts';
import { printGraph } from '../../../src/graph/text/write.ts';
import { builtinOperators } from '../../../src/ops/builtin.ts';
import { inferCall } from '../../../src/ops/record/infer.ts';
import { needRecorder, recordInto, type TracedValue } from '../../../src/trace/record/recorder.ts';
import { spec } from '../../../src/trace/record/spec.ts';
import { tracedValue } from '../../../src/trace/tensor/core.ts';
import { param } from '../../../src/trace/tensor/state.ts';
import { tensorOf } from '../../../src/trace/tensor/tensor.ts';
import { type Tensor, trace } from '../../../src/trace/trace.ts';
import { errorOf } from '../support.ts';

/**
 * What recorders offer to operators with bodies: own inputs, captured outer values lifted, one
 * result by getitem.
 */

const value = (t: Tensor): TracedValue => tracedValue(t) ?? (undefined as never);

/**
 * `cond` over bodies without inputs of their own: a small recorder of the operator, as control flow
 * will have it.
 */
function choose(pred: Tensor, onTrue: () => Tensor, onFalse: () => Tensor): Tensor {
  const outer = needRecorder('cond');
  const bodies = [onTrue, onFalse].map((fn, i) => {
    const body = outer.body(i === 0 ? 'true_0' : 'false_0');
    const result = recordInto(body, () => body.own(value(fn()), 'return'));
    return { body, result };
  });
  const captured = [...new Set(bodies.flatMap(({ body }) => [...body.captured.keys()]))];
  const names = bodies.map(({ body, result }) => {
    body.closeOver(captured);
    body.output({ value: result.name, role: 'output', index: 0 });
    return outer.subgraph(body.name, body.finish());
  });
  const own = (v: TracedValue): { kind: 'value'; name: string } => ({
    kind: 'value',
    name: outer.own(v, 'cond').name,
  });
  const [picked] = outer.controlCall(
    'cond',
    [
      own(value(pred)),
      { kind: 'graph', name: names[0] },
      { kind: 'graph', name: names[1] },
      captured.map(own),
    ],
    [bodies[0].result],
  );
  return tensorOf(picked as TracedValue);
}

describe('bodies', () => {
  it('outer tensors and parameters become inputs of both bodies, in one order', () => {
    const graph = trace(
      ({ x, y }) =>
        choose(
          x.sum().gt(0),
          () => x.add(param('w', [2])),
          () => x.mul(y),
        ),
      { x: spec([2]), y: spec([2]) },
      { name: 'main' },
    );
    lintGraph(graph, (node, typeOf) => inferCall(builtinOperators(), node, typeOf));
    expect(printGraph(graph, { source: false })).toMatchInlineSnapshot(`
      "swgraph 1
      graph @main {
        in %w: f32[2] parameter "w"
        in %x: f32[2] input "x"
        in %y: f32[2] input "y"
        %sum = aten.sum.default(%x): f32[] ; forward
        %gt = aten.gt.Scalar(%sum, 0): b8[] ; forward
        %cond = cond(%gt, @true_0, @false_0, [%x, %w, %y]): (f32[2]) ; forward
        %getitem = operator.getitem(%cond, 0): f32[2] ; forward
        out %getitem output 0
        graph @true_0 {
          in %x: f32[2] arg 0
          in %w: f32[2] arg 1
          in %y: f32[2] arg 2
          %add = aten.add.Tensor(%x, %w): f32[2] ; forward
          out %add output 0
        }
        graph @false_0 {
          in %x: f32[2] arg 0
          in %w: f32[2] arg 1
          in %y: f32[2] arg 2
          %mul = aten.mul.Tensor(%x, %y): f32[2] ; forward
          out %mul output 0
        }
      }
      "
    `);
    expect(printGraph(parseGraph(printGraph(graph)))).toBe(printGraph(graph));
  });

  it('a value of a body cannot leave it', () => {
    let kept: Tensor | undefined;
    const error = errorOf(() =>
      trace(
        ({ x }) =>
          choose(
            x.sum().gt(0),
            () => (kept = x.sin()),
            () => x.cos(),
          ).add(kept as Tensor),
        { x: spec([2]) },
      ),
    );
    expect([error.code, error.message]).toEqual([
      'E_TRACE_LEAK',
      expect.stringContaining('is a value of the body @true_0'),
    ]);
  });

  it('bodies nest, and lift through every level', () => {
    const nested = (x: Tensor, n: number): Tensor =>
      n === 0
        ? x.sin()
        : choose(
            x.sum().gt(n),
            () => nested(x, n - 1),
            () => x,
          );
    const graph = trace(({ x }) => nested(x, 50), { x: spec([2]) }, { checkTwice: false });
    let depth = 0;
    for (let at = graph; Object.keys(at.subgraphs).length > 0; at = at.subgraphs.true_0) depth++;
    expect(depth).toBe(50);
    expect(printGraph(parseGraph(printGraph(graph)))).toBe(printGraph(graph));
  });
});
