/**
 * Calls that may write over their operand: what it holds is read by nobody else, and lies in memory
 * of its own. So a lookup in a cut table is held once while the rows of other ranks become zero.
 */
import type { Node } from '../../../graph/types.ts';
import { eachOperand, isRef, typeText } from '../../../graph/value.ts';

/** Operators whose kernels always make a new tensor. */
const MAKES = new Set([
  'aten.embedding.default',
  'aten.gather.default',
  'aten.index.Tensor',
  'aten.index_select.default',
  'aten._grouped_mm.default',
]);

const FORMS: Readonly<Record<string, string>> = {
  'aten.masked_fill.Scalar': 'aten.masked_fill_.Scalar',
};

/**
 * The names of the calls that write over their first operand, with the form that does.
 *
 * @param nodes calls of one function, in order
 * @param kept values that live on after the function
 */
export function inPlaceCalls(
  nodes: readonly Node[],
  kept: ReadonlySet<string>,
): ReadonlyMap<string, string> {
  const reads = new Map<string, number>();
  for (const node of nodes)
    eachOperand(node, (name) => void reads.set(name, (reads.get(name) ?? 0) + 1));
  const byName = new Map(nodes.map((node) => [node.name, node]));
  const found = new Map<string, string>();
  for (const { name, target, args, type } of nodes) {
    if (!Object.hasOwn(FORMS, target)) continue;
    const [first] = args;
    const operand = first !== undefined && isRef(first) ? byName.get(first.name) : undefined;
    if (operand === undefined || !MAKES.has(operand.target)) continue;
    const isOwn = reads.get(operand.name) === 1 && !kept.has(operand.name);
    // A mask that broadcasts the operand makes a larger result.
    if (isOwn && typeText(operand.type) === typeText(type)) found.set(name, FORMS[target]);
  }
  return found;
}
