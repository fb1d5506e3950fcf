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
    trials: [trials, 'list'],
    kinds: [kinds, ['register', 'remove', 'list'], 'undefined'],
  });
  const faults: string[] = [];
  for (const { size, n } of trials) {
    const at = `${p.text} of ${size} rows on ${n} ranks`;
    const refused = p.refusal(size, n);
    if (refused !== undefined) {
      if (p.isEven(size, n)) faults.push(`${at} is refused (${refused}) and yet called even`);
      continue;
    }
    const parts = p.split(size, n);
    if (parts.length !== n) {
      faults.push(`${at} is split for ${parts.length} ranks`);
      continue;
    }
    if (p.dim !== undefined) {
      const owners = new Int32Array(size);
      let outside = 0;
      for (const row of parts.flat()) {
        if (Number.isInteger(row) && row >= 0 && row < size) owners[row]++;
        else outside++;
      }
      if (outside > 0) faults.push(`${at}: ${outside} rows are outside 0..${size - 1}`);
      const wrong = owners.findIndex((count) => count !== 1);
      if (wrong >= 0) faults.push(`${at}: row ${wrong} is held by ${owners[wrong]} ranks`);
      if (outside > 0 || wrong >= 0) continue;
    }
    const sizes = parts.map((rows) => rows.length);
    sizes.forEach((length, r) => {
      const said = p.localSize(size, n, r);
      if (said !== length)
        faults.push(`${at}: rank ${r} holds ${length} rows, localSize says ${said}`);
    });
    const most = Math.max(...sizes);
    if (p.localSize(size, n) !== most)
      faults.push(`${at}: largest part has ${most} rows, not ${p.localSize(size, n)}`);
    if (p.isEven(size, n) && sizes.some((length) => length !== sizes[0]))
      faults.push(`${at} is called even, but ranks hold ${sizes.join(', ')} rows`);
    const joined = p.join(parts, size);
    if (joined.length !== size || joined.some((row, i) => row !== i))
      faults.push(`${at}: join does not undo split`);
    if (p.dim !== undefined) {
      const moved = p.withDim(p.dim + 1);
      if (moved.dim !== p.dim + 1) faults.push(`${at}: withDim(${p.dim + 1}) has dim ${moved.dim}`);
      else if (JSON.stringify(moved.split(size, n)) !== JSON.stringify(parts))
        faults.push(`${at}: withDim(${p.dim + 1}) cuts otherwise`);
    }
  }
  if (!p.equals(p.dim === undefined ? p : p.withDim(p.dim)))
    faults.push(`${p.text} does not equal itself`);
  if (p.identity === undefined) {
    const read = parsePlacement(p.text, kinds === undefined ? {} : { kinds });
    if (!read.equals(p)) faults.push(`'${p.text}' reads back as '${read.text}'`);
  }
  return faults;
}
