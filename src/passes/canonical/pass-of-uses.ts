/**
 * Says in which pass of a training step the calls of a joint graph use their inputs: by what they
 * depend on, wherever they are written. The order of independent lines therefore does not matter.
 */
import type { Graph, Node } from '../../graph/types.ts';
import { eachOperand } from '../../graph/value.ts';
import { tensorInputs } from '../../ops/record/context.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { spmdName } from '../../ops/spmd/operators.ts';

/** A pass of a training step; the update of an optimizer counts as backward. */
export type Pass = 'forward' | 'backward';

/** The purpose of a node; `saved`: a forward call that only the backward pass needs. */
export type Purpose = Pass | 'saved';

/**
 * The purpose of each node.
 *
 *  - A call that depends on a tangent, the update of an optimizer and a call that is computed again
 *    are backward.
 *  - A view or cast of a parameter belongs to the pass that reads it, forward if both do.
 */
export function purposesOf(graph: Graph, table: OperatorTable): Purpose[] {
  const purposes = graph.nodes.map((node): Purpose => {
    if (isBackward(node)) return 'backward';
    return node.meta.savedOnly === true ? 'saved' : 'forward';
  });
  const views = parameterViews(graph, table);
  if (views.size === 0) return purposes;
  const readForward = new Set(graph.outputs.map(({ value }) => value));
  const readBackward = new Set<string>();
  for (let n = graph.nodes.length - 1; n >= 0; n--) {
    const node = graph.nodes[n];
    if (views.has(node.name) && readBackward.has(node.name) && !readForward.has(node.name))
      purposes[n] = 'backward';
    const readers = purposes[n] === 'forward' ? readForward : readBackward;
    eachOperand(node, (name) => readers.add(name));
  }
  return purposes;
}

/**
 * The pass in which a node uses a value. A call that only the backward pass needs, such as the
 * transpose of a saved value, is taken where the value is, and in the backward pass if the value is
 * read there in any case.
 */
export function passOfUse(purpose: Purpose, isReadBackward: boolean): Pass {
  return purpose === 'backward' || (purpose === 'saved' && isReadBackward) ? 'backward' : 'forward';
}

function isBackward({ kind, meta }: Node): boolean {
  if (kind !== 'call') return false;
  return meta.repeats !== undefined || (meta.phase !== undefined && meta.phase !== 'forward');
}

/** Calls that make a tensor from one parameter by views and casts alone, in no backward pass. */
export function parameterViews(graph: Graph, table: OperatorTable): Map<string, Node> {
  const parameters = new Set<string>();
  const views = new Map<string, Node>();
  for (const node of graph.nodes) {
    if (node.kind === 'placeholder' && node.meta.role === 'parameter') parameters.add(node.name);
    if (node.kind !== 'call' || node.type.kind !== 'tensor' || isBackward(node)) continue;
    const record = table.get(node.target);
    // A stated redistribution is not a view: the program says when a weight is gathered.
    if (
      record === undefined ||
      (record.cls !== 'view' && !CASTS.has(node.target)) ||
      spmdName(node.target) !== undefined
    )
      continue;
    const inputs = tensorInputs(record, node.args, node.kwargs);
    if (inputs.length === 1 && (parameters.has(inputs[0]) || views.has(inputs[0])))
      views.set(node.name, node);
  }
  return views;
}

const CASTS: ReadonlySet<string> = new Set([
  'aten._to_copy.default',
  'aten.to.dtype',
  'prims.convert_element_type.default',
]);
