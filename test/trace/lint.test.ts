import { join } from 'node:path';

import { Linter } from 'eslint';
import ts from 'typescript';
import tseslint from 'typescript-eslint';
import { describe, expect, it } from 'vitest';

import { models, plugin } from '../../src/trace/lint/eslint.ts';

/** The preset over one construct a function, with what each rule reports. */

const root = join(import.meta.dirname, '../..');
const file = join(root, 'test/trace/lint-sample.model.ts');

/** `N` no-unnecessary-condition, `S` strict-boolean-expressions, `O` the own rule. */
type Row = readonly [code: string, reports: string];

const ROWS: readonly Row[] = [
  // Conditions: the stock rules see them.
  ['if (t) use();', 'NS'],
  ['use(t ? 1 : 2);', 'NS'],
  ['use(t && u);', 'NS'],
  ['use(t || u);', 'NS'],
  ['while (t) use();', 'NS'],
  ['do use(); while (t);', 'NS'],
  ['for (; t; ) use();', 'NS'],
  ['use([1].filter(() => t));', 'NS'],
  ['use([1].some(() => t));', 'NS'],
  ['function generic<T extends Tensor>(x: T) { if (x) use(); } use(generic);', 'NS'],
  // The cells that one of them leaves.
  ['t &&= u;', 'NO'],
  ['t ||= u;', 'NO'],
  ['use(!t);', 'SO'],
  ['if (maybe) use();', 'S'],
  ['if (anything) use();', 'S'],
  ['use(t ?? u);', 'N'],
  ['use(t?.shape);', 'N'],
  // What both leave: the own rule.
  ['switch (t) { default: use(); }', 'O'],
  ['switch (n as unknown) { case t: use(); }', 'O'],
  ['use(t === u);', 'O'],
  ['use(t !== u);', 'O'],
  ['use(t == u);', 'O'],
  ['use(t != u);', 'O'],
  ['use((t as any) === 1, (n as unknown) === t);', 'O'],
  ['use(t > u);', 'O'],
  ['use(t <= u);', 'O'],
  ['use(t < n);', 'O'],
  ['use(t + n);', 'O'],
  ['use(t - u);', 'O'],
  ['use(t * n);', 'O'],
  ['use(n / t);', 'O'],
  ['use(t ** 2);', 'O'],
  ['use(-t);', 'O'],
  ['t++;', 'O'],
  ['t += n;', 'O'],
  ['use(Boolean(t));', 'O'],
  ['use(Number.isNaN(t));', 'O'],
  ['use(Number.isFinite(t));', 'O'],
  ['use(Number.isInteger(t));', 'O'],
  ['use(new Array(t));', 'O'],
  ['use(Array.isArray(t));', 'O'],
  ['use([u].includes(t));', 'O'],
  ['use([u].indexOf(t));', 'O'],
  ['use(new Map<Tensor, number>().get(t));', 'O'],
  ['use(new Map<Tensor, number>().set(t, 1));', 'O'],
  ['use(new Set<Tensor>().has(t));', 'O'],
  ['use(new Set<Tensor>().add(t));', 'O'],
  ['use({ ...t });', 'O'],
  ['use([...(t as any as Tensor & number[])]);', 'O'],
  ['use(t[0]);', 'O'],
  ['use([1][t]);', 'O'],
  ['use({ [t]: 1 });', 'O'],
  ['use(`${t}`);', 'O'],
  ['assert(t);', 'O'],
  ['use([1].filter(decide));', 'NSO'],
  ['use([1].every(decide));', 'NSO'],
  ['use(Math.exp(t));', 'O'],
  ['use(JSON.stringify(t));', 'O'],
  ['use(String(t), Number(t));', 'OO'],
  ['use(Object.is(t, u));', 'O'],
  ["use('x' in t);", 'O'],
  ['for (const x of t) use(x);', 'O'],
  // What is meant.
  ['use(t !== undefined, t === null, void 0 === t);', 'N'],
  ['use(maybe !== undefined, maybe === undefined);', ''],
  ['use((t.shape[0] as number) > 2, t.rank === 2, t.dtype === "f32");', ''],
  ['if (t.rank > 1) use(t.add(u).mul(2));', ''],
  ['use([t, u].map((x) => x.neg()), new Map([[1, t]]), { t });', ''],
  ['use([1, 2].filter((x) => x > 1), typeof t, t instanceof Tensor);', ''],
];

const HEAD = `import { Tensor } from '../../src/trace/trace.ts';
declare function use(...values: unknown[]): void;
declare function assert(value: unknown): void;
declare function decide(x: number): Tensor;`;
const PARAMETERS = 't: Tensor, u: Tensor, n: number, maybe: Tensor | undefined, anything: any';

const source = [
  HEAD.replaceAll('\n', ' '),
  ...ROWS.map(([code], i) => `export function f${i}(${PARAMETERS}): void { ${code} }`),
  '',
].join('\n');

function lint(): Linter.LintMessage[] {
  const config = ts.parseJsonConfigFileContent(
    ts.readConfigFile(join(root, 'tsconfig.json'), (path) => ts.sys.readFile(path)).config,
    ts.sys,
    root,
  );
  const options = { ...config.options, noEmit: true };
  const host = ts.createCompilerHost(options);
  const plain = { ...host };
  host.fileExists = (name) => name === file || plain.fileExists(name);
  host.readFile = (name) => (name === file ? source : plain.readFile(name));
  host.getSourceFile = (name, ...rest) =>
    name === file
      ? ts.createSourceFile(name, source, ts.ScriptTarget.ES2023, true)
      : plain.getSourceFile(name, ...rest);
  const program = ts.createProgram([file], options, host);
  const preset = models(tseslint) as Linter.Config;
  return new Linter({ cwd: root }).verify(
    source,
    [
      {
        files: ['**/*.ts'],
        languageOptions: { parser: tseslint.parser, parserOptions: { programs: [program] } },
      },
      preset,
    ],
    { filename: file },
  );
}

describe('the lint preset', () => {
  const messages = lint();
  const letter: Record<string, string> = {
    '@typescript-eslint/no-unnecessary-condition': 'N',
    '@typescript-eslint/strict-boolean-expressions': 'S',
    'shardwright/no-tensor-coercion': 'O',
  };
  ROWS.forEach(([code, reports], i) => {
    it(`${code}`, () => {
      const here = messages.filter((m) => m.line === i + 2);
      const found = here
        .map((m) => letter[m.ruleId ?? ''] ?? m.message)
        .sort()
        .join('');
      const wanted = [...reports].sort().join('');
      // One construct may hold several conditions that one rule reports; which rules do is what
      // counts for the stock ones.
      const unique = (text: string): string => [...new Set(text)].join('');
      expect(unique(found), here.map((m) => m.message).join('\n')).toBe(unique(wanted));
      const own = here.filter((m) => m.ruleId === 'shardwright/no-tensor-coercion');
      for (const { message } of own) expect(message).toMatch(/`|assert|host/);
    });
  });

  it('the own rule without type information says what to set up', () => {
    expect(() =>
      new Linter().verify('export const a = 1;', [
        {
          plugins: { shardwright: plugin } as never,
          rules: { 'shardwright/no-tensor-coercion': 'error' },
        },
      ]),
    ).toThrow(/needs type information/);
  });
});
