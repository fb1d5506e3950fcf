import type { Relation, SizeRelations } from './shrink-relations.ts';
import { fewestRows, windowCount } from './shrink-windows.ts';

/** Chooses new sizes: small, distinct where they were distinct, cut evenly by a mesh where they were. */

export type Chosen = { readonly sizes: ReadonlyMap<number, number> } | { readonly contradiction: string };

const MAX_SIZES = 256;
/** Tries per size, besides the size itself. */
const MAX_CANDIDATES = 48;
const MAX_STEPS = 200_000;

/** @param distinct sizes that differ keep differing where they can; else every size is as small as it can be */
export function chooseSizes(
  given: SizeRelations,
  meshSizes: readonly number[],
  keepUpTo: number,
  distinct: boolean,
): Chosen {
  const sizes = [...given.sizes].sort((a, b) => a - b);
  if (sizes.length > MAX_SIZES) return { contradiction: `the graph has ${sizes.length} different sizes` };
  const pieces = productsOf(meshSizes);
  const { relations } = given;
  const least = (n: number): number => Math.max(2, given.atLeast.get(n) ?? 0);
  const allowed = (n: number, to: number): boolean =>
    Number.isInteger(to) &&
    to >= least(n) &&
    to <= n &&
    (n === to || !(given.fixed.has(n) || n <= keepUpTo)) &&
    pieces.every((p) => n === to || ((n < p || to >= p) && (n % p !== 0 || to % p === 0 || given.spatial.has(n))));
  // One row stays one row.
  const chosen = new Map<number, number>([[1, 1]]);
  const used = new Map<number, number>();
  const take = (n: number, to: number): void => {
    chosen.set(n, to);
    used.set(to, (used.get(to) ?? 0) + 1);
  };
  const drop = (n: number): void => {
    const to = chosen.get(n) ?? 0;
    chosen.delete(n);
    used.set(to, (used.get(to) ?? 1) - 1);
  };
  const touching = new Map<number, Relation[]>();
  for (const r of relations)
    for (const n of new Set([...r.left, ...r.right])) touching.set(n, [...(touching.get(n) ?? []), r]);

  /** Assigns what follows; false, and undone, on a contradiction. */
  const assign = (first: number, value: number, trail: number[]): boolean => {
    const queue: [number, number][] = [[first, value]];
    for (let entry = queue.pop(); entry !== undefined; entry = queue.pop()) {
      const [n, to] = entry;
      const known = chosen.get(n);
      if (known !== undefined) {
        if (known !== to) return false;
        continue;
      }
      if (!allowed(n, to)) return false;
      take(n, to);
      trail.push(n);
      for (const relation of touching.get(n) ?? []) {
        const open = [...new Set([...relation.left, ...relation.right])].filter((x) => !chosen.has(x));
        if (open.length === 0) {
          if (!holds(relation, chosen)) return false;
        } else if (open.length === 1) {
          const forced = solvedFor(relation, open[0], chosen);
          if (forced === 'free') continue;
          if (forced === undefined) return false;
          queue.push([open[0], forced]);
        }
      }
    }
    return true;
  };

  let steps = 0;
  const search = (from: number): boolean => {
    let at = from;
    while (at < sizes.length && chosen.has(sizes[at])) at++;
    if (at === sizes.length) return true;
    const n = sizes[at];
    for (const to of candidates(n, allowed, used, distinct, fewest(n, touching.get(n) ?? [], chosen))) {
      if (++steps > MAX_STEPS) return false;
      const trail: number[] = [];
      if (assign(n, to, trail) && search(at + 1)) return true;
      for (const x of trail) drop(x);
    }
    return false;
  };
  const trail: number[] = [];
  for (const n of sizes)
    if (!chosen.has(n) && !candidatesExist(n, allowed)) return { contradiction: `size ${n} has no smaller form` };
  for (const n of sizes.filter((s) => given.fixed.has(s) || s <= keepUpTo))
    if (!assign(n, n, trail)) return { contradiction: `size ${n} stays, but something relies on it to shrink` };
  const found = search(0);
  chosen.delete(1);
  return found ? { sizes: chosen } : { contradiction: 'views, joins and slices contradict each other' };
}

/** The least value that leaves enough rows for the windows that are counted already. */
function fewest(n: number, relations: readonly Relation[], chosen: ReadonlyMap<number, number>): number {
  let least = 2;
  for (const { kind, left, right, slide } of relations) {
    if (kind !== 'window' || slide === undefined || left[0] !== n) continue;
    const [count, kernel] = [chosen.get(right[0]), slide.kernel ?? chosen.get(left[1])];
    if (count !== undefined && kernel !== undefined) least = Math.max(least, fewestRows(count, kernel, slide));
  }
  return least;
}

/** Values ascending, those not taken yet first if sizes shall differ; at last the size itself. */
function* candidates(
  n: number,
  allowed: (n: number, to: number) => boolean,
  used: ReadonlyMap<number, number>,
  distinct: boolean,
  from: number,
): Generator<number> {
  const taken: number[] = [];
  let found = 0;
  for (let to = from; to < n && found < MAX_CANDIDATES; to++) {
    if (!allowed(n, to)) continue;
    found++;
    if (distinct && (used.get(to) ?? 0) > 0) taken.push(to);
    else yield to;
  }
  yield* taken;
  yield n;
}

function candidatesExist(n: number, allowed: (n: number, to: number) => boolean): boolean {
  return allowed(n, n);
}

function holds({ kind, left, right, times = 1, slide }: Relation, of: ReadonlyMap<number, number>): boolean {
  const value = (n: number): number => of.get(n) ?? n;
  switch (kind) {
    case 'product':
      return product(left.map(value)) === product(right.map(value)) * times;
    case 'sum':
      return sum(left.map(value)) === sum(right.map(value));
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

/** The only value that one open size can have; 'free' where more than one may do, undefined where none. */
function solvedFor(
  { kind, left, right, times = 1, slide }: Relation,
  open: number,
  of: ReadonlyMap<number, number>,
): number | 'free' | undefined {
  if (kind === 'multiple' || kind === 'atMost') return 'free';
  if (kind === 'window') {
    if (slide === undefined || left.includes(open)) return 'free';
    const kernel = slide.kernel ?? of.get(left[1]) ?? left[1];
    const windows = windowCount(of.get(left[0]) ?? left[0], kernel, slide);
    return windows > 0 ? windows : undefined;
  }
  const count = (list: readonly number[]): number => list.filter((n) => n === open).length;
  const [l, r] = [count(left), count(right)];
  const known = (list: readonly number[]): number[] => list.filter((n) => n !== open).map((n) => of.get(n) ?? n);
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

const product = (list: readonly number[]): number => list.reduce((a, b) => a * b, 1);
const sum = (list: readonly number[]): number => list.reduce((a, b) => a + b, 0);

/** Products of the sizes of some mesh dims, above 1. */
function productsOf(meshSizes: readonly number[]): number[] {
  let all = [1];
  for (const n of meshSizes) all = [...new Set([...all, ...all.map((p) => p * n)])];
  return all.filter((p) => p > 1);
}
