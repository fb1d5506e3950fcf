/** Lists the values that the forward pass saves for the backward pass. */

import { checkKinds } from '../../arguments.ts';
import { indexGraph } from '../../graph/order.ts';
import type { Graph } from '../../graph/types.ts';
import { tensorBytes } from '../../graph/value.ts';

/** A value that the forward pass keeps for the backward pass. */
export interface SavedValue {
  readonly name: string;
  /**
   * Bytes of the whole tensor; undefined where a size is not known. A view counts with its own
   * size.
   */
  readonly bytes: number | undefined;
  /** An input or parameter: it is there anyhow. */
  readonly placeholder: boolean;
}

/**
 * Values that cross from the forward to the backward pass, in order of their making: forward values
 * that a backward call reads. Tangents are none of them.
 */
export function savedValues(joint: Graph): SavedValue[] {
  checkKinds('savedValues', { graph: [joint, 'graph'] });
  const { userStart, users } = indexGraph(joint);
  return joint.nodes.flatMap((node, i): SavedValue[] => {
    if (node.meta.role === 'tangent' || node.type.kind !== 'tensor') return [];
    if (node.kind !== 'placeholder' && node.meta.phase !== 'forward') return [];
    let crosses = false;
    for (let k = userStart[i]; k < userStart[i + 1]; k++)
      crosses ||= joint.nodes[users[k]].meta.phase === 'backward';
    if (!crosses) return [];
    return [
      { name: node.name, bytes: tensorBytes(node.type), placeholder: node.kind === 'placeholder' },
    ];
  });
}
