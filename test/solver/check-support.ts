/**
 * Random choice problems and a brute force for the checker's tests. The brute force reads the
 * `Problem` record itself and shares nothing with the room under test.
 */
import { ProblemBuilder } from '../../src/solver/problem/builder.ts';
import type { Problem } from '../../src/solver/types.ts';

export interface Flavour {
  readonly variables: number;
  readonly values: number;
  /** Chance of an edge between two variables. */
  readonly edges: number;
  /** Chance of a forbidden cell. */
  readonly forbidden: number;
  /** Number of linear rows; 0 for none. */
  readonly rows: number;
  /** True if pieces of usage over time under one limit are added. */
  readonly usage?: boolean;
  /**
   * How tight rows and limit are: 0 only the least amounts fit, 1 everything does; below 0 nothing
   * fits.
   */
  readonly tightness?: number;
  /** Repeats the same costs and edges along a chain of this many blocks. */
  readonly layers?: number;
}

/** A small generator of integers in [0, n) (xorshift32). */
export function dice(seed: number): (n: number) => number {
  let s = (seed * 2654435761 + 12345) | 0 || 1;
  return (n) => {
    s ^= s << 13;
    s ^= s >>> 17;
    s ^= s << 5;
    return (s >>> 0) % n;
  };
}

/**
 * A random problem: general edges, bijections, class maps, parallel and reversed edges, self loops,
 * rows, usage.
 */
export function randomChoice(seed: number, flavour: Flavour): Problem {
  const roll = dice(seed);
  const b = new ProblemBuilder();
  const { variables: n, values } = flavour;
  const layers = flavour.layers ?? 1;
  const chance = (p: number): boolean => roll(1000) < p * 1000;
  const sizes = Array.from({ length: n }, () => 1 + roll(values));
  const unary = sizes.map((k) =>
    Float64Array.from({ length: k }, () =>
      k > 1 && chance(flavour.forbidden / 3) ? Infinity : roll(60),
    ),
  );
  const table = (rows: number, columns: number): Float64Array =>
    Float64Array.from({ length: rows * columns }, () =>
      chance(flavour.forbidden) ? Infinity : roll(60),
    );
  interface Edge {
    readonly i: number;
    readonly j: number;
    readonly add: (i: number, j: number) => void;
  }
  const edge = (i: number, j: number): Edge => {
    const [k, l] = [sizes[i], sizes[j]];
    const kind = roll(5);
    if (kind === 0 && k === l && i !== j) {
      const turn = roll(k);
      const follow = Float64Array.from({ length: k * l }, (_, p) =>
        ((p / l) | 0) === ((p % l) + turn) % k ? 3 : Infinity,
      );
      return { i, j, add: (u, v) => void b.addEdge(u, v, follow) };
    }
    if (kind === 1 && i !== j) {
      const first = { classes: 2, of: Int32Array.from({ length: k }, () => roll(2)) };
      const second = { classes: 3, of: Int32Array.from({ length: l }, () => roll(3)) };
      const cells = table(2, 3);
      return { i, j, add: (u, v) => void b.addEdge(u, v, cells, first, second) };
    }
    const cells =
      kind === 2
        ? Float64Array.from({ length: k * l }, (_, p) => ((p / l) | 0) * 4 + (p % l) * 7)
        : table(k, l);
    return { i, j, add: (u, v) => void b.addEdge(u, v, cells) };
  };
  const edges: Edge[] = [];
  for (let i = 0; i < n; i++) {
    for (let j = 0; j < n; j++) {
      if (i === j ? chance(0.03) : chance(flavour.edges / 2)) edges.push(edge(i, j));
    }
  }
  const links = layers > 1 ? [edge(n - 1, 0), edge(roll(n), roll(n))] : [];
  b.constant = roll(20);
  for (let layer = 0; layer < layers; layer++) {
    for (const u of unary) b.addVariable(u);
    for (const e of edges) e.add(layer * n + e.i, layer * n + e.j);
    if (layer > 0) for (const e of links) e.add((layer - 1) * n + e.i, layer * n + e.j);
  }
  const total = n * layers;
  const amounts = Array.from({ length: flavour.rows + 1 }, () =>
    sizes.map((k) => Float64Array.from({ length: k }, () => roll(40))),
  );
  const tight = flavour.tightness ?? 0.4;
  const between = (low: number, high: number): number => Math.floor(low + tight * (high - low));
  for (let r = 0; r < flavour.rows; r++) {
    const members = Array.from({ length: total }, (_, v) => v).filter(() => chance(0.8));
    const least = members.reduce((s, v) => s + Math.min(...amounts[r][v % n]), 0);
    const most = members.reduce((s, v) => s + Math.max(...amounts[r][v % n]), 0);
    b.addRow({
      name: `row ${r}`,
      variables: Int32Array.from(members),
      amounts: members.map((v) => amounts[r][v % n]),
      bound: Math.max(0, between(least, most)),
    });
  }
  if (flavour.usage === true) {
    let [least, most] = [0, 0];
    for (let v = 0; v < total; v++) {
      const lo = roll(5);
      const mine = amounts[flavour.rows][v % n];
      b.addUsage({ variable: v, lo, hi: lo + roll(5), amounts: mine });
      least += Math.min(...mine);
      most += Math.max(...mine);
    }
    b.setLimit(Math.max(0, between(0.5 * least, 0.7 * most)));
  }
  return b.build();
}

export interface Truth {
  /** Infinity when there is no choice. */
  readonly objective: number;
  readonly choice: readonly number[];
  /**
   * Least amount of each row, and least peak of the usage, over all choices that no forbidden entry
   * rules out.
   */
  readonly leastRows: readonly number[];
  readonly leastPeak: number;
}

/** Looks at every choice; the first of least cost in lexicographic order. */
export function bruteForce(problem: Problem): Truth {
  const { domains, edges, tables, maps } = problem;
  const n = domains.length;
  const x = new Array<number>(n).fill(0);
  const rows = problem.rows ?? [];
  const pieces = problem.usage?.pieces ?? [];
  let objective = Infinity;
  let choice: number[] = [];
  let leastPeak = Infinity;
  const leastRows = rows.map(() => Infinity);
  for (;;) {
    let cost = problem.constant ?? 0;
    for (let i = 0; i < n; i++) cost += problem.vectors[problem.unary[i]][x[i]];
    for (let e = 0; e < edges.first.length && cost < Infinity; e++) {
      const t = tables[edges.table[e]];
      const [a, c] = [x[edges.first[e]], x[edges.second[e]]];
      const row = edges.firstMap[e] < 0 ? a : maps[edges.firstMap[e]][a];
      const column = edges.secondMap[e] < 0 ? c : maps[edges.secondMap[e]][c];
      cost += t.costs[row * t.columns + column];
    }
    if (cost < Infinity) {
      let holds = true;
      rows.forEach((row, r) => {
        let sum = 0;
        row.variables.forEach((v, k) => (sum += row.amounts[k][x[v]]));
        leastRows[r] = Math.min(leastRows[r], sum);
        if (sum > row.bound) holds = false;
      });
      let peak = 0;
      for (let time = 0; time < 12; time++) {
        let level = 0;
        for (const p of pieces) if (p.lo <= time && time < p.hi) level += p.amounts[x[p.variable]];
        peak = Math.max(peak, level);
      }
      leastPeak = Math.min(leastPeak, peak);
      if (problem.usage !== undefined && peak > problem.usage.limit) holds = false;
      if (holds && cost < objective) {
        objective = cost;
        choice = [...x];
      }
    }
    let i = n - 1;
    while (i >= 0 && ++x[i] === domains[i]) x[i--] = 0;
    if (i < 0) return { objective, choice, leastRows, leastPeak };
  }
}
