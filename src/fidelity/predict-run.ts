/**
 * Predicts the seconds and bytes of a measured training run with the model behind `compare
 * --layout`, or gives the reason why the run has no price. Facts that a row does not state
 * (recomputation, the size of a microbatch) are chosen so that the run fits by the same model.
 */

import { usableMemoryBytes } from '../cost/hardware/cluster.ts';
import { loadCluster } from '../cost/hardware/load-cluster.ts';
import type { FittedConstants } from '../cost/kernels/fitted.ts';
import { modelFlops, type ParallelPlan, type RecomputeMode } from '../cost/training/shape.ts';
import { defined } from '../defined.ts';
import { ShardwrightError } from '../errors.ts';
import type { OperatorTable } from '../ops/record/table.ts';
import { LayoutPricer } from '../sweep/layout/price-layout.ts';
import type { SweepQuestion } from '../sweep/model/question.ts';
import type { Figures } from '../sweep/step/figures.ts';
import { type AskedRun, askedRun, type NotAsked } from './asked-run.ts';
import type { MeasuredRun } from './runs.ts';

/** A measured run with the prediction of the model that decides in `plan` and `compare`. */
export interface PredictedRun {
  readonly run: MeasuredRun;
  readonly asked: AskedRun;
  readonly seconds: number;
  /** Tensors of the fullest device; the other memory of the process belongs to the headroom. */
  readonly peakBytes: number;
  /** Within the device less its headroom. */
  readonly fits: boolean;
  readonly recompute: RecomputeMode;
  /** Model FLOPs (causal attention) over the dense peak of the unit that does the matmuls. */
  readonly utilisation: number;
}

/** Lists of runs that share their programs: of one model, machine and trainer. */
export function sharingPrograms(runs: readonly MeasuredRun[]): readonly (readonly MeasuredRun[])[] {
  const shared = new Map<string, MeasuredRun[]>();
  for (const run of runs) {
    const key = JSON.stringify([run.clusterText, run.shape, run.config, run.framework]);
    shared.set(key, [...(shared.get(key) ?? []), run]);
  }
  return [...shared.values()];
}

/** How runs are priced. */
interface PredictedHow {
  readonly pricer?: LayoutPricer;
  readonly constants?: FittedConstants;
  /**
   * The question that is asked for a run's: with another software, say, than that of its row. It
   * may refuse with E_USAGE.
   */
  readonly asking?: (question: SweepQuestion, run: MeasuredRun) => SweepQuestion;
}

/** Prices measured runs; rows of one model on one machine share their programs. */
export class RunPredictor {
  private readonly pricer: LayoutPricer;
  private readonly how: PredictedHow;

  constructor(table: OperatorTable, how: PredictedHow = {}) {
    this.pricer = how.pricer ?? new LayoutPricer(table);
    this.how = how;
  }

  async predict(run: MeasuredRun): Promise<PredictedRun | NotAsked> {
    const budget = usableMemoryBytes(loadCluster(run.clusterText));
    let chosen: Priced | NotAsked = await this.priced(run, run.plan);
    if ('reason' in chosen) return chosen;
    // Recomputation that is not stated is the least that fits; where links allow it, what does not
    // fit waits on the host instead.
    for (const recompute of run.system.offloadedActivations ? [] : run.recomputeModes.slice(1)) {
      if (chosen.figures.peakBytes <= budget) break;
      const next: Priced | NotAsked = await this.priced(run, { ...run.plan, recompute });
      if ('reason' in next) break;
      chosen = next;
    }
    for (const microbatch of run.largerMicrobatches) {
      const next: Priced | NotAsked = await this.priced(run, { ...chosen.plan, microbatch });
      if ('reason' in next || next.figures.peakBytes > budget) break;
      chosen = next;
    }
    const { asked, plan, figures } = chosen;
    const others = figures.peakBytes - figures.memory.activationBytes;
    const peakBytes = run.system.offloadedActivations
      ? Math.min(figures.peakBytes, Math.max(budget, others))
      : figures.peakBytes;
    const { peakFlopsPerSecond: peaks } = run.system.cluster;
    const peak = peaks[run.system.matmulUnit] ?? peaks.bf16 ?? peaks.fp16 ?? 1;
    return {
      run,
      asked,
      seconds: figures.seconds,
      peakBytes,
      fits: peakBytes <= budget,
      recompute: plan.recompute,
      utilisation:
        modelFlops(run.shape, plan.globalBatch, true) / (figures.seconds * run.devices * peak),
    };
  }

  private async priced(run: MeasuredRun, plan: ParallelPlan): Promise<Priced | NotAsked> {
    const found = askedRun(run, plan, 'nccl');
    if ('reason' in found) return found;
    const { constants, asking = (question) => question } = this.how;
    try {
      const own = { ...found.question, ...defined({ constants }) };
      const asked = { ...found, question: asking(own, run) };
      return { asked, plan, figures: await this.pricer.price(asked.question, asked.layout) };
    } catch (error) {
      const refused = ['E_UNSUPPORTED', 'E_USAGE'];
      if (error instanceof ShardwrightError && refused.includes(error.code))
        return { reason: error.message };
      throw error;
    }
  }
}

interface Priced {
  readonly asked: AskedRun;
  readonly plan: ParallelPlan;
  readonly figures: Figures;
}
