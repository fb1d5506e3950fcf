import { describe, expect, it } from 'vitest';

import { fromList } from '../../../src/ndarray/array.ts';
import { builtinOperators } from '../../../src/ops/builtin.ts';
import { evaluateGraph } from '../../../src/simulate/evaluate.ts';
import { captureRegions } from '../../../src/trace/capture/regions.ts';
import { dim, spec } from '../../../src/trace/record/spec.ts';
import * as sourceHooks from '../../../src/trace/source/hooks.ts';
import { wrapConditions } from '../../../src/trace/source/wrap-conditions.ts';
import { bernoulli } from '../../../src/trace/tensor/functional.ts';
import { type Tensor, trace, type TraceOptions } from '../../../src/trace/trace.ts';
import { errorOf } from '../support.ts';

/**
 * What stops a program for want of values must stop the trace, also where the program catches it
 * and returns something.
 */

type Model = (x: Tensor, y: Tensor) => Tensor;

function load(body: string, mode: 'check' | 'rewrite'): Model {
  const text = wrapConditions(`export function model(x, y) {\n${body}\n}`, 'm.model.ts', { mode });
  const plain = text.replace(/^import .*$/m, '').replaceAll(/^export /gm, '');
  // The tests run the transformed text, which is their subject.
  // eslint-disable-next-line @typescript-eslint/no-implied-eval
  return (new Function('__shardwright', `${plain}\nreturn model;`) as (hooks: unknown) => Model)(
    sourceHooks,
  );
}

const INPUTS = [spec([4], 'b8'), spec([4], 'b8')] as const;
const ANY = 'try { if (x.any()) return x } catch {} return y';

describe('an error that the traced function catches', () => {
  const ROWS: readonly (readonly [string, string, 'check' | 'rewrite', TraceOptions, string])[] = [
    ['a condition', ANY, 'check', {}, 'E_TRACE_CONTROL_FLOW'],
    ['a condition that guards refuses', ANY, 'check', { policy: 'guards' }, 'E_DATA_DEPENDENT'],
    ['a condition that has no operator', ANY, 'rewrite', { controlFlow: 'capture' }, 'E_REWRITE'],
    [
      'in finally',
      'try { if (x.any()) return x } finally { return y }',
      'check',
      {},
      'E_TRACE_CONTROL_FLOW',
    ],
    [
      'thrown on as another',
      'try { return x.any().item() } catch { throw new Error("no") }',
      'check',
      {},
      'E_TRACE_HOST_READ',
    ],
    [
      'a number',
      'try { if (Number(x) > 2) return x } catch {} return y',
      'check',
      {},
      'E_TRACE_COERCE',
    ],
    [
      'an unknown property',
      'try { return x.data[0] } catch {} return y',
      'check',
      {},
      'E_TRACE_COERCE',
    ],
    ['an enumeration', 'try { return { ...x } } catch {} return y', 'check', {}, 'E_TRACE_COERCE'],
    ['the first of two', 'try { x.item() } catch {} return +y', 'check', {}, 'E_TRACE_HOST_READ'],
  ];
  for (const [name, body, mode, options, code] of ROWS)
    it(`${code}: ${name}`, () => {
      const error = errorOf(() => trace(load(body, mode), INPUTS, options));
      expect(error.code).toBe(code);
      expect(error.message).toMatch(/; the traced function caught this error and went on$/);
      expect(error.details.hint).toBeTruthy();
    });

  it('E_TRACE_IMPURE and E_DATA_DEPENDENT: random numbers without a key, a size that comes from data', () => {
    const random: Model = (x, y) => {
      try {
        return bernoulli(x.shape, 0.5);
      } catch {
        return y;
      }
    };
    const f = [spec([4]), spec([4])] as const;
    expect(errorOf(() => trace(random, f)).code).toBe('E_TRACE_IMPURE');
    const sized = (x: Tensor): Tensor => {
      try {
        if ((x.shape[0] as Exclude<(typeof x.shape)[0], number>).gt(4)) return x.neg();
      } catch {
        return x;
      }
      return x;
    };
    const rows = dim('rows', { max: 64, unbacked: true });
    expect(errorOf(() => trace(sized, [spec([rows])])).code).toBe('E_DATA_DEPENDENT');
  });

  it('a wrong shape is wrong with values too: the program may catch that', () => {
    const fits: Model = (x, y) => {
      try {
        return x.matmul(y);
      } catch {
        return x.matmul(y.t());
      }
    };
    const graph = trace(fits, [spec([2, 3]), spec([5, 3])]);
    expect(graph.nodes.filter((node) => node.kind === 'call').map((node) => node.name)).toEqual([
      't',
      'mm',
    ]);
  });

  it('a region ends there though the program catches it on the way', () => {
    const table = builtinOperators();
    const program = captureRegions(
      load('try { if (x.any()) return x.logicalNot() } catch {} return y', 'check'),
      INPUTS,
    );
    const values = (...bits: number[]) => fromList([4], bits, 'b8');
    const call = (x: number[]): readonly number[] => {
      const runGraph = (
        graph: Parameters<typeof evaluateGraph>[1],
        inputs: readonly ReturnType<typeof values>[],
      ) => evaluateGraph(table, graph, inputs).outputs as ReturnType<typeof values>[];
      const [result] = program.run(
        [values(...x), values(1, 1, 0, 0)],
        runGraph,
        (v) => v.item() !== 0,
      );
      return result.toArray();
    };
    expect(call([1, 0, 0, 0])).toEqual([0, 1, 1, 1]);
    expect(call([0, 0, 0, 0])).toEqual([1, 1, 0, 0]);
    expect(program.regions).toHaveLength(3);
  });
});
