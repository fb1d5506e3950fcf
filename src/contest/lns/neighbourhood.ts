/**
 * Which variables a block holds: balls and walks in the graph, variables that live at one row, and
 * regions in which two choices differ.
 */
import type { Model } from '../model/model.ts';
import type { Random } from '../model/random.ts';
import { segmentAt } from './repair.ts';

/** Neighbours that one variable contributes to a ball at most, so that a hub does not fill it. */
const FAN_OUT = 12;

export class Neighbourhood {
  private readonly model: Model;
  private readonly random: Random;
  private readonly seen: Int32Array;
  private stamp = 0;

  constructor(model: Model, random: Random) {
    this.model = model;
    this.random = random;
    this.seen = new Int32Array(model.count);
  }

  /**
   * A connected set of at most `most` variables around `seed`, breadth first or by random steps.
   * Only variables that `admit` allows take part.
   */
  connected(
    seed: number,
    most: number,
    breadth: boolean,
    admit?: (i: number) => boolean,
    fanOut = FAN_OUT,
  ): number[] {
    const { incident, other } = this.model;
    const random = this.random;
    const stamp = ++this.stamp;
    const seen = this.seen;
    const out = [seed];
    const front = [seed];
    seen[seed] = stamp;
    let head = 0;
    while (out.length < most && front.length > head) {
      const pick = breadth ? head : random.below(front.length);
      const v = front[pick];
      const degree = incident[v + 1] - incident[v];
      const offset = degree > 1 ? random.below(degree) : 0;
      let added = 0;
      for (let q = 0; q < degree && out.length < most; q++) {
        const j = other[incident[v] + ((q + offset) % degree)];
        if (seen[j] === stamp || (admit !== undefined && !admit(j))) continue;
        seen[j] = stamp;
        out.push(j);
        front.push(j);
        added++;
        if (!breadth || added > fanOut) break;
      }
      if (breadth) head++;
      else if (added === 0) {
        front[pick] = front[front.length - 1];
        front.pop();
      }
    }
    return out;
  }

  /** A variable drawn by its degree, with its neighbours, their neighbours and so on. */
  hub(most: number): number[] {
    const { first, second } = this.model;
    if (first.length === 0) return [];
    const e = this.random.below(first.length);
    return this.connected(
      this.random.next() < 0.5 ? first[e] : second[e],
      most,
      true,
      undefined,
      Infinity,
    );
  }

  /**
   * Small connected groups around random variables that hold memory in one row, `most` variables in
   * all.
   */
  atRow(row: number, most: number): number[] {
    const { count, incident, other } = this.model;
    const random = this.random;
    const stamp = ++this.stamp;
    const seen = this.seen;
    const live: number[] = [];
    for (let i = 0; i < count; i++) if (segmentAt(this.model, i, row) >= 0) live.push(i);
    const out: number[] = [];
    for (let tries = 0; tries < most && out.length < most && live.length > 0; tries++) {
      const i = live[random.below(live.length)];
      if (seen[i] === stamp) continue;
      seen[i] = stamp;
      out.push(i);
      const degree = incident[i + 1] - incident[i];
      const offset = random.below(Math.max(1, degree));
      for (let q = 0; q < Math.min(3, degree) && out.length < most; q++) {
        const j = other[incident[i] + ((q + offset) % degree)];
        if (seen[j] === stamp) continue;
        seen[j] = stamp;
        out.push(j);
      }
    }
    return out;
  }
}

/**
 * Next variable of the same kind (equal domain and equal tables around it) for every variable, in
 * cyclic order of their numbers: in a model of repeated layers mostly the same place one layer on.
 * A variable of its own kind is its own sibling.
 */
export function siblings(model: Model): Int32Array {
  const { count, sizes, incident, view } = model;
  const kinds = new Map<string, number[]>();
  for (let i = 0; i < count; i++) {
    const tables = Array.from(view.subarray(incident[i], incident[i + 1])).sort((a, b) => a - b);
    const key = `${sizes[i]}:${tables.length > 64 ? `hub ${i}` : tables.join()}`;
    const list = kinds.get(key);
    if (list === undefined) kinds.set(key, [i]);
    else list.push(i);
  }
  const next = Int32Array.from({ length: count }, (_, i) => i);
  for (const list of kinds.values())
    list.forEach((i, k) => (next[i] = list[(k + 1) % list.length]));
  return next;
}
