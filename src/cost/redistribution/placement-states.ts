/**
 * Numbers the placement states of a tensor: takes the shardings that need a state, gives the states
 * that redistributions may pass through.
 */

import { internalError } from '../../errors.ts';
import { isPending } from '../../mesh/sharding/sharding.ts';
import {
  FIRST_OTHER_CODE,
  FIRST_SHARD_CODE,
  isPartialCode,
  REPLICATE_CODE,
  shardCode,
  type ShardingSpace,
} from '../../mesh/sharding/space.ts';
import { reachedDims } from './moves.ts';
import { type CutSignature, SlotTable, type SpecialCut } from './slots.ts';

/**
 * Placement states by number (placements spec, section 5.2): a state is a kind for each mesh dim
 * and an order of mesh dims on each tensor dim. Which kinds and tensor dims there are follows from
 * the shardings that must have a state.
 */
export class PlacementStates {
  readonly cuts: readonly CutSignature[];
  /** Index of the local cuts of each state. */
  readonly stateCuts: number[] = [];
  /** Tensor dims that steps may cut, ascending. */
  readonly dims: readonly number[];

  protected readonly table: SlotTable;
  protected readonly codes: number[] = [];
  protected readonly positions: number[] = [];
  private readonly stateById: number[] = [];
  protected readonly index = new Map<number | string, number>();
  protected readonly sizes: readonly number[];
  protected readonly pendingCodes: readonly number[];
  protected readonly specialCodes: readonly number[];
  /**
   * Number of each kind code among those there are, and the weight of each axis in the number of a
   * state.
   */
  protected readonly digits = new Map<number, number>();
  protected readonly weights: readonly number[];
  /** True if numbers of states are exact; else texts are used. */
  protected readonly exact: boolean;

  /**
   * @param active mesh dims that matter, ascending
   * @param seeds ids of shardings that must have a state; their kinds decide which kinds there are
   */
  constructor(
    protected readonly space: ShardingSpace,
    readonly active: readonly number[],
    readonly rank: number,
    seeds: Iterable<number>,
  ) {
    const k = active.length;
    this.sizes = active.map((m) => space.mesh.sizes[m]);
    this.table = new SlotTable(active, this.sizes, rank);
    this.cuts = this.table.cuts;
    const pending = new Set<number>();
    const special = new Set<number>();
    const cutDims = new Set<number>();
    const starts: [number[], number[]][] = [];
    for (const id of seeds) {
      for (const m of active) {
        const code = space.kindAt(id, m);
        if (this.isPendingCode(code)) pending.add(code);
        else if (code >= FIRST_OTHER_CODE) special.add(code);
        const dim = space.dimAt(id, m);
        if (dim >= 0) cutDims.add(dim);
      }
      starts.push(this.read(id));
    }
    const ascending = (a: number, b: number): number => a - b;
    this.pendingCodes = [...pending].sort(ascending);
    this.specialCodes = [...special].sort(ascending);
    this.dims = reachedDims(rank, k, cutDims);
    for (const code of [
      REPLICATE_CODE,
      ...this.pendingCodes,
      ...this.specialCodes,
      ...this.dims.map(shardCode),
    ])
      this.digits.set(code, this.digits.size);
    const radix = this.digits.size * Math.max(k, 1);
    this.weights = active.map((_, a) => Math.pow(radix, a));
    this.exact = Math.pow(radix, k) < 2 ** 52;

    this.add(
      active.map(() => REPLICATE_CODE),
      active.map(() => 0),
    );
    for (const [codes, positions] of starts) this.add(codes, positions);
  }

  /** Devices along each axis. */
  get axisSizes(): readonly number[] {
    return this.sizes;
  }

  get stateCount(): number {
    return this.stateCuts.length;
  }

  /** State of a sharding, -1 if the graph was built without its kinds. */
  stateOf(id: number): number {
    let state = this.stateById[id];
    if (state === undefined) {
      const [codes, positions] = this.read(id);
      state = codes.every((c) => this.digits.has(c))
        ? (this.index.get(this.key(codes, positions)) ?? -1)
        : -1;
      this.stateById[id] = state;
    }
    return state;
  }

  codeAt(state: number, axis: number): number {
    return this.codes[state * this.active.length + axis];
  }

  positionAt(state: number, axis: number): number {
    return this.positions[state * this.active.length + axis];
  }

  /** Tensor dim that an active mesh dim cuts, -1 if none. */
  dimAt(state: number, axis: number): number {
    return this.dimOfCode(this.codeAt(state, axis));
  }

  /** Tells whether any kind of the graph cuts otherwise than in ceil chunks. */
  get hasSpecialCuts(): boolean {
    return this.specialCodes.length > 0;
  }

  /**
   * State that each state becomes when tensor dim d is renamed `to[d]` (a permutation of `dims`).
   */
  relabelled(to: readonly number[]): Int32Array {
    const k = this.active.length;
    const out = new Int32Array(this.stateCount);
    for (let s = 0; s < out.length; s++) {
      const codes = this.codes.slice(s * k, s * k + k).map((code) => {
        const dim = this.dimOfCode(code);
        return dim < 0 ? code : shardCode(to[dim]);
      });
      const target = this.index.get(this.key(codes, this.positions.slice(s * k, s * k + k)));
      if (target === undefined)
        throw internalError('the placement states are not closed under a renaming of dims');
      out[s] = target;
    }
    return out;
  }

  /**
   * State that each state becomes when two axes are exchanged; undefined when some state has no
   * such mirror.
   */
  swapped(a: number, b: number): Int32Array | undefined {
    const k = this.active.length;
    const out = new Int32Array(this.stateCount);
    for (let s = 0; s < out.length; s++) {
      const codes = this.codes.slice(s * k, s * k + k);
      const positions = this.positions.slice(s * k, s * k + k);
      [codes[a], codes[b]] = [codes[b], codes[a]];
      [positions[a], positions[b]] = [positions[b], positions[a]];
      const target = this.index.get(this.key(codes, positions));
      if (target === undefined) return undefined;
      out[s] = target;
    }
    return out;
  }

  /** Kind codes and positions of a sharding over the active mesh dims only. */
  private read(id: number): [number[], number[]] {
    const { space, active } = this;
    const codes = active.map((m) => space.kindAt(id, m));
    const dims = active.map((m) => space.dimAt(id, m));
    const raw = active.map((m) => space.positionAt(id, m));
    const positions = raw.map((p, a) => {
      if (dims[a] < 0) return 0;
      let before = 0;
      raw.forEach((q, b) => {
        if (dims[b] === dims[a] && q < p) before++;
      });
      return before;
    });
    return [codes, positions];
  }

  protected isPendingCode(code: number): boolean {
    return (
      isPartialCode(code) || (code >= FIRST_OTHER_CODE && isPending(this.space.placementOf(code)))
    );
  }

  protected dimOfCode(code: number): number {
    if (code < FIRST_SHARD_CODE) return -1;
    return code < FIRST_OTHER_CODE
      ? code - FIRST_SHARD_CODE
      : (this.space.placementOf(code).dim ?? -1);
  }

  /** Number of a state: exact arithmetic, or a text on meshes of very many dims. */
  protected key(codes: readonly number[], positions: readonly number[]): number | string {
    const k = codes.length;
    if (!this.exact) return `${codes.join(',')}|${positions.join(',')}`;
    let out = 0;
    for (let a = 0; a < k; a++)
      out += ((this.digits.get(codes[a]) ?? 0) * k + positions[a]) * this.weights[a];
    return out;
  }

  /** Number of a state; a new one where it has none. `k` is its key. */
  protected add(
    codes: readonly number[],
    positions: readonly number[],
    k = this.key(codes, positions),
  ): number {
    const known = this.index.get(k);
    if (known !== undefined) return known;
    const s = this.stateCount;
    this.index.set(k, s);
    const pieces = new Array<number>(this.rank).fill(1);
    let special: { dim: number; axis: number; position: number }[] | undefined;
    for (let a = 0; a < codes.length; a++) {
      this.codes.push(codes[a]);
      this.positions.push(positions[a]);
      const dim = this.dimOfCode(codes[a]);
      if (dim < 0) continue;
      if (codes[a] < FIRST_OTHER_CODE) pieces[dim] *= this.sizes[a];
      else (special ??= []).push({ dim, axis: a, position: positions[a] });
    }
    this.stateCuts.push(this.table.cutsOf(pieces, this.specialCuts(codes, positions, special)));
    return s;
  }

  private specialCuts(
    codes: readonly number[],
    positions: readonly number[],
    found: { dim: number; axis: number; position: number }[] | undefined,
  ): readonly SpecialCut[] {
    if (found === undefined) return NONE;
    found.sort((x, y) => x.dim - y.dim || x.position - y.position);
    let last = -1;
    return found.map(({ dim, axis, position }, i) => {
      if (i > 0 && found[i - 1].dim !== dim) last = -1;
      let before = 1;
      for (let b = 0; b < codes.length; b++)
        if (this.dimOfCode(codes[b]) === dim && positions[b] > last && positions[b] < position)
          before *= this.sizes[b];
      last = position;
      return { dim, code: codes[axis], n: this.sizes[axis], before };
    });
  }
}

const NONE: readonly SpecialCut[] = [];
