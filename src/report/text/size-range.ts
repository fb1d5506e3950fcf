/** Prints the plan at both ends of its symbolic sizes as a table. */

import type { RangeEnd } from '../../plan/questions/size-range.ts';
import { percentText, secondsText, tableText } from '../../units.ts';

/** The plan at the ends of the sizes that its program admits, as a table. */
export function endsText(ends: readonly RangeEnd[]): string {
  if (ends.length === 0) return 'range      the program states no range of sizes';
  const rows = ends.map(({ sizes, seconds, refused, bestSeconds, regret }) => [
    Object.entries(sizes)
      .map(([name, size]) => `${name} = ${size}`)
      .join(', '),
    seconds === null ? '-' : secondsText(seconds),
    bestSeconds === null ? '-' : secondsText(bestSeconds),
    regret === null ? (refused ?? 'there is no plan') : `at most ${percentText(regret)} to save`,
  ]);
  return tableText([['sizes', 'this plan', 'best there', ''], ...rows], [1, 2]);
}
