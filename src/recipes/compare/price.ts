/**
 * Solves a planning problem under a recipe's restriction and gives the exact price, the memory and
 * the traffic of the result.
 */

import { defined } from '../../defined.ts';
import { type Decoded, stateMemory } from '../../plan/choice/decode.ts';
import { choicePeakBytes } from '../../plan/choice/timeline.ts';
import type { Model } from '../../plan/model/model.ts';
import type { Prepared } from '../../plan/prepare/prepared.ts';
import type { Deadline } from '../../plan/request/deadline.ts';
import { holdsPeak } from '../../plan/request/request.ts';
import { conflictOf } from '../../plan/restrict/conflict.ts';
import type { Restriction } from '../../plan/restrict/restriction.ts';
import { leastMemoryBound, memoryOf } from '../../plan/solve/least-memory.ts';
import { withoutFixed } from '../../solver/problem/condition.ts';
import { NoChoiceInTime, solve } from '../../solver/solve.ts';
import type { Solution } from '../../solver/types.ts';
import { ringBytes, type Traffic } from '../../step/traffic.ts';

/** The cheapest choice that a restriction leaves. */
export interface Priced {
  readonly seconds: number;
  /**
   * The bytes that count against the budget on the fullest device: peak memory, or the states where
   * the request limits those alone.
   */
  readonly peakBytes: number;
  /**
   * True if that is within the budget. Of choices whose states fit this is the cheapest; where no
   * states do, of all.
   */
  readonly fits: boolean;
  readonly choice: Int32Array;
}

/**
 * The data to solve a restriction: the model, its solver for parts of it, the seed and the budget.
 */
export type Solvable = Pick<Prepared, 'model' | 'solver' | 'allPrices' | 'question'>;

/**
 * Solves what a restriction leaves of the problem, exactly. A restriction that does not fit the
 * budget is priced without it.
 *
 * @returns the reasons where no choice is left whatever the budget
 */
export async function priceRestriction(
  prepared: Solvable,
  restriction: Restriction,
  deadline?: Deadline,
  budgetBytes = prepared.question.budgetBytes,
): Promise<Priced | { readonly refused: string; readonly isLate?: true }> {
  const contradictions = restriction.contradictions();
  if (contradictions.length > 0) return { refused: contradictions.join('; ') };
  // Without a budget the cheapest choice is priced, so that what does not fit can be said by how
  // much.
  const needed = leastMemoryBound(prepared.model.problem, restriction.kept());
  const bounds =
    needed > budgetBytes || budgetBytes === Infinity ? [Infinity] : [budgetBytes, Infinity];
  let conflict: readonly string[] = [];
  for (const bound of bounds) {
    const found = await solveRestricted(prepared, restriction, bound, deadline);
    if (!('conflict' in found)) return found;
    if (found.isLate === true) return { refused: LATE, isLate: true };
    ({ conflict } = found);
  }
  return {
    refused: conflict.length === 0 ? 'no placement of every node fits it' : conflict.join(', '),
  };
}

/** Why something is not priced. */
export const LATE = 'not priced: the time was over';

/**
 * Solves what a restriction leaves, exactly, under a bound on the bytes of states.
 *
 * @param boundBytes Infinity: no bound
 * @returns the names of what contradicts, where no choice is left; `isLate` where the deadline came
 *   before the answer
 */
export async function solveRestricted(
  prepared: Solvable,
  restriction: Restriction,
  boundBytes: number,
  deadline?: Deadline,
): Promise<
  | Priced
  | {
      readonly conflict: readonly string[];
      readonly smallestBudget?: number;
      readonly isLate?: true;
    }
> {
  const contradictions = restriction.contradictions();
  if (contradictions.length > 0) return { conflict: contradictions };
  const { model, solver: restrictedSolver } = prepared;
  const isLate = (): boolean => deadline?.isOver === true;
  if (isLate()) return { conflict: [LATE], isLate: true };
  // Most often the cheapest choice of all keeps the bound.
  const free = restrictedSolver.solve(restriction.kept(), isLate);
  if (free !== undefined && memoryOf(model.problem, free.choice) <= boundBytes)
    return priced(prepared, free.choice, free.objective);
  const compact = restriction.compact();
  const rows =
    boundBytes === Infinity
      ? []
      : compact.problem.rows?.map((row) => ({ ...row, bound: Math.floor(boundBytes) }));
  const rest = withoutFixed({ ...compact.problem, ...defined({ rows }) });
  let solution: Solution;
  try {
    solution = await solve(rest.problem, {
      engine: 'exact',
      certify: false,
      seed: prepared.question.request.seed,
      ...deadline?.solveOptions,
    });
  } catch (error) {
    if (!(error instanceof NoChoiceInTime)) throw error;
    return { conflict: [LATE], isLate: true };
  }
  // A choice that a search was stopped at is not what the restriction costs.
  if (solution.status === 'feasible' && solution.gap > 0 && isLate())
    return { conflict: [LATE], isLate: true };
  if (solution.status === 'infeasible') {
    const { smallestBudget } = solution;
    return {
      conflict: conflictOf(model, solution, rest.variableOf),
      ...defined({ smallestBudget }),
    };
  }
  return priced(prepared, compact.expand(rest.expand(solution.choice)), solution.objective);
}

function priced(prepared: Solvable, choice: Int32Array, objective: number): Priced {
  const {
    model,
    question: { budgetBytes },
  } = prepared;
  const peakBytes = budgetedBytes(prepared, choice);
  return {
    seconds: objective / model.unitsPerSecond,
    peakBytes,
    fits: peakBytes <= budgetBytes,
    choice,
  };
}

/**
 * The bytes of a choice that count against the budget: peak memory, or the states where the request
 * limits those alone.
 */
export function budgetedBytes(
  { model, question: { request } }: Pick<Prepared, 'model' | 'question'>,
  choice: Int32Array,
): number {
  if (!holdsPeak(request)) return stateMemory(model, choice).peakBytes;
  return choicePeakBytes(model, choice);
}

/**
 * Collectives of a plan by kind and mesh dims; sorted by seconds, most first. Those inside an
 * operator's own rule are not in it.
 *
 * @param names of the mesh dims, where the plan calls them by others than the problem
 */
export function trafficOf(
  { space: { mesh } }: Pick<Model, 'space'>,
  decoded: Pick<Decoded, 'nodes' | 'outputs'>,
  names: readonly string[] = mesh.names,
): Traffic[] {
  const sums = new Map<
    string,
    { kind: string; axes: string; count: number; sentBytes: number; seconds: number }
  >();
  for (const { redistributions } of [...decoded.nodes, ...decoded.outputs])
    for (const move of redistributions)
      for (const { kind, meshDims, bytes, seconds } of move.collectives) {
        const dims = mesh.resolve(meshDims);
        const axes = dims.map((d) => names[d]).join('+');
        const key = `${kind}:${axes}`;
        let sum = sums.get(key);
        if (sum === undefined)
          sums.set(key, (sum = { kind, axes, count: 0, sentBytes: 0, seconds: 0 }));
        const times = move.times ?? 1;
        sum.count += times;
        sum.sentBytes += times * ringBytes(kind, bytes, mesh.sizeOf(dims));
        sum.seconds += times * seconds;
      }
  return [...sums.values()].sort(
    (a, b) => b.seconds - a.seconds || (`${a.kind}${a.axes}` < `${b.kind}${b.axes}` ? -1 : 1),
  );
}
