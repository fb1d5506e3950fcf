/**
 * The independent checker of dual bounds. A dual certificate gives prices of rows and messages on edges, all integers; any
 * such numbers bound every choice from below, so nothing in it has to be trusted:
 *
 *   LB = constant - sum_t price_t limit_t + sum_groups min_a [costs(a) + prices(a) - messages(a)]
 *        + sum_edges min_(a,b) [table(a,b) + message(a) + message(b)]
 *
 * for every choice pays at least each minimum, the messages cancel, and a kept row pays at most its price times its limit.
 * Variables that an edge ties to one another are first joined into groups; the certificate says along which edges, and each
 * joint is verified here. Values that no choice can have are left out of the minima. With a tree the bound is the least one over
 * its parts (`tree.ts`). Shares no code with any solver; sums are BigInt wherever they could exceed 2^53.
 */
import { Refused } from '../store.ts';
import type { DualCertificate, Problem } from '../../types.ts';
import { Grouping } from './grouping.ts';
import { Ground } from './ground.ts';
import { leastOverParts } from './tree.ts';

/** Computes the bound that a dual certificate proves. @throws Refused for a bad one */
export function dualBound(problem: Problem, certificate: DualCertificate): bigint {
  if ((certificate.kind as string) !== 'dual') throw new Refused('unknown kind');
  const groups = new Grouping(problem);
  groups.follow(certificate.joins);
  const ground = new Ground(problem, groups);
  const live = ground.live();
  const whole = ground.bound(certificate, live);
  const { tree } = certificate;
  if (tree === undefined) return whole;
  // Without a choice in any part there is none at all; then every bound holds.
  const parts = leastOverParts(ground, problem, { ...certificate, tree }, live) ?? whole;
  return parts > whole ? parts : whole;
}
