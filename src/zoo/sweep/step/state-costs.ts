/**
 * Prices the parameters of a layout and sums their costs by unit. In: the parameters of a program, how data ranks keep and move
 * them. Out: each with its cost, and for each unit the sums that its seconds and bytes are made of. Dense parameters and experts are
 * priced apart, since layouts that differ in their expert groups alone share the former.
 */

import { COLLECTIVE_KINDS, dimsMask } from '../../../cost/collective-model.ts';
import type { StepSoftware } from '../../../cost/kernels/software.ts';
import type { StateBytes } from '../../../cost/memory/state-bytes.ts';
import type { LayoutKind } from '../model/layout.ts';
import { parameterCost, type DataGroups, type Moved, type ParameterCost, type StateMove, type StateMoving } from '../model/states.ts'; // prettier-ignore
import type { CoreParameter } from '../model/types.ts';

/** How software moves what the units of a device have. */
export interface UnitMoving extends Omit<StateMoving, 'priced' | 'state' | 'listed'> {
  /** Elements of a collective that sums gradients or gathers parameters outside FSDP; absent: those of a unit. */
  readonly bucket?: NonNullable<StepSoftware['bucket']>;
  /** How often a device has each unit, a mean over its stages. */
  readonly times: readonly number[];
}

export interface PricedParameter {
  readonly p: CoreParameter;
  readonly cost: ParameterCost;
}

/** The sums by unit, and on demand each parameter with its cost. */
export interface StateCosts {
  readonly costs: () => readonly PricedParameter[];
  readonly sums: readonly StateSums[];
}

type Summed =
  | 'gatherForwardSeconds' | 'gatherBackwardSeconds' | 'scatterSeconds' | 'sumSeconds' | 'gatherSeconds'
  | 'parameterBytes' | 'gradientBytes' | 'optimizerBytes' | 'gatheredBytes' | 'prefetchedBytes' | 'updatedElements'; // prettier-ignore

/** Of the parameters of one unit. */
export type StateSums = Readonly<Record<Summed, number>> & {
  /** Moved to add the gradients of a microbatch to their buffers. */
  readonly addedBytes: number;
  /** Parameters with a gradient. */
  readonly trained: number;
};

export const NO_STATES: StateSums = {
  gatherForwardSeconds: 0, gatherBackwardSeconds: 0, scatterSeconds: 0, sumSeconds: 0, gatherSeconds: 0,
  parameterBytes: 0, gradientBytes: 0, optimizerBytes: 0, gatheredBytes: 0, prefetchedBytes: 0, updatedElements: 0,
  addedBytes: 0, trained: 0,
}; // prettier-ignore

/** Gradients are read, their buffers read and written. */
const ADDED_BYTES = 6;

/** How data ranks keep and move the parameters of a layout. */
interface Keeping {
  readonly mode: LayoutKind['mode'];
  readonly once: boolean;
  readonly groups: DataGroups;
  /** Seconds in which the ends of a pipeline sum these bytes, where there are stages. */
  readonly endsSum?: (bytes: number) => number;
  /** How software moves states, all of a unit in one collective, or several units; absent: each parameter alone. */
  readonly moving?: UnitMoving;
  /** Bytes of an element on a device where they are not those of the parameters. */
  readonly state?: Partial<StateBytes>;
}

/**
 * Costs with their sums, on top of those of other parameters of the same units.
 *
 * @param staged whether a tied parameter lies on two devices, and counts in both units
 */
export function stateCosts(parameters: readonly CoreParameter[], how: Keeping, units: number, staged: boolean, under?: StateCosts): StateCosts {
  const sums = Array.from({ length: units }, (_, u) => ({ ...(under?.sums[u] ?? NO_STATES) }));
  const add = (u: number, { p, cost }: PricedParameter): void => {
    const sum = sums[u];
    sum.gatherForwardSeconds += cost.gatherForwardSeconds;
    sum.gatherBackwardSeconds += cost.gatherBackwardSeconds;
    sum.scatterSeconds += cost.scatterSeconds;
    sum.sumSeconds += cost.sumSeconds;
    sum.gatherSeconds += cost.gatherSeconds;
    sum.parameterBytes += cost.parameterBytes;
    sum.gradientBytes += cost.gradientBytes;
    sum.optimizerBytes += cost.optimizerBytes;
    sum.gatheredBytes += cost.gatheredBytes;
    sum.prefetchedBytes += cost.prefetchedBytes;
    sum.updatedElements += cost.updatedElements;
    if (!p.trained) return;
    sum.addedBytes += ADDED_BYTES * cost.elements;
    sum.trained++;
  };
  for (const priced of parameterCosts(parameters, how, false)) {
    const { unit, alsoUnit } = priced.p;
    add(unit, priced);
    if (staged && alsoUnit !== undefined && alsoUnit !== unit) add(alsoUnit, priced);
  }
  return { costs: () => [...(under?.costs() ?? []), ...parameterCosts(parameters, how, true)], sums };
} // prettier-ignore

/** Every parameter with its cost; its moves only where they are listed. */
function parameterCosts(parameters: readonly CoreParameter[], how: Keeping, listed: boolean): PricedParameter[] {
  const { mode, groups, once, moving, state } = how;
  const ways = { listed, ...(state === undefined ? {} : { state }) };
  const priced = moving === undefined ? undefined : collected(parameters, how, moving);
  const kinds = kindsOf(parameters);
  /** By kind: what moves alone costs the same for parameters of equal sizes. */
  const costs: ParameterCost[] = [];
  return parameters.map((p, i) => {
    const cost =
      priced === undefined
        ? (costs[kinds[i]] ??= parameterCost(p, mode, groups, once, ways))
        : parameterCost(p, mode, groups, once, { ...moving, ...ways, priced });
    if (how.endsSum === undefined || p.alsoUnit === undefined || !p.trained) return { p, cost };
    // The first and the last stage both have it: once a step they sum their gradients (lint rule ZL14).
    const bytes = (cost.gradientBytes / (state?.gradient ?? p.state.gradient)) * p.itemBytes;
    const seconds = how.endsSum(bytes);
    const move: Moved = { kind: 'all_reduce', axes: 'pp', count: 1, sentBytes: bytes, seconds };
    return { p, cost: { ...cost, sumSeconds: cost.sumSeconds + seconds, perStep: [...cost.perStep, move] } };
  });
}

/** Of every parameter a number that those share which differ in their names and units alone. */
function kindsOf(parameters: readonly CoreParameter[]): readonly number[] {
  let found = knownKinds.get(parameters);
  if (found === undefined) {
    const kinds = new Map<string, number>();
    found = parameters.map((p) => {
      const text = JSON.stringify({ ...p, name: '', unit: 0, alsoUnit: 0 });
      const kind = kinds.get(text) ?? kinds.size;
      kinds.set(text, kind);
      return kind;
    });
    knownKinds.set(parameters, found);
  }
  return found;
}

/** Layouts ask of the same few lists. */
const knownKinds = new WeakMap<readonly CoreParameter[], readonly number[]>();

const MOMENTS: readonly StateMove['moment'][] = ['forward', 'backward', 'scatter', 'sum', 'gather', 'pending'];

/** A number for what is moved over the same dims at the same moment, experts apart. */
function groupOf({ kind, dims, moment, parameter }: StateMove): number {
  const part = Number(parameter.kind === 'expert') * COLLECTIVE_KINDS.length + COLLECTIVE_KINDS.indexOf(kind);
  return (part * MOMENTS.length + MOMENTS.indexOf(moment)) * 2 ** MOST_DIMS + dimsMask(dims);
}
/** A mesh of a layout has fewer dims. */
const MOST_DIMS = 8;
const GROUPS = 2 * COLLECTIVE_KINDS.length * MOMENTS.length * 2 ** MOST_DIMS;

/**
 * Prices of moves that several parameters share: frameworks move what a unit has in one collective, and Megatron and DeepSpeed what
 * fills a bucket. Each parameter pays its share.
 */
function collected(parameters: readonly CoreParameter[], { mode, groups, once }: Keeping, moving: UnitMoving): (move: StateMove) => number {
  const isBucketed = moving.bucket !== undefined && mode !== 'fsdp' && mode !== 'hsdp';
  const ofUnits = new Map<number, number>();
  const ofDevice = new Map<number, number>();
  const collect = (move: StateMove): number => {
    const { bytes, parameter: q } = move;
    const group = groupOf(move);
    const unit = q.unit * GROUPS + group;
    ofUnits.set(unit, (ofUnits.get(unit) ?? 0) + bytes);
    ofDevice.set(group, (ofDevice.get(group) ?? 0) + bytes * (moving.times[q.unit] ?? 1));
    return 0;
  };
  for (const p of parameters) parameterCost(p, mode, groups, once, { ...moving, priced: collect, listed: false });
  const known = new Map<number, number>();
  return (move) => {
    const { kind, dims, bytes, parameter: q, collectives } = move;
    const group = groupOf(move);
    const unit = q.unit * GROUPS + group;
    let perByte = known.get(unit);
    if (perByte === undefined) {
      let together = ofUnits.get(unit) ?? bytes;
      if (isBucketed && moving.bucket !== undefined) {
        const { elements, perRank } = moving.bucket;
        const ranks = collectives.mesh.sizeOf(dims);
        const itemBytes = kind === 'all_gather' ? q.itemBytes : (moving.gradientBytes ?? q.itemBytes);
        together = Math.max(together, Math.min(itemBytes * Math.max(elements, perRank * ranks), ofDevice.get(group) ?? 0));
      }
      known.set(unit, (perByte = collectives.seconds(kind, together, dims) / together));
    }
    return perByte * bytes;
  };
} // prettier-ignore
