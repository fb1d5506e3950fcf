import { builtinOperators } from '../../../src/ops/builtin.ts';
import type { TypedContext } from '../../../src/ops/record/record.ts';
import type { Rule } from '../../../src/ops/record/rule.ts';
import { build, type NDArray, random } from './arrays.ts';
import { bindCase, type OracleArg, type OracleTensor } from './oracle.ts';
import { admitted, judge, type Kernel } from './ranks.ts';

/** Runs every rule of one call on 2 and 3 simulated ranks with several draws. */

const operators = builtinOperators();

const isTensor = (arg: OracleArg): arg is OracleTensor =>
  typeof arg === 'object' && arg !== null && 't' in arg;

/** Values for the tensors among the arguments, which stand in schema order. */
function draw(args: readonly OracleArg[], seed: number): NDArray[] {
  const next = random(seed);
  return args.filter(isTensor).map(({ t, dt, init, hi }) =>
    build(t, () => {
      if (dt === 'bool') return next() < 0.4 ? 1 : 0;
      if (init === 'int') return Math.floor(next() * (hi ?? 2));
      if (init === 'ismall') return Math.floor(next() * 5) - 2;
      if (init === 'pos') return next() + 0.5;
      return 4 * next() - 2;
    }),
  );
}

type Kwargs = Readonly<Record<string, OracleArg>>;

/** The call's context and rules. */
export function bound(
  op: string,
  args: readonly OracleArg[],
  kwargs: Kwargs = {},
): { ctx: TypedContext; rules: readonly Rule[] } {
  const ctx = bindCase(operators, { name: op, op, args, kwargs });
  const record = operators.get(op);
  if (ctx === undefined || record === undefined) throw new Error(`no record ${op}`);
  return { ctx, rules: record.shard(ctx) };
}

export interface Judged {
  readonly failed: string[];
  readonly judged: Rule[];
  readonly rules: readonly Rule[];
}

/**
 * Judges every rule of a call; `kernelOf` may choose the rewritten body by rule; `instead` replaces
 * the rules. Returns what failed and what was judged.
 */
export function judgeCall(
  op: string,
  args: readonly OracleArg[],
  kwargs: Kwargs,
  kernelOf: (r: Rule, inputs: readonly NDArray[]) => Kernel | undefined,
  instead?: readonly Rule[],
): Judged {
  const { ctx, rules: own } = bound(op, args, kwargs);
  const rules = instead ?? own;
  const failed: string[] = [];
  const judged = new Set<Rule>();
  for (const ranks of [2, 3]) {
    for (const seed of [1, 2]) {
      const inputs = draw(args, seed);
      for (const r of rules) {
        const kernel = kernelOf(r, inputs);
        if (kernel === undefined || !admitted(ctx, [r], [ranks])) continue;
        judged.add(r);
        const wrong = judge(ctx, inputs, kernel, [r], [ranks]);
        if (wrong !== undefined) failed.push(wrong);
      }
    }
  }
  return { failed, judged: [...judged], rules };
}
