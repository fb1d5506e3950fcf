/**
 * The finisher: HiGHS on the reduced model with the rows that have a price, starting from the
 * incumbent; times that its answer breaks join the program, until it breaks none. What it finds is
 * a choice like any other: looked at by our own evaluation, never a proof.
 */
import load from 'highs';

import { monotonicMilliseconds as milliseconds } from '../../platform/platform.ts';
import { costOf, usageOf } from '../bound/trws.ts';
import type { Model } from '../model/model.ts';
import { choiceOf, finishProgram, memoryRow, startOf } from './finish-program.ts';
import { brokenRows, openProgram } from './highs.ts';
import { type BoundSource, fix } from './reduced-cost-fixing.ts';

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

/** `done`: HiGHS says that no choice of the model costs less. That is evidence, no proof. */
type FinishWord = 'done' | 'limit' | 'too large' | 'no word';

export interface Finish {
  readonly choice: Int32Array;
  readonly cost: number;
  readonly word: FinishWord;
  /** Runs of HiGHS, memory rows of the model in the last one, and its size. */
  readonly runs: number;
  readonly rows: readonly number[];
  readonly columns: number;
  readonly values: number;
}

/** Past these HiGHS nears the end of its memory, or has never been of use. */
const MOST_COLUMNS = 150_000;
const MOST_NONZEROS = 800_000;
/** Milliseconds of a run that are worth starting one. */
const LEAST_MILLISECONDS = 100;

/**
 * Runs HiGHS to the end or a limit; `improved` hears of every better choice that keeps all rows.
 */
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
    rows,
    columns: program.columns,
    values: fixed.liveValue.reduce((a, b) => a + b, 0),
  });
  if (program.columns > MOST_COLUMNS || program.indices.length > MOST_NONZEROS)
    return end('too large');
  const propose = (columns: ArrayLike<number>): Int32Array | undefined => {
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
      const left = job.deadline - milliseconds();
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
          if (event.data.mip_solution !== undefined) propose(event.data.mip_solution);
          return undefined;
        },
      });
      const status = lp.getModelStatus();
      if (status !== highs.constants.modelStatus.optimal)
        return end(
          status === highs.constants.modelStatus.timeLimit ||
            status === highs.constants.modelStatus.solutionLimit
            ? 'limit'
            : 'no word',
        );
      const found = propose(lp.getSolution().colValue);
      if (found === undefined) return end('no word');
      const fresh = brokenRows(model, found, rows);
      if (fresh.length === 0) return end('done');
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
