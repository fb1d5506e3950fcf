import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { describe, expect, test } from 'vitest';

import { withSection } from '../../scripts/coverage-page.ts';
import { ShardwrightError } from '../../src/errors.ts';
import type { DType } from '../../src/graph/types.ts';
import type { OperatorRecord } from '../../src/ops/record/record.ts';
import { P, R, type Rule, rule, type RuleSlot, ruleText, S } from '../../src/ops/record/rule.ts';
import { bindText, type CallText, parseCall } from '../../src/ops/samples/call-text.ts';
import { isTorch } from '../../src/ops/samples/table.ts';
import { admitted } from '../ops/support/ranks.ts';
import { operators, samples } from './samples/all.ts';
import { isHandedOn, isMade, loweredRules } from './support/lowered-rules.ts';
import { KERNEL_LIMITS, NOT_OFFERED, NOT_RUN, READ_IN_MEMORY, REFUSED } from './support/not-run.ts';
import { askTorch } from './support/torch.ts';
import { wireCall } from './support/wire-call.ts';

/**
 * Every rule is run by PyTorch on 2 and 3 ranks, with two draws of values, and compared with the
 * unsharded run: the unchanged call (but for a stated size) on parts of its inputs, and where the
 * rule rewrites the call or communicates the program that lowering and export write for it.
 */

type Verdict =
  | { readonly refused: string }
  | { readonly untyped: string }
  | { readonly verdicts: readonly (readonly (string | null)[])[] };

/**
 * What a program hands to its kernels: a dtype in place of float64, the order of dims in memory, and
 * parts of the slowest dim as views of the whole.
 */
interface Form {
  readonly dtype: DType;
  readonly order: keyof typeof ORDERS;
  readonly views: boolean;
}

/** Orders of a number of dims in memory, the slowest first. */
const ORDERS = {
  rows: (rank: number) => dims(rank),
  reversed: (rank: number) => dims(rank).reverse(),
  channels: (rank: number) => (rank > 2 ? [0, ...dims(rank).slice(2), 1] : dims(rank)),
} as const;
const dims = (rank: number): number[] => Array.from({ length: rank }, (_, d) => d);

const FORMS: readonly Form[] = (['f64', 'f32', 'bf16'] as const).flatMap((dtype) =>
  (['rows', 'reversed', 'channels'] as const).flatMap((order) =>
    [false, true].map((views) => ({ dtype, order, views })),
  ),
);

interface JobRule {
  readonly rule: Rule;
  readonly ranks: readonly number[];
  /** Of a rule that rewrites the call: the exported text, by the number of ranks. */
  readonly programs?: readonly string[];
}

interface Job {
  readonly call: CallText;
  readonly form: Form;
  readonly rules: readonly JobRule[];
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
  diagonal_backward: 1,
  unfold_backward: 1,
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

const FULL = process.env['SHARDWRIGHT_FULL'] === '1';
const PAGE = fileURLToPath(new URL('../../docs/coverage.md', import.meta.url));

/**
 * Each operator in the first form, and in one other form, which goes round; with SHARDWRIGHT_FULL=1
 * in all forms.
 */
function formsOf(record: OperatorRecord): readonly Form[] {
  if (FULL) return FORMS;
  const others = FORMS.length - 1;
  return [FORMS[0], FORMS[1 + ((operators.records.indexOf(record) * 5) % others)]];
}

/** The call with its free operands in the dtype of a form. */
function inForm(call: CallText, { dtype }: Form): CallText {
  const tensors = new Map(
    [...call.tensors].map(([name, t]) => [name, t.free ? { ...t, dtype } : t]),
  );
  return { ...call, tensors };
}

const count = { rules: 0, eightBits: 0 };
const notOffered: string[] = [];
/** By form: calls that were run and that PyTorch does not take so, and rules with their runs. */
const formCounts = FORMS.map(() => ({ calls: 0, untaken: 0, rules: 0, programs: 0, runs: 0 }));

/** The rules of a call in a form, or undefined where it has no operand of that dtype. */
function jobOf(base: CallText, form: Form): Job | undefined {
  const call = inForm(base, form);
  if (form.dtype !== 'f64' && ![...call.tensors.values()].some((t) => t.free)) return undefined;
  let bound: ReturnType<typeof bindText>;
  try {
    bound = bindText(operators, call);
  } catch (error) {
    // Operands of mixed dtypes that only float64 fits.
    if (error instanceof ShardwrightError && error.code === 'E_TYPE') return undefined;
    throw error;
  }
  const { record, ctx } = bound;
  const all = record.shard(ctx);
  const rewritten = all.filter((r) => rewrites(r) && isMade(r, ctx));
  const programs = new Map<number, ReadonlyMap<string, string>>();
  const textOn = (ranks: number, r: Rule): string | undefined => {
    if (!programs.has(ranks)) {
      const order = ORDERS[form.order];
      const on = rewritten.filter((own) => admitted(ctx, [own], [ranks]));
      programs.set(ranks, loweredRules({ table: operators, record, call, ranks, order }, on));
    }
    return programs.get(ranks)?.get(ruleText(r));
  };
  const rules: JobRule[] = [];
  for (const r of all) {
    count.rules++;
    // PyTorch does not add numbers of 8 bits, and rounds their products to float32: the validator
    // runs these in float64.
    const pending = [...r.inputs, ...r.outputs].some((slot) => slot?.kind === 'partial');
    if (pending && ctx.inputs.some((x) => x.dtype.startsWith('f8'))) {
      count.eightBits++;
      continue;
    }
    const few = RANKS.filter((n) => admitted(ctx, [r], [n]));
    const ranks = few.length > 0 ? few : MORE_RANKS.filter((n) => admitted(ctx, [r], [n]));
    const texts = rewrites(r) ? ranks.map((n) => textOn(n, r)) : [];
    const offered = ranks.filter((_, k) => texts[k] !== undefined);
    const isPlain = !rewrites(r) || sizeArgument(call.target, r) !== undefined;
    if (offered.length > 0) {
      const outputs = r.outputs.map((slot) => (isHandedOn(slot) ? slot : R));
      const programs = texts.filter((text) => text !== undefined);
      rules.push({ rule: { ...r, outputs }, ranks: offered, programs });
    } else if (isPlain && ranks.length > 0) rules.push({ rule: r, ranks });
    else if (form === FORMS[0]) notOffered.push(`${call.text}: ${ruleText(r)}`);
  }
  return { call, form, rules };
}

/** Tells whether lowering changes the call of a rule in more than a size that it states. */
function rewrites(r: Rule): boolean {
  return r.rewrite !== undefined || r.collectives !== undefined;
}

/**
 * Fused attention on a CPU splits its rows in blocks whose length goes up at 192 and at 768 rows.
 */
const LONG: readonly CallText[] = [
  '_scaled_dot_product_flash_attention_for_cpu(x[2,3,200,4], x[2,3,40,4], x[2,3,40,4])',
  '_scaled_dot_product_flash_attention_for_cpu(x[3,2,200,4], x[3,2,200,4], x[3,2,200,4], 0.0, True)',
  '_scaled_dot_product_flash_attention_for_cpu(x[2,3,770,4], x[2,3,20,4], x[2,3,20,4], attn_mask=x[1,3,770,20], scale=0.25)',
  '_scaled_dot_product_flash_attention_for_cpu_backward(x[2,3,200,4], x[2,3,200,4], x[2,3,40,4], x[2,3,40,4], x[2,3,200,4], large[2,3,200], 0.0, False)',
  '_scaled_dot_product_flash_attention_for_cpu_backward(x[3,2,770,4], x[3,2,770,4], x[3,2,770,4], x[3,2,770,4], x[3,2,770,4], large[3,2,770], 0.0, True)',
  '_scaled_dot_product_flash_attention_for_cpu_backward(x[2,3,200,4], x[2,3,200,4], x[2,3,40,4], x[2,3,40,4], x[2,3,200,4], large[2,3,200], 0.0, False, attn_mask=x[200,40])',
].map(parseCall);

const jobs: Job[] = [...samples, ...LONG].flatMap((call) =>
  formsOf(bindText(operators, call).record).flatMap((form) => jobOf(call, form) ?? []),
);
const controls: Job[] = WRONG.map(([text, r]) => ({
  call: parseCall(text),
  form: FORMS[0],
  rules: [{ rule: r, ranks: RANKS }],
}));
/** Each text once, with its place. */
const programTexts = new Map<string, number>();
for (const { rules } of jobs)
  for (const { programs = [] } of rules)
    for (const text of programs)
      if (!programTexts.has(text)) programTexts.set(text, programTexts.size);

/** A slot, and of a shard the number of equal chunks of which each rank has a piece. */
function wireSlot(slot: RuleSlot, call: CallText): object | null {
  if (slot?.kind !== 'shard') return slot;
  const { ctx } = bindText(operators, call);
  const shape =
    slot.inside === null ? [] : ([...ctx.inputs, ...ctx.outputs][slot.inside.tensor]?.shape ?? []);
  return { ...slot, chunks: (slot.inside?.dims ?? []).reduce((n, dim) => n * shape[dim], 1) };
}

/** The shapes of the results that the record gives a call, on some device and in some memory order. */
function formsOfResults(call: CallText): (readonly number[] | null)[][] {
  const { record, ctx } = bindText(operators, call);
  const forms = [record.infer(ctx), ...(record.variants?.(ctx) ?? [])];
  return forms.map((form) => form.map((meta) => meta?.shape ?? null));
}

const answer = askTorch<{ readonly calls: readonly Verdict[] }>('run_rules.py', {
  programs: [...programTexts.keys()],
  calls: [...jobs, ...controls].map(({ call, form, rules }) => ({
    ...wireCall(bindText(operators, call).record, call),
    seeds: [1, 2],
    order: form.order,
    views: form.views,
    forms: formsOfResults(call),
    draws: bindText(operators, call).record.cls === 'random',
    rules: rules.map(({ rule: r, ranks, programs }) => ({
      inputs: r.inputs.map((slot) => wireSlot(slot, call)),
      outputs: r.outputs.map((slot) => wireSlot(slot, call)),
      ranks,
      size: programs === undefined ? (sizeArgument(call.target, r) ?? null) : null,
      programs: programs?.map((text) => programTexts.get(text)) ?? null,
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
    const inMemory = new Set<string>();
    const reached = new Set<string>();
    jobs.forEach(({ call, form, rules }, i) => {
      const verdict = answer.calls[i];
      const of = formCounts[FORMS.indexOf(form)];
      if ('refused' in verdict) {
        // A kernel that does not take a dtype or a memory order on one device is not cut there.
        of.untaken++;
        if (form === FORMS[0]) refused.push(`${call.text}: ${verdict.refused}`);
        else if (verdict.refused.startsWith('reads memory')) inMemory.add(call.target);
        return;
      }
      of.calls++;
      if ('untyped' in verdict) {
        wrong.push(`${call.text} (${form.dtype}, ${form.order}) has results ${verdict.untyped}`);
        return;
      }
      verdict.verdicts.forEach((row, k) => {
        of.rules++;
        if (rules[k].programs !== undefined) of.programs++;
        reached.add(bindText(operators, call).record.name);
        row.forEach((why, n) => {
          of.runs++;
          if (why === null) return;
          const { dtype, order, views } = form;
          const where = `${call.text} ${ruleText(rules[k].rule)} ${rules[k].rule.rewrite ?? ''} on ${rules[k].ranks[n]} ranks (${dtype}, ${order}${views ? ', views' : ''}): ${why}`;
          if (why.startsWith('kernel:')) limits.add(where);
          else wrong.push(where);
        });
      });
    });
    const sum = (of: keyof (typeof formCounts)[number]): number =>
      formCounts.reduce((total, counts) => total + counts[of], 0);
    process.stdout.write(
      `${reached.size} of ${operators.records.length} operators, ${sum('rules')} operator x rule pairs in ${sum('runs')} runs, ` +
        `${sum('programs')} of them by the exported program; of ${count.rules} rules in all, 8 bits: ${count.eightBits}; ` +
        `not offered: ${notOffered.length}; calls that PyTorch does not take in a form: ${sum('untaken')}\n`,
    );
    expect(wrong).toEqual([]);
    expect(notOffered).toEqual(NOT_OFFERED);
    expect([...inMemory].filter((name) => !READ_IN_MEMORY.includes(name))).toEqual([]);
    expect(refused).toEqual(REFUSED);
    expect([...limits].sort()).toEqual(KERNEL_LIMITS);
  });

  test.skipIf(FULL)('docs/coverage.md has these counts', () => {
    const words = { false: 'parts have memory of their own', true: 'parts of dim 0 are views' };
    const rows = FORMS.map(({ dtype, order, views }, k) => {
      const { calls, untaken, rules, programs, runs } = formCounts[k];
      const cells = [dtype, order, words[`${views}`], calls, untaken, rules, programs, runs];
      return `| ${cells.join(' | ')} |`;
    });
    const lines = [
      '<!-- Written by test/engines/rules.test.ts: SHARDWRIGHT_RECORD=1 npm run test:engines -- rules. -->',
      '',
      "Every sharding rule of every `aten` and `prims` operator on PyTorch 2.13.0's own kernels on a CPU, on 2 and",
      '3 ranks (5 and 7 where only these divide), each with two draws. All operators run in float64 row by row, and each in',
      'one of the other forms, which goes round; `SHARDWRIGHT_FULL=1` runs all in all forms. A rule that rewrites the call,',
      'or communicates, runs as the exported program. None is wrong.',
      '',
      '| dtype | dims in memory | parts | calls | not taken by PyTorch | rules | as programs | runs |',
      '| --- | --- | --- | --- | --- | --- | --- | --- |',
      ...rows,
    ];
    const page = readFileSync(PAGE, 'utf8');
    const title = "Sharding rules on PyTorch's kernels";
    if (process.env['SHARDWRIGHT_RECORD'] === '1')
      writeFileSync(PAGE, withSection(page, title, lines));
    else {
      const plain = page.replaceAll(/ +/g, ' ');
      expect(rows.filter((row) => !plain.includes(row))).toEqual([]);
    }
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
