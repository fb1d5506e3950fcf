/**
 * From the bound of the search to a dual certificate: prices and messages move from the reduced model to the groups of the
 * whole problem, a few sweeps settle what the reduction had taken out, and everything is rounded to integers.
 */
import { hashProblem } from '../../check/hash.ts';
import type { CertificateRow, DualCertificate, DualNumbers, DualSwept, Problem } from '../../types.ts';
import { classesOf, withoutPresolve, type Presolved } from '../model/presolve.ts';
import { Dual } from '../bound/trws.ts';
import type { BoundReport } from '../run/member.ts';
import type { Groups } from '../model/merge.ts';

/** Sweeps on the unreduced model: at least so many, more while they gain, within a number of cells. */
const SWEEPS = 12;
const SWEPT_CELLS = 2e8;
const GAIN = 1e-7;
const PRICE_SCALE = 2 ** 40;

/** A row of the problem by the number that a model keeps of it. */
export function sourceOf(source: number): CertificateRow {
  return source >= 0 ? { time: source } : { row: -1 - source };
}

/** A bound on all values of the groups: the model, prices and messages of it, ready to be written down. */
export interface WholeBound {
  readonly whole: Presolved;
  readonly dual: Dual;
}

/** The certificate of a bound that was found on `reduced.model`. */
export function dualCertificate(
  problem: Problem,
  reduced: Presolved,
  report: Pick<BoundReport, 'lambda' | 'toFirst' | 'toSecond'>,
): DualCertificate {
  const { whole, dual } = wholeBound(withoutPresolve(problem, reduced.groups), reduced, report);
  const numbers = new DualWriter(problem, whole).numbers(dual);
  return { version: 1, kind: 'dual', problem: hashProblem(problem), ...numbers, joins: reduced.groups.joins };
}

/** A bound of `reduced.model` on a model that has all values of the groups; prices of rows that it lacks are left out. */
export function wholeBound(
  whole: Presolved,
  reduced: Presolved,
  report: Pick<BoundReport, 'lambda' | 'toFirst' | 'toSecond'>,
): WholeBound {
  const dual = new Dual(whole.model);
  const place = new Map<number, number>();
  whole.model.sources.forEach((source, t) => place.set(source, t));
  report.lambda.forEach((price, t) => {
    const at = place.get(reduced.model.sources[t]);
    if (price > 0 && at !== undefined) dual.lambda[at] = floorPrice(price);
  });
  dual.reprice();
  carryMessages(reduced, report, whole, dual);
  const { model } = whole;
  const most = SWEEPS + SWEPT_CELLS / (1 + model.cells.length + model.unary.length);
  for (let k = 0, before = -Infinity; k < most; k++) {
    const bound = dual.sweep();
    if (k >= SWEEPS && bound - before < GAIN * Math.abs(bound)) break;
    before = bound;
  }
  return { whole, dual };
}

/** The price that a certificate states: rounded down to its scale. */
export function floorPrice(price: number): number {
  return Math.floor(price * PRICE_SCALE) / PRICE_SCALE;
}

/** Writes bounds of a model without presolve down as the integers of a certificate. */
export class DualWriter {
  readonly #whole: Presolved;
  readonly #moved: SettledEdge[];

  constructor(problem: Problem, whole: Presolved) {
    this.#whole = whole;
    this.#moved = settledEdges(problem, whole.groups);
  }

  /** The numbers of a bound after its last sweep. */
  numbers(dual: Dual): DualNumbers {
    const { model, roots } = this.#whole;
    const moved = this.#moved;
    const settled = dual.settled();
    const messageBits = this.#bits(dual.toFirst, settled);
    const scale = 2 ** messageBits;
    // What the search calls a message is what the variable receives; the certificate subtracts it from the edge. A value
    // without a partner has infinite messages, and the checker leaves it out: any number does.
    const negative = (list: Float64Array): number[] =>
      Array.from(list, (x) => (Number.isFinite(x) ? 0 - Math.round(x * scale) : 0));
    const searched = Array.from(model.first, (first, e) => ({
      first: roots[first],
      second: roots[model.second[e]],
      toFirst: negative(dual.toFirst.subarray(dual.firstAt[e], dual.firstAt[e + 1])),
      toSecond: negative(settled.subarray(dual.secondAt[e], dual.secondAt[e + 1])),
    }));
    const emptied = moved.map(({ first, second, cells, toSecond }) => ({
      first,
      second,
      toFirst: toSecond ? [0] : negative(cells),
      toSecond: toSecond ? negative(cells) : [0],
    }));
    return {
      messageBits,
      prices: this.#prices(dual),
      messages: [...searched, ...emptied].filter(
        (m) => m.toFirst.some((x) => x !== 0) || m.toSecond.some((x) => x !== 0),
      ),
    };
  }

  /** The bound of a part whose messages the checker finds by so many sweeps; the dual has made them. */
  swept(dual: Dual, sweeps: number): DualSwept {
    return { messageBits: this.#bits(dual.toFirst, dual.settled()), prices: this.#prices(dual), sweeps };
  }

  /** The finest scale at which sums of messages and cells are exact. */
  #bits(toFirst: Float64Array, toSecond: Float64Array): number {
    let largest = 1;
    for (const list of [toFirst, toSecond, this.#whole.model.cells, ...this.#moved.map(({ cells }) => cells)])
      for (const x of list) if (Math.abs(x) < Infinity && Math.abs(x) > largest) largest = Math.abs(x);
    return Math.max(0, Math.min(20, 49 - Math.ceil(Math.log2(largest))));
  }

  #prices({ lambda }: Dual): DualNumbers['prices'] {
    return Array.from(lambda, (price, t) => ({
      row: sourceOf(this.#whole.model.sources[t]),
      price: BigInt(Math.floor(price * PRICE_SCALE)),
    })).flatMap(({ row, price }) => (price > 0n ? [{ row, price: price.toString() }] : []));
  }
}

/** An edge between two groups of which one has a single value left; `cells` go by the values of the other one. */
interface SettledEdge {
  readonly first: number;
  readonly second: number;
  readonly cells: Float64Array;
  /** Whether the cells belong to the second end. */
  readonly toSecond: boolean;
}

/**
 * The edges of groups with one value left. The model has moved their costs into the other end, where they decide with the
 * other costs; the certificate has to do the same by a message, or it would count the least cell of each alone.
 */
function settledEdges(problem: Problem, groups: Groups): SettledEdge[] {
  const found = new Map<number, SettledEdge>();
  const { first, second, table, firstMap, secondMap } = problem.edges;
  for (let e = 0; e < first.length; e++) {
    const ends = [groups.root[first[e]], groups.root[second[e]]];
    const sizes = ends.map((r) => groups.size[r]);
    if (ends[0] === ends[1] || Math.min(...sizes) !== 1 || Math.max(...sizes) === 1) continue;
    const [low, high] = ends[0] < ends[1] ? ends : [ends[1], ends[0]];
    const key = low * problem.domains.length + high;
    const toSecond = groups.size[low] === 1;
    const edge = found.get(key) ?? { first: low, second: high, cells: new Float64Array(Math.max(...sizes)), toSecond };
    found.set(key, edge);
    const { columns, costs } = problem.tables[table[e]];
    const rows = classesOf(groups.maps[first[e]], problem.maps[firstMap[e]]);
    const cols = classesOf(groups.maps[second[e]], problem.maps[secondMap[e]]);
    const alone = sizes[0] === 1;
    for (let a = 0; a < edge.cells.length; a++)
      edge.cells[a] += alone ? costs[rows[0] * columns + cols[a]] : costs[rows[a] * columns + cols[0]];
  }
  return [...found.values()];
}

/** Messages of the reduced model at the same edges and values; zero elsewhere. */
function carryMessages(
  reduced: Presolved,
  report: Pick<BoundReport, 'toFirst' | 'toSecond'>,
  whole: Presolved,
  dual: Dual,
): void {
  const from = new Dual(reduced.model);
  const index = new Map<number, number>();
  whole.roots.forEach((root, i) => index.set(root, i));
  const edges = new Map<number, number>();
  const { count, first, second } = whole.model;
  for (let e = 0; e < first.length; e++) edges.set(first[e] * count + second[e], e);
  const positions = reduced.roots.map((root) => index.get(root) ?? -1);
  const places = reduced.values.map((list, i) => {
    const at = new Map<number, number>();
    whole.values[positions[i]].forEach((value, a) => at.set(value, a));
    return list.map((value) => at.get(value) ?? -1);
  });
  for (let e = 0; e < reduced.model.first.length; e++) {
    const [i, j] = [reduced.model.first[e], reduced.model.second[e]];
    const g = edges.get(positions[i] * count + positions[j]);
    if (g === undefined) continue;
    places[i].forEach((a, k) => (dual.toFirst[dual.firstAt[g] + a] = report.toFirst[from.firstAt[e] + k]));
    places[j].forEach((b, k) => (dual.toSecond[dual.secondAt[g] + b] = report.toSecond[from.secondAt[e] + k]));
  }
}
