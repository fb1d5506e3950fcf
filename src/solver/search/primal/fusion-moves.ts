/**
 * Fuses choices: the values that several choices of a network take are put together, and the
 * cheapest choice among these values is found exactly (V. Lempitsky, C. Rother, S. Roth and A.
 * Blake, "Fusion moves for Markov random field optimization", PAMI 2010). Variables of equal
 * content share the values that any of them takes, so that the finding of one layer serves all.
 * There is no answer where there are too many values.
 */
import type { Eliminator } from '../../eliminate/buckets.ts';
import type { Network } from '../../network/network.ts';
import type { Reducer } from '../../reduce/presolve.ts';
import { KeyTable } from '../../store/keys.ts';
import { ELIMINATION } from '../limits.ts';

/** Choices that are gathered before they are fused; the next time there are twice as many. */
const FIRST = 4;

export class Fusion {
  private readonly net: Network;
  private readonly workspace: { readonly reducer: Reducer; readonly eliminator: Eliminator };
  /** Class of each variable by content, and the positions that its members took. */
  private readonly classOf: Int32Array;
  private readonly taken: Set<number>[] = [];
  private count = 0;
  private next = FIRST;

  constructor(
    net: Network,
    workspace: { readonly reducer: Reducer; readonly eliminator: Eliminator },
  ) {
    this.net = net;
    this.workspace = workspace;
    const keys = new KeyTable();
    this.classOf = Int32Array.from(net.gone, (gone, i) => {
      if (gone === 1) return -1;
      const id = keys.begin().add(net.unary[i]).add(net.values[i]).end();
      this.taken[id] ??= new Set();
      return id;
    });
  }

  /**
   * Takes a choice; now and then the cheapest of what all of them take is proposed, as positions.
   */
  add(at: Int32Array, propose: (found: Int32Array) => void): void {
    this.classOf.forEach((id, i) => {
      if (id >= 0) this.taken[id].add(at[i]);
    });
    if (++this.count < this.next) return;
    this.next *= 2;
    const core = this.net.afresh();
    const { pool } = core;
    const kept = this.taken.map((set) => pool.map(Int32Array.from(set).sort()));
    this.classOf.forEach((id, i) => {
      if (id >= 0) core.restrict(i, kept[id]);
    });
    const { reducer, eliminator } = this.workspace;
    if (!reducer.reduce(core, true)) return;
    if (eliminator.run(core, ELIMINATION.fusion) === 'done')
      propose(core.complete(new Int32Array(core.count)));
  }
}
