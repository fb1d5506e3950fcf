/**
 * Marks the values that the choices of a part can have, for both sides of a split: those of its
 * side without all that then have no partner in some table (arc consistency), as the checker leaves
 * them out, too. Marks are as in `model.start`.
 */
import type { Model } from './model.ts';

/**
 * Side one has the values `low` (numbers of values of the model), side two all others of the
 * variable.
 */
export interface Split {
  readonly variable: number;
  readonly low: readonly number[];
}

export class PartValues {
  private readonly model: Model;
  /** Edges whose tables forbid some pair. */
  private readonly holed: readonly number[];

  constructor(model: Model) {
    this.model = model;
    const { first, second, sizes, table, cells } = model;
    this.holed = Array.from(first.keys()).filter((e) =>
      cells.subarray(table[e], table[e] + sizes[first[e]] * sizes[second[e]]).includes(Infinity),
    );
  }

  /** Marks of all values that have partners. */
  all(): Uint8Array {
    return this.prune(Uint8Array.from(this.model.unary, (c) => (c === Infinity ? 0 : 1)));
  }

  /**
   * Marks of the values of both sides of a split of marked ones; a side without a choice has a
   * variable without marks.
   */
  sides(live: Uint8Array, { variable, low }: Split): [Uint8Array, Uint8Array] {
    const { start } = this.model;
    const [one, two] = [live.slice(), live.slice()];
    one.fill(0, start[variable], start[variable + 1]);
    for (const v of low) [one[v], two[v]] = [live[v], 0];
    return [this.prune(one), this.prune(two)];
  }

  /** Tells whether some variable has no value left. */
  isEmpty(live: Uint8Array): boolean {
    const { start, count } = this.model;
    for (let i = 0; i < count; i++)
      if (!live.subarray(start[i], start[i + 1]).includes(1)) return true;
    return false;
  }

  private prune(live: Uint8Array): Uint8Array {
    const { first, second, start, sizes, table, transposed } = this.model;
    for (let again = true; again;) {
      again = false;
      for (const e of this.holed) {
        const [i, j] = [first[e], second[e]];
        if (this.support(live, start[i], sizes[i], start[j], sizes[j], table[e])) again = true;
        if (this.support(live, start[j], sizes[j], start[i], sizes[i], transposed[e])) again = true;
      }
    }
    return live;
  }

  /**
   * Clears the marks of values that have no marked partner in a table; returns whether it cleared
   * any.
   */
  private support(
    live: Uint8Array,
    own: number,
    size: number,
    other: number,
    width: number,
    view: number,
  ): boolean {
    const { cells } = this.model;
    let any = false;
    for (let a = 0, at = view; a < size; a++, at += width) {
      if (live[own + a] === 0) continue;
      let has = false;
      for (let b = 0; b < width && !has; b++)
        has = live[other + b] === 1 && cells[at + b] < Infinity;
      if (has) continue;
      live[own + a] = 0;
      any = true;
    }
    return any;
  }
}
