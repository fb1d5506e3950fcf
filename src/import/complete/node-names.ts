/** Names of the nodes of one graph in the making, as the readers of compiler texts give them. */

import { FreeNames } from '../../graph/names.ts';
import type { ValueRef } from '../../graph/types.ts';

export function ref(name: string): ValueRef {
  return { kind: 'value', name };
}

/** Gives every node a name of its own: `add`, `add_1`, `add_2`. */
export class NodeNames {
  private readonly taken = new Set<string>();
  private readonly free = new FreeNames(this.taken);

  /** `base`, or with the first free number behind it. */
  unique(base: string): string {
    const name = this.free.near(base);
    this.taken.add(name);
    return name;
  }
}
