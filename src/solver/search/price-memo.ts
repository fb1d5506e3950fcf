/**
 * Remembers the prices of one row on a folded network: the results of sweeps at a price, and their
 * messages. A plan whose peak is over the budget is searched again under a lower bound of the same
 * row; at equal prices everything is unchanged but for a constant.
 */
import type { Network } from '../network/network.ts';

/** The knowledge at a price. */
export interface PricedState {
  /** The best choice met, or the one of the last messages, as positions of the network. */
  readonly best: Int32Array;
  /** The bound less the constant of the network. */
  readonly gained: number;
  /** Messages (`Trws.to`). */
  readonly to: Float64Array;
}

export class PriceMemo {
  private readonly known = new Map<string, PricedState>();

  /**
   * Finds the states of a network by its content: costs, tables and what its row holds, whatever
   * the bound is.
   */
  of(net: Network): {
    readonly get: (price: bigint) => PricedState | undefined;
    readonly set: (price: bigint, state: PricedState) => void;
  } {
    const edges = net.factors.map((f) =>
      f === undefined ? '' : `${f.table.id},${f.maps.join()},${f.vars.join()}`,
    );
    const name = [
      net.unary.join(),
      ...net.rows.map(({ amounts }) => amounts.join()),
      ...edges,
    ].join(';');
    return {
      get: (price) => this.known.get(`${price}:${name}`),
      set: (price, state) => void this.known.set(`${price}:${name}`, state),
    };
  }
}
