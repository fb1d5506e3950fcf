/**
 * Per-operator checkpointing of one region: every operator's result is kept or recomputed. Some are
 * not free to choose: results without bytes of their own are kept, views are taken again, what is
 * written in place goes with its owner.
 */

import { checkItems, checkKinds } from '../../arguments.ts';
import { ShardwrightError } from '../../errors.ts';
import { bestKept } from './knapsack.ts';

/** One operator of a region that may be recomputed: its seconds, and the bytes of its result. */
export interface RegionOp {
  readonly seconds: number;
  readonly bytes: number;
  /** A view of another result: no bytes, taken again whenever its base is there. */
  readonly view?: boolean;
  /** Writes into the result of this operator: both are kept or neither. */
  readonly inPlaceOf?: number;
  /**
   * Draws random numbers: all such operators are kept or none, because recomputation draws them in
   * the same order.
   */
  readonly random?: boolean;
}

/** Operators that are kept together or recomputed together. */
interface RegionGroup {
  bytes: number;
  seconds: number;
  readonly members: number[];
}

/** Which results of a region are kept, by operator, and what recomputing the others takes. */
export interface RegionChoice {
  readonly keep: readonly boolean[];
  readonly recomputeSeconds: number;
  readonly keptBytes: number;
}

/**
 * The choice of least recompute time whose kept results fit.
 *
 * @throws E_USAGE when an in-place operator names none of the region
 */
export function chooseRegion(ops: readonly RegionOp[], limitBytes: number): RegionChoice {
  checkKinds('chooseRegion', { ops: [ops, 'list'], limitBytes: [limitBytes, 'number'] });
  checkItems('chooseRegion', 'ops', ops, ['bytes', 'seconds']);
  const list = regionGroups(ops);
  const { kept } = bestKept(list, limitBytes);
  const keep = new Array<boolean>(ops.length).fill(false);
  let keptBytes = 0;
  for (const g of kept) {
    keptBytes += list[g].bytes;
    for (const i of list[g].members) keep[i] = true;
  }
  // Without bytes and without time there is nothing to decide: kept.
  for (const { bytes, members } of list) if (bytes === 0) for (const i of members) keep[i] = true;
  const recomputeSeconds = ops.reduce((sum, op, i) => (keep[i] ? sum : sum + op.seconds), 0);
  return { keep, recomputeSeconds, keptBytes };
}

/**
 * The groups of a region in the order of their first operators; views are in none.
 *
 * @throws E_USAGE when an in-place operator names none of the region
 */
export function regionGroups(ops: readonly RegionOp[]): RegionGroup[] {
  const owner = ops.map((_, i) => ownerOf(ops, i));
  const drawers = new Set(ops.flatMap((op, i) => (op.random === true ? [owner[i]] : [])));
  const firstDrawer = Math.min(...drawers);
  const groups = new Map<number, RegionGroup>();
  ops.forEach((op, i) => {
    if (op.view === true) return;
    const key = drawers.has(owner[i]) ? firstDrawer : owner[i];
    let group = groups.get(key);
    if (group === undefined) groups.set(key, (group = { bytes: 0, seconds: 0, members: [] }));
    group.bytes += op.bytes;
    group.seconds += op.seconds;
    group.members.push(i);
  });
  return [...groups.values()];
}

function ownerOf(ops: readonly RegionOp[], start: number): number {
  let i = start;
  for (let hops = 0; ops[i].inPlaceOf !== undefined; hops++) {
    const next = ops[i].inPlaceOf as number;
    if (!(next >= 0 && next < ops.length) || hops > ops.length)
      throw new ShardwrightError(
        'E_USAGE',
        `operator ${start} writes in place into ${next}, which is not an operator of the region`,
      );
    i = next;
  }
  return i;
}
