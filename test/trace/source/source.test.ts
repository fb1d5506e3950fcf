import { describe, expect, it } from 'vitest';

import type { ControlFlow } from '../../../src/trace/record/control-interface.ts';
import { spec } from '../../../src/trace/record/spec.ts';
import * as sourceHooks from '../../../src/trace/source/hooks.ts';
import { wrapConditionsPlugin } from '../../../src/trace/source/vite.ts';
import {
  stripTypes,
  wrapConditions,
  type WrapOptions,
} from '../../../src/trace/source/wrap-conditions.ts';
import { type Tensor, trace } from '../../../src/trace/trace.ts';
import { errorOf } from '../support.ts';

/**
 * Exports of a module text after the front end transformed it. The import of the runtime becomes a
 * parameter.
 */
function load(
  source: string,
  options: WrapOptions = {},
  fileName = 'sample.model.ts',
): Record<string, (...a: never[]) => unknown> {
  return evaluate(wrapConditions(source, fileName, options));
}

function evaluate(text: string): Record<string, (...a: never[]) => unknown> {
  const names = [...text.matchAll(/^export (?:function\*?|const|let) (\w+)/gm)].map((m) => m[1]);
  const body = text.replace(/^import .*$/m, '').replaceAll(/^export /gm, '');
  // The tests run the transformed text, which is their subject.
  // eslint-disable-next-line @typescript-eslint/no-implied-eval
  const make = new Function('__shardwright', `${body}\nreturn { ${names.join(', ')} };`) as (
    hooks: unknown,
  ) => unknown;
  return make(sourceHooks) as Record<string, (...a: never[]) => unknown>;
}

/** Runs `body` on a bool scalar inside a trace. */
function onTensor(body: (t: Tensor) => unknown, control?: ControlFlow): unknown {
  let result: unknown;
  trace(
    ({ x }) => {
      result = body(x.sum().gt(0));
      return x;
    },
    { x: spec([2]) },
    { checkTwice: false, ...(control === undefined ? {} : { control }) },
  );
  return result;
}

/** One construct a line, with the place of its condition. */
const SITES: readonly (readonly [kind: string, line: string, column: number])[] = [
  ['if', 'export function f0(t: any) { if (t) return 1; return 0; }', 34],
  ['!', 'export function f1(t: any) { return !t; }', 38],
  ['&&', 'export function f2(t: any) { return t && 1; }', 37],
  ['||', 'export function f3(t: any) { return t || 1; }', 37],
  ['?:', 'export function f4(t: any) { return t ? 1 : 0; }', 37],
  ['while', 'export function f5(t: any) { while (t) return 1; return 0; }', 37],
  ['do', 'export function f6(t: any) { do { } while (t); return 0; }', 44],
  ['for', 'export function f7(t: any) { for (; t; ) return 1; return 0; }', 37],
  ['switch', 'export function f8(t: any) { switch (t) { default: return 1; } }', 38],
  ['case', 'export function f9(t: any, n = 1) { switch (n) { case t: return 1; } return 0; }', 55],
  ['===', 'export function f10(t: any) { return t === 1; }', 38],
  ['==', 'export function f11(t: any) { return t == 1; }', 38],
  ['&&=', 'export function f12(t: any) { t &&= 1; return t; }', 31],
  ['||=', 'export function f13(t: any) { t ||= 1; return t; }', 31],
  ['Boolean', 'export function f14(t: any) { return Boolean(t); }', 46],
  ['filter', 'export function f15(t: any) { return [1].filter(() => t); }', 49],
  ['some', 'export function f16(t: any) { return [1].some(() => t); }', 47],
];

describe('every condition of the table is caught', () => {
  // The type annotations make the generated text differ from the source in every column.
  const source = SITES.map(([, line]) => line).join('\n');
  const module = load(source);
  SITES.forEach(([kind, , column], i) => {
    it(`${kind}: line ${i + 1}, column ${column}`, () => {
      const error = errorOf(() => onTensor(module[`f${i}`] as (t: Tensor) => unknown));
      expect(error.code).toBe('E_TRACE_CONTROL_FLOW');
      expect(error.message).toContain(`in '${kind}' at sample.model.ts:${i + 1}:${column}`);
      expect(error.details).toMatchObject({
        file: 'sample.model.ts',
        position: { line: i + 1, column },
      });
    });
  });

  it('the silent rows that only the lint rule sees stay silent under the hook', () => {
    const { f } = load(
      'export function f(t, u) { return [Object.is(t, u), [t].includes(u), Number.isNaN(t), Array.isArray(t)]; }',
    );
    expect(onTensor((t) => f(t as never, t.logicalNot() as never))).toEqual([
      false,
      false,
      false,
      false,
    ]);
  });

  it('presence tests, typeof and string comparisons are left alone', () => {
    const { f } = load(
      "export function f(t) { return [t === undefined, null == t, t !== void 0, typeof t === 'object', t === 'a', t != null]; }",
    );
    expect(onTensor((t) => f(t as never))).toEqual([false, false, true, true, false, true]);
  });

  it('the message says what cannot be done', () => {
    const { model } = load(
      'export function model(x) { if (x.sum().gt(0)) return x.sin(); return x.cos(); }',
    );
    const error = errorOf(() => trace(model as (x: Tensor) => Tensor, [spec([2])]));
    expect(error.message).toContain(
      'symbolically traced variables cannot be used as inputs to control flow',
    );
  });
});

/** Host code: each form returns what it saw, with side effects counted in `log`. */
const HOST_FORMS: readonly string[] = [
  'if (tick(1)) log.push("then"); else log.push("else"); return 0;',
  'if (tick(0)) log.push("then"); else log.push("else"); return 0;',
  'if (tick(0)) return 1; else if (tick(2)) return 2; return 3;',
  'let i = 0; while (tick(i < 3)) i++; return i;',
  'let i = 0; do { i++; } while (tick(i < 3)); return i;',
  'let s = 0; for (let i = 0; tick(i < 4); i++) s += i; return s;',
  'let n = 0; for (;;) { if (n++ > 2) break; } return n;',
  'return tick(1) ? tick("a") : tick("b");',
  'return tick("") ? tick("a") : tick("b");',
  'return !tick(0);',
  'return !!tick("x");',
  'return tick(1) && tick(2);',
  'return tick(0) && tick(2);',
  'return tick(1) || tick(2);',
  'return tick(0) || tick(2);',
  'return (tick(0) && tick(1)) || (tick(2) && tick(3));',
  'let a = 1; a &&= tick(2); return a;',
  'let a = 0; a &&= tick(2); return a;',
  'let a = 1; a ||= tick(2); return a;',
  'let a = 0; a ||= tick(2); return a;',
  'let a = null; a ??= tick(2); return a;',
  'const o = { get x() { log.push("get"); return 1; }, set x(v) { log.push("set", v); } }; o.x &&= tick(5); return 0;',
  'const o = { get x() { log.push("get"); return 0; }, set x(v) { log.push("set", v); } }; o.x ||= tick(5); return 0;',
  'const o = { k: 1 }; (tick(o)).k &&= 7; return o.k;',
  'const o = { k: 0 }; tick(o)[tick("k")] ||= tick(9); return o.k;',
  'const o = { k: 0 }; o[tick("k")] &&= tick(9); return o.k;',
  'class C { #p = 1; go() { this.#p &&= tick(3); return this.#p; } } return new C().go();',
  'class B { get v() { return 0; } set v(x) { log.push("v", x); } } class C extends B { go() { super.v ||= tick(4); } } new C().go(); return 0;',
  'let f; f ||= () => 1; return f.name;',
  'return tick(1) === tick(1);',
  'return tick(NaN) !== tick(NaN);',
  'return tick("1") == tick(1);',
  'return tick(null) != tick(undefined);',
  'switch (tick(2)) { case tick(1): return "a"; case tick(2): log.push("b"); case tick(3): return "c"; default: return "d"; }',
  'switch (true) { case tick(false): return 1; case tick(true): return 2; } return 3;',
  'return Boolean(tick(0));',
  'return [1, 2, 3, 4].filter(function (x, i) { log.push(this.z, i, arguments.length); return x % 2; }, { z: 9 });',
  'return [[3, 1].some((x) => x > 2), [3, 1].every((x) => x > 2), [3, 1].find((x) => x < 2), [3, 1].findIndex((x) => x < 2)];',
  'return [[3, 1].findLast((x) => x > 2), [3, 1].findLastIndex((x) => x > 2), "abc".split("").filter(Boolean).length];',
  'const q = { find: (s, n) => [s, n], filter: (o) => o }; return [q.find("a", 2), q.filter({ k: 1 }).k];',
  'const list = undefined; return list?.filter((x) => x);',
  'const fns = []; for (let i = 0; tick(i < 2); i++) fns.push(() => i); return fns.map((f) => f());',
  'const o = {}; return (tick(o) && o.a?.b) ?? "none";',
  'function* g() { const x = (yield 1) ? "y" : "n"; return x; } const it = g(); it.next(); return it.next(1).value;',
];

describe('host programs run as before', () => {
  expect(HOST_FORMS.length).toBeGreaterThanOrEqual(40);
  const source = HOST_FORMS.map((body, i) => `export function f${i}(tick, log) { ${body} }`).join(
    '\n',
  );
  const plain = evaluate(stripTypes(source, 'host.model.ts'));
  for (const mode of ['check', 'rewrite'] as const) {
    const wrapped = load(source, { mode }, 'host.model.ts');
    HOST_FORMS.forEach((body, i) =>
      it(`${mode}: ${body.slice(0, 60)}`, () => {
        const run = (module: typeof plain): unknown => {
          const log: unknown[] = [];
          const tick = (value: unknown): unknown => {
            log.push(['tick', value]);
            return value;
          };
          return { result: module[`f${i}`](tick as never, log as never), log };
        };
        expect(run(wrapped)).toEqual(run(plain));
      }),
    );
  }
});

describe('the transformed text', () => {
  it('is JavaScript with an inline source map of the text as written', () => {
    const source = 'export function f(x: number): number {\n  return x ? 1 : 2;\n}\n';
    const text = wrapConditions(source, 'models/a.model.ts');
    expect(text).toContain('import { sourceHooks as __shardwright } from "shardwright/trace";');
    expect(text).toContain('__shardwright.condition(x, "?:", "models/a.model.ts:2:10") ? 1 : 2');
    const map = JSON.parse(
      Buffer.from(/base64,([\w+/=]+)/.exec(text)?.[1] ?? '', 'base64').toString(),
    ) as {
      sourcesContent: string[];
      sources: string[];
    };
    expect(map.sourcesContent).toEqual([source]);
    expect(map.sources).toEqual(['a.model.ts']);
  });

  it('is refused with its place when the source does not parse', () => {
    const error = errorOf(() =>
      wrapConditions('export const a = 1;\nexport const = 2;', 'broken.model.ts'),
    );
    expect(error.code).toBe('E_SYNTAX');
    expect(error.headline).toMatch(/^broken\.model\.ts:2:14: /);
  });

  it('the Vite plugin takes model files and those named, and nothing else', () => {
    const plugin = wrapConditionsPlugin({ files: ['/app/net.ts'] });
    const code = 'export const f = (x) => (x ? 1 : 2);';
    expect(plugin.transform(code, '/app/a.model.ts')?.code).toContain('__shardwright.branch');
    expect(plugin.transform(code, '/app/net.ts?v=1')?.code).toContain('__shardwright.branch');
    expect(plugin.transform(code, '/app/other.ts')).toBeUndefined();
    expect(plugin.transform(code, '/app/node_modules/x/a.model.ts')).toBeUndefined();
  });
});

/**
 * Records both sides as `where`, which is right for pure branches: a stand-in for the operators.
 */
function selecting(log: string[]): ControlFlow {
  const select = (pred: Tensor, a: unknown, b: unknown): unknown =>
    Array.isArray(a)
      ? a.map((x, i) => select(pred, x, (b as unknown[])[i]))
      : pred.where(a as Tensor, b as Tensor);
  return {
    cond(pred, onTrue, onFalse, site) {
      log.push(`cond ${site.kind} at ${site.position}`);
      return select(pred as Tensor, onTrue(), onFalse());
    },
    whileLoop(test, body, variables, site) {
      log.push(`while ${variables.names.join()} at ${site.position}`);
      test();
      body();
    },
  };
}

describe('mode rewrite', () => {
  const run = (source: string, log: string[] = []): string[] => {
    const { model } = load(source, { mode: 'rewrite' }, 'm.model.ts');
    const graph = trace(model as (x: Tensor) => Tensor, [spec([4])], {
      control: selecting(log),
      checkTwice: false,
    });
    return graph.nodes.filter((n) => n.kind === 'call').map((n) => n.name);
  };

  it('c ? a : b', () => {
    const log: string[] = [];
    expect(
      run('export function model(x) { return x.sum().gt(0) ? x.sin() : x.cos(); }', log),
    ).toEqual(['sum', 'gt', 'sin', 'cos', 'where']);
    expect(log).toEqual(['cond ?: at m.model.ts:1:35']);
  });

  it('if and else that both return, also in a chain', () => {
    const names = run(
      'export function model(x) { const s = x.sum(); if (s.gt(0)) { const y = x.sin(); return y.neg(); } else if (s.lt(-5)) return x.cos(); else return x; }',
    );
    expect(names).toEqual(['sum', 'gt', 'sin', 'neg', 'lt', 'cos', 'where', 'where_1']);
  });

  it('if and else that assign the same variables: each branch starts from the values before', () => {
    const log: string[] = [];
    const { model } = load(
      'export function model(x) { let a = x, b = x; if (x.sum().gt(0)) { a = a.sin(); b = a.neg(); } else { b = b.exp(); a = b; } return [a, b]; }',
      { mode: 'rewrite' },
    );
    const graph = trace(model as (x: Tensor) => [Tensor, Tensor], [spec([4])], {
      control: selecting(log),
      checkTwice: false,
    });
    const args = (name: string): unknown[] =>
      graph.nodes.find((n) => n.name === name)?.args.map((a) => (a as { name: string }).name) ?? [];
    expect(args('exp')).toEqual(['arg0']);
    expect(args('where')).toEqual(['gt', 'sin', 'exp']);
    expect(args('where_1')).toEqual(['gt', 'neg', 'exp']);
  });

  it.each([
    ['an if without else', 'let y = x; if (x.sum().gt(0)) { y = y.sin(); } return y;', ['sin']],
    [
      'branches that assign different variables',
      'let a = x, b = x; if (x.sum().gt(0)) a = x.sin(); else b = x.cos(); return a.add(b);',
      ['sin', 'cos'],
    ],
  ])('%s: a variable that is left out stays what it is', (_, body, sides) => {
    const { model } = load(`export function model(x) { ${body} }`, { mode: 'rewrite' });
    const graph = trace(model as (x: Tensor) => Tensor, [spec([4])], {
      control: selecting([]),
      checkTwice: false,
    });
    const wheres = graph.nodes.filter(({ target }) => target.startsWith('aten.where.'));
    const [yes, no = 'arg0'] = sides;
    const chosen = wheres.map(({ args }) => args.map((arg) => (arg as { name: string }).name));
    expect(chosen).toContainEqual(['gt', yes, 'arg0']);
    expect(chosen.some(([, , other]) => other === no)).toBe(true);
  });

  it('while: the variables assigned in the body are the carry', () => {
    const log: string[] = [];
    run(
      'export function model(x) { let y = x, i = 0; while (y.sum().lt(9)) { const z = y.mul(2); y = z; i++; } return y; }',
      log,
    );
    expect(log).toEqual(['while i,y at m.model.ts:1:53']);
  });

  const REFUSED: readonly (readonly [string, string, string])[] = [
    ['one branch returns', 'if (x.sum().gt(0)) return x.sin();', 'only one branch returns'],
    [
      'return in a for loop',
      'for (const k of [1, 2]) { if (x.sum().gt(k)) return x.sin(); } return x;',
      'only one branch returns',
    ],
    [
      'early return before a throw',
      'if (x.sum().gt(0)) return x.sin(); throw 1;',
      'only one branch returns',
    ],
    [
      'early return before a throw of the host',
      'if (x.sum().gt(0)) return x.sin(); if (x.rank > 4) throw 1; return x;',
      'it throws',
    ],
    ['nothing assigned', 'if (x.sum().gt(0)) x.sin(); return x;', 'neither returns nor assigns'],
    [
      'property',
      'const o = {}; if (x.sum().gt(0)) o.a = x; else o.a = x.neg(); return o.a;',
      'it assigns a property',
    ],
    [
      'break',
      'let y = x; while (y.sum().lt(9)) { try { break; } finally { y = y.mul(2); } } return y;',
      'it breaks out',
    ],
    [
      'continue',
      'let y = x; while (y.sum().lt(9)) { try { continue; } finally { y = y.mul(2); } } return y;',
      'it continues a loop',
    ],
    [
      'return in a loop',
      'let y = x; while (y.sum().lt(9)) { y = y.mul(2); return y; } return y;',
      'its body returns',
    ],
    ['throw', 'let y = x; while (y.sum().lt(9)) { y = y.mul(2); throw 1; } return y;', 'it throws'],
    [
      'var',
      'let y = x; if (x.sum().gt(0)) { var z = x; y = z; } else { y = x.neg(); } return y;',
      'it declares a var',
    ],
  ];
  for (const [name, body, reason] of REFUSED)
    it(`E_REWRITE: ${name}`, () => {
      const error = errorOf(() => run(`export function model(x) {\n  ${body}\n}`));
      expect(error.code).toBe('E_REWRITE');
      expect(error.message).toContain(reason);
      expect(error.details.position?.line).toBe(2);
    });

  it('without a recorder of control flow the condition is the error of mode check', () => {
    const { model } = load(
      'export function model(x) { return x.sum().gt(0) ? x.sin() : x.cos(); }',
      {
        mode: 'rewrite',
      },
    );
    expect(errorOf(() => trace(model as (x: Tensor) => Tensor, [spec([4])])).code).toBe(
      'E_TRACE_CONTROL_FLOW',
    );
  });

  it('policy regions is asked for the value of a condition, but never for an identity', () => {
    const { f, g } = load(
      'export function f(t) { return t ? "yes" : "no"; }\nexport function g(t) { return t === 1; }',
    );
    const control: ControlFlow = { condition: () => false };
    expect(onTensor((t) => f(t as never), control)).toBe('no');
    expect(errorOf(() => onTensor((t) => g(t as never), control)).code).toBe(
      'E_TRACE_CONTROL_FLOW',
    );
  });
});
