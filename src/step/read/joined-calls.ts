/** Tells which calls of a traced program software may run in one kernel with their neighbours. */

import type { Node } from '../../graph/types.ts';
import type { OperatorTable } from '../../ops/record/table.ts';

/** Classes whose calls a compiler joins; of the others, calls that only lay data out. */
const JOINED: ReadonlySet<string> = new Set([
  'pointwise',
  'reduction',
  'norm',
  'factory',
  'random',
]);
const LAID_OUT = /^aten\.(cat|stack|slice_backward|constant_pad|select_backward|slice_scatter)/;
/**
 * Modules whose calls are one kernel in every framework: norms, and rotations of queries and keys.
 */
export const ONE_KERNEL = /(norm|ln|attn|attention)[^.]*$/i;

export function isJoined(node: Node, table: OperatorTable): boolean {
  const cls = node.kind === 'call' ? table.get(node.target)?.cls : undefined;
  return cls !== undefined && (JOINED.has(cls) || (cls === 'other' && LAID_OUT.test(node.target)));
}
