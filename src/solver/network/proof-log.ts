/**
 * The proof log: every exact step that the engine takes is one entry (codes:
 * `check/certificate-format.ts`), so that the checker, which shares no code with this folder's
 * workspace, can replay the argument "no choice costs less than this" from the problem alone.
 *
 * Here lists are ids of interned content (`Pool.map` for integers, `Pool.vector` for costs);
 * `certificateOf` turns them into plain data. Whoever changes a `Network` must write the step: a
 * missing one makes the checker reject the proof and the answer `feasible`.
 */
import { ARGUMENTS, STEP } from '../check/certificate-format.ts';
import type { Pool } from '../store/pool.ts';
import type { Certificate, CertificateRow } from '../types.ts';

export { STEP };

/** A growing list of integers; clones share their past. */
export class Log {
  private readonly parent: Log | undefined;
  private readonly shared: number;
  private data = new Int32Array(256);
  private length = 0;

  constructor(parent?: Log) {
    this.parent = parent;
    this.shared = parent === undefined ? 0 : parent.length;
  }

  push(...numbers: number[]): void {
    this.room(numbers.length);
    for (const x of numbers) this.data[this.length++] = x;
  }

  /** The steps that were written since this log was cloned (or made). */
  own(): Int32Array {
    return this.data.subarray(0, this.length);
  }

  /** Appends what a clone has written on its own. */
  absorb(clone: Log): void {
    const more = clone.own();
    this.room(more.length);
    this.data.set(more, this.length);
    this.length += more.length;
  }

  /** All steps from the first log of the line on. */
  steps(): Int32Array {
    const parts: Int32Array[] = [];
    let length = this.length;
    let log = this.parent;
    let shared = this.shared;
    parts.push(this.own());
    while (log !== undefined) {
      parts.push(log.data.subarray(0, shared));
      length += shared;
      shared = log.shared;
      log = log.parent;
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

  private room(more: number): void {
    if (this.length + more <= this.data.length) return;
    const bigger = new Int32Array(this.data.length * 2 + more);
    bigger.set(this.data);
    this.data = bigger;
  }
}

/**
 * The log as plain data. `problem` is the hash of the problem, `rows` the source of each row of the
 * network.
 */
export function certificateOf(
  log: Log,
  pool: Pool,
  problem: string,
  rows: readonly CertificateRow[],
): Certificate {
  const raw = log.steps();
  const steps: number[] = new Array<number>(raw.length);
  const lists: number[][] = [];
  const known = { m: new Map<number, number>(), v: new Map<number, number>() };
  const listOf = (kind: 'm' | 'v', id: number): number => {
    let index = known[kind].get(id);
    if (index === undefined) {
      index = lists.length;
      // Values beyond a forbidden one are not numbers of the proof; a prune without a limit has an
      // empty list.
      if (kind === 'm') lists.push(Array.from(pool.mapOf(id)));
      else lists.push(plain(pool.vectorOf(id)));
      known[kind].set(id, index);
    }
    return index;
  };
  for (let at = 0; at < raw.length;) {
    const kinds = ARGUMENTS[raw[at]] ?? '';
    steps[at] = raw[at];
    at++;
    for (let k = 0; k < kinds.length; k++, at++) {
      const kind = kinds[k];
      steps[at] = kind === 'm' || kind === 'v' ? listOf(kind, raw[at]) : raw[at];
    }
  }
  return { version: 2, problem, rows, steps, lists };
}

function plain(vector: Float64Array): number[] {
  if (vector.length === 1 && vector[0] === Infinity) return [];
  const list = new Array<number>(vector.length);
  for (let k = 0; k < list.length; k++) list[k] = Number.isFinite(vector[k]) ? vector[k] : 0;
  return list;
}
