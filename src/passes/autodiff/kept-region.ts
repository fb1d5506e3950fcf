/** Takes a checkpoint region and gives one that also returns the values tagged `save`. */

import type { Graph, Node, Output, TensorType } from '../../graph/types.ts';
import type { CallBuilder } from '../../ops/vjp/build.ts';
import type { BranchForm } from '../control/control-form.ts';

/** A checkpoint region that also returns the values that its program tagged `save`. */
export interface KeptRegion {
  /** The call in the forward pass, with these results after its own. */
  readonly forward: Node;
  readonly form: BranchForm;
  /** Numbers of the results that are for the backward pass. */
  readonly saved: readonly number[];
}

/** Undefined for a call whose body tags nothing. */
export function keptRegion(
  node: Node,
  form: BranchForm,
  calls: CallBuilder,
): KeptRegion | undefined {
  const [{ name, graph }] = form.bodies;
  if (node.target !== 'call' || node.type.kind !== 'tuple') return undefined;
  const returned = new Set(graph.outputs.map(({ value }) => value));
  const tagged = graph.nodes.flatMap(
    ({ name: value, type, meta }): { value: string; type: TensorType }[] =>
      meta.save === 'save' && type.kind === 'tensor' && !returned.has(value)
        ? [{ value, type }]
        : [],
  );
  const stated = graph.nodes.flatMap(({ name: value, meta }) =>
    meta.save === 'save' && returned.has(value)
      ? [graph.outputs.findIndex((output) => output.value === value)]
      : [],
  );
  if (tagged.length + stated.length === 0) return undefined;
  const count = graph.outputs.length;
  const more = tagged.map(({ value }, i): Output => ({ role: 'output', index: count + i, value }));
  const body: Graph = { ...graph, outputs: [...graph.outputs, ...more] };
  const written =
    more.length === 0
      ? name
      : calls.graph.subgraph(`${name}_kept`, { ...body, name: `${name}_kept` });
  return {
    forward: {
      ...node,
      args: [{ kind: 'graph', name: written }, ...node.args.slice(1)],
      type: { kind: 'tuple', items: [...node.type.items, ...tagged.map(({ type }) => type)] },
    },
    form: { ...form, bodies: [{ name, graph: body }] },
    saved: [...stated, ...more.map((_, i) => count + i)],
  };
}
