/**
 * Problems whose relaxation is tight, as those of repeated layers mostly are: messages alone prove
 * the optimum. A long problem of equal layers is shortened first (`fold/fold.ts`) and variables
 * between two others are eliminated; the messages that prove what is left are carried back through
 * the eliminations (`dual/lift.ts`) and spread over all layers. What counts is that the checker
 * then finds the bound to reach the cost of the choice; where it does not, the caller searches on.
 */
import { hashProblem, verifyHashed } from '../check/verify.ts';
import { ascend } from '../dual/ascent.ts';
import { evaluatePositions } from '../dual/rounding.ts';
import { Trws } from '../dual/trws.ts';
import type { Network } from '../network/network.ts';
import { isLeast } from '../problem/cost.ts';
import type { Certificate, Problem } from '../types.ts';
import { Search } from './branch-and-bound.ts';
import { ASCENT, ELIMINATION, SEARCH } from './limits.ts';
import { messageProof } from './messages/lists.ts';
import type { PreparedProblem } from './prepared.ts';
import { makeWorkspace, type Workspace } from './workspace.ts';

/**
 * With larger tables (three mesh dims and more) the reductions that the search makes first are
 * worth their time.
 */
const MOST_CELLS = 6_000_000;
const SERIES = { ...ELIMINATION.easy, series: true };

/** A choice and what is known of it. */
export interface Relaxed {
  readonly choice: Int32Array;
  /**
   * Nothing is cheaper: on the short network only, where the problem was folded and nothing was
   * certified.
   */
  readonly tight: boolean;
  readonly folded: boolean;
  /** Nothing is cheaper without rows, but it breaks one. */
  readonly breaksRows?: boolean;
  /** Present when the checker found that no choice costs less, but for what is tolerated. */
  readonly proven?: { readonly certificate: Certificate; readonly bound: number };
}

/**
 * Undefined when no choice was found on the way.
 *
 * @param problem that is asked: `prepared` under rows of its own. The certificate is about this one
 */
export function solveTightRelaxation(
  problem: Problem,
  prepared: PreparedProblem,
  workspace: Workspace,
  evaluate: (choice: Int32Array) => number,
  stopped: () => boolean,
  { certify, hasRows }: { readonly certify: boolean; readonly hasRows: boolean },
): Relaxed | undefined {
  const { fold, relaxed } = prepared;
  const folded = fold !== undefined;
  // The relaxation was solved before, for a problem with other rows. Where the present rows exclude
  // that choice too, or it was not proven, it answers this problem as well.
  if (relaxed !== undefined) {
    const breaksRows = relaxed.tight && evaluate(relaxed.choice) === Infinity;
    if (breaksRows || !relaxed.tight)
      return { choice: relaxed.choice, tight: false, folded, breaksRows };
  }
  if (!certify && folded) {
    // Without a certificate, the choice is sought among those whose middle blocks are tied. Rows
    // need prices, and of large tables what holds without them is not worth its time.
    if (hasRows && prepared.tied.cells > MOST_CELLS) return undefined;
    const short = solveUncertified(prepared.tied.clone(), workspace, stopped);
    if (short === undefined) return undefined;
    const choice = fold.variable.map((v) => short.choice[v]);
    if (short.tight) prepared.relaxed = { choice, tight: true };
    return { choice, tight: short.tight && evaluate(choice) < Infinity, folded };
  }
  const swept = sweptOnce(prepared, workspace, stopped);
  if (swept === undefined) return undefined;
  const { work, choice, tight, messages } = swept;
  if (!tight) return { choice, tight, folded };
  const objective = evaluate(choice);
  if (objective === Infinity) return { choice, tight: false, folded, breaksRows: true };
  if (!certify) return { choice, tight: true, folded };
  const proof = messageProof(prepared, work, messages, workspace);
  const certificate: Certificate = {
    version: 2,
    problem: hashProblem(problem),
    rows: [],
    ...proof,
  };
  const verdict = verifyHashed(problem, certificate.problem, { choice, objective, certificate });
  const proven = verdict.accepted && isLeast(problem, objective, Number(verdict.bound));
  return {
    choice,
    tight: true,
    folded,
    ...(proven ? { proven: { certificate, bound: Number(verdict.bound) } } : {}),
  };
}

/**
 * Sweeps of the short network, or of all where nothing repeats, without rows; their choice is kept
 * for other solves.
 */
function sweptOnce(
  prepared: PreparedProblem,
  workspace: Workspace,
  stopped: () => boolean,
): (Found & { readonly messages: Trws; readonly work: Network }) | undefined {
  const { fold, net } = prepared;
  const work = (fold?.short ?? net).clone();
  const swept = ascendReduced(work, workspace, stopped);
  if (swept === undefined) return undefined;
  const choice = fold === undefined ? swept.choice : fold.variable.map((v) => swept.choice[v]);
  if (!stopped()) prepared.relaxed = { choice, tight: swept.tight };
  return { ...swept, choice, work };
}

/**
 * About the cheapest choice without rows, uncertified: what sweeps alone say, for whoever wants to
 * know what it is like.
 *
 * @returns undefined when the network is too large to be swept for this, or no choice was found
 */
export function relaxedChoice(
  prepared: PreparedProblem,
  stopped: () => boolean,
): Int32Array | undefined {
  return (prepared.relaxed ?? sweptOnce(prepared, makeWorkspace(prepared), stopped))?.choice;
}

/**
 * The cheapest choice among those whose middle blocks are tied, without rows: a start for a long
 * search.
 */
export function tiedChoice(
  prepared: PreparedProblem,
  workspace: Workspace,
  stopped: () => boolean,
): Int32Array | undefined {
  const { fold } = prepared;
  if (fold === undefined || prepared.tied.cells < SEARCH.smallCells) return undefined;
  const short = solveUncertified(prepared.tied.clone(), workspace, stopped);
  return short && fold.variable.map((v) => short.choice[v]);
}

/** A choice of a network that is small enough to be swept, and whether nothing is cheaper. */
interface Found {
  readonly choice: Int32Array;
  readonly tight: boolean;
}

/**
 * The cheapest choice of a network, uncertified: by messages, else by branch and bound. The network
 * is used up.
 *
 * @returns undefined when no choice was found on the way
 */
export function solveUncertified(
  net: Network,
  workspace: Workspace,
  stopped: () => boolean,
): Found | undefined {
  const untouched = net.clone();
  const swept = ascendReduced(net, workspace, stopped);
  if (swept?.tight === true) return swept;
  const searched = search(untouched, swept?.choice, workspace, stopped);
  return searched === undefined ? swept : { choice: searched, tight: true };
}

/**
 * Sweeps of what the variables between two others leave when they are eliminated. The network is
 * used up.
 */
function ascendReduced(
  work: Network,
  workspace: Workspace,
  stopped: () => boolean,
): (Found & { readonly messages: Trws }) | undefined {
  if (work.cells > MOST_CELLS) return undefined;
  const { reducer, eliminator } = workspace;
  reducer.sumParallel(work);
  work.series = [];
  const status = eliminator.run(work, { ...SERIES, stop: stopped });
  if (status === 'infeasible' || status === 'stopped') return undefined;
  const messages = new Trws(work);
  let best: Int32Array | undefined;
  let least = Infinity;
  const target = (): number => least - work.slack;
  const bound = ascend(messages, {
    ...ASCENT.tight,
    propose: (at) => {
      const cost = evaluatePositions(work, at);
      if (cost >= least) return;
      least = cost;
      best = at;
    },
    target,
    stopped,
  });
  workspace.meter.spend({ messageSteps: messages.steps });
  return best === undefined
    ? undefined
    : { choice: work.complete(best), tight: bound >= target(), messages };
}

/**
 * The optimum of a short network by the search that long ones are spared; undefined when the clock
 * stopped it.
 */
function search(
  net: Network,
  start: Int32Array | undefined,
  workspace: Workspace,
  stopped: () => boolean,
): Int32Array | undefined {
  const original = net.clone();
  const full = new Search(
    {
      evaluate: (choice) => evaluatePositions(original, choice),
      stopped,
      progress: () => undefined,
      gap: 0,
    },
    workspace,
  );
  if (start !== undefined) full.propose(start);
  const bound = full.solve(net);
  const { best } = full;
  return best !== undefined && bound >= best.objective - original.slack ? best.choice : undefined;
}
