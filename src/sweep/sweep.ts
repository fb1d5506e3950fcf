/**
 * Prices all layouts of a model on a number of devices, best lower bound first, and leaves out
 * those that a bound excludes.
 */

import type { Cluster } from '../cost/hardware/cluster.ts';
import { defined } from '../defined.ts';
import { interrupted, ShardwrightError } from '../errors.ts';
import type { DType } from '../graph/types.ts';
import { dtypeNamed } from '../models/build.ts';
import type { ModelConfig } from '../models/families.ts';
import { Deadline } from '../plan/request/deadline.ts';
import type { RoutedCosts } from '../step/read/moe.ts';
import { countedText, secondsText } from '../units.ts';
import { meshOutcome, refusedBySizes, type RefusedPlan, type SweepMesh } from './mesh-outcomes.ts';
import { microbatchSizes } from './model/microbatch-sizes.ts';
import type { SweepQuestion } from './model/question.ts';
import type { LayerKinds } from './model/representative-layers.ts';
import { trainerLimits } from './model/trainer-limits.ts';
import { type CoreCost, coreKey, type CoreRequest, coreRequest } from './model/types.ts';
import { placeCuts } from './placed-cuts.ts';
import { PricedPrograms } from './priced-programs.ts';
import { Composer } from './step/compose.ts';
import type { CutsLeftOut } from './step/expert-cuts.ts';
import { type AskedPlans, type LayoutRow, type MeshRows, meshRows } from './step/layouts.ts';
import { order, type PricedRow, RowPricer } from './step/row-pricer.ts';
import { leastStepSeconds } from './step-bound.ts';
import type { SweepPool } from './threads/pool.ts';

export interface SweepResult {
  readonly priced: readonly PricedRow[];
  readonly refused: readonly RefusedPlan[];
  readonly meshes: readonly SweepMesh[];
  readonly kinds: LayerKinds;
  readonly budgetBytes: number;
  /** The most bytes that fit with the probability that is asked for; plans are tuned to them. */
  readonly safeBytes: number;
  /** Programs of a data rank that were priced. */
  readonly cores: ReadonlyMap<string, CoreCost>;
  /** Routed experts that were priced. */
  readonly routed: ReadonlyMap<string, RoutedCosts>;
  /** Programs of a data rank that a bound left out. */
  readonly beaten: number;
  /** The questions that the deadline left out, one sentence each. */
  readonly notAsked: readonly string[];
  /**
   * Seconds that no recipe within the safe bytes is below, priced or not; absent where all were
   * asked, and where nothing is known of the others.
   */
  readonly boundSeconds?: number;
  /**
   * Plans with cut experts (`etp`) that were not priced; absent where there are none, and where all
   * are priced.
   */
  readonly cutsLeftOut?: CutsLeftOut;
  readonly composer: Composer;
  /** The dtype of parameters and activations. */
  readonly dtype: DType;
}

interface SweepOptions {
  readonly question: SweepQuestion;
  readonly config: ModelConfig;
  readonly cluster: Cluster;
  readonly kinds: LayerKinds;
  readonly pool: SweepPool;
  /** Tells whether a plan of this name is wanted. */
  readonly wants?: (row: LayoutRow) => boolean;
  /** Plans that are asked for with the sizes of their expert mesh (`meshRows`). */
  readonly asked?: AskedPlans;
  /**
   * True if plans with cut experts are asked for by name, so that all of them are priced
   * (`sweep/step/expert-cuts.ts`).
   */
  readonly expertTensor?: boolean;
  /** Every n-th mesh. */
  readonly slice?: { readonly index: number; readonly count: number };
  /** Prices also what a bound says is not the best, so that plans can be counted. */
  readonly exhaustive?: boolean;
  /** Only the best is asked for: a way to cut the program that cannot give it is not priced. */
  readonly onlyBest?: boolean;
  readonly deadline?: Deadline;
  /** Called when a plan is priced. */
  readonly onPlan?: () => void;
  readonly onProgress?: (line: string) => void;
}

/**
 * Jobs between two looks at the bounds. It does not depend on the number of threads, so that
 * neither does the result.
 */
const WAVE = 8;
/** With `onlyBest` the bounds are looked at more often. */
const SHORT_WAVE = 2;
/**
 * If one sequence per microbatch takes more than this times the best step, larger microbatches are
 * skipped.
 */
const FAR = 1.25;
/**
 * Prices the recipes on every mesh of the devices. Programs of data ranks are priced in the order
 * of their lower bounds; those whose bound is above the best plan that fits are left out, and so
 * are the meshes that need them.
 */
export async function sweep(options: SweepOptions): Promise<SweepResult> {
  return new Sweep(options).run();
}

/** A program of a data rank, with the rows that lie on it. */
interface Needed {
  readonly request: CoreRequest;
  readonly rows: LayoutRow[];
}

type Bounded = Needed & { readonly bound: number };

/** Programs that a search leaves out. */
interface LeftOut {
  /** Bounds of the programs that are above the best plan, by their keys. */
  readonly beaten: ReadonlyMap<string, number>;
  /** Programs that the time did not suffice for. */
  readonly late: readonly CoreRequest[];
}

class Sweep {
  private readonly composer: Composer;
  private readonly pricer: RowPricer;
  private readonly programs: PricedPrograms;
  private readonly meshes: readonly MeshRows[];
  /** Sequences of a microbatch that are tried. */
  private readonly sizes: readonly number[];
  /** Tells whether plans with cut experts are priced last, and only where they may be worth it. */
  private readonly choosesCuts: boolean;
  /** Plans that the limits of their programs refuse. */
  private readonly refused: RefusedPlan[] = [];
  private readonly dtype: DType;
  private readonly deadline: Deadline;

  constructor(private readonly options: SweepOptions) {
    const { question, config, cluster, kinds, slice, wants } = options;
    this.deadline = options.deadline ?? new Deadline(undefined);
    this.sizes = microbatchSizes(question.sequence);
    this.composer = new Composer(question, kinds);
    this.pricer = new RowPricer(this.composer, kinds, trainerLimits(question));
    this.meshes = meshRows(config, question, cluster, kinds.tied, options.asked)
      .filter((_, i) => slice === undefined || i % slice.count === slice.index)
      .map((m) => (wants === undefined ? m : { ...m, rows: m.rows.filter(wants) }));
    const folds = this.meshes.flatMap(({ rows }) => rows.flatMap(({ sizes }) => sizes.etp ?? []));
    const tensorFolds = [...new Set(folds)].sort((a, b) => a - b);
    this.programs = new PricedPrograms({ question, config, pool: options.pool, tensorFolds });
    this.choosesCuts =
      tensorFolds.length > 0 && options.exhaustive !== true && options.expertTensor !== true;
    const stated = config.statedDtype;
    this.dtype = question.dtype ?? (stated === undefined ? 'bf16' : dtypeNamed(stated));
  }

  async run(): Promise<SweepResult> {
    const needs = this.needs();
    // Programs on one device come first: every bound is made of them.
    const single = [...new Set(needs.map(({ request }) => request.microbatch))].sort(
      (a, b) => a - b,
    );
    await this.programs.ask(single.map((microbatch) => ({ microbatch, axes: [] })));
    const { beaten, late } = await this.search(needs);
    if (this.pricer.best.size === 0 && late.length > 0) throw this.nothing();
    const isLate = this.choosesCuts && this.deadline.isOver;
    const cutsLeftOut = this.choosesCuts && !isLate ? this.placeCuts() : undefined;
    const notAsked = [
      ...(late.length === 0 ? [] : [`${late.length} of ${needs.length} programs of a data rank`]),
      ...(isLate ? ['plans with cut experts'] : []),
    ];
    // Plans with cut experts lie on programs that were priced, too.
    const unasked = isLate ? needs.map(({ request }) => request) : late;
    const bound = Math.min(this.pricer.incumbent, ...unasked.map((request) => this.bound(request)));
    return {
      ...this.conclude({ beaten, late }),
      notAsked,
      ...(unasked.length === 0 || bound === 0 || bound === Infinity ? {} : { boundSeconds: bound }),
      ...defined({ cutsLeftOut }),
    };
  }

  /** The programs that the rows need. */
  private needs(): Needed[] {
    const needs = new Map<string, Needed>();
    for (const { rows } of this.meshes)
      for (const row of rows)
        for (const microbatch of this.choosesCuts && isCut(row) ? [] : this.sizes) {
          if (microbatch > 1 && row.sizes.cp > 1) continue;
          if (this.composer.microbatches(row.sizes, microbatch) === 0) continue;
          const request = coreRequest(row.sizes, row.kind, microbatch);
          const key = coreKey(request);
          const known = needs.get(key);
          if (known === undefined) needs.set(key, { request, rows: [row] });
          else known.rows.push(row);
        }
    return [...needs.values()];
  }

  /** Prices programs and their rows, the least bound first, until no other can be the best. */
  private async search(needs: readonly Needed[]): Promise<LeftOut> {
    const open = needs.map((n): Bounded => ({ ...n, bound: this.bound(n.request) }));
    open.sort((a, b) => a.bound - b.bound || (coreKey(a.request) < coreKey(b.request) ? -1 : 1));
    const beaten = new Map<string, number>();
    const cuts = new Set<string>();
    const late: CoreRequest[] = [];
    let done = 0;
    while (open.length > 0 && !this.deadline.isOver) {
      const wave = this.nextWave(open, beaten, cuts);
      await this.programs.ask(wave.map((w) => w.request));
      for (const { request, rows } of wave) if (!this.place(request, rows)) late.push(request);
      done += wave.length;
      if (this.pricer.best.size > 0) this.options.onPlan?.();
      this.options.onProgress?.(
        `${countedText(done, 'program')} priced, ${beaten.size} beaten by their bound, ` +
          countedText(this.pricer.best.size, 'plan') +
          (this.pricer.best.size > 0 ? `; best ${secondsText(this.pricer.incumbent)}` : ''),
      );
    }
    return { beaten, late: [...late, ...open.map(({ request }) => request)] };
  }

  /**
   * Takes the next programs out of those that are open. Every way to cut a program is priced at
   * least once, so that each recipe is among the answers, unless only the best is asked for.
   *
   * @param beaten gets those whose bound is above the best plan
   * @param cuts the ways to cut that were taken before
   */
  private nextWave(open: Bounded[], beaten: Map<string, number>, cuts: Set<string>): Bounded[] {
    const wave: Bounded[] = [];
    const { exhaustive = false, onlyBest = false } = this.options;
    while (wave.length < (onlyBest ? SHORT_WAVE : WAVE) && open.length > 0) {
      const next = open.shift();
      if (next === undefined) break;
      const { request, bound } = next;
      if (onlyBest && this.isFar(request)) continue;
      const cut = cutText(request);
      const known =
        exhaustive || this.programs.outcome(request) !== undefined || (!onlyBest && !cuts.has(cut));
      if (bound >= this.pricer.incumbent && !known) beaten.set(coreKey(request), bound);
      else {
        wave.push(next);
        cuts.add(cut);
      }
    }
    return wave;
  }

  /** Tells whether a program with one sequence, cut in the same way, gave no plan near the best. */
  private isFar({ microbatch, axes }: CoreRequest): boolean {
    if (microbatch === 1) return false;
    const one = coreKey({ microbatch: 1, axes });
    const seconds = [...this.pricer.best.values()].flatMap(({ row, figures }) =>
      coreKey(coreRequest(row.sizes, row.kind, 1)) === one ? [figures.seconds] : [],
    );
    return seconds.length > 0 && Math.min(...seconds) > FAR * this.pricer.incumbent;
  }

  private bound(request: CoreRequest): number {
    const { question, config, cluster, kinds } = this.options;
    const { programs, dtype } = this;
    const { stepHostSeconds: hostSeconds = 0 } = this.composer.system?.constants ?? {};
    const sweep = { question, config, cluster, kinds, programs, dtype, hostSeconds };
    return leastStepSeconds(request, sweep);
  }

  private nothing(): ShardwrightError {
    if (this.deadline.isInterrupted) return interrupted();
    return new ShardwrightError('E_TIME_LIMIT', 'the time limit came before any plan was priced', {
      hint: 'raise --time-limit, or name --plans.',
    });
  }

  private placeCuts(): CutsLeftOut {
    const { programs, composer, pricer, sizes } = this;
    const { config, onProgress } = this.options;
    const rows = this.meshes.flatMap((mesh) => mesh.rows.filter(isCut));
    const experts = config.architecture.routed?.experts ?? 1;
    const sweep = { programs, composer, pricer, sizes, experts, ...defined({ onProgress }) };
    return placeCuts(rows, sweep);
  }

  /** Prices rows on a program of a data rank; false where the time was over before all were. */
  private place(request: CoreRequest, rows: readonly LayoutRow[]): boolean {
    const core = this.programs.outcome(request);
    if (core === undefined) return false;
    if ('refused' in core) {
      const seen = new Set<string>();
      for (const row of rows) {
        if (seen.has(row.mesh + row.name)) continue;
        seen.add(row.mesh + row.name);
        this.refused.push({ plan: row.name, mesh: row.mesh, reason: core.refused });
      }
      return true;
    }
    const routed = this.programs.routed(request);
    for (const row of rows) {
      if (this.deadline.isOver && this.pricer.best.size > 0) return false;
      this.pricer.price(row, core, routed);
    }
    return true;
  }

  private conclude({ beaten, late }: LeftOut): Omit<SweepResult, 'notAsked'> {
    const { refused, sizes } = this;
    const priced = [...this.pricer.best.values()];
    const solved = new Set(priced.map((p) => p.row.meshIndex));
    const fates = { solved, beaten, late: new Set(late.map(coreKey)), refused, sizes };
    return {
      priced: priced.sort(order),
      refused: [...refused, ...refusedBySizes(this.meshes)],
      meshes: this.meshes.map((mesh) => meshOutcome(mesh, fates)),
      kinds: this.options.kinds,
      ...this.composer.limits,
      ...this.programs.all(),
      beaten: beaten.size,
      composer: this.composer,
      dtype: this.dtype,
    };
  }
}

function isCut({ sizes: { etp = 1 } }: LayoutRow): boolean {
  return etp > 1;
}

/** The roles of a program's axes, without their sizes. */
function cutText({ axes }: CoreRequest): string {
  return axes.map((a) => `${a.name}:${a.part ?? 'free'}`).join();
}
