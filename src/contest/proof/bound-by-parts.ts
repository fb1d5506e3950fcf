/**
 * Raises the bound of a run by parts (`parts.ts`), in a thread of its own. The parts are those of a
 * model with all values, so that nothing has to be carried back from the reduced one. It gives the
 * least bound over the parts, and its certificate.
 */
import { defined } from '../../defined.ts';
import type { ThreadCode } from '../../platform/types.ts';
import type { Certificate, Problem } from '../../solver/types.ts';
import type { AnytimeRun } from '../anytime-run.ts';
import { type WholeBound, wholeBound } from '../finish/dual-certificate.ts';
import { runJob } from '../finish/job.ts';
import { type Presolved, withAllValues } from '../model/presolve.ts';
import type { Findings } from '../run/rounds.ts';
import { isSmall, leastBound, type Part, type PartsJob } from './parts.ts';
import { partsCertificate } from './parts-certificate.ts';

const PARTS: ThreadCode = {
  from: import.meta.url,
  file: './parts-worker.mjs',
  body: async () => (await import('./parts-thread.ts')).partsThread,
};

/**
 * Time to write down and to check one part, in multiples of the time of the reduction: with its
 * messages, and with sweeps that find them.
 */
const READ = 0.1;
const SWEPT = 0.6;

export class BoundByParts {
  private readonly run: AnytimeRun;
  private readonly reduced: Presolved;
  private root: WholeBound | undefined;
  private tree: Part | undefined;

  constructor(run: AnytimeRun, reduced: Presolved) {
    this.run = run;
    this.reduced = reduced;
  }

  /** The least bound over the parts, not yet certified; -Infinity before the first. */
  get best(): number {
    return this.tree === undefined ? -Infinity : leastBound(this.tree);
  }

  /**
   * Splits parts until the deadline, or until all of them cost no less than the best choice; goes
   * on with earlier ones. Time is left to write them down and to check them, by that of the
   * reduction.
   */
  async raise(found: Findings, deadline: number, reductionMilliseconds: number): Promise<void> {
    if (found.bound === undefined) return;
    this.run.progress('parts', found.cost, Math.max(found.bound.best, this.best));
    this.root ??= wholeBound(allValues(this.run.problem, this.reduced), this.reduced, found.bound);
    const { whole, dual } = this.root;
    const job: PartsJob = {
      model: whole.model,
      start: { lambda: dual.lambda, toFirst: dual.toFirst, toSecond: dual.toSecond, steps: 0 },
      ...defined({ tree: this.tree }),
      cost: found.cost,
      deadline,
      partMilliseconds: (isSmall(whole.model) ? SWEPT : READ) * reductionMilliseconds,
    };
    const end = await runJob<Part>(PARTS, job, { deadline, stopped: () => this.run.stopped() });
    if (end.kind === 'fault') throw end.fault;
    if (end.kind !== 'answer') return;
    this.tree = end.answer;
    this.run.progress('parts', found.cost, Math.max(found.bound.best, this.best));
  }

  /** The certificate of the bound by parts; undefined where there are no two. */
  certificate(): Certificate | undefined {
    if (this.tree === undefined || this.root === undefined) return undefined;
    return partsCertificate(this.run.problem, this.root, this.tree);
  }
}

/**
 * The model that parts split: all values, because a certificate has to bound them all, and few
 * rows, because prices of rows that say nearly the same converge slowly.
 */
export function allValues(problem: Problem, { groups }: Presolved): Presolved {
  const whole = withAllValues(problem, groups);
  if (whole === undefined)
    throw new Error('internal: a row that the reduction could keep cannot be kept');
  return whole;
}
