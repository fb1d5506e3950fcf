/**
 * Extrapolates messages (Aitken's delta-squared process, for vectors). Near a fixed point the gains
 * of sweeps fall off geometrically, and the sum of all later changes of the messages is a multiple
 * of the last change. Any messages prove a bound: where the next sweep from there proves less than
 * the one before, they are put back. The result is the messages for the next sweep.
 */
import type { Trws } from './trws.ts';

/** After sweep 3 of every so many; sweeps between let the others follow. */
const PERIOD = 5;
const MOVES_AT = 3;
/** Most that messages are moved on, as a multiple of their last change. */
const MOST = 8;
/** Messages beyond this size stay: sums of several must be exact. */
const LARGEST = 2 ** 48;

export class Extrapolation {
  private readonly messages: Trws;
  /** Messages before the last sweep, then those to go back to. */
  private before: Float64Array | undefined;
  private isMoved = false;
  private bound = -Infinity;
  private gain = 0;

  constructor(messages: Trws) {
    this.messages = messages;
  }

  /**
   * Takes the bound of the k-th sweep (from 1) and makes the messages for the next; false where the
   * last move was undone.
   */
  after(k: number, bound: number): boolean {
    if (this.isMoved) {
      this.isMoved = false;
      if (bound < this.bound) {
        this.undo();
        return false;
      }
    }
    const gain = bound - this.bound;
    const rate = gain / this.gain;
    [this.bound, this.gain] = [bound, gain];
    const phase = k % PERIOD;
    if (phase === MOVES_AT - 1) this.keep();
    else if (phase === MOVES_AT && gain > 0 && rate > 0)
      this.move(rate < 1 ? Math.min(MOST, rate / (1 - rate)) : MOST);
    return true;
  }

  private keep(): void {
    const { to } = this.messages;
    if (this.before === undefined) this.before = to.slice();
    else this.before.set(to);
  }

  /** Moves the messages on by so many times their last change. */
  private move(factor: number): void {
    const { to } = this.messages;
    const before = this.before;
    if (before === undefined) return;
    for (let k = 0; k < to.length; k++) {
      const now = to[k];
      const next = Math.floor(now + factor * (now - before[k]));
      before[k] = now;
      // Neither forbidden classes (Infinity less Infinity is not a number) nor what would be too
      // large move.
      if (next > -LARGEST && next < LARGEST) to[k] = next;
    }
    this.isMoved = true;
  }

  private undo(): void {
    if (this.before !== undefined) this.messages.to.set(this.before);
  }
}
