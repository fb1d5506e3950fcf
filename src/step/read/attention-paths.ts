/** Finds the attention of a graph, and its keys and values before they are repeated for queries. */

import { elements } from '../../ops/record/record.ts';
import type { Model } from '../../plan/model/model.ts';
import type { Dataflow } from '../../strategy/dataflow.ts';

/**
 * Keys or values of one attention in the forward pass, from where they are as many as the model
 * makes.
 */
export interface KeyValuePath {
  /** Node of the attention. */
  readonly attention: number;
  /** Which of its inputs: 1 keys, 2 values. */
  readonly input: number;
  /** Value before it is repeated; the input itself where it is not. */
  readonly source: number;
  /** Nodes that repeat it for the query heads that share it, in program order. */
  readonly repeats: readonly number[];
}

/** By data flow, whose phases are those of one graph: the nodes of each pass. */
const ATTENTION = new WeakMap<
  Dataflow,
  { readonly forward: readonly number[]; readonly backward: readonly number[] }
>();

/** Nodes that are fused attention, or the gradient of it. */
export function attentionNodes(
  { graph, flow }: Pick<Model, 'graph' | 'flow'>,
  phase: 'forward' | 'backward',
): readonly number[] {
  let nodes = ATTENTION.get(flow);
  if (nodes === undefined) {
    const found: { readonly forward: number[]; readonly backward: number[] } = {
      forward: [],
      backward: [],
    };
    for (const [n, { kind, target }] of graph.nodes.entries())
      if (kind === 'call' && target.includes('scaled_dot_product')) found[flow.phases[n]].push(n);
    ATTENTION.set(flow, (nodes = found));
  }
  return nodes[phase];
}

/**
 * Grouped queries share a key head. Programs repeat it for each of them (`repeat_kv`: unsqueeze,
 * expand, reshape), but no implementation sends the copies: devices exchange what the projections
 * make, and repeat it then.
 */
export function keyValuePaths(model: Pick<Model, 'graph' | 'flow' | 'strategies'>): KeyValuePath[] {
  const { graph, flow } = model;
  const count = (value: number): number => elements(flow.values[value].meta.shape);
  return attentionNodes(model, 'forward').flatMap((attention) =>
    [1, 2].map((input): KeyValuePath => {
      let value = flow.inputs[attention][input];
      let path: number[] = [];
      let found: Pick<KeyValuePath, 'source' | 'repeats'> = { source: value, repeats: [] };
      for (let n = flow.values[value].node; layoutOnly(model, n); n = flow.values[value].node) {
        const [before] = flow.inputs[n];
        path = [n, ...path];
        if (count(before) < count(value)) found = { source: before, repeats: path };
        value = before;
      }
      return { attention, input, ...found };
    }),
  );

  function layoutOnly({ strategies }: typeof model, n: number): boolean {
    const node = graph.nodes[n];
    if (node.kind !== 'call' || flow.phases[n] !== 'forward' || flow.inputs[n].length !== 1)
      return false;
    return strategies.nodes[n]?.record?.cls === 'view' || LAYOUT.test(node.target);
  }
}

/** Calls that write elements as they are, in another order or more than once. */
const LAYOUT = /^aten\.(clone|contiguous|expand|repeat|repeat_interleave|_unsafe_view|reshape)\./;
