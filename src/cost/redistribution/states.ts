/**
 * Builds the graph of placement states for one mesh and tensor rank: each edge is one collective or
 * one local step, with the slot that prices it.
 */

import { pendingTogether } from '../../mesh/sharding/sharding.ts';
import {
  FIRST_OTHER_CODE,
  FIRST_SHARD_CODE,
  permutations,
  REPLICATE_CODE,
  shardCode,
  type ShardingSpace,
} from '../../mesh/sharding/space.ts';
import { isLookup, madeFromReplicate, reduceTogether, subsets } from './moves.ts';
import { PlacementStates } from './placement-states.ts';
import type { PriceSlot, StepKind } from './slots.ts';

/** A state that steps leave. */
interface Departure {
  readonly state: number;
  /** Code and position of each axis. */
  readonly codes: readonly number[];
  readonly positions: readonly number[];
  /** Per dim: the axes that cut it, in order. */
  readonly orders: ReadonlyMap<number, readonly number[]>;
  readonly pendingAxes: readonly number[];
  /** The exact key of the state; 0 where keys are not exact. */
  readonly key: number;
}

/**
 * The graph of placement states that redistribution plans walk on: an edge is one collective or one
 * free local step. The graph knows no sizes of tensors: what an edge costs is its slot's business,
 * priced once for each tensor type.
 */
export class StateGraph extends PlacementStates {
  readonly slots: readonly PriceSlot[];
  /** CSR: edges of state s are edgeStart[s] .. edgeStart[s+1]-1. */
  readonly edgeStart: Int32Array;
  readonly edgeTarget: Int32Array;
  readonly edgeSlot: Int32Array;
  /**
   * Mesh dims of each edge in the order of the step (suffix or target order), as an index into
   * `dimLists`.
   */
  readonly edgeDims: Int32Array;
  readonly dimLists: (readonly number[])[] = [];

  private readonly dimListIndex = new Map<number | string, number>();
  /** Target, slot and mesh dims of each edge, by state. */
  private readonly edges: number[][] = [];

  /**
   * @param active mesh dims that matter, ascending
   * @param seeds ids of shardings that must have a state; their kinds decide which kinds the graph
   *   has
   * @param merge also steps over several mesh dims at once, and permutations
   */
  constructor(
    space: ShardingSpace,
    active: readonly number[],
    rank: number,
    seeds: Iterable<number>,
    merge: boolean,
  ) {
    super(space, active, rank, seeds);
    this.slots = this.table.slots;
    // The list grows while it is walked: every state that a step reaches is a state.
    for (let s = 0; s < this.stateCount; s++) {
      this.edges.push([]);
      this.expand(s, merge);
    }
    if (merge) this.permute();

    const count = this.edges.length;
    this.edgeStart = new Int32Array(count + 1);
    let total = 0;
    for (let s = 0; s < count; s++) {
      total += this.edges[s].length / 3;
      this.edgeStart[s + 1] = total;
    }
    this.edgeTarget = new Int32Array(total);
    this.edgeSlot = new Int32Array(total);
    this.edgeDims = new Int32Array(total);
    let e = 0;
    for (const list of this.edges) {
      for (let i = 0; i < list.length; i += 3, e++) {
        this.edgeTarget[e] = list[i];
        this.edgeSlot[e] = list[i + 1];
        this.edgeDims[e] = list[i + 2];
      }
    }
    // Only the flat arrays are needed from here on.
    this.edges.length = 0;
  }

  /**
   * Slot that each slot becomes when two axes are exchanged; undefined when some slot has no
   * mirror.
   */
  swappedSlots(a: number, b: number): Int32Array | undefined {
    return this.table.swapped(a, b);
  }

  private listOf(axes: readonly number[]): number {
    let k: number | string = 0;
    if (axes.length <= 10) for (const a of axes) k = k * 32 + a + 1;
    else k = axes.join(',');
    let i = this.dimListIndex.get(k);
    if (i === undefined) {
      i = this.dimLists.length;
      this.dimLists.push(axes.map((a) => this.active[a]));
      this.dimListIndex.set(k, i);
    }
    return i;
  }

  private link(
    from: number,
    to: number,
    kind: StepKind,
    axes: readonly number[],
    cuts: number,
    times: number,
    gathered: number,
    scattered: number,
    even: boolean,
  ): void {
    let mask = 0;
    for (const a of axes) mask |= 1 << a;
    const slot = this.table.slotOf(kind, mask, cuts, times, gathered, scattered, even);
    this.edges[from].push(to, slot, this.listOf(axes));
  }

  /** Every step out of a state except permutations. */
  private expand(s: number, merge: boolean): void {
    const from = this.departure(s);
    this.linkShards(from, merge);
    this.linkPending(from, merge);
    this.linkReplicated(from);
  }

  /** A state as the steps out of it read it. */
  private departure(state: number): Departure {
    const k = this.active.length;
    const codes = this.codes.slice(state * k, state * k + k);
    const positions = this.positions.slice(state * k, state * k + k);
    const orders = new Map<number, number[]>();
    const pendingAxes: number[] = [];
    for (let a = 0; a < k; a++) {
      const dim = this.dimOfCode(codes[a]);
      if (dim < 0) {
        if (codes[a] !== REPLICATE_CODE && this.isPendingCode(codes[a])) pendingAxes.push(a);
        continue;
      }
      const list = orders.get(dim);
      if (list === undefined) orders.set(dim, []);
      (list ?? orders.get(dim) ?? [])[positions[a]] = a;
    }
    const key = this.exact ? Number(this.key(codes, positions)) : 0;
    return { state, codes, positions, orders, pendingAxes, key };
  }

  /**
   * The state with some axes given a new code, appended to the end of their dim in the order
   * listed.
   */
  private moved(
    { codes, positions, orders, key }: Departure,
    axes: readonly number[],
    code: number,
  ): number {
    const dim = this.dimOfCode(code);
    const first = dim < 0 ? 0 : (orders.get(dim)?.length ?? 0);
    if (this.exact) {
      const k = this.active.length;
      let next = key;
      axes.forEach((a, i) => {
        const digit = (this.digits.get(code) ?? 0) * k + (dim < 0 ? 0 : first + i);
        next += (digit - (this.digits.get(codes[a]) ?? 0) * k - positions[a]) * this.weights[a];
      });
      const known = this.index.get(next);
      if (known !== undefined) return known;
    }
    const nextCodes = [...codes];
    const nextPositions = [...positions];
    axes.forEach((a, i) => {
      nextCodes[a] = code;
      nextPositions[a] = dim < 0 ? 0 : first + i;
    });
    return this.add(nextCodes, nextPositions);
  }

  /** Ranks of the group that some axes span. */
  private groupSize(axes: readonly number[]): number {
    return axes.reduce((n, a) => n * this.sizes[a], 1);
  }

  /** Gathers the last axes that cut a dim, or exchanges them for a cut of another dim. */
  private linkShards(from: Departure, merge: boolean): void {
    const s = from.state;
    const here = this.stateCuts[s];
    for (const [dim, order] of from.orders) {
      const most = merge ? order.length : 1;
      for (let take = 1; take <= most; take++) {
        const suffix = order.slice(order.length - take);
        const plain = suffix.every((a) => from.codes[a] < FIRST_OTHER_CODE);
        const even = take > 1;
        if (even && !plain) break;
        const n = this.groupSize(suffix);
        const gathered = this.moved(from, suffix, REPLICATE_CODE);
        this.link(s, gathered, 'all_gather', suffix, here, n, dim, -1, even);
        if (plain) this.linkExchanges(from, dim, suffix);
      }
    }
  }

  private linkExchanges(from: Departure, dim: number, suffix: readonly number[]): void {
    const s = from.state;
    const { pieces, special } = this.cuts[this.stateCuts[s]];
    const fine = [...pieces];
    const n = this.groupSize(suffix);
    for (const other of this.dims) {
      if (other === dim) continue;
      // The buffer of one rank, padded where the new cut is uneven: n tiles at the finer cut of
      // both dims.
      fine[other] *= n;
      const cuts = this.table.cutsOf(fine, special);
      fine[other] = pieces[other];
      const to = this.moved(from, suffix, shardCode(other));
      this.link(s, to, 'all_to_all', suffix, cuts, n, dim, other, suffix.length > 1);
    }
  }

  /** Reduces pending axes, to a whole value or to shards of it. */
  private linkPending(from: Departure, merge: boolean): void {
    const { state: s, codes, pendingAxes } = from;
    for (const subset of subsets(pendingAxes, merge ? pendingAxes.length : 1)) {
      if (subset.some((a) => !reduceTogether(codes[a], codes[subset[0]]))) continue;
      const whole = this.moved(from, subset, REPLICATE_CODE);
      this.link(s, whole, 'all_reduce', subset, this.stateCuts[s], 1, -1, -1, false);
      const n = this.groupSize(subset);
      const listings = permutations(subset);
      for (const dim of this.dims) {
        for (const order of listings) {
          const to = this.moved(from, order, shardCode(dim));
          const even = order.length > 1;
          this.link(s, to, 'reduce_scatter', order, this.stateCuts[to], n, -1, dim, even);
        }
      }
    }
  }

  /** Slices a replicated axis, or reads it as operands of a reduction: neither moves data. */
  private linkReplicated(from: Departure): void {
    const { state: s, codes, pendingAxes } = from;
    for (let a = 0; a < codes.length; a++) {
      if (codes[a] !== REPLICATE_CODE) continue;
      for (const dim of this.dims) {
        const to = this.moved(from, [a], shardCode(dim));
        this.link(s, to, 'slice', [a], this.stateCuts[to], 1, -1, dim, false);
      }
      for (const code of this.specialCodes) {
        const to = this.moved(from, [a], code);
        this.link(s, to, 'slice', [a], this.stateCuts[to], 1, -1, this.dimOfCode(code), false);
      }
      for (const code of this.pendingCodes) {
        if (!this.mayBecome(a, code, codes, pendingAxes)) continue;
        const to = this.moved(from, [a], code);
        this.link(s, to, 'to_partial', [a], this.stateCuts[s], 0, -1, -1, false);
      }
    }
  }

  /**
   * Tells whether a replicated axis may be read as operands of a pending reduction. One device
   * holds the only operand.
   */
  private mayBecome(
    axis: number,
    code: number,
    codes: readonly number[],
    pendingAxes: readonly number[],
  ): boolean {
    const p = this.space.placementOf(code);
    if (this.sizes[axis] > 1 && !madeFromReplicate(p, this.sizes[axis])) return false;
    if (isLookup(p) && pendingAxes.some((b) => this.sizes[b] > 1)) return false;
    return pendingAxes.every((b) => pendingTogether(this.space.placementOf(codes[b]), p));
  }

  /**
   * Permutations: between states with the same pending mesh dims whose dims are cut in equally many
   * pieces. Cuts other than ceil chunks take part where they are the only cut of their dim: then
   * the tiles are the same.
   */
  private permute(): void {
    const k = this.active.length;
    const classes = new Map<string, number[]>();
    for (let s = 0; s < this.stateCount; s++) {
      const cuts = this.stateCuts[s];
      const { pieces, special } = this.cuts[cuts];
      if (
        special.some(
          (c, i) => pieces[c.dim] > 1 || special.some((other, j) => i !== j && other.dim === c.dim),
        )
      )
        continue;
      let name = String(cuts);
      for (let a = 0; a < k; a++) {
        const code = this.codes[s * k + a];
        name += this.isPendingCode(code) ? `,${code}` : ',';
      }
      const list = classes.get(name);
      if (list === undefined) classes.set(name, [s]);
      else list.push(s);
    }
    for (const list of classes.values()) {
      if (list.length < 2) continue;
      const digits = list.map((s) => this.active.map((_, a) => this.digit(s, a)));
      const cuts = this.stateCuts[list[0]];
      list.forEach((s, i) => {
        list.forEach((t, j) => {
          if (s === t) return;
          const axes: number[] = [];
          for (let a = 0; a < k; a++) if (digits[i][a] !== digits[j][a]) axes.push(a);
          this.link(s, t, 'collective_permute', axes, cuts, 1, -1, -1, true);
        });
      });
    }
  }

  /**
   * The contribution of an axis to the tile number: its kind and the step of its coordinate. Tiles
   * with equal digits do not move.
   */
  private digit(s: number, axis: number): number {
    const code = this.codeAt(s, axis);
    if (code < FIRST_SHARD_CODE) return code;
    let step = 1;
    for (let b = 0; b < this.active.length; b++)
      if (this.codeAt(s, b) === code && this.positionAt(s, b) > this.positionAt(s, axis))
        step *= this.sizes[b];
    return step * 256 + code;
  }
}
