/** Names that are still free near the wanted ones: of values, of bodies, of anything by name. */

import type { Graph } from './types.ts';
import { getOwn, setOwn } from './value.ts';

/** Finds names near the wanted ones that are still free. */
export class FreeNames {
  /** The next number to try, by wanted name. */
  private readonly nextSuffix = new Map<string, number>();

  /** @param taken knows every name that was given out */
  constructor(private readonly taken: { has(name: string): boolean }) {}

  /** `base`, or `base_1`, `base_2` where taken; linear over all calls. */
  near(base: string): string {
    if (!this.taken.has(base)) return base;
    let suffix = this.nextSuffix.get(base) ?? 1;
    while (this.taken.has(`${base}_${suffix}`)) suffix++;
    this.nextSuffix.set(base, suffix + 1);
    return `${base}_${suffix}`;
  }
}

/** The names in use. `take` adds a free one near the wanted name. */
export class NameSet extends Set<string> {
  private readonly free = new FreeNames(this);

  take(base: string): string {
    const name = this.free.near(base);
    this.add(name);
    return name;
  }
}

/** A key near the wanted one that the record does not have, such as the name of a new body. */
export function freeKey(record: object, base: string): string {
  return new FreeNames({ has: (name) => Object.hasOwn(record, name) }).near(base);
}

/** Adds a body near the wanted key, once where the record has it already; returns its key. */
export function addBody(bodies: Record<string, Graph>, base: string, body: Graph): string {
  const isAnother = (key: string): boolean => (getOwn(bodies, key) ?? body) !== body;
  const key = new FreeNames({ has: isAnother }).near(base);
  setOwn(bodies, key, body);
  return key;
}
