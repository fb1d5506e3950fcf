/** Tests on small sizes whether a user's placement keeps the promises of the interface. */

import { checkKinds } from '../../arguments.ts';
import type { PlacementKinds } from '../placements/kinds.ts';
import type { Placement } from '../placements/placement.ts';
import { parsePlacement } from './parse.ts';

/** Sizes on which a placement is tried. */
interface Trial {
  readonly size: number;
  readonly n: number;
}

/**
 * Checks that a placement keeps the promises of the interface, for kinds that users add: rows are
 * disjoint and complete, `join` undoes `split`, sizes and evenness agree with it, `withDim` changes
 * only the dim, and the text reads back.
 *
 * @returns one sentence for each broken promise; empty when it is sound on these sizes
 */
export function placementFaults(
  p: Placement,
  trials: readonly Trial[],
  kinds?: PlacementKinds,
): string[] {
  checkKinds('placementFaults', {
    p: [p, 'placement'],
    trials: [trials, 'records'],
    kinds: [kinds, ['register', 'remove', 'list'], 'undefined'],
  });
  const faults = trials.flatMap((trial) =>
    trialFaults(p, trial).map(
      (what) => `${p.text} of ${trial.size} rows on ${trial.n} ranks${what}`,
    ),
  );
  if (!p.equals(p.dim === undefined ? p : p.withDim(p.dim)))
    faults.push(`${p.text} does not equal itself`);
  if (p.identity === undefined) {
    const read = parsePlacement(p.text, kinds === undefined ? {} : { kinds });
    if (!read.equals(p)) faults.push(`'${p.text}' reads back as '${read.text}'`);
  }
  return faults;
}

/** Faults on one size, each as the end of a sentence. */
function trialFaults(p: Placement, { size, n }: Trial): string[] {
  const refused = p.refusal(size, n);
  if (refused !== undefined)
    return p.isEven(size, n) ? [` is refused (${refused}) and yet called even`] : [];
  const parts = p.split(size, n);
  if (parts.length !== n) return [` is split for ${parts.length} ranks`];
  const lost = p.dim === undefined ? [] : rowFaults(parts.flat(), size);
  if (lost.length > 0) return lost;
  return [
    ...sizeFaults(
      p,
      { size, n },
      parts.map((rows) => rows.length),
    ),
    ...joinFaults(p.join(parts, size), size),
    ...(p.dim === undefined ? [] : moveFaults(p.withDim(p.dim + 1), p.dim + 1, { size, n }, parts)),
  ];
}

/** Each row is held by one rank. */
function rowFaults(rows: readonly number[], size: number): string[] {
  const owners = new Int32Array(size);
  let outside = 0;
  for (const row of rows) {
    if (Number.isInteger(row) && row >= 0 && row < size) owners[row]++;
    else outside++;
  }
  const wrong = owners.findIndex((count) => count !== 1);
  return [
    ...(outside > 0 ? [`: ${outside} rows are outside 0..${size - 1}`] : []),
    ...(wrong >= 0 ? [`: row ${wrong} is held by ${owners[wrong]} ranks`] : []),
  ];
}

/** `localSize` and `isEven` say what `split` does. */
function sizeFaults(p: Placement, { size, n }: Trial, sizes: readonly number[]): string[] {
  const faults = sizes.flatMap((length, r) => {
    const said = p.localSize(size, n, r);
    return said === length ? [] : [`: rank ${r} holds ${length} rows, localSize says ${said}`];
  });
  const most = Math.max(...sizes);
  if (p.localSize(size, n) !== most)
    faults.push(`: largest part has ${most} rows, not ${p.localSize(size, n)}`);
  if (p.isEven(size, n) && sizes.some((length) => length !== sizes[0]))
    faults.push(` is called even, but ranks hold ${sizes.join(', ')} rows`);
  return faults;
}

function joinFaults(joined: readonly number[], size: number): string[] {
  const isWhole = joined.length === size && joined.every((row, i) => row === i);
  return isWhole ? [] : [': join does not undo split'];
}

/** The placement with another dim cuts that dim alike. */
function moveFaults(
  moved: Placement,
  dim: number,
  { size, n }: Trial,
  parts: readonly (readonly number[])[],
): string[] {
  if (moved.dim !== dim) return [`: withDim(${dim}) has dim ${moved.dim}`];
  const isSame = JSON.stringify(moved.split(size, n)) === JSON.stringify(parts);
  return isSame ? [] : [`: withDim(${dim}) cuts otherwise`];
}
