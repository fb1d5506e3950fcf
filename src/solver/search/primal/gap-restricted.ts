/**
 * Searches a network by a primal heuristic: exact elimination after fixing by a guessed cutoff.
 * Decoded choices are often far above the bound although the optimum is close to it; reduced-cost
 * fixing against them leaves too much. So the heuristic fixes against a cutoff within a small part
 * of the gap instead, and eliminates the rest. It proposes choices and proves nothing.
 */
import type { Trws } from '../../dual/trws.ts';
import type { Eliminator } from '../../eliminate/buckets.ts';
import { paretoEliminate } from '../../eliminate/pareto.ts';
import type { Network } from '../../network/network.ts';
import type { Reducer } from '../../reduce/presolve.ts';
import type { ReducedCostFixing } from '../../reduce/reduced-cost-fixing.ts';
import { ELIMINATION } from '../limits.ts';

export interface GapHost {
  readonly fixing: ReducedCostFixing;
  readonly reducer: Reducer;
  readonly eliminator: Eliminator;
  /** A bound at least this large ends the search. */
  readonly target: () => number;
  /** Takes a choice, as positions of the network. */
  readonly propose: (at: Int32Array) => void;
  readonly stopped: () => boolean;
  /** Limits on a network with rows. */
  readonly labels?: {
    readonly most: number;
    /** Most label combinations of one attempt. */
    readonly work: () => number;
    readonly spent: (work: number) => void;
    /** True if the whole of a wide gap is an attempt. */
    readonly searchesWide: boolean;
  };
}

/**
 * Part of the gap within which choices are looked for first; the least part; and the factors of the
 * next attempts.
 */
const FIRST_PART = 1 / 16;
const LEAST_PART = 1 / 1024;
const WIDER = 4;
const NARROWER = 1 / 4;
/**
 * Under rows a gap beyond this part of the cost is too wide for the exact elimination that comes
 * next.
 */
const WIDE_GAP = 1 / 128;
/** Labels kept of a cell: enough for the best sum of equal layers to be among them or near. */
const FRONT = 32;
/**
 * Networks that keep more cells than this, and than this part of them, are not narrow, whatever
 * reduction would make of them.
 */
const MOST_CELLS = 1_000_000;
const MOST_PART = 1 / 8;

/**
 * Searches within a part of the gap: a larger one as long as the fixed network is narrow, else a
 * smaller one until it is.
 *
 * @param messages of the present network, priced for its rows
 */
export function searchWithinGap(net: Network, messages: Trws, bound: number, host: GapHost): void {
  const gap = host.target() - bound;
  if (!(gap > 0) || gap === Infinity) return;
  const isWide =
    host.labels?.searchesWide === true &&
    net.rows.length > 0 &&
    gap > WIDE_GAP * Math.abs(host.target());
  let factor = WIDER;
  let isLast = false;
  for (let slack = gap * FIRST_PART; !isLast; slack *= factor) {
    if (host.stopped()) return;
    isLast = bound + slack >= host.target() - 1;
    if (isLast && !isWide) return;
    const isNarrow = searchBelowCutoff(
      net,
      messages,
      isLast ? host.target() - 1 : bound + slack,
      host,
    );
    if (isNarrow && factor === WIDER) continue;
    if (isNarrow || slack * NARROWER < gap * LEAST_PART) return;
    if (slack > gap * FIRST_PART) {
      // One more search, with a slack between those of the last two.
      searchBelowCutoff(net, messages, bound + slack / Math.sqrt(WIDER), host);
      return;
    }
    factor = NARROWER;
  }
}

/** Searches for choices of at most this cost; false when the fixed network is too wide. */
function searchBelowCutoff(net: Network, messages: Trws, cutoff: number, host: GapHost): boolean {
  const { fixing, reducer } = host;
  const core = net.afresh();
  if (!fixing.fix(core, cutoff, messages)) return true;
  if (core.cells > Math.max(MOST_CELLS, net.cells * MOST_PART)) return false;
  if (!reducer.reduce(core, true, host.stopped) || !fixing.fix(core, cutoff)) return true;
  if (!reducer.reduce(core, true, host.stopped)) return true;
  const slack = cutoff - core.constant;
  if (net.rows.length === 0) {
    const status = host.eliminator.run(core, { ...ELIMINATION.gap, slack, stop: host.stopped });
    if (status === 'done') host.propose(core.complete(new Int32Array(core.count)));
    return status === 'done' || status === 'infeasible';
  }
  const { labels } = host;
  if (labels === undefined) return false;
  const found = paretoEliminate(core, {
    labels: labels.most,
    work: labels.work(),
    slack,
    front: FRONT,
    stop: host.stopped,
  });
  labels.spent(found.work);
  if (found.status === 'found') host.propose(core.complete(found.at));
  return found.status !== 'too-large';
}
