/**
 * Prices all layouts of a model on a number of devices, best lower bound first, and leaves out
 * those that a bound excludes.
 */

import type { Cluster } from '../cost/hardware/cluster.ts';
import { collectiveModel } from '../cost/presets/presets.ts';
import { defined, nonEmpty } from '../defined.ts';
import { divisors } from '../divisors.ts';
import { interrupted, ShardwrightError } from '../errors.ts';
import { type DType, DTYPE_BYTES } from '../graph/types.ts';
import { DeviceMesh, meshSize } from '../mesh/devices/mesh.ts';
import { dtypeNamed } from '../models/build.ts';
import type { ModelConfig } from '../models/families.ts';
import { Deadline } from '../plan/request/deadline.ts';
import type { RoutedCosts } from '../step/read/moe.ts';
import { microbatchSizes } from './model/microbatch-sizes.ts';
import type { SweepQuestion } from './model/question.ts';
import type { LayerKinds } from './model/representative-layers.ts';
import { trainerLimits } from './model/trainer-limits.ts';
import { type CoreCost, coreKey, type CoreRequest, coreRequest } from './model/types.ts';
import { Composer } from './step/compose.ts';
import {
  type CutRow,
  type CutsLeftOut,
  Front,
  isWorse,
  leastOf,
  lessCut,
} from './step/expert-cuts.ts';
import { type AskedPlans, type LayoutRow, type MeshRows, meshRows } from './step/layouts.ts';
import { order, type PricedRow, RowPricer } from './step/row-pricer.ts';
import type { SweepJob, SweepPool } from './threads/pool.ts';

interface SweepMesh {
  readonly mesh: string;
  readonly sizes: readonly number[];
  readonly status: 'solved' | 'beaten' | 'refused' | 'not asked' | 'not reached';
  readonly boundSeconds?: number;
  readonly code?: string;
  readonly reason?: string;
}

export interface SweepResult {
  readonly priced: readonly PricedRow[];
  readonly refused: readonly {
    readonly plan: string;
    readonly mesh: string;
    readonly code?: string;
    readonly reason: string;
  }[];
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
const CUTS_BETWEEN_LINES = 500;

/**
 * Prices the recipes on every mesh of the devices. Programs of data ranks are priced in the order
 * of their lower bounds; those whose bound is above the best plan that fits are left out, and so
 * are the meshes that need them.
 */
export async function sweep(options: SweepOptions): Promise<SweepResult> {
  return new Sweep(options).run();
}

class Sweep {
  private readonly composer: Composer;
  private readonly pricer: RowPricer;
  private readonly meshes: readonly MeshRows[];
  /** Sequences of a microbatch that are tried. */
  private readonly sizes: readonly number[];
  /** Devices over which experts are cut, in any row. */
  private readonly tensorFolds: readonly number[];
  private readonly cores = new Map<string, CoreCost | { readonly refused: string }>();
  private readonly routed = new Map<string, RoutedCosts>();
  private readonly refused: SweepResult['refused'][number][] = [];
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
    const all = this.meshes.flatMap(({ rows }) => rows.flatMap(({ sizes }) => sizes.etp ?? []));
    this.tensorFolds = [...new Set(all)].sort((a, b) => a - b);
  }

  private get dtype(): DType {
    const { question, config } = this.options;
    return (
      question.dtype ?? (config.statedDtype === undefined ? 'bf16' : dtypeNamed(config.statedDtype))
    );
  }

  /** Tells whether plans with cut experts are priced last, and only where they may be worth it. */
  private get choosesCuts(): boolean {
    return (
      this.tensorFolds.length > 0 &&
      this.options.exhaustive !== true &&
      this.options.expertTensor !== true
    );
  }

  private get routes(): boolean {
    return this.options.config.architecture.routed !== undefined;
  }

  async run(): Promise<SweepResult> {
    const { onProgress } = this.options;
    const needs = this.needs();
    // Programs on one device come first: every bound is made of them.
    const single = [...new Set([...needs.values()].map((n) => n.request.microbatch))].sort(
      (a, b) => a - b,
    );
    await this.ask(single.map((microbatch) => ({ microbatch, axes: [] })));
    const open = [...needs.values()].map((n) => ({ ...n, bound: this.bound(n.request) }));
    open.sort((a, b) => a.bound - b.bound || (coreKey(a.request) < coreKey(b.request) ? -1 : 1));
    const beaten = new Map<string, number>();
    const cuts = new Set<string>();
    let done = 0;
    const late: CoreRequest[] = [];
    while (open.length > 0 && !this.deadline.isOver) {
      const wave = this.nextWave(open, beaten, cuts);
      await this.ask(wave.map((w) => w.request));
      for (const { request, rows } of wave) if (!this.place(request, rows)) late.push(request);
      done += wave.length;
      if (this.pricer.best.size > 0) this.options.onPlan?.();
      onProgress?.(
        `${done} programs priced, ${beaten.size} beaten by their bound, ` +
          `${this.pricer.best.size} plans; best ` +
          `${(this.pricer.incumbent * 1e3).toPrecision(4)} ms`,
      );
    }
    late.push(...open.map(({ request }) => request));
    if (this.pricer.best.size === 0 && late.length > 0) throw this.nothing();
    const isLate = this.choosesCuts && this.deadline.isOver;
    const leftOut = this.choosesCuts && !isLate ? this.placeCuts() : undefined;
    const notAsked = [
      ...(late.length === 0 ? [] : [`${late.length} of ${needs.size} programs of a data rank`]),
      ...(isLate ? ['plans with cut experts'] : []),
    ];
    // Plans with cut experts lie on programs that were priced, too.
    const unasked = isLate ? [...needs.values()].map((n) => n.request) : late;
    const bound = Math.min(this.pricer.incumbent, ...unasked.map((request) => this.bound(request)));
    return {
      ...this.conclude(beaten, new Set(late.map(coreKey))),
      notAsked,
      ...(unasked.length === 0 || bound === 0 || bound === Infinity ? {} : { boundSeconds: bound }),
      ...defined({ cutsLeftOut: leftOut }),
    };
  }

  /**
   * Takes the next programs out of those that are open. Every way to cut a program is priced at
   * least once, so that each recipe is among the answers, unless only the best is asked for.
   *
   * @param beaten gets those whose bound is above the best plan
   * @param cuts the ways to cut that were taken before
   */
  private nextWave<T extends { readonly request: CoreRequest; readonly bound: number }>(
    open: T[],
    beaten: Map<string, number>,
    cuts: Set<string>,
  ): T[] {
    const wave: T[] = [];
    const { exhaustive = false, onlyBest = false } = this.options;
    while (wave.length < (onlyBest ? SHORT_WAVE : WAVE) && open.length > 0) {
      const next = open.shift();
      if (next === undefined) break;
      if (onlyBest && this.isFar(next.request)) continue;
      const cut = cutText(next.request);
      const known =
        exhaustive || this.cores.has(coreKey(next.request)) || (!onlyBest && !cuts.has(cut));
      if (next.bound >= this.pricer.incumbent && !known)
        beaten.set(coreKey(next.request), next.bound);
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

  private nothing(): ShardwrightError {
    if (this.deadline.isInterrupted) return interrupted();
    return new ShardwrightError('E_TIME_LIMIT', 'the time limit came before any plan was priced', {
      hint: 'raise --time-limit, or name --plans.',
    });
  }

  /**
   * Plans with cut experts, after all others: on the programs that are priced, and where nothing
   * proves that they are worth nothing.
   */
  private placeCuts(): CutsLeftOut {
    const { composer, pricer } = this;
    const { config, onProgress } = this.options;
    const experts = config.architecture.routed?.experts ?? 1;
    let [worse, beaten] = [0, 0];
    const open: (CutRow & { readonly seconds: number; readonly bytes: () => number })[] = [];
    for (const row of this.meshes.flatMap(({ rows }) => rows.filter(isCut))) {
      const { ep, etp = 1 } = row.sizes;
      const programs = this.sizes.flatMap((microbatch): CutRow['programs'] => {
        if (
          (microbatch > 1 && row.sizes.cp > 1) ||
          composer.microbatches(row.sizes, microbatch) === 0
        )
          return [];
        const request = coreRequest(row.sizes, row.kind, microbatch);
        const core = this.cores.get(coreKey(request));
        const routed = this.routedOf(request);
        return core === undefined || 'refused' in core || routed === undefined
          ? []
          : [{ core, routed }];
      });
      // The fate of other programs is reported with the plans of whole experts.
      if (programs.length === 0) continue;
      const others = lessCut({ ep, etp }, experts);
      if (others.some((fold) => programs.every((p) => isWorse(row, fold, p.routed, composer))))
        worse++;
      else open.push({ row, programs, ...leastOf({ row, programs }, composer) });
    }
    open.sort((a, b) => a.seconds - b.seconds);
    const front = new Front(
      [...pricer.best.values()].filter((p) => p.fits).map(({ figures }) => figures),
    );
    open.forEach(({ row, programs, seconds, bytes }, i) => {
      if (seconds >= pricer.incumbent && front.within(bytes()) <= seconds) beaten++;
      else for (const { core, routed } of programs) pricer.price(row, core, routed);
      if ((i + 1) % CUTS_BETWEEN_LINES === 0)
        onProgress?.(`${i + 1} of ${open.length} plans with cut experts`);
    });
    return { worse, beaten };
  }

  /** The programs that the rows need, with the rows. */
  private needs(): Map<string, { readonly request: CoreRequest; readonly rows: LayoutRow[] }> {
    const needs = new Map<string, { readonly request: CoreRequest; readonly rows: LayoutRow[] }>();
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
    return needs;
  }

  private async ask(requests: readonly CoreRequest[]): Promise<void> {
    const { pool, config } = this.options;
    const jobs: SweepJob[] = [];
    const keys: string[] = [];
    for (const request of requests) {
      if (!this.cores.has(coreKey(request))) {
        jobs.push({ kind: 'core', request });
        keys.push(coreKey(request));
      }
      const ways = meshSize(request.axes);
      const key = `${request.microbatch} ${ways}`;
      if (!this.routes || this.routed.has(key) || keys.includes(key)) continue;
      const experts = config.architecture.routed?.experts ?? 1;
      const groups = divisors(experts).filter((ep) => this.options.question.devices % ep === 0);
      // Numbers that divide tp divide the devices that cut a data rank's program.
      const tensor = this.tensorFolds.filter((etp) => ways % etp === 0);
      jobs.push({
        kind: 'routed',
        microbatch: request.microbatch,
        ways,
        groups,
        ...nonEmpty({ tensor }),
      });
      keys.push(key);
    }
    const answers = await pool.run(jobs);
    answers.forEach((answer, i) => {
      if (answer === undefined) return;
      if (answer.kind === 'routed') {
        if (answer.costs !== null) this.routed.set(keys[i], answer.costs);
      } else if (answer.result.status === 'priced') this.cores.set(keys[i], answer.result.core);
      else this.cores.set(keys[i], { refused: answer.result.reason });
    });
  }

  private routedOf(request: CoreRequest): RoutedCosts | undefined {
    return this.routed.get(`${request.microbatch} ${meshSize(request.axes)}`);
  }

  /**
   * Seconds below which no step on this program can be, whatever the stages and data ranks: all
   * devices compute all the time, cut perfectly by the model dims, and the collectives that the
   * plan cannot do without are on top, as is the host's time of a step.
   */
  private bound(request: CoreRequest): number {
    const { question, kinds } = this.options;
    const { microbatch, axes } = request;
    const one = this.cores.get(coreKey({ microbatch, axes: [] }));
    if (one === undefined || 'refused' in one) return 0;
    const routed = this.routed.get(`${microbatch} 1`);
    const ways = meshSize(axes);
    const ofUnit = (u: number): number => {
      const { forward, backwardInput, backwardWeight } = one.units[u];
      const blocks =
        routed === undefined
          ? []
          : Object.values(routed.units).map(
              (list) => list[u].forwardSeconds + list[u].inputSeconds + list[u].weightSeconds,
            );
      return (
        forward.compute +
        backwardInput.compute +
        backwardWeight.compute +
        (blocks.length === 0 ? 0 : Math.min(...blocks))
      );
    };
    const compute = [0, ...kinds.standsFor.map((l) => l + 1), one.units.length - 1].reduce(
      (t, u) => t + ofUnit(u),
      0,
    );
    const moved = kinds.layers * this.leastCollectives(request);
    const microbatchesOfAll = (question.globalBatch * ways) / (question.devices * microbatch);
    const { stepHostSeconds = 0 } = this.composer.system?.constants ?? {};
    return microbatchesOfAll * (compute / ways + moved) + stepHostSeconds;
  }

  /** Seconds of a layer's collectives on the model dims that a recipe has at least. */
  private leastCollectives({ axes, microbatch }: CoreRequest): number {
    const { question, config, cluster } = this.options;
    const { shape } = config.architecture;
    const item = DTYPE_BYTES[this.dtype];
    const ways = meshSize(axes);
    const mesh = new DeviceMesh([
      { name: 'rest', size: question.devices / ways },
      ...axes.map(({ name, size }) => ({ name, size })),
    ]);
    const model = collectiveModel(question.cost, cluster, mesh);
    const sequenceWays = axes.find((a) => a.name !== 'tp')?.size ?? 1;
    const tokens = (microbatch * question.sequence) / sequenceWays;
    return axes.reduce((sum, axis, d) => {
      if (axis.name === 'sp') {
        const queries =
          (tokens * shape.heads * shape.headWidth * item) /
          (axes.find((a) => a.name === 'tp')?.size ?? 1);
        return sum + 4 * model.seconds('all_to_all', queries, [d + 1]);
      }
      if (axis.name !== 'tp') return sum;
      const stream = tokens * shape.width * item;
      const reduced = Math.min(
        model.seconds('all_reduce', stream, [d + 1]),
        model.seconds('all_gather', stream, [d + 1]) +
          model.seconds('reduce_scatter', stream, [d + 1]),
      );
      // The sums after attention, and after a dense feed-forward layer; the same on the way back.
      return sum + (this.routes ? 2 : 4) * reduced;
    }, 0);
  }

  /** Prices rows on a program of a data rank; false where the time was over before all were. */
  private place(request: CoreRequest, rows: readonly LayoutRow[]): boolean {
    const core = this.cores.get(coreKey(request));
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
    const routed = this.routedOf(request);
    for (const row of rows) {
      if (this.deadline.isOver && this.pricer.best.size > 0) return false;
      this.pricer.price(row, core, routed);
    }
    return true;
  }

  private conclude(
    beaten: ReadonlyMap<string, number>,
    late: ReadonlySet<string>,
  ): Omit<SweepResult, 'notAsked'> {
    const priced = [...this.pricer.best.values()];
    const solved = new Set(priced.map((p) => p.row.meshIndex));
    const refused = [...this.refused];
    const meshes = this.meshes.map(({ mesh, sizes, rows, refused: stopped }): SweepMesh => {
      for (const { name, mesh: where, finding } of stopped)
        refused.push({ plan: name, mesh: where, code: finding.code, reason: finding.message });
      const at = { mesh, sizes };
      if (rows.some((r) => solved.has(r.meshIndex))) return { ...at, status: 'solved' };
      const keys = rows.flatMap((row) =>
        this.sizes.map((b) => coreKey(coreRequest(row.sizes, row.kind, b))),
      );
      if (keys.some((key) => late.has(key)))
        return { ...at, status: 'not reached', reason: 'the time was over' };
      const bounds = rows.flatMap((row) =>
        this.sizes.flatMap((b) => beaten.get(coreKey(coreRequest(row.sizes, row.kind, b))) ?? []),
      );
      if (bounds.length > 0) return { ...at, status: 'beaten', boundSeconds: Math.min(...bounds) };
      if (rows.length === 0 && stopped.length > 0)
        return {
          ...at,
          status: 'refused',
          code: stopped[0].finding.code,
          reason: stopped[0].finding.message,
        };
      const reason =
        rows.length === 0
          ? 'no plan of it is asked for'
          : (this.refused.find((r) => rows.some((row) => row.mesh === r.mesh))?.reason ??
            'the batch does not divide');
      return rows.length === 0
        ? { ...at, status: 'not asked', reason }
        : { ...at, status: 'refused', reason };
    });
    return {
      priced: priced.sort(order),
      refused,
      meshes,
      kinds: this.options.kinds,
      ...this.composer.limits,
      cores: new Map(
        [...this.cores].flatMap(([key, c]) => ('refused' in c ? [] : [[key, c] as const])),
      ),
      routed: this.routed,
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
