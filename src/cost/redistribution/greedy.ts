/**
 * The plans that PyTorch DTensor 2.13 makes unless asked for better ones
 * (torch/distributed/tensor/_redistribute.py): mesh dim by mesh dim, no search. Kept to compare
 * with and to read DTensor's own figures; our plans come from `Redistributor`.
 */

import { ShardwrightError } from '../../errors.ts';
import type { CollectiveKind } from '../../mesh/collective-kinds.ts';
import type { DeviceMesh } from '../../mesh/devices/mesh.ts';
import { Partial } from '../../mesh/placements/partials/partial.ts';
import type { Placement } from '../../mesh/placements/placement.ts';
import { REPLICATE } from '../../mesh/placements/replicate.ts';
import { Shard } from '../../mesh/placements/shards/shard.ts';
import { Sharding } from '../../mesh/sharding/sharding.ts';
import type { ShardingSpace } from '../../mesh/sharding/space.ts';
import type { CollectiveModel } from '../collective-model.ts';
import type { RedistributionPlan, RedistributionStep } from './plan.ts';
import { cutsOfSharding, localTensorBytes, type MovedType, SlotPricing } from './pricing.ts';
import type { PriceSlot } from './slots.ts';

/** One mesh dim changes its placement. */
export interface GreedyStep {
  readonly meshDim: number;
  readonly from: Placement;
  readonly to: Placement;
}

/**
 * The steps that DTensor takes. On one mesh dim: one step. On several, if the source cuts any dim:
 * inner mesh dims first, by way of R where the target's outer cuts of the same tensor dim are not
 * in place; then outer mesh dims first for what is left. Steps may be ones that DTensor refuses to
 * run (S to P): `GreedyPlanner` says so.
 *
 * @throws E_PLACEMENT for orders other than mesh order and for kinds other than S, R and P: DTensor
 *   plans these otherwise
 */
export function greedySteps(from: Sharding, to: Sharding, mesh: DeviceMesh): GreedyStep[] {
  for (const sharding of [from, to]) checkPlain(sharding);
  const now = [...from.placements];
  const target = to.placements;
  const steps: GreedyStep[] = [];
  const take = (meshDim: number, next: Placement): void => {
    if (now[meshDim] === next) return;
    steps.push({ meshDim, from: now[meshDim], to: next });
    now[meshDim] = next;
  };
  const outerCuts = (list: readonly Placement[], dim: number, before: number): string =>
    list.flatMap((p, m) => (m < before && p.dim === dim ? [m] : [])).join(',');
  const cut = now.some((p, m) => p.dim !== undefined && mesh.sizes[m] > 1);
  if (mesh.rank > 1 && cut)
    for (let m = mesh.rank - 1; m >= 0; m--) {
      const { dim } = target[m];
      const aligned = dim === undefined || outerCuts(now, dim, m) === outerCuts(target, dim, m);
      take(m, aligned ? target[m] : REPLICATE);
    }
  for (let m = 0; m < mesh.rank; m++) take(m, target[m]);
  return steps;
}

function checkPlain(sharding: Sharding): void {
  const other = sharding.placements.find(
    (p) => !(p instanceof Shard || p instanceof Partial || p === REPLICATE),
  );
  if (other !== undefined || !sharding.inMeshOrder)
    throw new ShardwrightError(
      'E_PLACEMENT',
      `the greedy planner knows S, R and P in mesh order only, not ${other?.text ?? sharding.text}`,
      { hint: 'compare with the plans of Redistributor with merge: false' },
    );
}

/** The name of a change of one mesh dim; undefined for changes that DTensor refuses. */
export function stepKind(
  from: Placement,
  to: Placement,
): CollectiveKind | 'slice' | 'to_partial' | undefined {
  const pending = from instanceof Partial;
  if (from.dim !== undefined) {
    if (to instanceof Partial) return undefined;
    return to.dim !== undefined ? 'all_to_all' : 'all_gather';
  }
  if (to.dim !== undefined) return pending ? 'reduce_scatter' : 'slice';
  if (pending) return to instanceof Partial ? undefined : 'all_reduce';
  return 'to_partial';
}

/**
 * Prices of greedy plans under any collective model; under the preset `dtensor` they are DTensor's
 * own figures.
 */
export class GreedyPlanner {
  private readonly pricing: SlotPricing;

  constructor(
    readonly space: ShardingSpace,
    readonly model: CollectiveModel,
  ) {
    this.pricing = new SlotPricing(space, model);
  }

  /** Seconds of the greedy plan; Infinity where DTensor refuses the change. */
  seconds(type: MovedType, from: number, to: number): number {
    return this.plan(type, from, to)?.seconds ?? Infinity;
  }

  /**
   * The greedy plan; undefined where DTensor refuses it (S to P, P(a) to P(b)). @throws E_PLACEMENT
   * as `greedySteps`
   */
  plan(type: MovedType, from: number, to: number): RedistributionPlan | undefined {
    const { space } = this;
    const { mesh } = space;
    const source = space.get(from);
    const changes = greedySteps(source, space.get(to), mesh);
    const now = [...source.placements];
    const steps: RedistributionStep[] = [];
    let text = source.orderedText;
    let seconds = 0;
    let collectives = 0;
    let peakBytes = localTensorBytes(space, from, type);
    let before = source;
    for (const { meshDim: m, from: old, to: next } of changes) {
      const kind = stepKind(old, next);
      if (kind === undefined) return undefined;
      now[m] = next;
      const after = new Sharding([...now]);
      const id = space.intern(after);
      const [slot, cuts] = this.slot(kind, m, before, after, type.shape.length);
      const price = this.pricing.price(slot, cuts, type);
      const bytes = this.pricing.bytes(slot, cuts, type);
      steps.push({ kind, meshDims: [m], groupSize: mesh.sizes[m], bytes, seconds: price, to: id });
      seconds += price;
      if (mesh.sizes[m] > 1 && kind !== 'slice' && kind !== 'to_partial') collectives++;
      peakBytes = Math.max(peakBytes, localTensorBytes(space, id, type));
      text += `->${after.orderedText}`;
      before = after;
    }
    return { from, to, seconds, steps, collectives, peakBytes, text };
  }

  /** The price slot of the step, as the state graph would have it. */
  private slot(
    kind: PriceSlot['kind'],
    m: number,
    before: Sharding,
    after: Sharding,
    rank: number,
  ): [PriceSlot, ReturnType<typeof cutsOfSharding>] {
    const { mesh } = this.space;
    const n = mesh.sizes[m];
    const old = before.placements[m].dim;
    const next = after.placements[m].dim;
    let cuts = cutsOfSharding(
      this.space,
      kind === 'all_gather' || kind === 'all_reduce' ? before : after,
      rank,
    );
    if (kind === 'all_to_all' && old !== undefined) {
      const pieces = [...cuts.pieces];
      pieces[old] *= n;
      cuts = { ...cuts, pieces };
    }
    const times = kind === 'all_reduce' || kind === 'slice' ? 1 : kind === 'to_partial' ? 0 : n;
    const copyDims = [old, next].filter((d) => d !== undefined);
    return [{ kind, meshDims: [m], devices: n, cuts: 0, times, copyDims, evenDims: [] }, cuts];
  }
}
