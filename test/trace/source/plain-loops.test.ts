import { describe, expect, it } from 'vitest';

import { spec } from '../../../src/trace/record/spec.ts';
import { type Tensor, trace } from '../../../src/trace/trace.ts';
import { controlCalls, run } from '../../passes/control-support.ts';
import { errorOf } from '../support.ts';
import { load, Plain, rewritten } from './plain.ts';

const INPUTS = [
  [1, 2],
  [7, 9],
  [-1, 0],
  [-8, -9],
  [0, 0],
  [40, 70],
];

const LOOPS: readonly (readonly [name: string, body: string, calls: string])[] = [
  [
    'break out of a while loop',
    'let y = x; while (y.sum().lt(50)) { y = y.add(3); if (y.amax().gt(9)) break; y = y.add(1); } return y;',
    'while_loop cond',
  ],
  [
    'continue a while loop',
    'let y = x; while (y.sum().lt(50)) { y = y.add(3); if (y.amax().gt(9)) continue; y = y.add(2); } return y;',
    'while_loop cond',
  ],
  [
    'both, one in the other',
    'let y = x; while (y.sum().lt(50)) { y = y.add(3); if (y.amax().gt(9)) { if (y.sum().gt(30)) break; continue; } y = y.add(1); } return y.neg();',
    'while_loop cond cond',
  ],
  [
    'break as what a test does not do',
    'let y = x; while (true) { y = y.add(4); if (y.sum().gt(20)) { y = y.neg(); break; } } return y;',
    'cond while_loop cond',
  ],
  [
    'a counter beside a tensor',
    'let y = x; let i = 0; while (i < 5 && y.sum().lt(40)) { y = y.add(2); i += 1; } return y.add(i);',
    'while_loop',
  ],
  [
    'a counter that steps back',
    'let y = x; let left = 3; while (y.sum().lt(40) && left > 0) { left--; y = y.add(1 + left); } return y;',
    'while_loop',
  ],
  [
    'a for loop that the host counts, left by a tensor',
    'let y = x; for (let i = 0; i < 3; i++) { y = y.add(i); if (y.amax().gt(5)) break; y = y.mul(2); } return y;',
    'cond cond cond cond cond',
  ],
  [
    'a for loop that a tensor counts',
    'let y = x; for (let i = 1; y.sum().lt(30); i++) { y = y.add(i); } return y;',
    'while_loop',
  ],
  [
    'a for loop whose variable is read behind it',
    'let y = x; let i; for (i = 0; i < 3; i++) { y = y.add(2); if (y.amax().gt(7)) break; } return y.add(i);',
    'cond cond while_loop cond cond',
  ],
  [
    'a loop over a list',
    'let y = x; for (const n of [1, 2, 3]) { if (y.sum().lt(0)) continue; y = y.add(n); if (y.amax().gt(9)) break; } return y;',
    'cond cond cond cond cond cond cond cond',
  ],
  ['a do loop', 'let y = x; do { y = y.add(3); } while (y.sum().lt(20)); return y;', 'while_loop'],
  [
    'loops in each other',
    'let y = x; while (y.sum().lt(60)) { let z = y; while (z.amax().lt(9)) { z = z.add(2); if (z.sum().gt(15)) break; } y = z.add(5); } return y;',
    'while_loop while_loop cond',
  ],
  [
    'functions that every trip has',
    'const f = []; for (let i = 0; i < 3; i++) f.push((h) => h.add(i)); let y = x; for (const g of f) y = g(y); return y;',
    '',
  ],
  [
    'and, or, not',
    'const s = x.sum(); if (!(s.gt(3) && s.lt(20)) || x.amax().gt(60)) return x.neg(); return x.mul(2);',
    'cond',
  ],
  [
    'a host value beside a tensor',
    'const deep = true; const s = x.sum(); if (deep && s.gt(3)) return x.neg(); if (s.gt(0) && !deep) return x; return x.mul(2);',
    'cond',
  ],
  ['an if without else', 'let y = x; if (x.sum().gt(3)) y = y.mul(3); return y.add(1);', 'cond'],
];

describe('loops, logic and counters of a program on tensors', () => {
  for (const [name, body, calls] of LOOPS)
    it(`are operators: ${name}`, () => {
      const truth = load<Plain>(`function model(x) { ${body} }`);
      const host = rewritten<Plain>(body);
      const graph = trace(rewritten<Tensor>(body), [spec([2], 'f64')], { controlFlow: 'capture' });
      expect(controlCalls(graph).join(' ')).toBe(calls);
      for (const x of INPUTS) {
        const { values } = truth(new Plain(x));
        expect(host(new Plain(x)).values, `${x.join()} on the host`).toEqual(values);
        expect(run(graph, { arg0: x }), x.join()).toEqual([values]);
      }
    });

  const REFUSED: readonly (readonly [name: string, body: string, code: string, hint: string])[] = [
    [
      'a return from a loop',
      'let y = x; while (y.sum().lt(9)) { y = y.add(1); if (y.amax().gt(5)) return y; } return y;',
      'E_REWRITE',
      'let found = y;',
    ],
    [
      'element by element',
      'if (x.gt(0) && x.lt(9)) return x; return x.neg();',
      'E_REWRITE',
      'a.logicalAnd(b)',
    ],
    ['a tensor as a truth value', 'return !x ? x : x.neg();', 'E_REWRITE', 'x.eq(0)'],
    [
      'a property',
      'const o = { y: x }; if (x.sum().gt(0)) { o.y = x.neg(); } return o.y;',
      'E_REWRITE',
      'let value = o.value;',
    ],
    [
      'an error',
      'if (x.sum().gt(0)) { throw new Error("no"); } return x;',
      'E_REWRITE',
      'take the throw out',
    ],
  ];
  for (const [name, body, code, hint] of REFUSED)
    it(`are refused with the lines to write: ${name}`, () => {
      const error = errorOf(() =>
        trace(rewritten<Tensor>(body), [spec([2], 'f64')], { controlFlow: 'capture' }),
      );
      expect(error.code).toBe(code);
      expect(error.message).toMatch(/m\.model\.ts:1:\d+/);
      expect(error.details.hint).toContain(hint);
    });
});
