/**
 * From the bound of the search to a certificate: prices and messages move from the reduced model to
 * the groups of the whole problem, a few sweeps settle what the reduction had taken out, and
 * everything is rounded to integers.
 */
import { STEP } from '../../solver/check/certificate-format.ts';
import { hashProblem } from '../../solver/check/hash.ts';
import type { Certificate, CertificateRow, Problem } from '../../solver/types.ts';
import { Dual } from '../bound/trws.ts';
import type { Groups } from '../model/merge.ts';
import { PartValues } from '../model/part-values.ts';
import { type Presolved, withoutPresolve } from '../model/presolve.ts';
import type { BoundReport } from '../run/member.ts';

/**
 * Sweeps on the unreduced model: at least so many, more while they gain, within a number of cells.
 */
const SWEEPS = 12;
const SWEPT_CELLS = 2e8;
const GAIN = 1e-7;
const PRICE_SCALE = 2 ** 40;

/** A row of the problem by the number that a model keeps of it. */
export function sourceOf(source: number): CertificateRow {
  return source >= 0 ? { time: source } : { row: -1 - source };
}

/**
 * A bound on all values of the groups: the model, prices and messages of it, ready to be written
 * down.
 */
export interface WholeBound {
  readonly whole: Presolved;
  readonly dual: Dual;
}

/** The certificate of a bound that was found on `reduced.model`. */
export function dualCertificate(
  problem: Problem,
  reduced: Presolved,
  report: Pick<BoundReport, 'lambda' | 'toFirst' | 'toSecond'>,
): Certificate {
  const { whole, dual } = wholeBound(withoutPresolve(problem, reduced.groups), reduced, report);
  const writer = new ProofWriter(problem, whole);
  writer.messages(dual, new PartValues(whole.model).all());
  return writer.certificate();
}

/**
 * A bound of `reduced.model` on a model that has all values of the groups; prices of rows that it
 * lacks are left out.
 */
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

/**
 * Writes bounds of a model without presolve down as steps, for which the variables of the problem
 * are first made those of the model.
 */
export class ProofWriter {
  private readonly problem: Problem;
  private readonly whole: Presolved;
  private readonly steps: number[];
  private readonly lists: number[][] = [];
  /**
   * Prices of the model's rows for the lists that hold them; those of no row that is priced
   * anywhere are left out.
   */
  private readonly prices: { readonly list: number[]; readonly lambda: Float64Array }[] = [];
  /**
   * The factor of every edge of the model, and whether its first variable is the second end of that
   * edge.
   */
  private readonly factor: Int32Array;
  private readonly swap: Uint8Array;

  constructor(problem: Problem, whole: Presolved) {
    this.problem = problem;
    this.whole = whole;
    const { model, groups, roots } = whole;
    this.steps = [STEP.support, ...mergeSteps(problem, groups)];
    const n = problem.domains.length;
    const { first, second } = problem.edges;
    const factors = new Map<number, number>();
    const added: number[] = [];
    for (let e = 0; e < first.length; e++) {
      const [r, s] = [groups.root[first[e]], groups.root[second[e]]];
      if (r === s) continue;
      const key = Math.min(r, s) * n + Math.max(r, s);
      const factor = factors.get(key);
      if (factor === undefined) factors.set(key, e);
      else added.push(STEP.add, factor, e);
    }
    for (const x of added) this.steps.push(x);
    this.steps.push(STEP.support);
    // The model has moved the costs of edges of groups with one value into the other end, where
    // they decide with its other costs.
    for (const [key, f] of factors)
      if (groups.size[Math.floor(key / n)] === 1 || groups.size[key % n] === 1)
        this.steps.push(STEP.separate, f);
    this.factor = model.first.map(
      (i, e) => factors.get(roots[i] * n + roots[model.second[e]]) ?? -1,
    );
    this.swap = Uint8Array.from(this.factor, (f, e) =>
      groups.root[first[f]] === roots[model.first[e]] ? 0 : 1,
    );
  }

  /** Prices and messages of a bound after its last sweep, over the marked values. */
  messages(dual: Dual, live: Uint8Array): void {
    const { model } = this.whole;
    const { first, second } = model;
    const settled = dual.settled();
    const bits = this.bits(dual.toFirst, settled);
    const scale = 2 ** bits;
    const listOf = (messages: Float64Array, at: number, i: number): number => {
      const list: number[] = [];
      for (let v = model.start[i], k = at; v < model.start[i + 1]; v++, k++)
        if (live[v] === 1)
          list.push(Number.isFinite(messages[k]) ? 0 + Math.round(messages[k] * scale) : 0);
      return list.some((x) => x !== 0) ? this.list(list) : -1;
    };
    const triples: number[] = [];
    for (let e = 0; e < first.length; e++) {
      const ends = [
        listOf(dual.toFirst, dual.firstAt[e], first[e]),
        listOf(settled, dual.secondAt[e], second[e]),
      ];
      if (ends[0] < 0 && ends[1] < 0) continue;
      if (this.swap[e] === 1) ends.reverse();
      triples.push(this.factor[e], ...ends);
    }
    this.steps.push(STEP.messages, bits, this.priced(dual), this.list(triples));
  }

  /**
   * The bound of a part whose messages the checker finds by so many sweeps; the dual has made them.
   */
  swept(dual: Dual, sweeps: number): void {
    this.steps.push(STEP.sweep, this.bits(dual.toFirst, dual.settled()), this.priced(dual), sweeps);
  }

  /**
   * Two parts of the marked values: those listed of a variable, and its others. `write` writes the
   * proof of each.
   */
  branch(
    variable: number,
    low: readonly number[],
    live: Uint8Array,
    write: (side: 0 | 1) => void,
  ): void {
    const { model, roots } = this.whole;
    const listed = new Set(low);
    const left: number[] = [];
    for (let v = model.start[variable]; v < model.start[variable + 1]; v++)
      if (live[v] === 1) left.push(v);
    this.steps.push(STEP.branch, roots[variable], 2);
    for (const side of [0, 1] as const) {
      const kept = Array.from(left.keys()).filter((a) => listed.has(left[a]) === (side === 0));
      this.steps.push(STEP.part, this.list(kept), STEP.support);
      write(side);
      this.steps.push(STEP.end);
    }
  }

  certificate(): Certificate {
    const { sources } = this.whole.model;
    const priced = Array.from(sources.keys()).filter((t) =>
      this.prices.some(({ lambda }) => numerator(lambda[t]) > 0),
    );
    for (const { list, lambda } of this.prices)
      for (const t of priced) list.push(numerator(lambda[t]));
    const rows = priced.map((t) => sourceOf(sources[t]));
    return {
      version: 2,
      problem: hashProblem(this.problem),
      rows,
      steps: this.steps,
      lists: this.lists,
    };
  }

  private list(list: number[]): number {
    return this.lists.push(list) - 1;
  }

  private priced({ lambda }: Dual): number {
    const list: number[] = [];
    this.prices.push({ list, lambda: lambda.slice() });
    return this.list(list);
  }

  /** The finest scale at which sums of messages and cells are exact. */
  private bits(toFirst: Float64Array, toSecond: Float64Array): number {
    let largest = 1;
    for (const list of [toFirst, toSecond, this.whole.model.cells])
      for (const x of list)
        if (Math.abs(x) < Infinity && Math.abs(x) > largest) largest = Math.abs(x);
    return Math.max(0, Math.min(20, 49 - Math.ceil(Math.log2(largest))));
  }
}

/** A price in units of 2^-40, rounded down. */
function numerator(price: number): number {
  return Math.floor(price * PRICE_SCALE);
}

/** Steps that merge the variables of every group in the order in which the groups grew. */
function mergeSteps(problem: Problem, { joins }: Groups): number[] {
  const { first, second } = problem.edges;
  const root = Int32Array.from(problem.domains, (_, i) => i);
  const find = (i: number): number => {
    while (root[i] !== i) i = root[i] = root[root[i]];
    return i;
  };
  const steps: number[] = [];
  for (const { edge, isBackward, afterDeletions } of joins) {
    const [i, j] = isBackward
      ? [find(second[edge]), find(first[edge])]
      : [find(first[edge]), find(second[edge])];
    if (afterDeletions) steps.push(STEP.support);
    steps.push(STEP.merge, j, i, edge);
    root[j] = i;
  }
  return steps;
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
    places[i].forEach(
      (a, k) => (dual.toFirst[dual.firstAt[g] + a] = report.toFirst[from.firstAt[e] + k]),
    );
    places[j].forEach(
      (b, k) => (dual.toSecond[dual.secondAt[g] + b] = report.toSecond[from.secondAt[e] + k]),
    );
  }
}
