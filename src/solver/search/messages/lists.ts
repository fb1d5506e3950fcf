/**
 * Messages of a network that was shortened and reduced, as lists for every edge of the problem. In:
 * a prepared problem, its short or whole network after series eliminations, messages on it. Out:
 * the steps of a proof that the checker reads: parallel edges are added, then for each edge the
 * cost that leaves it for its two variables.
 */
import { STEP } from '../../check/certificate-format.ts';
import { liftShifts, type Shifts, shiftsOf } from '../../dual/lift.ts';
import { Trws } from '../../dual/trws.ts';
import type { Fold } from '../../fold/fold.ts';
import type { Network } from '../../network/network.ts';
import type { Certificate, Problem } from '../../types.ts';
import type { PreparedProblem } from '../prepared.ts';
import type { Workspace } from '../workspace.ts';

/** Blocks kept on either side of the middle when messages converge, and the sweeps they take. */
const MARGIN = 3;
const SPREAD_SWEEPS = 2;

/**
 * A proof without rows by the messages of all edges, in lists that equal edges share.
 *
 * @param work the short network of the problem, else its whole one, after series eliminations that
 *   it has recorded
 */
export function messageProof(
  prepared: PreparedProblem,
  work: Network,
  messages: Trws,
  workspace: Workspace,
): Pick<Certificate, 'steps' | 'lists'> {
  const { net, fold, problem } = prepared;
  const { pool } = net;
  const lifted = liftShifts(pool, work.series ?? [], shiftsOf(work, messages));
  const { shifts, edge } =
    fold === undefined
      ? { shifts: lifted, edge: undefined }
      : spreadShifts(net, fold, lifted, workspace);
  const names = new Map<number, number>();
  const lists: (readonly number[])[] = [];
  const name = (shift: Float64Array): number => {
    const id = pool.vector(shift);
    let list = names.get(id);
    if (list === undefined) {
      const vector = pool.vectorOf(id);
      const plain = new Array<number>(vector.length);
      for (let k = 0; k < plain.length; k++) plain[k] = vector[k];
      list = lists.push(plain) - 1;
      names.set(id, list);
    }
    return list;
  };
  const own = shifts.map((pair) => pair && ([name(pair[0]), name(pair[1])] as const));
  const steps = addParallel(problem);
  const triples: number[] = [];
  // Equal edges of two variables are one edge of the short network, which has the messages of both:
  // the first takes them.
  const taken = new Set<string>();
  for (let e = 0; e < problem.edges.first.length; e++) {
    const twin = edge === undefined ? e : edge[e];
    const pair = own[twin];
    if (pair === undefined) continue;
    const ends = `${problem.edges.first[e]},${problem.edges.second[e]},${twin}`;
    if (edge !== undefined && taken.has(ends)) continue;
    taken.add(ends);
    triples.push(e, ...pair);
  }
  steps.push(STEP.messages, 0, lists.push([]) - 1, lists.push(triples) - 1);
  return { steps, lists };
}

/** Steps that add every later edge of two variables to the first one. */
function addParallel({ edges: { first, second }, domains }: Problem): number[] {
  const leaders = new Map<number, number>();
  const steps: number[] = [];
  for (let e = 0; e < first.length; e++) {
    if (first[e] === second[e]) continue;
    const key = Math.min(first[e], second[e]) * domains.length + Math.max(first[e], second[e]);
    const leader = leaders.get(key);
    if (leader === undefined) leaders.set(key, e);
    else steps.push(STEP.add, leader, e);
  }
  return steps;
}

/**
 * Shifts by edge, and the edge that each edge of the long network takes its shifts from (undefined:
 * its own).
 */
interface Spread {
  readonly shifts: readonly (Shifts | undefined)[];
  readonly edge: Int32Array | undefined;
}

/**
 * A few sweeps of a network with some more blocks, all in lock step: what the blocks in its middle
 * say then holds for any number of blocks between them.
 */
function spreadShifts(
  net: Network,
  fold: Fold,
  shifts: readonly (Shifts | undefined)[],
  workspace: Workspace,
): Spread {
  const wide = fold.wider(MARGIN);
  const target = wide?.short ?? net.clone();
  workspace.reducer.sumParallel(target);
  const origin = wide?.origin;
  const rank = origin === undefined ? fold.lockstep : origin.map((i) => fold.lockstep[i]);
  // Edge of the target -> edge of the short network, and the number of edges of the long one that
  // it represents.
  const twin = new Int32Array(target.factors.length).fill(-1);
  const count = new Float64Array(target.factors.length);
  for (let e = 0; e < fold.edge.length; e++) {
    const there = wide === undefined ? e : wide.edge[e];
    if (there < 0) continue;
    count[there]++;
    if (twin[there] < 0) twin[there] = fold.edge[e];
  }
  // A value that all layers read gives each of them its part.
  const weights = new Float64Array(2 * target.factors.length).fill(1);
  target.factors.forEach((f, e) => {
    f?.vars.forEach((v, side) => {
      if (fold.outside[origin === undefined ? v : origin[v]] === 1)
        weights[2 * e + side] = count[e];
    });
  });
  const messages = new Trws(target, rank, weights);
  target.factors.forEach((f, e) => {
    const pair = twin[e] < 0 ? undefined : shifts[twin[e]];
    if (f === undefined || pair === undefined) return;
    for (const side of [0, 1] as const) {
      const start = messages.start[2 * e + side];
      target.pool.mapOf(f.maps[side]).forEach((c, a) => {
        if (c >= 0) messages.to[start + c] = pair[side][a];
      });
    }
  });
  for (let sweep = 0; sweep < SPREAD_SWEEPS; sweep++) messages.sweep();
  workspace.meter.spend({ messageSteps: messages.steps });
  return { shifts: shiftsOf(target, messages), edge: wide?.edge };
}
