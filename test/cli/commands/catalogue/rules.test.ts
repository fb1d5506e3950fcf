import { describe, expect, test } from 'vitest';

import type { RulesReport } from '../../../../src/cli/commands/catalogue/rules.ts';
import { runCli } from '../../../../src/cli/program.ts';
import { builtinOperators } from '../../../../src/ops/builtin.ts';
import { OperatorTable } from '../../../../src/ops/record/table.ts';
import { validateRules } from '../../../../src/simulate/rule-check/check.ts';

async function run(...argv: string[]): Promise<{ code: number; out: string; err: string }> {
  let out = '';
  let err = '';
  const code = await runCli(argv, {
    stdout: (text) => (out += text),
    stderr: (text) => (err += text),
    isTerminal: false,
  });
  return { code, out, err };
}

describe('shardwright rules', () => {
  test('lists the rules of an operator at its samples', async () => {
    const { code, out } = await run('rules', '--op', 'mm');
    expect(code).toBe(0);
    expect(out).toContain('mm(x[6,5], x[5,7])\n  S(1), S(0) -> P(sum)\n');
    const softmax = await run('rules', '--op', 'aten.softmax.int');
    expect(softmax.out).toContain('S(1) -> S(1)  (not in PyTorch 2.13)  [all-reduce-max-sum]');
  });

  test('checks them: the JSON is a contract, and both lists are empty', async () => {
    const { code, out } = await run('rules', '--op', 'aten.mm.default', '--check', '--json');
    const report = JSON.parse(out) as RulesReport;
    expect(code).toBe(0);
    expect(Object.keys(report)).toEqual([
      'operators',
      'rulesChecked',
      'samples',
      'combinations',
      'unsound',
      'missing',
      'explained',
      'derivativesChecked',
      'wrongDerivatives',
      'uncompared',
      'untried',
      'untested',
      'searched',
    ]);
    expect([report.operators, report.unsound, report.missing]).toEqual([1, [], []]);
    // A built-in operator states no derivative of its own here.
    expect([report.wrongDerivatives, report.uncompared]).toEqual([[], []]);
    expect(report.rulesChecked).toBeGreaterThan(30);
    expect(report.combinations).toBeGreaterThan(100);
    const log = await run('rules', '--op', 'log', '--check', '--ranks', '2');
    expect(log.code).toBe(0);
    expect(log.out).toMatch(/unsound: 0 {3}missing: 0 {3}explained: \d+\n.*domain/s);
  });

  test('--no-search runs the rules alone, and says so', async () => {
    const { code, out } = await run('rules', '--op', 'mm', '--check', '--no-search');
    expect(code).toBe(0);
    expect(out).toMatch(/^unsound: 0 {3}missing: not searched {3}explained: 0$/m);
    const json = await run('rules', '--op', 'mm', '--check', '--no-search', '--json');
    const report = JSON.parse(json.out) as RulesReport;
    expect([report.searched, report.missing]).toEqual([false, []]);
    expect(report.rulesChecked).toBeGreaterThan(30);
  });

  test('unknown operators and wrong rank counts are refused', async () => {
    expect(await run('rules', '--op', 'nothing', '--check')).toMatchObject({ code: 2 });
    expect((await run('rules', '--op', 'nothing')).err).toMatch(/there is no operator 'nothing'/);
    expect((await run('rules', '--check', '--ranks', '1')).err).toMatch(
      /--ranks 1 is not from 2 to 8/,
    );
    expect((await run('rules', '--check', '--budget', 'x', '--json')).out).toMatch(/E_USAGE/);
  });
});

describe('rules --check in parts', () => {
  test('shows each operator on stderr, and answers the same on stdout', async () => {
    const checked = await run('rules', '--op', 'aten.fill.Tensor', '--check');
    expect([checked.code, checked.err]).toEqual([0, '1 of 1: aten.fill.Tensor\n']);
    expect(checked.out).toContain('unsound: 0   missing: 0');
  });

  test('parts together have every operator once', () => {
    const records = builtinOperators().records.slice(0, 7);
    const table = new OperatorTable(records);
    const part = (index: number, count: number): string[] => {
      const seen: string[] = [];
      const { untested } = validateRules(table, {
        slice: { index, count },
        complete: false,
        draws: 1,
        ranks: [2],
        onOperator: (name) => void seen.push(name),
      });
      return [...seen, ...untested];
    };
    const whole = records.map(({ name }) => name).sort();
    expect([0, 1, 2].flatMap((index) => part(index, 3)).sort()).toEqual(whole);
    expect(part(0, 1).sort()).toEqual(whole);
  });
});
