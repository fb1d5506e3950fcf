/** Prices the layouts of a sweep, tunes each one, and keeps the best. */

import type { PipelineSchedule } from '../../simulate/pipeline/schedules.ts';
import { routedPart } from '../../step/checkpoints.ts';
import type { LayoutTuning } from '../../step/layout.ts';
import type { RoutedCosts } from '../../step/read/moe.ts';
import type { TrainerRuns } from '../../trainers/runs.ts';
import type { LayerKinds } from '../model/representative-layers.ts';
import type { CoreCost } from '../model/types.ts';
import type { Composer } from './compose.ts';
import type { Figures } from './figures.ts';
import type { LayoutRow } from './layouts.ts';
import { TriedCheckpoints } from './tried-checkpoints.ts';

/** A plan that was priced, with the best of what was left to choose. */
export interface PricedRow {
  readonly row: LayoutRow;
  readonly tuning: LayoutTuning;
  readonly figures: Figures;
  /** True if it is within the bytes that layouts are tuned to. */
  readonly fits: boolean;
  /**
   * For an optimum, the recipe whose placements it has, because in all they are cheaper than those
   * proven for the layers.
   */
  readonly like?: LayoutRow;
}

/** Schedules other than 1F1B are tried where a plan may come this near to the best. */
const SCHEDULE_MARGIN = 1.25;

const MOST_CHUNKS = 12;

/** Prices rows and keeps the best tuning of each. */
export class RowPricer {
  readonly best = new Map<LayoutRow, PricedRow>();
  /** Least seconds of a plan within the bytes that layouts are tuned to. */
  incumbent = Infinity;
  private readonly tried: TriedCheckpoints;

  constructor(
    readonly composer: Composer,
    private readonly kinds: Pick<LayerKinds, 'layers' | 'standsFor'>,
    /** The trainer, which runs what is stated: no stage is balanced, no layer kept apart. */
    private readonly limits?: TrainerRuns,
  ) {
    this.tried = new TriedCheckpoints(kinds, limits);
  }

  /**
   * Tries the schedules of a row on a program of its data rank; results are recomputed only where
   * they would not fit otherwise.
   */
  price(row: LayoutRow, core: CoreCost, routed: RoutedCosts | undefined): void {
    const checkpoints = this.tried.of(core, routed, row.sizes);
    const over = new Map<boolean, boolean>();
    const isOver = (once: boolean): boolean => {
      let found = over.get(once);
      if (found === undefined)
        over.set(once, (found = this.composer.isOver(core, routed, row, once)));
      return found;
    };
    for (const { schedule, chunks, ...stated } of this.schedules(row, core.request.microbatch)) {
      const known = this.best.get(row);
      // Exchanges with experts may hide in what is left to try.
      if (
        schedule !== '1f1b' &&
        known?.fits === true &&
        known.figures.busySeconds - known.figures.exchangeSeconds > SCHEDULE_MARGIN * this.incumbent
      )
        return;
      const ways = this.ways(row, schedule, core.request.microbatch);
      const isOnceOnly = ways.every(({ once }) => once);
      for (const { once, paired } of ways)
        // A plan that fits in no way counts with everything recomputed.
        for (const checkpoint of isOver(once) ? checkpoints.slice(-1) : checkpoints) {
          // An exchange that is repeated has no other pass to overlap with.
          if (paired && routedPart(checkpoint) === 'full') continue;
          const base = {
            microbatch: core.request.microbatch,
            schedule,
            chunks,
            checkpoint,
            once,
            ...stated,
          };
          const tuning = paired ? { ...base, paired } : base;
          const last =
            checkpoint === 'full' && (!once || isOnceOnly) && this.best.get(row)?.fits !== true;
          const rival = this.best.get(row);
          const limits = last
            ? { leaner: rival?.figures.peakBytes ?? Infinity }
            : { fitting: true, below: rival?.fits === true ? rival.figures.seconds : Infinity };
          const { sizes, kind } = row;
          const figures = this.composer.compose({ core, routed, sizes, kind, tuning }, limits);
          if (figures === undefined) continue;
          const asRun =
            figures.unitsAgain === 0 ? { ...tuning, checkpoint: 'none' as const } : tuning;
          if (figures.seconds !== undefined)
            this.offer({
              row,
              tuning: asRun,
              figures,
              fits: figures.peakBytes <= this.composer.budgetBytes,
            });
          // Nothing is recomputed: no other policy is faster.
          if (figures.unitsAgain === 0) break;
        }
    }
  }

  /**
   * Tells whether FSDP keeps the parameters that it gathers, and whether two microbatches overlap:
   * where frameworks can.
   */
  private ways(
    row: LayoutRow,
    schedule: string,
    microbatch: number,
  ): { readonly once: boolean; readonly paired: boolean }[] {
    const { pp, ep } = row.sizes;
    const m = this.composer.microbatches(row.sizes, microbatch);
    const pairs =
      this.composer.pairsMicrobatches &&
      this.limits?.pairsMicrobatches !== false &&
      ep > 1 &&
      m > 1 &&
      (pp === 1 || schedule === 'interleaved');
    return this.keeps(row, m).flatMap((once) =>
      (pairs ? [false, true] : [false]).map((paired) => ({ once, paired })),
    );
  }

  private offer(found: PricedRow): void {
    const known = this.best.get(found.row);
    if (known === undefined || better(found, known)) this.best.set(found.row, found);
    if (found.fits) this.incumbent = Math.min(this.incumbent, found.figures.seconds);
  }

  /**
   * Chunks of a device: powers of two, and what cuts the layers evenly, as published layouts do (5
   * and 12 among them).
   */
  private chunkCounts(pp: number): number[] {
    return Array.from({ length: MOST_CHUNKS - 1 }, (_, i) => i + 2).filter(
      (v) =>
        pp * v <= this.kinds.layers &&
        (v === 2 || v === 4 || v === 8 || this.kinds.layers % (pp * v) === 0),
    );
  }

  /** The schedules that are tried, with the stages that the trainer makes. */
  private schedules(row: LayoutRow, microbatch: number): Scheduled[] {
    const { pp } = row.sizes;
    const { limits } = this;
    if (pp === 1)
      return [{ schedule: '1f1b', chunks: 1, ...(limits === undefined ? {} : { asStated: true }) }];
    const m = this.composer.microbatches(row.sizes, microbatch);
    const list: Scheduled[] = SINGLE_CHUNK.filter((name) =>
      limits === undefined ? name !== 'gpipe' : limits.schedules.includes(name),
    ).map((schedule) => ({ schedule, chunks: 1 }));
    if (m % pp === 0 && limits?.schedules.includes('interleaved') !== false)
      for (const chunks of this.chunkCounts(pp)) list.push({ schedule: 'interleaved', chunks });
    return limits === undefined ? list : list.flatMap((one) => this.asRun(one, pp, limits));
  }

  /** A schedule with the stages that the trainer makes for it; none where it makes none. */
  private asRun(one: Scheduled, pp: number, { cuts }: TrainerRuns): Scheduled[] {
    if (cuts === undefined) return [{ ...one, asStated: true }];
    const stageLayers = cuts(pp * one.chunks, this.kinds.layers, one.chunks);
    return stageLayers === undefined ? [] : [{ ...one, asStated: true, stageLayers }];
  }

  /**
   * Tells whether FSDP keeps what it gathers: both ways are tried where a step has several passes.
   */
  private keeps({ kind: { mode } }: LayoutRow, microbatches: number): readonly boolean[] {
    if ((mode !== 'fsdp' && mode !== 'hsdp') || microbatches === 0) return [false];
    return [true, false].filter((once) => this.limits?.gathersOnce.includes(once) !== false);
  }
}

type Scheduled = Pick<LayoutTuning, 'schedule' | 'chunks' | 'asStated' | 'stageLayers'>;

/** Schedules of one chunk a device; GPipe only where a trainer has it: it is never the faster. */
const SINGLE_CHUNK: readonly PipelineSchedule[] = ['1f1b', 'gpipe', 'zb-h1'];

/** Fitting plans by seconds, the others by bytes. */
export function order(a: PricedRow, b: PricedRow): number {
  return (
    Number(b.fits) - Number(a.fits) ||
    (a.fits ? a.figures.seconds - b.figures.seconds : 0) ||
    a.figures.peakBytes - b.figures.peakBytes ||
    a.figures.seconds - b.figures.seconds ||
    // Equal figures: our own plan first, then the simpler one.
    Number(b.row.kind.free === true) - Number(a.row.kind.free === true) ||
    a.row.mesh.length - b.row.mesh.length ||
    (`${a.row.mesh} ${a.row.name}` < `${b.row.mesh} ${b.row.name}` ? -1 : 1)
  );
}

/**
 * Tells whether a plan goes before another: what fits, then seconds; of plans that do not fit,
 * bytes.
 */
export function better(a: PricedRow, b: PricedRow): boolean {
  if (a.fits !== b.fits) return a.fits;
  if (a.fits) return a.figures.seconds < b.figures.seconds;
  return a.figures.peakBytes < b.figures.peakBytes;
}
