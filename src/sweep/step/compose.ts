/**
 * Puts a layout together from priced parts: takes unit costs and tuning, gives the step time, the
 * memory and the traffic of the whole model.
 */

import type { Cluster } from '../../cost/hardware/cluster.ts';
import type { StepSystem } from '../../cost/kernels/call.ts';
import type { StateBytes } from '../../cost/memory/state-bytes.ts';
import { type MemoryBounds, memoryBounds } from '../../recipes/compare/best-plan.ts';
import type { PipelineShape } from '../../simulate/pipeline/schedules.ts';
import { unitCosts, type UnitRequest } from '../../step/costs/unit-costs.ts';
import { deviceSums, type Span, sumOver } from '../../step/device-sums.ts';
import type { LayoutKind, LayoutSizes, LayoutTuning } from '../../step/layout.ts';
import { passesAlone } from '../../step/overlap.ts';
import type { RoutedCosts } from '../../step/read/moe.ts';
import type { DataGroups } from '../../step/states.ts';
import type { Traffic } from '../../step/traffic.ts';
import { stateBytes, type Unit } from '../../step/unit.ts';
import { PipelinePlayer } from '../model/fast-play.ts';
import type { SweepQuestion } from '../model/question.ts';
import { type LayerKinds, ofModel } from '../model/representative-layers.ts';
import type { CoreCost } from '../model/types.ts';
import { type Layout, LayoutUnits, type MadeLayout, type MadeUnits } from './composed-layout.ts';
import { type DeviceFigures, type Figures, figuresOf, unitsAgain } from './figures.ts';
import { HeldActivations, type HeldBytes } from './stages/held-activations.ts';
import { isOverInMean, isOverSomewhere, takesAtLeast } from './stages/least-units.ts';
import { keptUnits } from './stages/selective-recompute.ts';
import { evenBounds, stageBounds, statedBounds } from './stages/stage-bounds.ts';
import {
  chunkSeconds,
  deviceFigures,
  inFlightOf,
  spansOf,
  type StagedRun,
  type Stages,
  stepEnd,
} from './stages/staged-step.ts';
import { stepTraffic } from './step-traffic.ts';

/** Puts layouts together. */
export class Composer {
  readonly limits: MemoryBounds;
  /** The bytes that layouts are tuned to: those that fit with the probability that is asked for. */
  readonly budgetBytes: number;
  private readonly player = new PipelinePlayer();
  private readonly held = new HeldActivations();
  private readonly parts: LayoutUnits;

  constructor(
    private readonly question: SweepQuestion,
    private readonly kinds: LayerKinds,
    /** Whose cluster and collectives this one has. */
    like?: Composer,
  ) {
    this.parts = new LayoutUnits(question, kinds, like?.parts);
    this.limits = memoryBounds(this.cluster, question);
    this.budgetBytes = this.limits.safeBytes;
  }

  get cluster(): Cluster {
    return this.parts.cluster;
  }

  get system(): StepSystem | undefined {
    return this.parts.system;
  }

  /** Bytes of states where software keeps others than the optimizer and the dtype say. */
  get state(): Partial<StateBytes> | undefined {
    return this.parts.state;
  }

  /** Tells whether collectives overlap with compute. */
  get overlaps(): boolean {
    return this.parts.overlaps;
  }

  /** Tells whether the forward pass of one microbatch may overlap with another's backward pass. */
  get pairsMicrobatches(): boolean {
    return this.overlaps && this.question.serialPasses !== true;
  }

  /** The same with another model of a step. */
  under(change: Pick<SweepQuestion, 'constants' | 'priced' | 'overlap'>): Composer {
    return new Composer({ ...this.question, ...change }, this.kinds, this);
  }

  /** Microbatches of a step, 0 where the batch does not divide. */
  microbatches({ dp_replicate, dp_shard }: LayoutSizes, microbatch: number): number {
    const { globalBatch } = this.question;
    const per = dp_replicate * dp_shard * microbatch;
    return globalBatch % per === 0 ? globalBatch / per : 0;
  }

  /** The dense and the expert mesh of a layout, with the prices of their collectives. */
  groupsOf(sizes: LayoutSizes, kind: LayoutKind): DataGroups {
    return this.parts.groupsOf(sizes, kind);
  }

  /**
   * Tells whether states and the least temporary bytes alone are over the budget, however the
   * layout is tuned otherwise.
   */
  isOver(core: CoreCost, routed: RoutedCosts | undefined, layout: Layout, once: boolean): boolean {
    const plain = this.parts.units(this.parts.made(core, routed, layout), 'none', { once });
    return isOverInMean(this.budgetBytes, this.parts.least(plain, plain), layout.sizes.pp);
  }

  /**
   * Seconds and bytes of a layout; undefined where the schedule or the batch does not admit it.
   *
   * @param limits also undefined where it does not fit, or where its longest device alone works as
   *   long as `below`: both are known before the schedule is played; only `unitsAgain` where the
   *   whole step takes that long
   */
  compose(priced: PricedLayout): Figures | undefined;
  compose(priced: PricedLayout, limits: Limits): Figures | Slower | undefined;
  compose(
    { core, routed, sizes, kind, tuning }: PricedLayout,
    limits: Limits = {},
  ): Figures | Slower | undefined {
    const tuned = this.tuned(core, routed, { sizes, kind }, tuning);
    if (tuned === undefined) return undefined;
    const { fitting = false, below = Infinity, leaner = Infinity } = limits;
    const strict = this.recomputing(tuned, fitting, below);
    if (strict === undefined) return undefined;
    const stages = this.stages(tuned, strict, fitting);
    if (stages === undefined) return undefined;
    const again = this.again(tuned, strict, stages);
    const units = this.mixed(tuned, strict, stages, again);
    const run = this.run(tuned);
    const devices: DeviceFigures[] = [];
    for (let i = 0; i < sizes.pp; i++) {
      const device = deviceFigures(run, stages, units, i);
      if (fitting && device.peak > this.budgetBytes) return undefined;
      devices.push(device);
    }
    const fullest = largest(devices, (d) => d.peak);
    const busiest = largest(devices, (d) => d.busy + d.step);
    if (devices[busiest].busy + devices[busiest].step >= below) return undefined;
    const { peak } = devices[fullest];
    // Of plans that do not fit the leanest counts, whatever its seconds.
    if (peak > this.budgetBytes && peak >= leaner) return { unitsAgain: unitsAgain(again) };
    const { bounds, spans } = stages;
    const lasts = spans.slice(0, -1).map(({ end }) => units[end - 1]);
    const end = stepEnd(this.player, run, devices, lasts);
    if (end >= below) return { unitsAgain: unitsAgain(again) };
    const { microbatches } = tuned.shape;
    const { share } = tuned;
    return figuresOf({
      microbatches,
      share,
      units,
      bounds,
      again,
      devices,
      fullest,
      busiest,
      seconds: chunkSeconds(devices, tuned.shape.chunks),
      lasts,
      stepEnd: end,
    });
  }

  /**
   * Its pipeline, and its units that keep all results; undefined where the batch or the schedule
   * does not admit it.
   */
  private tuned(
    core: CoreCost,
    routed: RoutedCosts | undefined,
    layout: Layout,
    tuning: LayoutTuning,
  ): Tuned | undefined {
    const { schedule, chunks: v, microbatch, paired = false, asStated = false } = tuning;
    const { pp } = layout.sizes;
    const m = this.microbatches(layout.sizes, microbatch);
    if (m === 0) return undefined;
    const made = this.parts.made(core, routed, layout);
    const plain = this.parts.units(made, 'none', tuning);
    if (
      this.parts.builtOf.length - (asStated ? 0 : 2) < pp * v ||
      (schedule === 'interleaved' && m % pp !== 0)
    )
      return undefined;
    // Passes that fill and empty the pipeline have no other microbatch to overlap with: all get the
    // mean of the savings.
    const share = paired ? 1 - passesAlone(pp, v, m) / (m * v) : 0;
    const shape = { devices: pp, microbatches: m, chunks: v };
    return { made, tuning, shape, paired, asStated, share, plain };
  }

  /**
   * The units with what is recomputed; undefined where they are over the budget or take too long,
   * wherever stages are cut.
   */
  private recomputing(tuned: Tuned, fitting: boolean, below: number): MadeUnits | undefined {
    const { made, tuning, shape, paired, share, plain } = tuned;
    const how = { pp: shape.devices, microbatches: shape.microbatches, share };
    const whole = this.parts.least(plain, plain);
    // Recomputed units have the same states, and briefly the values that they recompute.
    if (fitting && isOverInMean(this.budgetBytes, whole, how.pp)) return undefined;
    // It takes no less time, too; of what is paired no more than all exchanges hides.
    const least = paired ? { ...whole, pairedSeconds: whole.exchangeSeconds } : whole;
    if (takesAtLeast(below, least, how)) return undefined;
    const strict = this.parts.units(made, tuning.checkpoint, tuning);
    return takesAtLeast(below, this.parts.least(strict, plain), how) ? undefined : strict;
  }

  /** The cuts, and what each device keeps; undefined where some device is over the budget. */
  private stages(tuned: Tuned, strict: MadeUnits, fitting: boolean): Stages | undefined {
    const { tuning, shape, paired, plain } = tuned;
    const { schedule } = tuning;
    const bounds = this.bounds(tuned, strict);
    const { inFlight, held } = inFlightOf({ schedule, shape }, this.held);
    const least = this.parts.least(strict, plain);
    if (fitting && isOverSomewhere(this.budgetBytes, least, bounds, held, paired)) return undefined;
    return { bounds, inFlight, held, spans: spansOf(bounds) };
  }

  /** First unit of every chunk, and the number of units. */
  private bounds({ tuning, shape, asStated }: Tuned, strict: MadeUnits): readonly number[] {
    const { devices, microbatches, chunks } = shape;
    const { builtOf: built } = this.parts;
    const units = { units: strict.built, built };
    if (!asStated) return stageBounds(devices, units, tuning, microbatches, this.budgetBytes);
    return tuning.stageLayers === undefined
      ? evenBounds(built.length - 2, devices * chunks)
      : statedBounds(tuning.stageLayers);
  }

  /** For each chunk how many of its first units are recomputed: no more than the budget asks. */
  private again(tuned: Tuned, strict: MadeUnits, { spans, held }: Stages): number[] {
    const { plain, asStated, paired } = tuned;
    if (plain === strict) return spans.map(() => 0);
    const lengths = spans.map(({ first, end }) => end - first);
    if (asStated) return lengths;
    const kept = this.keptOf(this.parts.all(strict), this.parts.all(plain), spans, held, paired);
    return lengths.map((length, k) => length - kept[k]);
  }

  /** The units of the whole model, those that are recomputed and those that keep their results. */
  private mixed(
    { plain }: Tuned,
    strict: MadeUnits,
    { spans }: Stages,
    again: readonly number[],
  ): readonly Unit[] {
    const kept = this.parts.all(plain);
    if (plain === strict) return kept;
    const units = [...this.parts.all(strict)];
    spans.forEach(({ first, end }, k) => {
      for (let i = first + again[k]; i < end; i++) units[i] = kept[i];
    });
    return units;
  }

  /** How the stages of a tuned layout are run. */
  private run({ made, tuning, shape, paired, share }: Tuned): StagedRun {
    const { schedule } = tuning;
    const host = this.system?.constants.stepHostSeconds ?? 0;
    const onceSeconds = (units: number): number => host + this.largestSeconds(made.groups, units);
    return { schedule, shape, paired, share, overlaps: this.overlaps, onceSeconds };
  }

  /**
   * Seconds and bytes below which no tuning of a layout is: stages share the work evenly, states
   * move for nothing, all exchanges with experts that may hide do, everything is recomputed and
   * nothing of that is paid.
   */
  leastOf(
    core: CoreCost,
    routed: RoutedCosts | undefined,
    layout: Layout,
  ): { readonly seconds: number; readonly bytes: () => number } {
    const { pp } = layout.sizes;
    const { keyValueBytes, overlaps, system } = this.parts;
    const made = this.parts.made(core, routed, layout);
    const states = { costs: () => [], sums: [] };
    const bare: UnitRequest = {
      core,
      routed,
      ...layout,
      checkpoint: 'none',
      paired: overlaps,
      groups: made.groups,
      overlaps,
      system,
      keyValueBytes,
      states,
    };
    const units = ofModel(unitCosts(bare), this.kinds);
    const m = this.microbatches(layout.sizes, core.request.microbatch);
    const passes = add(
      units,
      (u) => u.forward + u.input + u.weight - u.pairedForward - u.pairedBackward,
    );
    return {
      seconds: (m * passes) / pp,
      bytes: () => {
        const full = this.parts.all(
          this.parts.units(this.parts.made(core, routed, layout), 'full', { once: false }),
        );
        const kept = add(full, (u) => stateBytes(u) + u.keptBytes);
        return kept / pp + Math.min(...units.map((u) => u.temporaryBytes));
      },
    };
  }

  /** Seconds in which devices agree on the largest values of all casts, once for each pass. */
  private largestSeconds({ dense: { collectives, mesh } }: DataGroups, units: number): number {
    if (this.system?.software.largest !== 'step') return 0;
    const dims = mesh.names.flatMap((name, d) => (name !== 'pp' && mesh.sizes[d] > 1 ? [d] : []));
    return dims.length === 0
      ? 0
      : 2 * collectives.seconds('all_reduce', LARGEST_BYTES * units, dims);
  }

  /** For each chunk how many of its last units need not be recomputed. */
  private keptOf(
    strict: readonly Unit[],
    plain: readonly Unit[],
    spans: readonly Span[],
    held: readonly HeldBytes[],
    paired: boolean,
  ): number[] {
    const counts = new Array<number>(spans.length).fill(0);
    const pp = held.length;
    for (let i = 0; i < pp; i++) {
      const own = spans.filter((_, k) => k % pp === i);
      const of = (units: readonly Unit[]): Unit[][] =>
        own.map(({ first, end }) => units.slice(first, end));
      const sums = deviceSums(strict, own, 0, this.overlaps);
      const states = sumOver(strict, own, stateBytes);
      // A layer that keeps its results holds more of them beside another microbatch.
      const beside = paired
        ? Math.max(sums.besideBytes, deviceSums(plain, own, 0, this.overlaps).besideBytes)
        : 0;
      const found = keptUnits(
        of(strict),
        of(plain),
        held[i],
        states + sums.aheadBytes + beside,
        this.budgetBytes,
      );
      found.forEach((count, c) => (counts[c * pp + i] = count));
    }
    return counts;
  }

  /** Collectives of one step on the device that works longest. */
  traffic(
    core: CoreCost,
    routed: RoutedCosts | undefined,
    layout: Layout,
    tuning: LayoutTuning,
    figures: Figures,
  ): Traffic[] {
    const request = this.parts.request(
      this.parts.made(core, routed, layout),
      tuning.checkpoint,
      tuning,
    );
    return stepTraffic(request, this.kinds, figures.place, figures.microbatches);
  }
}

/** A layout with the prices of its parts. */
interface PricedLayout {
  readonly core: CoreCost;
  readonly routed: RoutedCosts | undefined;
  readonly sizes: LayoutSizes;
  readonly kind: LayoutKind;
  readonly tuning: LayoutTuning;
}

interface Limits {
  /** Only where it fits. */
  readonly fitting?: boolean;
  /** Only where its step is shorter. */
  readonly below?: number;
  /** The bytes below which a plan that does not fit is still wanted. */
  readonly leaner?: number;
}

/** A layout that is not below the limit. */
interface Slower {
  readonly seconds?: undefined;
  readonly unitsAgain: number;
}

/** Four products of a layer, with two operands and a gradient each, 4 bytes a number. */
const LARGEST_BYTES = 4 * 3 * 4;

/** A layout as it is tuned: its pipeline, and its units where all keep their results. */
interface Tuned {
  readonly made: MadeLayout;
  readonly tuning: LayoutTuning;
  readonly shape: Required<PipelineShape>;
  readonly paired: boolean;
  readonly asStated: boolean;
  /** Share of the passes that run in pairs. */
  readonly share: number;
  readonly plain: MadeUnits;
}

function add<T>(list: readonly T[], of: (item: T) => number): number {
  let sum = 0;
  for (const item of list) sum += of(item);
  return sum;
}

/** The first device of which this is largest. */
function largest(devices: readonly DeviceFigures[], of: (d: DeviceFigures) => number): number {
  return devices.reduce((k, d, i) => (of(d) > of(devices[k]) ? i : k), 0);
}
