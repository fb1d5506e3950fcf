/**
 * Takes the units of a layout and gives the first unit of every chunk of layers: balanced under a
 * memory budget, or as parts of as many layers.
 */

import { internalError } from '../../../errors.ts';
import type { LayoutTuning } from '../../../step/layout.ts';
import { stateBytes, type Unit } from '../../../step/unit.ts';
import { balancedCuts, type CutUnit } from '../../model/balanced-cuts.ts';

/** The built units of a layout, and for every unit of the model the index of its built unit. */
interface StagedUnits {
  readonly units: readonly Unit[];
  readonly built: readonly number[];
}

/** First unit of every chunk, and the number of units. */
export function stageBounds(
  pp: number,
  { units, built }: StagedUnits,
  { schedule, chunks: v }: Pick<LayoutTuning, 'schedule' | 'chunks'>,
  microbatches: number,
  budgetBytes: number,
): readonly number[] {
  if (pp * v === 1) return [0, built.length];
  const cuts = units.map((u): CutUnit => ({
    seconds: u.forward + u.gatherForward + u.input + u.gatherBackward + u.scatter + u.weight,
    stateBytes: stateBytes(u),
    activationBytes: u.keptBytes,
  }));
  const list = built.map((i) => cuts[i]);
  const temporary = Math.max(...units.map((u) => u.temporaryBytes));
  const request = {
    stages: pp * v,
    microbatches,
    schedule: schedule === 'interleaved' ? '1f1b' : schedule,
  } as const;
  const limitBytes = schedule === 'interleaved' ? Infinity : budgetBytes - temporary;
  // A layout that fits nowhere is priced at its fastest cuts, so that the excess can be reported.
  const found =
    balancedCuts(list, { ...request, limitBytes }) ??
    balancedCuts(list, { ...request, limitBytes: Infinity });
  if (found === undefined) throw internalError(`${built.length} units for ${pp * v} stages`);
  return found;
}

/**
 * First unit of every chunk where layers are cut into equal parts; where they do not divide, parts
 * differ by one layer, the first has the more.
 */
export function evenBounds(layers: number, chunks: number): readonly number[] {
  // The units before and after the layers take the places of layers where all parts are then equal.
  if (layers % chunks !== 0 && (layers + 2) % chunks === 0)
    return Array.from({ length: chunks + 1 }, (_, k) => (k * (layers + 2)) / chunks);
  const cut = Array.from({ length: chunks + 1 }, (_, k) => 1 + Math.ceil((k * layers) / chunks));
  return cut.map((unit, k) => (k === 0 ? 0 : k === chunks ? layers + 2 : unit));
}

/** First unit of every chunk where the layers of each are stated. */
export function statedBounds(stageLayers: readonly number[]): readonly number[] {
  const bounds = [0];
  stageLayers.reduce((sum, n) => {
    bounds.push(1 + sum + n);
    return sum + n;
  }, 0);
  bounds[bounds.length - 1]++;
  return bounds;
}
