/**
 * Choices near the bound. Under a row that binds, the best choice found so far is often far above the bound while the best
 * one there is lies close to it; pruned against the former, a deep network is still too wide for Pareto labels. Pruned as
 * if a choice within a small part of the gap were known, it is narrow. What the labels find there is a choice like any
 * other; nothing is proven, but the next pruning has a better choice to go by.
 */
import type { Messages } from './bound.ts';
import { eliminateWithRows } from './labels.ts';
import type { Network } from './network.ts';
import type { Pruner } from './prune.ts';
import type { Reducer } from './reduce.ts';

export interface NearHost {
  readonly pruner: Pruner;
  readonly reducer: Reducer;
  /** A bound at least this large ends the search. */
  readonly target: () => number;
  readonly offer: (net: Network, at: Int32Array) => void;
  readonly stopped: () => boolean;
  /** Most label combinations of one attempt. */
  readonly work: () => number;
  readonly labels: number;
  readonly spent: (work: number) => void;
}

/** Part of the gap within which choices are looked for first; the least part; and the factors of the next attempts. */
const FIRST_PART = 1 / 16;
const LEAST_PART = 1 / 1024;
const WIDER = 2;
const NARROWER = 1 / 4;
/** Labels kept of a cell: enough for the best sum of equal layers to be among them or near. */
const FRONT = 32;

/**
 * Looks for choices within a part of the gap: a larger one as long as labels do not become too many, else a smaller one
 * until they do not.
 *
 * @param messages of the network as it stands, priced for its rows
 */
export function searchNearBound(net: Network, messages: Messages, bound: number, host: NearHost): void {
  const gap = host.target() - bound;
  if (!(gap > 0) || gap === Infinity) return;
  let factor = WIDER;
  for (let slack = gap * FIRST_PART; bound + slack < host.target() - 1; slack *= factor) {
    if (host.stopped()) return;
    const isNarrow = searchWithin(net, messages, bound + slack, host);
    if (isNarrow && factor === NARROWER) return;
    if (isNarrow) continue;
    if (slack * NARROWER < gap * LEAST_PART || slack > gap * FIRST_PART) return;
    factor = NARROWER;
  }
}

/** Looks for choices at most this dear; false when labels become too many. */
function searchWithin(net: Network, messages: Messages, cutoff: number, host: NearHost): boolean {
  const { pruner, reducer } = host;
  const core = net.clone();
  if (!pruner.prune(core, cutoff, messages) || !reducer.reduce(core, true)) return true;
  if (!pruner.prune(core, cutoff) || !reducer.reduce(core, true)) return true;
  const limits = { labels: host.labels, work: host.work(), slack: cutoff - core.constant, front: FRONT };
  const found = eliminateWithRows(core, { ...limits, stop: host.stopped });
  host.spent(found.work);
  if (found.status === 'found') host.offer(core, found.at);
  return found.status !== 'wide';
}
