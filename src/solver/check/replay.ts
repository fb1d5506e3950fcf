/**
 * Replays a certificate: reads the problem into the checker's model, carries out every step, and
 * returns the cost that no choice undercuts. Shares no code with the engines.
 */
import type { Certificate, CertificateRow, Problem } from '../types.ts';
import { STEP } from './certificate-format.ts';
import { eliminate } from './eliminate.ts';
import { boundByMessages, checkBits, messagesOf, pricesOf } from './messages.ts';
import { Memos, Model } from './model.ts';
import { leastUnderRows } from './pareto.ts';
import { fuse, price, prune, shift } from './steps.ts';
import { type Grid, Refused, Store } from './store.ts';
import { support } from './support.ts';
import { sweep } from './sweeps.ts';

/** What a certificate says, whatever problem it is meant for. */
type Proof = Pick<Certificate, 'rows' | 'steps' | 'lists'>;

/**
 * The lower bound that the certificate proves for the problem, or undefined when it proves that
 * there is no choice at all. Throws `Refused` when a step does not hold.
 */
export function replay(problem: Problem, certificate: Proof): bigint | undefined {
  const model = modelOf(problem, certificate.rows);
  const reader = new Reader(certificate);
  const bound = run(model, reader);
  if (!reader.done) throw new Refused('steps follow after the end of the proof');
  return bound;
}

class Reader {
  private readonly steps: readonly number[];
  private readonly lists: readonly (readonly number[])[];
  private readonly integerParts = new Map<number, Int32Array>();
  private readonly vectors = new Map<number, number>();
  private at = 0;

  constructor(certificate: Proof) {
    this.steps = certificate.steps;
    this.lists = certificate.lists;
  }

  get done(): boolean {
    return this.at >= this.steps.length;
  }

  peek(): number {
    return this.steps[this.at];
  }

  integer(): number {
    const x = this.steps[this.at++];
    if (!Number.isInteger(x)) throw new Refused(`step ${this.at - 1} holds ${x}`);
    return x;
  }

  list(): readonly number[] {
    const list = this.lists[this.integer()];
    if (list === undefined) throw new Refused(`step ${this.at - 1} names a list that is not there`);
    return list;
  }

  /** A list of costs as a vector of the store. */
  vector(store: Store): number {
    return this.vectorOf(this.integer(), store);
  }

  /** List `id` as a vector of the store. */
  vectorOf(id: number, store: Store): number {
    const list = this.lists[id];
    if (list === undefined) throw new Refused(`there is no list ${id}`);
    let made = this.vectors.get(id);
    if (made === undefined) {
      made = store.vector(Float64Array.from(list));
      this.vectors.set(id, made);
    }
    return made;
  }

  /** A list of small integers, made once. */
  integers(): Int32Array {
    const id = this.steps[this.at];
    const list = this.list();
    let made = this.integerParts.get(id);
    if (made === undefined) {
      if (!list.every((x) => (x | 0) === x)) throw new Refused(`list ${id} is no list of integers`);
      made = Int32Array.from(list);
      this.integerParts.set(id, made);
    }
    return made;
  }
}

/**
 * Runs to the end of the part (or of the steps); the least cost of what is left, undefined for
 * "nothing is left".
 */
function run(model: Model, reader: Reader): bigint | undefined {
  while (!reader.done && reader.peek() !== STEP.end) {
    const code = reader.integer();
    if (model.empty) {
      skip(reader, code);
      continue;
    }
    if (model.dual !== undefined && !KEEPS_MESSAGES.has(code))
      throw new Refused(`step ${code} follows messages`);
    switch (code) {
      case STEP.merge:
        model.merge(reader.integer(), reader.integer(), reader.integer());
        break;
      case STEP.drop:
        model.drop(reader.integer(), reader.integers());
        break;
      case STEP.separate:
        model.separate(reader.integer());
        break;
      case STEP.add:
        model.add(reader.integer(), reader.integer());
        break;
      case STEP.eliminate:
        eliminate(model, reader.integer());
        break;
      case STEP.shift: {
        const edge = [reader.integer(), reader.integer(), reader.integer()] as const;
        shift(model, ...edge, reader.vector(model.store), reader.vector(model.store));
        break;
      }
      case STEP.prune: {
        const [cut] = reader.list();
        if (cut !== undefined && !Number.isSafeInteger(cut)) throw new Refused(`a limit of ${cut}`);
        prune(model, cut === undefined ? undefined : BigInt(cut));
        break;
      }
      case STEP.whole:
        model.whole = true;
        break;
      case STEP.fuse:
        fuse(model, reader.integer(), reader.integer(), reader.integer());
        break;
      case STEP.price:
        price(model, reader.list());
        break;
      case STEP.support:
        support(model);
        break;
      case STEP.messages: {
        const { bits, prices } = scaled(model, reader);
        const messages = messagesOf(model, reader.list(), (list) =>
          reader.vectorOf(list, model.store),
        );
        model.dual = { bits, prices, messages };
        break;
      }
      case STEP.sweep: {
        const { bits, prices } = scaled(model, reader);
        model.dual = sweep(model, bits, prices, reader.integer());
        break;
      }
      case STEP.pareto:
        return capped(model, leastUnderRows(model));
      case STEP.branch:
        return capped(model, branch(model, reader));
      default:
        throw new Refused(`unknown step ${code}`);
    }
  }
  return capped(
    model,
    model.dual === undefined ? model.bound() : boundByMessages(model, model.dual),
  );
}

/** Steps that leave the factors as they are, so that messages stay what they were. */
const KEEPS_MESSAGES: ReadonlySet<number> = new Set([
  STEP.messages,
  STEP.sweep,
  STEP.support,
  STEP.branch,
]);

/** What `messages` and `sweep` begin with. */
function scaled(
  model: Model,
  reader: Reader,
): { readonly bits: number; readonly prices: readonly bigint[] } {
  const bits = reader.integer();
  checkBits(bits);
  return { bits, prices: pricesOf(model, reader.list()) };
}

/** What was deleted as too expensive still costs more than the limit. */
function capped(model: Model, bound: bigint | undefined): bigint | undefined {
  if (model.cut === undefined) return bound;
  const cap = model.cut + 1n;
  return bound === undefined || cap < bound ? cap : bound;
}

function branch(model: Model, reader: Reader): bigint | undefined {
  const v = reader.integer();
  const count = reader.integer();
  if (!(v >= 0 && v < model.size.length) || model.gone[v])
    throw new Refused(`there is no variable ${v} to branch on`);
  const covered = new Uint8Array(model.size[v]);
  let least: bigint | undefined;
  for (let k = 0; k < count; k++) {
    if (reader.integer() !== STEP.part) throw new Refused('a branch lacks a part');
    const keep = reader.integers();
    let before = -1;
    for (const a of keep) {
      if (!(a > before && a < covered.length))
        throw new Refused(`a part of variable ${v} is out of order`);
      covered[a] = 1;
      before = a;
    }
    const child = model.clone();
    child.restrict(v, child.store.map(keep));
    const bound = run(child, reader);
    if (reader.done || reader.integer() !== STEP.end) throw new Refused('a part does not end');
    if (bound !== undefined && (least === undefined || bound < least)) least = bound;
  }
  if (covered.includes(0)) throw new Refused(`the parts do not cover variable ${v}`);
  return least;
}

/** Nothing is left: later steps of this part have nothing to say. */
function skip(reader: Reader, code: number): void {
  const { length } = ARGUMENT_COUNTS;
  if (!(code > 0 && code < length)) throw new Refused(`unknown step ${code}`);
  for (let k = 0; k < ARGUMENT_COUNTS[code]; k++) reader.integer();
  if (code !== STEP.branch) return;
  throw new Refused('a branch where nothing is left');
}

const ARGUMENT_COUNTS = [0, 3, 2, 1, 2, 1, 5, 1, 3, 1, 0, 2, 1, 0, 0, 3, 3, 0];

/**
 * The costs with 0 for -0, which content tells apart. They are not copied where there is none:
 * nothing here changes a cost.
 */
function clean(costs: Float64Array): Float64Array {
  for (let k = 0; k < costs.length; k++)
    if (costs[k] === 0 && Object.is(costs[k], -0)) return costs.map((c) => c + 0);
  return costs;
}

/** The problem in the checker's words. */
function modelOf(problem: Problem, rows: readonly CertificateRow[]): Model {
  const store = new Store();
  const model = new Model(store, new Memos());
  const { domains, unary, edges } = problem;
  const vectors = problem.vectors.map((v) => store.vector(clean(v)));
  const maps = problem.maps.map((m) => store.map(m));
  const grids = problem.tables.map((t): Grid => store.grid([t.rows, t.columns], clean(t.costs)));
  for (let i = 0; i < domains.length; i++) {
    model.addVariable(vectors[unary[i]], domains[i]);
    if (domains[i] === 0) model.empty = true;
  }
  for (let e = 0; e < edges.first.length; e++) {
    const vars = [edges.first[e], edges.second[e]];
    const ends = [edges.firstMap[e], edges.secondMap[e]].map((m, k) =>
      m < 0 ? store.identity(domains[vars[k]]) : maps[m],
    );
    const grid = grids[edges.table[e]];
    if (vars[0] !== vars[1]) {
      model.addPart({ vars, maps: ends, grid, tidy: false });
    } else {
      model.addDiagonal(vars[0], grid, ends[0], ends[1]);
      model.addPart(undefined);
    }
  }
  model.constant = BigInt(problem.constant ?? 0);
  const usage = new Map<Float64Array, number>();
  for (const source of rows) {
    const { bound, entries } = rowOf(problem, source);
    const amounts = Array.from(domains, () => -1);
    for (const [v, list] of entries) {
      const id = usage.get(list) ?? amountsOf(store, list);
      usage.set(list, id);
      amounts[v] = amounts[v] < 0 ? id : store.sum(amounts[v], id);
    }
    model.rows.push({ bound: BigInt(Math.floor(bound)), amounts });
  }
  return model;
}

function amountsOf(store: Store, list: Float64Array): number {
  if (!list.every((u) => u >= 0)) throw new Refused('a row holds a negative amount');
  return store.vector(list.slice());
}

function rowOf(
  problem: Problem,
  source: CertificateRow,
): { readonly bound: number; readonly entries: readonly (readonly [number, Float64Array])[] } {
  if ('row' in source) {
    const row = problem.rows?.[source.row];
    if (row === undefined || !Number.isFinite(row.bound))
      throw new Refused(`row ${source.row} is not there`);
    return {
      bound: row.bound,
      entries: Array.from(row.variables, (v, k) => [v, row.amounts[k]] as const),
    };
  }
  const { usage } = problem;
  if (usage === undefined || !Number.isFinite(usage.limit))
    throw new Refused('there is no usage limit');
  const live = usage.pieces.filter((p) => p.lo <= source.time && source.time < p.hi);
  return { bound: usage.limit, entries: live.map((p) => [p.variable, p.amounts] as const) };
}
