/** Groups neighbouring mesh dims with one placement, to limit placements on meshes of many dims. */

import type { ShardingSpace } from '../mesh/sharding/space.ts';

/**
 * On meshes of many dims most placements set every mesh dim to something else, and no plan that
 * people run does. What is kept there is all that some mesh of fewer dims could say: neighbouring
 * mesh dims that do the same count as one stretch, and a sharding or a strategy has at most so many
 * stretches. Which neighbours act as one is free for every call.
 */
export const MOST_RUNS = 3;

/**
 * Stretches of neighbouring mesh dims, those of one device apart, that have one placement; where
 * they cut one tensor dim, one after another in its order.
 */
export function runsOf(space: ShardingSpace, id: number): number {
  const { sizes } = space.mesh;
  const { orders } = space.get(id);
  let runs = 0;
  let last = -1;
  for (let m = 0; m < space.meshRank; m++) {
    if (sizes[m] === 1) continue;
    const order = (orders.get(space.dimAt(id, m)) ?? []).filter((d) => sizes[d] > 1);
    const goesOn =
      last >= 0 &&
      space.kindAt(id, m) === space.kindAt(id, last) &&
      (order.length === 0 || order.indexOf(m) === order.indexOf(last) + 1);
    if (!goesOn) runs++;
    last = m;
  }
  return runs;
}
