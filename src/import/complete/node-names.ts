/** Names of the nodes of one graph in the making, as the readers of compiler texts give them. */

import type { ValueRef } from '../../graph/types.ts';

export function ref(name: string): ValueRef {
  return { kind: 'value', name };
}
