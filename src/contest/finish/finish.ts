/**
 * The finisher: HiGHS on the reduced model with the rows that have a price, starting from the
 * incumbent; times that its answer breaks join the program, until it breaks none. What it finds is
 * a choice like any other: looked at by our own evaluation, never a proof.
 */
import load, { type Highs, type Model as HighsModel } from 'highs';

import { monotonicMilliseconds as milliseconds } from '../../platform/platform.ts';
import { costOf, usageOf } from '../bound/trws.ts';
import type { Model } from '../model/model.ts';
import {
  choiceOf,
  type FinishProgram,
  finishProgram,
  memoryRow,
  startOf,
} from './finish-program.ts';
import { brokenRows, openProgram } from './highs.ts';
import { type BoundSource, fix, type Fixed } from './reduced-cost-fixing.ts';

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
  const finisher = new Finisher(job, improved);
  return finisher.end(finisher.isTooLarge() ? 'too large' : await finisher.run());
}

/** The program of a job, and the best choice that its runs have found. */
class Finisher {
  private choice: Int32Array;
  private cost: number;
  private runs = 0;
  private readonly fixed: Fixed;
  private readonly rows: number[];
  private readonly program: FinishProgram;

  constructor(
    private readonly job: FinishJob,
    private readonly improved: (choice: Int32Array, cost: number) => void,
  ) {
    const { model, source, choice } = job;
    this.choice = choice;
    this.cost = costOf(model, choice);
    this.fixed = fix(model, source, this.cost - 1, choice);
    this.rows = Array.from(source.lambda.keys()).filter((t) => source.lambda[t] > 0);
    this.program = finishProgram(this.fixed, this.rows, this.cost - this.fixed.bound);
  }

  isTooLarge(): boolean {
    const { columns, indices } = this.program;
    return columns > MOST_COLUMNS || indices.length > MOST_NONZEROS;
  }

  end(word: FinishWord): Finish {
    const { choice, cost, runs, rows } = this;
    return {
      choice,
      cost,
      word,
      runs,
      rows,
      columns: this.program.columns,
      values: this.fixed.liveValue.reduce((a, b) => a + b, 0),
    };
  }

  /** Runs until no row is broken that the program does not have, or a limit. */
  async run(): Promise<FinishWord> {
    const { fixed, program, rows } = this;
    const highs = await load();
    const lp = openProgram(highs, program, true);
    try {
      for (;;) {
        const left = this.job.deadline - milliseconds();
        if (left < LEAST_MILLISECONDS) return 'limit';
        this.solve(highs, lp, left);
        const { optimal, timeLimit, solutionLimit } = highs.constants.modelStatus;
        const status = lp.getModelStatus();
        if (status !== optimal)
          return status === timeLimit || status === solutionLimit ? 'limit' : 'no word';
        const found = this.propose(lp.getSolution().colValue);
        if (found === undefined) return 'no word';
        const fresh = brokenRows(this.job.model, found, rows);
        if (fresh.length === 0) return 'done';
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

  /** One run of HiGHS, from the best choice. */
  private solve(highs: Highs, lp: HighsModel, left: number): void {
    const { seed, nodes } = this.job;
    lp.options.set({ mip_rel_gap: 0, mip_abs_gap: 0, output_flag: false, random_seed: seed });
    if (nodes !== undefined) lp.options.set('mip_max_nodes', nodes);
    if (left < Infinity) lp.options.set('time_limit', left / 1000);
    lp.setSolution({ colValue: startOf(this.fixed, this.program, this.choice) });
    this.runs++;
    lp.run({
      [highs.constants.callbackType.mipImprovingSolution]: (event) => {
        if (event.data.mip_solution !== undefined) this.propose(event.data.mip_solution);
        return undefined;
      },
    });
  }

  /** The choice that columns say, which is kept where it is better and keeps all rows. */
  private propose(columns: ArrayLike<number>): Int32Array | undefined {
    const { model } = this.job;
    const found = choiceOf(this.fixed, this.program, columns);
    if (found === undefined) return undefined;
    const price = costOf(model, found);
    if (price < this.cost && usageOf(model, found).every((u, t) => u <= model.capacity[t])) {
      this.choice = found;
      this.cost = price;
      this.improved(found, price);
    }
    return found;
  }
}
