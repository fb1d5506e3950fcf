import { writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';

import { afterAll, describe, expect, it } from 'vitest';

import type { RulesReport } from '../../src/cli/commands/catalogue/rules.ts';
import { runCli } from '../../src/cli/program.ts';
import { ShardwrightError } from '../../src/errors.ts';
import { fromList } from '../../src/ndarray/array.ts';
import type { Kernel } from '../../src/ops/record/kernel.ts';
import { defineOp, type OperatorRecord } from '../../src/ops/record/record.ts';
import { P, R, type Rule, rule, S } from '../../src/ops/record/rule.ts';
import { checkRules } from '../../src/simulate/rule-check/check-rules.ts';
import { type CliRun, OwnProcess } from '../support/own-process.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

/** `out[i, j] = x[i, j] * w[j]`, a scale by column. */
const scale: Kernel = ({ inputs: [x, w] }) => {
  const [rows, columns] = x.shape;
  const values = Array.from({ length: rows * columns }, (_, e) => {
    const [i, j] = [Math.floor(e / columns), e % columns];
    return x.at(i, j) * w.at(j);
  });
  return [fromList([rows, columns], values, x.dtype)];
};

/** By hand: rows, columns with their factors, and a pending sum of either factor. */
const RIGHT: readonly Rule[] = [
  rule([S(0), R], [S(0)]),
  rule([S(1), S(0)], [S(1)]),
  ...(['sum', 'avg'] as const).flatMap((op) => [
    rule([P(op), R], [P(op)]),
    rule([R, P(op)], [P(op)]),
  ]),
];

function scaled(
  rules: readonly Rule[],
  more: Partial<Parameters<typeof defineOp>[1]> = {},
): OperatorRecord {
  return defineOp('my.scale.default', {
    schema: 'Tensor x, Tensor w',
    cls: 'other',
    infer: (ctx) => [ctx.inputs[0]],
    shard: () => rules,
    kernel: scale,
    samples: ['x[6,4], x[4]', 'x[5,6], x[6]'],
    ...more,
  });
}

const codeOf = (body: () => unknown): string => {
  try {
    body();
  } catch (error) {
    if (error instanceof ShardwrightError) return error.code;
    throw error;
  }
  return expect.fail('nothing was thrown');
};

describe('checkRules on a record of the user', () => {
  it('finds nothing wrong and nothing missing in the rules of a scale', () => {
    const found = checkRules(scaled(RIGHT));
    expect(found.unsound).toEqual([]);
    expect(found.missing.map((f) => f.rule)).toEqual([]);
    expect(found.samples).toBeGreaterThanOrEqual(2);
    expect(found.combinations).toBeGreaterThan(100);
  });

  it('finds each wrong rule, with why, and no right one', () => {
    const wrong = [
      rule([P('sum'), P('sum')], [P('sum')]),
      rule([S(0), S(0)], [S(0)]),
      rule([S(1), R], [S(1)]),
      rule([S(1), S(0)], [P('sum')]),
    ];
    const { unsound } = checkRules(scaled([...RIGHT, ...wrong]));
    expect([...new Set(unsound.map((f) => f.rule))].sort()).toEqual([
      'P(sum), P(sum) -> P(sum)',
      'S(0), S(0) -> S(0)',
      'S(1), R -> S(1)',
      'S(1), S(0) -> P(sum)',
    ]);
    for (const { operator, why, ranks } of unsound) {
      expect(operator).toBe('my.scale.default');
      expect(why).toBeTruthy();
      expect(ranks.length).toBeGreaterThan(0);
    }
  });

  it('finds each rule that is left out', () => {
    const { missing, unsound } = checkRules(scaled(RIGHT.slice(1)));
    expect(unsound).toEqual([]);
    expect([...new Set(missing.map((f) => f.rule))]).toContain('S(0), R -> S(0)');
  });

  it('takes the values from a kernel or a decomposition that is given', () => {
    const bare = defineOp('my.scale.default', {
      schema: 'Tensor x, Tensor w',
      cls: 'other',
      infer: (ctx) => [ctx.inputs[0]],
      shard: () => [...RIGHT, rule([R, S(0)], [S(1)])],
    });
    const samples = ['x[6,4], x[4]'];
    const wrong = 'R, S(0) -> S(1)';
    const byKernel = checkRules(bare, { kernel: scale, samples });
    const byBody = checkRules(bare, { decompose: ({ b, x }) => [b.mul(x('x'), x('w'))], samples });
    for (const { unsound, missing } of [byKernel, byBody]) {
      expect([...new Set(unsound.map((f) => f.rule))]).toEqual([wrong]);
      expect(missing).toEqual([]);
    }
  });

  it('tries an elementwise operator with calls that its schema tells', () => {
    const record = defineOp('my.twice.default', {
      schema: 'Tensor x',
      cls: 'pointwise',
      infer: (ctx) => [ctx.inputs[0]],
      shard: (ctx) => [
        ...ctx.inputs[0].shape.map((_, d) => rule([S(d)], [S(d)])),
        rule([P('product')], [P('product')]),
      ],
      kernel: ({ inputs: [x] }) => [
        fromList(
          x.shape,
          x.toArray().map((v) => 2 * v),
          x.dtype,
        ),
      ],
    });
    const { unsound, missing } = checkRules(record);
    expect([...new Set(unsound.map((f) => f.rule))]).toEqual(['P(product) -> P(product)']);
    expect([...new Set(missing.map((f) => f.rule))].sort()).toEqual(
      ['P(avg) -> P(avg)', 'P(max) -> P(max)', 'P(min) -> P(min)', 'P(sum) -> P(sum)'].sort(),
    );
  });

  it('says what is not there: values, calls to try, or a call that fits', () => {
    const bare = defineOp('my.bare.default', {
      schema: 'Tensor x',
      cls: 'other',
      infer: (ctx) => [ctx.inputs[0]],
    });
    expect(codeOf(() => checkRules(bare))).toBe('E_NO_KERNEL');
    expect(codeOf(() => checkRules({ ...scaled(RIGHT), samples: [] }))).toBe('E_SAMPLE');
    expect(codeOf(() => checkRules(scaled(RIGHT), { samples: ['tensor[6,4]'] }))).toBe('E_SAMPLE');
    expect(codeOf(() => checkRules(scaled(RIGHT), { samples: ['x[6,4]'] }))).toBe('E_TYPE');
  });
});

describe('shardwright rules --ops FILE --check', () => {
  const run = async (...argv: string[]): Promise<{ code: number; out: string; err: string }> => {
    let out = '';
    let err = '';
    const code = await runCli(argv, {
      stdout: (text) => (out += text),
      stderr: (text) => (err += text),
      isTerminal: false,
    });
    return { code, out, err };
  };
  /** In a process of its own: the program of the user is loaded by Node. */
  const spawned = (...argv: string[]): Promise<CliRun> => OwnProcess.shared().cli(...argv);
  const folder = temporaryFolder(afterAll);
  const file = (name: string, text: string): string => {
    const path = join(folder, name);
    writeFileSync(path, text);
    return path;
  };
  const source = (rules: string): string => {
    const from = (path: string): string => JSON.stringify(resolve('src', path));
    return `
import { defineOp } from ${from('ops/record/record.ts')};
import { fromList } from ${from('ndarray/array.ts')};
import { R, rule, S } from ${from('ops/record/rule.ts')};
export const operators = [defineOp('my.negate.default', {
  schema: 'Tensor x', cls: 'other', infer: (ctx) => [ctx.inputs[0]], shard: () => ${rules},
  kernel: ({ inputs: [x] }) => [fromList(x.shape, x.toArray().map((v) => -v), x.dtype)],
  samples: ['x[6,5]'],
})];`;
  };

  it('tries the operators of the file alone, and exits 5 where a rule is wrong', async () => {
    const path = file('wrong.ts', source('[rule([S(0)], [S(1)]), rule([S(1)], [S(1)])]'));
    const { code, out } = await spawned('rules', '--ops', path, '--check', '--json');
    const report = JSON.parse(out) as RulesReport;
    expect(code).toBe(5);
    expect(report.operators).toBe(1);
    expect([...new Set(report.unsound.map((f) => f.rule))]).toEqual(['S(0) -> S(1)']);
    expect([...new Set(report.missing.map((f) => f.rule))]).toContain('S(0) -> S(0)');
    const list = await spawned('rules', '--ops', path);
    expect(list.out).toBe('my.negate.default(x[6,5])\n  S(0) -> S(1)\n  S(1) -> S(1)\n');
  });

  it('tries rules that a rules file adds to a built-in operator', async () => {
    const text = JSON.stringify({
      format: 'shardwright-rules/1',
      operators: [{ name: 'aten.mm.default', rules: ['S(0), R -> S(1)'] }],
    });
    const { code, out } = await run(
      'rules',
      '--ops',
      file('wrong.json', text),
      '--check',
      '--json',
    );
    const report = JSON.parse(out) as RulesReport;
    expect(code).toBe(5);
    expect([...new Set(report.unsound.map((f) => `${f.operator} ${f.rule}`))]).toEqual([
      'aten.mm.default S(0), R -> S(1)',
    ]);
  });

  it('says which operators nothing runs', async () => {
    const entry = {
      name: 'my.op.default',
      schema: 'Tensor x',
      outputs: ['x'],
      rules: ['S(0) -> S(0)'],
    };
    const text = JSON.stringify({ format: 'shardwright-rules/1', operators: [entry] });
    const { code, out } = await run('rules', '--ops', file('new.json', text), '--check');
    expect(code).toBe(0);
    expect(out).toContain('0 operators, 0 sample calls');
    expect(out).toContain('no kernel: my.op.default');
    expect((await run('rules', '--ops', join(folder, 'none.ts'), '--check')).err).toContain(
      'there is no such file',
    );
  });
});
