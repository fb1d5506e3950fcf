/**
 * Plans whose experts are cut over `etp` devices, and which of them need not be priced. Cuts add as
 * many plans again as there are divisors of tp, and few of them can win: what an expert group of
 * more devices does with whole experts, the cut does with gathers and scatters of rows on top. Not
 * always: rows are gathered once for all experts of a token, but sent once for each, so that a
 * small cut of an expert can be cheaper than a large group, between whole experts and etp = tp too.
 * No cut is left out for its size alone, therefore; a plan is, where one of two proofs holds for
 * it.
 *
 * **Another fold** of the same devices takes no part longer and no part larger (`isWorse`). It has
 * ep * f groups of experts cut etp / f ways: the same devices hold the same experts, cut less.
 * Their states are equal to the byte, 16 Phi / (ep * etp * efsdp) where they are sharded, and so
 * are the groups that reduce their gradients. Seconds and bytes of a step never fall when a part of
 * it grows: of a second more of compute at most 0.8 hide what was visible, of a second more of
 * exchange none does. That is so at equal tuning and equal cuts into stages. A plan is reported
 * with its fastest tuning that fits, so that a point of a plan that is left out may be missing
 * among the reported ones: the other fold has it or a better one at a tuning that is not its
 * fastest.
 *
 * **Bounds** (`leastSeconds`, `leastBytes`): a plan that was priced is as fast as the plan can be
 * at best and takes no more memory than it takes at least, and the best plan is as fast too.
 */

import { ROUTED_PARTS } from '../../step/checkpoints.ts';
import { tokenExchange } from '../../step/costs/token-exchange.ts';
import { type Fold, type RoutedCosts, type RoutedUnit, routedUnits } from '../../step/read/moe.ts';
import type { CoreCost } from '../model/types.ts';
import type { Composer } from './compose.ts';
import type { LayoutRow } from './layouts.ts';

/** Plans with cut experts that were not priced, by the proof that spares them. */
export interface CutsLeftOut {
  /** Another fold of the same devices takes no part longer and no part larger. */
  readonly worse: number;
  /** Their bounds are above plans that were priced. */
  readonly beaten: number;
}

/**
 * Folds of the same devices that cut an expert less, the least cut first; of experts in equal
 * groups.
 */
export function lessCut({ ep, etp }: Fold, experts: number): Fold[] {
  return Array.from({ length: etp }, (_, i) => ({ ep: (ep * etp) / (i + 1), etp: i + 1 })).filter(
    (f) => f.etp < etp && etp % f.etp === 0 && experts % f.ep === 0,
  );
}

/** The tolerance of equal figures that are added up in another order. */
const ROUNDING = 1e-9;

/**
 * Tells whether a layout takes at least as long and as much in every part as the one that cuts its
 * experts as `other` says. Both must be folds of the same devices (`lessCut`) that were priced.
 */
export function isWorse(
  row: LayoutRow,
  other: Fold,
  routed: RoutedCosts,
  composer: Composer,
): boolean {
  const own: Fold = { ep: row.sizes.ep, etp: row.sizes.etp ?? 1 };
  const [units, others] = [routedUnits(routed, own), routedUnits(routed, other)];
  if (units === undefined || others === undefined) return false;
  const isMore = (part: number, than: number): boolean => than <= part * (1 + ROUNDING);
  if (!units.every((u, k) => partsOf(u).every((part, i) => isMore(part, partsOf(others[k])[i]))))
    return false;
  const exchange = (fold: Fold, of: readonly RoutedUnit[]): number[] => {
    const groups = composer.groupsOf({ ...row.sizes, ...fold }, row.kind);
    return of.map((u) => tokenExchange(groups, u.dispatchBytes, routed).seconds);
  };
  const than = exchange(other, others);
  return exchange(own, units).every((seconds, k) => isMore(seconds, than[k]));
}

/** Everything that a fold decides about a unit but its exchange and its states. */
function partsOf(u: RoutedUnit): readonly number[] {
  let parts = known.get(u);
  if (parts === undefined) known.set(u, (parts = listed(u)));
  return parts;
}
const known = new WeakMap<RoutedUnit, readonly number[]>();

function listed(u: RoutedUnit): number[] {
  return [
    u.forwardSeconds,
    u.inputSeconds,
    u.weightSeconds,
    u.temporaryBytes,
    ...ROUTED_PARTS.flatMap((part) => [u.recomputeSeconds[part], u.keptBytes[part]]),
  ];
}

/** A plan with cut experts, and the programs of a data rank that it can be made of. */
export interface CutRow {
  readonly row: LayoutRow;
  readonly programs: readonly { readonly core: CoreCost; readonly routed: RoutedCosts }[];
}

/** The least seconds and bytes of a plan, whatever is left to choose. */
export function leastOf(
  { row, programs }: CutRow,
  composer: Composer,
): { readonly seconds: number; readonly bytes: () => number } {
  const { sizes, kind } = row;
  const least = programs.map(({ core, routed }) => composer.leastOf(core, routed, { sizes, kind }));
  return {
    seconds: Math.min(...least.map((l) => l.seconds)),
    bytes: () => Math.min(...least.map((l) => l.bytes())),
  };
}

/** Least seconds of the plans that fit in so many bytes, by what was priced. */
export class Front {
  private readonly bytes: number[] = [];
  private readonly seconds: number[] = [];

  constructor(points: readonly { readonly peakBytes: number; readonly seconds: number }[]) {
    for (const p of [...points].sort(
      (a, b) => a.peakBytes - b.peakBytes || a.seconds - b.seconds,
    )) {
      if (p.seconds >= (this.seconds.at(-1) ?? Infinity)) continue;
      this.bytes.push(p.peakBytes);
      this.seconds.push(p.seconds);
    }
  }

  /** Infinity where nothing fits in them. */
  within(bytes: number): number {
    let [low, high] = [0, this.bytes.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.bytes[middle] <= bytes) low = middle + 1;
      else high = middle;
    }
    return low === 0 ? Infinity : this.seconds[low - 1];
  }
}
