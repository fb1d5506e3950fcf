/**
 * Prices the states of one parameter (gather, gradient reduction, optimizer step) under each ZeRO
 * mode, in seconds and bytes.
 */

import type { CollectiveModel } from '../cost/collective-model.ts';
import type { StateBytes } from '../cost/memory/state-bytes.ts';
import type { DeviceMesh } from '../mesh/devices/mesh.ts';
import { product } from '../product.ts';
import { ringBytes } from './traffic.ts';
import type { CoreParameter } from './units.ts';
import type { StateMode } from './zero-mode.ts';

/** Meshes of the dense and the routed part of a layout, with the prices of their collectives. */
export interface DataGroups {
  readonly dense: { readonly mesh: DeviceMesh; readonly collectives: CollectiveModel };
  readonly expert: { readonly mesh: DeviceMesh; readonly collectives: CollectiveModel };
  /**
   * The expert mesh with its groups cut into hosts (`epHosts`) and devices of a host (`epInside`),
   * where they reach over hosts.
   */
  readonly forwarding?: DataGroups['expert'];
  /**
   * True if data ranks are on several hosts, so that what they move passes other links than tensor
   * parallelism.
   */
  readonly overHosts: boolean;
  /** Devices of an expert group, and those that cut an expert between them. */
  readonly ep: number;
  readonly etp: number;
}

export interface Moved {
  readonly kind: string;
  readonly axes: string;
  readonly count: number;
  readonly sentBytes: number;
  readonly seconds: number;
}

/** A collective of one parameter's states, and when it runs. */
export interface StateMove {
  readonly kind: Parameters<CollectiveModel['seconds']>[0];
  readonly bytes: number;
  readonly dims: readonly number[];
  readonly collectives: CollectiveModel;
  readonly parameter: CoreParameter;
  readonly moment: 'forward' | 'backward' | 'scatter' | 'sum' | 'gather' | 'pending';
}

/** How software moves states. */
export interface StateMoving {
  /** Bytes of an element on a device where they are not those of the parameter's `state`. */
  readonly state?: Partial<StateBytes>;
  /**
   * Bytes of cast weights that are kept for each element of a weight of the layers, while it is
   * whole.
   */
  readonly keptWeightBytes?: number;
  /** Bytes of a gradient element as data ranks sum it; default: as the parameter. */
  readonly gradientBytes?: number;
  /**
   * Whole gradients are summed everywhere before each rank takes its part (DeepSpeed without
   * overlap).
   */
  readonly sumsWhole?: boolean;
  /** Data ranks cut gradients from where they are made, though parameters stay gathered. */
  readonly cutsGradients?: boolean;
  /** A step is one pass: gradients are not added up, and FSDP cuts each where it is made. */
  readonly isOnePass?: boolean;
  /** Seconds of a collective; default: each alone. */
  readonly priced?: (move: StateMove) => number;
  /** True if moves are listed one by one, in addition to their seconds; default: yes. */
  readonly listed?: boolean;
}

const alone = ({ kind, bytes, dims, collectives }: StateMove): number =>
  collectives.seconds(kind, bytes, dims);

/** One parameter on one device. */
export interface ParameterCost {
  /**
   * Every microbatch: gathers before the passes, and gradients scattered after the backward pass.
   */
  readonly gatherForwardSeconds: number;
  readonly gatherBackwardSeconds: number;
  readonly scatterSeconds: number;
  /** Once a step: sums of gradients, and gathers of parameters. */
  readonly sumSeconds: number;
  readonly gatherSeconds: number;
  readonly parameterBytes: number;
  readonly gradientBytes: number;
  readonly optimizerBytes: number;
  /** Bytes of the gathered parameter and of its whole gradient, where they exist only briefly. */
  readonly gatheredBytes: number;
  /** The part of `gatheredBytes` that is the parameter. */
  readonly prefetchedBytes: number;
  /** Elements on a device before data ranks cut it, and those that its optimizer updates. */
  readonly elements: number;
  readonly updatedElements: number;
  readonly perMicrobatch: readonly Moved[];
  readonly perStep: readonly Moved[];
}

/**
 * The seconds and bytes of a parameter: exact prices of the same collectives that a plan on the
 * whole mesh has. One with fewer rows than ranks stays whole, as every FSDP implementation keeps
 * it.
 *
 * @param once for FSDP: parameters are gathered once a step and stay, gradients are scattered once
 *   (`reshard=false`), as frameworks do where several microbatches follow each other; they are
 *   whole until then, unless `cutsGradients` or `isOnePass`
 */
export function parameterCost(
  p: CoreParameter,
  mode: StateMode,
  groups: DataGroups,
  once = false,
  moving: StateMoving = {},
): ParameterCost {
  const ranked = rankedParameter(p, groups);
  const moves = new Moves(ranked, moving);
  const { gradientBytes = p.itemBytes, sumsWhole = false } = moving;
  const { cutsGradients = false, isOnePass = false } = moving;
  const ways = { mode, once, gradientBytes, sumsWhole, cutsGradients, isOnePass };
  const cost = modeCost(ranked, moves, ways);
  const { shares = WHOLE, gatheredBytes = 0 } = cost;
  const { localElements, wholeBytes } = ranked;
  const state = p.trained && moving.state !== undefined ? { ...p.state, ...moving.state } : p.state;
  // Norms and biases have one dim; the embedding and the head are outside the layers.
  const castBytes = p.trained && p.isNarrow === true ? (moving.keptWeightBytes ?? 0) : 0;
  return {
    gatherForwardSeconds: cost.gatherForwardSeconds ?? 0,
    gatherBackwardSeconds: cost.gatherBackwardSeconds ?? 0,
    scatterSeconds: cost.scatterSeconds ?? 0,
    sumSeconds: cost.sumSeconds,
    gatherSeconds: cost.gatherSeconds ?? 0,
    // A weight that is gathered for each pass is cast for it.
    parameterBytes:
      localElements *
        (state.parameter * shares.parameter + (gatheredBytes > wholeBytes ? 0 : castBytes)) +
      (cost.keptGatheredBytes ?? 0),
    gradientBytes: localElements * state.gradient * shares.gradient,
    optimizerBytes: localElements * state.optimizer * shares.optimizer,
    gatheredBytes,
    prefetchedBytes: cost.prefetchedBytes ?? 0,
    elements: localElements,
    updatedElements: p.trained ? localElements * shares.optimizer : 0,
    perMicrobatch: moves.perMicrobatch,
    perStep: moves.perStep,
  };
}

/** A parameter on the mesh that its data ranks are part of. */
interface RankedParameter {
  readonly p: CoreParameter;
  readonly mesh: DeviceMesh;
  readonly collectives: CollectiveModel;
  /** Axes that FSDP cuts it over, axes of replicas, and others that leave its gradient pending. */
  readonly shardAxes: readonly string[];
  readonly replicaAxes: readonly string[];
  readonly pendingAxes: readonly string[];
  /** Ranks of the axes that FSDP cuts it over, and of those and the replicas. */
  readonly shardRanks: number;
  readonly dataRanks: number;
  /** On a device, before data ranks cut it. */
  readonly localElements: number;
  readonly localRows: number;
  readonly wholeBytes: number;
  /** False for one with fewer rows than ranks, which FSDP keeps whole. */
  readonly rowsSuffice: boolean;
}

function rankedParameter(p: CoreParameter, groups: DataGroups): RankedParameter {
  const isExpert = p.kind === 'expert';
  const { mesh, collectives } = isExpert ? groups.expert : groups.dense;
  const size = (axis: string): number => mesh.sizes[mesh.names.indexOf(axis)] ?? 1;
  const present = (axes: readonly string[]): string[] => axes.filter((a) => size(a) > 1);
  const count = (axes: readonly string[]): number => product(axes.map((a) => size(a)));
  const shardAxes = present(isExpert ? ['efsdp'] : ['dp_shard', 'cp', 'sp']);
  const replicaAxes = present(['dp_replicate']);
  // Model dims, and for a router every dim that cuts tokens.
  const pendingAxes = present(
    p.kind === 'router' ? ['tp'] : p.pending.filter((a) => !shardAxes.includes(a)),
  );
  const localRows = isExpert ? Math.ceil(p.rows / groups.ep) : p.localRows;
  const localElements = isExpert
    ? (p.localElements / p.rows / groups.etp) * localRows
    : p.localElements;
  const shardRanks = count(shardAxes);
  return {
    p,
    mesh,
    collectives,
    shardAxes,
    replicaAxes,
    pendingAxes,
    shardRanks,
    dataRanks: count([...replicaAxes, ...shardAxes]),
    localElements,
    localRows,
    wholeBytes: localElements * p.itemBytes,
    rowsSuffice: isExpert ? localElements >= shardRanks : p.rows >= p.rowWays * shardRanks,
  };
}

/** Prices the moves of a parameter's states, and lists them. */
class Moves {
  readonly perMicrobatch: Moved[] = [];
  readonly perStep: Moved[] = [];

  constructor(
    private readonly ranked: RankedParameter,
    private readonly moving: StateMoving,
  ) {}

  /** Seconds of a collective over some axes; 0 where it moves nothing. */
  seconds(
    kind: StateMove['kind'],
    bytes: number,
    axes: readonly string[],
    moment: StateMove['moment'] = 'sum',
  ): number {
    if (axes.length === 0 || bytes === 0) return 0;
    const { p: parameter, mesh, collectives } = this.ranked;
    const { priced = alone, listed = true } = this.moving;
    const dims: number[] = [];
    for (let d = 0; d < mesh.names.length; d++) if (axes.includes(mesh.names[d])) dims.push(d);
    const seconds = priced({ kind, bytes, dims, collectives, parameter, moment });
    if (!listed) return seconds;
    const list = EVERY_MICROBATCH.has(moment) ? this.perMicrobatch : this.perStep;
    list.push({
      kind,
      axes: dims.map((d) => mesh.names[d]).join('+'),
      count: 1,
      sentBytes: ringBytes(kind, bytes, mesh.sizeOf(dims)),
      seconds,
    });
    return seconds;
  }
}

const EVERY_MICROBATCH: ReadonlySet<StateMove['moment']> = new Set([
  'forward',
  'backward',
  'scatter',
]);

/** Shares of the elements of a device that it keeps. */
interface Shares {
  readonly parameter: number;
  readonly gradient: number;
  readonly optimizer: number;
}

const WHOLE: Shares = { parameter: 1, gradient: 1, optimizer: 1 };

/** The shares of a parameter under a mode; an absent share is 0, and the others are whole. */
interface ModeCost {
  readonly gatherForwardSeconds?: number;
  readonly gatherBackwardSeconds?: number;
  readonly scatterSeconds?: number;
  readonly sumSeconds: number;
  readonly gatherSeconds?: number;
  readonly gatheredBytes?: number;
  readonly prefetchedBytes?: number;
  /** Bytes of the gathered parameter where it stays for the whole step. */
  readonly keptGatheredBytes?: number;
  readonly shares?: Shares;
}

/** How states are kept and summed. */
interface StateWays {
  readonly mode: StateMode;
  readonly once: boolean;
  /** Bytes of a gradient element as data ranks sum it. */
  readonly gradientBytes: number;
  readonly sumsWhole: boolean;
  readonly cutsGradients: boolean;
  readonly isOnePass: boolean;
}

function modeCost(ranked: RankedParameter, moves: Moves, ways: StateWays): ModeCost {
  const { p, shardAxes, replicaAxes, pendingAxes } = ranked;
  const { mode } = ways;
  const isSharded = mode === 'fsdp' || mode === 'hsdp';
  if (isSharded && ranked.shardRanks > 1 && ranked.rowsSuffice)
    return shardedCost(ranked, moves, ways);
  if (!p.trained) return { sumSeconds: 0 };
  if (!isSharded && mode !== 'dp' && ranked.dataRanks > 1) return zeroCost(ranked, moves, ways);
  const bytes = isSharded ? ranked.wholeBytes : ranked.localElements * ways.gradientBytes;
  const axes = [...replicaAxes, ...shardAxes, ...pendingAxes];
  return { sumSeconds: moves.seconds('all_reduce', bytes, axes) };
}

/** FSDP: parameter, gradient and optimizer state are cut. */
function shardedCost(
  ranked: RankedParameter,
  moves: Moves,
  { once, gradientBytes, cutsGradients, isOnePass }: StateWays,
): ModeCost {
  const { p, shardAxes, shardRanks, localElements } = ranked;
  const shard = shardElements(ranked);
  const share = shard / localElements;
  const bytes = shard * shardRanks * p.itemBytes;
  const summed = shard * shardRanks * gradientBytes;
  const cost = once
    ? {
        gatherSeconds: moves.seconds('all_gather', bytes, shardAxes, 'gather'),
        sumSeconds: p.trained ? moves.seconds('reduce_scatter', summed, shardAxes) : 0,
        shares: {
          parameter: share,
          gradient: cutsGradients || isOnePass ? share : 1,
          optimizer: share,
        },
        keptGatheredBytes: bytes,
        gatheredBytes: isOnePass && p.trained ? ranked.wholeBytes : 0,
      }
    : {
        gatherForwardSeconds: p.usedForward
          ? moves.seconds('all_gather', bytes, shardAxes, 'forward')
          : 0,
        gatherBackwardSeconds: p.usedBackward
          ? moves.seconds('all_gather', bytes, shardAxes, 'backward')
          : 0,
        scatterSeconds: p.trained
          ? moves.seconds('reduce_scatter', summed, shardAxes, 'scatter')
          : 0,
        sumSeconds: 0,
        shares: { parameter: share, gradient: share, optimizer: share },
        prefetchedBytes: bytes,
        gatheredBytes: bytes + (p.trained ? ranked.wholeBytes : 0),
      };
  if (!p.trained) return cost;
  const others = [...ranked.replicaAxes, ...ranked.pendingAxes];
  const pending = moves.seconds('all_reduce', shard * gradientBytes, others, 'pending');
  return { ...cost, sumSeconds: cost.sumSeconds + pending };
}

/** Elements that FSDP leaves a rank: by rows, as the placement cuts dim 0. */
function shardElements({ p, localElements, localRows, shardRanks }: RankedParameter): number {
  // Experts have few rows left: each is cut on its own dims, in equal parts.
  if (p.kind === 'expert') return Math.ceil(localElements / shardRanks);
  return (localElements / localRows) * Math.ceil(localRows / shardRanks);
}

/** ZeRO 1 and 2: optimizer state is cut, and gradients are in ZeRO 2. */
function zeroCost(
  ranked: RankedParameter,
  moves: Moves,
  { mode, gradientBytes, sumsWhole }: StateWays,
): ModeCost {
  const { localElements, wholeBytes, pendingAxes } = ranked;
  const all = [...ranked.replicaAxes, ...ranked.shardAxes];
  const summedBytes = localElements * gradientBytes;
  // Buffers are flat, so that any number of ranks cuts them.
  const share = Math.ceil(localElements / ranked.dataRanks) / localElements;
  const cost =
    mode === 'zero2'
      ? {
          scatterSeconds: moves.seconds('reduce_scatter', summedBytes, all, 'scatter'),
          sumSeconds: 0,
          gatheredBytes: wholeBytes,
          shares: { parameter: 1, gradient: share, optimizer: share },
        }
      : {
          sumSeconds: moves.seconds(sumsWhole ? 'all_reduce' : 'reduce_scatter', summedBytes, all),
          shares: { parameter: 1, gradient: 1, optimizer: share },
        };
  const pending = moves.seconds('all_reduce', summedBytes * share, pendingAxes, 'pending');
  return {
    ...cost,
    sumSeconds: cost.sumSeconds + pending,
    gatherSeconds: moves.seconds('all_gather', wholeBytes, all, 'gather'),
  };
}
