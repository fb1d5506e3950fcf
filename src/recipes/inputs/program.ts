/**
 * Defines the input of the search for batch and sequence: the planned program, its input tensors,
 * and the slots that are plain cuts.
 */

import { roleName } from '../../graph/nodes.ts';
import { isStrided, type RuleSlot, type ShardSlot } from '../../ops/record/rule.ts';
import type { Model } from '../../plan/model/model.ts';

export type Program = Pick<Model, 'graph' | 'flow' | 'strategies' | 'space' | 'statedDims'>;

export interface InputTensor {
  readonly node: number;
  readonly value: number;
  readonly names: readonly string[];
  readonly shape: readonly number[];
}

export interface Dims {
  /** Dim by input node. */
  readonly dims: ReadonlyMap<number, number>;
  readonly stated: boolean;
}

export function inputsOf({ graph, flow }: Program): InputTensor[] {
  return graph.nodes.flatMap((node, n): InputTensor[] => {
    if (node.kind !== 'placeholder' || node.meta.role !== 'input') return [];
    const [value] = flow.results[n];
    if (value === undefined || value < 0) return [];
    return [
      {
        node: n,
        value,
        names: [node.name, roleName(node)],
        shape: flow.values[value].meta.shape,
      },
    ];
  });
}

/** A cut of whole rows from the first on, not inside other indices. */
export const isPlain = (slot: RuleSlot): slot is ShardSlot =>
  slot?.kind === 'shard' && !isStrided(slot);
