/**
 * The proof log: every exact step that the solver takes is one entry, so that `check.ts` (which shares no code with this
 * room's engines) can replay the argument "no choice costs less than this" from the problem alone.
 *
 * Factors are named by number: the edges of the problem are 0..E-1, every table made by an elimination or a sum gets the
 * next free number. Values are always those of the problem, so later deletions never rename anything.
 */

/** Step codes; the comment gives the arguments that follow the code in the log. */
export const STEP = {
  /** j, i, f: edge f makes x_j a function of x_i; j is replaced by that function everywhere. */
  merge: 1,
  /** i, d, w: value w of i is at least as good as value d whatever the neighbours do; d is deleted. */
  dominated: 2,
  /** i, d, f: value d of i has no finite partner in factor f (f = -1: its own cost is infinite). */
  unsupported: 3,
  /** f: edge f is a function of its first plus a function of its second variable; both move into the unaries. */
  separate: 4,
  /** f, g: edge g joins the same two variables as f and is added to it. */
  add: 5,
  /** v, h: minimise over v; the result is factor h (or -1 when it has at most one variable). */
  eliminate: 6,
  /** f, side, m: message m (a vector over the values) moves from the unary of the side's variable into edge f. */
  shift: 7,
  /** No arguments. Minima move into the constant, then everything that alone costs as much as the claim is forbidden. */
  prune: 8,
  /** f, w, m, then m values of the first and m values of the second variable: edge f's pairs become variable w. */
  fuse: 9,
} as const;

/** A growing list of integers. */
export class Log {
  #data = new Int32Array(1024);
  #length = 0;

  push(...numbers: number[]): void {
    if (this.#length + numbers.length > this.#data.length) {
      const bigger = new Int32Array(this.#data.length * 2 + numbers.length);
      bigger.set(this.#data);
      this.#data = bigger;
    }
    for (const x of numbers) this.#data[this.#length++] = x;
  }

  steps(): Int32Array {
    return this.#data.slice(0, this.#length);
  }

  clone(): Log {
    const copy = new Log();
    copy.#data = this.#data.slice();
    copy.#length = this.#length;
    return copy;
  }
}
