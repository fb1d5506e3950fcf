/** Finds stretches of lines that repeat: `period` lines that occur `count` times in a row. */
import { itemAt } from '../../item-at.ts';
interface Stretch {
  readonly start: number;
  readonly period: number;
  readonly count: number;
}

/** Periods that are tried at one place, and the longest of them. */
const MAX_TRIED = 8;
const MAX_PERIOD = 4096;

/**
 * Cuts a sequence into stretches, with equal neighbours folded: the layers of a model whose nodes
 * carry no module path. The first place where something repeats wins, and there the repeat that
 * covers most.
 *
 * @param ids equal numbers for equal lines
 * @param leastPeriod shorter repeats are easier to read in full
 */
export function findRepeats(ids: Int32Array, leastPeriod = 1): Stretch[] {
  const nextSame = new Int32Array(ids.length).fill(-1);
  const last = new Map<number, number>();
  for (let i = ids.length - 1; i >= 0; i--) {
    nextSame[i] = last.get(itemAt(ids, i)) ?? -1;
    last.set(itemAt(ids, i), i);
  }
  const out: Stretch[] = [];
  let plain = 0;
  const flush = (end: number): void => {
    if (end > plain) out.push({ start: plain, period: end - plain, count: 1 });
  };
  for (let i = 0; i < ids.length;) {
    let best: Stretch | undefined;
    for (
      let j = itemAt(nextSame, i), tried = 0;
      j >= 0 && j - i <= MAX_PERIOD && tried < MAX_TRIED;
      j = itemAt(nextSame, j), tried++
    ) {
      const period = j - i;
      if (period < leastPeriod) continue;
      let end = j;
      while (end < ids.length && ids[end] === ids[end - period]) end++;
      const count = Math.floor((end - i) / period);
      if (count >= 2 && (best === undefined || count * period > best.count * best.period))
        best = { start: i, period, count };
    }
    if (best === undefined) {
      i++;
      continue;
    }
    flush(i);
    out.push(best);
    i += best.count * best.period;
    plain = i;
  }
  flush(ids.length);
  return out;
}
