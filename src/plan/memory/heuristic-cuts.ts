/** Times that a cut which leaves nothing is made smaller. */
const MOST_RETREATS = 6;

/**
 * What the search for a plan within a budget has cut away so far, beyond what no plan within the budget can have: how large
 * a copy on the way may be, and by how much rows of moments are tighter than the budget. Cuts are guesses: one that
 * leaves nothing is taken back, in part or whole.
 */
export class Cuts {
  private readonly slacks = new Map<number, number>();
  private last: { readonly moment: number; readonly bytes: number } | { readonly copyBytes: number } | undefined;
  /** No limit below this leaves anything. */
  private floorBytes = 0;
  private retreats = 0;
  private largest = Infinity;
  private changed = false;

  get copyBytes(): number {
    return this.largest;
  }

  /** Whether `copyBytes` is another one than when this was asked last. */
  get limitChanged(): boolean {
    const was = this.changed;
    this.changed = false;
    return was;
  }

  slackAt(moment: number): number {
    return this.slacks.get(moment) ?? 0;
  }

  /** A row was added: nothing to take back. */
  added(): void {
    this.last = undefined;
  }

  /** No copy of `bytes` from now on; false when that was tried, or is no cut. */
  limit(bytes: number): boolean {
    if (bytes - 1 <= this.floorBytes || bytes > this.largest) return false;
    this.last = { copyBytes: this.largest };
    this.largest = bytes - 1;
    this.changed = true;
    return true;
  }

  slack(moment: number, bytes: number): void {
    this.last = { moment, bytes };
    this.slacks.set(moment, this.slackAt(moment) + bytes);
  }

  /** The last cut left nothing: takes it back. False when there is nothing to take back. */
  retreat(): boolean {
    if (++this.retreats > MOST_RETREATS) return false;
    const { last } = this;
    if (last === undefined) {
      const cut = [...this.slacks].filter(([, bytes]) => bytes > 0);
      if (cut.length === 0) return false;
      for (const [moment, bytes] of cut) this.slacks.set(moment, Math.floor(bytes / 2));
    } else if ('copyBytes' in last) {
      this.floorBytes = this.largest;
      this.largest = last.copyBytes;
      this.changed = true;
      this.last = undefined;
    } else {
      this.slacks.set(last.moment, this.slackAt(last.moment) - last.bytes / 2);
      this.last = { moment: last.moment, bytes: last.bytes / 2 };
    }
    return true;
  }
}
