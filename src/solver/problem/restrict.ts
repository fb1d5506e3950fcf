/** Restricts a problem to allowed values, with the maps between the choices of both problems. */
import { latin1 } from '../../platform/platform.ts';
import type { LinearRow, Problem } from '../types.ts';

/** A problem on fewer values, and the way between its choices and those of the full one. */
export interface CompactProblem {
  readonly problem: Problem;
  /** Choice of the full problem for one of the compact problem. */
  readonly expand: (choice: Int32Array) => Int32Array;
  /** The other way; undefined when the choice takes a value that was left out. */
  readonly contract: (choice: Int32Array) => Int32Array | undefined;
  /** Value of the full problem for each value of a variable. */
  readonly valuesOf: (variable: number) => Int32Array;
}

/** Allowed values of a variable; equal lists have equal ids. */
export interface AllowedValues {
  readonly id: number;
  readonly values: Int32Array;
}

export class KeptLists {
  private readonly byKey = new Map<string, AllowedValues>();
  private readonly objects = new Map<Int32Array, number>();

  ofMask(mask: Uint8Array): AllowedValues {
    const text = latin1(mask);
    return this.of(text, () => Int32Array.from(mask.keys()).filter((a) => mask[a] === 1));
  }

  of(key: string, make: () => Int32Array): AllowedValues {
    let list = this.byKey.get(key);
    if (list === undefined) {
      list = { id: this.byKey.size, values: make() };
      this.byKey.set(key, list);
    }
    return list;
  }

  /** A number for an array that is shared by identity. */
  idOf(array: Int32Array): number {
    let id = this.objects.get(array);
    if (id === undefined) {
      id = this.objects.size;
      this.objects.set(array, id);
    }
    return id;
  }
}

/** Rows of a problem on the values that a restriction of it leaves. */
export function restrictRows(
  rows: readonly LinearRow[],
  { valuesOf }: Pick<CompactProblem, 'valuesOf'>,
): LinearRow[] {
  return rows.map((row) => ({
    ...row,
    amounts: row.amounts.map((amounts, k) =>
      Float64Array.from(valuesOf(row.variables[k]), (a) => amounts[a]),
    ),
  }));
}

/**
 * Leaves values out: domains, unary vectors and the maps into the tables shrink; the tables stay.
 * No list: all stays.
 */
export function compactProblem(
  problem: Problem,
  kept: readonly (AllowedValues | undefined)[],
): CompactProblem {
  const all = Int32Array.from(
    { length: problem.domains.reduce((a, b) => Math.max(a, b), 0) },
    (_, a) => a,
  );
  const valuesOf = (v: number): Int32Array =>
    kept[v]?.values ?? all.subarray(0, problem.domains[v]);
  if (kept.every((list) => list === undefined))
    return { problem, expand: (choice) => choice, contract: (choice) => choice, valuesOf };
  return {
    problem: { ...withoutValues(problem, kept), ...rowsLeft(problem, { valuesOf }) },
    expand: (choice) => choice.map((a, v) => kept[v]?.values[a] ?? a),
    contract: (choice) => {
      const out = choice.map((a, v) => kept[v]?.values.indexOf(a) ?? a);
      return out.includes(-1) ? undefined : out;
    },
    valuesOf,
  };
}

function rowsLeft(
  { rows }: Problem,
  left: Pick<CompactProblem, 'valuesOf'>,
): Pick<Problem, 'rows'> {
  return rows === undefined ? {} : { rows: restrictRows(rows, left) };
}

/** The problem on the values that are kept, but for its rows. */
function withoutValues(problem: Problem, kept: readonly (AllowedValues | undefined)[]): Problem {
  const { edges, minPairs } = problem;
  const vectors = new ShortenedLists(problem.vectors);
  const maps = new ShortenedLists(problem.maps);
  const unary = problem.unary.map((id, v) => {
    const list = kept[v];
    if (list === undefined) return id;
    return vectors.add(id, list, () =>
      Float64Array.from(list.values, (a) => problem.vectors[id][a]),
    );
  });
  /** The map of a variable; without one (-1) every value is a class of its own. */
  const mapOf = (id: number, list: AllowedValues): number =>
    maps.add(id, list, () => (id < 0 ? list.values : list.values.map((a) => problem.maps[id][a])));
  const remap = (map: Int32Array, ends: Int32Array): Int32Array =>
    map.map((id, e) => {
      const list = kept[ends[e]];
      return list === undefined ? id : mapOf(id, list);
    });
  const minPairsLeft = (names: Int32Array): Int32Array =>
    names.map((id, v) => {
      const list = kept[v];
      return list === undefined || id < 0 ? id : mapOf(id, list);
    });
  return {
    ...problem,
    domains: problem.domains.map((size, v) => kept[v]?.values.length ?? size),
    unary,
    vectors: vectors.all,
    maps: maps.all,
    edges: {
      ...edges,
      firstMap: remap(edges.firstMap, edges.first),
      secondMap: remap(edges.secondMap, edges.second),
    },
    ...(minPairs === undefined
      ? {}
      : {
          minPairs: {
            first: minPairsLeft(minPairs.first),
            second: minPairsLeft(minPairs.second),
          },
        }),
  };
}

/** Lists of a problem with shorter ones added to them, each made once. */
class ShortenedLists<T> {
  readonly all: T[];
  private readonly known = new Map<number, number>();

  constructor(lists: readonly T[]) {
    this.all = [...lists];
  }

  /** Id of list `id` on the values that are allowed. */
  add(id: number, allowed: AllowedValues, make: () => T): number {
    const key = (id + 1) * 2 ** 24 + allowed.id;
    let at = this.known.get(key);
    if (at === undefined) {
      at = this.all.push(make()) - 1;
      this.known.set(key, at);
    }
    return at;
  }
}
