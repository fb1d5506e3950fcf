/**
 * Finds the operands of a graph's products that lie column by column in memory: transposed views of
 * tensors that lie row by row.
 */

import { isLaidOut } from '../cost/kernels/alignment.ts';
import { DTYPE_BYTES, type Graph, type Node } from '../graph/types.ts';
import { isRef } from '../graph/value.ts';
import { tensorInputs } from '../ops/record/context.ts';
import type { OperatorTable } from '../ops/record/table.ts';
import { tensorMeta } from './call-context.ts';

/**
 * By the name of a product, which of its tensor inputs are turned. Only products of 16-bit tensors
 * of which some piece over so many devices may have rows of an odd number of elements are in it.
 */
export function turnedOperands(
  graph: Graph,
  table: OperatorTable,
  devices: number,
): Map<string, readonly boolean[]> {
  const turned = new Set<string>();
  const found = new Map<string, readonly boolean[]>();
  const typeOf = new Map(graph.nodes.map((node) => [node.name, tensorMeta(node.type)]));
  for (const node of graph.nodes) {
    if (node.kind !== 'call') continue;
    const record = table.get(node.target);
    if (record?.cls === 'view' && isTurned(node)) turned.add(node.name);
    if (record === undefined || !isLaidOut(record)) continue;
    const inputs = tensorInputs(record, node.args, node.kwargs);
    const mayBeOdd = inputs.some((name) => {
      const type = typeOf.get(name);
      if (type === undefined || DTYPE_BYTES[type.dtype] !== 2) return false;
      return type.shape.slice(-2).some((n) => n % (2 * devices) !== 0);
    });
    if (mayBeOdd)
      found.set(
        node.name,
        inputs.map((name) => turned.has(name)),
      );
  }
  return found;

  /** Tells whether a view lies column by column. */
  function isTurned({ target, args, type }: Node): boolean {
    const [source] = args;
    if (source === undefined || !isRef(source)) return false;
    const before = turned.has(source.name);
    const rank = tensorMeta(type)?.shape.length ?? 0;
    if (/^aten\.(t|transpose|permute)\./.test(target))
      return swapsLast(target, args.slice(1), rank) !== before;
    // A view that keeps both dims keeps their order in memory; other views are of tensors that lie
    // row by row.
    return before && /^aten\.(detach|alias|unsqueeze|expand|squeeze)/.test(target);
  }
}

/** Tells whether a transposition exchanges the last two dims. */
function swapsLast(target: string, args: readonly unknown[], rank: number): boolean {
  if (rank < 2) return false;
  if (target.startsWith('aten.t.')) return true;
  const dims = (args.length === 1 && Array.isArray(args[0]) ? args[0] : args).map(
    (d) => (Number(d) + rank) % rank,
  );
  return target.startsWith('aten.permute')
    ? dims.at(-1) === rank - 2
    : dims.includes(rank - 1) && dims.includes(rank - 2);
}
