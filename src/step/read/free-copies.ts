/**
 * Calls that a program of the whole batch makes and a device does not need. A reshape of a
 * transposed value copies it where it merges dims, as batch and heads before a batched product. On
 * a device whose part of the one has size 1 nothing is merged, and a reshape that only adds or
 * drops dims of size 1 is a view: the program of a device's own sequence has no such copy. Nor does
 * it add up the one part that it has of the batch, as the gradient of a table of positions does.
 */

import type { Node } from '../../graph/types.ts';
import type { TypedContext } from '../../ops/record/record.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import type { Model } from '../../plan/model/model.ts';
import { localCall } from '../../plan/model/node-costs.ts';

const COPY = 'aten.clone.default';
const SUM = 'aten.sum.dim_IntList';
const WRITE = 'aten.slice_scatter.default';

/**
 * The nodes that show what they read on a device: copies for reshapes which are views there, sums
 * over dims of size 1, and rows that are written into a buffer, which is done in its place.
 */
export function freeCopies(
  { graph, flow, strategies, space, nodeVariable }: Model,
  choice: Int32Array,
  table: OperatorTable,
): ReadonlySet<number> {
  const isView = (n: number): boolean => table.get(graph.nodes[n].target)?.cls === 'view';
  const callOf = (n: number): TypedContext | undefined => {
    const entry = strategies.nodes[n];
    return entry?.call === undefined ? undefined : localCall(entry, choice[nodeVariable[n]], space);
  };
  /** Sizes above 1 of what a call makes on a device. */
  const sizesOf = (n: number): string | undefined => {
    const made = callOf(n)?.outputs[0] ?? undefined;
    return made && sizesAboveOne(made);
  };
  const readers = new Map<number, number[]>();
  graph.nodes.forEach((_, n) => {
    for (const value of flow.inputs[n]) {
      const { node } = flow.values[value];
      if (graph.nodes[node].target === COPY) readers.set(node, [...(readers.get(node) ?? []), n]);
    }
  });
  const free = new Set(
    graph.nodes.flatMap(({ target }, n) => {
      if (target === WRITE)
        return isBuffer(graph.nodes[flow.values[flow.inputs[n][0]].node]) ? [n] : [];
      return target === SUM && isOfOne(callOf(n)) ? [n] : [];
    }),
  );
  for (const [copy, list] of readers) {
    const [source] = flow.inputs[copy];
    const sizes = sizesOf(copy);
    if (sizes === undefined || !isView(flow.values[source].node)) continue;
    if (list.every((n) => isView(n) && sizesOf(n) === sizes)) free.add(copy);
  }
  return free;
}

function isBuffer({ kind, meta }: Node): boolean {
  return kind === 'placeholder' && meta.role === 'buffer';
}

/** Tells whether a sum is over dims of size 1 alone, and changes no type. */
function isOfOne(call: TypedContext | undefined): boolean {
  const from = call?.inputs[0];
  const to = call?.outputs[0] ?? undefined;
  if (from === undefined || to === undefined) return false;
  return from.dtype === to.dtype && sizesAboveOne(from) === sizesAboveOne(to);
}

function sizesAboveOne({ shape }: { readonly shape: readonly number[] }): string {
  return shape.filter((size) => size !== 1).join();
}
