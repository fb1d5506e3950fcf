/**
 * Which values of the groups can be in a choice, for the checker of dual bounds: those with a partner in every table that are
 * not excluded beforehand (arc consistency, also called support). Two edges between the same groups may each leave a value a
 * partner and their sum none. In: summed tables, marks of values. Out: the marks, cleared where no partner is left.
 */
import type { PairTable } from './tables.ts';

/** One mark per value of every leader: 1 where it may be in a choice. */
export type Live = readonly Uint8Array[];

/** Clears the marks of values without a partner that has one, until nothing changes. */
export function prune(tables: Iterable<PairTable>, live: Live): void {
  const holed = [...tables].filter(({ cells }) => cells.includes(Infinity));
  for (let again = true; again;) {
    again = false;
    for (const { one, other, cells } of holed) {
      const [rows, columns] = [live[one], live[other]];
      const columnHasPartner = new Uint8Array(columns.length);
      for (let a = 0, at = 0; a < rows.length; a++) {
        let rowHasPartner = false;
        for (let b = 0; b < columns.length; b++, at++) {
          if (rows[a] === 0 || columns[b] === 0 || cells[at] === Infinity) continue;
          rowHasPartner = true;
          columnHasPartner[b] = 1;
        }
        if (rows[a] === 1 && !rowHasPartner) {
          rows[a] = 0;
          again = true;
        }
      }
      for (let b = 0; b < columns.length; b++) {
        if (columns[b] === 0 || columnHasPartner[b] === 1) continue;
        columns[b] = 0;
        again = true;
      }
    }
  }
}
