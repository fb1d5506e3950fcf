/**
 * Makes the priced parts that layouts are composed from: the units of the model in a layout with
 * the costs of their states, each made once.
 */

import type { Cluster } from '../../cost/hardware/cluster.ts';
import { hostLinkBytesPerSecond } from '../../cost/hardware/host-link.ts';
import { loadCluster } from '../../cost/hardware/load-cluster.ts';
import type { StepSystem } from '../../cost/kernels/call.ts';
import type { StateBytes } from '../../cost/memory/state-bytes.ts';
import { defined } from '../../defined.ts';
import { type DType, DTYPE_BYTES } from '../../graph/types.ts';
import { dtypeNamed } from '../../models/build.ts';
import { parseModelConfig } from '../../models/families.ts';
import type { Checkpoint } from '../../step/checkpoints.ts';
import {
  type StateCosts,
  stateCosts,
  type UnitMoving,
  unitMoving,
} from '../../step/costs/state-costs.ts';
import {
  type PassUnit,
  passUnits,
  type UnitRequest,
  withStates,
} from '../../step/costs/unit-costs.ts';
import { GroupMaker } from '../../step/data-groups.ts';
import { softwareState } from '../../step/facts.ts';
import type { LayoutKind, LayoutSizes, LayoutTuning } from '../../step/layout.ts';
import type { RoutedCosts } from '../../step/read/moe.ts';
import type { DataGroups } from '../../step/states.ts';
import type { Unit } from '../../step/unit.ts';
import type { CoreParameter } from '../../step/units.ts';
import { stepSystem, type SweepQuestion } from '../model/question.ts';
import { type LayerKinds, ofModel } from '../model/representative-layers.ts';
import type { CoreCost } from '../model/types.ts';
import { endsSumSeconds } from '../rank/tied-embedding.ts';
import { type LeastUnits, leastUnits } from './stages/least-units.ts';

/** A mesh and what its dims do. */
export interface Layout {
  readonly sizes: LayoutSizes;
  readonly kind: LayoutKind;
}

export interface MadeLayout extends Layout {
  readonly core: CoreCost;
  readonly routed: RoutedCosts | undefined;
  readonly groups: DataGroups;
  /** By whether FSDP keeps what it gathers. */
  readonly states: Map<boolean, StateCosts>;
  /** Units without their states, by what is recomputed and whether microbatches run in pairs. */
  readonly passes: Map<string, readonly PassUnit[]>;
  /** By what is recomputed, and a number for the way to gather and to pair. */
  readonly units: Map<Checkpoint, MadeUnits[]>;
}

/** Units of a layout: of the built layers, and what is made of them on demand. */
export interface MadeUnits {
  readonly built: readonly Unit[];
  /** The units of the whole model. */
  all?: readonly Unit[];
  /** Bounds of them and of the same units that keep all results. */
  least?: LeastUnits;
}

/** Parameters of experts, and all others with a number that equal lists share. */
interface Parameters {
  readonly id: number;
  readonly experts: readonly CoreParameter[];
  readonly others: readonly CoreParameter[];
}

/** The dtype of weights and activations where the question names none. */
function dtypeOf(config: string): DType {
  const { statedDtype } = parseModelConfig(config);
  return statedDtype === undefined ? 'bf16' : dtypeNamed(statedDtype);
}

function dtypeIn({ dtype, config }: SweepQuestion): DType {
  return dtype ?? dtypeOf(config);
}

/**
 * Keys and values of a layer for one sequence; heads that a rank does not have whole are repeated
 * (lint rule ZL04).
 */
function keyValueBytes({ config, sequence, dtype }: SweepQuestion): (tp: number) => number {
  const { keyHeads, headWidth } = parseModelConfig(config).architecture.shape;
  const itemBytes = DTYPE_BYTES[dtype ?? dtypeOf(config)];
  return (tp) => 2 * sequence * Math.ceil(keyHeads / tp) * headWidth * itemBytes;
}

/** Makes the priced units of layouts: groups and parameter prices of a mesh are made once. */
export class LayoutUnits {
  readonly cluster: Cluster;
  /** True if collectives overlap with compute. */
  readonly overlaps: boolean;
  readonly system: StepSystem | undefined;
  readonly keyValueBytes: UnitRequest['keyValueBytes'];
  /** The built unit of every unit of the model, in its order. */
  readonly builtOf: readonly number[];
  /** Bytes of states where software keeps others than the optimizer and the dtype say. */
  readonly state: Partial<StateBytes> | undefined;
  private readonly maker: GroupMaker;
  private readonly groups = new Map<string, DataGroups>();
  private readonly denseOf = new Map<string, StateCosts>();
  private readonly parameters = new WeakMap<CoreCost, Map<RoutedCosts | undefined, Parameters>>();
  private readonly parameterIds = new Map<string, number>();
  private latest: MadeLayout | undefined;
  private latestList:
    { readonly of: StateCosts; readonly costs: ReturnType<StateCosts['costs']> } | undefined;

  constructor(
    private readonly question: SweepQuestion,
    private readonly kinds: LayerKinds,
    /** Whose cluster and collectives this one has. */
    like?: LayoutUnits,
  ) {
    this.cluster = like?.cluster ?? loadCluster(question.cluster);
    this.keyValueBytes = keyValueBytes(question);
    this.maker = like?.maker ?? new GroupMaker(question.cost, this.cluster);
    this.system = stepSystem(question, this.cluster);
    this.state = softwareState(question.software, question.optimizer, dtypeIn(question));
    this.overlaps = question.overlap ?? this.system?.software.overlap ?? true;
    this.builtOf = ofModel(
      Array.from({ length: kinds.shallow + 2 }, (_, i) => i),
      kinds,
    );
  }

  /** How the software sums gradients over data ranks, with so many stages. */
  private moving(units: number, stages: number): UnitMoving | undefined {
    if (this.system === undefined) return undefined;
    const times = new Array<number>(units).fill(0);
    times[0] = times[units - 1] = 1;
    for (const l of this.kinds.standsFor) times[l + 1] += 1 / stages;
    return unitMoving(this.system.software, times);
  }

  /** The dense and the expert mesh of a layout, with the prices of their collectives. */
  groupsOf(sizes: LayoutSizes, kind: LayoutKind): DataGroups {
    const key = `${kind.context === 'ulysses'} ${Object.values(sizes).join()}`;
    let found = this.groups.get(key);
    if (found === undefined) {
      found = this.maker.groups(sizes, kind.context);
      this.groups.set(key, found);
    }
    return found;
  }

  /**
   * The parts of a layout that are made once, however often it is tuned: layouts are tuned one
   * after the other.
   */
  made(core: CoreCost, routed: RoutedCosts | undefined, { sizes, kind }: Layout): MadeLayout {
    const known = this.latest;
    if (
      known !== undefined &&
      known.core === core &&
      known.routed === routed &&
      known.sizes === sizes &&
      known.kind === kind
    )
      return known;
    const { context, sequenceParallel } = kind;
    // Layouts that keep their states otherwise come one after the other, too.
    const isAlike =
      known !== undefined &&
      known.core === core &&
      known.routed === routed &&
      known.sizes === sizes &&
      known.kind.context === context &&
      known.kind.sequenceParallel === sequenceParallel;
    const { groups, passes } = isAlike
      ? known
      : { groups: this.groupsOf(sizes, kind), passes: new Map<string, readonly PassUnit[]>() };
    return (this.latest = {
      core,
      routed,
      sizes,
      kind,
      groups,
      passes,
      states: new Map(),
      units: new Map(),
    });
  }

  /** The data that the units of a layout are made from. */
  request(
    made: MadeLayout,
    checkpoint: Checkpoint,
    { once, paired = false, offload }: Ways,
  ): UnitRequest {
    const { core, routed, sizes, kind, groups } = made;
    let states = made.states.get(once);
    if (states === undefined) made.states.set(once, (states = this.statesOf(made, once)));
    return {
      core,
      routed,
      sizes,
      kind,
      checkpoint,
      paired,
      ...(offload === true
        ? { hostBytesPerSecond: hostLinkBytesPerSecond(this.cluster) }
        : undefined),
      groups,
      overlaps: this.overlaps,
      system: this.system,
      keyValueBytes: this.keyValueBytes,
      states,
    };
  }

  /**
   * Costs of the parameters: of dense ones once for all layouts that differ in their experts alone.
   */
  private statesOf({ core, routed, sizes, kind, groups }: MadeLayout, once: boolean): StateCosts {
    const { pp, dp_replicate, dp_shard, cp, tp } = sizes;
    const { devices, cost, globalBatch } = this.question;
    const isOnePass = globalBatch === dp_replicate * dp_shard * core.request.microbatch;
    const endsSum = (bytes: number): number => endsSumSeconds(bytes, devices, cost, this.cluster);
    const moving = this.moving(core.units.length, pp);
    const how = {
      mode: kind.mode,
      once,
      groups,
      ...defined({ state: this.state, moving }),
      ...(pp > 1 ? { endsSum } : {}),
      ...(once && isOnePass ? { isOnePass } : {}),
    };
    const { id, experts, others } = this.parametersOf(core, routed);
    const key =
      `${id} ${pp} ${dp_replicate} ${dp_shard} ${cp} ${tp} ${kind.mode} ` +
      `${kind.context === 'ulysses'} ${once} ${once && isOnePass}`;
    let dense = this.denseOf.get(key);
    if (dense === undefined) {
      const priced = stateCosts(others, how, core.units.length, pp > 1);
      dense = { ...priced, costs: () => this.listed(priced) };
      if (this.denseOf.size >= MOST_COSTS) this.denseOf.clear();
      this.denseOf.set(key, dense);
    }
    return experts.length === 0
      ? dense
      : stateCosts(experts, how, core.units.length, pp > 1, dense);
  }

  /**
   * The list of what was listed last: layouts that differ in their experts alone come one after the
   * other.
   */
  private listed(priced: StateCosts): ReturnType<StateCosts['costs']> {
    if (this.latestList?.of !== priced) this.latestList = { of: priced, costs: priced.costs() };
    return this.latestList.costs;
  }

  /**
   * The parameters of a program, those of experts apart; of equal others, as microbatches of other
   * sizes have them, the id is one.
   */
  private parametersOf(core: CoreCost, routed: RoutedCosts | undefined): Parameters {
    const byRouted = this.parameters.get(core) ?? new Map<RoutedCosts | undefined, Parameters>();
    this.parameters.set(core, byRouted);
    let found = byRouted.get(routed);
    if (found === undefined) {
      const [experts, dense] = partition(routed?.parameters ?? [], (p) => p.kind === 'expert');
      const others = [...core.parameters, ...dense];
      const text = JSON.stringify(others);
      const id = this.parameterIds.get(text) ?? this.parameterIds.size;
      this.parameterIds.set(text, id);
      byRouted.set(routed, (found = { id, experts, others }));
    }
    return found;
  }

  /** Units of a layout by what is recomputed and the way to gather and to pair. */
  units(
    made: MadeLayout,
    checkpoint: Checkpoint,
    { once, paired = false, offload }: Ways,
  ): MadeUnits {
    let byWay = made.units.get(checkpoint);
    if (byWay === undefined) made.units.set(checkpoint, (byWay = []));
    const way = Number(once) + 2 * Number(paired) + 4 * Number(offload === true);
    return (byWay[way] ??= this.madeUnits(made, checkpoint, {
      once,
      paired,
      ...defined({ offload }),
    }));
  }

  private madeUnits(made: MadeLayout, checkpoint: Checkpoint, ways: Ways): MadeUnits {
    const request = this.request(made, checkpoint, ways);
    const key = [
      checkpoint,
      ...(ways.paired === true ? ['paired'] : []),
      ...(ways.offload === true ? ['offload'] : []),
    ].join(' ');
    let passes = made.passes.get(key);
    if (passes === undefined) made.passes.set(key, (passes = passUnits(request)));
    return { built: withStates(passes, request) };
  }

  /** The units of the whole model. */
  all(units: MadeUnits): readonly Unit[] {
    return (units.all ??= ofModel(units.built, this.kinds));
  }

  /** Bounds of units and of the same that keep all results. */
  least(strict: MadeUnits, plain: MadeUnits): LeastUnits {
    return (strict.least ??= leastUnits(strict.built, plain.built, this.builtOf, this.overlaps));
  }
}

type Ways = Pick<LayoutTuning, 'once' | 'paired' | 'offload'>;

/** Layouts whose dense parameters are priced and kept. */
const MOST_COSTS = 16_384;

function partition<T>(list: readonly T[], accepts: (item: T) => boolean): [T[], T[]] {
  return [list.filter(accepts), list.filter((item) => !accepts(item))];
}
