/** Applies the user's `save` and `recompute` tags to a joint graph. */

import { defined } from '../../defined.ts';
import { ShardwrightError } from '../../errors.ts';
import type { Graph, Node, Retention } from '../../graph/types.ts';
import { eachOperand, isRef } from '../../graph/value.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { recomputeInBackward } from '../checkpoint/recompute.ts';
import { drawsWithoutKey } from '../control/loops/hoist-invariants.ts';
import { backwardStart } from '../plannable/weight-views.ts';

/**
 * Applies the user's tags to a joint graph. A value tagged `recompute` is made a second time in the
 * backward pass, so that the first is not kept; the recomputed node counts as backward and names
 * the first. A value tagged `save` keeps its tag, which forbids every later pass to run it again.
 *
 * @param wishes by name in the joint graph
 * @throws E_NO_VJP for a call that would draw other random numbers the second time
 */
export function retained(
  joint: Graph,
  wishes: ReadonlyMap<string, Retention>,
  table: OperatorTable,
): Graph {
  const split = backwardStart(joint);
  const tagged = joint.nodes.map((node): Node => {
    const save = node.kind === 'call' ? wishes.get(node.name) : undefined;
    return save === undefined || node.meta.save === save
      ? node
      : { ...node, meta: { ...node.meta, save } };
  });
  const again = new Set<string>();
  tagged.slice(0, split).forEach((node) => {
    if (node.kind !== 'call' || node.meta.save !== 'recompute' || node.meta.phase !== 'forward')
      return;
    again.add(node.name);
    const [source] = node.args;
    // A result of a call with several is made again with its call.
    if (node.target === 'operator.getitem' && source !== undefined && isRef(source))
      again.add(source.name);
  });
  const graph = { ...joint, nodes: tagged };
  if (again.size === 0) return graph;
  const random = tagged.find((node) => again.has(node.name) && drawsWithoutKey(node, table));
  if (random !== undefined)
    throw new ShardwrightError(
      'E_NO_VJP',
      `${random.name} (${random.target}) is to be recomputed, but would draw other numbers`,
      {
        node: random.name,
        hint: 'draw with a key (generator), or do not tag it recompute',
      },
    );
  const { graph: written, originalOf } = recomputeInBackward(graph, again);
  // A reader of a recomputed value is of the backward pass too, such as the transpose that a
  // product's derivative takes.
  const backward = new Set<string>();
  const nodes = written.nodes.map((node): Node => {
    const original = originalOf.get(node.name);
    let reads = node.meta.phase === 'backward';
    eachOperand(node, (name) => (reads ||= backward.has(name)));
    if (node.kind !== 'call' || (original === undefined && !reads)) return node;
    backward.add(node.name);
    if (original === undefined && node.meta.phase !== 'forward') return node;
    const { save, savedOnly: _, ...meta } = node.meta;
    const tag = original === undefined && save !== undefined ? { save } : {};
    return {
      ...node,
      meta: {
        ...meta,
        ...tag,
        phase: 'backward',
        ...defined({ of: original }),
      },
    };
  });
  return { ...written, nodes };
}
