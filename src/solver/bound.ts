/**
 * Dual ascent by sequential message passing (TRW-S, V. Kolmogorov, "Convergent tree-reweighted message passing for energy
 * minimization", PAMI 2006), in integers: every message moves cost between an edge and a variable, so whatever the
 * rounding, the sum of all minima is a lower bound on every choice.
 *
 * Departure: messages are interned by content and a variable's whole step is memoised by what it sees. In a model of equal
 * layers the messages become equal after a few layers, so a sweep over 126 layers computes little more than one over 8.
 */
import type { Network } from './network.ts';
import type { Table } from './pool.ts';

/** What one step of a variable yields. */
export interface Step {
  /** Messages to the neighbours in the direction of the sweep. */
  readonly sent: readonly number[];
  /** For the same edges: the shift on the variable's own side once it has given its share to the edge. */
  readonly given: readonly number[];
  /** Minimum that stays with the variable plus the minima taken out of the messages: its part of the bound. */
  readonly gain: number;
}

/** Memo of steps, shared by all networks of one pool: what a variable sees -> what it sends. */
export interface StepMemo {
  readonly signatures: Map<string, number>;
  readonly steps: Map<string, Step>;
}

/** An empty memo. */
export function stepMemo(): StepMemo {
  return { signatures: new Map(), steps: new Map() };
}

interface Side {
  readonly edge: number;
  /** 0 when the variable is the edge's first argument. */
  readonly side: 0 | 1;
  readonly other: number;
  /** The other variable comes later in a forward sweep. */
  readonly later: boolean;
}

/** The messages of a network: `to[2 * edge + side]` is a vector id over the classes of that side. */
export class Messages {
  readonly net: Network;
  readonly to: Int32Array;
  readonly #order: readonly number[];
  readonly #sides: readonly (readonly Side[])[];
  readonly #signature: Int32Array;
  readonly #memo: Map<string, Step>;
  /** Shift of every edge side after the last backward sweep: the cost that left the edge for the variable. */
  readonly shifts: Int32Array;

  /** Zero messages on a pairwise network. `memo` may be shared between networks of one pool. */
  constructor(net: Network, memo: StepMemo) {
    this.net = net;
    this.#memo = memo.steps;
    const { pool } = net;
    this.to = new Int32Array(2 * net.factors.length).fill(-1);
    const zeros: number[] = [];
    const zero = (n: number): number => (zeros[n] ??= pool.vector(new Float64Array(n)));
    net.factors.forEach((f, e) => {
      if (f === undefined) return;
      if (f.vars.length !== 2) throw new Error('internal: message passing needs a pairwise network');
      this.to[2 * e] = zero(f.table.dims[0]);
      this.to[2 * e + 1] = zero(f.table.dims[1]);
    });
    this.shifts = this.to.slice();
    const order: number[] = [];
    for (let i = 0; i < net.count; i++) if (net.gone[i] === 0) order.push(i);
    order.sort((a, b) => net.rank[a] - net.rank[b] || a - b);
    const place = new Int32Array(net.count);
    order.forEach((i, k) => (place[i] = k));
    this.#order = order;
    const { signatures } = memo;
    this.#signature = new Int32Array(net.count);
    const all: Side[][] = Array.from({ length: net.count }, () => []);
    for (const i of order) {
      const sides = net.incident[i].map((edge): Side => {
        const f = net.factors[edge];
        if (f === undefined) throw new Error('internal: missing factor');
        const side = f.vars[0] === i ? 0 : 1;
        const other = f.vars[1 - side];
        return { edge, side, other, later: place[other] > place[i] };
      });
      // Canonical order within earlier and later neighbours, so that isomorphic variables have equal signatures.
      const rank = (s: Side): readonly number[] => {
        const f = net.factors[s.edge];
        return f === undefined ? [] : [s.later ? 1 : 0, f.table.id, s.side, f.maps[s.side]];
      };
      sides.sort((a, b) => compareRanks(rank(a), rank(b)));
      all[i] = sides;
      const key = `${net.unary[i]};${sides.map((s) => rank(s).join(',')).join(';')}`;
      let id = signatures.get(key);
      if (id === undefined) {
        id = signatures.size;
        signatures.set(key, id);
      }
      this.#signature[i] = id;
    }
    this.#sides = all;
  }

  /**
   * One forward and one backward sweep; returns the lower bound it proves. Afterwards `shifts` hold the reparametrisation
   * behind the bound: all beliefs and reduced edges are non-negative but for their minima.
   */
  sweep(): number {
    for (const i of this.#order) this.#step(i, true);
    let bound = this.net.constant;
    for (let k = this.#order.length - 1; k >= 0; k--) bound += this.#step(this.#order[k], false);
    return bound;
  }

  /** Sends the messages of variable i to its later (forward) or earlier neighbours. */
  #step(i: number, forward: boolean): number {
    const sides = this.#sides[i];
    let key = forward ? `f${this.#signature[i]}` : `b${this.#signature[i]}`;
    for (const s of sides) key += `,${this.to[2 * s.edge + s.side]}`;
    let step = this.#memo.get(key);
    if (step === undefined) {
      step = this.#compute(i, forward);
      this.#memo.set(key, step);
    }
    let at = 0;
    for (const s of sides) {
      if (s.later !== forward) continue;
      const message = step.sent[at];
      this.to[2 * s.edge + 1 - s.side] = message;
      this.shifts[2 * s.edge + 1 - s.side] = message;
      this.shifts[2 * s.edge + s.side] = step.given[at++];
    }
    return step.gain;
  }

  #compute(i: number, forward: boolean): Step {
    const { net } = this;
    const { pool } = net;
    const sides = this.#sides[i];
    let earlier = 0;
    let later = 0;
    for (const s of sides) {
      if (s.later) later++;
      else earlier++;
    }
    const share = 1 / Math.max(earlier, later, 1);
    const total = this.belief(i);
    const rest = total.slice();
    const sent: number[] = [];
    const given: number[] = [];
    let gain = 0;
    for (const s of sides) {
      if (s.later !== forward) continue;
      const f = net.factors[s.edge];
      if (f === undefined) continue;
      const incoming = pool.vectorOf(this.to[2 * s.edge + s.side]);
      const map = pool.mapOf(f.maps[s.side]);
      const best = new Float64Array(incoming.length).fill(Infinity);
      for (let a = 0; a < map.length; a++) {
        const c = map[a];
        if (c >= 0 && total[a] < best[c]) best[c] = total[a];
      }
      const shift = new Float64Array(incoming.length);
      for (let c = 0; c < best.length; c++) {
        if (best[c] === Infinity) continue;
        const portion = Math.floor(best[c] * share);
        best[c] = portion - incoming[c];
        shift[c] = -best[c];
      }
      for (let a = 0; a < map.length; a++) if (map[a] >= 0) rest[a] += shift[map[a]] - incoming[map[a]];
      const { message, least } = through(f.table, s.side, best);
      gain += least;
      sent.push(pool.vector(message));
      given.push(pool.vector(shift));
    }
    let least = Infinity;
    for (const c of rest) if (c < least) least = c;
    return { sent, given, gain: gain + least };
  }

  /** Cost of each value of a variable with all messages it has received. */
  belief(i: number): Float64Array {
    const { pool } = this.net;
    const total = pool.vectorOf(this.net.unary[i]).slice();
    for (const s of this.#sides[i]) {
      const f = this.net.factors[s.edge];
      if (f === undefined) continue;
      const message = pool.vectorOf(this.to[2 * s.edge + s.side]);
      const map = pool.mapOf(f.maps[s.side]);
      for (let a = 0; a < total.length; a++) total[a] += map[a] < 0 ? Infinity : message[map[a]];
    }
    return total;
  }

  /** A choice of positions: each variable in order takes the best value given the earlier ones and later messages. */
  decode(): Int32Array {
    const { net } = this;
    const { pool } = net;
    const at = new Int32Array(net.count).fill(-1);
    for (const i of this.#order) {
      const total = pool.vectorOf(net.unary[i]).slice();
      for (const s of this.#sides[i]) {
        const f = net.factors[s.edge];
        if (f === undefined) continue;
        const map = pool.mapOf(f.maps[s.side]);
        if (s.later) {
          const message = pool.vectorOf(this.to[2 * s.edge + s.side]);
          for (let a = 0; a < total.length; a++) total[a] += message[map[a]];
        } else {
          const c = pool.mapOf(f.maps[1 - s.side])[at[s.other]];
          const width = f.table.dims[1];
          for (let a = 0; a < total.length; a++) {
            total[a] += s.side === 0 ? f.table.cells[map[a] * width + c] : f.table.cells[c * width + map[a]];
          }
        }
      }
      let best = 0;
      for (let a = 1; a < total.length; a++) if (total[a] < total[best]) best = a;
      at[i] = best;
    }
    return at;
  }
}

function compareRanks(a: readonly number[], b: readonly number[]): number {
  for (let k = 0; k < a.length; k++) if (a[k] !== b[k]) return a[k] - b[k];
  return 0;
}

/** min over one side of table + costs, as a vector over the other side, less its minimum. */
function through(
  table: Table,
  side: 0 | 1,
  costs: Float64Array,
): { readonly message: Float64Array; readonly least: number } {
  const [rows, columns] = table.dims;
  const { cells } = table;
  const out = new Float64Array(side === 0 ? columns : rows).fill(Infinity);
  if (side === 0) {
    for (let x = 0; x < rows; x++) {
      const c = costs[x];
      if (c === Infinity) continue;
      const base = x * columns;
      for (let y = 0; y < columns; y++) {
        const s = c + cells[base + y];
        if (s < out[y]) out[y] = s;
      }
    }
  } else {
    for (let x = 0; x < rows; x++) {
      const base = x * columns;
      let least = Infinity;
      for (let y = 0; y < columns; y++) {
        const s = costs[y] + cells[base + y];
        if (s < least) least = s;
      }
      out[x] = least;
    }
  }
  let least = Infinity;
  for (const c of out) if (c < least) least = c;
  if (least !== Infinity) for (let k = 0; k < out.length; k++) out[k] -= least;
  return { message: out, least };
}
