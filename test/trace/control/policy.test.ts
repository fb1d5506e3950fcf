import { describe, expect, it } from 'vitest';

import type { Graph } from '../../../src/graph/types.ts';
import { fromFlat, NDArray } from '../../../src/ndarray/array.ts';
import { builtinOperators } from '../../../src/ops/builtin.ts';
import { one } from '../../../src/ops/record/kernel.ts';
import { pointwiseRules } from '../../../src/ops/rules/pointwise.ts';
import { jointGraph } from '../../../src/passes/autodiff/joint.ts';
import { evaluateGraph } from '../../../src/simulate/evaluate.ts';
import { scan } from '../../../src/trace/control/loops.ts';
import { customOp } from '../../../src/trace/custom/custom-op.ts';
import { dim, spec } from '../../../src/trace/record/spec.ts';
import * as sourceHooks from '../../../src/trace/source/hooks.ts';
import { wrapConditions } from '../../../src/trace/source/wrap-conditions.ts';
import { param } from '../../../src/trace/tensor/state.ts';
import { capture, type Tensor, trace } from '../../../src/trace/trace.ts';
import { controlCalls, run } from '../../passes/control-support.ts';
import { errorOf } from '../support.ts';

type Model = (x: Tensor) => Tensor;

/** The function `model` of a module text, transformed by the source-level front end. */
function load(source: string, mode: 'check' | 'rewrite'): Model {
  const text = wrapConditions(source, 'm.model.ts', { mode });
  const body = text.replace(/^import .*$/m, '').replaceAll(/^export /gm, '');
  // The tests run the transformed text, which is their subject.
  // eslint-disable-next-line @typescript-eslint/no-implied-eval
  const make = new Function('__shardwright', 'scan', `${body}\nreturn model;`) as (
    hooks: unknown,
    s: unknown,
  ) => Model;
  return make(sourceHooks, scan);
}

const IF =
  'export function model(x) { if (x.sum().gt(0)) { return x.sin(); } else { return x.cos(); } }';
const f64 = (...shape: number[]) => spec(shape, 'f64');

describe('policies of the front end', () => {
  it('auto: host branch, size branch, tensor if, explicit scan, each with position and reason', () => {
    const source = `export function model(x) {
  const deep = 3;
  if (deep > 2) x = x.mul(2);
  if (x.shape[0].gt(4)) x = x.add(1);
  if (x.sum().gt(0)) { x = x.sin(); } else { x = x.cos(); }
  return scan((h, r) => [h.add(r), null], x.sum(), x)[0];
}`;
    const { report } = capture(load(source, 'rewrite'), [spec([dim('s0', { max: 64 })])], {
      policy: 'auto',
    });
    const found = report.controlFlow.map(({ kind, position, policy }) => [
      kind,
      position.replace(/^.*?([\w.]+):/, '$1:').replace(/:\d+$/, ''),
      policy,
    ]);
    expect(found).toContainEqual(['if', 'm.model.ts:3', 'guards']);
    expect(found).toContainEqual(['if', 'm.model.ts:4', 'guards']);
    expect(found).toContainEqual(['if', 'm.model.ts:5', 'operators']);
    expect(report.controlFlow.filter(({ kind }) => kind === 'scan')).toMatchObject([
      { policy: 'operators', reason: 'explicit operator' },
    ]);
    expect(report.controlFlow.find(({ kind }) => kind === 'size')).toMatchObject({
      policy: 'guards',
      reason: 'a size decides: s0 > 4',
    });
    for (const { position, reason } of report.controlFlow)
      expect(position === '' || reason === '').toBe(false);
  });

  it('auto without rewriting: an error that names the ways out', () => {
    const error = errorOf(() => trace(load(IF, 'check'), [spec([2])], { policy: 'auto' }));
    expect(error.code).toBe('E_DATA_DEPENDENT');
    expect(error.message).toMatch(/^Data-dependent branching/);
    for (const way of ['guards', 'operators', 'predicate', 'regions', 'opaque', 'cfg'])
      expect(error.details.hint).toContain(way);
    expect(errorOf(() => trace(load(IF, 'rewrite'), [spec([2])], { policy: 'guards' })).code).toBe(
      'E_DATA_DEPENDENT',
    );
  });

  it("rewritten source asks the trace: an error by default, operators with controlFlow: 'capture'", () => {
    const model = load(IF, 'rewrite');
    expect(errorOf(() => trace(model, [spec([2])])).code).toBe('E_TRACE_CONTROL_FLOW');
    expect(errorOf(() => trace(model, [spec([2])], { controlFlow: 'check' })).code).toBe(
      'E_TRACE_CONTROL_FLOW',
    );
    const { graph, report } = capture(model, [spec([2])], { controlFlow: 'capture' });
    expect(controlCalls(graph)).toEqual(['cond']);
    expect(report.controlFlow).toMatchObject([{ kind: 'if', policy: 'operators' }]);
    expect(errorOf(() => trace(model, [spec([2])], { controlFlow: 'yes' as 'check' })).code).toBe(
      'E_USAGE',
    );
    // Loops become operators, and what has no form as one is E_REWRITE, only where they were asked for.
    for (const body of [
      'if (x.sum().gt(0)) return x.sin();',
      'do { x = x.mul(2); } while (x.sum().lt(9)); return x;',
      'for (; x.sum().lt(9); ) x = x.mul(2); return x;',
    ]) {
      const other = load(`export function model(x) { ${body} }`, 'rewrite');
      expect(errorOf(() => trace(other, [spec([2])])).code, body).toBe('E_TRACE_CONTROL_FLOW');
      expect(errorOf(() => trace(other, [spec([2])], { policy: 'guards' })).code, body).toBe(
        'E_DATA_DEPENDENT',
      );
      const captured = (): Graph => trace(other, [spec([2])], { controlFlow: 'capture' });
      if (body.startsWith('if')) expect(errorOf(captured).code, body).toBe('E_REWRITE');
      else expect(controlCalls(captured()), body).toEqual(['while_loop']);
    }
  });

  it('operators: if, assignments and while of the rewritten source', () => {
    const source = `export function model(x) {
  let y = x;
  if (x.sum().gt(0)) { y = x.mul(2); } else { y = x.sub(1); }
  while (y.sum().lt(100)) { y = y.mul(3); }
  return x.sum().gt(5) ? y : y.neg();
}`;
    const graph = trace(load(source, 'rewrite'), [f64(2)], { policy: 'operators' });
    expect(controlCalls(graph)).toEqual(['cond', 'while_loop', 'cond']);
    const truth = (x: readonly number[]): number[] => {
      let y = x[0] + x[1] > 0 ? x.map((v) => v * 2) : x.map((v) => v - 1);
      // A negative sum never reaches 100, so the samples below are positive or large.
      while (y[0] + y[1] < 100) y = y.map((v) => v * 3);
      return x[0] + x[1] > 5 ? y : y.map((v) => -v);
    };
    for (const x of [
      [1, 2],
      [3, 9],
      [60, 70],
    ])
      expect(run(graph, { arg0: x })).toEqual([truth(x)]);
  });

  it('predicate: no control flow is left in the captured graph', () => {
    const { graph, report } = capture(load(IF, 'rewrite'), [f64(2)], { policy: 'predicate' });
    expect(controlCalls(graph)).toEqual([]);
    expect(report.controlFlow).toMatchObject([
      { policy: 'predicate', position: expect.stringContaining('m.model.ts:1') as string },
    ]);
    expect(run(graph, { arg0: [1, 2] })).toEqual([[Math.sin(1), Math.sin(2)]]);
    expect(run(graph, { arg0: [-1, -2] })).toEqual([[Math.cos(-1), Math.cos(-2)]]);
  });
});

describe('opaque', () => {
  /** The rows of x in ascending order, negative values masked to zero. */
  const sortAndMask = (extra: Partial<Parameters<typeof customOp>[0]> = {}) =>
    customOp({
      name: 'mine.sort_and_mask.default',
      schema: 'Tensor x, Tensor scale',
      type: (ctx) => [ctx.inputs[0]],
      kernel: one(({ inputs }) => {
        const [x, scale] = inputs.map((input) => input.toArray());
        const sorted = [...x].sort((a, b) => a - b).map((v) => (v < 0 ? 0 : v * scale[0]));
        return fromFlat(inputs[0].shape, Float64Array.from(sorted));
      }),
      ...extra,
    });

  it('one node, with declared type; it is evaluated by its kernel', () => {
    const op = sortAndMask();
    const table = builtinOperators().with([op.record]);
    const { graph, report } = capture(
      ({ x }: { x: Tensor }) => op.call(x, param('scale', { shape: [1], dtype: 'f64' })).mul(2),
      { x: f64(3) },
      { table },
    );
    expect(graph.nodes.filter((n) => n.kind === 'call').map((n) => n.target)).toEqual([
      'mine.sort_and_mask.default',
      'aten.mul.Tensor',
    ]);
    expect(report.controlFlow).toMatchObject([
      { kind: 'mine.sort_and_mask.default', policy: 'opaque' },
    ]);
    expect(report.controlFlow[0].reason).toContain('replicated');
    const inputs = [fromFlat([1], Float64Array.of(10)), fromFlat([3], Float64Array.of(3, -1, 2))];
    const [value] = evaluateGraph(table, graph, inputs).outputs;
    expect(value instanceof NDArray && value.toArray()).toEqual([0, 40, 60]);
    expect(errorOf(() => jointGraph(graph, { table })).code).toBe('E_NO_VJP');
  });

  it('a captured parameter is refused', () => {
    const op = sortAndMask({ body: (x) => x.mul(param('hidden', [3])) });
    const table = builtinOperators().with([op.record]);
    const error = errorOf(() =>
      trace(({ x }: { x: Tensor }) => op.call(x, x), { x: spec([3]) }, { table }),
    );
    expect(error.code).toBe('E_OPAQUE_CAPTURE');
    expect(error.message).toContain('%hidden');
    const listed = sortAndMask({ body: (x, scale) => x.mul(scale) });
    const fine = trace(
      ({ x }: { x: Tensor }) => listed.call(x, x),
      { x: spec([3]) },
      { table: builtinOperators().with([listed.record]) },
    );
    expect(fine.nodes).toHaveLength(2);
  });

  it('with a derivative and rules', () => {
    const op = customOp({
      name: 'mine.triple.default',
      schema: 'Tensor x',
      type: (ctx) => [ctx.inputs[0]],
      sharding: (ctx) => pointwiseRules(ctx),
      vjp: (call) => ({ x: () => call.b.mul(call.g(), 3) }),
      kernel: one(({ inputs: [x] }) =>
        fromFlat(
          x.shape,
          Float64Array.from(x.toArray(), (v) => 3 * v),
        ),
      ),
    });
    const table = builtinOperators().with([op.record]);
    const graph = trace(({ x }: { x: Tensor }) => op.call(x.sin()).sum(), { x: f64(2) }, { table });
    const joint = jointGraph(graph, { table, wrt: 'all', seed: 1, vjps: op.vjps });
    const [, gradient] = evaluateGraph(table, joint, [
      fromFlat([2], Float64Array.of(0.5, 2)),
    ]).outputs;
    const got = gradient instanceof NDArray ? gradient.toArray() : [];
    [0.5, 2].forEach((x, i) => expect(got[i]).toBeCloseTo(3 * Math.cos(x), 12));
  });
});
