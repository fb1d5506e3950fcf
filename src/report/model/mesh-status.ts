/** Words the meshes of a comparison and the refusals of its plans, for terminal and page. */

import type { Comparison } from '../../recipes/compare/comparison.ts';
import { countText } from '../../units.ts';

/** How many meshes came to each status: `3 solved, 2 bounded`. */
export function meshCountsText({ meshes }: Pick<Comparison, 'meshes'>): string {
  const counts = new Map<string, number>();
  for (const { status } of meshes) counts.set(status, (counts.get(status) ?? 0) + 1);
  return [...counts].map(([status, n]) => `${countText(n)} ${status}`).join(', ');
}

/** A reason behind its code, where it has one. */
export function codedReason(code: string | undefined, reason: string): string {
  return code === undefined ? reason : `${code} ${reason}`;
}
