/** Finds the values that regions read from outside. */

import type { Region, Use } from './syntax.ts';

/** Values that regions read from outside: every result once, in the order of first use. */
export function freeUses(regions: readonly Region[]): Use[] {
  const found = new Map<string, Use>();
  for (const region of regions) collect(region, new Map(), found);
  return [...found.values()];
}

/** `defined` counts definitions by id; the nesting is bounded by the parser. */
function collect(region: Region, defined: Map<string, number>, found: Map<string, Use>): void {
  const own: string[] = [];
  const define = (id: string): void => {
    own.push(id);
    defined.set(id, (defined.get(id) ?? 0) + 1);
  };
  for (const arg of region.args) define(arg.id);
  for (const operation of region.operations) {
    for (const use of operation.operands) {
      if ((defined.get(use.id) ?? 0) > 0) continue;
      const key = `${use.id}#${use.result}`;
      if (!found.has(key)) found.set(key, use);
    }
    for (const inner of operation.regions) collect(inner, defined, found);
    for (const { id } of operation.results) define(id);
  }
  for (const id of own) defined.set(id, (defined.get(id) ?? 1) - 1);
}
