/**
 * Holds a network with rows after presolve and the short networks that represent it, each computed
 * on first use: its fold, and the network whose middle blocks are tied. The bound of a row plays no
 * part in either: a plan whose peak is over the budget is searched again under a lower bound of the
 * same row, and shares them.
 */
import { type Sides, sidesOf } from '../dual/sides.ts';
import { type Fold, foldOf } from '../fold/fold.ts';
import { tieBlocks, type Tied } from '../fold/tied.ts';
import type { Network, NetworkRow } from '../network/network.ts';
import { STEP } from '../network/proof-log.ts';
import { rowVariables } from '../network/rows.ts';
import { ELIMINATION } from './limits.ts';
import type { Workspace } from './workspace.ts';

interface Shape {
  readonly fold: Fold | undefined;
  readonly tied: Tied | undefined;
  sides?: Sides;
}

export class ReducedNetwork {
  private shape: { found: Shape | undefined };

  /** @param net not to be changed from now on */
  constructor(
    readonly net: Network,
    shape: { found: Shape | undefined } = { found: undefined },
  ) {
    this.shape = shape;
  }

  /** The same under other bounds of its rows. */
  under(rows: readonly NetworkRow[]): ReducedNetwork {
    return new ReducedNetwork(withBounds(this.net, rows), this.shape);
  }

  /**
   * The short network, under the bounds that were asked for first; undefined where nothing repeats.
   */
  get fold(): Fold | undefined {
    return this.found.fold;
  }

  /**
   * The tied network, under the bounds that were asked for first; undefined where nothing repeats.
   */
  get tied(): Tied | undefined {
    return this.found.tied;
  }

  /**
   * The part of the network that sweeps in lock step read, at any price and under any bound;
   * undefined where nothing repeats.
   */
  get sides(): Sides | undefined {
    const found = this.found;
    if (found.fold !== undefined) found.sides ??= sidesOf(this.net, found.fold.lockstep);
    return found.sides;
  }

  private get found(): Shape {
    if (this.shape.found === undefined) {
      const fold = foldOf(this.net);
      this.shape.found = { fold, tied: fold && tieBlocks(this.net, fold) };
    }
    return this.shape.found;
  }
}

/** A copy of a network whose rows have the bounds of these. */
export function withBounds(net: Network, rows: readonly NetworkRow[]): Network {
  const copy = net.clone();
  rows.forEach(({ bound }, r) => (copy.rows[r] = { ...copy.rows[r], bound }));
  return copy;
}

/**
 * Reduction and easy eliminations, in place; false when no choice is left. A clock that says stop
 * ends it between two eliminations: the network is exact, and larger than it could be.
 */
export function presolve(
  net: Network,
  { reducer, eliminator }: Pick<Workspace, 'reducer' | 'eliminator'>,
  stopped: () => boolean,
): boolean {
  if (!reducer.reduce(net, false, stopped)) return false;
  const keep = net.rows.length === 0 ? {} : { keep: rowVariables(net) };
  net.log.push(STEP.whole);
  const status = eliminator.run(net, { ...ELIMINATION.easy, ...keep, stop: stopped });
  if (status === 'infeasible') return false;
  return status === 'stopped' || reducer.reduce(net, false, stopped);
}

/** Reduced networks of one problem by what its rows hold. */
export class PresolveMemo {
  private readonly known = new Map<string, ReducedNetwork>();

  /**
   * @param net the problem's network with rows; used up where it is the first with them
   * @param stopped a presolve that this cuts short is not kept
   * @returns undefined when presolve has left no choice: `net` holds the proof
   */
  reduced(
    net: Network,
    workspace: Pick<Workspace, 'reducer' | 'eliminator'>,
    stopped: () => boolean,
  ): ReducedNetwork | undefined {
    const key = net.rows.map(({ amounts }) => amounts.join()).join(';');
    const known = this.known.get(key);
    if (known !== undefined) return known.under(net.rows);
    if (!presolve(net, workspace, stopped)) return undefined;
    const reduced = new ReducedNetwork(net);
    if (!stopped()) this.known.set(key, reduced);
    return reduced;
  }
}
