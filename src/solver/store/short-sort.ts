/**
 * Sorting of lists that mostly have two or three entries, where `sort` of the language costs more
 * than the sorting.
 */

/** Lists beyond are left to `sort`. */
const SHORT = 24;

/** Sorts in place, equal ones in their order. */
export function sortShort<T>(list: T[], compare: (a: T, b: T) => number): void {
  if (list.length > SHORT) {
    list.sort(compare);
    return;
  }
  for (let k = 1; k < list.length; k++) {
    const entry = list[k];
    let at = k;
    for (; at > 0 && compare(list[at - 1], entry) > 0; at--) list[at] = list[at - 1];
    list[at] = entry;
  }
}
