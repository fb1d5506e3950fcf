/** Ordering along a dim. NaN counts as larger than every number; equal values keep their order. */

import type { ElementType, NDArray } from './array.ts';
import { along } from './reduce.ts';

function before(a: number, b: number): number {
  if (a < b) return -1;
  if (a > b) return 1;
  if (a === b) return 0;
  return Number.isNaN(a) ? (Number.isNaN(b) ? 0 : 1) : -1;
}

/** Positions of a run in ascending or descending order of values. */
function ordered(data: Float64Array, start: number, length: number, descending: boolean): number[] {
  const order = Array.from({ length }, (_, i) => i);
  return order.sort((i, j) =>
    descending
      ? before(data[start + j], data[start + i])
      : before(data[start + i], data[start + j]),
  );
}

/** Sorted values and where they stood, the first `count` of them. */
export function sort(x: NDArray, dim: number, descending: boolean, count?: number): NDArray[] {
  const types: ElementType[] = [x.dtype, 'i64'];
  return along(
    x,
    dim,
    types,
    (input, start, length, [values, indices], out) => {
      const order = ordered(input, start, length, descending);
      for (let k = 0; k < (count ?? length); k++) {
        values[out + k] = input[start + order[k]];
        indices[out + k] = order[k];
      }
    },
    count,
  );
}

/** The middle value, the lower one of two, and its position; NaN if there is one. */
export function medianAt(data: Float64Array, start: number, length: number): number {
  const order = ordered(data, start, length, false);
  const last = order[length - 1];
  if (Number.isNaN(data[start + last]))
    return order.find((i) => Number.isNaN(data[start + i])) ?? last;
  return order[(length - 1) >> 1];
}

/** Position of the most frequent value, the smallest of several: its last occurrence. */
export function modeAt(data: Float64Array, start: number, length: number): number {
  const order = ordered(data, start, length, false);
  let best = order[0];
  let most = 0;
  for (let k = 0, run = 0; k < length; k++) {
    run = k > 0 && data[start + order[k]] === data[start + order[k - 1]] ? run + 1 : 1;
    if (run > most) {
      most = run;
      best = order[k];
    }
  }
  return best;
}
