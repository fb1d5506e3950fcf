/**
 * Chooses new sizes of axes that satisfy their relations. The sizes are small, equal where they
 * were equal, distinct where they were distinct if that is possible, and cut evenly by a mesh where
 * they were.
 * Axes that no relation ties are chosen apart; where no smaller sizes are found for some that are
 * tied, those keep theirs.
 */

import { internalError } from '../../errors.ts';
import { product } from '../../product.ts';
import type { Relation, SizeRelations } from './relation-set.ts';
import { fewestRows, windowCount } from './windows.ts';

/** Tries per axis that the axes tied to it can follow, besides the size itself. */
const MAX_CANDIDATES = 48;
/** Values per axis that are tried at all; those that a large mesh divides are far apart. */
const MAX_VALUES = 4096;
/** Tries per set of tied axes that the others can follow. */
const MAX_STEPS = 50_000;
/** Tries per set of tied axes that the others cannot follow. */
const MAX_REFUSED = 500_000;

/**
 * @param piecesOf the numbers of pieces that an axis is cut into; a size that they divide stays
 *   one, and so does one that leaves each of them a row
 * @param distinct sizes that differ keep differing where they can; else every size is as small as
 *   it can be
 */
export function chooseSizes(
  given: SizeRelations,
  piecesOf: (axis: number) => readonly number[],
  keepUpTo: number,
  distinct: boolean,
): ReadonlyMap<number, number> {
  const bySize = (a: number, b: number): number => given.sizeOf(a) - given.sizeOf(b) || a - b;
  const search = new SizeSearch(given, piecesOf, keepUpTo, distinct);
  for (const axis of given.program.ones()) search.keep(axis);
  for (const axes of components([...given.axes].sort(bySize), given.relations))
    search.chooseTied(axes);
  return search.chosen;
}

/** Searches for sizes of one set of tied axes after another. */
class SizeSearch {
  readonly chosen = new Map<number, number>();
  /** How often each value is taken, and by axes of which size. */
  private readonly used = new Map<number, number[]>();
  private readonly touching = new Map<number, Relation[]>();
  private steps = 0;
  private refused = 0;

  constructor(
    private readonly given: SizeRelations,
    private readonly piecesOf: (axis: number) => readonly number[],
    private readonly keepUpTo: number,
    private readonly distinct: boolean,
  ) {
    for (const r of given.relations)
      for (const axis of new Set([...r.left, ...r.right]))
        this.touching.set(axis, [...(this.touching.get(axis) ?? []), r]);
  }

  keep(axis: number): void {
    this.chosen.set(axis, this.given.sizeOf(axis));
  }

  /** Chooses sizes of axes that relations tie; those they have where nothing else is found. */
  chooseTied(axes: readonly number[]): void {
    const { given } = this;
    this.steps = this.refused = 0;
    const trail: number[] = [];
    const kept = axes.filter((axis) => this.stays(axis));
    if (kept.every((axis) => this.assign(axis, given.sizeOf(axis), trail)) && this.search(axes, 0))
      return;
    for (const x of trail.reverse()) this.drop(x);
    for (const axis of axes) if (!this.chosen.has(axis)) this.take(axis, given.sizeOf(axis));
  }

  private search(axes: readonly number[], from: number): boolean {
    const { chosen, given } = this;
    let at = from;
    while (at < axes.length && chosen.has(axes[at])) at++;
    if (at === axes.length) return true;
    const axis = axes[at];
    let followed = 0;
    for (const to of this.candidates(axis)) {
      // The size itself is the last candidate, and is always tried.
      if (followed === MAX_CANDIDATES && to < given.sizeOf(axis)) continue;
      if (this.steps > MAX_STEPS || this.refused > MAX_REFUSED) return false;
      const trail: number[] = [];
      const follows = this.assign(axis, to, trail);
      if (follows) {
        followed++;
        this.steps++;
        if (this.search(axes, at + 1)) return true;
      } else this.refused++;
      for (const x of trail.reverse()) this.drop(x);
    }
    return false;
  }

  /** Assigns what follows; false, and undone by the caller, on a contradiction. */
  private assign(first: number, value: number, trail: number[]): boolean {
    const queue: [number, number][] = [[first, value]];
    for (let entry = queue.pop(); entry !== undefined; entry = queue.pop()) {
      const [axis, to] = entry;
      const known = this.chosen.get(axis);
      if (known !== undefined) {
        if (known !== to) return false;
        continue;
      }
      if (!this.allowed(axis, to)) return false;
      this.take(axis, to);
      trail.push(axis);
      for (const relation of this.touching.get(axis) ?? []) {
        const open = [...new Set([...relation.left, ...relation.right])].filter(
          (x) => !this.chosen.has(x),
        );
        if (open.length === 0) {
          if (!holds(relation, this.chosen)) return false;
        } else if (open.length === 1) {
          const forced = solvedFor(relation, open[0], this.chosen);
          if (forced === 'free') continue;
          if (forced === undefined) return false;
          queue.push([open[0], forced]);
        }
      }
    }
    return true;
  }

  /**
   * Values that axes of the same size took, then others ascending, those not taken yet first if
   * sizes shall differ; at last the size itself.
   */
  private *candidates(axis: number): Generator<number> {
    const { used } = this;
    const n = this.given.sizeOf(axis);
    const from = fewest(axis, this.touching.get(axis) ?? [], this.chosen);
    const later: number[] = [];
    const tried = new Set<number>();
    for (const [to, sizes] of used)
      if (
        to >= from &&
        to < n &&
        sizes.includes(n) &&
        this.allowed(axis, to) &&
        tried.size < MAX_VALUES
      ) {
        tried.add(to);
        yield to;
      }
    let found = 0;
    for (let to = from; to < n && found < MAX_VALUES; to++) {
      if (tried.has(to) || !this.allowed(axis, to)) continue;
      found++;
      if (this.distinct && (used.get(to)?.length ?? 0) > 0) later.push(to);
      else yield to;
    }
    yield* later;
    yield n;
  }

  private stays(axis: number): boolean {
    return this.given.fixed.has(axis) || this.given.sizeOf(axis) <= this.keepUpTo;
  }

  private allowed(axis: number, to: number): boolean {
    const { given } = this;
    const n = given.sizeOf(axis);
    if (to === n) return true;
    if (
      !Number.isInteger(to) ||
      to < Math.max(2, given.atLeast.get(axis) ?? 0) ||
      to > n ||
      this.stays(axis)
    )
      return false;
    if (given.free.has(axis)) return true;
    const unit = given.units.get(axis) ?? 1;
    return this.piecesOf(axis).every(
      (p) =>
        (n < p || to >= p) &&
        (n % p !== 0 || to % p === 0 || given.spatial.has(axis)) &&
        (n % (p * unit) !== 0 || to % (p * unit) === 0) &&
        (!fillsAll(n, p) || fillsAll(to, p)),
    );
  }

  private take(axis: number, to: number): void {
    this.chosen.set(axis, to);
    this.used.set(to, [...(this.used.get(to) ?? []), this.given.sizeOf(axis)]);
  }

  private drop(axis: number): void {
    this.used.get(this.chosen.get(axis) ?? 0)?.pop();
    this.chosen.delete(axis);
  }
}

/** Tells whether each of `pieces` ceil chunks of a size has a row. */
function fillsAll(size: number, pieces: number): boolean {
  return Math.ceil(size / pieces) * (pieces - 1) < size;
}

/** Axes that relations tie, directly or through others; each set in the order given. */
function components(axes: readonly number[], relations: readonly Relation[]): number[][] {
  const parent = new Map(axes.map((axis) => [axis, axis]));
  const find = (axis: number): number => {
    let at = axis;
    for (let up = parent.get(at); up !== undefined && up !== at; up = parent.get(at)) at = up;
    return at;
  };
  for (const { left, right } of relations) {
    const tied = [...left, ...right].filter((axis) => parent.has(axis));
    for (const axis of tied.slice(1)) parent.set(find(axis), find(tied[0]));
  }
  const sets = new Map<number, number[]>();
  for (const axis of axes) {
    const root = find(axis);
    const set = sets.get(root);
    if (set === undefined) sets.set(root, [axis]);
    else set.push(axis);
  }
  return [...sets.values()];
}

/** The least value that leaves enough rows for the windows that are counted already. */
function fewest(
  n: number,
  relations: readonly Relation[],
  chosen: ReadonlyMap<number, number>,
): number {
  let least = 2;
  for (const { kind, left, right, slide } of relations) {
    if (kind !== 'window' || slide === undefined || left[0] !== n) continue;
    const [count, kernel] = [chosen.get(right[0]), slide.kernel ?? chosen.get(left[1])];
    if (count !== undefined && kernel !== undefined)
      least = Math.max(least, fewestRows(count, kernel, slide));
  }
  return least;
}

function holds(
  { kind, left, right, times = 1, by = 0, slide }: Relation,
  of: ReadonlyMap<number, number>,
): boolean {
  const value = (axis: number): number => chosenSize(of, axis);
  switch (kind) {
    case 'product':
      return product(left.map(value)) === product(right.map(value)) * times;
    case 'sum':
      return sum(left.map(value)) === sum(right.map(value));
    case 'shift':
      return value(left[0]) * times + by === value(right[0]);
    case 'multiple':
      return value(left[0]) % value(right[0]) === 0;
    case 'atMost':
      return value(left[0]) <= value(right[0]);
    case 'window': {
      if (slide === undefined) return false;
      return windowCount(value(left[0]), slide.kernel ?? value(left[1]), slide) === value(right[0]);
    }
  }
}

/**
 * The only value that one open size can have; 'free' where more than one may do, undefined where
 * none.
 */
function solvedFor(
  { kind, left, right, times = 1, by = 0, slide }: Relation,
  open: number,
  of: ReadonlyMap<number, number>,
): number | 'free' | undefined {
  if (kind === 'multiple' || kind === 'atMost') return 'free';
  if (kind === 'shift') {
    if (open === right[0]) return chosenSize(of, left[0]) * times + by;
    const rows = (chosenSize(of, right[0]) - by) / times;
    return Number.isInteger(rows) && rows > 0 ? rows : undefined;
  }
  if (kind === 'window') {
    if (slide === undefined || left.includes(open)) return 'free';
    const kernel = slide.kernel ?? chosenSize(of, left[1]);
    const windows = windowCount(chosenSize(of, left[0]), kernel, slide);
    return windows > 0 ? windows : undefined;
  }
  const count = (list: readonly number[]): number => list.filter((n) => n === open).length;
  const [l, r] = [count(left), count(right)];
  const known = (list: readonly number[]): number[] =>
    list.filter((axis) => axis !== open).map((axis) => chosenSize(of, axis));
  if (kind === 'sum') {
    if (l === r) return sum(known(left)) === sum(known(right)) ? 'free' : undefined;
    const value = (sum(known(right)) - sum(known(left))) / (l - r);
    return Number.isInteger(value) && value > 0 ? value : undefined;
  }
  if (l === r) return product(known(left)) === product(known(right)) * times ? 'free' : undefined;
  const ratio = (product(known(right)) * times) / product(known(left));
  const value = Math.round(Math.pow(ratio, 1 / (l - r)));
  return value > 0 && Math.abs(Math.pow(value, l - r) - ratio) < 1e-9 * ratio ? value : undefined;
}

function chosenSize(of: ReadonlyMap<number, number>, axis: number): number {
  return of.get(axis) ?? fail(axis);
}

function fail(axis: number): never {
  throw internalError(`axis ${axis} has no size yet`);
}

const sum = (list: readonly number[]): number => list.reduce((a, b) => a + b, 0);

/** Products of the sizes of some mesh dims, above 1. */
export function productsOf(meshSizes: readonly number[]): number[] {
  let all = [1];
  for (const n of meshSizes) all = [...new Set([...all, ...all.map((p) => p * n)])];
  return all.filter((p) => p > 1);
}
