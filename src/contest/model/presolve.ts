/**
 * From a problem to the model that the anytime search works on: values without support deleted,
 * followers merged, parallel edges summed, separable edges and dominated values removed, times
 * reduced to the rows that can bind. Exact: an optimal choice of the problem survives, and `expand`
 * turns every choice of the model into one of the problem.
 */
import type { Problem } from '../../solver/types.ts';
import { type Draft, type DraftVariable, settle } from './draft.ts';
import { type Groups, mergeFollowers } from './merge.ts';
import { freeze, type Model } from './model.ts';
import { dominate, separate, support } from './shrink.ts';
import { type Piece, profile, pruneRows } from './time-rows.ts';

/** A reduced model and the way back. */
export interface Presolved {
  readonly model: Model;
  readonly groups: Groups;
  /**
   * Original variable whose values the model's variable goes by, and that value for each value of
   * the model.
   */
  readonly roots: Int32Array;
  readonly values: readonly Int32Array[];
  /** Value of every original variable under a choice of the model. */
  readonly expand: (choice: ArrayLike<number>) => Int32Array;
  /**
   * The choice of the model for one of the problem: values that the reduction deleted are replaced
   * by what it kept in their place, so that a choice that keeps the rows still does and costs no
   * more. Undefined where some value is in no choice.
   */
  readonly contract: (choice: ArrayLike<number>) => Int32Array | undefined;
}

/** Reduces a problem; undefined when some variable has no value left or some row cannot be kept. */
export function presolve(problem: Problem): Presolved | undefined {
  const groups = mergeFollowers(problem);
  if (groups === undefined) return undefined;
  const draft = draftOf(problem, groups);
  if (!reduce(draft)) return undefined;
  return finish(draft, groups);
}

/**
 * The model of the groups as they are: nothing separated, no value deleted that has partners, all
 * rows.
 */
export function withoutPresolve(problem: Problem, groups: Groups): Presolved {
  return finish(draftOf(problem, groups), groups);
}

/**
 * The same with those rows only that can bind and that no other one implies; undefined when some
 * row cannot be kept.
 */
export function withAllValues(problem: Problem, groups: Groups): Presolved | undefined {
  const draft = draftOf(problem, groups);
  return pruneRows(draft) ? finish(draft, groups) : undefined;
}

function reduce(draft: Draft): boolean {
  if (draft.constant === Infinity || !support(draft)) return false;
  const touched = new Uint8Array(draft.variables.length).fill(1);
  for (let round = 0; ; round++) {
    separate(draft, touched);
    if (!pruneRows(draft)) return false;
    if (!dominate(draft, touched) || round >= 50) return true;
  }
}

function finish(draft: Draft, groups: Groups): Presolved {
  const { model, index } = freeze(draft);
  const { settled } = draft;
  const owner = new Int32Array(settled.length).fill(-1);
  const maps: Int32Array[] = new Array<Int32Array>(settled.length);
  draft.variables.forEach((v, i) => {
    for (const { variable, map } of v?.members ?? []) {
      owner[variable] = index[i];
      maps[variable] = map;
    }
  });
  const roots: number[] = [];
  const values: Int32Array[] = [];
  const places: Int32Array[] = [];
  draft.variables.forEach((v, i) => {
    if (v === undefined) return;
    roots.push(i);
    values.push(maps[i]);
    places.push(v.place);
  });
  return {
    model,
    groups,
    roots: Int32Array.from(roots),
    values,
    expand: (choice) =>
      settled.map((value, i) => (owner[i] < 0 ? value : maps[i][choice[owner[i]]])),
    contract: (choice) => {
      if (choice.length !== settled.length) return undefined;
      const kept = Int32Array.from(roots, (i, k) => {
        const at = groups.maps[i].indexOf(choice[i]);
        return at < 0 ? -1 : places[k][at];
      });
      return kept.includes(-1) ? undefined : kept;
    },
  };
}

/** Composite variables with summed costs, and a row per distinct time and per linear row. */
function draftOf(problem: Problem, groups: Groups): Draft {
  const n = problem.domains.length;
  const variables = new Array<DraftVariable | undefined>(n).fill(undefined);
  for (let r = 0; r < n; r++) {
    if (groups.members[r].length === 0) continue;
    const size = groups.size[r];
    const unary = new Float64Array(size);
    for (const m of groups.members[r]) {
      const costs = problem.vectors[problem.unary[m]];
      const map = groups.maps[m];
      for (let a = 0; a < size; a++) unary[a] += costs[map[a]];
    }
    const members = groups.members[r].map((variable) => ({ variable, map: groups.maps[variable] }));
    const place = Int32Array.from({ length: size }, (_, a) => a);
    variables[r] = { size, unary, segments: [], edges: new Map(), members, place };
  }
  addEdges(problem, groups, variables);
  const { pieces, capacity, sources, timeRows } = piecesOf(problem, groups);
  pieces.forEach((list, r) => {
    const v = variables[r];
    if (v !== undefined) v.segments = profile(list, v.size);
  });
  const draft: Draft = {
    variables,
    settled: new Int32Array(n).fill(-1),
    constant: problem.constant ?? 0,
    capacity,
    timeRows,
    sources,
  };
  for (let r = 0; r < n; r++) if (variables[r]?.size === 1) settle(draft, r);
  return draft;
}

function addEdges(
  problem: Problem,
  groups: Groups,
  variables: (DraftVariable | undefined)[],
): void {
  const { first, second, table, firstMap, secondMap } = problem.edges;
  for (let e = 0; e < first.length; e++) {
    const { columns, costs } = problem.tables[table[e]];
    const rows = classesOf(groups.maps[first[e]], problem.maps[firstMap[e]]);
    const cols = classesOf(groups.maps[second[e]], problem.maps[secondMap[e]]);
    const [r, s] = [groups.root[first[e]], groups.root[second[e]]];
    const [vr, vs] = [variables[r], variables[s]];
    if (vr === undefined || vs === undefined)
      throw new Error('internal: an edge of a variable without a root');
    if (r === s) {
      for (let a = 0; a < vr.size; a++) vr.unary[a] += costs[rows[a] * columns + cols[a]];
      continue;
    }
    const [a, b] = r < s ? [r, s] : [s, r];
    let edge = vr.edges.get(s);
    if (edge === undefined) {
      edge = { a, b, cells: new Float64Array(vr.size * vs.size) };
      vr.edges.set(s, edge);
      vs.edges.set(r, edge);
    }
    const { cells } = edge;
    const [stepR, stepS] = r === a ? [vs.size, 1] : [1, vr.size];
    for (let x = 0; x < vr.size; x++) {
      for (let y = 0; y < vs.size; y++) {
        const c = costs[rows[x] * columns + cols[y]];
        cells[x * stepR + y * stepS] += c;
      }
    }
  }
}

/** The rows or columns of a table that a variable's values use. */
function classesOf(map: Int32Array, of: Int32Array | undefined): Int32Array {
  return of === undefined ? map : map.map((a) => of[a]);
}

/** Usage pieces per root over row numbers: times first, then the linear rows. */
function piecesOf(
  problem: Problem,
  groups: Groups,
): { pieces: Piece[][]; capacity: Float64Array; sources: Float64Array; timeRows: number } {
  const pieces: Piece[][] = Array.from({ length: problem.domains.length }, () => []);
  const live = (problem.usage?.pieces ?? []).filter((p) => p.lo < p.hi);
  const times = Float64Array.from(new Set(live.flatMap((p) => [p.lo, p.hi]))).sort();
  const place = new Map<number, number>();
  times.forEach((t, k) => place.set(t, k));
  const add = (variable: number, lo: number, hi: number, amounts: Float64Array): void => {
    const map = groups.maps[variable];
    const own = new Float64Array(map.length);
    for (let a = 0; a < own.length; a++) own[a] = amounts[map[a]];
    pieces[groups.root[variable]].push({ lo, hi, amounts: own });
  };
  for (const p of live) add(p.variable, place.get(p.lo) ?? 0, place.get(p.hi) ?? 0, p.amounts);
  const timeRows = Math.max(0, times.length - 1);
  const rows = problem.rows ?? [];
  const capacity = new Float64Array(timeRows + rows.length).fill(problem.usage?.limit ?? Infinity);
  const sources = new Float64Array(timeRows + rows.length);
  for (let k = 0; k < timeRows; k++) sources[k] = times[k];
  rows.forEach((row, r) => {
    const t = timeRows + r;
    capacity[t] = row.bound;
    sources[t] = -1 - r;
    row.variables.forEach((variable, k) => add(variable, t, t + 1, row.amounts[k]));
  });
  return { pieces, capacity, sources, timeRows };
}
