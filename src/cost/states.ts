import { internalError } from '../errors.ts';
import { isPending } from '../mesh/sharding.ts';
import {
  FIRST_OTHER_CODE,
  FIRST_SHARD_CODE,
  isPartialCode,
  permutations,
  REPLICATE_CODE,
  shardCode,
  type ShardingSpace,
} from '../mesh/space.ts';
import type { CollectiveKind } from './collectives.ts';
import { madeFromReplicate, mayStandTogether, reachedDims, subsets } from './moves.ts';

/**
 * The graph of placement states that redistribution plans walk on (placements spec, section 5.2). A state is a kind for
 * each mesh dim and an order of mesh dims on each tensor dim; an edge is one collective or one free local step. The graph
 * knows no sizes of tensors: what an edge costs is its slot's business, priced once for each tensor type.
 */

export type StepKind = CollectiveKind | 'slice' | 'to_partial';

/** Local cuts of a tensor: pieces of each dim, and the cuts that are not ceil chunks. */
export interface CutSignature {
  /** Number of pieces of each tensor dim by plain shards. */
  readonly pieces: readonly number[];
  /** Further cuts in order: tensor dim, kind code, size of the mesh dim. */
  readonly special: readonly { readonly dim: number; readonly code: number; readonly n: number }[];
}

/** What a step costs, apart from the tensor: equal slots have equal prices. */
export interface PriceSlot {
  readonly kind: StepKind;
  /** Mesh dims of the flattened group, ascending. */
  readonly meshDims: readonly number[];
  /** Devices of the group. */
  readonly devices: number;
  /** Index of the local cuts whose size the step moves; bytes = local bytes x `times`. */
  readonly cuts: number;
  readonly times: number;
  /** Tensor dims along which pieces are put together or taken apart, for local copies. */
  readonly copyDims: readonly number[];
  /** Tensor dims that must divide evenly by the pieces of the cuts (merged steps and permutations). */
  readonly evenDims: readonly number[];
}

/** State lists of one tensor rank over the mesh dims that matter. */
export class StateGraph {
  readonly slots: PriceSlot[] = [];
  readonly cuts: CutSignature[] = [];
  /** CSR: edges of state s are edgeStart[s] .. edgeStart[s+1]-1. */
  readonly edgeStart: Int32Array;
  readonly edgeTarget: Int32Array;
  readonly edgeSlot: Int32Array;
  /** Mesh dims of each edge in the order of the step (suffix or target order), as an index into `dimLists`. */
  readonly edgeDims: Int32Array;
  readonly dimLists: (readonly number[])[] = [];
  /** Index of the local cuts of each state. */
  readonly stateCuts: number[] = [];

  private readonly codes: number[] = [];
  private readonly positions: number[] = [];
  private readonly stateById: number[] = [];
  private readonly index = new Map<string, number>();
  private readonly slotIndex = new Map<string, number>();
  private readonly cutIndex = new Map<string, number>();
  private readonly dimListIndex = new Map<string, number>();
  private readonly edges: number[][] = [];
  private readonly sizes: readonly number[];
  private readonly pendingCodes: readonly number[];
  private readonly specialCodes: readonly number[];
  /** Tensor dims that steps may cut, ascending. */
  readonly dims: readonly number[];

  /**
   * @param active mesh dims that matter, ascending
   * @param seeds ids of shardings that must have a state; their kinds decide which kinds the graph has
   * @param merge also steps over several mesh dims at once, and permutations
   */
  constructor(
    private readonly space: ShardingSpace,
    readonly active: readonly number[],
    readonly rank: number,
    seeds: Iterable<number>,
    merge: boolean,
  ) {
    this.sizes = active.map((m) => space.mesh.sizes[m]);
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
    this.dims = reachedDims(rank, active.length, cutDims);

    this.add(
      active.map(() => REPLICATE_CODE),
      active.map(() => 0),
    );
    for (const [codes, positions] of starts) this.add(codes, positions);
    // The list grows while it is walked: every state that a step reaches is a state.
    for (let s = 0; s < this.edges.length; s++) this.expand(s, merge);
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

  get stateCount(): number {
    return this.stateCuts.length;
  }

  /** State of a sharding, -1 if the graph was built without its kinds. */
  stateOf(id: number): number {
    let state = this.stateById[id];
    if (state === undefined) {
      const [codes, positions] = this.read(id);
      state = this.index.get(key(codes, positions)) ?? -1;
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

  /** Whether any kind of the graph cuts otherwise than in ceil chunks. */
  get hasSpecialCuts(): boolean {
    return this.specialCodes.length > 0;
  }

  /** State that each state becomes when tensor dim d is renamed `to[d]` (a permutation of `dims`). */
  relabelled(to: readonly number[]): Int32Array {
    const k = this.active.length;
    const out = new Int32Array(this.stateCount);
    for (let s = 0; s < out.length; s++) {
      const codes = this.codes.slice(s * k, s * k + k).map((code) => {
        const dim = this.dimOfCode(code);
        return dim < 0 ? code : shardCode(to[dim]);
      });
      const target = this.index.get(key(codes, this.positions.slice(s * k, s * k + k)));
      if (target === undefined) throw internalError('the placement states are not closed under a renaming of dims');
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

  private isPendingCode(code: number): boolean {
    return isPartialCode(code) || (code >= FIRST_OTHER_CODE && isPending(this.space.placementOf(code)));
  }

  private dimOfCode(code: number): number {
    if (code < FIRST_SHARD_CODE) return -1;
    return code < FIRST_OTHER_CODE ? code - FIRST_SHARD_CODE : (this.space.placementOf(code).dim ?? -1);
  }

  private add(codes: readonly number[], positions: readonly number[]): number {
    const k = key(codes, positions);
    const known = this.index.get(k);
    if (known !== undefined) return known;
    const s = this.edges.length;
    this.index.set(k, s);
    this.edges.push([]);
    this.codes.push(...codes);
    this.positions.push(...positions);
    const pieces = new Array<number>(this.rank).fill(1);
    const special: { dim: number; code: number; n: number; position: number }[] = [];
    codes.forEach((code, a) => {
      const dim = this.dimOfCode(code);
      if (dim < 0) return;
      if (code < FIRST_OTHER_CODE) pieces[dim] *= this.sizes[a];
      else special.push({ dim, code, n: this.sizes[a], position: positions[a] });
    });
    special.sort((x, y) => x.dim - y.dim || x.position - y.position);
    this.stateCuts.push(this.cutsOf(pieces, special));
    return s;
  }

  private cutsOf(pieces: readonly number[], special: CutSignature['special']): number {
    const k = `${pieces.join(',')}|${special.map((c) => `${c.dim}:${c.code}:${c.n}`).join(',')}`;
    let i = this.cutIndex.get(k);
    if (i === undefined) {
      i = this.cuts.length;
      this.cuts.push({ pieces, special });
      this.cutIndex.set(k, i);
    }
    return i;
  }

  private slotOf(slot: PriceSlot): number {
    const k = `${slot.kind}|${slot.meshDims.join(',')}|${slot.cuts}|${slot.times}|${slot.copyDims.join(',')}|${slot.evenDims.join(',')}`;
    let i = this.slotIndex.get(k);
    if (i === undefined) {
      i = this.slots.length;
      this.slots.push(slot);
      this.slotIndex.set(k, i);
    }
    return i;
  }

  private listOf(dims: readonly number[]): number {
    const k = dims.join(',');
    let i = this.dimListIndex.get(k);
    if (i === undefined) {
      i = this.dimLists.length;
      this.dimLists.push(dims);
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
    copyDims: readonly number[],
    evenDims: readonly number[],
  ): void {
    const meshDims = axes.map((a) => this.active[a]);
    const slot = this.slotOf({
      kind,
      meshDims: [...meshDims].sort((a, b) => a - b),
      devices: this.space.mesh.sizeOf(meshDims),
      cuts,
      times,
      copyDims,
      evenDims,
    });
    this.edges[from].push(to, slot, this.listOf(meshDims));
  }

  /** Every step out of a state except permutations. */
  private expand(s: number, merge: boolean): void {
    const k = this.active.length;
    const codes = this.codes.slice(s * k, s * k + k);
    const positions = this.positions.slice(s * k, s * k + k);
    const { pieces, special } = this.cuts[this.stateCuts[s]];
    const orders = new Map<number, number[]>();
    for (let a = 0; a < k; a++) {
      const dim = this.dimOfCode(codes[a]);
      if (dim < 0) continue;
      const list = orders.get(dim) ?? [];
      list[positions[a]] = a;
      orders.set(dim, list);
    }
    const length = (dim: number): number => orders.get(dim)?.length ?? 0;
    const pendingAxes: number[] = [];
    codes.forEach((code, a) => this.isPendingCode(code) && pendingAxes.push(a));
    const group = (axes: readonly number[]): number => axes.reduce((n, a) => n * this.sizes[a], 1);
    /** The state with some axes given a new code, appended to the end of their dim in the order listed. */
    const moved = (axes: readonly number[], code: number): number => {
      const nextCodes = [...codes];
      const nextPositions = [...positions];
      const dim = this.dimOfCode(code);
      axes.forEach((a, i) => {
        nextCodes[a] = code;
        nextPositions[a] = dim < 0 ? 0 : length(dim) + i;
      });
      return this.add(nextCodes, nextPositions);
    };
    const here = this.stateCuts[s];

    for (const [dim, order] of orders) {
      const most = merge ? order.length : 1;
      for (let take = 1; take <= most; take++) {
        const suffix = order.slice(order.length - take);
        const plain = suffix.every((a) => codes[a] < FIRST_OTHER_CODE);
        if (take > 1 && !plain) break;
        const n = group(suffix);
        const even = take > 1 ? [dim] : [];
        this.link(s, moved(suffix, REPLICATE_CODE), 'all_gather', suffix, here, n, [dim], even);
        if (!plain) continue;
        for (const other of this.dims) {
          if (other === dim) continue;
          // The buffer of one rank, padded where the new cut is uneven: n tiles at the finer cut of both dims.
          const fine = [...pieces];
          fine[other] *= n;
          const cuts = this.cutsOf(fine, special);
          const to = moved(suffix, shardCode(other));
          this.link(s, to, 'all_to_all', suffix, cuts, n, [dim, other], take > 1 ? [dim, other] : []);
        }
      }
    }
    for (const subset of subsets(pendingAxes, merge ? pendingAxes.length : 1)) {
      const n = group(subset);
      this.link(s, moved(subset, REPLICATE_CODE), 'all_reduce', subset, here, 1, [], []);
      for (const dim of this.dims) {
        for (const order of permutations(subset)) {
          const to = moved(order, shardCode(dim));
          const even = order.length > 1 ? [dim] : [];
          this.link(s, to, 'reduce_scatter', order, this.stateCuts[to], n, [dim], even);
        }
      }
    }
    for (let a = 0; a < k; a++) {
      if (codes[a] !== REPLICATE_CODE) continue;
      for (const dim of this.dims) {
        const to = moved([a], shardCode(dim));
        this.link(s, to, 'slice', [a], this.stateCuts[to], 1, [dim], []);
      }
      for (const code of this.specialCodes) {
        const to = moved([a], code);
        this.link(s, to, 'slice', [a], this.stateCuts[to], 1, [this.dimOfCode(code)], []);
      }
      for (const code of this.pendingCodes) {
        if (!madeFromReplicate(code)) continue;
        if (pendingAxes.some((b) => !mayStandTogether(codes[b], code))) continue;
        this.link(s, moved([a], code), 'to_partial', [a], here, 0, [], []);
      }
    }
  }

  /** Permutations: between states with the same pending mesh dims whose dims are cut in equally many pieces. */
  private permute(): void {
    const k = this.active.length;
    const classes = new Map<string, number[]>();
    for (let s = 0; s < this.edges.length; s++) {
      const codes = this.codes.slice(s * k, s * k + k);
      if (codes.some((c) => c >= FIRST_OTHER_CODE)) continue;
      const pending = codes.map((c) => (isPartialCode(c) ? c : 0)).join(',');
      const name = `${pending}|${this.stateCuts[s]}`;
      const list = classes.get(name);
      if (list === undefined) classes.set(name, [s]);
      else list.push(s);
    }
    for (const list of classes.values()) {
      for (const s of list) {
        const cuts = this.stateCuts[s];
        const cutDims: number[] = [];
        this.cuts[cuts].pieces.forEach((n, d) => n > 1 && cutDims.push(d));
        for (const t of list) {
          if (s === t) continue;
          const axes: number[] = [];
          for (let a = 0; a < k; a++) if (this.digit(s, a) !== this.digit(t, a)) axes.push(a);
          this.link(s, t, 'collective_permute', axes, cuts, 1, [], cutDims);
        }
      }
    }
  }

  /** What an axis decides of the tile number: its tensor dim and the step of its coordinate. Equal digits stay put. */
  private digit(s: number, axis: number): string {
    const code = this.codeAt(s, axis);
    if (code < FIRST_SHARD_CODE) return String(code);
    let step = 1;
    for (let b = 0; b < this.active.length; b++)
      if (this.codeAt(s, b) === code && this.positionAt(s, b) > this.positionAt(s, axis)) step *= this.sizes[b];
    return `${code}:${step}`;
  }
}

function key(codes: readonly number[], positions: readonly number[]): string {
  let out = '';
  for (let a = 0; a < codes.length; a++) out += String.fromCharCode(codes[a] * 16 + positions[a]);
  return out;
}
