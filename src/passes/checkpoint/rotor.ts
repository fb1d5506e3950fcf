/**
 * Optimal checkpointing of a chain of stages under a memory limit (persistent schedules): Rotor,
 * Beaumont et al., "Optimal Re-Materialization Strategies for Heterogeneous Chains"
 * (arXiv:1911.13214), the dynamic program of its section 4. A stage is run without saving (its
 * input is kept or dropped) or saving everything that its backward needs.
 */

import { checkItems, checkKinds } from '../../arguments.ts';
import { ShardwrightError } from '../../errors.ts';

/** One stage of a chain. Bytes are in slots of any unit, whole numbers. */
export interface ChainStage {
  readonly forwardSeconds: number;
  readonly backwardSeconds: number;
  /** Slots of the input of the stage. */
  readonly inputSlots: number;
  /** Slots of the output with everything that the backward of this stage needs. */
  readonly savedSlots: number;
  /** Slots needed only while the stage runs. */
  readonly forwardTemporarySlots?: number;
  readonly backwardTemporarySlots?: number;
}

/** The actions, in order; stages count from 0. */
export interface ChainStep {
  /** Forward keeping its input, forward dropping its input, forward saving everything, backward. */
  readonly kind: 'forward-keep' | 'forward-drop' | 'forward-save' | 'backward';
  readonly stage: number;
}

/** The steps of a schedule on a chain of stages, and their seconds together. */
export interface ChainSchedule {
  readonly seconds: number;
  readonly steps: readonly ChainStep[];
}

/** Largest table of the dynamic program, in entries. */
const TABLE_LIMIT = 2e8;

/**
 * The quickest schedule of a chain with a final loss stage of no cost and `outputSlots`, or
 * undefined when no persistent schedule fits.
 *
 * @param slots memory in slots, the input of the first stage included
 * @throws E_USAGE for sizes that are not whole, E_LIMIT for a table that is too large
 */
export function rotor(
  stages: readonly ChainStage[],
  slots: number,
  outputSlots = 1,
): ChainSchedule | undefined {
  checkKinds('rotor', {
    stages: [stages, 'list'],
    slots: [slots, 'number'],
    outputSlots: [outputSlots, 'number', 'undefined'],
  });
  checkItems('rotor', 'stages', stages, ['forwardSeconds', 'backwardSeconds']);
  refuseFractions(stages, slots, outputSlots);
  const chain = new Chain(stages, outputSlots);
  const budget = slots - chain.x[0];
  const size = chain.n + 2;
  if (budget < 0) return undefined;
  if (size * size * (budget + 1) > TABLE_LIMIT)
    throw new ShardwrightError(
      'E_LIMIT',
      `a chain of ${chain.n} stages with ${slots} slots needs too large a table`,
      {
        hint: 'use coarser slots',
      },
    );
  const table = new ScheduleTable(chain, budget);
  table.fill();
  const seconds = table.cost[table.at(1, chain.n + 1, budget)];
  return seconds === Infinity ? undefined : { seconds, steps: unfold(table, chain, budget) };
}

/** @throws E_USAGE for slots that are not whole */
function refuseFractions(stages: readonly ChainStage[], slots: number, outputSlots: number): void {
  for (const s of stages)
    for (const v of [
      s.inputSlots,
      s.savedSlots,
      s.forwardTemporarySlots ?? 0,
      s.backwardTemporarySlots ?? 0,
      slots,
      outputSlots,
    ])
      if (!Number.isInteger(v) || v < 0)
        throw new ShardwrightError('E_USAGE', `slots are whole numbers, not ${v}`);
}

/** Stages 1..n and the loss as n + 1. */
class Chain {
  readonly n: number;
  /** Slots of the output of stage i; of 0 those of the input of the chain. */
  readonly x: readonly number[];
  readonly saved: readonly number[];
  /** Seconds forward and backward. */
  readonly f: readonly number[];
  readonly b: readonly number[];
  /** Slots needed only while the stage runs, forward and backward. */
  private readonly ft: readonly number[];
  private readonly bt: readonly number[];

  constructor(stages: readonly ChainStage[], outputSlots: number) {
    this.n = stages.length;
    this.x = [...stages.map((s) => s.inputSlots), outputSlots, 0];
    this.saved = [0, ...stages.map((s) => s.savedSlots), 0];
    this.f = [0, ...stages.map((s) => s.forwardSeconds), 0];
    this.b = [0, ...stages.map((s) => s.backwardSeconds), 0];
    this.ft = [0, ...stages.map((s) => s.forwardTemporarySlots ?? 0), 0];
    this.bt = [0, ...stages.map((s) => s.backwardTemporarySlots ?? 0), 0];
  }

  /** Slots, in addition to the input of stage i, that the stages i..k need. */
  leastSlots(i: number, k: number): number {
    const { x, saved, ft, bt } = this;
    // The gradient of the output of k is as large as the output; i is the last one to run back.
    if (i === k) return x[i] + saved[i] + Math.max(ft[i], bt[i]);
    let least = x[k] + x[i] + ft[i];
    for (let j = i + 1; j < k; j++) least = Math.max(least, x[k] + x[j - 1] + x[j] + ft[j]);
    return least;
  }
}

/** The least seconds of the stages i..k within m slots, and what they do first. */
class ScheduleTable {
  readonly cost: Float64Array;
  /** -1: save everything of stage i; j > 0: keep the input, run to j without saving. */
  readonly choice: Int32Array;
  private readonly size: number;
  private readonly width: number;
  /** Seconds of the forward passes up to a stage. */
  private readonly sums: readonly number[];

  constructor(
    private readonly chain: Chain,
    budget: number,
  ) {
    this.size = chain.n + 2;
    this.width = budget + 1;
    this.cost = new Float64Array(this.size * this.size * this.width).fill(Infinity);
    this.choice = new Int32Array(this.size * this.size * this.width).fill(-2);
    const sums = [0];
    for (let i = 1; i <= chain.n + 1; i++) sums.push(sums[i - 1] + chain.f[i]);
    this.sums = sums;
  }

  at(i: number, k: number, m: number): number {
    return (i * this.size + k) * this.width + m;
  }

  fill(): void {
    const { n } = this.chain;
    for (let length = 0; length <= n; length++)
      for (let i = 1; i + length <= n + 1; i++) {
        const k = i + length;
        const least = this.chain.leastSlots(i, k);
        for (let m = Math.max(0, least); m < this.width; m++) this.settle(i, k, m);
      }
  }

  private settle(i: number, k: number, m: number): void {
    const { cost, choice, sums } = this;
    const { x, saved, f, b } = this.chain;
    const here = this.at(i, k, m);
    if (i === k) {
      cost[here] = f[i] + b[i];
      choice[here] = -1;
      return;
    }
    for (let j = i + 1; j <= k; j++) {
      if (m < x[j - 1]) continue;
      const seconds =
        sums[j - 1] - sums[i - 1] + cost[this.at(j, k, m - x[j - 1])] + cost[this.at(i, j - 1, m)];
      if (seconds < cost[here]) {
        cost[here] = seconds;
        choice[here] = j;
      }
    }
    if (m < saved[i]) return;
    const seconds = cost[this.at(i, i, m)] + cost[this.at(i + 1, k, m - saved[i])];
    if (seconds <= cost[here]) {
      cost[here] = seconds;
      choice[here] = -1;
    }
  }
}

function unfold(table: ScheduleTable, { n, x, saved }: Chain, budget: number): ChainStep[] {
  const steps: ChainStep[] = [];
  type Task = { readonly i: number; readonly k: number; readonly m: number } | ChainStep;
  const stack: Task[] = [{ i: 1, k: n + 1, m: budget }];
  for (let task = stack.pop(); task !== undefined; task = stack.pop()) {
    if ('kind' in task) {
      steps.push(task);
      continue;
    }
    const { i, k, m } = task;
    const j = table.choice[table.at(i, k, m)];
    // The later work goes on the stack first.
    if (j === -1) {
      if (i <= n) {
        stack.push({ kind: 'backward', stage: i - 1 });
        if (k > i) stack.push({ i: i + 1, k, m: m - saved[i] });
        stack.push({ kind: 'forward-save', stage: i - 1 });
      } else if (k > i) stack.push({ i: i + 1, k, m: m - saved[i] });
      continue;
    }
    stack.push({ i, k: j - 1, m }, { i: j, k, m: m - x[j - 1] });
    for (let s = j - 1; s >= i; s--)
      stack.push({ kind: s === i ? 'forward-keep' : 'forward-drop', stage: s - 1 });
  }
  return steps;
}
