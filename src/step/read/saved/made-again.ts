/**
 * Finds the values that must lie in memory for the backward pass, among those that backward calls
 * read: fused kernels do not keep values that they can compute again in passing. Source: Megatron's
 * fused kernels keep the input of an activation or a norm alone (arXiv:2205.05198, section 4); a
 * compiler recomputes pointwise chains up to kernels of their own (PyTorch's min-cut partitioner).
 */

import type { StepSoftware } from '../../../cost/kernels/software.ts';
import type { Graph } from '../../../graph/types.ts';
import type { OperatorTable } from '../../../ops/record/table.ts';
import type { GraphUnits } from '../graph-units.ts';
import { isJoined, ONE_KERNEL } from '../joined-calls.ts';

/** Which values a kernel can make again. */
export interface FusedCalls {
  /** Tells whether a call is element by element in a fused kernel. */
  readonly isAgain: (node: number) => boolean;
  /**
   * Tells whether a call that reads a value is part of a fused kernel; others take their operands
   * from memory.
   */
  readonly joins: (node: number) => boolean;
}

/** The fused calls of a program under a software; undefined where nothing is known of it. */
export function fusedCalls(
  graph: Graph,
  units: GraphUnits,
  table: OperatorTable,
  software: StepSoftware | undefined,
): FusedCalls | undefined {
  if (software === undefined) return undefined;
  const fuses = software.fusedPointwise || software.compiled;
  const inKernel = (i: number): boolean => fuses || ONE_KERNEL.test(graph.nodes[i].meta.path ?? '');
  return {
    isAgain: (i) =>
      units.pass[i] === 'forward' &&
      graph.nodes[i].kind === 'call' &&
      table.get(graph.nodes[i].target)?.cls === 'pointwise' &&
      inKernel(i),
    joins: (i) => isJoined(graph.nodes[i], table) && inKernel(i),
  };
}

/**
 * The values that lie in memory, among those that backward calls read. A value that only fused
 * kernels read is dropped where it can be computed, element by element, from others that are kept
 * or from inputs; and where its operands are smaller, these are kept instead (a norm's input rather
 * than its copy in float32).
 *
 * @param read values by node (no views), and whether a kernel of its own reads each
 * @param admits whether a value may be kept instead; inputs of the program are there
 */
export function keptInMemory(
  read: ReadonlyMap<number, boolean>,
  {
    graph,
    units: { root, index, weight },
    fused: { isAgain },
  }: { readonly graph: Graph; readonly units: GraphUnits; readonly fused: FusedCalls },
  bytesOf: (node: number) => number,
  admits: (node: number) => boolean,
): Set<number> {
  const kept = new Set(read.keys());
  const total = (list: ReadonlySet<number>): number =>
    [...list].reduce((sum, n) => sum + bytesOf(n), 0);
  /**
   * The values that are missing to compute a value: none where it is there, else itself, or its
   * operands where those are fewer bytes.
   */
  const missing = (r: number, depth: number): ReadonlySet<number> => {
    if (kept.has(r) || weight[r] === 1 || graph.nodes[r].kind !== 'call') return NONE;
    const own = new Set([r]);
    if (!isAgain(r) || depth === 0) return own;
    const made = parts(r, depth);
    return total(made) < total(own) ? made : own;
  };
  const parts = (r: number, depth: number): ReadonlySet<number> => {
    const all = new Set<number>();
    for (let k = index.operandStart[r]; k < index.operandStart[r + 1]; k++)
      for (const m of missing(root[index.operands[k]], depth - 1)) all.add(m);
    return all;
  };
  for (const r of [...read.keys()].sort((a, b) => a - b)) {
    if (read.get(r) === true || !isAgain(r)) continue;
    const needed = parts(r, LONGEST_CHAIN);
    if (![...needed].every(admits) || total(needed) >= bytesOf(r)) continue;
    kept.delete(r);
    for (const n of needed) kept.add(n);
  }
  return kept;
}

const NONE: ReadonlySet<number> = new Set();
/** Calls of one kernel, one after the other, that are looked through. */
const LONGEST_CHAIN = 6;
