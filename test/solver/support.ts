/**
 * Choice problems for the solver's tests in their plainest form (one full table per edge, nothing
 * shared or compressed), a reference solver that only enumerates, and the generators of the
 * acceptance cases.
 */
import { type End, ProblemBuilder } from '../../src/solver/problem/builder.ts';
import type { Problem } from '../../src/solver/types.ts';

export interface PlainProblem {
  readonly unary: readonly (readonly number[])[];
  /** [i, j, table row-major over the values of i and j] */
  readonly edges: readonly (readonly [number, number, readonly number[]])[];
  readonly pieces?: readonly {
    readonly variable: number;
    readonly lo: number;
    readonly hi: number;
    readonly amounts: readonly number[];
  }[];
  readonly limit?: number;
  readonly rows?: readonly {
    readonly name: string;
    readonly variables: readonly number[];
    readonly amounts: readonly (readonly number[])[];
    readonly bound: number;
  }[];
  readonly constant?: number;
}

/**
 * The same problem as the solver's record. With `compress` equal rows and columns of tables become
 * classes.
 */
export function build(plain: PlainProblem, compress = false): Problem {
  const b = new ProblemBuilder();
  b.constant = plain.constant ?? 0;
  for (const u of plain.unary) b.addVariable(Float64Array.from(u));
  for (const [i, j, table] of plain.edges) {
    const [k, l] = [plain.unary[i].length, plain.unary[j].length];
    if (!compress) {
      b.addEdge(i, j, Float64Array.from(table));
      continue;
    }
    const rows = classes(k, (a) => table.slice(a * l, (a + 1) * l).join());
    const columns = classes(l, (c) => Array.from({ length: k }, (_, a) => table[a * l + c]).join());
    const small = new Float64Array(rows.classes * columns.classes);
    for (let a = 0; a < k; a++) {
      for (let c = 0; c < l; c++)
        small[rows.of[a] * columns.classes + columns.of[c]] = table[a * l + c];
    }
    b.addEdge(i, j, small, rows, columns);
  }
  for (const row of plain.rows ?? []) {
    const amounts = row.amounts.map((a) => Float64Array.from(a));
    b.addRow({
      name: row.name,
      variables: Int32Array.from(row.variables),
      amounts,
      bound: row.bound,
    });
  }
  if (plain.limit !== undefined) {
    b.setLimit(plain.limit);
    for (const p of plain.pieces ?? []) b.addUsage({ ...p, amounts: Float64Array.from(p.amounts) });
  }
  return b.build();
}

function classes(count: number, key: (value: number) => string): End {
  const ids = new Map<string, number>();
  const of = new Int32Array(count);
  for (let v = 0; v < count; v++) {
    const k = key(v);
    if (!ids.has(k)) ids.set(k, ids.size);
    of[v] = ids.get(k) ?? 0;
  }
  return { classes: ids.size, of };
}

/**
 * Cost of a choice straight from the definition; Infinity where it is forbidden. Memory is not
 * looked at.
 */
export function costOf(plain: PlainProblem, x: readonly number[]): number {
  let sum = plain.constant ?? 0;
  plain.unary.forEach((u, i) => (sum += u[x[i]]));
  for (const [i, j, table] of plain.edges) sum += table[x[i] * plain.unary[j].length + x[j]];
  return sum;
}

/** Largest usage over time. */
export function peakOf(plain: PlainProblem, x: readonly number[]): number {
  const pieces = plain.pieces ?? [];
  let peak = 0;
  for (const { lo } of pieces) {
    let level = 0;
    for (const p of pieces) if (p.lo <= lo && lo < p.hi) level += p.amounts[x[p.variable]];
    peak = Math.max(peak, level);
  }
  return peak;
}

/** Tells whether all linear rows hold. */
export function rowsHold(plain: PlainProblem, x: readonly number[]): boolean {
  return (plain.rows ?? []).every(
    (row) => row.variables.reduce((sum, v, k) => sum + row.amounts[k][x[v]], 0) <= row.bound,
  );
}

export interface Exhausted {
  /** Infinity when no choice is allowed. */
  readonly objective: number;
  /** All optimal choices in lexicographic order. */
  readonly choices: readonly (readonly number[])[];
  /** Optimum without the limit and the rows, and its choices. */
  readonly free: number;
  readonly freeChoices: readonly (readonly number[])[];
  /** Least peak over choices of finite cost. */
  readonly leastPeak: number;
}

/** Looks at every choice. */
export function exhaust(plain: PlainProblem): Exhausted {
  const n = plain.unary.length;
  const x = new Array<number>(n).fill(0);
  let [objective, free, leastPeak] = [Infinity, Infinity, Infinity];
  let choices: number[][] = [];
  let freeChoices: number[][] = [];
  for (;;) {
    const cost = costOf(plain, x);
    if (cost < Infinity) {
      const peak = peakOf(plain, x);
      leastPeak = Math.min(leastPeak, peak);
      if (cost < free) [free, freeChoices] = [cost, []];
      if (cost === free) freeChoices.push([...x]);
      if (cost <= objective && peak <= (plain.limit ?? Infinity) && rowsHold(plain, x)) {
        if (cost < objective) [objective, choices] = [cost, []];
        choices.push([...x]);
      }
    }
    let i = n - 1;
    while (i >= 0 && ++x[i] === plain.unary[i].length) x[i--] = 0;
    if (i < 0) return { objective, choices, free, freeChoices, leastPeak };
  }
}

/**
 * The optimum by depth-first enumeration that drops a prefix only when its finished terms alone
 * (all non-negative) already cost as much as the best, exceed a row, or are forbidden. Reaches 12
 * variables where `exhaust` cannot.
 */
export function enumerate(plain: PlainProblem): number {
  const n = plain.unary.length;
  const x = new Array<number>(n).fill(0);
  const closing = plain.unary.map((_, i) => plain.edges.filter(([a, b]) => Math.max(a, b) === i));
  let best = Infinity;
  const times = (plain.pieces ?? []).filter((p) => p.lo < p.hi).map((p) => p.lo);
  const bounds = [
    ...times.map(() => plain.limit ?? Infinity),
    ...(plain.rows ?? []).map((r) => r.bound),
  ];
  const use = (i: number, a: number): number[] => [
    ...times.map((t) =>
      (plain.pieces ?? []).reduce(
        (s, p) => (p.variable === i && p.lo <= t && t < p.hi ? s + p.amounts[a] : s),
        0,
      ),
    ),
    ...(plain.rows ?? []).map((r) =>
      r.variables.reduce((s, v, k) => (v === i ? s + r.amounts[k][a] : s), 0),
    ),
  ];
  const uses = plain.unary.map((u, i) => u.map((_, a) => use(i, a)));
  const step = (i: number, cost: number, levels: readonly number[]): void => {
    if (cost >= best) return;
    if (i === n) {
      best = cost;
      return;
    }
    for (let a = 0; a < plain.unary[i].length; a++) {
      x[i] = a;
      const next = levels.map((level, r) => level + uses[i][a][r]);
      if (next.some((level, r) => level > bounds[r])) continue;
      let more = cost + plain.unary[i][a];
      for (const [p, q, table] of closing[i]) more += table[x[p] * plain.unary[q].length + x[q]];
      step(i + 1, more, next);
    }
  };
  step(
    0,
    plain.constant ?? 0,
    bounds.map(() => 0),
  );
  return best;
}

/** The random generator mulberry32. */
export function mulberry32(seed: number): () => number {
  let a = seed | 0;
  return () => {
    a = (a + 0x6d2b79f5) | 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** A random instance with 5 to 8 nodes, a usage of each value and one limit, by its seed. */
export function limitedInstance(seed: number): PlainProblem {
  const next = mulberry32(seed);
  const int = (n: number): number => Math.floor(next() * n);
  const n = 5 + int(4);
  const unary: number[][] = [];
  const pieces: { variable: number; lo: number; hi: number; amounts: number[] }[] = [];
  for (let variable = 0; variable < n; variable++) {
    const k = 2 + int(3);
    const lo = int(6);
    const hi = lo + 1 + int(4);
    const costs: number[] = [];
    const amounts: number[] = [];
    for (let s = 0; s < k; s++) {
      costs.push(int(100));
      amounts.push(int(50));
    }
    unary.push(costs);
    pieces.push({ variable, lo, hi, amounts });
  }
  const edges: [number, number, number[]][] = [];
  for (let i = 0; i < n; i++) {
    for (let j = i + 1; j < n; j++) {
      if (next() >= 0.45) continue;
      const cells = unary[i].length * unary[j].length;
      edges.push([i, j, Array.from({ length: cells }, () => (next() < 0.1 ? Infinity : int(100)))]);
    }
  }
  const peak = (pick: (amounts: number[]) => number): number =>
    Math.max(
      ...pieces.map(({ lo }) =>
        pieces.reduce((s, p) => (p.lo <= lo && lo < p.hi ? s + pick(p.amounts) : s), 0),
      ),
    );
  const most = peak((u) => Math.max(...u));
  const least = peak((u) => Math.min(...u));
  return { unary, edges, pieces, limit: least + Math.floor(0.35 * (most - least)) };
}

/** What the random problems of `randomProblem` may hold. */
export interface RandomOptions {
  readonly most: number;
  readonly values: number;
  readonly row?: boolean;
  readonly usage?: boolean;
  /**
   * Amounts of a few units beside amounts of gigabytes in one row; otherwise a problem has one
   * scale.
   */
  readonly mixed?: boolean;
}

/**
 * Problems with everything that files and planners hand over: duplicate and reversed edges, self
 * loops, isolated variables, forbidden values and cells, partial bijections, separable and zero
 * tables, repeated rows and columns, several usage pieces of one variable, empty intervals, tight
 * and slack rows, ties, single values, a constant.
 */
export function randomProblem(seed: number, options: RandomOptions): PlainProblem {
  const next = mulberry32(seed);
  const int = (n: number): number => Math.floor(next() * n);
  const n = 1 + int(options.most);
  const range = next() < 0.3 ? 4 : 100;
  const unary = Array.from({ length: n }, () =>
    Array.from({ length: 1 + int(options.values) }, () => (next() < 0.05 ? Infinity : int(range))),
  );
  const density = next() * (n > 8 ? 0.35 : 0.6);
  const edges: [number, number, number[]][] = [];
  for (let i = 0; i < n; i++) {
    for (let j = i; j < n; j++) {
      const copies = (i === j ? next() < 0.03 : next() < density) ? 1 + (next() < 0.1 ? 1 : 0) : 0;
      for (let c = 0; c < copies; c++) {
        const [a, b] = next() < 0.3 ? [j, i] : [i, j];
        edges.push([a, b, randomTable(unary[a].length, unary[b].length, range, next, int)]);
      }
    }
  }
  const oneScale = next() < 0.2 ? 2 ** 30 : next() < 0.2 ? 999_999_937 : 1;
  const amounts = (k: number): number[] => {
    const scale = options.mixed === true ? (next() < 0.2 ? 2 ** 30 : 1) : oneScale;
    return Array.from({ length: k }, () => int(50) * scale);
  };
  const slack = (least: number, most: number): number =>
    least + Math.floor((next() * 0.9 - 0.05) * (most - least));
  const rows: { name: string; variables: number[]; amounts: number[][]; bound: number }[] = [];
  if (options.row === true) {
    for (let r = 0; r < 1 + int(2); r++) {
      const variables = unary.flatMap((_, i) => (next() < 0.8 ? [i] : []));
      const table = variables.map((v) => amounts(unary[v].length));
      const least = table.reduce((s, u) => s + Math.min(...u), 0);
      const most = table.reduce((s, u) => s + Math.max(...u), 0);
      rows.push({ name: `row ${r}`, variables, amounts: table, bound: slack(least, most) });
    }
  }
  if (options.usage !== true) return { unary, edges, rows, constant: int(2) * 17 };
  const pieces = unary.flatMap((u, variable) =>
    Array.from({ length: next() < 0.2 ? 2 : 1 }, () => {
      const lo = int(8);
      return { variable, lo, hi: lo + int(5), amounts: amounts(u.length) };
    }),
  );
  const peak = (pick: (u: number[]) => number): number =>
    Math.max(
      0,
      ...pieces.map(({ lo }) =>
        pieces.reduce((s, p) => (p.lo <= lo && lo < p.hi ? s + pick(p.amounts) : s), 0),
      ),
    );
  const limit = Math.max(
    0,
    slack(
      peak((u) => Math.min(...u)),
      peak((u) => Math.max(...u)),
    ),
  );
  return { unary, edges, rows, pieces, limit, constant: int(2) * 17 };
}

function randomTable(
  k: number,
  l: number,
  range: number,
  next: () => number,
  int: (n: number) => number,
): number[] {
  const kind = next();
  const cells = (f: (a: number, b: number) => number): number[] =>
    Array.from({ length: k * l }, (_, c) => f(Math.floor(c / l), c % l));
  if (kind < 0.05) return cells(() => 0);
  if (kind < 0.15) {
    const [r, c] = [
      Array.from({ length: k }, () => int(range)),
      Array.from({ length: l }, () => int(range)),
    ];
    return cells((a, b) => r[a] + c[b]);
  }
  if (kind < 0.25) {
    const shift = int(3);
    return cells((a, b) => ((a + shift) % Math.max(k, l) === b ? int(2) * int(range) : Infinity));
  }
  if (kind < 0.4) {
    const [r, c] = [
      Array.from({ length: k }, () => int(2)),
      Array.from({ length: l }, () => int(2)),
    ];
    const small = Array.from({ length: 4 }, () => (next() < 0.1 ? Infinity : int(range)));
    return cells((a, b) => small[r[a] * 2 + c[b]]);
  }
  return cells(() => (next() < 0.1 ? Infinity : int(range)));
}

/**
 * A problem of many variables in a ring with chords, usage pieces that overlap, and a tight limit:
 * too large to be closed at once. Domains have `values` to `values + 2` values; the limit is `room`
 * times the least peak.
 */
export function ring(seed: number, n: number, values: number, room: number): PlainProblem {
  const next = mulberry32(seed);
  const int = (k: number): number => Math.floor(next() * k);
  const unary = Array.from({ length: n }, () =>
    Array.from({ length: values + int(3) }, () => int(1000)),
  );
  const edges: [number, number, number[]][] = [];
  for (let i = 0; i < n; i++) {
    for (const step of [1, 2 + int(9)]) {
      const j = (i + step) % n;
      const [a, b] = i < j ? [i, j] : [j, i];
      if (a !== b)
        edges.push([
          a,
          b,
          Array.from({ length: unary[a].length * unary[b].length }, () => int(500)),
        ]);
    }
  }
  const pieces = unary.map((u, variable) => {
    const lo = int(n);
    return { variable, lo, hi: lo + 1 + int(12), amounts: u.map(() => 1 + int(100)) };
  });
  const least = ({ amounts }: { readonly amounts: readonly number[] }): number =>
    Math.min(...amounts);
  const peaks = pieces.map(({ lo }) =>
    pieces.reduce((s, p) => (p.lo <= lo && lo < p.hi ? s + least(p) : s), 0),
  );
  return { unary, edges, pieces, limit: Math.floor(room * Math.max(...peaks)) };
}

/**
 * A complete graph without a structure: relaxations say little, so the search branches for long.
 */
export function noise(variables: number, values: number): PlainProblem {
  let state = 12345;
  const next = (): number => (state = (Math.imul(state, 48271) >>> 0) % 0x7fffffff) % 1000;
  const list = (n: number): number[] => Array.from({ length: n }, next);
  const unary = Array.from({ length: variables }, () => list(values));
  const edges = unary.flatMap((_, i) =>
    unary.slice(i + 1).map((__, k) => [i, i + 1 + k, list(values * values)] as const),
  );
  return { unary, edges };
}
