/**
 * The validator: tries the rules of operators on simulated ranks. *Unsound* is a rule that the
 * product offers and execution refutes; *missing* is a combination of placements that execution
 * confirms on all draws and numbers of ranks, and that neither a rule nor a free conversion gives.
 */

import { didYouMean, ShardwrightError } from '../../errors.ts';
import type { ReduceOp } from '../../mesh/placements/placement.ts';
import type { OperatorRecord } from '../../ops/record/record.ts';
import { R, type Rule, type RuleSlot, slotText } from '../../ops/record/rule.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import type { CallText } from '../../ops/samples/call-text.ts';
import { resized, sampleCalls, squared } from '../../ops/samples/table.ts';
import { compositeOf } from '../../ops/vjp/composite/composite.ts';
import { vjpOf } from '../../ops/vjp/table.ts';
import type { Vjps } from '../../ops/vjp/vjp.ts';
import { product } from '../../product.ts';
import { checkDerivative, type DerivativeFinding } from './derivative.ts';
import { inputSlots, isConstant, refute, type Trial, trialsOf, validOutputs } from './judge.ts';
import { follows, offeredRules } from './offered-rules.ts';
import { SampleCall } from './sample-call.ts';

export type { DerivativeFinding } from './derivative.ts';

export interface ValidationOptions {
  /** Canonical names of the operators to try; default every operator with samples. */
  readonly operators?: readonly string[];
  /** Numbers of ranks; default 2 and 3. */
  readonly ranks?: readonly number[];
  /** Look for missing rules by trying every combination of placements; default true. */
  readonly complete?: boolean;
  /**
   * Combinations tried for one call; calls with more are tried with pending sums only, then not at
   * all. Default 50,000.
   */
  readonly budget?: number;
  /**
   * Draws on which a rule is run, at most; default all. The search for missing rules always uses
   * all of them.
   */
  readonly draws?: number;
  /**
   * Also try each call with equal sizes throughout, where a rule can mistake one dim for another;
   * default false.
   */
  readonly squares?: boolean;
  /**
   * Derivatives to compare with differences of the values, as `customOp` states them. Absent: none
   * is asked for.
   */
  readonly vjps?: Vjps;
  /** Only every `count`-th operator, from `index` on (0-based), for checks that run in parts. */
  readonly slice?: { readonly index: number; readonly count: number };
  /** Is told each operator when its turn comes. */
  readonly onOperator?: (name: string, at: number, of: number) => void;
}

/** A rule that is wrong, or that is missing, with the call that shows it. */
export interface Finding {
  readonly operator: string;
  /** The sample call. */
  readonly call: string;
  /** `S(0), R -> S(0)` */
  readonly rule: string;
  /** Numbers of ranks on which it was found. */
  readonly ranks: readonly number[];
  /** The fault of an unsound rule. */
  readonly why?: string;
}

/** The result of executing the rules of some operators. */
export interface Validation {
  readonly operators: number;
  readonly samples: number;
  /** Rules run: one for each rule of a sample and number of ranks. */
  readonly rulesChecked: number;
  /** Combinations of input placements run in search of missing rules. */
  readonly combinations: number;
  readonly unsound: readonly Finding[];
  readonly missing: readonly Finding[];
  /** Elements of gradients that were compared with differences of the values. */
  readonly derivativesChecked: number;
  /** Gradients that are not the derivative of the values. */
  readonly wrongDerivatives: readonly DerivativeFinding[];
  /** One sentence for each derivative that was not compared, with the reason. */
  readonly uncompared: readonly string[];
  /** Calls whose combinations were too many to be tried. */
  readonly untried: readonly string[];
  /** Operators without samples: no kernel runs them. */
  readonly untested: readonly string[];
}

/** @throws E_UNKNOWN_OP for a name that the table does not have */
export function validateRules(table: OperatorTable, options: ValidationOptions = {}): Validation {
  const wanted = options.operators?.map((name) => operatorNamed(table, name).name);
  const { slice = { index: 0, count: 1 } } = options;
  const isMine = new Set(
    table.records.map((r) => r.name).filter((_, i) => i % slice.count === slice.index),
  );
  const samples = sampleCalls(table).filter((c) => {
    const name = nameOf(table, c);
    return isMine.has(name) && (wanted === undefined || wanted.includes(name));
  });
  const names = new Set(samples.map((c) => nameOf(table, c)));
  const run = new Run(table, options);
  const tried = new Set<string>();
  for (const call of samples) {
    const name = nameOf(table, call);
    if (!tried.has(name)) options.onOperator?.(name, tried.size + 1, names.size);
    tried.add(name);
    run.try(call);
    run.differentiate(call);
    const others = [
      resized(table, call),
      options.squares === true ? squared(table, call) : undefined,
    ];
    for (const other of others) if (other !== undefined) run.try(other);
  }
  return {
    operators: tried.size,
    samples: run.samples,
    rulesChecked: run.rulesChecked,
    combinations: run.combinations,
    unsound: run.unsound,
    missing: run.missing,
    derivativesChecked: run.derivativesChecked,
    wrongDerivatives: run.wrongDerivatives,
    uncompared: [...run.uncompared],
    untried: run.untried,
    untested: table.records
      .map((r) => r.name)
      .filter((name) => isMine.has(name) && !tried.has(name) && (wanted?.includes(name) ?? true)),
  };
}

/**
 * The record of a name, which may leave out `aten.` and the overload where there is one only.
 *
 * @throws E_UNKNOWN_OP for a name that is none, with the nearest ones, or that several overloads
 *   share, with all of them
 */
export function operatorNamed(table: OperatorTable, name: string): OperatorRecord {
  const exact =
    table.get(name) ??
    table.get(`aten.${name}`) ??
    table.get(`aten.${name}.default`) ??
    table.get(`${name}.default`);
  if (exact !== undefined) return exact;
  const known = table.names();
  const overloads = known.filter((n) => n.startsWith(`${name}.`) || n.startsWith(`aten.${name}.`));
  if (overloads.length === 1) return table.get(overloads[0])!;
  if (overloads.length > 1)
    throw new ShardwrightError('E_UNKNOWN_OP', `'${name}' has several overloads`, {
      hint: `name one of ${overloads.join(', ')}`,
    });
  const words = [...new Set(known.flatMap((n) => [n, withoutDefaults(n)]))];
  const near = didYouMean(withoutDefaults(name), words);
  throw new ShardwrightError('E_UNKNOWN_OP', `there is no operator '${name}'`, {
    hint:
      near.length > 0
        ? `did you mean ${near.map((n) => `'${n}'`).join(' or ')}?`
        : 'name it with namespace and overload, such as aten.mm.default; ' +
          '`shardwright rules` lists all',
  });
}

/** `mm` of `aten.mm.default`. */
function withoutDefaults(name: string): string {
  return name.replace(/^aten\./, '').replace(/\.default$/, '');
}

function nameOf(table: OperatorTable, call: CallText): string {
  return table.get(call.target)?.name ?? call.target;
}

class Run {
  readonly unsound: Finding[] = [];
  readonly missing: Finding[] = [];
  readonly untried: string[] = [];
  readonly wrongDerivatives: DerivativeFinding[] = [];
  readonly uncompared = new Set<string>();
  derivativesChecked = 0;
  samples = 0;
  rulesChecked = 0;
  combinations = 0;
  private readonly ranks: readonly number[];
  private readonly budget: number;
  private readonly complete: boolean;
  private readonly draws: number;
  private readonly vjps: Vjps | undefined;

  constructor(
    private readonly table: OperatorTable,
    options: ValidationOptions,
  ) {
    this.ranks = options.ranks ?? [2, 3];
    this.budget = options.budget ?? 50_000;
    this.complete = options.complete ?? true;
    this.draws = options.draws ?? Infinity;
    this.vjps = options.vjps;
  }

  try(call: CallText): void {
    const sample = new SampleCall(this.table, call);
    const trials = trialsOf(sample);
    const rules = sample.record.shard(sample.ctx);
    this.samples++;
    this.check(sample, trials, rules);
    if (this.complete) this.search(sample, trials, rules);
  }

  /** Compares the derivative that was given for the operator of a call. */
  differentiate(call: CallText): void {
    if (this.vjps === undefined) return;
    const sample = new SampleCall(this.table, call);
    const { record } = sample;
    const stated = Object.hasOwn(this.vjps, record.name) ? this.vjps[record.name] : undefined;
    if (stated === undefined) {
      const isBuiltin = vjpOf(record.name) !== undefined || compositeOf(record) !== undefined;
      if (!isBuiltin) this.uncompared.add(`${record.name}: it states no derivative`);
      return;
    }
    const { elements, wrong, uncompared } = checkDerivative(sample, stated);
    this.derivativesChecked += elements;
    this.wrongDerivatives.push(...wrong);
    for (const sentence of uncompared) this.uncompared.add(sentence);
  }

  private check(sample: SampleCall, trials: readonly Trial[], rules: readonly Rule[]): void {
    const wrong = new Map<string, { ranks: number[]; why: string }>();
    for (const ranks of this.ranks)
      for (const r of offeredRules(sample, rules, ranks)) {
        this.rulesChecked++;
        const why = refute(sample, trials.slice(0, this.draws), r, ranks);
        if (why === undefined) continue;
        const rewrite = r.rewrite === undefined ? '' : ` [${r.rewrite}]`;
        const text = `${combinationText(r.inputs, r.outputs)}${rewrite}`;
        const known = wrong.get(text);
        if (known === undefined) wrong.set(text, { ranks: [ranks], why });
        else known.ranks.push(ranks);
      }
    for (const [text, { ranks, why }] of wrong)
      this.unsound.push({
        operator: sample.record.name,
        call: sample.call.text,
        rule: text,
        ranks,
        why,
      });
  }

  /** Every combination of input placements, on all numbers of ranks. */
  private search(sample: SampleCall, trials: readonly Trial[], rules: readonly Rule[]): void {
    // A result that is the same whatever the inputs are judges nothing.
    if (sample.ctx.outputs.every((_, k) => isConstant(trials, k))) return;
    const [first, ...rest] = this.ranks;
    const inputs = this.slotsOf(sample, first);
    if (inputs === undefined) {
      this.untried.push(sample.call.text);
      return;
    }
    const kinds = pendingKinds(rules);
    for (const slots of combinations(inputs)) {
      if (slots.every((slot) => slot?.kind === 'replicate')) continue;
      this.combinations++;
      let valid = validOutputs(sample, trials, slots, first, kinds);
      for (const ranks of rest) {
        if (valid === undefined) break;
        const again = validOutputs(sample, trials, slots, ranks, kinds);
        valid = again && intersect(valid, again);
      }
      if (valid === undefined) continue;
      for (const outputs of combinations(valid.map(essential)))
        if (!follows([REPLICATE(sample), ...rules], slots, outputs))
          this.missing.push({
            operator: sample.record.name,
            call: sample.call.text,
            rule: combinationText(slots, outputs),
            ranks: this.ranks,
          });
    }
  }

  private slotsOf(sample: SampleCall, first: number): RuleSlot[][] | undefined {
    const most = Math.max(first, ...this.ranks);
    for (const kinds of ['all', 'sum'] as const) {
      const lists = sample.ctx.inputs.map((_, i) => inputSlots(sample, i, most, kinds));
      if (product(lists.map((list) => list.length)) <= this.budget) return lists;
    }
    return undefined;
  }
}

const REPLICATE = (sample: SampleCall): Rule => ({
  inputs: sample.ctx.inputs.map(() => R),
  outputs: sample.ctx.outputs.map((o) => o && R),
  origin: 'base',
});

/** A replicated result is its own average and extreme, and cut for nothing. */
function essential(slots: readonly RuleSlot[]): readonly RuleSlot[] {
  const whole = slots.find((slot) => slot?.kind === 'replicate');
  return whole === undefined ? slots : [whole];
}

/** Kinds that the rules speak of. */
function pendingKinds(rules: readonly Rule[]): ReduceOp[] {
  const kinds = new Set<ReduceOp>();
  for (const r of rules)
    for (const slot of [...r.inputs, ...r.outputs])
      if (slot?.kind === 'partial') kinds.add(slot.op);
  return [...kinds];
}

function intersect(a: readonly RuleSlot[][], b: readonly RuleSlot[][]): RuleSlot[][] | undefined {
  const both = a.map((list, k) =>
    list.filter((slot) => b[k].some((other) => slotText(other) === slotText(slot))),
  );
  return both.some((list) => list.length === 0) ? undefined : both;
}

function combinationText(inputs: readonly RuleSlot[], outputs: readonly RuleSlot[]): string {
  return `${inputs.map(slotText).join(', ')} -> ${outputs.map(slotText).join(', ')}`.trimStart();
}

/** All ways to take one of each list, the last list fastest. */
function* combinations<T>(lists: readonly (readonly T[])[]): Generator<T[]> {
  const pick = new Int32Array(lists.length);
  if (lists.some((list) => list.length === 0)) return;
  for (;;) {
    yield lists.map((list, i) => list[pick[i]]);
    let i = lists.length - 1;
    while (i >= 0 && pick[i] === lists[i].length - 1) pick[i--] = 0;
    if (i < 0) return;
    pick[i]++;
  }
}
