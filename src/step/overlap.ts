/**
 * Splits seconds of communication into what compute hides and what stays visible, for states,
 * tensor-parallel collectives and token exchanges.
 */

import { FITTED } from '../cost/kernels/fitted.ts';
import type { PassSeconds } from './units.ts';

/**
 * The share of compute that can hide collectives, as frameworks overlap them. Collectives of
 * states: the gather of a unit's parameters overlaps with the unit computed before it (FSDP
 * prefetches one), the scatter of its gradients with the unit computed after it; sums of gradients,
 * once in a step, overlap with the last backward pass, gathers of updated parameters with the first
 * forward pass. A stated share of compute can hide them, no second of it hides twice, and compute
 * that overlaps with a collective runs slower, so that nothing is ever free. Both constants were
 * fitted on measured runs (docs/fidelity.md).
 */
const HIDING = 0.8;

/** The part of a hidden second that remains: the slowdown of the compute that it overlaps with. */
const REMAINS = FITTED.overlapSlowdown - 1;

/** The moves of one unit's states, and the seconds of its passes that can hide such moves. */
export interface StateMoves {
  readonly forwardRoom: number;
  readonly backwardRoom: number;
  readonly gatherForward: number;
  readonly gatherBackward: number;
  readonly scatter: number;
  readonly stepSum: number;
  readonly stepGather: number;
}

/** The least visible part of seconds of communication, however much compute they overlap with. */
export function leastVisible(seconds: number): number {
  return seconds * REMAINS;
}

/** Seconds of communication that overlap with seconds of compute. */
export interface Beside {
  /** The seconds that stay visible. */
  readonly seconds: number;
  /** Compute that is taken by it. */
  readonly hidden: number;
}

/**
 * Overlaps communication with compute: the part that fits into the share of compute is hidden, and
 * of that part the slowdown remains.
 */
export function beside(seconds: number, computeSeconds: number): Beside {
  const hidden = Math.min(seconds, HIDING * computeSeconds);
  return { seconds: seconds - hidden * (1 - REMAINS), hidden };
}

/** Seconds in which compute hides collectives of states, where `taken` is taken already. */
export function roomIn(computeSeconds: number, taken: number): number {
  return Math.max(0, HIDING * computeSeconds - taken);
}

/**
 * Gathers and scatters over the tensor dim in one part for each device, overlapped with the
 * products next to them (userbuffers of Megatron-Core, async TP of torchtitan): the first part is
 * in plain view. A sum in one piece cannot be cut so.
 */
export function tensorBeside({ tensorParts, products }: PassSeconds, devices: number): Beside {
  const parts = beside(tensorParts * (1 - 1 / devices), products);
  return { seconds: tensorParts / devices + parts.seconds, hidden: parts.hidden };
}

/**
 * Exchanges of tokens during another microbatch: a device runs a forward pass together with the
 * backward pass of an earlier microbatch, layer by layer; the exchange of one is hidden by the
 * compute of the other. So do DualPipe (arXiv:2412.19437, section 3.2.1) and Megatron-Core
 * (`--overlap-moe-expert-parallel-comm`), which wants interleaved stages (or none) and no layers
 * that are recomputed in full. One pass more fills the pipeline, but each layer of the backward
 * pass frees what a layer of the forward pass keeps, so that no more is kept than one after
 * another, but for the layer at work (megatron-core, `combined_1f1b.py`).
 */
export function exchangeBeside(
  exchange: { readonly forward: number; readonly backward: number },
  room: { readonly forward: number; readonly backward: number },
): PairedExchange {
  // The exchange of a forward pass overlaps with a backward pass, and the other way round.
  const hiddenForward = Math.min(exchange.forward, room.backward);
  const hiddenBackward = Math.min(exchange.backward, room.forward);
  return {
    hiddenForward,
    hiddenBackward,
    savedForward: hiddenForward * (1 - REMAINS),
    savedBackward: hiddenBackward * (1 - REMAINS),
  };
}

/**
 * Exchanges of one unit that hide, by the pass that they belong to, and the seconds that this
 * saves.
 */
interface PairedExchange {
  readonly hiddenForward: number;
  readonly hiddenBackward: number;
  readonly savedForward: number;
  readonly savedBackward: number;
}

/**
 * Passes of a device that run alone in a paired schedule: what fills the pipeline, and one more. As
 * many backward passes run alone at its end.
 */
export function passesAlone(devices: number, chunks: number, microbatches: number): number {
  return Math.min(microbatches * chunks, 2 * (devices - 1) + (chunks - 1) * devices + 1);
}

/**
 * Seconds that units save by hiding, one microbatch through a run of units, and the compute that it
 * takes.
 */
export interface Saved {
  readonly forward: number;
  readonly backward: number;
  readonly hiddenForward: number;
  readonly hiddenBackward: number;
}

/**
 * Seconds that a run of units on one device hides in each pass; in a longer list, from `first` to
 * before `end`.
 */
export function savedInRun(units: readonly StateMoves[], first = 0, end = units.length): Saved {
  let [hiddenForward, hiddenBackward] = [0, 0];
  for (let i = first; i < end; i++) {
    const u = units[i];
    if (i + 1 < end) hiddenForward += Math.min(units[i + 1].gatherForward, u.forwardRoom);
    // Backward the later unit comes first: this one computes, what the later one scatters is on its
    // way, and the earlier one's parameters come.
    const moves =
      (i > first ? units[i - 1].gatherBackward : 0) + (i + 1 < end ? units[i + 1].scatter : 0);
    hiddenBackward += Math.min(moves, u.backwardRoom);
  }
  return {
    forward: hiddenForward * (1 - REMAINS),
    backward: hiddenBackward * (1 - REMAINS),
    hiddenForward,
    hiddenBackward,
  };
}

/**
 * Seconds that a device saves once a step.
 *
 * @param units in the order of the forward pass
 * @param runs what the chunks of the device hide already in one microbatch
 * @param spans its chunks, in that order; default: one of all units
 */
export function savedInStep(
  units: readonly StateMoves[],
  runs: readonly Saved[],
  spans: readonly { readonly first: number; readonly end: number }[] = [
    { first: 0, end: units.length },
  ],
): number {
  let [sums, gathers, backward, forward, takenBackward, takenForward] = [0, 0, 0, 0, 0, 0];
  for (const { first, end } of spans)
    for (let i = first; i < end; i++) {
      const u = units[i];
      sums += u.stepSum;
      gathers += u.stepGather;
      backward += u.backwardRoom;
      forward += u.forwardRoom;
    }
  for (const run of runs) {
    takenBackward += run.hiddenBackward;
    takenForward += run.hiddenForward;
  }
  // The gradients of the first unit are made last, and its parameters are wanted first: nothing
  // hides those.
  sums -= units[spans[0].first].stepSum;
  gathers -= units[spans[0].first].stepGather;
  return (
    (Math.min(sums, backward - takenBackward) + Math.min(gathers, forward - takenForward)) *
    (1 - REMAINS)
  );
}
