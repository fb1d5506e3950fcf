/**
 * Exact minimisation by bucket elimination with hash-consed tables.
 *
 * Eliminating a variable is keyed by the ids of its incident tables and the local numbering of
 * their arguments, so the second of two isomorphic layers costs one lookup. Results are normalised
 * (their minimum joins the constant) and compressed before they are interned, so that a chain of
 * equal layers becomes periodic after a short transient.
 *
 * The order is greedy: the variable whose result has the fewest cells goes first, ties by the work,
 * then by the variable's number. Equal layers thus advance in lock step, and the chain of layer
 * boundaries that remains is swept from its start.
 */
import { compress } from '../network/compress.ts';
import type { Factor, Network } from '../network/network.ts';
import { STEP } from '../network/proof-log.ts';
import { KeyTable } from '../store/keys.ts';
import { PairMap } from '../store/pair-map.ts';
import type { Pool, Table } from '../store/pool.ts';
import { sortShort } from '../store/short-sort.ts';
import { EliminationHeap } from './heap.ts';
import { type KernelInput, minimise } from './min-sum.ts';

export interface EliminationLimits {
  /** Largest table that may be made, in cells. */
  readonly cells: number;
  /** Most additions of one elimination. */
  readonly work: number;
  /** Most additions in all (cached eliminations are free). */
  readonly totalWork: number;
  /** Only eliminations whose result has at most this many variables. */
  readonly arity: number;
  /**
   * Entries above this cost are forbidden; finite only when every factor and unary is non-negative.
   */
  readonly slack: number;
  /**
   * Only variables between at most two others that nothing else joins, so that no cycle is closed:
   * messages pass back through such eliminations without loss.
   */
  readonly series?: boolean;
  /** 1: leave this variable alone (it takes part in a row whose price is not fixed yet). */
  readonly keep?: Uint8Array;
  readonly stop?: () => boolean;
}

type EliminationStatus = 'done' | 'too-large' | 'infeasible' | 'stopped';

interface EliminationCounts {
  computed: number;
  found: number;
  largestTable: number;
  cells: number;
}

/** The result of eliminating one variable; neighbours in local numbering. */
interface Outcome {
  readonly constant: number;
  /** No table when at most one variable remains: then `table` is one-dimensional or absent. */
  readonly table: Table | undefined;
  readonly maps: readonly number[];
}

interface Scoped {
  /** Cells of the result and additions needed. */
  readonly cells: number;
  readonly work: number;
  readonly joints: readonly number[];
  readonly own: number;
  /** Number of the costs and tables that it was made of. */
  readonly content: number;
}

interface Prepared {
  readonly factors: readonly Factor[];
  readonly positions: readonly number[];
  readonly neighbours: readonly number[];
  readonly scoped: Scoped;
}

/** Memos of one pool: reuse one `Eliminator` for all networks of a solve. */
export class Eliminator {
  readonly counts: EliminationCounts = { computed: 0, found: 0, largestTable: 0, cells: 0 };
  private readonly pool: Pool;
  /** Costs and tables of variables, numbered by content. */
  private readonly contents = new KeyTable();
  private readonly scopes: Scoped[] = [];
  /** By the slack, then by content. */
  private readonly outcomes = new Map<number, Outcome[]>();
  private readonly positions = new PairMap();

  constructor(pool: Pool) {
    this.pool = pool;
  }

  /**
   * Eliminates as many variables of the network as the limits allow, in place; the trail of the
   * network remembers them.
   *
   * `done`: all variables are gone and `net.constant` is the optimum; `too-large`: the limits
   * stopped it, the network is still exact; `infeasible`: no finite choice (at or below the slack)
   * exists; `stopped`: the caller's clock ended it.
   */
  run(net: Network, limits: EliminationLimits): EliminationStatus {
    const heap = new EliminationHeap(net.count);
    const prepared: (Prepared | undefined)[] = new Array<Prepared | undefined>(net.count).fill(
      undefined,
    );
    let spent = 0;
    const outcomes = this.outcomes.get(limits.slack) ?? [];
    this.outcomes.set(limits.slack, outcomes);
    for (let v = 0; v < net.count; v++) {
      if (net.gone[v] === 1 || limits.keep?.[v] === 1) continue;
      const p = this.candidate(net, v, limits);
      prepared[v] = p;
      if (p !== undefined) heap.push(v, p.scoped.cells, p.scoped.work);
    }
    for (;;) {
      const v = heap.pop();
      if (v < 0) break;
      if (limits.stop?.() === true) return 'stopped';
      const p = prepared[v] ?? this.prepare(net, v);
      // Another elimination may have joined its neighbours since it was queued.
      if (limits.series === true && !admissible(net, p, limits)) continue;
      const { content } = p.scoped;
      let outcome: Outcome | undefined = outcomes[content];
      if (outcome === undefined) {
        if (spent + p.scoped.work > limits.totalWork) return 'too-large';
        spent += p.scoped.work;
        outcome = this.compute(net, v, p, limits.slack);
        outcomes[content] = outcome;
        this.counts.computed++;
      } else {
        this.counts.found++;
      }
      if (!this.remove(net, v, p, outcome)) return 'infeasible';
      for (const u of p.neighbours) {
        if (limits.keep?.[u] === 1) continue;
        const q = this.candidate(net, u, limits);
        prepared[u] = q;
        if (q === undefined) heap.remove(u);
        else heap.push(u, q.scoped.cells, q.scoped.work);
      }
    }
    return net.gone.includes(0) ? 'too-large' : 'done';
  }

  /** Takes a variable out of the network; false when nothing finite is left. */
  private remove(net: Network, v: number, p: Prepared, outcome: Outcome): boolean {
    const unary = net.unary[v];
    net.trail.push({
      variable: v,
      unary,
      values: net.values[v],
      factors: p.factors,
      domains: p.neighbours.map((u) => ({ variable: u, values: net.values[u] })),
      known: { content: p.scoped.content, positions: this.positions },
    });
    const factors = net.series === undefined ? [] : net.factorsOf(v);
    for (const id of net.incident[v].slice()) net.removeFactor(id);
    net.gone[v] = 1;
    const made = net.factors.length;
    if (!this.place(net, v, p, outcome)) return false;
    net.series?.push({
      variable: v,
      unary,
      factors,
      made: net.factors.length > made ? made : -1,
      neighbours: p.neighbours,
    });
    return true;
  }

  /** Adds the outcome to the network; false when nothing finite is left. */
  private place(net: Network, v: number, p: Prepared, outcome: Outcome): boolean {
    const { table } = outcome;
    net.log.push(STEP.eliminate, v);
    if (outcome.constant === Infinity) {
      net.empty = v;
      return false;
    }
    net.constant += outcome.constant;
    if (table === undefined) return true;
    if (table.dims.length === 1) {
      const u = p.neighbours[0];
      net.unary[u] = this.pool.absorb(net.unary[u], table, outcome.maps[0]);
      return true;
    }
    net.addFactor({ vars: p.neighbours, maps: outcome.maps, table });
    return true;
  }

  /** The bucket of a variable; undefined where the limits forbid its elimination. */
  private candidate(net: Network, v: number, limits: EliminationLimits): Prepared | undefined {
    // A value that thousands of others read is a neighbour of each: its bucket is not read again
    // whenever one of them goes.
    if (hasMoreNeighbours(net, v, limits.arity)) return undefined;
    const p = this.prepare(net, v);
    return admissible(net, p, limits) ? p : undefined;
  }

  /** Canonical view of a variable's bucket: sorted factors, local numbering, content and score. */
  private prepare(net: Network, v: number): Prepared {
    const entries: Entry[] = [];
    for (const id of net.incident[v]) {
      const factor = net.factors[id];
      if (factor !== undefined) entries.push({ factor, position: factor.vars.indexOf(v) });
    }
    sortShort(entries, compareEntries);
    const neighbours: number[] = [];
    // The table says how many maps follow.
    const key = this.contents.begin().add(net.unary[v]);
    for (const { factor, position } of entries) {
      key.add(factor.table.id);
      for (let k = 0; k < factor.vars.length; k++) {
        if (k === position) {
          key.add(-1).add(factor.maps[k]);
          continue;
        }
        let local = neighbours.indexOf(factor.vars[k]);
        if (local < 0) {
          local = neighbours.length;
          neighbours.push(factor.vars[k]);
        }
        key.add(local).add(factor.maps[k]);
      }
    }
    const content = key.end();
    const known: Scoped | undefined = this.scopes[content];
    const scoped = known ?? this.scope(net, v, entries, neighbours, content);
    this.scopes[content] = scoped;
    return {
      factors: entries.map((e) => e.factor),
      positions: entries.map((e) => e.position),
      neighbours,
      scoped,
    };
  }

  private scope(
    net: Network,
    v: number,
    entries: readonly Entry[],
    neighbours: readonly number[],
    content: number,
  ): Scoped {
    const pool = this.pool;
    let own = -1;
    const joints: number[] = neighbours.map(() => -1);
    for (const { factor, position } of entries) {
      factor.maps.forEach((m, k) => {
        if (k === position) {
          own = own < 0 ? m : pool.join(own, m);
          return;
        }
        const local = neighbours.indexOf(factor.vars[k]);
        joints[local] = joints[local] < 0 ? m : pool.join(joints[local], m);
      });
    }
    let cells = 1;
    for (const j of joints) cells *= pool.classesOf(j);
    const width = own < 0 ? net.size[v] : pool.classesOf(own);
    return { cells, work: cells * width, joints, own, content };
  }

  private compute(net: Network, v: number, p: Prepared, slack: number): Outcome {
    const pool = this.pool;
    const { joints, own } = p.scoped;
    const costs = pool.vectorOf(net.unary[v]);
    if (own < 0) {
      const least = pool.leastOf(net.unary[v]);
      return { constant: least > slack ? Infinity : least, table: undefined, maps: [] };
    }
    const classes = pool.mapOf(own);
    const best = new Float64Array(pool.classesOf(own)).fill(Infinity);
    for (let a = 0; a < classes.length; a++) {
      const c = classes[a];
      if (c >= 0 && costs[a] < best[c] && costs[a] <= slack) best[c] = costs[a];
    }
    // Only classes that some finite value reaches are candidates.
    const candidates: number[] = [];
    for (let c = 0; c < best.length; c++) if (best[c] !== Infinity) candidates.push(c);
    const base = new Float64Array(candidates.length);
    for (let k = 0; k < base.length; k++) base[k] = best[candidates[k]];
    const dims = joints.map((j) => pool.classesOf(j));
    // Large axes innermost would be best for the loop, but the axis order is part of the canonical
    // form: keep it.
    const inputs = p.factors.map((f, k) => {
      const projection = pool.project(own, f.maps[p.positions[k]]);
      return kernelInput(pool, f, p.positions[k], p.neighbours, joints, candidates, projection);
    });
    const cells = minimise(dims, base, inputs, slack);
    this.counts.cells += cells.length;
    if (cells.length > this.counts.largestTable) this.counts.largestTable = cells.length;
    let least = Infinity;
    for (let c = 0; c < cells.length; c++) if (cells[c] < least) least = cells[c];
    if (least === Infinity) return { constant: Infinity, table: undefined, maps: [] };
    if (dims.length === 0) return { constant: least, table: undefined, maps: [] };
    if (least !== 0) for (let c = 0; c < cells.length; c++) cells[c] -= least;
    const { table, maps } = compress(pool, dims, cells, joints);
    return { constant: least, table, maps };
  }
}

/** A factor of a variable, and the variable's place in it. */
interface Entry {
  readonly factor: Factor;
  readonly position: number;
}

function compareEntries(a: Entry, b: Entry): number {
  return a.factor.table.id - b.factor.table.id || a.position - b.position || compareMaps(a, b);
}

function compareMaps(a: Entry, b: Entry): number {
  for (let k = 0; k < a.factor.maps.length; k++) {
    const d = a.factor.maps[k] - b.factor.maps[k];
    if (d !== 0) return d;
  }
  return 0;
}

function admissible(net: Network, p: Prepared, limits: EliminationLimits): boolean {
  const { neighbours, factors, scoped } = p;
  if (neighbours.length > limits.arity || scoped.cells > limits.cells || scoped.work > limits.work)
    return false;
  if (limits.series !== true) return true;
  return (
    factors.length === neighbours.length &&
    (neighbours.length < 2 || !joined(net, neighbours[0], neighbours[1]))
  );
}

/** Tells whether a variable shares factors with more than so many others. */
function hasMoreNeighbours(net: Network, v: number, most: number): boolean {
  if (net.incident[v].length <= most) return false;
  const seen = new Set<number>();
  for (const id of net.incident[v]) {
    for (const u of net.factors[id]?.vars ?? []) if (u !== v) seen.add(u);
    if (seen.size > most) return true;
  }
  return false;
}

function joined(net: Network, a: number, b: number): boolean {
  const [few, other] = net.incident[a].length <= net.incident[b].length ? [a, b] : [b, a];
  return net.incident[few].some((id) => net.factors[id]?.vars.includes(other) === true);
}

/** Transposes a factor so that the candidates of the eliminated variable run last. */
function kernelInput(
  pool: Pool,
  factor: Factor,
  position: number,
  neighbours: readonly number[],
  joints: readonly number[],
  candidates: readonly number[],
  projection: Int32Array,
): KernelInput {
  const { dims, cells } = factor.table;
  const rank = dims.length;
  const strides: number[] = new Array<number>(rank).fill(1);
  for (let i = rank - 2; i >= 0; i--) strides[i] = strides[i + 1] * dims[i + 1];
  const others: number[] = [];
  for (let k = 0; k < rank; k++) if (k !== position) others.push(k);
  others.sort((a, b) => neighbours.indexOf(factor.vars[a]) - neighbours.indexOf(factor.vars[b]));
  const width = candidates.length;
  const along = new Int32Array(width);
  for (let c = 0; c < width; c++) along[c] = projection[candidates[c]] * strides[position];
  let count = 1;
  for (const k of others) count *= dims[k];
  const out = new Float64Array(count * width);
  const at = new Int32Array(others.length);
  for (let row = 0; row < count; row++) {
    let base = 0;
    for (let k = 0; k < others.length; k++) base += at[k] * strides[others[k]];
    const to = row * width;
    for (let c = 0; c < width; c++) out[to + c] = cells[base + along[c]];
    let k = others.length - 1;
    while (k >= 0 && ++at[k] === dims[others[k]]) at[k--] = 0;
  }
  const axes = others.map((k) => neighbours.indexOf(factor.vars[k]));
  let step = width;
  const steps: number[] = new Array<number>(others.length).fill(0);
  for (let k = others.length - 1; k >= 0; k--) {
    steps[k] = step;
    step *= dims[others[k]];
  }
  const offsets = others.map((k, i) =>
    pool.project(joints[axes[i]], factor.maps[k]).map((c) => c * steps[i]),
  );
  return { axes, offsets, cells: out };
}
