/**
 * A bound by parts, for the checker of dual bounds. A tree splits the values of a variable into those that it lists and all
 * others, so that the two sides hold every choice whatever it lists; a leaf has numbers that bound the choices of its part, or
 * prices alone and how often the checker has to sweep (`sweeps.ts`). The
 * least of these bounds holds for all choices.
 */
import { Refused } from '../store.ts';
import type { DualCertificate, DualPart, DualSplit, Problem } from '../../types.ts';
import type { Ground } from './ground.ts';
import type { Live } from './live.ts';

/** The least bound over the parts that hold a choice; undefined where none does. @throws Refused for a bad tree */
export function leastOverParts(
  ground: Ground,
  problem: Problem,
  whole: DualCertificate & { readonly tree: DualSplit },
  live: Live,
): bigint | undefined {
  let least: bigint | undefined;
  const open: { readonly part: DualPart; readonly live: Live }[] = [{ part: whole.tree, live }];
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const { part, live: marks } = next;
    if (!('variable' in part)) {
      if ('sweeps' in part && 'messages' in part) throw new Refused('a part has both messages and sweeps');
      const bound = 'sweeps' in part ? ground.sweptBound(part, whole, marks) : ground.bound(part, marks);
      if (least === undefined || bound < least) least = bound;
      continue;
    }
    const { variable, values, parts } = part;
    if (!(Number.isInteger(variable) && variable >= 0 && variable < problem.domains.length))
      throw new Refused(`there is no variable ${variable} to split`);
    if (!Array.isArray(values) || !Array.isArray(parts) || parts.length !== 2)
      throw new Refused(`the split of variable ${variable} has not two sides`);
    const listed = new Set<number>(values);
    parts.forEach((side, k) => {
      const kept = ground.part(marks, variable, (own) => listed.has(own) === (k === 0));
      if (kept !== undefined) open.push({ part: side, live: kept });
    });
  }
  return least;
}
