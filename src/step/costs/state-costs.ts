/**
 * Prices the parameters of a layout, given how data ranks keep and move them, and sums their costs
 * by unit. Dense parameters and experts are priced separately, since layouts that differ in their
 * expert groups alone share the former.
 */

import { dimsMask } from '../../cost/collective-model.ts';
import type { StepSoftware } from '../../cost/kernels/software.ts';
import type { StateBytes } from '../../cost/memory/state-bytes.ts';
import { defined } from '../../defined.ts';
import { COLLECTIVE_KINDS } from '../../mesh/collective-kinds.ts';
import type { LayoutKind } from '../layout.ts';
import { ADDED_BYTES, NO_STATES, type StateSums } from '../state-sums.ts';
import {
  type DataGroups,
  type Moved,
  type ParameterCost,
  parameterCost,
  type StateMove,
  type StateMoving,
} from '../states.ts';
import type { CoreParameter } from '../units.ts';

/** How software moves what the units of a device have. */
export interface UnitMoving extends Omit<StateMoving, 'priced' | 'state' | 'listed'> {
  /**
   * Elements of a collective that sums gradients or gathers parameters outside FSDP; absent: those
   * of a unit.
   */
  readonly bucket?: NonNullable<StepSoftware['bucket']>;
  /** How often a device has each unit, a mean over its stages. */
  readonly times: readonly number[];
  /** Parameters of a unit are gathered one after the other, not together. */
  readonly gathersByWeight?: boolean;
}

/** How a device moves states under some software. @param times as in the result */
export function unitMoving(
  { gradientBytes, overlap, bucket, keptWeightBytes, memory }: StepSoftware,
  times: readonly number[],
): UnitMoving {
  const { cutsGradients, gathersByWeight } = memory ?? {};
  return {
    gradientBytes,
    sumsWhole: !overlap,
    ...defined({ bucket, keptWeightBytes, cutsGradients, gathersByWeight }),
    times,
  };
}

interface PricedParameter {
  readonly p: CoreParameter;
  readonly cost: ParameterCost;
}

/** The sums by unit, and on demand each parameter with its cost. */
export interface StateCosts {
  readonly costs: () => readonly PricedParameter[];
  readonly sums: readonly StateSums[];
}

/** How data ranks keep and move the parameters of a layout. */
interface Keeping {
  readonly mode: LayoutKind['mode'];
  readonly once: boolean;
  readonly groups: DataGroups;
  /** Seconds in which the ends of a pipeline sum these bytes, where there are stages. */
  readonly endsSum?: (bytes: number) => number;
  /**
   * How software moves states, all of a unit in one collective, or several units; absent: each
   * parameter alone.
   */
  readonly moving?: UnitMoving;
  /** Bytes of an element on a device where they are not those of the parameters. */
  readonly state?: Partial<StateBytes>;
  /** A step is one pass: its gradients are not added up, and FSDP cuts each where it is made. */
  readonly isOnePass?: boolean;
}

/**
 * Costs with their sums, on top of those of other parameters of the same units.
 *
 * @param staged whether a tied parameter lies on two devices, and counts in both units
 */
export function stateCosts(
  parameters: readonly CoreParameter[],
  how: Keeping,
  units: number,
  staged: boolean,
  under?: StateCosts,
): StateCosts {
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
    if (how.moving?.gathersByWeight === true) {
      sum.gatheredBytes = Math.max(sum.gatheredBytes, cost.gatheredBytes);
      sum.prefetchedBytes = Math.max(sum.prefetchedBytes, cost.prefetchedBytes);
    } else {
      sum.gatheredBytes += cost.gatheredBytes;
      sum.prefetchedBytes += cost.prefetchedBytes;
    }
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
  return {
    costs: () => [...(under?.costs() ?? []), ...parameterCosts(parameters, how, true)],
    sums,
  };
}

/** Every parameter with its cost; its moves only where they are listed. */
function parameterCosts(
  parameters: readonly CoreParameter[],
  how: Keeping,
  listed: boolean,
): PricedParameter[] {
  const { mode, groups, once, moving, state, isOnePass } = how;
  const ways = { listed, ...defined({ state }) };
  const alike = alikeIn(parameters);
  const priced = moving === undefined ? undefined : collected(parameters, alike, how, moving);
  const moves = { ...moving, ...ways, ...defined({ priced, isOnePass }) };
  /** Parameters of equal sizes cost the same in units that have the same parameters. */
  const costs: ParameterCost[] = [];
  return parameters.map((p, i) => {
    const cost = (costs[alike.costs[i]] ??= parameterCost(p, mode, groups, once, moves));
    if (how.endsSum === undefined || p.alsoUnit === undefined || !p.trained) return { p, cost };
    // The first and the last stage both have it: once a step they sum their gradients (lint rule
    // ZL14).
    const bytes = (cost.gradientBytes / (state?.gradient ?? p.state.gradient)) * p.itemBytes;
    const seconds = how.endsSum(bytes);
    const move: Moved = { kind: 'all_reduce', axes: 'pp', count: 1, sentBytes: bytes, seconds };
    return {
      p,
      cost: { ...cost, sumSeconds: cost.sumSeconds + seconds, perStep: [...cost.perStep, move] },
    };
  });
}

/** Numbers that parameters of a list share. */
interface Alike {
  /** With those that differ in their names and units alone. */
  readonly kinds: readonly number[];
  /** With those of the same kind in units whose parameters are of the same kinds. */
  readonly costs: readonly number[];
}

function alikeIn(parameters: readonly CoreParameter[]): Alike {
  let found = known.get(parameters);
  if (found === undefined) {
    const kinds = numbered(
      parameters.map((p) => JSON.stringify({ ...p, name: '', unit: 0, alsoUnit: 0 })),
    );
    const ofUnit = new Map<number, string>();
    parameters.forEach(({ unit }, i) => ofUnit.set(unit, `${ofUnit.get(unit) ?? ''} ${kinds[i]}`));
    const costs = numbered(parameters.map(({ unit }, i) => `${kinds[i]} in${ofUnit.get(unit)}`));
    known.set(parameters, (found = { kinds, costs }));
  }
  return found;
}

/** Layouts ask of the same few lists. */
const known = new WeakMap<readonly CoreParameter[], Alike>();

/** Gives every text a number that equal ones share. */
function numbered(texts: readonly string[]): number[] {
  const numbers = new Map<string, number>();
  return texts.map((text) => {
    const number = numbers.get(text) ?? numbers.size;
    numbers.set(text, number);
    return number;
  });
}

const MOMENTS: readonly StateMove['moment'][] = [
  'forward',
  'backward',
  'scatter',
  'sum',
  'gather',
  'pending',
];

/** A number for what is moved over the same dims at the same moment, experts apart. */
function groupOf({ kind, dims, moment, parameter }: StateMove): number {
  const part =
    Number(parameter.kind === 'expert') * COLLECTIVE_KINDS.length + COLLECTIVE_KINDS.indexOf(kind);
  return (part * MOMENTS.length + MOMENTS.indexOf(moment)) * 2 ** MOST_DIMS + dimsMask(dims);
}
/** A mesh of a layout has fewer dims. */
const MOST_DIMS = 8;
const GROUPS = 2 * COLLECTIVE_KINDS.length * MOMENTS.length * 2 ** MOST_DIMS;

/**
 * Prices of moves that several parameters share: frameworks move what a unit has in one collective,
 * and Megatron and DeepSpeed what fills a bucket. Each parameter pays its share.
 */
function collected(
  parameters: readonly CoreParameter[],
  alike: Alike,
  { mode, groups, once }: Keeping,
  moving: UnitMoving,
): (move: StateMove) => number {
  const isBucketed = moving.bucket !== undefined && mode !== 'fsdp' && mode !== 'hsdp';
  const ofUnits = new Map<number, number>();
  const ofDevice = new Map<number, number>();
  /** By kind of parameter. */
  const moves: { readonly group: number; readonly bytes: number }[][] = [];
  const movesOf = (p: CoreParameter): { readonly group: number; readonly bytes: number }[] => {
    const list: { readonly group: number; readonly bytes: number }[] = [];
    const priced = (move: StateMove): number => {
      list.push({ group: groupOf(move), bytes: move.bytes });
      return 0;
    };
    parameterCost(p, mode, groups, once, { ...moving, priced, listed: false });
    return list;
  };
  parameters.forEach((p, i) => {
    for (const { group, bytes } of (moves[alike.kinds[i]] ??= movesOf(p))) {
      const unit = p.unit * GROUPS + group;
      ofUnits.set(unit, (ofUnits.get(unit) ?? 0) + bytes);
      ofDevice.set(group, (ofDevice.get(group) ?? 0) + bytes * (moving.times[p.unit] ?? 1));
    }
  });
  const perBytes = new Map<number, number>();
  return (move) => {
    const { kind, dims, bytes, parameter: q, collectives } = move;
    const group = groupOf(move);
    const unit = q.unit * GROUPS + group;
    let perByte = perBytes.get(unit);
    if (perByte === undefined) {
      let together = ofUnits.get(unit) ?? bytes;
      if (isBucketed && moving.bucket !== undefined) {
        const { elements, perRank } = moving.bucket;
        const ranks = collectives.mesh.sizeOf(dims);
        const itemBytes =
          kind === 'all_gather' ? q.itemBytes : (moving.gradientBytes ?? q.itemBytes);
        together = Math.max(
          together,
          Math.min(itemBytes * Math.max(elements, perRank * ranks), ofDevice.get(group) ?? 0),
        );
      }
      perBytes.set(unit, (perByte = collectives.seconds(kind, together, dims) / together));
    }
    return perByte * bytes;
  };
}
