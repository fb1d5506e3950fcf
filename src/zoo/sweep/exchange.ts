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
export function tokenExchange(groups: DataGroups, dispatchBytes: number, routed: Pick<RoutedCosts, 'experts' | 'active'>): Exchange {
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
  const buffer = (dispatchBytes / routed.active) * hosts * reaches(routed.experts, routed.active, hosts);
  const forwarded: Exchange = {
    seconds: Math.max(
      collectives.seconds('all_to_all', buffer, across),
      collectives.seconds('all_to_all', dispatchBytes, inside),
    ),
    sentBytes: ringBytes('all_to_all', buffer, hosts) + ringBytes('all_to_all', dispatchBytes, mesh.sizeOf(inside)),
  };
  return forwarded.seconds < flat.seconds ? forwarded : flat;
} // prettier-ignore

/** Probability that one of `active` experts of a token, chosen at random among `experts`, is on a given one of `hosts` hosts. */
export function reaches(experts: number, active: number, hosts: number): number {
  const elsewhere = experts - experts / hosts;
  let none = 1;
  for (let k = 0; k < active; k++) none *= Math.max(0, elsewhere - k) / (experts - k);
  return 1 - none;
}
