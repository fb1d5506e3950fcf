/**
 * Chooses the units that save their activations while the others recompute them, within the memory
 * of each stage's device.
 */

import type { Unit } from '../../../step/unit.ts';
import type { HeldBytes } from './held-activations.ts';

/**
 * Results are recomputed only in as many units as memory asks for: from the end of every chunk of a
 * device on, units keep all their results as long as the device stays within its budget (Megatron's
 * block recomputation). A device that does not fit with all recomputed units keeps them all so.
 *
 * @param strict units of each chunk of one device, whose results are recomputed; `plain` the same
 *   units, keeping theirs
 * @param held bytes of all microbatches that are kept, of what one keeps of each chunk
 * @param fixedBytes states, and what is gathered ahead
 * @returns for each chunk how many of its last units keep their results
 */
export function keptUnits(
  strict: readonly (readonly Unit[])[],
  plain: readonly (readonly Unit[])[],
  held: HeldBytes,
  fixedBytes: number,
  budgetBytes: number,
): number[] {
  const counts = strict.map(() => 0);
  const kept = strict.map((list) => list.reduce((sum, u) => sum + u.keptBytes, 0));
  const longest = Math.max(...strict.map((list) => list.length));
  // The most of the first n recomputed units, and of the last n that keep theirs.
  const first = strict.map((list) => mostOf(list));
  const last = plain.map((list) => mostOf([...list].reverse()));
  const temporaryOf = (tried: readonly number[]): number =>
    strict.reduce(
      (most, list, c) => Math.max(most, first[c][list.length - tried[c]], last[c][tried[c]]),
      0,
    );
  for (let r = 1; r <= longest; r++) {
    const next = strict.map((list) => Math.min(r, list.length));
    const grown = kept.map((bytes, c) => {
      if (next[c] === counts[c]) return bytes;
      const i = strict[c].length - next[c];
      return bytes + plain[c][i].keptBytes - strict[c][i].keptBytes;
    });
    if (Math.ceil(fixedBytes + held(grown) + temporaryOf(next)) > budgetBytes) break;
    next.forEach((n, c) => (counts[c] = n));
    grown.forEach((bytes, c) => (kept[c] = bytes));
  }
  return counts;
}

/** For each n the most temporary bytes of the first n units. */
function mostOf(units: readonly Unit[]): number[] {
  const most = [0];
  units.forEach((u, i) => most.push(Math.max(most[i], u.temporaryBytes)));
  return most;
}
