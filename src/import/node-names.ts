import type { ValueRef } from '../graph/types.ts';

/** Names of the nodes of one graph in the making, as the readers of compiler texts give them. */

export function ref(name: string): ValueRef {
  return { kind: 'value', name };
}

/** Gives every node a name of its own: `add`, `add_1`, `add_2`. */
export class NodeNames {
  /** The next number to try, by base. */
  private readonly taken = new Map<string, number>();

  /** `base`, or with the first free number behind it. */
  unique(base: string): string {
    const count = this.taken.get(base);
    if (count === undefined) {
      this.taken.set(base, 1);
      return base;
    }
    let suffix = count;
    while (this.taken.has(`${base}_${suffix}`)) suffix++;
    this.taken.set(base, suffix + 1);
    this.taken.set(`${base}_${suffix}`, 1);
    return `${base}_${suffix}`;
  }
}
