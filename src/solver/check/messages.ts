/**
 * The checker's view of a proof by messages alone: for every edge, costs that leave it for its two variables. Every choice
 * keeps its cost, so the sum of the least rest of all edges and the least cost of all variables is a lower bound, whatever
 * the messages are. Shares no code with the engines; equal edges with equal messages are looked at once.
 */
import { exactSum, Refused } from './store.ts';
import type { Problem } from '../types.ts';

/** Most distinct lists, so that three names fit one number. */
const MOST_NAMES = 65_536;
const LARGEST_MESSAGE = 2 ** 50;

/**
 * The bound that the messages prove: `first[e]` and `second[e]` name the list of edge e for each value of its first and
 * second variable. Undefined when no choice is possible at all. Throws `Refused` where the lists do not fit.
 */
export function boundByMessages(
  problem: Problem,
  lists: readonly (readonly number[])[],
  first: readonly number[],
  second: readonly number[],
): bigint | undefined {
  const { domains, unary, edges, vectors } = problem;
  if (first.length !== edges.first.length || second.length !== edges.first.length)
    throw new Refused(`${first.length} messages for ${edges.first.length} edges`);
  const messages = new Trws(problem, lists);
  const sums = new Sums(vectors.map(clean), messages);
  const state = Int32Array.from(unary);
  let total = BigInt(problem.constant ?? 0);
  const rest = new Rests(problem, messages);
  const parallel = new Parallel(problem);
  for (let e = 0; e < first.length; e++) {
    const i = edges.first[e];
    const j = edges.second[e];
    if (i === j) {
      state[i] = sums.with(state[i], diagonal(problem, e));
      continue;
    }
    const more = parallel.after(e);
    // Later edges of a pair count with its first one.
    if (more === undefined) {
      if (first[e] !== -1 || second[e] !== -1) throw new Refused(`edge ${e} is part of an earlier one`);
      continue;
    }
    const least = more.length === 0 ? rest.of(e, first[e], second[e]) : rest.ofAll([e, ...more], first[e], second[e]);
    if (least === Infinity) return undefined;
    total += BigInt(least);
    if (first[e] !== -1) state[i] = sums.plus(state[i], first[e], domains[i]);
    if (second[e] !== -1) state[j] = sums.plus(state[j], second[e], domains[j]);
  }
  for (let i = 0; i < domains.length; i++) {
    const least = sums.least(state[i]);
    if (least === Infinity) return undefined;
    total += BigInt(least);
  }
  return total;
}

function clean(costs: Float64Array): Float64Array {
  return costs.map((c) => c + 0);
}

/** The lists of the certificate as vectors, and their largest entries by class of an edge's map. */
class Trws {
  readonly #problem: Problem;
  readonly #lists: readonly (readonly number[])[];
  readonly #vectors: (Float64Array | undefined)[] = [];
  readonly #names = new Map<number, number>();
  readonly byClass: Float64Array[] = [];

  constructor(problem: Problem, lists: readonly (readonly number[])[]) {
    this.#problem = problem;
    this.#lists = lists;
  }

  get count(): number {
    return this.#lists.length;
  }

  /** Entries of a list; zeros for -1. */
  vector(list: number, size: number): Float64Array {
    if (list === -1) return new Float64Array(size);
    let made = this.#vectors[list];
    if (made === undefined) {
      const given = this.#lists[list];
      if (given === undefined) throw new Refused(`there is no list ${list}`);
      if (!given.every((x) => Number.isInteger(x) && Math.abs(x) <= LARGEST_MESSAGE))
        throw new Refused(`list ${list} holds more than integers`);
      made = Float64Array.from(given);
      this.#vectors[list] = made;
    }
    if (made.length !== size) throw new Refused(`list ${list} has ${made.length} entries for ${size} values`);
    return made;
  }

  /**
   * Name of the largest message of each class of a map (-1: every value is a class), up to its last class; -Infinity for
   * classes without a value.
   */
  classed(list: number, map: number, size: number): number {
    // No messages of a domain that no map describes: told apart by its size.
    const key = list === -1 && map < 0 ? -size : (map + 1) * (this.count + 1) + list + 1;
    let name = this.#names.get(key);
    if (name === undefined) {
      const vector = this.vector(list, size);
      const values = map < 0 ? undefined : this.#problem.maps[map];
      const classes = values === undefined ? size : values.reduce((a, b) => Math.max(a, b), -1) + 1;
      const most = new Float64Array(classes).fill(-Infinity);
      for (let a = 0; a < size; a++) {
        const c = values === undefined ? a : values[a];
        if (vector[a] > most[c]) most[c] = vector[a];
      }
      name = this.byClass.push(most) - 1;
      if (name >= MOST_NAMES) throw new Refused('too many messages');
      this.#names.set(key, name);
    }
    return name;
  }
}

/** Least rest of an edge that its messages have left, by content. */
class Rests {
  readonly #problem: Problem;
  readonly #messages: Trws;
  readonly #known = new Map<number, number>();
  readonly #groups = new Map<string, number>();

  constructor(problem: Problem, messages: Trws) {
    this.#problem = problem;
    this.#messages = messages;
  }

  of(e: number, first: number, second: number): number {
    const { domains, edges, tables } = this.#problem;
    const messages = this.#messages;
    const id = edges.table[e];
    const { columns, costs } = tables[id];
    const x = messages.classed(first, edges.firstMap[e], domains[edges.first[e]]);
    const y = messages.classed(second, edges.secondMap[e], domains[edges.second[e]]);
    const key = (id * MOST_NAMES + x) * MOST_NAMES + y;
    let least = this.#known.get(key);
    if (least === undefined) {
      if (!Number.isSafeInteger(key)) throw new Refused('too many tables');
      least = leastRest(costs, columns, messages.byClass[x], messages.byClass[y]);
      this.#known.set(key, least);
    }
    return least;
  }

  /** The same for several edges of two variables, taken as one in the orientation of the first. */
  ofAll(group: readonly number[], first: number, second: number): number {
    const { domains, edges } = this.#problem;
    const [lead] = group;
    const key = [first, second, ...group.flatMap((e) => this.#content(e, edges.first[e] !== edges.first[lead]))].join();
    let least = this.#groups.get(key);
    if (least === undefined) {
      const x = this.#messages.vector(first, domains[edges.first[lead]]);
      const y = this.#messages.vector(second, domains[edges.second[lead]]);
      least = Infinity;
      for (let a = 0; a < x.length; a++) {
        for (let b = 0; b < y.length; b++) {
          let rest = -x[a] - y[b];
          for (const e of group)
            rest += edges.first[e] === edges.first[lead] ? this.#cell(e, a, b) : this.#cell(e, b, a);
          if (rest < least) least = rest;
          if (rest !== Infinity) exactSum(Math.abs(rest));
        }
      }
      this.#groups.set(key, least);
    }
    return least;
  }

  #content(e: number, swapped: boolean): number[] {
    const { table, firstMap, secondMap } = this.#problem.edges;
    return [table[e], firstMap[e], secondMap[e], swapped ? 1 : 0];
  }

  #cell(e: number, a: number, b: number): number {
    const { edges, tables, maps } = this.#problem;
    const { columns, costs } = tables[edges.table[e]];
    const row = edges.firstMap[e] < 0 ? a : maps[edges.firstMap[e]][a];
    const column = edges.secondMap[e] < 0 ? b : maps[edges.secondMap[e]][b];
    return costs[row * columns + column];
  }
}

/** The edges of each pair of variables. */
class Parallel {
  readonly #after: (number[] | undefined)[];

  constructor(problem: Problem) {
    const { first, second } = problem.edges;
    const n = problem.domains.length;
    const leaders = new Map<number, number>();
    this.#after = new Array<number[] | undefined>(first.length);
    for (let e = 0; e < first.length; e++) {
      const key = Math.min(first[e], second[e]) * n + Math.max(first[e], second[e]);
      const leader = leaders.get(key);
      if (leader === undefined) {
        leaders.set(key, e);
        this.#after[e] = NO_EDGES;
      } else {
        this.#after[leader] = [...(this.#after[leader] ?? []), e];
      }
    }
  }

  /** The later edges of the same two variables; undefined for an edge that is itself a later one. */
  after(e: number): readonly number[] | undefined {
    return this.#after[e];
  }
}

const NO_EDGES: number[] = [];

function leastRest(costs: Float64Array, columns: number, x: Float64Array, y: Float64Array): number {
  let least = Infinity;
  for (let r = 0; r < x.length; r++) {
    for (let c = 0, p = r * columns; c < y.length; c++, p++) {
      if (costs[p] === Infinity || x[r] === -Infinity || y[c] === -Infinity) continue;
      const rest = costs[p] - x[r] - y[c];
      if (rest < least) least = rest;
    }
  }
  if (least !== Infinity) exactSum(Math.abs(least));
  return least;
}

/** Costs of variables with the messages they have received; equal sums in equal order are made once. */
class Sums {
  readonly #vectors: Float64Array[];
  readonly #messages: Trws;
  readonly #known = new Map<number, number>();
  readonly #least: number[] = [];

  constructor(vectors: Float64Array[], messages: Trws) {
    this.#vectors = vectors;
    this.#messages = messages;
  }

  /** Name of the sum with a list. */
  plus(state: number, list: number, size: number): number {
    const key = state * this.#messages.count + list;
    let next = this.#known.get(key);
    if (next === undefined) {
      if (!Number.isSafeInteger(key)) throw new Refused('too many sums');
      next = this.with(state, this.#messages.vector(list, size));
      this.#known.set(key, next);
    }
    return next;
  }

  /** Name of the sum with a vector. */
  with(state: number, more: Float64Array): number {
    const costs = this.#vectors[state];
    const sum = new Float64Array(costs.length);
    let most = 0;
    for (let a = 0; a < sum.length; a++) {
      sum[a] = costs[a] + more[a];
      if (sum[a] !== Infinity && Math.abs(sum[a]) > most) most = Math.abs(sum[a]);
    }
    exactSum(most);
    return this.#vectors.push(sum) - 1;
  }

  least(state: number): number {
    let least: number | undefined = this.#least[state];
    if (least === undefined) {
      least = this.#vectors[state].reduce((a, b) => Math.min(a, b), Infinity);
      this.#least[state] = least;
    }
    return least;
  }
}

/** Costs that an edge from a variable to itself gives its values. */
function diagonal(problem: Problem, e: number): Float64Array {
  const { domains, edges, tables, maps } = problem;
  const { columns, costs } = tables[edges.table[e]];
  const at = (map: number, a: number): number => (map < 0 ? a : maps[map][a]);
  return Float64Array.from(
    { length: domains[edges.first[e]] },
    (_, a) => costs[at(edges.firstMap[e], a) * columns + at(edges.secondMap[e], a)],
  );
}
