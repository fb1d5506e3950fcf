/**
 * Heuristic tightening of the search for a plan within a budget, beyond what is valid for every
 * plan: how large a copy in flight may be, and by how much rows of program points are tighter than
 * the budget. A tightening is a guess and no cutting plane: one that leaves no plan is undone, in
 * part or whole. The excess of a plan gives the limits for the next problem.
 */

/** Times that a tightening which leaves no plan is undone. */
const MOST_UNDONE = 6;

export class HeuristicTightening {
  private readonly slacks = new Map<number, number>();
  private last:
    { readonly point: number; readonly bytes: number } | { readonly copyBytes: number } | undefined;
  /** No limit below this leaves anything. */
  private floorBytes = 0;
  private undone = 0;
  private largest = Infinity;

  get copyBytes(): number {
    return this.largest;
  }

  /** Tells whether every plan within the budget is left. */
  get isLoose(): boolean {
    return this.largest === Infinity && [...this.slacks.values()].every((bytes) => bytes === 0);
  }

  slackAt(point: number): number {
    return this.slacks.get(point) ?? 0;
  }

  /** A row was added: nothing to undo. */
  added(): void {
    this.last = undefined;
  }

  /** No copy of `bytes` from now on; false when that was tried, or tightens nothing. */
  limit(bytes: number): boolean {
    if (bytes - 1 <= this.floorBytes || bytes > this.largest) return false;
    this.last = { copyBytes: this.largest };
    this.largest = bytes - 1;
    return true;
  }

  tighten(point: number, bytes: number): void {
    this.last = { point, bytes };
    this.slacks.set(point, this.slackAt(point) + bytes);
  }

  /** Undoes the last tightening, which left no plan. False when there is nothing to undo. */
  undo(): boolean {
    if (++this.undone > MOST_UNDONE) return false;
    const { last } = this;
    if (last === undefined) {
      const cut = [...this.slacks].filter(([, bytes]) => bytes > 0);
      if (cut.length === 0) return false;
      for (const [point, bytes] of cut) this.slacks.set(point, Math.floor(bytes / 2));
    } else if ('copyBytes' in last) {
      this.floorBytes = this.largest;
      this.largest = last.copyBytes;
      this.last = undefined;
    } else {
      this.slacks.set(last.point, this.slackAt(last.point) - last.bytes / 2);
      this.last = { point: last.point, bytes: last.bytes / 2 };
    }
    return true;
  }
}
