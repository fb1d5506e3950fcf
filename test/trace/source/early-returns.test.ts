import { describe, expect, it } from 'vitest';

import { spec } from '../../../src/trace/record/spec.ts';
import { wrapConditions } from '../../../src/trace/source/wrap-conditions.ts';
import { type Tensor, trace } from '../../../src/trace/trace.ts';
import { controlCalls, run } from '../../passes/control-support.ts';
import { errorOf } from '../support.ts';
import { load, Plain, rewritten } from './plain.ts';

/**
 * Early returns as `cond`. The truth is the source as written, run on arrays of numbers whose
 * comparisons are plain booleans; the rewritten source must do the same on those, and its traced
 * graph the same on values.
 */

const INPUTS = [
  [1, 2],
  [7, 9],
  [-1, 0],
  [-8, -9],
  [0, 0],
  [40, 70],
];

const SAME: readonly (readonly [name: string, body: string, conds: number])[] = [
  ['what follows is the else', 'if (x.sum().gt(0)) return x.mul(2); return x.neg();', 1],
  [
    'a declaration follows',
    'if (x.sum().gt(0)) { return x.mul(2); } const y = x.add(1); return y.mul(3);',
    1,
  ],
  [
    'a chain',
    'const s = x.sum(); if (s.gt(9)) return x.mul(2); if (s.gt(0)) return x.mul(3); if (s.lt(-9)) return x; return x.neg();',
    3,
  ],
  [
    'else if without else',
    'const s = x.sum(); if (s.gt(9)) return x.mul(2); else if (s.gt(0)) return x.mul(3); return x.neg();',
    2,
  ],
  [
    'only the else returns',
    'let y = x; if (x.sum().gt(0)) { y = y.add(1); } else return x.neg(); return y.mul(2);',
    1,
  ],
  [
    'a branch that goes on',
    'let y = x; if (x.sum().gt(0)) { if (x.sum().gt(9)) return x.mul(5); y = y.add(1); } return y.mul(2);',
    2,
  ],
  [
    'assignments on the way out',
    'if (x.sum().gt(0)) { x = x.add(1); return x.mul(2); } x = x.sub(1); return x.neg();',
    1,
  ],
  [
    'from the middle of a branch',
    'if (x.sum().gt(0)) { const z = x.add(1); if (z.sum().gt(9)) return z; return z.mul(2); } return x;',
    2,
  ],
  [
    'a host condition between',
    'const deep = true; if (x.sum().gt(0)) return x.mul(2); if (deep) x = x.sub(4); if (x.sum().lt(-9)) return x.neg(); return x;',
    2,
  ],
  [
    'in a nested function',
    'const f = (h) => { if (h.sum().gt(0)) return h.mul(2); return h.sub(1); }; return f(f(x));',
    2,
  ],
];

describe('early returns of a branch on tensors', () => {
  for (const [name, body, conds] of SAME)
    it(`cond: ${name}`, () => {
      const truth = load<Plain>(`function model(x) { ${body} }`);
      const host = rewritten<Plain>(body);
      const graph = trace(rewritten<Tensor>(body), [spec([2], 'f64')], { controlFlow: 'capture' });
      expect(controlCalls(graph)).toEqual(Array.from({ length: conds }, () => 'cond'));
      for (const x of INPUTS) {
        const { values } = truth(new Plain(x));
        expect(host(new Plain(x)).values).toEqual(values);
        expect(run(graph, { arg0: x })).toEqual([values]);
      }
    });

  const KEPT: readonly (readonly [name: string, body: string, reason: string])[] = [
    [
      'a name that hides another',
      'const y = x; if (x.sum().gt(0)) { const y = x.mul(2); if (y.sum().gt(9)) return y; } return y.neg();',
      'only one branch returns',
    ],
    [
      'a name that is known before',
      'const later = () => z; if (x.sum().gt(0)) return x; const z = x.neg(); return later();',
      'only one branch returns',
    ],
    [
      'a function that follows',
      'if (x.sum().gt(0)) return f(x); function f(h) { return h.mul(2); } return x;',
      'only one branch returns',
    ],
    [
      'more copies than the limit',
      `let y = x; ${'if (x.sum().gt(0)) { if (x.sum().gt(9)) return y; y = y.add(1); } '.repeat(9)} return y;`,
      'returns from its middle',
    ],
  ];
  for (const [name, body, reason] of KEPT)
    it(`E_REWRITE, and the host program unchanged: ${name}`, () => {
      const error = errorOf(() =>
        trace(rewritten<Tensor>(body), [spec([2])], { controlFlow: 'capture' }),
      );
      expect(error.code).toBe('E_REWRITE');
      expect(error.message).toContain(reason);
      const truth = load<Plain>(`function model(x) { ${body} }`);
      const host = rewritten<Plain>(body);
      for (const x of INPUTS) expect(host(new Plain(x)).values).toEqual(truth(new Plain(x)).values);
    });

  it('E_REWRITE: a branch that returns may not change a variable of outside the function', () => {
    const text =
      'let count = 0;\nexport function model(x) { if (x.sum().gt(0)) { count = 1; return x; } return x.neg(); }';
    const model = load<Tensor>(wrapConditions(text, 'm.model.ts', { mode: 'rewrite' }));
    const error = errorOf(() => trace(model, [spec([2])], { controlFlow: 'capture' }));
    expect(error.message).toContain("assign 'count' of outside the function at m.model.ts:2:32");
  });
});
