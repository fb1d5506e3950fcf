/**
 * The proof log: every exact step that the engine takes is one entry, so that the checker (which shares no code with this
 * room's engines) can replay the argument "no choice costs less than this" from the problem alone.
 *
 * Factors are named by number: the edges of the problem are 0..E-1 (a self loop keeps its number but is part of its
 * variable's costs), every factor that an elimination makes gets the next free number. Values are positions among the
 * values that are still alive, in ascending order, so that equal layers write equal lists. Lists are ids of interned
 * content (`Pool.map` for integers, `Pool.vector` for costs); `certificate.ts` turns them into plain data.
 *
 * Whoever changes a `Network` must write the step; a missing step makes the checker reject and the answer `feasible`.
 */

/** Step codes; the comment gives the arguments that follow the code in the log. */
export const STEP = {
  /** j, i, f: edge f makes x_j a function of x_i; j is replaced by that function everywhere. */
  merge: 1,
  /**
   * i, list of pairs (d, w) in order: position d of i is deleted because position w is at least as good whatever the
   * neighbours do, or, with w = -1, because d is forbidden or has no finite partner in some factor.
   */
  drop: 2,
  /** f: edge f is a function of its first plus a function of its second variable; both move into the unaries. */
  separate: 3,
  /** f, g: edge g joins the same two variables as f and is added to it. */
  add: 4,
  /** v: minimise over v; with two neighbours or more the result is the next free factor, else it joins a unary. */
  eliminate: 5,
  /** f, v, vector: an amount per position of v moves from edge f into the unary of v. */
  shift: 6,
  /** vector of one number: minima move into the constant, then all that alone exceeds this cost is forbidden. */
  prune: 7,
  /** f, u, v: the finite pairs of edge f, u first, become the values of the next free variable. */
  fuse: 8,
  /** vector: one price per row, in units of 2^-20, enters the unaries; the priced bounds leave the constant. */
  price: 9,
  /** No arguments. The rest is minimised under the rows by Pareto elimination. */
  pareto: 10,
  /** v, n: n parts follow, each `part`, steps, `end`; together they hold every value of v. Nothing follows the last. */
  branch: 11,
  /** list: the positions of the branching variable that this part keeps. */
  part: 12,
  end: 13,
} as const;

/** A growing list of integers; clones share their past. */
export class Log {
  readonly #parent: Log | undefined;
  readonly #shared: number;
  #data = new Int32Array(256);
  #length = 0;

  constructor(parent?: Log) {
    this.#parent = parent;
    this.#shared = parent === undefined ? 0 : parent.#length;
  }

  push(...numbers: number[]): void {
    this.#room(numbers.length);
    for (const x of numbers) this.#data[this.#length++] = x;
  }

  /** What was written since this log was cloned (or made). */
  own(): Int32Array {
    return this.#data.subarray(0, this.#length);
  }

  /** Appends what a clone has written on its own. */
  absorb(clone: Log): void {
    const more = clone.own();
    this.#room(more.length);
    this.#data.set(more, this.#length);
    this.#length += more.length;
  }

  /** All steps from the first log of the line on. */
  steps(): Int32Array {
    const parts: Int32Array[] = [];
    let length = this.#length;
    let log = this.#parent;
    parts.push(this.own());
    for (let child: Log = this; log !== undefined; child = log, log = log.#parent) {
      parts.push(log.#data.subarray(0, child.#shared));
      length += child.#shared;
    }
    const out = new Int32Array(length);
    let at = 0;
    for (const part of parts.reverse()) {
      out.set(part, at);
      at += part.length;
    }
    return out;
  }

  clone(): Log {
    return new Log(this);
  }

  #room(more: number): void {
    if (this.#length + more <= this.#data.length) return;
    const bigger = new Int32Array(this.#data.length * 2 + more);
    bigger.set(this.#data);
    this.#data = bigger;
  }
}
