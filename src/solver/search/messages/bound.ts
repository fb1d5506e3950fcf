/**
 * Finds a lower bound by messages alone, and the choice that they point at, where no optimum is
 * asked for. The checker finds the same bound in the messages. A few sweeps say nearly as much as
 * the search for the optimum, in a fraction of its time.
 */
import { Refused } from '../../check/refused.ts';
import { replay } from '../../check/replay.ts';
import { evaluatePositions } from '../../dual/rounding.ts';
import { Trws } from '../../dual/trws.ts';
import type { Problem } from '../../types.ts';
import { ELIMINATION } from '../limits.ts';
import { PreparedProblem } from '../prepared.ts';
import { makeWorkspace } from '../workspace.ts';
import { messageProof } from './lists.ts';

interface MessageBoundOptions {
  /** A sweep that raises the bound by a smaller share is the last. */
  readonly minGain: number;
  readonly sweeps: number;
  readonly stopped: () => boolean;
}

/** The bounds that messages prove. */
interface MessageBound {
  /** No choice costs less, whether it keeps the rows or not. */
  readonly bound: number;
  /** A cheap choice, where the messages point at one: it may break rows. */
  readonly choice: Int32Array | undefined;
}

const SERIES = { ...ELIMINATION.easy, series: true };

/**
 * Rows of the problem are left out.
 *
 * @returns undefined where no choice is possible, or where the checker refuses the messages
 */
export function messageBound(
  problem: Problem,
  { minGain, sweeps, stopped }: MessageBoundOptions,
): MessageBound | undefined {
  const prepared = new PreparedProblem(problem);
  const workspace = makeWorkspace(prepared);
  const { net, fold } = prepared;
  const work = (fold?.short ?? net).clone();
  workspace.reducer.sumParallel(work);
  work.series = [];
  if (workspace.eliminator.run(work, SERIES) === 'infeasible') return undefined;
  const messages = new Trws(work);
  for (let k = 0, before = -Infinity; k < sweeps && !(k > 0 && stopped()); k++) {
    const reached = messages.sweep();
    if (reached - before < minGain * Math.abs(reached)) break;
    before = reached;
  }
  const at = messages.decode();
  const short = evaluatePositions(work, at) < Infinity ? work.complete(at) : undefined;
  const proof = messageProof(prepared, work, messages, workspace);
  try {
    const bound = replay(problem, { rows: [], ...proof });
    if (bound === undefined) return undefined;
    return {
      bound: Number(bound),
      choice: short && (fold?.variable.map((v) => short[v]) ?? short),
    };
  } catch (error) {
    if (error instanceof Refused) return undefined;
    throw error;
  }
}
