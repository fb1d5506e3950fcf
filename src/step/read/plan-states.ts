/**
 * The states of a placed program by unit: how parameters are gathered before their use, how
 * gradients are summed behind it, and what both take of a device. Trainers move what a unit has in
 * one collective, or fill buckets with it, so that moves of one unit, moment and group are priced
 * together.
 */

import type { StepSoftware } from '../../cost/kernels/software.ts';
import type { Optimizer } from '../../cost/memory/state-bytes.ts';
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
} as const satisfies Readonly<Record<Moment, keyof StateSums>>;

type MutableSums = { -readonly [key in keyof StateSums]: StateSums[key] };

/** The sums of every unit's states, and the mesh dims that they move over. */
export function planStates(placed: PlacedStates): {
  readonly sums: readonly StateSums[];
  readonly dims: ReadonlySet<number>;
} {
  const sums = Array.from({ length: placed.units.count }, (): MutableSums => ({ ...NO_STATES }));
  const groups = groupsOf(placed);
  const perByte = pricesPerByte(placed, groups);
  groups.forEach((group, i) => {
    sums[group.unit][SECONDS[group.moment]] += group.bytes * perByte[i];
  });
  addBytes(placed, sums);
  return { sums, dims: new Set(groups.flatMap(({ dims }) => dims)) };
}

/** Moves of parameters and gradients by unit, moment, kind and mesh dims. */
function groupsOf(placed: PlacedStates): Group[] {
  const { model, units, moves, software } = placed;
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
      // A tied table is one parameter, which units share.
      const unit =
        units.unit[what === 'weight' ? units.root[model.flow.values[use.value].node] : node];
      const key = `${unit} ${moment} ${kind} ${step.meshDims.join()} ${itemBytes}`;
      const known = groups.get(key);
      const bytes = (step.bytes * itemBytes) / own;
      if (known === undefined)
        groups.set(key, { unit, moment, kind, dims: step.meshDims, itemBytes, bytes });
      else known.bytes += bytes;
    }
  }
  return [...groups.values()];
}

function momentOf(what: Move['kind'], kind: Group['kind'], forward: boolean): Moment {
  if (what === 'weight') return forward ? 'forward' : 'backward';
  return kind === 'all_reduce' ? 'sum' : 'scatter';
}

/** Seconds of a byte of each group, in the collective that it is part of. */
function pricesPerByte({ model, software }: PlacedStates, groups: readonly Group[]): number[] {
  const kindOf = ({ moment, kind, dims, itemBytes }: Group): string =>
    `${moment} ${kind} ${dims.join()} ${itemBytes}`;
  const ofDevice = new Map<string, number>();
  for (const group of groups)
    ofDevice.set(kindOf(group), (ofDevice.get(kindOf(group)) ?? 0) + group.bytes);
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
  const { model, choice, units } = placed;
  const used = usedElements(placed);
  for (const [n, bytes] of model.stateBytes) {
    const sum = sums[units.unit[n]];
    const local = bytes.localElements[choice[model.nodeVariable[n]]];
    const trained = bytes.gradient > 0;
    const { dtype } = model.flow.values[model.flow.results[n][0]].meta;
    const own = softwareState(placed.software, placed.optimizer, dtype);
    const state = trained ? { ...bytes, ...own } : bytes;
    const { forward = 0, backward = 0, itemBytes = 0, keptElements = 0 } = used.get(n) ?? {};
    const whole = Math.max(local, forward, backward);
    const isKept = keptElements > 0;
    sum.parameterBytes += keptElements * itemBytes;
    sum.parameterBytes += local * state.parameter;
    sum.gradientBytes += local * state.gradient;
    sum.optimizerBytes += local * state.optimizer;
    if (whole > local) {
      // What is kept is there already when it is needed.
      sum.prefetchedBytes += isKept ? 0 : whole * itemBytes;
      sum.gatheredBytes += (Number(!isKept) + Number(trained)) * whole * itemBytes;
    }
    if (!trained) continue;
    sum.addedBytes += ADDED_BYTES * whole;
    sum.trained++;
    // A program that updates its parameters itself has the calls for it.
    if (state.optimizer > 0) sum.updatedElements += local;
  }
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
