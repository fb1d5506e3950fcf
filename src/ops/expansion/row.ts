/**
 * A rule on one mesh dim as the product of rules sees it, and what it asks of the tensors of its
 * call.
 */

import type { TensorMeta } from '../record/record.ts';
import type { RuleSlot, ShardSlot, TakenRows } from '../record/rule.ts';

/** A rule on one mesh dim: its slots for inputs and outputs, and their kind codes. */
export interface Row {
  readonly rule: number;
  readonly slots: readonly RuleSlot[];
  readonly codes: Int32Array;
  /** The slots that cut, see `shardsOf`. */
  readonly shards: readonly ShardPlace[];
  /**
   * True if a slot cuts inside the indices of other dims: its code depends on the mesh dims before.
   */
  readonly strided: boolean;
  /** Rows that its rule takes of tensors that it leaves whole, see `Rule.takes`. */
  readonly takes: TakenRows | undefined;
}

/** A slot that cuts: its tensor, and the later ones of the same index. */
interface ShardPlace {
  readonly t: number;
  readonly slot: ShardSlot;
  readonly mates: readonly { readonly t: number; readonly slot: ShardSlot }[];
}

/** The cuts of a rule, and which of them belong together. */
export function shardsOf(slots: readonly RuleSlot[]): ShardPlace[] {
  const cuts = slots.flatMap((slot, t) => (slot?.kind === 'shard' ? [{ t, slot }] : []));
  return cuts.map(({ t, slot }, i) => ({
    t,
    slot,
    mates: cuts.slice(i + 1).filter((mate) => mate.slot.tie === slot.tie),
  }));
}

/**
 * Tells whether a slot asks nothing of a cut but to be the same, or even, where its tie group needs
 * it.
 */
export function takesAnyCut(slot: ShardSlot): boolean {
  return slot.slicing !== 'contiguous' && !slot.scaled && slot.unit === 1;
}

/**
 * The conditions of a row beyond equal cuts: its slots with needs of their own, and the pairs that
 * are tied.
 */
export interface RowNeeds {
  readonly singles: readonly { readonly t: number; readonly slot: ShardSlot }[];
  readonly pairs: readonly {
    readonly t: number;
    readonly dim: number;
    readonly u: number;
    readonly mate: number;
  }[];
  /** Tied dims of unequal size that are not scaled: the row is never right. */
  readonly dead: boolean;
}

/** Tells whether two rows have the same kinds in every place. */
export function someLookEqual(rows: readonly Row[]): boolean {
  if (rows.length > 64) return new Set(rows.map((row) => row.codes.join())).size < rows.length;
  for (let a = 0; a < rows.length; a++)
    for (let b = a + 1; b < rows.length; b++) {
      let t = 0;
      while (t < rows[a].codes.length && rows[a].codes[t] === rows[b].codes[t]) t++;
      if (t === rows[a].codes.length) return true;
    }
  return false;
}

const NO_NEEDS: RowNeeds = { singles: [], pairs: [], dead: false };

export function needsOf(row: Row, tensors: readonly (TensorMeta | null)[]): RowNeeds {
  if (row.shards.length === 0) return NO_NEEDS;
  const singles: { t: number; slot: ShardSlot }[] = [];
  const pairs: { t: number; dim: number; u: number; mate: number }[] = [];
  let dead = false;
  for (const place of row.shards) {
    const { t, slot, mates } = place;
    const meta = tensors[t];
    if (meta === null) {
      dead = true;
      continue;
    }
    if (slot.even || slot.scaled || slot.unit > 1 || slot.filled || slot.slicing === 'contiguous')
      singles.push(place);
    for (const mate of mates) {
      // A view's rule says where in the merged dim it cuts, whatever other mesh dims do.
      if (slot.inside !== null || mate.slot.inside !== null) continue;
      const other = tensors[mate.t];
      const scaled = slot.scaled || mate.slot.scaled;
      if (other === null || (!scaled && meta.shape[slot.dim] !== other.shape[mate.slot.dim]))
        dead = true;
      else pairs.push({ t, dim: slot.dim, u: mate.t, mate: mate.slot.dim });
    }
  }
  return { singles, pairs, dead };
}
