/**
 * The finisher: HiGHS on the reduced model with the rows that have a price, starting from the incumbent; times that its
 * answer breaks join the program, until it breaks none. What it finds is a choice like any other: looked at by our own
 * evaluation, never a proof.
 */
import load from 'highs';
import { branchTree, type BranchTree } from './branch-tree.ts';
import { costOf, usageOf } from './dual.ts';
import { choiceOf, finishProgram, memoryRow, startOf } from './finish-program.ts';
import { fix, type BoundSource } from './fix.ts';
import { openProgram } from './highs-model.ts';
import type { Model } from './model.ts';

export interface FinishJob {
  readonly model: Model;
  /** A choice of the model that keeps its rows. */
  readonly choice: Int32Array;
  readonly source: BoundSource;
  /** Milliseconds since the epoch; Infinity for none. */
  readonly deadline: number;
  /** Most branch-and-bound nodes of one run: the limit that does not depend on the clock. */
  readonly nodes?: number;
  readonly seed: number;
}

/** `done`: HiGHS says that no choice of the model costs less. That is its word only. */
export type FinishWord = 'done' | 'limit' | 'too large' | 'no word';

export interface Finish {
  readonly choice: Int32Array;
  readonly cost: number;
  readonly word: FinishWord;
  /** Runs of HiGHS, memory rows in the last one, and its size. */
  readonly runs: number;
  readonly rows: number;
  readonly columns: number;
  readonly values: number;
  /** How to branch so that no leaf's relaxation costs less than the choice: a plan for a proof. Only with `done`. */
  readonly tree?: BranchTree;
}

/** Past these HiGHS nears the end of its memory, or has never been of use. */
const MOST_COLUMNS = 150_000;
const MOST_NONZEROS = 800_000;
/** Windows of rows; each may add the most exceeded one after a run. */
const WINDOWS = 48;
const MOST_FRESH = 25;
/** Milliseconds of a run that are worth starting one. */
const LEAST_MILLISECONDS = 100;

/** Runs HiGHS to the end or a limit; `improved` hears of every better choice that keeps all rows. */
export async function finish(
  job: FinishJob,
  improved: (choice: Int32Array, cost: number) => void = () => undefined,
): Promise<Finish> {
  const { model, source } = job;
  let { choice } = job;
  let cost = costOf(model, choice);
  const fixed = fix(model, source, cost - 1, choice);
  const rows = Array.from(source.lambda.keys()).filter((t) => source.lambda[t] > 0);
  const program = finishProgram(fixed, rows, cost - fixed.bound);
  let runs = 0;
  const end = (word: FinishWord): Finish => ({
    choice,
    cost,
    word,
    runs,
    rows: rows.length,
    columns: program.columns,
    values: fixed.liveValue.reduce((a, b) => a + b, 0),
  });
  if (program.columns > MOST_COLUMNS || program.indices.length > MOST_NONZEROS) return end('too large');
  const offer = (columns: ArrayLike<number>): Int32Array | undefined => {
    const found = choiceOf(fixed, program, columns);
    if (found === undefined) return undefined;
    const price = costOf(model, found);
    if (price < cost && usageOf(model, found).every((u, t) => u <= model.capacity[t])) {
      choice = found;
      cost = price;
      improved(choice, cost);
    }
    return found;
  };
  const highs = await load();
  const lp = openProgram(highs, program, true);
  try {
    for (;;) {
      const left = job.deadline - Date.now();
      if (left < LEAST_MILLISECONDS) return end('limit');
      lp.options.set({
        mip_rel_gap: 0,
        mip_abs_gap: 0,
        output_flag: false,
        random_seed: job.seed,
      });
      if (job.nodes !== undefined) lp.options.set('mip_max_nodes', job.nodes);
      if (left < Infinity) lp.options.set('time_limit', left / 1000);
      lp.setSolution({ colValue: startOf(fixed, program, choice) });
      runs++;
      lp.run({
        [highs.constants.callbackType.mipImprovingSolution]: (event) => {
          if (event.data.mip_solution !== undefined) offer(event.data.mip_solution);
          return undefined;
        },
      });
      const status = lp.getModelStatus();
      if (status !== highs.constants.modelStatus.optimal)
        return end(
          status === highs.constants.modelStatus.timeLimit || status === highs.constants.modelStatus.solutionLimit
            ? 'limit'
            : 'no word',
        );
      const found = offer(lp.getSolution().colValue);
      if (found === undefined) return end('no word');
      const fresh = brokenRows(model, found, rows);
      if (fresh.length === 0) {
        const tree = branchTree(highs, { model, source, cost, rows, deadline: job.deadline });
        return { ...end('done'), ...(tree === undefined ? {} : { tree }) };
      }
      for (const t of fresh) {
        const { indices, values, upper } = memoryRow(fixed, program.valueColumn, t);
        lp.addRow(-Infinity, upper, { indices, values });
        rows.push(t);
      }
    }
  } finally {
    lp.dispose();
  }
}

/** The most exceeded row of every window, worst first, without those that are in the program. */
function brokenRows(model: Model, choice: Int32Array, known: readonly number[]): number[] {
  const usage = usageOf(model, choice);
  const inProgram = new Set(known);
  const worst: { readonly t: number; readonly excess: number }[] = [];
  for (let w = 0; w < WINDOWS; w++) {
    let best = -1;
    let excess = 0;
    for (let t = Math.floor((w * model.rows) / WINDOWS); t < Math.floor(((w + 1) * model.rows) / WINDOWS); t++) {
      const over = usage[t] - model.capacity[t];
      if (over > excess && !inProgram.has(t)) [best, excess] = [t, over];
    }
    if (best >= 0) worst.push({ t: best, excess });
  }
  return worst
    .sort((x, y) => y.excess - x.excess || x.t - y.t)
    .slice(0, MOST_FRESH)
    .map(({ t }) => t);
}
