import assert from 'node:assert';
import { format, inspect, isDeepStrictEqual } from 'node:util';

import { describe, expect, it } from 'vitest';

import { Tensor } from '../../src/trace/trace.ts';
import { errorOf, withTensor } from './support.ts';

/**
 * The table of what JavaScript lets us trap. Every construct is a row: those that run a hook must
 * throw, those that run none are pinned down as silent, so that the defences of lint and source
 * cannot be thought superfluous or complete.
 */

/* eslint-disable @typescript-eslint/no-unsafe-argument, @typescript-eslint/no-unsafe-return, @typescript-eslint/no-unsafe-assignment, @typescript-eslint/no-unsafe-member-access, @typescript-eslint/no-unsafe-call, @typescript-eslint/await-thenable, eqeqeq */
// The rows must do what types forbid.
type Untyped = any; // eslint-disable-line @typescript-eslint/no-explicit-any
type Row = readonly [name: string, body: (t: Untyped, u: Untyped) => unknown];

const NUMBER: Row[] = [
  ['t - 1', (t) => t - 1],
  ['t * 2', (t) => t * 2],
  ['t / 2', (t) => t / 2],
  ['t % 2', (t) => t % 2],
  ['t ** 2', (t) => t ** 2],
  ['t | 1', (t) => t | 1],
  ['t & 1', (t) => t & 1],
  ['t ^ 1', (t) => t ^ 1],
  ['t << 1', (t) => t << 1],
  ['t >> 1', (t) => t >> 1],
  ['t >>> 1', (t) => t >>> 1],
  ['~t', (t) => ~t],
  ['-t', (t) => -t],
  ['+t', (t) => +t],
  ['t++', (t) => t++],
  ['--t', (t) => --t],
  ['t -= 1', (t) => (t -= 1)],
  ['t *= 2', (t) => (t *= 2)],
  ['t < 3', (t) => t < 3],
  ['t <= u', (t, u) => t <= u],
  ['3 > t', (t) => 3 > t],
  ['t >= null', (t) => t >= (null as Untyped)],
  [
    'for (i = 0; i < t; i++)',
    (t) => {
      for (let i = 0; i < t; i++) return i;
      return 0;
    },
  ],
  ['Number(t)', (t) => Number(t)],
  ['BigInt(t)', (t) => BigInt(t)],
  ['isNaN(t)', (t) => isNaN(t)],
  ['isFinite(t)', (t) => isFinite(t)],
  ['Math.exp(t)', (t) => Math.exp(t)],
  ['Math.max(t, 1)', (t) => Math.max(t, 1)],
  ['[1, 2].at(t)', (t) => [1, 2].at(t)],
  ['[1, 2].slice(t)', (t) => [1, 2].slice(t)],
  ['[1, 2].fill(0, t)', (t) => [1, 2].fill(0, t)],
  ['array.length = t', (t) => ([1].length = t)],
  ['Array.from({ length: t })', (t) => Array.from({ length: t })],
  ['"x".repeat(t)', (t) => 'x'.repeat(t)],
  ['typed[0] = t', (t) => (new Float32Array(1)[0] = t)],
  ['sort comparator', (t) => [1, 2].sort(() => t)],
  ['(3).toFixed(t)', (t) => (3).toFixed(t)],
  ['new Intl.NumberFormat().format(t)', (t) => new Intl.NumberFormat().format(t)],
  ['format("%d", t)', (t) => format('%d', t)],
];

const DEFAULT: Row[] = [
  ['t + 1', (t) => t + 1],
  ['t + u', (t, u) => t + u],
  ['"" + t', (t) => '' + t],
  ['t += 1', (t) => (t += 1)],
  ['t == 1', (t) => t == 1],
  ['t != "a"', (t) => t != 'a'],
  ['t == true', (t) => t == true],
  ['new Date(t)', (t) => new Date(t)],
  ['assert.equal(t, 1)', (t) => assert.equal(t, 1)],
];

const TEXT: Row[] = [
  ['template', (t) => `${t}`],
  ['String(t)', (t) => String(t)],
  ['[1][t]', (t) => [1][t]],
  ['object[t] = 1', (t) => (({} as Untyped)[t] = 1)],
  ['{ [t]: 1 }', (t) => ({ [t]: 1 })],
  ['t in {}', (t) => t in {}],
  ['parseInt(t)', (t) => parseInt(t)],
  ['parseFloat(t)', (t) => parseFloat(t)],
  ['[t].join()', (t) => [t].join()],
  ['/x/.test(t)', (t) => /x/.test(t)],
  ['"x".includes(t)', (t) => 'x'.includes(t)],
  ['encodeURIComponent(t)', (t) => encodeURIComponent(t)],
  ['Symbol(t)', (t) => Symbol(t)],
  ['format("%s", t)', (t) => format('%s', t)],
  ['t.toString()', (t) => t.toString()],
  ['t.valueOf()', (t) => t.valueOf()],
];

const ITERATED: Row[] = [
  ['[...t]', (t) => [...t]],
  ['f(...t)', (t) => Math.max(...t)],
  [
    'for of',
    (t) => {
      for (const x of t) return x;
      return 0;
    },
  ],
  [
    'const [a] = t',
    (t) => {
      const [a] = t;
      return a;
    },
  ],
  ['Array.from(t)', (t) => Array.from(t)],
  ['new Set(t)', (t) => new Set(t)],
  ['new Map(t)', (t) => new Map(t)],
  ['new Float32Array(t)', (t) => new Float32Array(t)],
  [
    'yield* t',
    (t) => [
      ...(function* () {
        yield* t;
      })(),
    ],
  ],
  ['Object.fromEntries(t)', (t) => Object.fromEntries(t)],
];

const SERIALISED: Row[] = [
  ['JSON.stringify(t)', (t) => JSON.stringify(t)],
  ['JSON.stringify({ a: [t] })', (t) => JSON.stringify({ a: [t] })],
];

const PROPERTIES: Row[] = [
  ['t[0]', (t) => t[0]],
  ['t[-1]', (t) => t[-1]],
  ['t.unknown', (t) => t.unknown],
  ['t.length', (t) => t.length],
  [
    '({ unknown } = t)',
    (t) => {
      const { unknown } = t;
      return unknown;
    },
  ],
  ['t.x = 1', (t) => (t.x = 1)],
  ['t[0] = 1', (t) => (t[0] = 1)],
  ['t.shape = []', (t) => (t.shape = [])],
  ['delete t.shape', (t) => delete t.shape],
  ['{ ...t }', (t) => ({ ...t })],
  [
    'const { shape, ...rest } = t',
    (t) => {
      const { shape, ...rest } = t;
      return [shape, rest];
    },
  ],
  ['Object.keys(t)', (t) => Object.keys(t)],
  ['Object.entries(t)', (t) => Object.entries(t)],
  ['Object.assign({}, t)', (t) => Object.assign({}, t)],
  [
    'for in',
    (t) => {
      for (const k in t) return k;
      return 0;
    },
  ],
  ['"x" in t', (t) => 'x' in t],
  ['Object.hasOwn(t, "x")', (t) => Object.hasOwn(t, 'x')],
  ['Object.defineProperty(t, "x", {})', (t) => Object.defineProperty(t, 'x', {})],
  ['Object.setPrototypeOf(t, null)', (t) => Object.setPrototypeOf(t, null)],
  ['deep equality', (t, u) => isDeepStrictEqual(t, u)],
];

/** Silent without the source-level front end. The second value is what the program sees. */
const SILENT: (readonly [name: string, body: Row[1], result: unknown])[] = [
  [
    'if (t)',
    (t) => {
      if (t) return 'yes';
      return 'no';
    },
    'yes',
  ],
  [
    'while (t)',
    (t) => {
      while (t) return 'yes';
      return 'no';
    },
    'yes',
  ],
  [
    'do while (t)',
    (t) => {
      let n = 0;
      do {
        if (n++ > 2) break;
      } while (t);
      return n;
    },
    4,
  ],
  [
    'for (; t;)',
    (t) => {
      for (; t;) return 'yes';
      return 'no';
    },
    'yes',
  ],
  ['t ? a : b', (t) => (t ? 'a' : 'b'), 'a'],
  ['!t', (t) => !t, false],
  ['!!t', (t) => !!t, true],
  ['Boolean(t)', (t) => Boolean(t), true],
  ['t && x', (t) => t && 'x', 'x'],
  ['(t || x) === t', (t) => (t || 'x') === t, true],
  ['t &&= x', (t) => (t &&= 'x'), 'x'],
  ['(t ||= x) instanceof Tensor', (t) => (t ||= 'x') instanceof Tensor, true],
  ['assert(t)', (t) => assert(t), undefined],
  ['filter', (t) => [1, 2].filter(() => t), [1, 2]],
  ['some', (t) => [1, 2].some(() => t), true],
  ['every', (t) => [1, 2].every(() => t), true],
  ['find', (t) => [1, 2].find(() => t), 1],
  ['findIndex', (t) => [1, 2].findIndex(() => t), 0],
  ['findLast', (t) => [1, 2].findLast(() => t), 2],
  ['findLastIndex', (t) => [1, 2].findLastIndex(() => t), 1],
  ['t === u', (t, u) => t === u, false],
  ['t !== u', (t, u) => t !== u, true],
  ['t == u', (t, u) => t == u, false],
  [
    'switch (t)',
    (t) => {
      switch (t) {
        case 1:
          return 'one';
        default:
          return 'default';
      }
    },
    'default',
  ],
  [
    'case t',
    (t) => {
      switch (1 as Untyped) {
        case t:
          return 'tensor';
        default:
          return 'default';
      }
    },
    'default',
  ],
  ['Object.is(t, u)', (t, u) => Object.is(t, u), false],
  ['[t].includes(u)', (t, u) => [t].includes(u), false],
  ['[t].indexOf(u)', (t, u) => [t].indexOf(u), -1],
  ['Map key', (t, u) => new Map([[t, 1]]).get(u), undefined],
  ['Set member', (t, u) => new Set([t]).has(u), false],
  ['Number.isNaN(t)', (t) => Number.isNaN(t), false],
  ['Number.isFinite(t)', (t) => Number.isFinite(t), false],
  ['Number.isInteger(t)', (t) => Number.isInteger(t), false],
  ['Array.isArray(t)', (t) => Array.isArray(t), false],
  ['new Array(t).length', (t) => new Array(t).length, 1],
];

const HARMLESS: (readonly [name: string, body: Row[1], result: unknown])[] = [
  ['typeof t', (t) => typeof t, 'object'],
  ['t instanceof Tensor', (t) => t instanceof Tensor, true],
  ['(t ?? 1) === t', (t) => (t ?? 1) === t, true],
  ['t?.shape', (t) => t?.shape, [4, 8]],
  [
    '(t ??= 1) === t',
    (t) => {
      const before = t;
      t ??= 1;
      return before === t;
    },
    true,
  ],
  ['default parameter', (t) => ((x: unknown = 1) => x)(t) === t, true],
  ['t == null', (t) => t == null, false],
  ['t === undefined', (t) => t === undefined, false],
  ['void t', (t) => void t, undefined],
  [
    'throw t',
    (t) => {
      try {
        throw t;
      } catch (e) {
        return e === t;
      }
    },
    true,
  ],
  [
    'array element',
    (t) => {
      const a = [];
      a[0] = t;
      return a[0] === t;
    },
    true,
  ],
  ['[t].flat()', (t) => [t].flat()[0] === t, true],
  ['[].concat(t)', (t) => ([] as unknown[]).concat(t)[0] === t, true],
  ['Map value', (t) => new Map([[1, t]]).get(1) === t, true],
  ['reading', (t) => [t.rank, t.dtype, t.name, t.requiresGrad], [2, 'f32', 't', false]],
];

describe('what throws', () => {
  for (const [group, rows] of Object.entries({
    NUMBER,
    DEFAULT,
    TEXT,
    ITERATED,
    SERIALISED,
    PROPERTIES,
  }))
    for (const [name, body] of rows)
      it(`${group.toLowerCase()}: ${name}`, () => {
        const error = errorOf(() => withTensor(body));
        expect(error.code).toBe('E_TRACE_COERCE');
        expect(error.message).toContain('%t: f32[4, 8]');
        expect(error.message).toMatch(/coercion\.test\.ts:\d+:\d+$/);
        expect(error.details.hint).toMatch(/`|method|change|record/);
      });

  it('the position is that of the construct, in the source as written', () => {
    const line = Number(/coercion\.test\.ts:(\d+)/.exec(new Error().stack ?? '')?.[1]);
    const error = errorOf(() => withTensor((t: Untyped) => t * 2));
    expect(error.details.position?.line).toBe(line + 1);
  });

  it('for await over a tensor is refused', async () => {
    const t = withTensor((x) => x);
    await expect(async () => {
      for await (const x of t as Untyped) return x as unknown;
      return 0;
    }).rejects.toMatchObject({ code: 'E_TRACE_COERCE' });
  });

  it('a structured clone of a guarded tensor is refused by the engine itself', () => {
    expect(() => withTensor((t) => structuredClone(t))).toThrow(/could not be cloned/);
  });
});

describe('what nothing can trap at run time', () => {
  for (const [name, body, result] of SILENT)
    it(`silent: ${name}`, () => expect(withTensor(body)).toEqual(result));
});

describe('what is meant and works', () => {
  for (const [name, body, result] of HARMLESS)
    it(`harmless: ${name}`, () => expect(withTensor(body)).toEqual(result));

  it('awaiting a tensor gives the tensor', async () => {
    const t = withTensor((x) => x);
    expect((await t) === t).toBe(true);
  });

  it('printing shows name and type', () => {
    for (const proxy of [true, false]) {
      expect(withTensor((t) => inspect(t), proxy)).toBe('%t: f32[4, 8]');
      expect(withTensor((t) => format('%O', t), proxy)).toBe('%t: f32[4, 8]');
      expect(withTensor((t) => inspect({ a: [t] }), proxy)).toBe('{ a: [ %t: f32[4, 8] ] }');
    }
  });
});

describe('property traffic with and without the guard', () => {
  it('a plain frozen tensor answers in silence', () => {
    expect(withTensor((t: Untyped) => t[0], false)).toBeUndefined();
    expect(withTensor((t: Untyped) => ({ ...t }), false)).toEqual({
      name: 't',
      dtype: 'f32',
      shape: [4, 8],
      requiresGrad: false,
    });
    expect(() => withTensor((t: Untyped) => (t.x = 1), false)).toThrow(TypeError);
    expect(errorOf(() => withTensor((t: Untyped) => t + 1, false)).code).toBe('E_TRACE_COERCE');
  });

  it('by default both throw, with the method to use', () => {
    expect(errorOf(() => withTensor((t: Untyped) => t[3])).details.hint).toContain(
      't.select(0, 3)',
    );
    expect(errorOf(() => withTensor((t: Untyped) => ({ ...t }))).code).toBe('E_TRACE_COERCE');
    expect(errorOf(() => withTensor((t: Untyped) => t.matmull)).details.hint).toBe(
      "did you mean 'matmul'?",
    );
  });
});
