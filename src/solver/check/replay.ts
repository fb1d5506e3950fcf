/**
 * Replays a certificate: reads the problem into the checker's model, carries out every step, and
 * returns the cost that no choice undercuts. Shares no code with the engines.
 */
import type { Certificate, CertificateRow, Problem } from '../types.ts';
import { ARGUMENTS, STEP } from './certificate-format.ts';
import { eliminate } from './eliminate.ts';
import { boundByMessages, checkBits, messagesOf, pricesOf } from './messages.ts';
import { Memos, Model } from './model.ts';
import { leastUnderRows } from './pareto.ts';
import { Refused } from './refused.ts';
import { fuse, price, prune, shift } from './steps.ts';
import { type Grid, LARGEST, Store } from './store.ts';
import { support } from './support.ts';
import { sweep } from './sweeps.ts';
import { Work } from './work.ts';
import { withoutNegativeZeros } from './zeros.ts';

/** The claims of a certificate, whatever problem it is meant for. */
type Proof = Pick<Certificate, 'rows' | 'steps' | 'lists'>;

/**
 * The lower bound that the certificate proves for the problem, or undefined when it proves that
 * there is no choice at all. Branches are kept on a stack of their own, however deep they nest.
 *
 * @param certificate in form, see `formFault`
 * @throws Refused when a step does not hold
 */
export function replay(problem: Problem, certificate: Proof): bigint | undefined {
  const reader = new Reader(certificate, new Work(problem));
  const open: Branch[] = [];
  const depth = depthLimit(problem);
  let model = modelOf(problem, certificate.rows, reader.work);
  for (;;) {
    const said = run(model, reader);
    if (said instanceof Branch) {
      if (open.length >= depth) throw new Refused(`branches are nested ${depth + 1} deep`);
      open.push(said);
    } else {
      const bound = closed(open, said, reader);
      if (open.length === 0) {
        if (!reader.done) throw new Refused('steps follow after the end of the proof');
        return bound;
      }
    }
    model = open[open.length - 1].nextPart(reader);
  }
}

/** A level holds a model, so memory grows with both. */
const MOST_HELD = 1e7;

function depthLimit({ domains, edges }: Problem): number {
  return 64 + Math.floor(MOST_HELD / (100 + domains.length + edges.first.length));
}

/** Ends a part, and every branch that it was the last part of; the bound of the outermost. */
function closed(open: Branch[], ofPart: bigint | undefined, reader: Reader): bigint | undefined {
  let bound = ofPart;
  while (open.length > 0) {
    const branch = open[open.length - 1];
    if (reader.done || reader.integer() !== STEP.end) throw new Refused('a part does not end');
    branch.add(bound);
    if (branch.partsLeft > 0) break;
    bound = branch.bound();
    open.pop();
  }
  return bound;
}

/** A branch whose parts are being replayed. */
class Branch {
  partsLeft: number;
  private readonly covered: Uint8Array;
  private readonly cut: bigint | undefined;
  private least: bigint | undefined;

  constructor(
    private readonly model: Model,
    private readonly variable: number,
    parts: number,
  ) {
    model.needs(variable);
    // Of no parts none covers a value.
    if (parts < 1) throw new Refused(`a branch on variable ${variable} has ${parts} parts`);
    this.partsLeft = parts;
    this.covered = new Uint8Array(model.size[variable]);
    this.cut = model.cut;
  }

  /** The model of the next part; the last one takes that of the branch. */
  nextPart(reader: Reader): Model {
    if (reader.done || reader.integer() !== STEP.part) throw new Refused('a branch lacks a part');
    const keep = reader.integers();
    const { covered, model, variable } = this;
    let before = -1;
    for (const a of keep) {
      if (!(a > before && a < covered.length))
        throw new Refused(`a part of variable ${variable} is out of order`);
      covered[a] = 1;
      before = a;
    }
    const part = --this.partsLeft === 0 ? model : model.clone();
    part.restrict(variable, part.store.map(keep));
    return part;
  }

  add(bound: bigint | undefined): void {
    if (bound !== undefined && (this.least === undefined || bound < this.least)) this.least = bound;
  }

  /** The least of all parts. */
  bound(): bigint | undefined {
    if (this.covered.includes(0))
      throw new Refused(`the parts do not cover variable ${this.variable}`);
    return capped(this.cut, this.least);
  }
}

class Reader {
  private readonly steps: readonly number[];
  private readonly lists: readonly (readonly number[])[];
  private readonly integerParts = new Map<number, Int32Array>();
  private readonly vectors = new Map<number, number>();
  private at = 0;

  constructor(
    certificate: Proof,
    readonly work: Work,
  ) {
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
    if (this.done) throw new Refused('the proof ends within a step');
    this.work.spend(1);
    return this.steps[this.at++];
  }

  list(): readonly number[] {
    return this.listOf(this.integer());
  }

  /** A list of costs as a vector of the store. */
  vector(store: Store): number {
    return this.vectorOf(this.integer(), store);
  }

  /** List `id` as a vector of the store. */
  vectorOf(id: number, store: Store): number {
    let made = this.vectors.get(id);
    if (made === undefined) {
      const list = this.listOf(id);
      // The engine asks for bounds by messages that are not in form yet.
      if (!list.every(Number.isInteger)) throw new Refused(`list ${id} holds more than integers`);
      made = store.vector(Float64Array.from(list));
      this.vectors.set(id, made);
    }
    return made;
  }

  /** A list of small integers, made once. */
  integers(): Int32Array {
    const id = this.integer();
    let made = this.integerParts.get(id);
    if (made === undefined) {
      const list = this.listOf(id);
      if (!list.every((x) => (x | 0) === x)) throw new Refused(`list ${id} holds large integers`);
      made = Int32Array.from(list);
      this.integerParts.set(id, made);
    }
    return made;
  }

  private listOf(id: number): readonly number[] {
    const list = this.lists[id];
    if (list === undefined)
      throw new Refused(`step ${this.at - 1} names list ${id}, of ${this.lists.length}`);
    this.work.spend(list.length);
    return list;
  }
}

/**
 * Runs to the end of the part (or of the steps) or to a branch. Otherwise the least cost of what is
 * left, undefined for "nothing is left".
 */
function run(model: Model, reader: Reader): bigint | undefined | Branch {
  while (!reader.done && reader.peek() !== STEP.end) {
    const code = reader.integer();
    if (model.empty) {
      skip(reader, code);
      continue;
    }
    if (model.dual !== undefined && !KEEPS_MESSAGES.has(code))
      throw new Refused(`step ${code} follows messages`);
    if (code === STEP.pareto) return capped(model.cut, leastUnderRows(model));
    if (code === STEP.branch) return new Branch(model, reader.integer(), reader.integer());
    apply(model, reader, code);
  }
  const bound = model.dual === undefined ? model.bound() : boundByMessages(model, model.dual);
  return capped(model.cut, bound);
}

/** Takes a step that changes the model and ends nothing. */
function apply(model: Model, reader: Reader, code: number): void {
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
    case STEP.prune:
      prune(model, limitOf(reader.list()));
      break;
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
    default:
      throw new Refused(`unknown step ${code}`);
  }
}

/** The limit that a prune states; undefined where it states none. */
function limitOf([cut, ...more]: readonly number[]): bigint | undefined {
  if (cut !== undefined && !Number.isSafeInteger(cut)) throw new Refused(`a limit of ${cut}`);
  if (more.length > 0) throw new Refused('a prune has several limits');
  return cut === undefined ? undefined : BigInt(cut);
}

/** Steps that leave the factors as they are, so that messages stay what they were. */
const KEEPS_MESSAGES: ReadonlySet<number> = new Set([
  STEP.messages,
  STEP.sweep,
  STEP.support,
  STEP.branch,
]);

/** The beginning of `messages` and `sweep`. */
function scaled(
  model: Model,
  reader: Reader,
): { readonly bits: number; readonly prices: readonly bigint[] } {
  const bits = reader.integer();
  checkBits(bits);
  return { bits, prices: pricesOf(model, reader.list()) };
}

/** Values that were deleted as too expensive still cost more than the limit. */
function capped(cut: bigint | undefined, bound: bigint | undefined): bigint | undefined {
  if (cut === undefined) return bound;
  const cap = cut + 1n;
  return bound === undefined || cap < bound ? cap : bound;
}

/** Nothing is left: later steps of this part have nothing to say. */
function skip(reader: Reader, code: number): void {
  const args = ARGUMENTS[code];
  if (args === undefined || code === STEP.part) throw new Refused(`unknown step ${code}`);
  if (code === STEP.branch) throw new Refused('a branch where nothing is left');
  for (let k = 0; k < args.length; k++) reader.integer();
}

/** The problem in the checker's words. */
function modelOf(problem: Problem, rows: readonly CertificateRow[], work: Work): Model {
  const store = new Store(work);
  const model = new Model(store, new Memos());
  const { domains, unary, edges } = problem;
  const vectors = problem.vectors.map((v) => store.vector(withoutNegativeZeros(v)));
  const maps = problem.maps.map((m) => store.map(m));
  const grids = problem.tables.map((t): Grid =>
    store.grid([t.rows, t.columns], withoutNegativeZeros(t.costs)),
  );
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
    const most = amounts.reduce((sum, id) => (id < 0 ? sum : sum + store.mosts[id]), 0);
    if (!(most <= LARGEST)) throw new Refused('the amounts of a row add up to more than 2^52');
    model.rows.push({ bound: BigInt(Math.floor(bound)), amounts });
  }
  return model;
}

function amountsOf(store: Store, list: Float64Array): number {
  if (!list.every((u) => u >= 0 && u < Infinity))
    throw new Refused('a row holds an amount that is negative or infinite');
  return store.vector(withoutNegativeZeros(list));
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
