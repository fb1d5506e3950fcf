import { loadCluster, usableMemoryBytes, type Cluster } from '../../cost/cluster.ts';
import { collectiveModel } from '../../cost/presets.ts';
import { DeviceMesh } from '../../mesh/mesh.ts';
import { keptMicrobatches } from '../../simulate/pipeline/closed-forms.ts';
import type { StageSeconds } from '../../simulate/pipeline/play.ts';
import { internalError } from '../../errors.ts';
import { balancedCuts, type CutUnit } from './balanced-cuts.ts';
import { coreKey, type Checkpoint, type CoreCost, type CoreParameter } from './core-types.ts';
import { PipelinePlayer } from './fast-play.ts';
import type { LayoutKind, LayoutSizes, LayoutTuning } from './layout.ts';
import type { SweepQuestion } from './question.ts';
import type { RoutedCosts } from './routed.ts';
import type { LayerKinds } from './shallow.ts';
import { endsSumSeconds } from './twins.ts';
import { parameterCost, type DataGroups, type Moved, type ParameterCost } from './states.ts';

/** A layout put together from the priced parts of one data rank. */
export interface Figures {
  readonly seconds: number;
  /** Of the device that works longest; the split below is its own. */
  readonly busySeconds: number;
  readonly computeSeconds: number;
  readonly communicationSeconds: number;
  readonly bubbleSeconds: number;
  readonly peakBytes: number;
  readonly memory: {
    readonly parameterBytes: number;
    readonly gradientBytes: number;
    readonly optimizerBytes: number;
    readonly activationBytes: number;
    readonly temporaryBytes: number;
  };
  readonly microbatches: number;
  readonly stages: readonly StageFigures[];
  /** First units of the chunks, and the device that works longest. */
  readonly place: { readonly bounds: readonly number[]; readonly device: number; readonly chunks: number };
}

export interface StageFigures {
  /** Layers from `first` up to and without `end`. */
  readonly first: number;
  readonly end: number;
  readonly embedding: boolean;
  readonly head: boolean;
  /** Of one microbatch. */
  readonly seconds: number;
  readonly peakBytes: number;
  readonly inFlight: number;
  readonly idleShare: number;
}

/** One unit of the whole model under a layout and a checkpointing policy. */
interface Unit {
  readonly forward: number;
  readonly input: number;
  readonly weight: number;
  readonly compute: number;
  readonly stepSeconds: number;
  readonly states: readonly [parameter: number, gradient: number, optimizer: number];
  readonly keptBytes: number;
  readonly temporaryBytes: number;
  readonly boundaryBytes: number;
  readonly boundary: number;
}

/** Puts layouts together; groups and parameter prices of a mesh are made once. */
export class Composer {
  readonly cluster: Cluster;
  readonly budgetBytes: number;
  private readonly player = new PipelinePlayer();
  private readonly groups = new Map<string, DataGroups>();
  private readonly unitsOf = new Map<string, readonly Unit[]>();

  constructor(
    private readonly question: SweepQuestion,
    private readonly kinds: LayerKinds,
  ) {
    this.cluster = loadCluster(question.cluster);
    this.budgetBytes = question.memoryBytes ?? usableMemoryBytes(this.cluster);
  }

  /** Microbatches of a step, 0 where the batch does not divide. */
  microbatches({ dp_replicate, dp_shard }: LayoutSizes, microbatch: number): number {
    const { globalBatch } = this.question;
    const per = dp_replicate * dp_shard * microbatch;
    return globalBatch % per === 0 ? globalBatch / per : 0;
  }

  private groupsOf(sizes: LayoutSizes, kind: LayoutKind): DataGroups {
    const { pp, dp_replicate, dp_shard, cp, tp, ep } = sizes;
    const context = kind.context === 'ulysses' ? 'sp' : 'cp';
    const key = `${context} ${[pp, dp_replicate, dp_shard, cp, tp, ep].join()}`;
    let found = this.groups.get(key);
    if (found === undefined) {
      const mesh = (dims: readonly (readonly [string, number])[]): DataGroups['dense'] => {
        const made = new DeviceMesh(dims.map(([name, size]) => ({ name, size })));
        return { mesh: made, collectives: collectiveModel(this.question.cost, this.cluster, made) };
      };
      found = {
        dense: mesh([['pp', pp], ['dp_replicate', dp_replicate], ['dp_shard', dp_shard], [context, cp], ['tp', tp]]),
        expert: mesh([['pp', pp], ['dp_replicate', dp_replicate], ['efsdp', (dp_shard * cp * tp) / ep], ['ep', ep]]),
        ep,
      }; // prettier-ignore
      this.groups.set(key, found);
    }
    return found;
  }

  /** The units of the whole model: what comes before the layers, the layers, what comes after. */
  private units(
    core: CoreCost,
    routed: RoutedCosts | undefined,
    sizes: LayoutSizes,
    kind: LayoutKind,
    checkpoint: Checkpoint,
  ): readonly Unit[] {
    const key = `${coreKey(core.request)} ${Object.values(sizes).join()} ${kind.mode} ${kind.context} ${checkpoint}`;
    let found = this.unitsOf.get(key);
    if (found === undefined) {
      const shallow = this.shallowUnits(core, routed, sizes, kind, checkpoint);
      found = [shallow[0], ...this.kinds.standsFor.map((l) => shallow[l + 1]), shallow[shallow.length - 1]];
      this.unitsOf.set(key, found);
    }
    return found;
  }

  private shallowUnits(
    core: CoreCost,
    routed: RoutedCosts | undefined,
    sizes: LayoutSizes,
    kind: LayoutKind,
    checkpoint: Checkpoint,
  ): Unit[] {
    const groups = this.groupsOf(sizes, kind);
    const costs = this.parameterCosts(core, routed, sizes, kind);
    const { dense, expert } = groups;
    const hop = sizes.pp === 1 ? 0 : 1;
    return core.units.map((u, index): Unit => {
      const own = costs.filter(({ p }) => p.unit === index || (sizes.pp > 1 && p.alsoUnit === index));
      const sum = (of: (c: ParameterCost) => number): number => own.reduce((total, { cost }) => total + of(cost), 0);
      const extra = (pass: string): number =>
        core.extras.reduce((total, e) => {
          if (e.unit !== index || e.pass !== pass) return total;
          return dense.mesh.names.reduce((t, name, d) => {
            const isData = name === 'dp_replicate' || name === 'dp_shard';
            return isData ? t + dense.collectives.seconds(e.kind as 'all_reduce', e.bytes, [d]) : t;
          }, total);
        }, 0);
      const block = routed?.units[sizes.ep]?.[index];
      const exchange =
        block === undefined || sizes.ep === 1 || block.dispatchBytes === 0
          ? 0
          : 2 * expert.collectives.seconds('all_to_all', block.dispatchBytes, [expert.mesh.names.indexOf('ep')]);
      const again = u.again[checkpoint];
      const second = again.compute + again.communication + (block?.againSeconds[checkpoint] ?? 0);
      const secondExchange = checkpoint === 'full' ? exchange : 0;
      const kept = u.keptBytes[checkpoint] + (block?.keptBytes[checkpoint] ?? 0);
      const keptWithout = u.keptBytes.none + (block?.keptBytes.none ?? 0);
      return {
        forward: total(u.forward) + (block?.forwardSeconds ?? 0) + exchange + sum((c) => c.forwardSeconds) + extra('forward'), // prettier-ignore
        input: total(u.backwardInput) + second + secondExchange + (block?.inputSeconds ?? 0) + exchange + sum((c) => c.backwardSeconds) + extra('input'), // prettier-ignore
        weight: total(u.backwardWeight) + (block?.weightSeconds ?? 0),
        compute:
          u.forward.compute +
          u.backwardInput.compute +
          u.backwardWeight.compute +
          again.compute +
          (block === undefined
            ? 0
            : block.forwardSeconds + block.inputSeconds + block.weightSeconds + block.againSeconds[checkpoint]),
        stepSeconds: sum((c) => c.stepSeconds),
        states: [sum((c) => c.parameterBytes), sum((c) => c.gradientBytes), sum((c) => c.optimizerBytes)],
        keptBytes: kept,
        // A unit whose results run again has them all for a moment.
        temporaryBytes:
          Math.max(u.temporaryBytes, block?.temporaryBytes ?? 0) +
          Math.max(0, keptWithout - kept) +
          sum((c) => c.gatheredBytes),
        boundaryBytes: u.boundaryBytes,
        boundary: hop === 0 ? 0 : dense.collectives.seconds('collective_permute', u.boundaryBytes, [0]),
      };
    });
  }

  private parameterCosts(
    core: CoreCost,
    routed: RoutedCosts | undefined,
    sizes: LayoutSizes,
    kind: LayoutKind,
  ): { readonly p: CoreParameter; readonly cost: ParameterCost }[] {
    const groups = this.groupsOf(sizes, kind);
    return [...core.parameters, ...(routed?.parameters ?? [])].map((p) => {
      const cost = parameterCost(p, kind.mode, groups);
      return { p, cost: sizes.pp > 1 && p.alsoUnit !== undefined && p.trained ? this.withTwin(p, cost) : cost };
    });
  }

  /** A parameter that the first and the last stage both have: once a step they sum their gradients (lint rule ZL14). */
  private withTwin(p: CoreParameter, cost: ParameterCost): ParameterCost {
    const { devices, cost: preset } = this.question;
    const bytes = (cost.gradientBytes / p.state.gradient) * p.itemBytes;
    const seconds = endsSumSeconds(bytes, devices, preset, this.cluster);
    const move: Moved = { kind: 'all_reduce', axes: 'pp', count: 1, sentBytes: bytes, seconds };
    return { ...cost, stepSeconds: cost.stepSeconds + seconds, perStep: [...cost.perStep, move] };
  }

  /**
   * Seconds and bytes of a layout; undefined where the schedule or the batch does not admit it.
   *
   * @param limits also undefined where it does not fit, or where its longest device alone works as long as `below`: both are
   *   known before the schedule is played
   */
  compose(
    core: CoreCost,
    routed: RoutedCosts | undefined,
    sizes: LayoutSizes,
    kind: LayoutKind,
    tuning: LayoutTuning,
    limits: { readonly fitting?: boolean; readonly below?: number } = {},
  ): Figures | undefined {
    const { schedule, chunks: v, checkpoint, microbatch } = tuning;
    const { pp } = sizes;
    const m = this.microbatches(sizes, microbatch);
    if (m === 0) return undefined;
    const units = this.units(core, routed, sizes, kind, checkpoint);
    if (m === 0 || units.length - 2 < pp * v || (schedule === 'interleaved' && m % pp !== 0)) return undefined;
    const bounds = this.stageBounds(units, sizes, tuning, m);
    const chunk = Array.from({ length: pp * v }, (_, k) => units.slice(bounds[k], bounds[k + 1]));
    const seconds = chunk.map((list): StageSeconds => ({
      forward: add(list, (u) => u.forward),
      backwardInput: add(list, (u) => u.input),
      backwardWeight: add(list, (u) => u.weight),
    }));
    const devices = Array.from({ length: pp }, (_, i) => {
      const own = chunk.filter((_, k) => k % pp === i);
      const all = own.flat();
      const inFlight = keptMicrobatches(schedule, { devices: pp, microbatches: m, chunks: v }, i);
      // Chunks of one device are alike; the fullest stands for all that are kept.
      const kept = inFlight * Math.max(...own.map((list) => add(list, (u) => u.keptBytes)));
      const temporary = Math.max(...all.map((u) => u.temporaryBytes));
      const [parameter, gradient, optimizer] = [0, 1, 2].map((k) => add(all, (u) => u.states[k]));
      return {
        all,
        inFlight,
        kept,
        temporary,
        parameter,
        gradient,
        optimizer,
        peak: Math.ceil(parameter + gradient + optimizer + kept + temporary),
        step: add(all, (u) => u.stepSeconds),
        compute: add(all, (u) => u.compute) * m,
        busy: own.reduce((t, _, c) => t + total3(seconds[c * pp + i]), 0) * m,
      };
    });
    const fullest = devices.reduce((k, d, i) => (d.peak > devices[k].peak ? i : k), 0);
    const full = devices[fullest];
    const busiest = devices.reduce((k, d, i) => (d.busy + d.step > devices[k].busy + devices[k].step ? i : k), 0);
    const at = devices[busiest];
    if (limits.fitting === true && full.peak > this.budgetBytes) return undefined;
    if (at.busy + at.step >= (limits.below ?? Infinity)) return undefined;
    const played = this.player.ends(schedule, pp, v, m, seconds, chunk.slice(0, -1).map((list) => list[list.length - 1].boundary)); // prettier-ignore
    // Each device sums its gradients when its own last microbatch is done.
    const ends = devices.map((d, i) => played[i] + d.step);
    const stepEnd = Math.max(...ends);
    return {
      seconds: stepEnd,
      busySeconds: at.busy + at.step,
      computeSeconds: at.compute,
      communicationSeconds: at.busy - at.compute + at.step,
      bubbleSeconds: pp === 1 ? 0 : Math.max(0, stepEnd - at.busy - at.step),
      peakBytes: full.peak,
      memory: {
        parameterBytes: Math.ceil(full.parameter),
        gradientBytes: Math.ceil(full.gradient),
        optimizerBytes: Math.ceil(full.optimizer),
        activationBytes: full.kept,
        temporaryBytes: full.temporary,
      },
      microbatches: m,
      stages: chunk.map((_, k) => ({
        first: Math.max(0, bounds[k] - 1),
        end: Math.min(units.length - 2, bounds[k + 1] - 1),
        embedding: bounds[k] === 0,
        head: bounds[k + 1] === units.length,
        seconds: total3(seconds[k]),
        peakBytes: devices[k % pp].peak,
        inFlight: devices[k % pp].inFlight,
        idleShare: Math.max(0, 1 - (devices[k % pp].busy + devices[k % pp].step) / stepEnd),
      })),
      place: { bounds, device: busiest, chunks: v },
    };
  }

  /** First unit of every chunk, and the number of units. */
  private stageBounds(
    units: readonly Unit[],
    { pp }: LayoutSizes,
    { schedule, chunks: v }: LayoutTuning,
    microbatches: number,
  ): readonly number[] {
    if (pp * v === 1) return [0, units.length];
    const list = units.map((u): CutUnit => ({
      seconds: u.forward + u.input + u.weight,
      stateBytes: u.states[0] + u.states[1] + u.states[2],
      activationBytes: u.keptBytes,
    }));
    const temporary = Math.max(...units.map((u) => u.temporaryBytes));
    const request = { stages: pp * v, microbatches, schedule: schedule === 'interleaved' ? '1f1b' : schedule } as const;
    const limitBytes = schedule === 'interleaved' ? Infinity : this.budgetBytes - temporary;
    // What fits nowhere is priced at its fastest cuts, so that it can be said by how much it does not fit.
    const found =
      balancedCuts(list, { ...request, limitBytes }) ?? balancedCuts(list, { ...request, limitBytes: Infinity });
    if (found === undefined) throw internalError(`${units.length} units for ${pp * v} stages`);
    return found;
  }

  /** Collectives of one step on the device that works longest, by kind and axes. */
  traffic(
    core: CoreCost,
    routed: RoutedCosts | undefined,
    sizes: LayoutSizes,
    kind: LayoutKind,
    checkpoint: Checkpoint,
    { place: { bounds, device, chunks: v }, microbatches: m }: Figures,
  ): Moved[] {
    const times = new Map<number, number>();
    const last = bounds[bounds.length - 1] - 1;
    for (let c = 0; c < v; c++)
      for (let u = bounds[c * sizes.pp + device]; u < bounds[c * sizes.pp + device + 1]; u++) {
        const shallow = u === 0 ? 0 : u === last ? core.units.length - 1 : this.kinds.standsFor[u - 1] + 1;
        times.set(shallow, (times.get(shallow) ?? 0) + 1);
      }
    const sums = new Map<string, Moved>();
    const put = (move: Moved, n: number): void => {
      if (n === 0) return;
      const key = `${move.kind} ${move.axes}`;
      const known = sums.get(key);
      sums.set(key, {
        kind: move.kind,
        axes: move.axes,
        count: (known?.count ?? 0) + n * move.count,
        sentBytes: (known?.sentBytes ?? 0) + n * move.sentBytes,
        seconds: (known?.seconds ?? 0) + n * move.seconds,
      });
    };
    for (const t of core.traffic) put(t, m * (times.get(t.unit) ?? 0));
    for (const { p, cost } of this.parameterCosts(core, routed, sizes, kind)) {
      // A tied parameter lies on the first and on the last stage, which are two devices.
      const also = sizes.pp > 1 && p.alsoUnit !== undefined ? (times.get(p.alsoUnit) ?? 0) : 0;
      const n = (times.get(p.unit) ?? 0) + also;
      for (const move of cost.perMicrobatch) put(move, m * n);
      for (const move of cost.perStep) put(move, n);
    }
    const { expert } = this.groupsOf(sizes, kind);
    for (const [index, n] of times) {
      const bytes = routed?.units[sizes.ep]?.[index]?.dispatchBytes ?? 0;
      if (bytes === 0 || sizes.ep === 1) continue;
      const seconds = expert.collectives.seconds('all_to_all', bytes, [expert.mesh.names.indexOf('ep')]);
      const sentBytes = (bytes * (sizes.ep - 1)) / sizes.ep;
      put({ kind: 'all_to_all', axes: 'ep', count: checkpoint === 'full' ? 6 : 4, sentBytes: (checkpoint === 'full' ? 6 : 4) * sentBytes, seconds: (checkpoint === 'full' ? 6 : 4) * seconds }, m * n); // prettier-ignore
    }
    return [...sums.values()].sort((a, b) => b.seconds - a.seconds || (`${a.kind}${a.axes}` < `${b.kind}${b.axes}` ? -1 : 1)); // prettier-ignore
  }
}

const total = (p: { readonly compute: number; readonly communication: number }): number => p.compute + p.communication;
const total3 = (s: StageSeconds): number => s.forward + s.backwardInput + s.backwardWeight;

function add<T>(list: readonly T[], of: (item: T) => number): number {
  return list.reduce((sum, item) => sum + of(item), 0);
}
