/**
 * Which values to keep under a byte limit so that the most recompute time is saved: a 0/1 knapsack.
 * Sizes need not be whole numbers: the exact solver walks the frontier of (bytes, seconds) instead
 * of a grid of memory quanta.
 */

import { checkItems, checkKinds } from '../../arguments.ts';
import { ShardwrightError } from '../../errors.ts';

/** One value that may be kept instead of being recomputed. */
export interface KeepItem {
  readonly bytes: number;
  /** Time to compute it again. */
  readonly seconds: number;
}

/** Which values are kept, the seconds that they save and the bytes that they take. */
export interface KeepChoice {
  /** Sum of the seconds of what is kept. */
  readonly savedSeconds: number;
  readonly keptBytes: number;
  /** Positions in the list, ascending. */
  readonly kept: readonly number[];
}

/** A set of choices of the first items: its sums, and how it was reached. */
interface Point {
  readonly bytes: number;
  readonly seconds: number;
  readonly item: number;
  readonly rest: Point | undefined;
}

/**
 * Points of the frontier that the exact solver keeps at most; beyond, it refuses rather than guess.
 */
const FRONTIER_LIMIT = 2_000_000;

/**
 * The best choice. Items that save nothing are not kept, items without bytes always are if they
 * save anything; ties go to fewer bytes, then to the list that is lower at the first difference.
 *
 * @throws E_USAGE for negative or non-finite figures, E_LIMIT when the frontier grows beyond what
 *   can be kept
 */
export function bestKept(items: readonly KeepItem[], limitBytes: number): KeepChoice {
  checkKinds('bestKept', { items: [items, 'list'], limitBytes: [limitBytes, 'number'] });
  checkItems('bestKept', 'items', items, ['bytes', 'seconds']);
  check(items, limitBytes);
  let frontier: Point[] = [{ bytes: 0, seconds: 0, item: -1, rest: undefined }];
  // From the last item to the first, so that equal points keep the lowest indices.
  for (let i = items.length - 1; i >= 0; i--) {
    const { bytes, seconds } = items[i];
    if (seconds <= 0 || bytes > limitBytes) continue;
    const more: Point[] = [];
    for (const p of frontier)
      if (p.bytes + bytes <= limitBytes)
        more.push({ bytes: p.bytes + bytes, seconds: p.seconds + seconds, item: i, rest: p });
    frontier = merged(more, frontier);
    if (frontier.length > FRONTIER_LIMIT)
      throw new ShardwrightError(
        'E_LIMIT',
        `the frontier of ${items.length} values has more than ${FRONTIER_LIMIT} points`,
        {
          hint: 'fold equal layers first, or round the sizes to a coarser block',
        },
      );
  }
  return choiceOf(frontier[frontier.length - 1]);
}

/**
 * Two lists that rise in bytes and seconds as one, without points that another one dominates; ties
 * go to the first list.
 */
function merged(first: readonly Point[], second: readonly Point[]): Point[] {
  const out: Point[] = [];
  let i = 0;
  let j = 0;
  while (i < first.length || j < second.length) {
    const a = first[i] as Point | undefined;
    const b = second[j] as Point | undefined;
    const takeFirst =
      b === undefined ||
      (a !== undefined && (a.bytes < b.bytes || (a.bytes === b.bytes && a.seconds >= b.seconds)));
    const point = (takeFirst ? a : b) as Point;
    if (takeFirst) i++;
    else j++;
    if (out.length === 0 || point.seconds > out[out.length - 1].seconds) out.push(point);
  }
  return out;
}

function choiceOf(point: Point): KeepChoice {
  const kept: number[] = [];
  for (let p: Point | undefined = point; p !== undefined && p.item >= 0; p = p.rest)
    kept.push(p.item);
  return { savedSeconds: point.seconds, keptBytes: point.bytes, kept };
}

/**
 * The usual heuristic, for comparison: most seconds a byte first, as long as it fits. Never better
 * than `bestKept`.
 */
export function greedyKept(items: readonly KeepItem[], limitBytes: number): KeepChoice {
  checkKinds('greedyKept', { items: [items, 'list'], limitBytes: [limitBytes, 'number'] });
  checkItems('greedyKept', 'items', items, ['bytes', 'seconds']);
  check(items, limitBytes);
  const order = items
    .map((_, i) => i)
    .filter((i) => items[i].seconds > 0)
    // Cross-multiplied, so that values without bytes come first.
    .sort((a, b) => items[b].seconds * items[a].bytes - items[a].seconds * items[b].bytes || a - b);
  const kept: number[] = [];
  let keptBytes = 0;
  let savedSeconds = 0;
  for (const i of order) {
    if (keptBytes + items[i].bytes > limitBytes) continue;
    keptBytes += items[i].bytes;
    savedSeconds += items[i].seconds;
    kept.push(i);
  }
  return { savedSeconds, keptBytes, kept: kept.sort((a, b) => a - b) };
}

function check(items: readonly KeepItem[], limitBytes: number): void {
  const bad = items.findIndex(
    ({ bytes, seconds }) => !(bytes >= 0 && seconds >= 0 && bytes + seconds < Infinity),
  );
  if (bad >= 0 || !(limitBytes >= 0))
    throw new ShardwrightError(
      'E_USAGE',
      bad >= 0
        ? `value ${bad} has ${items[bad].bytes} bytes and ${items[bad].seconds} s; neither may ` +
            'be negative'
        : `the limit of ${limitBytes} bytes is negative`,
    );
}
