/**
 * Tunes a layout that somebody runs: its step, the fastest step that its trainer can take with the
 * same states and batch, the changes of one setting that are faster, and pairs of changes that beat
 * every single one. All are priced as stated, by one function.
 */
import { fitProbability, nearestPool } from '../../cost/error-bands.ts';
import { loadCluster } from '../../cost/hardware/load-cluster.ts';
import { defined } from '../../defined.ts';
import { ShardwrightError } from '../../errors.ts';
import { parseModelConfig } from '../../models/families.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { Deadline } from '../../plan/request/deadline.ts';
import type { TrainerRuns } from '../../trainers/runs.ts';
import type { SweepQuestion } from '../model/question.ts';
import { layerKinds } from '../model/representative-layers.ts';
import { layoutText, type StatedLayout } from '../model/stated-layout.ts';
import { trainerLimits } from '../model/trainer-limits.ts';
import { coreKey, coreRequest } from '../model/types.ts';
import { TriedCheckpoints } from '../step/tried-checkpoints.ts';
import { sweep, type SweepResult } from '../sweep.ts';
import { localPool } from '../threads/local-pool.ts';
import { type Change, changesOf, onStages } from './changes.ts';
import { checkLayout, questionOf } from './compare-layout.ts';
import { LayoutPricer } from './price-layout.ts';

/** The step of a layout. */
export interface TunedStep {
  readonly stepSeconds: number;
  /** Eight of ten comparable measured runs lie there; null where none was measured. */
  readonly stepBand: readonly [low: number, high: number] | null;
  readonly peakBytes: number;
  readonly fitProbability: number;
}

/** A layout with its step. */
interface TunedLayout extends TunedStep {
  /** As `--layout` takes it. */
  readonly layout: string;
}

/** Settings that are changed, and the step that they make. */
export interface TunedChange extends TunedLayout {
  /** `recompute=none`; of two settings both, with a comma between them. */
  readonly set: string;
}

/** The answer of `tune`. */
export interface Tuned {
  readonly trainer: string;
  readonly model: string;
  readonly devices: number;
  readonly cluster: string;
  readonly sequence: number;
  readonly globalBatch: number;
  /** The least probability of fitting that best and changes have. */
  readonly risk: number;
  /** Layouts of the trainer that were priced, the current one among them. */
  readonly layouts: number;
  readonly current: TunedLayout;
  /** Null where nothing fits. */
  readonly best: TunedLayout | null;
  /** Changes of one setting, the fastest first. */
  readonly changes: readonly TunedChange[];
  /** Changes of two settings that are faster than every one. */
  readonly pairs: readonly TunedChange[];
  /** Layouts faster than the best that the file cannot state. */
  readonly notStated: number;
}

export interface TuneOptions {
  readonly table: OperatorTable;
  readonly risk: number;
  /** The layouts that this form of file can state; absent: all that the trainer runs. */
  readonly runs?: TrainerRuns;
  /** Tells whether the file can be edited to state a layout; absent: every layout counts. */
  readonly isStated?: (layout: StatedLayout) => boolean;
  readonly deadline?: Deadline;
  readonly onProgress?: (line: string) => void;
}

const MOST_PAIRS = 3;
/** Less than this share is not a gain. */
const LEAST_GAIN = 0.001;

/**
 * @throws E_USAGE where the trainer does not run the layout; E_UNSUPPORTED where it has no price
 */
export async function tuneLayout(
  asked: SweepQuestion,
  current: StatedLayout,
  options: TuneOptions,
): Promise<Tuned> {
  const { table, runs, deadline = new Deadline(undefined), onProgress } = options;
  checkLayout(asked, current, runs);
  const question = { ...questionOf(asked, current), risk: options.risk };
  const config = parseModelConfig(question.config);
  const cluster = loadCluster(question.cluster);
  onProgress?.(`${question.model}: reading its layers`);
  const kinds = layerKinds(
    config,
    { batch: 1, sequence: question.sequence, ...defined({ dtype: question.dtype }) },
    table,
  );
  const pool = localPool(question, table, kinds, deadline);
  const found = await sweep({
    ...{ question, config, cluster, kinds, pool, deadline },
    onlyBest: true,
    ...defined({ onProgress }),
  });
  const pricer = new LayoutPricer(table, [{}], () => pool.solver, found.cores);
  return new Tuner(question, current, options, found, pricer).answer();
}

/** A layout that was priced. */
interface Priced {
  readonly layout: StatedLayout;
  readonly step: TunedLayout;
}

class Tuner {
  private readonly limits: TrainerRuns | undefined;
  private readonly band: readonly [number, number] | undefined;
  private readonly memoryBytes: number;

  constructor(
    private readonly question: SweepQuestion,
    private readonly current: StatedLayout,
    private readonly options: TuneOptions,
    private readonly found: SweepResult,
    private readonly pricer: LayoutPricer,
  ) {
    const { cluster } = found.composer;
    this.limits = options.runs ?? trainerLimits(question);
    this.memoryBytes = question.memoryBytes ?? cluster.memoryBytes;
    const experts = parseModelConfig(question.config).architecture.routed !== undefined;
    const hosts = question.devices > cluster.devicesPerHost ? 2 : 1;
    const { trainer } = question;
    const pool = nearestPool({ accelerator: cluster.accelerator, experts, hosts, trainer });
    this.band =
      pool === undefined || question.cost !== 'nccl' ? undefined : [pool.step.p10, pool.step.p90];
  }

  async answer(): Promise<Tuned> {
    const { question, current, options, found } = this;
    const now = { layout: current, step: await this.priced(current) };
    const singles = await this.singles();
    const pairs = await this.pairs(singles, now);
    const searched = found.priced.map((row) => this.ofRow(row));
    const all = [now, ...singles, ...pairs, ...searched];
    const safe = all.filter((p) => this.isSafe(p));
    safe.sort((a, b) => a.step.stepSeconds - b.step.stepSeconds);
    const { isStated = (): boolean => true } = options;
    const at = safe.findIndex((p) => p === now || isStated(p.layout));
    const worth = (list: readonly Named[]): TunedChange[] =>
      list
        .filter((p) => this.isSafe(p) && (!this.isSafe(now) || isFaster(p, now)))
        .map(({ set, step }) => ({ set, ...step }));
    const { trainer = 'shardwright', model, devices, sequence, globalBatch } = question;
    return {
      ...{ trainer, model, devices, cluster: found.composer.cluster.id },
      ...{ sequence, globalBatch, risk: options.risk },
      layouts: new Set(all.map(({ step }) => step.layout)).size,
      current: now.step,
      best: at < 0 ? null : safe[at].step,
      changes: worth(singles),
      pairs: worth(pairs).slice(0, MOST_PAIRS),
      notStated: Math.max(0, at),
    };
  }

  /** Changes of one setting that the trainer runs, the fastest first. */
  private async singles(): Promise<(Named & { readonly change: Change })[]> {
    const { found, pricer, question, current } = this;
    const { cores, routed } = await pricer.parts(question, current);
    const tried = new TriedCheckpoints(found.kinds, this.limits).of(
      cores[0],
      routed,
      current.sizes,
    );
    const named: (Named & { readonly change: Change })[] = [];
    for (const change of changesOf(current, tried)) {
      const priced = await this.changed([change]);
      if (priced !== undefined) named.push({ ...priced, change });
    }
    return named.sort((a, b) => a.step.stepSeconds - b.step.stepSeconds);
  }

  /** Changes of two settings that are faster than every one that fits, the fastest first. */
  private async pairs(
    singles: readonly (Named & { readonly change: Change })[],
    now: Priced,
  ): Promise<Named[]> {
    const [first = now] = singles.filter((p) => this.isSafe(p));
    const pairs: Named[] = [];
    for (const [i, one] of singles.entries())
      for (const other of singles.slice(i + 1)) {
        if (one.change.key === other.change.key) continue;
        const priced = await this.changed([one.change, other.change]);
        if (priced !== undefined && this.isSafe(priced) && isFaster(priced, first))
          pairs.push(priced);
      }
    return pairs.sort((a, b) => a.step.stepSeconds - b.step.stepSeconds);
  }

  /** The layout with some changes; undefined where the trainer or the model does not admit it. */
  private async changed(changes: readonly Change[]): Promise<Named | undefined> {
    const { question, found, limits } = this;
    const edited = changes.reduce<StatedLayout | undefined>(
      (layout, { of }) => (layout === undefined ? undefined : of(layout)),
      this.current,
    );
    const layout = edited === undefined ? undefined : onStages(edited, found.kinds.layers, limits);
    if (layout === undefined || !this.isPriced(layout, changes.length > 1)) return undefined;
    try {
      checkLayout(question, layout, limits);
      const step = await this.priced(layout);
      return { layout, step, set: changes.map(({ set }) => set).join(', ') };
    } catch (error) {
      if (
        error instanceof ShardwrightError &&
        (error.code === 'E_USAGE' || error.code === 'E_UNSUPPORTED')
      )
        return undefined;
      throw error;
    }
  }

  /** Pairs are priced on programs that are known. */
  private isPriced({ sizes, kind, tuning }: StatedLayout, known: boolean): boolean {
    return !known || this.found.cores.has(coreKey(coreRequest(sizes, kind, tuning.microbatch)));
  }

  private async priced(layout: StatedLayout): Promise<TunedLayout> {
    const { seconds, peakBytes } = await this.pricer.price(this.question, layout);
    return this.step(layout, seconds, peakBytes);
  }

  private ofRow({ row, tuning, figures }: SweepResult['priced'][number]): Priced {
    const { dtype, gradients, states } = this.current;
    const layout = {
      ...{ sizes: row.sizes, kind: row.kind, tuning },
      ...defined({ dtype, gradients, states }),
    };
    return { layout, step: this.step(layout, figures.seconds, figures.peakBytes) };
  }

  private step(layout: StatedLayout, seconds: number, peakBytes: number): TunedLayout {
    const { band } = this;
    return {
      layout: layoutText(layout),
      stepSeconds: seconds,
      stepBand: band === undefined ? null : [seconds * band[0], seconds * band[1]],
      peakBytes,
      fitProbability: fitProbability(peakBytes, this.memoryBytes),
    };
  }

  private isSafe({ step }: Priced): boolean {
    return step.fitProbability >= this.options.risk && step.peakBytes <= this.found.budgetBytes;
  }
}

interface Named extends Priced {
  readonly set: string;
}

function isFaster({ step }: Priced, than: Priced): boolean {
  return step.stepSeconds < than.step.stepSeconds * (1 - LEAST_GAIN);
}
