/**
 * Prices the all-to-all of tokens between experts: takes token bytes and the expert group, gives
 * the cheapest exchange.
 */

import type { RoutedCosts } from '../read/moe.ts';
import type { DataGroups, Moved } from '../states.ts';
import { ringBytes } from '../traffic.ts';

/** Tokens on their way to their experts and back: one pass of a routed block. */
interface Exchange {
  /** Seconds of one of the two ways, the mean. */
  readonly seconds: number;
  /** Bytes that a device sends on one of the two ways. */
  readonly sentBytes: number;
  /** Both ways, collective by collective. */
  readonly moves: readonly Moved[];
}

const NONE: Exchange = { seconds: 0, sentBytes: 0, moves: [] };

/**
 * The cheapest exchange. Between expert groups: all copies of the tokens by one all-to-all; or,
 * where the group reaches over hosts, each token once to every host that has one of its experts and
 * copied there, both legs at once in a stream of tokens. The latter is what DeepSeek-V3 does
 * (arXiv:2412.19437, section 3.2.2) and the dispatchers of its library DeepEP, which Megatron-Core
 * offers.
 *
 * Where `etp` devices cut each expert, all of them need the rows of all: gathered when they have
 * arrived, and the summands of what they make scattered before they go back (Megatron-Core's
 * all-to-all dispatcher); or gathered before they are copied for their experts and sent by each of
 * the devices (torchtitan's TP before EP, Megatron-Core's all-gather dispatcher).
 *
 * @param copyBytes all copies of a device's tokens
 * @param once whether a token crosses to a device once for all of its experts there
 */
export function tokenExchange(
  groups: DataGroups,
  copyBytes: number,
  routed: Pick<RoutedCosts, 'experts' | 'active' | 'limit'>,
  once = false,
): Exchange {
  const { ep, etp } = groups;
  // As many of a token's copies cross as there are devices with one of its experts.
  const dispatchBytes = once
    ? (copyBytes / routed.active) * Math.min(routed.active, ep * reached(routed, ep))
    : copyBytes;
  if (dispatchBytes === 0 || (ep === 1 && etp === 1)) return NONE;
  if (etp === 1) return both(sent(groups, dispatchBytes, routed, copyBytes));
  const late = [
    ...sent(groups, dispatchBytes, routed, copyBytes),
    ...gathered(groups, etp * copyBytes),
  ];
  const early = [
    ...sent(groups, etp * dispatchBytes, routed, etp * copyBytes),
    ...gathered(groups, (etp * copyBytes) / routed.active),
  ];
  const [first, second] = [both(late), both(early)];
  return second.seconds < first.seconds ? second : first;
}

function both(moves: readonly Moved[]): Exchange {
  const half = (of: (m: Moved) => number): number => moves.reduce((sum, m) => sum + of(m), 0) / 2;
  return { seconds: half((m) => m.seconds), sentBytes: half((m) => m.sentBytes), moves };
}

/**
 * Rows to the devices that cut the same experts, and the summands of their results back; `bytes` of
 * all of them.
 */
function gathered({ expert, etp }: DataGroups, bytes: number): Moved[] {
  return (['all_gather', 'reduce_scatter'] as const).map((kind) => ({
    kind,
    axes: 'etp',
    count: 1,
    sentBytes: ringBytes(kind, bytes, etp),
    seconds: expert.collectives.seconds(kind, bytes, expert.mesh.resolve(['etp'])),
  }));
}

/** To the expert groups and back. */
function sent(
  groups: DataGroups,
  bytes: number,
  routed: Pick<RoutedCosts, 'experts' | 'active' | 'limit'>,
  copies = bytes,
): Moved[] {
  if (groups.ep === 1) return [];
  const { expert, forwarding } = groups;
  const move = (seconds: number, sentBytes: number): Moved[] => [
    { kind: 'all_to_all', axes: 'ep', count: 2, sentBytes: 2 * sentBytes, seconds: 2 * seconds },
  ];
  const flat = expert.collectives.seconds('all_to_all', bytes, expert.mesh.resolve(['ep']));
  const flatBytes = ringBytes('all_to_all', bytes, groups.ep);
  if (forwarding === undefined) return move(flat, flatBytes);
  const { mesh, collectives } = forwarding;
  const [across, inside] = [mesh.resolve(['epHosts']), mesh.resolve(['epInside'])];
  const hosts = mesh.sizeOf(across);
  // The buffer of an all-to-all has a part for every host, its own too; a token is in the part of a
  // host with this probability.
  const buffer = (copies / routed.active) * hosts * reached(routed, hosts);
  const seconds = Math.max(
    collectives.seconds('all_to_all', buffer, across),
    collectives.seconds('all_to_all', bytes, inside),
  );
  const streamed =
    ringBytes('all_to_all', buffer, hosts) + ringBytes('all_to_all', bytes, mesh.sizeOf(inside));
  return seconds < flat ? move(seconds, streamed) : move(flat, flatBytes);
}

/** By routing and hosts: layouts ask for the same few again and again. */
const known = new WeakMap<object, Map<number, number>>();

function reached(routed: Pick<RoutedCosts, 'experts' | 'active' | 'limit'>, hosts: number): number {
  const byHosts = known.get(routed) ?? new Map<number, number>();
  known.set(routed, byHosts);
  let found = byHosts.get(hosts);
  if (found === undefined)
    byHosts.set(hosts, (found = reaches(routed.experts, routed.active, hosts, routed.limit)));
  return found;
}

/**
 * Probability that one of `active` experts of a token is on a host, the mean of all hosts: experts
 * lie on them in their order.
 *
 * @param limit the token's experts are in `kept` of `count` equal groups of experts (DeepSeek-V3,
 *   arXiv:2412.19437, section 2.1.2: with a group on each host a token goes to `kept` hosts at
 *   most). Groups and experts in them are taken at random.
 */
export function reaches(
  experts: number,
  active: number,
  hosts: number,
  limit = { count: 1, kept: 1 },
): number {
  const { count, kept } = limit;
  const [perHost, perGroup] = [experts / hosts, experts / count];
  const open = kept * perGroup;
  let sum = 0;
  for (let h = 0; h < hosts; h++) {
    // ways[k][n]: choices of k of the groups looked at so far with n of their experts on this host.
    let ways = new Map([['0 0', { k: 0, n: 0, count: 1 }]]);
    for (let g = 0; g < count; g++) {
      const common = Math.max(
        0,
        Math.min((h + 1) * perHost, (g + 1) * perGroup) - Math.max(h * perHost, g * perGroup),
      );
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
}

/**
 * Probability that of `active` experts, chosen at random among `experts`, none is one of `some`.
 */
function avoids(experts: number, active: number, some: number): number {
  let none = 1;
  for (let k = 0; k < active; k++) none *= Math.max(0, experts - some - k) / (experts - k);
  return none;
}
