/**
 * Finds splits where the bound of a part is below the cost of its rounding although no row is to
 * blame: messages that run around a cycle leave several values of a variable equally good, and some
 * table then costs more than its least cell whichever are taken. It splits the ends of the tables
 * that the rounding pays most for.
 */
import type { Dual } from '../bound/trws.ts';
import type { Split } from '../model/part-values.ts';

/** Tables whose ends may be split. */
const MOST_TABLES = 2;

/** Splits of the ends of the tables in conflict, the worst one first. */
export function conflictSplits(dual: Dual, live: Uint8Array): Split[] {
  const { model } = dual;
  const { first, second, sizes, start } = model;
  const choice = dual.decode();
  const reduced = new ReducedTables(dual, live);
  const paid = Array.from(first, (i, e) => {
    const least = reduced.least(e);
    return { e, least, excess: reduced.cell(e, choice[i], choice[second[e]]) - least };
  });
  const worst = paid.filter(({ excess }) => excess > 0 && excess < Infinity);
  worst.sort((x, y) => y.excess - x.excess || x.e - y.e);
  const splits: Split[] = [];
  const add = (variable: number, low: readonly number[]): void => {
    const all = Array.from({ length: sizes[variable] }, (_, a) => start[variable] + a).filter(
      (v) => live[v] === 1,
    );
    if (low.length > 0 && low.length < all.length) splits.push({ variable, low });
  };
  for (const { e, least, excess } of worst.slice(0, MOST_TABLES)) {
    for (const variable of [first[e], second[e]]) {
      const isFirst = variable === first[e];
      const partner = choice[isFirst ? second[e] : first[e]];
      const near = Array.from({ length: sizes[variable] }, (_, a) => a).filter((a) => {
        const cell = isFirst ? reduced.cell(e, a, partner) : reduced.cell(e, partner, a);
        return live[start[variable] + a] === 1 && cell - least <= excess / 2;
      });
      // The split separates the values that agree with the other end from those that do not, and
      // the rounded value from all others.
      add(
        variable,
        near.map((a) => start[variable] + a),
      );
      add(
        variable,
        [start[variable] + choice[variable]].filter((v) => live[v] === 1),
      );
    }
  }
  return splits;
}

/** Tables less the messages that have left them: their least cells are part of the bound. */
class ReducedTables {
  private readonly dual: Dual;
  private readonly live: Uint8Array;
  private readonly settled: Float64Array;

  constructor(dual: Dual, live: Uint8Array) {
    this.dual = dual;
    this.live = live;
    this.settled = dual.settled();
  }

  cell(e: number, a: number, b: number): number {
    const { model, toFirst, firstAt, secondAt } = this.dual;
    const cost = model.cells[model.table[e] + a * model.sizes[model.second[e]] + b];
    return cost === Infinity
      ? Infinity
      : cost - toFirst[firstAt[e] + a] - this.settled[secondAt[e] + b];
  }

  least(e: number): number {
    const { first, second, sizes, start } = this.dual.model;
    const live = this.live;
    let least = Infinity;
    for (let a = 0; a < sizes[first[e]]; a++) {
      if (live[start[first[e]] + a] === 0) continue;
      for (let b = 0; b < sizes[second[e]]; b++)
        if (live[start[second[e]] + b] === 1) least = Math.min(least, this.cell(e, a, b));
    }
    return least;
  }
}
