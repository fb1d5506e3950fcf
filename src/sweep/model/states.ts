/**
 * Prices the states of one parameter (gather, gradient reduction, optimizer step) under each ZeRO
 * mode, in seconds and bytes.
 */

import type { CollectiveModel } from '../../cost/collective-model.ts';
import type { StateBytes } from '../../cost/memory/state-bytes.ts';
import type { DeviceMesh } from '../../mesh/devices/mesh.ts';
import { ringBytes } from '../../recipes/compare/price.ts';
import type { StateMode } from '../../recipes/zero-mode.ts';
import type { CoreParameter } from './types.ts';

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
  /** Bytes of the parameter alone, out of the former. */
  readonly prefetchedBytes: number;
  /** On a device before data ranks cut it, and those that its optimizer updates. */
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
 *   (`reshard=false`), as frameworks do where several microbatches follow each other
 */
export function parameterCost(
  p: CoreParameter,
  mode: StateMode,
  groups: DataGroups,
  once = false,
  {
    gradientBytes = p.itemBytes,
    sumsWhole = false,
    state: kept,
    priced = alone,
    listed = true,
    keptWeightBytes = 0,
  }: StateMoving = {},
): ParameterCost {
  const { mesh, collectives } = p.kind === 'expert' ? groups.expert : groups.dense;
  const size = (axis: string): number => mesh.sizes[mesh.names.indexOf(axis)] ?? 1;
  const present = (axes: readonly string[]): string[] => axes.filter((a) => size(a) > 1);
  const shardAxes = present(p.kind === 'expert' ? ['efsdp'] : ['dp_shard', 'cp', 'sp']);
  const replicaAxes = present(['dp_replicate']);
  // The other dims that leave the gradient pending: model dims, and for a router every dim that
  // cuts tokens.
  const pendingAxes = present(
    p.kind === 'router' ? ['tp'] : p.pending.filter((a) => !shardAxes.includes(a)),
  );
  const localElements =
    p.kind === 'expert'
      ? (p.localElements / p.rows / groups.etp) * Math.ceil(p.rows / groups.ep)
      : p.localElements;
  const localRows = p.kind === 'expert' ? Math.ceil(p.rows / groups.ep) : p.localRows;
  const wholeBytes = localElements * p.itemBytes;
  const count = (axes: readonly string[]): number => axes.reduce((n, a) => n * size(a), 1);
  const ranks = count(shardAxes);

  // Norms and biases have one dim; the embedding and the head are outside the layers.
  const castBytes = p.trained && p.isNarrow === true ? keptWeightBytes : 0;
  const state = p.trained && kept !== undefined ? { ...p.state, ...kept } : p.state;

  const perMicrobatch: Moved[] = [];
  const perStep: Moved[] = [];
  const price = (
    list: Moved[],
    kind: Parameters<CollectiveModel['seconds']>[0],
    bytes: number,
    axes: readonly string[],
    moment: StateMove['moment'] = 'sum',
  ): number => {
    if (axes.length === 0 || bytes === 0) return 0;
    const dims: number[] = [];
    for (let d = 0; d < mesh.names.length; d++) if (axes.includes(mesh.names[d])) dims.push(d);
    const seconds = priced({ kind, bytes, dims, collectives, parameter: p, moment });
    if (!listed) return seconds;
    const names = dims.map((d) => mesh.names[d]).join('+');
    list.push({
      kind,
      axes: names,
      count: 1,
      sentBytes: ringBytes(kind, bytes, mesh.sizeOf(dims)),
      seconds,
    });
    return seconds;
  };
  let [
    gatherForwardSeconds,
    gatherBackwardSeconds,
    scatterSeconds,
    sumSeconds,
    gatherSeconds,
    gathered,
    prefetchedBytes,
    keptGathered,
  ] = [0, 0, 0, 0, 0, 0, 0, 0];
  let shares = { parameter: 1, gradient: 1, optimizer: 1 };
  const shardElements = (): number => {
    // By rows for FSDP, as the placement cuts dim 0.
    return (localElements / localRows) * Math.ceil(localRows / ranks);
  };
  const rowsSuffice = p.kind === 'expert' ? localElements >= ranks : p.rows >= p.rowWays * ranks;
  if (mode === 'fsdp' || mode === 'hsdp') {
    if (ranks > 1 && rowsSuffice) {
      // Experts have few rows left: each is cut on its own dims, in equal parts.
      const shard = p.kind === 'expert' ? Math.ceil(localElements / ranks) : shardElements();
      const share = shard / localElements;
      shares = { parameter: share, gradient: share, optimizer: share };
      const bytes = shard * ranks * p.itemBytes;
      const summed = shard * ranks * gradientBytes;
      if (once) {
        gatherSeconds += price(perStep, 'all_gather', bytes, shardAxes, 'gather');
        if (p.trained) sumSeconds += price(perStep, 'reduce_scatter', summed, shardAxes);
        shares = { parameter: share, gradient: 1, optimizer: share };
        keptGathered = bytes;
      } else {
        if (p.usedForward)
          gatherForwardSeconds += price(perMicrobatch, 'all_gather', bytes, shardAxes, 'forward');
        if (p.usedBackward)
          gatherBackwardSeconds += price(perMicrobatch, 'all_gather', bytes, shardAxes, 'backward');
        if (p.trained)
          scatterSeconds += price(perMicrobatch, 'reduce_scatter', summed, shardAxes, 'scatter');
        prefetchedBytes = bytes;
        gathered = bytes + (p.trained ? wholeBytes : 0);
      }
      if (p.trained)
        sumSeconds += price(
          perStep,
          'all_reduce',
          shard * gradientBytes,
          [...replicaAxes, ...pendingAxes],
          'pending',
        );
    } else if (p.trained) {
      sumSeconds += price(perStep, 'all_reduce', wholeBytes, [
        ...replicaAxes,
        ...shardAxes,
        ...pendingAxes,
      ]);
    }
  } else if (p.trained) {
    const all = [...replicaAxes, ...shardAxes];
    const n = count(all);
    const summedBytes = localElements * gradientBytes;
    if (mode === 'dp' || n === 1)
      sumSeconds += price(perStep, 'all_reduce', summedBytes, [...all, ...pendingAxes]);
    else {
      // Buffers are flat, so that any number of ranks cuts them.
      const share = Math.ceil(localElements / n) / localElements;
      if (mode === 'zero2') {
        scatterSeconds += price(perMicrobatch, 'reduce_scatter', summedBytes, all, 'scatter');
        gathered = wholeBytes;
        shares = { parameter: 1, gradient: share, optimizer: share };
      } else {
        sumSeconds += price(perStep, sumsWhole ? 'all_reduce' : 'reduce_scatter', summedBytes, all);
        shares = { parameter: 1, gradient: 1, optimizer: share };
      }
      sumSeconds += price(perStep, 'all_reduce', summedBytes * share, pendingAxes, 'pending');
      gatherSeconds += price(perStep, 'all_gather', wholeBytes, all, 'gather');
    }
  }
  return {
    gatherForwardSeconds,
    gatherBackwardSeconds,
    scatterSeconds,
    sumSeconds,
    gatherSeconds,
    // A weight that is gathered for each pass is cast for it.
    parameterBytes:
      localElements *
        (state.parameter * shares.parameter + (gathered > wholeBytes ? 0 : castBytes)) +
      keptGathered,
    gradientBytes: localElements * state.gradient * shares.gradient,
    optimizerBytes: localElements * state.optimizer * shares.optimizer,
    gatheredBytes: gathered,
    prefetchedBytes,
    elements: localElements,
    updatedElements: p.trained ? localElements * shares.optimizer : 0,
    perMicrobatch,
    perStep,
  };
}
