/**
 * Gives the cost of every pipeline unit of the whole model under one layout, from the prices of its
 * representative layers.
 */

import { type CallTime, memoryCall, type StepSystem } from '../../cost/kernels/call.ts';
import { trafficSeconds } from '../../cost/kernels/seconds.ts';
import { internalError } from '../../errors.ts';
import { type Checkpoint, programPart, routedPart } from '../checkpoints.ts';
import type { LayoutKind, LayoutSizes } from '../layout.ts';
import { type Beside, exchangeBeside, roomIn, tensorBeside } from '../overlap.ts';
import { type RoutedCosts, type RoutedUnit, routedUnits } from '../read/moe.ts';
import { NO_STATES, type StateSums } from '../state-sums.ts';
import type { DataGroups } from '../states.ts';
import type { Unit } from '../unit.ts';
import type { ByCheckpoint, CoreTraffic, CoreUnit, DataExtra, PassSeconds } from '../units.ts';
import { type Ring, ringSeconds } from './ring.ts';
import type { StateCosts } from './state-costs.ts';
import { tokenExchange } from './token-exchange.ts';

/** The units of a program with what a layout adds to them. */
interface PricedProgram {
  /** Sequences of one microbatch on a data rank. */
  readonly request: { readonly microbatch: number };
  /** The calls before the layers, each layer, the calls after them. */
  readonly units: readonly CoreUnit[];
  /** Small collectives that every data dim adds. */
  readonly extras: readonly DataExtra[];
  /** Collectives on the model dims. */
  readonly traffic: readonly CoreTraffic[];
}

/** The data that the units of a layout are made from. */
export interface UnitRequest {
  readonly core: PricedProgram;
  readonly routed: RoutedCosts | undefined;
  readonly sizes: LayoutSizes;
  readonly kind: LayoutKind;
  readonly checkpoint: Checkpoint;
  /** True if passes of two microbatches overlap (`LayoutTuning.paired`). */
  readonly paired: boolean;
  /** Bytes per second to the host, where what layers keep waits there (`LayoutTuning.offload`). */
  readonly hostBytesPerSecond?: number | undefined;
  readonly groups: DataGroups;
  /** True if collectives overlap with compute. */
  readonly overlaps: boolean;
  readonly system: StepSystem | undefined;
  /** Keys and values of a layer for one sequence, on one of so many tensor-parallel ranks. */
  readonly keyValueBytes: (tp: number) => number;
  /**
   * Every parameter of the built layers with its cost, and the sums of its unit; they depend
   * neither on the checkpointing nor on the schedule.
   */
  readonly states: StateCosts;
}

/**
 * A unit without its states and their moves: layouts that differ in how data ranks keep states
 * alone share it.
 */
export type PassUnit = Omit<
  Unit,
  | 'gatherForward'
  | 'gatherBackward'
  | 'scatter'
  | 'stepGather'
  | 'update'
  | 'parameterBytes'
  | 'gradientBytes'
  | 'optimizerBytes'
  | 'prefetchedBytes'
>;

/** The units of the built layers with what comes before and after them. */
export function unitCosts(request: UnitRequest): Unit[] {
  return withStates(passUnits(request), request);
}

/** Units with the states of a layout and their moves. */
export function withStates(
  units: readonly PassUnit[],
  { states, system }: Pick<UnitRequest, 'states' | 'system'>,
): Unit[] {
  const held = heldShare(system);
  return units.map((u, index): Unit => {
    const own = states.sums[index] ?? NO_STATES;
    return {
      forward: u.forward,
      input: u.input,
      weight: u.weight,
      compute: u.compute,
      exchange: u.exchange,
      pairedForward: u.pairedForward,
      pairedBackward: u.pairedBackward,
      forwardRoom: u.forwardRoom,
      backwardRoom: u.backwardRoom,
      gatherForward: own.gatherForwardSeconds,
      gatherBackward: own.gatherBackwardSeconds,
      scatter: own.scatterSeconds,
      stepSum: u.stepSum + own.sumSeconds,
      stepGather: own.gatherSeconds,
      update:
        system === undefined
          ? 0
          : trafficSeconds(UPDATE_BYTES * own.updatedElements, system.cluster),
      parameterBytes: own.parameterBytes,
      gradientBytes: own.gradientBytes,
      optimizerBytes: own.optimizerBytes,
      keptBytes: u.keptBytes,
      temporaryBytes: u.temporaryBytes + held * own.gatheredBytes,
      prefetchedBytes: held * own.prefetchedBytes,
      boundaryBytes: u.boundaryBytes,
      boundary: u.boundary,
    };
  });
}

/** Bytes that the process holds for a byte that comes and goes. */
function heldShare(system: StepSystem | undefined): number {
  return system?.software.memory?.heldShare ?? 1;
}

/**
 * Units without states and their moves. Gradients are added to their buffers in all modes of a
 * layout alike, since data ranks cut them behind that.
 */
export function passUnits(request: UnitRequest): PassUnit[] {
  const { core, routed, sizes } = request;
  const blocks = routed === undefined ? undefined : routedUnits(routed, sizes);
  if (routed !== undefined && blocks === undefined)
    throw internalError(
      `routed blocks were not priced for ep ${sizes.ep} and etp ${sizes.etp ?? 1}`,
    );
  return core.units.map((_, index) => passUnit(request, index, blocks?.[index]));
}

/** One unit without states and their moves, with its routed block. */
function passUnit(request: UnitRequest, index: number, block: RoutedUnit | undefined): PassUnit {
  const { core, sizes, checkpoint, paired, groups } = request;
  const u = core.units[index];
  const work = unitWork(request, index, block);
  const { moved, compute, exchange, backwardExchange } = work;
  const kept = under(u.keptBytes, checkpoint) + (block?.keptBytes[routedPart(checkpoint)] ?? 0);
  const keptWithout = u.keptBytes.none + (block?.keptBytes.none ?? 0);
  const { forward, input, weight, second } = moved;
  // Parts of tensor parallelism pass the links of a host; the moves of data ranks between hosts
  // overlap with the same compute.
  const taken = (move: Move): number =>
    groups.overHosts ? move.hidden - move.inside : move.hidden;
  const room = {
    forward: roomIn(compute.forward, taken(forward)),
    backward: roomIn(compute.input + compute.weight, taken(input) + taken(weight) + taken(second)),
  };
  const hides = paired
    ? exchangeBeside({ forward: exchange, backward: backwardExchange }, room)
    : ALONE;
  const extra = (pass: string): number => extraSeconds(request, index, pass);
  const held = heldShare(request.system);
  const host = onHost(request, index, kept, compute);
  return {
    forward: compute.forward + forward.seconds + exchange + extra('forward') + host.forward,
    input:
      compute.input +
      input.seconds +
      second.seconds +
      backwardExchange +
      extra('input') +
      host.backward,
    weight: compute.weight + weight.seconds,
    compute: compute.forward + compute.input + compute.weight,
    exchange: exchange + backwardExchange,
    pairedForward: hides.savedForward,
    pairedBackward: hides.savedBackward,
    forwardRoom: room.forward - hides.hiddenBackward,
    backwardRoom: room.backward - hides.hiddenForward,
    stepSum: u.stepSeconds,
    keptBytes: held * (kept - host.bytes),
    // A unit whose results are recomputed has them all briefly. Of what waits on the host a device
    // has that of the layer at work, and of the one that comes or goes.
    temporaryBytes:
      held *
      (Math.max(u.temporaryBytes, block?.temporaryBytes ?? 0) +
        Math.max(0, keptWithout - kept) +
        2 * host.bytes),
    boundaryBytes: u.boundaryBytes,
    boundary: sizes.pp === 1 ? 0 : boundarySeconds(u.boundaryBytes, request),
  };
}

/** Bytes of a unit that wait on the host, and the seconds by which they come and go too late. */
function onHost(
  { core, hostBytesPerSecond }: UnitRequest,
  index: number,
  kept: number,
  compute: UnitWork['compute'],
): { readonly bytes: number; readonly forward: number; readonly backward: number } {
  const isLayer = index > 0 && index < core.units.length - 1;
  if (hostBytesPerSecond === undefined || !isLayer) return { bytes: 0, forward: 0, backward: 0 };
  const seconds = kept / hostBytesPerSecond;
  return {
    bytes: kept,
    forward: Math.max(0, seconds - compute.forward),
    backward: Math.max(0, seconds - compute.input - compute.weight),
  };
}

/** Seconds of the passes of a unit. */
interface UnitWork {
  /** Seconds of kernels, with the waits for the host. */
  readonly compute: Readonly<Record<'forward' | 'input' | 'weight', number>>;
  readonly moved: ModelMoves;
  /** Exchanges of tokens with experts in one forward pass, and in the backward pass. */
  readonly exchange: number;
  readonly backwardExchange: number;
}

function unitWork(request: UnitRequest, index: number, block: RoutedUnit | undefined): UnitWork {
  const { core, routed, checkpoint, groups, states, system } = request;
  const u = core.units[index];
  const part = routedPart(checkpoint);
  const exchange =
    block === undefined || routed === undefined
      ? 0
      : exchanged(groups, block.dispatchBytes, routed, system?.software);
  const secondExchange = part === 'full' ? exchange : 0;
  const moved = withLargest(
    modelMoves(u, request),
    block === undefined ? ALL_CASTS : ATTENTION_CASTS,
    index > 0 && index < core.units.length - 1,
    request,
  );
  const twice = secondRun(u, request);
  const again = twice.compute + (block?.recomputeSeconds[part] ?? 0);
  const added = accumulated(states.sums[index] ?? NO_STATES, system);
  const waits = hostWaits(
    {
      forward: u.forward.compute + (block?.forwardSeconds ?? 0) + moved.forward.seconds + exchange,
      backward:
        u.backwardInput.compute +
        u.backwardWeight.compute +
        (block?.inputSeconds ?? 0) +
        (block?.weightSeconds ?? 0) +
        moved.input.seconds +
        moved.weight.seconds +
        exchange +
        added.seconds,
      again: again + moved.second.seconds + secondExchange,
    },
    {
      forward: u.forward.kernels + (block?.kernels.forward ?? 0),
      backward:
        u.backwardInput.kernels +
        u.backwardWeight.kernels +
        (block?.kernels.backward ?? 0) +
        added.kernels,
      again: twice.kernels + (part === 'full' ? (block?.kernels.forward ?? 0) : 0),
    },
    system,
  );
  return {
    moved,
    exchange,
    backwardExchange: exchange + secondExchange,
    compute: {
      forward: u.forward.compute + (block?.forwardSeconds ?? 0) + waits.forward,
      input:
        u.backwardInput.compute + again + (block?.inputSeconds ?? 0) + waits.backward + waits.again,
      weight: u.backwardWeight.compute + (block?.weightSeconds ?? 0) + added.seconds,
    },
  };
}

/** Seconds of the unit's other collectives over data ranks in a pass. */
function extraSeconds({ core, groups }: UnitRequest, unit: number, pass: string): number {
  const { mesh, collectives } = groups.dense;
  return core.extras.reduce((total, e) => {
    if (e.unit !== unit || e.pass !== pass) return total;
    return mesh.names.reduce((t, name, d) => {
      const isData = name === 'dp_replicate' || name === 'dp_shard';
      return isData ? t + collectives.seconds(e.kind as 'all_reduce', e.bytes, [d]) : t;
    }, total);
  }, 0);
}

const ALONE = { hiddenForward: 0, hiddenBackward: 0, savedForward: 0, savedBackward: 0 };

/** The recomputed part of a unit. */
function secondRun(u: CoreUnit, { checkpoint, system }: UnitRequest): PassSeconds {
  return checkpoint === 'full' && system?.software.recomputesWhole === true
    ? u.forward
    : under(u.again, checkpoint);
}

/** A figure of a program under what is recomputed. */
export function under<T>(figures: ByCheckpoint<T>, checkpoint: Checkpoint): T {
  const part = programPart(checkpoint);
  if (!Object.hasOwn(figures, part))
    throw internalError(`a program was not priced with ${part} recomputed`);
  return figures[part];
}

/** Adam reads and writes gradient, master copy and moments of each element. */
const UPDATE_BYTES = 32;

/**
 * Gradients of a unit are added to their buffers with every microbatch: read, read, and written.
 */
function accumulated({ addedBytes, trained }: StateSums, system: StepSystem | undefined): CallTime {
  if (system === undefined) return { seconds: 0, kernels: 0 };
  return memoryCall(addedBytes, Math.min(ADDING_KERNELS, trained), system);
}
const ADDING_KERNELS = 8;

type Passes = Readonly<Record<'forward' | 'backward' | 'again', number>>;

/**
 * Seconds that the device waits in each pass of a unit, because the host launches its kernels
 * slower than they run.
 */
function hostWaits(device: Passes, kernels: Passes, system: StepSystem | undefined): Passes {
  if (system === undefined) return { forward: 0, backward: 0, again: 0 };
  const { software, constants } = system;
  const each = software.compiled ? constants.compiledHostSeconds : constants.eagerHostSeconds;
  // A host that waits for each kernel prepares none while one runs.
  const wait = (pass: keyof Passes): number =>
    software.blockingLaunches === true
      ? kernels[pass] * each
      : Math.max(0, kernels[pass] * each - device[pass]);
  return { forward: wait('forward'), backward: wait('backward'), again: wait('again') };
}

/**
 * Seconds of a message to the next stage. A residual stream that all tensor-parallel devices have
 * is sent in parts, one by each, and gathered behind the hop.
 */
function boundarySeconds(
  bytes: number,
  { sizes, kind, groups: { dense }, system }: UnitRequest,
): number {
  const { collectives, mesh } = dense;
  if (system === undefined) return collectives.seconds('collective_permute', bytes, [0]);
  const parts = sizes.tp > 1 && !kind.sequenceParallel ? sizes.tp : 1;
  const gathered = parts > 1 ? collectives.seconds('all_gather', bytes, mesh.resolve(['tp'])) : 0;
  return (
    collectives.seconds('collective_permute', bytes / parts, [0]) +
    gathered +
    system.constants.hopHostSeconds
  );
}

/**
 * The visible and hidden seconds of collectives on the model dims; `inside`: the hidden seconds
 * that belong to tensor parallelism.
 */
interface Move extends Beside {
  readonly inside: number;
}

/** Seconds of tokens on their way to experts and back, where the former may be narrower. */
function exchanged(
  groups: DataGroups,
  bytes: number,
  routed: RoutedCosts,
  software: StepSystem['software'] | undefined,
): number {
  const one = (share: number): number =>
    tokenExchange(groups, share * bytes, routed, software?.expertTokensOnce).seconds;
  return one((software?.sentBytes ?? 2) / 2) + one(1);
}

/**
 * Casts of a layer whose operand tensor-parallel ranks have in parts: forward of attention's and
 * the feed-forward layer's input, backward of their results.
 */
const ALL_CASTS = 2;
const ATTENTION_CASTS = 1;

/** With what devices of a cut sequence say of their largest values, a number at a time. */
function withLargest(
  moves: ModelMoves,
  casts: number,
  inLayer: boolean,
  { sizes, kind, groups: { dense }, system }: UnitRequest,
): ModelMoves {
  if (system?.software.largest !== 'tensor' || sizes.tp === 1 || !kind.sequenceParallel || !inLayer)
    return moves;
  const seconds = casts * dense.collectives.seconds('all_reduce', 4, dense.mesh.resolve(['tp']));
  const more = (move: Move): Move => ({ ...move, seconds: move.seconds + seconds });
  return { ...moves, forward: more(moves.forward), input: more(moves.input) };
}

/**
 * Collectives on the model dims by pass: what is visible of them, and the compute that hides the
 * rest.
 */
interface ModelMoves {
  readonly forward: Move;
  readonly input: Move;
  readonly weight: Move;
  /** The moves of the recomputed pass. */
  readonly second: Move;
}

function modelMoves(u: CoreUnit, request: UnitRequest): ModelMoves {
  const { sizes, kind, checkpoint, overlaps } = request;
  const again = secondRun(u, request);
  if (!overlaps) {
    const plain = (p: PassSeconds): Move => ({ seconds: p.communication, hidden: 0, inside: 0 });
    return {
      forward: plain(u.forward),
      input: plain(u.backwardInput),
      weight: plain(u.backwardWeight),
      second: plain(again),
    };
  }
  const tensor = (p: PassSeconds): Move => {
    const share = request.system?.software.tensorOverlap ?? 1;
    const parts = tensorBeside({ ...p, tensorParts: share * p.tensorParts }, sizes.tp);
    return {
      seconds: p.communication - share * p.tensorParts + parts.seconds,
      hidden: parts.hidden,
      inside: parts.hidden,
    };
  };
  const moves = {
    forward: tensor(u.forward),
    input: tensor(u.backwardInput),
    weight: tensor(u.backwardWeight),
    second: tensor(again),
  };
  if (kind.context !== 'ring' || u.context === undefined) return moves;
  const ring = ringOf(request);
  const passed = (move: Move, instead: number, turns: Beside): Move => ({
    ...move,
    seconds: move.seconds - instead + turns.seconds,
    hidden: move.hidden + turns.hidden,
  });
  const { forward, backward } = u.context;
  const second = under(u.context.again, checkpoint);
  return {
    forward: passed(moves.forward, forward.seconds, ringSeconds(forward, ring, 'forward')),
    // Keys and values go round once more together with their gradients.
    input: passed(moves.input, backward.seconds, ringSeconds(backward, ring, 'backward')),
    weight: moves.weight,
    second: passed(moves.second, second.seconds, ringSeconds(second, ring, 'forward')),
  };
}

/**
 * The ring of a layout: keys and values of a rank, of the heads that the model makes, before they
 * are repeated for its queries.
 */
export function ringOf({ core, sizes, groups: { dense }, keyValueBytes }: UnitRequest): Ring {
  const cp = dense.mesh.resolve(['cp']);
  return {
    ranks: sizes.cp,
    blockBytes: (core.request.microbatch * keyValueBytes(sizes.tp)) / sizes.cp,
    hop: (bytes) => dense.collectives.seconds('collective_permute', bytes, cp),
  };
}
