/**
 * Mixes two choices under a row, layer by layer, with layers in between that are chosen again. As
 * many layers take the small choice as the row needs, and the rest the cheap one. Where the two
 * meet, their values may not go together: the layers on either side of that seam, and the variables
 * outside of layers, are free, at the price of the row. One of the two choices breaks the row, the
 * other keeps it.
 */
import { ascend } from '../../dual/ascent.ts';
import { addSlice } from '../../dual/inner-loops.ts';
import { evaluatePositions } from '../../dual/rounding.ts';
import { Trws } from '../../dual/trws.ts';
import { Network } from '../../network/network.ts';
import { addPrices, amountsAt, dropRows } from '../../network/rows.ts';
import { ASCENT, ELIMINATION } from '../limits.ts';
import type { Workspace } from '../workspace.ts';

/**
 * Seams tried, each a layer further, until one keeps the row: free layers may take more than either
 * choice does there.
 */
const SEAMS = 3;

interface MixHost {
  readonly workspace: Pick<Workspace, 'reducer' | 'eliminator'>;
  readonly stopped: () => boolean;
  /** Takes a choice (positions of the network). */
  readonly propose: (at: Int32Array) => void;
  /** Message steps taken. */
  readonly spent: (steps: number) => void;
}

/**
 * Proposes a mixture for either end of the network at which the small choice may begin.
 *
 * @param layer of every variable; -1 for those in no layer
 * @param price of the row
 */
export function mixLayers(
  net: Network,
  { cheap, small }: { readonly cheap: Int32Array; readonly small: Int32Array },
  layer: Int32Array,
  price: bigint,
  host: MixHost,
): void {
  const layers = [...new Set(layer)].filter((b) => b >= 0).sort((a, b) => a - b);
  for (const isUpward of [true, false]) {
    if (!isUpward) layers.reverse();
    const seam = firstSeam(net, cheap, small, layer, layers);
    for (let k = seam; k < Math.min(seam + SEAMS, layers.length - 1) && !host.stopped(); k++) {
      const place = new Map(layers.map((b, at) => [b, at]));
      const at = cheapestAcross(net, host, price, (i) => {
        const own = place.get(layer[i]);
        if (own === undefined || own === k || own === k + 1) return undefined;
        return (own < k ? small : cheap)[i];
      });
      if (at === undefined) continue;
      host.propose(at);
      if (amountsAt(net, at)[0] <= net.rows[0].bound) break;
    }
  }
}

/** How many layers, less one, must take the small choice for the row to hold; seams apart. */
function firstSeam(
  net: Network,
  cheap: Int32Array,
  small: Int32Array,
  layer: Int32Array,
  layers: readonly number[],
): number {
  const { bound, amounts } = net.rows[0];
  const saved = new Map<number, number>();
  for (let i = 0; i < net.count; i++) {
    if (net.gone[i] === 1 || amounts[i] < 0) continue;
    const takes = net.pool.vectorOf(amounts[i]);
    saved.set(layer[i], (saved.get(layer[i]) ?? 0) + takes[cheap[i]] - takes[small[i]]);
  }
  let used = amountsAt(net, cheap)[0];
  const found = layers.findIndex((b) => (used -= saved.get(b) ?? 0) <= bound);
  return found < 0 ? layers.length : found;
}

/**
 * The best choice met of the variables that are free, the others fixed; as positions of the
 * network, undefined where there is none.
 */
function cheapestAcross(
  net: Network,
  { workspace, stopped, spent }: MixHost,
  price: bigint,
  fixed: (variable: number) => number | undefined,
): Int32Array | undefined {
  const at = new Int32Array(net.count).fill(-1);
  const free: number[] = [];
  for (let i = 0; i < net.count; i++) {
    if (net.gone[i] === 1) continue;
    const position = fixed(i);
    if (position === undefined) free.push(i);
    else at[i] = position;
  }
  const core = conditioned(net, free, at);
  addPrices(core, [price]);
  dropRows(core);
  const { reducer, eliminator } = workspace;
  if (!reducer.reduce(core, false, stopped)) return undefined;
  const status = eliminator.run(core, { ...ELIMINATION.easy, stop: stopped });
  if (status === 'infeasible' || status === 'stopped') return undefined;
  const messages = new Trws(core);
  let best: Int32Array | undefined;
  let least = Infinity;
  const propose = (positions: Int32Array): void => {
    const cost = evaluatePositions(core, positions);
    if (cost >= least) return;
    least = cost;
    best = positions;
  };
  ascend(messages, { ...ASCENT.seam, propose, target: () => least, stopped });
  spent(messages.steps);
  if (best === undefined) return undefined;
  core.complete(best).forEach((position, k) => (at[free[k]] = position));
  return at;
}

/**
 * The network of some variables, given the positions of all others; its constant leaves out what
 * those cost among themselves.
 */
function conditioned(net: Network, free: readonly number[], at: Int32Array): Network {
  const { pool } = net;
  const core = new Network(
    pool,
    Int32Array.from(free, (i) => net.size[i]),
  );
  core.quantum = net.quantum;
  core.tolerance = net.tolerance;
  const name = new Int32Array(net.count).fill(-1);
  free.forEach((i, k) => (name[i] = k));
  free.forEach((i, k) => {
    const costs = pool.vectorOf(net.unary[i]).slice();
    for (const id of net.incident[i]) {
      const f = net.factors[id];
      if (f === undefined) continue;
      const side = f.vars[0] === i ? 0 : 1;
      const other = f.vars[1 - side];
      if (name[other] >= 0) {
        if (side === 0) core.addFactor({ ...f, vars: f.vars.map((v) => name[v]) });
        continue;
      }
      const there = pool.mapOf(f.maps[1 - side])[at[other]];
      const width = f.table.dims[1];
      if (there < 0) costs.fill(Infinity);
      else if (side === 0)
        addSlice(costs, costs.length, pool.mapOf(f.maps[0]), f.table.cells, there, width);
      else addSlice(costs, costs.length, pool.mapOf(f.maps[1]), f.table.cells, there * width, 1);
    }
    core.unary[k] = pool.vector(costs);
    core.rank[k] = net.rank[i];
    core.place[k] = net.place[i];
    core.minPairs[2 * k] = net.minPairs[2 * i];
    core.minPairs[2 * k + 1] = net.minPairs[2 * i + 1];
  });
  for (const { bound, amounts } of net.rows)
    core.rows.push({ bound, amounts: Int32Array.from(free, (i) => amounts[i]) });
  return core;
}
