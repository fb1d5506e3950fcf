/**
 * Which forward values to keep for the backward pass under a budget between "keep what is expensive
 * to compute" (1) and "keep only the inputs" (0): a least cut of bytes with less and less that may
 * not be recomputed, then a knapsack over the expensive values. Form of the method: PyTorch's
 * min-cut partitioner with an activation memory budget (torch/_functorch).
 */

import { internalError, ShardwrightError } from '../../errors.ts';
import { bestKept } from './knapsack.ts';
import { minNodeCut } from './min-cut.ts';

/** A value of the forward pass. */
export interface ForwardValue {
  readonly name: string;
  readonly bytes: number;
  /**
   * Time of the kernel of its own that computing it again would take; 0 for what fuses into its
   * reader.
   */
  readonly seconds: number;
  /** Positions of the values it is computed from. */
  readonly inputs: readonly number[];
  /** An input of the program: there anyway. */
  readonly isInput?: boolean;
  /** Matmul, attention and the like: never recomputed for free. */
  readonly expensive?: boolean;
  /** Random numbers, in-place writes: cannot be recomputed at all. */
  readonly once?: boolean;
  /** Some kernel of the backward pass reads it. */
  readonly readInBackward?: boolean;
  /**
   * Read there by an expensive kernel, so that computing it again writes it to memory once more.
   */
  readonly readByExpensive?: boolean;
}

interface SavedValues {
  /** Positions of the values kept, inputs left out, ascending. */
  readonly saved: readonly number[];
  readonly savedBytes: number;
  /** Positions of what the backward pass recomputes, ascending. */
  readonly recomputed: readonly number[];
  readonly recomputeSeconds: number;
}

/**
 * Values to keep under a budget.
 *
 * @param budget 1: everything expensive and everything that expensive kernels read; 0: inputs only;
 *   between, that share of the span
 * @throws E_USAGE for a budget outside 0..1 or a value that is computed from a later one
 */
export function savedUnderBudget(values: readonly ForwardValue[], budget: number): SavedValues {
  if (!(budget >= 0 && budget <= 1))
    throw new ShardwrightError('E_USAGE', `a budget is a share between 0 and 1, not ${budget}`);
  values.forEach((v, i) => {
    if (v.inputs.some((j) => !(j >= 0 && j < i)))
      throw new ShardwrightError(
        'E_USAGE',
        `'${v.name}' is computed from a value that does not come before it`,
      );
  });
  const generous = cut(values, (v) => v.expensive === true || v.readByExpensive === true);
  if (budget === 1) return generous;
  const least = cut(values, () => false);
  const limit = least.savedBytes + budget * (generous.savedBytes - least.savedBytes);
  const within = (s: SavedValues): boolean => s.savedBytes <= limit * (1 + 1e-9);
  if (within(generous)) return generous;
  const lean = cut(values, (v) => v.expensive === true);
  if (within(lean)) return lean;
  // Choose among the expensive values; whatever must be kept in any case is not up for choice.
  const must = new Set(least.saved);
  const candidates = lean.saved.filter((i) => !must.has(i));
  const { kept } = bestKept(
    candidates.map((i) => ({
      bytes: values[i].bytes,
      seconds: Math.max(values[i].seconds, Number.MIN_VALUE),
    })),
    Math.max(0, limit * (1 + 1e-9) - least.savedBytes),
  );
  const keep = new Set(kept.map((k) => values[candidates[k]]));
  return cut(values, (v) => keep.has(v));
}

/** Least cut with some values that may not be recomputed. */
function cut(values: readonly ForwardValue[], banned: (v: ForwardValue) => boolean): SavedValues {
  const sources: number[] = [];
  const sinks: number[] = [];
  const edges: (readonly [number, number])[] = [];
  values.forEach((v, i) => {
    // A value that is not recomputed is either kept or absent: its inputs cannot replace it.
    if (v.isInput === true || v.once === true || banned(v)) sources.push(i);
    if (v.readInBackward === true) sinks.push(i);
    for (const j of v.inputs) edges.push([j, i]);
  });
  const weights = values.map((v) => (v.isInput === true ? 0 : v.bytes));
  const { weight, nodes } = minNodeCut({ weights, edges, sources, sinks });
  if (weight === Infinity)
    throw internalError('the backward pass reads what can neither be kept nor computed again');
  const saved = nodes.filter((i) => values[i].isInput !== true);
  const there = new Set(nodes);
  const again = new Set<number>();
  const stack = sinks.filter((i) => !there.has(i));
  for (let i = stack.pop(); i !== undefined; i = stack.pop()) {
    if (again.has(i) || there.has(i) || values[i].isInput === true) continue;
    again.add(i);
    stack.push(...values[i].inputs);
  }
  const recomputed = [...again].sort((a, b) => a - b);
  return {
    saved,
    savedBytes: saved.reduce((sum, i) => sum + values[i].bytes, 0),
    recomputed,
    recomputeSeconds: recomputed.reduce((sum, i) => sum + values[i].seconds, 0),
  };
}
