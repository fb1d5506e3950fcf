/**
 * Puts a layout together from priced parts: takes unit costs and tuning, gives the step time, the
 * memory and the traffic of the whole model.
 */

import { type Cluster, usableMemoryBytes } from '../../cost/hardware/cluster.ts';
import type { StepSystem } from '../../cost/kernels/call.ts';
import type { StateBytes } from '../../cost/memory/state-bytes.ts';
import type { MemoryByClass } from '../../recipes/compare/comparison.ts';
import type { Traffic } from '../../recipes/compare/price.ts';
import { keptMicrobatches } from '../../simulate/pipeline/closed-forms.ts';
import type { StageSeconds } from '../../simulate/pipeline/play.ts';
import { PipelinePlayer } from '../model/fast-play.ts';
import type { LayoutKind, LayoutSizes, LayoutTuning } from '../model/layout.ts';
import { passesAlone } from '../model/overlap.ts';
import type { SweepQuestion } from '../model/question.ts';
import type { LayerKinds } from '../model/representative-layers.ts';
import type { DataGroups } from '../model/states.ts';
import type { CoreCost } from '../model/types.ts';
import type { RoutedCosts } from '../rank/moe.ts';
import { type Layout, LayoutUnits } from './composed-layout.ts';
import { type ComposedStages, composedStages } from './stages/composed-stages.ts';
import { type DeviceSums, deviceSums, type Span, sumOver } from './stages/device-sums.ts';
import { HeldActivations, type HeldBytes } from './stages/held-activations.ts';
import { isOverInMean, isOverSomewhere, takesAtLeast } from './stages/least-units.ts';
import { keptUnits } from './stages/selective-recompute.ts';
import { evenBounds, stageBounds, statedBounds } from './stages/stage-bounds.ts';
import { type DevicePlace, stepTraffic } from './step-traffic.ts';
import { ofModel, type Unit, unitCosts, type UnitRequest } from './units/unit-costs.ts';

/** A layout put together from the priced parts of one data rank. */
export interface Figures {
  readonly seconds: number;
  /** Seconds of the device that works longest; the split below is its own. */
  readonly busySeconds: number;
  readonly computeSeconds: number;
  readonly communicationSeconds: number;
  readonly bubbleSeconds: number;
  readonly peakBytes: number;
  readonly memory: MemoryByClass;
  readonly microbatches: number;
  /** Exchanges of tokens with experts on the device that works longest, visible or not. */
  readonly exchangeSeconds: number;
  /** Units whose results are recomputed in the backward pass. */
  readonly unitsAgain: number;
  readonly composed: ComposedStages;
  /** The place of the device that works longest. */
  readonly place: DevicePlace;
}

/** Puts layouts together. */
export class Composer {
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
    this.budgetBytes = usableMemoryBytes(this.cluster, question);
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
  compose(
    core: CoreCost,
    routed: RoutedCosts | undefined,
    sizes: LayoutSizes,
    kind: LayoutKind,
    tuning: LayoutTuning,
  ): Figures | undefined;
  compose(
    core: CoreCost,
    routed: RoutedCosts | undefined,
    sizes: LayoutSizes,
    kind: LayoutKind,
    tuning: LayoutTuning,
    limits: Limits,
  ): Figures | Slower | undefined;
  compose(
    core: CoreCost,
    routed: RoutedCosts | undefined,
    sizes: LayoutSizes,
    kind: LayoutKind,
    tuning: LayoutTuning,
    limits: Limits = {},
  ): Figures | Slower | undefined {
    const { schedule, chunks: v, checkpoint, microbatch, paired = false } = tuning;
    const { pp } = sizes;
    const m = this.microbatches(sizes, microbatch);
    if (m === 0) return undefined;
    const made = this.parts.made(core, routed, { sizes, kind });
    const plain = this.parts.units(made, 'none', tuning);
    const count = this.parts.builtOf.length;
    if (
      count - (tuning.asStated === true ? 0 : 2) < pp * v ||
      (schedule === 'interleaved' && m % pp !== 0)
    )
      return undefined;
    // Passes that fill and empty the pipeline have no other microbatch to overlap with: all get the
    // mean of the savings.
    const share = paired ? 1 - passesAlone(pp, v, m) / (m * v) : 0;
    const { budgetBytes, overlaps } = this;
    const { fitting = false, below = Infinity } = limits;
    const whole = this.parts.least(plain, plain);
    // Recomputed units have the same states, and briefly the values that they recompute.
    if (fitting && isOverInMean(budgetBytes, whole, pp)) return undefined;
    // It takes no less time, too; of what is paired no more than all exchanges hides.
    if (
      takesAtLeast(below, paired ? { ...whole, pairedSeconds: whole.exchangeSeconds } : whole, {
        pp,
        microbatches: m,
        share,
      })
    )
      return undefined;
    const strict = this.parts.units(made, checkpoint, tuning);
    const least = this.parts.least(strict, plain);
    if (takesAtLeast(below, least, { pp, microbatches: m, share })) return undefined;
    const bounds =
      tuning.asStated === true
        ? tuning.stageLayers === undefined
          ? evenBounds(count - 2, pp * v)
          : statedBounds(tuning.stageLayers)
        : stageBounds(
            pp,
            { units: strict.built, built: this.parts.builtOf },
            tuning,
            m,
            budgetBytes,
          );
    const inFlight = Array.from({ length: pp }, (_, i) =>
      Math.min(
        m * v,
        keptMicrobatches(schedule, { devices: pp, microbatches: m, chunks: v }, i) + Number(paired),
      ),
    );
    const held = this.held.of(
      schedule,
      { devices: pp, microbatches: m, chunks: v },
      inFlight,
      paired,
    );
    if (fitting && isOverSomewhere(budgetBytes, least, bounds, held, paired)) return undefined;
    const spans = Array.from({ length: pp * v }, (_, k): Span => ({
      first: bounds[k],
      end: bounds[k + 1],
    }));
    const [again, kept] = [this.parts.all(strict), this.parts.all(plain)];
    const keptOf =
      plain === strict
        ? spans.map(({ first, end }) => end - first)
        : tuning.asStated === true
          ? spans.map(() => 0)
          : this.keptOf(again, kept, spans, held, paired);
    const units = plain === strict ? kept : [...again];
    if (units !== kept)
      spans.forEach(({ end }, k) => {
        for (let i = end - keptOf[k]; i < end; i++) (units as Unit[])[i] = kept[i];
      });
    const seconds = new Array<StageSeconds>(pp * v);
    const devices: DeviceFigures[] = [];
    for (let i = 0; i < pp; i++) {
      const own = Array.from({ length: v }, (_, c) => spans[c * pp + i]);
      const sums = deviceSums(units, own, share, overlaps);
      const activations = held[i](sums.chunks.map((c) => c.keptBytes));
      const temporary = sums.temporaryBytes + sums.aheadBytes + (paired ? sums.besideBytes : 0);
      const peak = Math.ceil(
        sums.parameterBytes + sums.gradientBytes + sums.optimizerBytes + activations + temporary,
      );
      if (fitting && peak > budgetBytes) return undefined;
      let passes = 0;
      sums.chunks.forEach((chunk, c) => {
        seconds[c * pp + i] = chunk;
        passes += total3(chunk);
      });
      const step =
        sums.stepSeconds +
        (this.system?.constants.stepHostSeconds ?? 0) +
        this.largestSeconds(
          made.groups,
          own.reduce((n, { first, end }) => n + end - first, 0),
        );
      devices.push({
        own,
        sums,
        activations,
        temporary,
        peak,
        inFlight: inFlight[i],
        step,
        busy: passes * m,
      });
    }
    const fullest = devices.reduce((k, d, i) => (d.peak > devices[k].peak ? i : k), 0);
    const full = devices[fullest];
    const busiest = devices.reduce(
      (k, d, i) => (d.busy + d.step > devices[k].busy + devices[k].step ? i : k),
      0,
    );
    const at = devices[busiest];
    if (at.busy + at.step >= below) return undefined;
    const unitsAgain = spans.reduce(
      (total, { first, end }, k) => total + end - first - keptOf[k],
      0,
    );
    // Of plans that do not fit the leanest counts, whatever its seconds.
    if (full.peak > budgetBytes && full.peak >= (limits.leaner ?? Infinity)) return { unitsAgain };
    const lasts = spans.slice(0, -1).map(({ end }) => units[end - 1]);
    const played = this.player.ends({
      schedule,
      devices: pp,
      chunks: v,
      microbatches: m,
      stages: seconds,
      hops: lasts.map((u) => u.boundary),
    });
    // The passes that fill and empty the pipeline are on the way to every device, without the
    // savings of pairs.
    const alone =
      share *
      (pp - 1) *
      Math.max(...devices.flatMap(({ sums }) => sums.chunks.map((c) => c.pairedSeconds)));
    // Each device sums its gradients when its own last microbatch is done.
    const ends = devices.map((d, i) => played[i] + alone + d.step);
    const stepEnd = Math.max(...ends);
    if (stepEnd >= below) return { unitsAgain };
    const sum = (of: (u: Unit) => number): number => sumOver(units, at.own, of);
    const computeSeconds = sum((u) => u.compute) * m;
    const moves = sum((u) => u.gatherForward + u.gatherBackward + u.scatter);
    const stepMoves = sum((u) => u.stepSum + u.stepGather);
    const exchange = sum((u) => u.exchange);
    const hidden = at.sums.chunks.reduce((t, { saved: r }) => t + r.forward + r.backward, 0);
    const works = devices.map((d) => ({
      peak: d.peak,
      inFlight: d.inFlight,
      works: d.busy + d.step,
    }));
    return {
      // Stages of one device send nothing.
      composed: composedStages(bounds, seconds, works, pp === 1 ? [] : lasts, stepEnd),
      seconds: stepEnd,
      busySeconds: at.busy + at.step,
      computeSeconds,
      // A difference of sums: rounding may leave less than nothing.
      communicationSeconds: Math.max(0, at.busy - computeSeconds + at.step),
      bubbleSeconds: pp === 1 ? 0 : Math.max(0, stepEnd - at.busy - at.step),
      peakBytes: full.peak,
      memory: {
        parameterBytes: Math.ceil(full.sums.parameterBytes),
        gradientBytes: Math.ceil(full.sums.gradientBytes),
        optimizerBytes: Math.ceil(full.sums.optimizerBytes),
        activationBytes: full.activations,
        temporaryBytes: full.temporary,
      },
      microbatches: m,
      exchangeSeconds: exchange * m,
      unitsAgain,
      place: {
        bounds,
        device: busiest,
        chunks: v,
        again: spans.map(({ first, end }, k) => end - first - keptOf[k]),
        visible: {
          microbatch: moves === 0 ? 1 : 1 - hidden / moves,
          step: stepMoves === 0 ? 1 : at.step / stepMoves,
          exchange: 1 - (share * sum((u) => u.pairedForward + u.pairedBackward)) / (exchange || 1),
        },
      },
    };
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
        const kept = add(full, (u) => u.states[0] + u.states[1] + u.states[2] + u.keptBytes);
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
      const states = sumOver(strict, own, (u) => u.states[0] + u.states[1] + u.states[2]);
      const found = keptUnits(
        of(strict),
        of(plain),
        held[i],
        states + sums.aheadBytes + (paired ? sums.besideBytes : 0),
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

/** One device of a pipeline. */
interface DeviceFigures {
  /** Its chunks. */
  readonly own: readonly Span[];
  readonly sums: DeviceSums;
  readonly activations: number;
  readonly temporary: number;
  readonly peak: number;
  readonly inFlight: number;
  /** Seconds of what a step has once, and of its passes. */
  readonly step: number;
  readonly busy: number;
}

const total3 = (s: StageSeconds): number => s.forward + s.backwardInput + s.backwardWeight;

function add<T>(list: readonly T[], of: (item: T) => number): number {
  let sum = 0;
  for (const item of list) sum += of(item);
  return sum;
}
