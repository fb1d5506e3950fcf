/**
 * The states of a placed program by unit: how parameters are gathered before their use, how
 * gradients are summed behind it, and what both take of a device. Trainers move what a unit has in
 * one collective, or fill buckets with it, so that moves of one unit, moment and group are priced
 * together.
 */

import type { StepSoftware } from '../../cost/kernels/software.ts';
import type { Optimizer, StateBytes } from '../../cost/memory/state-bytes.ts';
import { DTYPE_BYTES } from '../../graph/types.ts';
import { COLLECTIVE_KINDS } from '../../mesh/collective-kinds.ts';
import { elements } from '../../ops/record/record.ts';
import type { Routes } from '../../plan/choice/routes.ts';
import type { Model } from '../../plan/model/model.ts';
import { softwareState } from '../facts.ts';
import { ADDED_BYTES, NO_STATES, type StateSums } from '../state-sums.ts';
import type { GraphUnits } from './graph-units.ts';
import type { Move } from './moves/pending-sums.ts';

/** A placed program, and where the trainer keeps its states otherwise than the plan says. */
interface PlacedStates {
  readonly model: Model;
  readonly choice: Int32Array;
  readonly routes: Routes;
  readonly units: GraphUnits;
  readonly moves: readonly Move[];
  readonly software?: StepSoftware | undefined;
  /** The optimizer of the request; absent: that of the software. */
  readonly optimizer?: Optimizer | undefined;
  /** The parameter (node) whose gradient a value is; below 0 for other values. */
  readonly gradientOf: Int32Array;
  /** Absent: one stage. */
  readonly staged?: StagedStates | undefined;
  /** Parameters (nodes) whose states are counted elsewhere. */
  readonly apart?: ReadonlySet<number> | undefined;
}

/** States in a pipeline, where the first and the last stage both have a tied table. */
export interface StagedStates {
  readonly stages: number;
  /**
   * True if gathered weights stay for the step, and gradients are scattered once in it: a pipeline
   * has several microbatches in flight, for each of which FSDP would gather them again.
   */
  readonly once: boolean;
  /** Seconds in which both ends sum a gradient of so many bytes on each device. */
  readonly endsSum: (bytes: number) => number;
  /** The two units of a parameter (node) that both ends have. */
  readonly ends: ReadonlyMap<number, readonly [number, number]>;
}

/** The tensors that a unit moves in one collective. */
interface Group {
  readonly unit: number;
  readonly moment: Moment;
  readonly kind: (typeof COLLECTIVE_KINDS)[number];
  readonly dims: readonly number[];
  /** Bytes of an element as it is moved. */
  readonly itemBytes: number;
  bytes: number;
}

/** Gathers before a pass, scatters of gradients behind it, and whole sums once a step. */
type Moment = 'forward' | 'backward' | 'scatter' | 'sum';

const SECONDS = {
  forward: 'gatherForwardSeconds',
  backward: 'gatherBackwardSeconds',
  scatter: 'scatterSeconds',
  sum: 'sumSeconds',
} as const satisfies typeof ONCE;

/** The same where weights are gathered before the first forward pass and stay. */
const ONCE: Readonly<Record<Moment, keyof StateSums | undefined>> = {
  forward: 'gatherSeconds',
  backward: undefined,
  scatter: 'sumSeconds',
  sum: 'sumSeconds',
};

type MutableSums = { -readonly [key in keyof StateSums]: StateSums[key] };

/** The sums of every unit's states, and the mesh dims that they move over. */
export function planStates(placed: PlacedStates): {
  readonly sums: readonly StateSums[];
  readonly dims: ReadonlySet<number>;
} {
  const sums = Array.from({ length: placed.units.count }, (): MutableSums => ({ ...NO_STATES }));
  const groups = groupsOf(placed);
  const perByte = pricesPerByte(placed, groups);
  const secondsOf = placed.staged?.once === true ? ONCE : SECONDS;
  groups.forEach((group, i) => {
    const key = secondsOf[group.moment];
    if (key !== undefined) sums[group.unit][key] += group.bytes * perByte[i];
  });
  addBytes(placed, sums);
  return { sums, dims: new Set(groups.flatMap(({ dims }) => dims)) };
}

/** Moves of parameters and gradients by unit, moment, kind and mesh dims. */
function groupsOf(placed: PlacedStates): Group[] {
  const { model, units, moves, software, gradientOf, staged } = placed;
  const groups = new Map<string, Group>();
  for (const { use, kind: what, node, steps } of moves) {
    if (what === 'activation') continue;
    const { dtype } = model.flow.values[use.value].meta;
    const own = DTYPE_BYTES[dtype];
    const itemBytes = what === 'gradient' ? (software?.gradientBytes ?? own) : own;
    for (const step of steps) {
      const kind = COLLECTIVE_KINDS.find((k) => k === step.kind);
      // Trainers store rows in the order in which they gather them (`_S` of DTensor).
      if (kind === undefined || kind === 'collective_permute') continue;
      const moment = momentOf(what, kind, units.pass[node] === 'forward');
      const root = units.root[model.flow.values[use.value].node];
      const parameter = what === 'weight' ? root : gradientOf[use.value];
      // A tied table is one parameter, which units share.
      const unitsOf = staged?.ends.get(parameter) ?? [units.unit[what === 'weight' ? root : node]];
      const bytes = (step.bytes * itemBytes) / own;
      for (const unit of unitsOf) {
        const key = `${unit} ${moment} ${kind} ${step.meshDims.join()} ${itemBytes}`;
        const known = groups.get(key);
        if (known === undefined)
          groups.set(key, { unit, moment, kind, dims: step.meshDims, itemBytes, bytes });
        else known.bytes += bytes;
      }
    }
  }
  return [...groups.values()];
}

function momentOf(what: Move['kind'], kind: Group['kind'], forward: boolean): Moment {
  if (what === 'weight') return forward ? 'forward' : 'backward';
  return kind === 'all_reduce' ? 'sum' : 'scatter';
}

/** Seconds of a byte of each group, in the collective that it is part of. */
function pricesPerByte(
  { model, software, units, staged }: PlacedStates,
  groups: readonly Group[],
): number[] {
  // A stage has its share of the layers, and one of the ends at most.
  const share = ({ unit }: Group): number =>
    unit === 0 || unit === units.count - 1 ? 1 : 1 / (staged?.stages ?? 1);
  const kindOf = ({ moment, kind, dims, itemBytes }: Group): string =>
    `${moment} ${kind} ${dims.join()} ${itemBytes}`;
  const ofDevice = new Map<string, number>();
  for (const group of groups)
    ofDevice.set(kindOf(group), (ofDevice.get(kindOf(group)) ?? 0) + share(group) * group.bytes);
  return groups.map((group) => {
    const { moment, kind, dims, itemBytes, bytes } = group;
    // Buckets are filled with what is summed once a step; FSDP moves units.
    const bucket = moment === 'sum' ? software?.bucket : undefined;
    const ranks = model.space.mesh.sizeOf(dims);
    const together =
      bucket === undefined
        ? bytes
        : Math.max(
            bytes,
            Math.min(
              itemBytes * Math.max(bucket.elements, bucket.perRank * ranks),
              ofDevice.get(kindOf(group)) ?? 0,
            ),
          );
    return together === 0 ? 0 : model.collectives.seconds(kind, together, dims) / together;
  });
}

/** Adds what parameters, gradients and optimizer states take, and what is gathered of them. */
function addBytes(placed: PlacedStates, sums: readonly MutableSums[]): void {
  const { model, choice, units, staged } = placed;
  const used = usedElements(placed);
  const kept = {
    once: staged?.once === true,
    cutsGradients: placed.software?.memory?.cutsGradients === true,
  };
  for (const [n, bytes] of model.stateBytes) {
    if (placed.apart?.has(n) === true) continue;
    const { dtype } = model.flow.values[model.flow.results[n][0]].meta;
    const own = softwareState(placed.software, placed.optimizer, dtype);
    const trained = bytes.gradient > 0;
    const state = {
      ...bytes,
      ...(trained ? own : undefined),
      local: bytes.localElements[choice[model.nodeVariable[n]]],
      trained,
    };
    const ends = staged?.ends.get(n);
    for (const unit of ends ?? [units.unit[n]]) {
      addParameter(sums[unit], state, used.get(n), kept);
      // The first and the last stage both have it: once a step they sum their gradients (lint rule
      // ZL14).
      if (ends !== undefined && trained)
        sums[unit].sumSeconds += staged?.endsSum(state.local * DTYPE_BYTES[dtype]) ?? 0;
    }
  }
}

function addParameter(
  sum: MutableSums,
  { local, trained, ...state }: StateBytes & { readonly local: number; readonly trained: boolean },
  used: UsedElements | undefined,
  { once, cutsGradients }: { readonly once: boolean; readonly cutsGradients: boolean },
): void {
  const { forward = 0, backward = 0, itemBytes = 0, keptElements = 0 } = used ?? {};
  const whole = Math.max(local, forward, backward);
  const isOnce = once && whole > local;
  const isKept = isOnce || keptElements > 0;
  sum.parameterBytes += (isOnce ? whole : keptElements) * itemBytes;
  sum.parameterBytes += local * state.parameter;
  sum.gradientBytes += (isOnce && !cutsGradients ? whole : local) * state.gradient;
  sum.optimizerBytes += local * state.optimizer;
  if (whole > local) {
    // What is kept is there already when it is needed.
    sum.prefetchedBytes += isKept ? 0 : whole * itemBytes;
    sum.gatheredBytes += isOnce ? 0 : (Number(!isKept) + Number(trained)) * whole * itemBytes;
  }
  if (!trained) return;
  sum.addedBytes += ADDED_BYTES * whole;
  sum.trained++;
  // A program that updates its parameters itself has the calls for it.
  if (state.optimizer > 0) sum.updatedElements += local;
}

/** Elements of a parameter on a device as its calls take it, by pass. */
interface UsedElements {
  readonly forward: number;
  readonly backward: number;
  /** Elements of the copy that stays from one pass to the other; 0 if none does. */
  readonly keptElements: number;
  readonly itemBytes: number;
}

/** Elements of each parameter on a device as its calls take it. */
function usedElements({
  model,
  units,
  routes,
  moves,
}: PlacedStates): ReadonlyMap<number, UsedElements> {
  const found = new Map<number, { -readonly [key in keyof UsedElements]: UsedElements[key] }>();
  for (const { use, kind, kept } of moves) {
    if (kind !== 'weight' || use.at.kind !== 'input') continue;
    const { node, meta } = { ...model.flow.values[use.value] };
    const parameter = units.root[node];
    const itemBytes = DTYPE_BYTES[meta.dtype];
    const taken = elements(model.space.localShape(routes.demanded(use), meta.shape));
    const pass = use.phase === 'forward' ? 'forward' : 'backward';
    const known = found.get(parameter) ?? { forward: 0, backward: 0, keptElements: 0, itemBytes };
    known[pass] = Math.max(known[pass], taken);
    if (kept) known.keptElements = Math.max(known.keptElements, taken);
    found.set(parameter, known);
  }
  return found;
}
