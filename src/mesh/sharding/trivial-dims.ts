/** Canonical form of shardings over trivial mesh dims: a dim of one device cuts nothing. */
import type { DeviceMesh } from '../devices/mesh.ts';
import { REPLICATE } from '../placements/replicate.ts';
import { Sharding } from './sharding.ts';

/**
 * The same sharding, replicated on every mesh dim of one device. There a shard is the whole tensor
 * and a pending reduction has one summand.
 */
export function withoutTrivialDims(sharding: Sharding, { sizes }: DeviceMesh): Sharding {
  const { placements, orders } = sharding;
  const isTrivial = (m: number): boolean => sizes[m] === 1;
  if (placements.every((p, m) => !isTrivial(m) || p.kind === 'replicate')) return sharding;
  const kept = new Map<number, readonly number[]>();
  for (const [dim, order] of orders) {
    const cut = order.filter((m) => !isTrivial(m));
    if (cut.length > 0) kept.set(dim, cut);
  }
  return new Sharding(
    placements.map((p, m) => (isTrivial(m) ? REPLICATE : p)),
    kept,
  );
}
