import type { Model } from '../plan/model.ts';
import { attentionNodes } from './key-values.ts';

/**
 * Whether plans may cut the program along its sequence: dim 1 of every input is what fused attention has for rows, and dims
 * that views merge may be cut in strides, without which rows of several sequences are one dim that is cut between them only.
 */
export function isCutAlongSequence(model: Model): boolean {
  const { graph, flow, strategies } = model;
  if ((strategies.options.strided ?? 'off') === 'off') return false;
  const rows = new Set(
    attentionNodes(model, 'forward').flatMap((n) =>
      [0, 1].map((input) => flow.values[flow.inputs[n][input]].meta.shape[2]),
    ),
  );
  const inputs = graph.nodes.flatMap((node, n) => {
    if (node.kind !== 'placeholder' || node.meta.role !== 'input') return [];
    const { shape } = flow.values[flow.results[n][0]].meta;
    return shape.length === 0 ? [] : [shape];
  });
  return inputs.length > 0 && inputs.every((shape) => shape[1] > 1 && rows.has(shape[1]));
}
