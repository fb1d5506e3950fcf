import { describe, expect, test } from 'vitest';

import { P, R, type Rule, rule, type RuleSlot, ruleText, S } from '../../src/ops/record/rule.ts';
import { bindText, type CallText, parseCall } from '../../src/ops/samples/call-text.ts';
import { isTorch } from '../../src/ops/samples/table.ts';
import { admitted } from '../ops/support/ranks.ts';
import { operators, samples } from './samples/all.ts';
import { KERNEL_LIMITS, NOT_ADMITTED, NOT_RUN, REFUSED } from './support/not-run.ts';
import { askTorch } from './support/torch.ts';
import { wireCall } from './support/wire-call.ts';

/**
 * Every rule that a device runs as the unchanged call (but for a stated size) is run by PyTorch on
 * 2 and 3 ranks, with two draws of float64 values, and compared with the unsharded run. Rules that
 * rewrite the call belong to the lowering and are counted.
 */

type Verdict =
  { readonly refused: string } | { readonly verdicts: readonly (readonly (string | null)[])[] };

interface Job {
  readonly call: CallText;
  readonly rules: readonly { readonly rule: Rule; readonly ranks: readonly number[] }[];
}

const RANKS = [2, 3] as const;
/** For dims that only these divide. */
const MORE_RANKS = [5, 7] as const;
/**
 * Operators that state the size of their result, and in which argument: a `local-shape` rule gives
 * each rank its own.
 */
const SIZE_ARGUMENT: Readonly<Record<string, number>> = {
  view: 1,
  _unsafe_view: 1,
  reshape: 1,
  expand: 1,
  new_zeros: 1,
  new_ones: 1,
  new_full: 1,
  zeros: 0,
  ones: 0,
  full: 0,
  slice_backward: 1,
  select_backward: 1,
};
const sizeArgument = (target: string, r: Rule): number | undefined =>
  r.rewrite === 'local-shape' ? SIZE_ARGUMENT[target.split('.')[1]] : undefined;

/** Known-wrong rules, to see that the judge finds them. */
const WRONG: readonly (readonly [string, Rule])[] = [
  ['mm(x[6,5], x[5,7])', rule([P(), P()], [P()])],
  ['mm(x[6,5], x[5,7])', rule([S(0), R], [S(1)])],
  ['relu(x[6,5])', rule([P()], [P()])],
  ['abs(x[6,5])', rule([P('max')], [P('max')])],
  ['mean.dim(x[6,5], [0])', rule([S(0)], [P()])],
  ['mean.dim(x[5,6], [0])', rule([S(0)], [P('avg')])],
  ['amax(x[6,5], [0])', rule([S(0)], [P('min')])],
  ['cumsum(x[6,5], 0)', rule([S(0)], [S(0)])],
  ['sort(shuffled[6,5])', rule([P('max')], [P('max'), R])],
  ['add.Tensor(x[6,5], x[6,5])', rule([P(), R], [P()])],
  ['add.Tensor(x[6,5], x[6,5])', rule([P('avg'), P('max')], [P('avg')])],
  ['logical_not(b8[6,5])', rule([P('bor')], [P('bor')])],
  ['native_layer_norm(x[6,4], [4], x[4], x[4], 1e-5)', rule([S(1), S(0), S(0)], [S(1), R, R])],
  ['embedding_dense_backward(x[6,5], index9[6], 9, 2, True)', rule([S(0), S(0)], [P()])],
];

const count = { rules: 0, rewritten: new Map<string, number>(), notAdmitted: 0, run: 0, runs: 0 };
const jobs: Job[] = samples.map((call) => {
  const { record, ctx } = bindText(operators, call);
  const rules: { rule: Rule; ranks: readonly number[] }[] = [];
  for (const r of record.shard(ctx)) {
    count.rules++;
    if (
      (r.rewrite !== undefined && sizeArgument(call.target, r) === undefined) ||
      r.collectives !== undefined
    ) {
      const how = r.rewrite ?? 'collective';
      count.rewritten.set(how, (count.rewritten.get(how) ?? 0) + 1);
      continue;
    }
    // PyTorch does not add numbers of 8 bits, and rounds their products to float32: the validator
    // runs these in float64.
    const pending = [...r.inputs, ...r.outputs].some((slot) => slot?.kind === 'partial');
    if (pending && ctx.inputs.some((x) => x.dtype.startsWith('f8'))) {
      count.rewritten.set('8 bits', (count.rewritten.get('8 bits') ?? 0) + 1);
      continue;
    }
    const few = RANKS.filter((n) => admitted(ctx, [r], [n]));
    const ranks = few.length > 0 ? few : MORE_RANKS.filter((n) => admitted(ctx, [r], [n]));
    if (ranks.length === 0) count.notAdmitted++;
    else rules.push({ rule: r, ranks });
  }
  return { call, rules };
});
const controls: Job[] = WRONG.map(([text, r]) => ({
  call: parseCall(text),
  rules: [{ rule: r, ranks: RANKS }],
}));

/** A slot, and of a shard the number of equal chunks of which each rank has a piece. */
function wireSlot(slot: RuleSlot, call: CallText): object | null {
  if (slot?.kind !== 'shard') return slot;
  const { ctx } = bindText(operators, call);
  const shape =
    slot.inside === null ? [] : ([...ctx.inputs, ...ctx.outputs][slot.inside.tensor]?.shape ?? []);
  return { ...slot, chunks: (slot.inside?.dims ?? []).reduce((n, dim) => n * shape[dim], 1) };
}

const answer = askTorch<{ readonly calls: readonly Verdict[] }>('run_rules.py', {
  calls: [...jobs, ...controls].map(({ call, rules }) => ({
    ...wireCall(bindText(operators, call).record, call),
    seeds: [1, 2],
    rules: rules.map(({ rule: r, ranks }) => ({
      inputs: r.inputs.map((slot) => wireSlot(slot, call)),
      outputs: r.outputs.map((slot) => wireSlot(slot, call)),
      ranks,
      size: sizeArgument(call.target, r) ?? null,
    })),
  })),
});

describe('rules of the operators against PyTorch', () => {
  test('PyTorch is the version that the rules follow', () => {
    expect(answer.torch).toBe('2.13.0');
  });

  test('no rule disagrees with PyTorch', () => {
    const wrong: string[] = [];
    const refused: string[] = [];
    const limits = new Set<string>();
    const reached = new Set<string>();
    jobs.forEach(({ call, rules }, i) => {
      const verdict = answer.calls[i];
      if ('refused' in verdict) {
        refused.push(`${call.text}: ${verdict.refused}`);
        return;
      }
      verdict.verdicts.forEach((row, k) => {
        count.run++;
        reached.add(bindText(operators, call).record.name);
        row.forEach((why, n) => {
          count.runs++;
          if (why?.startsWith('kernel:') === true)
            limits.add(`${call.target}: ${ruleText(rules[k].rule)}: ${why}`);
          else if (why !== null)
            wrong.push(
              `${call.text}: ${ruleText(rules[k].rule)} on ${rules[k].ranks[n]} ranks: ${why}`,
            );
        });
      });
    });
    const rewritten = [...count.rewritten]
      .sort()
      .map(([how, n]) => `${how} ${n}`)
      .join(', ');
    process.stdout.write(
      `${reached.size} of ${operators.records.length} operators, ${count.run} operator x rule pairs in ${count.runs} runs; ` +
        `of ${count.rules} rules in all, rewritten and left to the lowering: ${rewritten}; not admitted at these sizes: ${count.notAdmitted}\n`,
    );
    expect(wrong).toEqual([]);
    expect(count.notAdmitted).toBeLessThanOrEqual(NOT_ADMITTED);
    expect(refused).toEqual(REFUSED);
    expect([...limits].sort()).toEqual(KERNEL_LIMITS);
  });

  test('the judge finds wrong rules', () => {
    controls.forEach(({ call, rules }, i) => {
      const verdict = answer.calls[jobs.length + i];
      const whys = 'verdicts' in verdict ? verdict.verdicts.flat() : [null];
      expect(
        whys.some((why) => why !== null),
        `${call.text}: ${ruleText(rules[0].rule)}`,
      ).toBe(true);
    });
  });

  test('operators without a rule that was run are listed with the reason', () => {
    expect(notRun()).toEqual(NOT_RUN);
  });
});

/** By reason, the operators of which no rule was run. */
function notRun(): Record<string, string[]> {
  const reasons: Record<string, string[]> = {};
  for (const record of operators.records.filter((r) => isTorch(r.name))) {
    const own = jobs
      .map((job, i) => ({ ...job, verdict: answer.calls[i] }))
      .filter(({ call }) => operators.get(call.target) === record);
    if (own.some(({ verdict }) => 'verdicts' in verdict && verdict.verdicts.length > 0)) continue;
    const rules = own.flatMap(({ call }) => record.shard(bindText(operators, call).ctx));
    const reason =
      own.length === 0
        ? 'no sample'
        : own.every(({ verdict }) => 'refused' in verdict && verdict.refused.includes(' has no '))
          ? 'PyTorch has no such overload'
          : own.every(({ verdict }) => 'refused' in verdict)
            ? 'PyTorch does not run it on a CPU'
            : rules.length === 0
              ? 'no rule but replicate'
              : rules.every((r) => r.rewrite !== undefined || r.collectives !== undefined)
                ? 'every rule rewrites the call'
                : 'no rule is admitted at these sizes';
    (reasons[reason] ??= []).push(record.name);
  }
  return reasons;
}
