import { ringBytes } from '../price.ts';
import type { RoutedCosts } from './routed.ts';
import type { DataGroups } from './states.ts';

/** One exchange of tokens between the devices of an expert group. */
export interface Exchange {
  readonly seconds: number;
  /** Bytes that a device sends. */
  readonly sentBytes: number;
}

const NONE: Exchange = { seconds: 0, sentBytes: 0 };

/**
 * The cheaper of two exchanges: all copies of the tokens by one all-to-all; or, where the group reaches over hosts, each token
 * once to every host that has one of its experts and copied there, both legs at once in a stream of tokens. The latter is what
 * DeepSeek-V3 does (arXiv:2412.19437, section 3.2.2) and the dispatchers of its library DeepEP, which Megatron-Core offers.
 *
 * @param dispatchBytes all copies of a device's tokens
 */
export function tokenExchange(groups: DataGroups, dispatchBytes: number, routed: Pick<RoutedCosts, 'experts' | 'active' | 'limit'>): Exchange {
  if (groups.ep === 1 || dispatchBytes === 0) return NONE;
  const { expert, forwarding } = groups;
  const flat: Exchange = {
    seconds: expert.collectives.seconds('all_to_all', dispatchBytes, expert.mesh.resolve(['ep'])),
    sentBytes: ringBytes('all_to_all', dispatchBytes, groups.ep),
  };
  if (forwarding === undefined) return flat;
  const { mesh, collectives } = forwarding;
  const [across, inside] = [mesh.resolve(['epHosts']), mesh.resolve(['epInside'])];
  const hosts = mesh.sizeOf(across);
  // The buffer of an all-to-all has a part for every host, its own too; a token is in the part of a host with this probability.
  const buffer = (dispatchBytes / routed.active) * hosts * reaches(routed.experts, routed.active, hosts, routed.limit);
  const forwarded: Exchange = {
    seconds: Math.max(
      collectives.seconds('all_to_all', buffer, across),
      collectives.seconds('all_to_all', dispatchBytes, inside),
    ),
    sentBytes: ringBytes('all_to_all', buffer, hosts) + ringBytes('all_to_all', dispatchBytes, mesh.sizeOf(inside)),
  };
  return forwarded.seconds < flat.seconds ? forwarded : flat;
} // prettier-ignore

/**
 * Probability that one of `active` experts of a token is on a host, the mean of all hosts: experts lie on them in their order.
 *
 * @param limit the token's experts are in `kept` of `count` equal groups of experts (DeepSeek-V3, arXiv:2412.19437, section 2.1.2:
 *   with a group on each host a token goes to `kept` hosts at most). Groups and experts in them are taken at random.
 */
export function reaches(experts: number, active: number, hosts: number, limit = { count: 1, kept: 1 }): number {
  const { count, kept } = limit;
  const [perHost, perGroup] = [experts / hosts, experts / count];
  const open = kept * perGroup;
  let sum = 0;
  for (let h = 0; h < hosts; h++) {
    // ways[k][n]: choices of k of the groups looked at so far with n of their experts on this host.
    let ways = new Map([['0 0', { k: 0, n: 0, count: 1 }]]);
    for (let g = 0; g < count; g++) {
      const common = Math.max(0, Math.min((h + 1) * perHost, (g + 1) * perGroup) - Math.max(h * perHost, g * perGroup));
      const next: typeof ways = new Map();
      const put = (k: number, n: number, c: number): void => {
        const key = `${k} ${n}`;
        next.set(key, { k, n, count: (next.get(key)?.count ?? 0) + c });
      };
      for (const way of ways.values()) {
        put(way.k, way.n, way.count);
        if (way.k < kept) put(way.k + 1, way.n + common, way.count);
      }
      ways = next;
    }
    const all = [...ways.values()].filter((way) => way.k === kept);
    const total = all.reduce((t, way) => t + way.count, 0);
    for (const way of all) sum += (way.count / total) * (1 - avoids(open, active, way.n));
  }
  return sum / hosts;
} // prettier-ignore

/** Probability that of `active` experts, chosen at random among `experts`, none is one of `some`. */
function avoids(experts: number, active: number, some: number): number {
  let none = 1;
  for (let k = 0; k < active; k++) none *= Math.max(0, experts - some - k) / (experts - k);
  return none;
}
