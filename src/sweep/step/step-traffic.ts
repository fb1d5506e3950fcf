/** Gives the collectives of one step on the busiest device of a layout, by kind and mesh axes. */

import { routedPart } from '../../step/checkpoints.ts';
import { type Ring, ringSeconds, ringSends } from '../../step/costs/ring.ts';
import { tokenExchange } from '../../step/costs/token-exchange.ts';
import { ringOf, type UnitRequest } from '../../step/costs/unit-costs.ts';
import { type RoutedCosts, routedUnits } from '../../step/read/moe.ts';
import type { Moved } from '../../step/states.ts';
import type { Traffic } from '../../step/traffic.ts';
import type { CoreTraffic, CoreUnit } from '../../step/units.ts';
import type { LayerKinds } from '../model/representative-layers.ts';

/** The place in the pipeline of the device that works longest. */
export interface DevicePlace {
  /** First units of the chunks, and the number of units. */
  readonly bounds: readonly number[];
  readonly device: number;
  readonly chunks: number;
  /** Units of each chunk, from its first, whose results are recomputed. */
  readonly again: readonly number[];
  /**
   * Share of seconds that stays visible: of state collectives of each microbatch, of those of a
   * step, of exchanges with experts.
   */
  readonly visible: {
    readonly microbatch: number;
    readonly step: number;
    readonly exchange?: number;
  };
}

type Writable<T> = { -readonly [K in keyof T]: T[K] };

/**
 * The messages of keys, values and their gradients around the ring in one microbatch of a layer,
 * and the share of them that is visible.
 */
function ringMoves(
  { context }: CoreUnit,
  ring: Ring,
): (Moved & { readonly share: number }) | undefined {
  if (context === undefined) return undefined;
  const count = ringSends(ring.ranks, 'forward') + ringSends(ring.ranks, 'backward');
  const seconds = count * ring.hop(ring.blockBytes);
  const visible =
    ringSeconds(context.forward, ring, 'forward').seconds +
    ringSeconds(context.backward, ring, 'backward').seconds;
  return {
    kind: 'collective_permute',
    axes: 'cp',
    count,
    sentBytes: count * ring.blockBytes,
    seconds,
    share: visible / seconds,
  };
}

/**
 * Collectives of one step on the device that works longest, by kind and axes; most seconds first.
 */
export function stepTraffic(
  request: UnitRequest,
  kinds: LayerKinds,
  place: DevicePlace,
  microbatches: number,
): Traffic[] {
  const { core, routed, sizes, kind } = request;
  const { visible } = place;
  const { times, again } = unitTimes(request, kinds, place);
  const sums = new TrafficSums();
  const isRing = kind.context === 'ring';
  const inRing = (t: CoreTraffic): boolean =>
    isRing && t.axes === 'cp' && core.units[t.unit].context !== undefined;
  for (const t of core.traffic)
    if (!inRing(t)) sums.put(t, microbatches * (times.get(t.unit) ?? 0));
  if (isRing)
    for (const [index, n] of times) {
      const move = ringMoves(core.units[index], ringOf(request));
      if (move !== undefined) sums.put(move, microbatches * n, move.share);
    }
  for (const { p, cost } of request.states.costs()) {
    // A tied parameter lies on the first and on the last stage, which are two devices.
    const also = sizes.pp > 1 && p.alsoUnit !== undefined ? (times.get(p.alsoUnit) ?? 0) : 0;
    const n = (times.get(p.unit) ?? 0) + also;
    for (const move of cost.perMicrobatch) sums.put(move, microbatches * n, visible.microbatch);
    for (const move of cost.perStep) sums.put(move, n, visible.step);
  }
  if (routed !== undefined)
    for (const [index, n] of times)
      for (const move of exchangeMoves(request, routed, index)) {
        // Once in each pass; a block that is recomputed dispatches and combines once more.
        const twice = routedPart(request.checkpoint) === 'full' ? (again.get(index) ?? 0) : 0;
        // Both ways are listed of each leg: half of them run.
        sums.put(move, (microbatches * (2 * n + twice)) / 2, visible.exchange);
      }
  return sums.sorted();
}

/** How often each built unit is on the device, and how often it is recomputed. */
function unitTimes(
  { core, sizes }: UnitRequest,
  kinds: LayerKinds,
  { bounds, device, chunks, again: recomputed }: DevicePlace,
): { readonly times: ReadonlyMap<number, number>; readonly again: ReadonlyMap<number, number> } {
  const times = new Map<number, number>();
  const again = new Map<number, number>();
  const last = bounds[bounds.length - 1] - 1;
  for (let c = 0; c < chunks; c++) {
    const k = c * sizes.pp + device;
    for (let u = bounds[k]; u < bounds[k + 1]; u++) {
      const shallow = u === 0 ? 0 : u === last ? core.units.length - 1 : kinds.standsFor[u - 1] + 1;
      times.set(shallow, (times.get(shallow) ?? 0) + 1);
      if (u - bounds[k] < recomputed[k]) again.set(shallow, (again.get(shallow) ?? 0) + 1);
    }
  }
  return { times, again };
}

/** The exchanges of a unit's tokens with experts: there, where they may be narrower, and back. */
function exchangeMoves(
  { sizes, groups, system }: UnitRequest,
  routed: RoutedCosts,
  index: number,
): readonly Moved[] {
  const { expertTokensOnce, sentBytes = 2 } = system?.software ?? {};
  const bytes = routedUnits(routed, sizes)?.[index]?.dispatchBytes ?? 0;
  return [sentBytes / 2, 1].flatMap(
    (share) => tokenExchange(groups, share * bytes, routed, expertTokensOnce).moves,
  );
}

/** Sums of moves by kind and axes. */
class TrafficSums {
  private readonly sums = new Map<string, Writable<Traffic> & { exposedSeconds: number }>();

  /** @param share of the seconds that are visible */
  put(move: Moved | CoreTraffic, n: number, share = 1): void {
    if (n === 0) return;
    const { kind, axes } = move;
    const key = `${kind} ${axes}`;
    let sum = this.sums.get(key);
    if (sum === undefined) {
      sum = { kind, axes, count: 0, sentBytes: 0, seconds: 0, exposedSeconds: 0 };
      this.sums.set(key, sum);
    }
    sum.count += n * move.count;
    sum.sentBytes += n * move.sentBytes;
    sum.seconds += n * move.seconds;
    sum.exposedSeconds += n * move.seconds * share;
  }

  /** Most seconds first. */
  sorted(): Traffic[] {
    return [...this.sums.values()].sort(
      (a, b) => b.seconds - a.seconds || (`${a.kind}${a.axes}` < `${b.kind}${b.axes}` ? -1 : 1),
    );
  }
}
