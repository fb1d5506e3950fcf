/**
 * A problem without its rows, prepared for several solves: its interned network, the fold of its
 * repeated blocks, the network with those blocks tied, and a fast cost function. Each is computed
 * on first use.
 */
import { type Fold, foldOf } from '../fold/fold.ts';
import { tieBlocks } from '../fold/tied.ts';
import { networkOf } from '../network/from-problem.ts';
import type { Network } from '../network/network.ts';
import { costFunction } from '../problem/cost.ts';
import { Pool } from '../store/pool.ts';
import type { Problem } from '../types.ts';
import { PriceMemo } from './price-memo.ts';
import { PresolveMemo } from './reduced-network.ts';

/** Problems of fewer variables are not worth a fold. */
export const FOLD_VARIABLES = 1500;

/** Data that several solves of one problem share, without its rows. */
export class PreparedProblem {
  readonly pool = new Pool();
  readonly prices = new PriceMemo();
  /** The presolve of `net` with rows. */
  readonly presolved = new PresolveMemo();
  /**
   * The cheapest choice without rows, once it is known, and whether messages have proven that it
   * is.
   */
  relaxed: { readonly choice: Int32Array; readonly tight: boolean } | undefined;
  private network: Network | undefined;
  private folded: { readonly found: Fold | undefined } | undefined;
  private tiedNetwork: Network | undefined;
  private costOfChoice: ((choice: ArrayLike<number>) => number) | undefined;

  constructor(readonly problem: Problem) {}

  /** Tells whether a problem differs in its rows only: all else is the same objects. */
  isOf({
    domains,
    unary,
    vectors,
    edges,
    maps,
    tables,
    usage,
    constant,
    tolerance,
  }: Problem): boolean {
    const own = this.problem;
    return (
      domains === own.domains &&
      unary === own.unary &&
      vectors === own.vectors &&
      edges === own.edges &&
      maps === own.maps &&
      tables === own.tables &&
      usage === own.usage &&
      constant === own.constant &&
      tolerance === own.tolerance
    );
  }

  /** The network of the problem without its rows. Shared: to be cloned before it is changed. */
  get net(): Network {
    return (this.network ??= networkOf(this.problem, this.pool));
  }

  /**
   * A short network of the first and last blocks; undefined where nothing repeats. Shared as `net`
   * is.
   */
  get fold(): Fold | undefined {
    this.folded ??= { found: this.net.count >= FOLD_VARIABLES ? foldOf(this.net) : undefined };
    return this.folded.found;
  }

  /**
   * The network whose middle blocks are tied, over the variables of `fold.short`; `net` where
   * nothing repeats. Shared.
   */
  get tied(): Network {
    return (this.tiedNetwork ??=
      this.fold === undefined ? this.net : tieBlocks(this.net, this.fold).net);
  }

  /** Cost of a full choice without rows; Infinity for a forbidden one. */
  get cost(): (choice: ArrayLike<number>) => number {
    return (this.costOfChoice ??= costFunction(this.problem));
  }
}
