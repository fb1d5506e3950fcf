import { internalError, ShardwrightError } from '../errors.ts';
import { isPending, Sharding } from '../mesh/sharding.ts';
import type { Placement } from '../mesh/placement.ts';
import { REPLICATE_CODE, shardDimOfCode, type ShardingSpace } from '../mesh/space.ts';
import type { CollectiveKind, CollectiveModel } from './collectives.ts';
import { PathFinder } from './paths.ts';
import { dimClasses, sizeKey, SlotPricing, type MovedType } from './pricing.ts';
import { DimSymmetry } from './symmetry.ts';
import { StateGraph, type PriceSlot } from './states.ts';

export interface RedistributionStep {
  /** A collective, or a local step: `slice` (R to S), `to_partial` (R to P), `relabel` (mesh dims of one device). */
  readonly kind: CollectiveKind | 'slice' | 'to_partial' | 'relabel';
  /** Mesh dims of the group; their order is the gather or scatter order. */
  readonly meshDims: readonly number[];
  /** Devices of the group. */
  readonly groupSize: number;
  /** Bytes of the collective (the convention of its kind); of a local step the bytes written, 0 for views. */
  readonly bytes: number;
  readonly seconds: number;
  /** Sharding after the step. */
  readonly to: number;
}

export interface RedistributionPlan {
  readonly from: number;
  readonly to: number;
  readonly seconds: number;
  readonly steps: readonly RedistributionStep[];
  /** Number of steps that communicate. */
  readonly collectives: number;
  /** Largest local tensor of all states on the way, bytes. */
  readonly peakBytes: number;
  /** `S(0)S(1)->RS(1)->RR`; a step over several mesh dims is written `-->`. */
  readonly text: string;
}

export interface RedistributorOptions {
  /** Steps over several mesh dims at once and permutations; default true. */
  readonly merge?: boolean;
  /** S -> P and P(a) -> P(b) on one mesh dim, by way of R; default false: refused as in DTensor. */
  readonly viaReplicate?: boolean;
}

const TIE = 1e-9;
/** Cached distances, in numbers (8 bytes each), before old types are dropped. */
const CACHE_LIMIT = 24e6;

/** A state graph and what hangs on it alone. */
interface KnownGraph {
  readonly graph: StateGraph;
  readonly finder: PathFinder;
  readonly seeds: ReadonlySet<number>;
  /** By the classes of tensor dims. */
  readonly symmetries: Map<string, DimSymmetry>;
}

interface TypePrices {
  readonly finder: PathFinder;
  readonly graph: StateGraph;
  readonly prices: Float64Array;
  readonly symmetry: DimSymmetry;
  /** Distances by source state, for sources that stand for their orbit. */
  readonly rows: (Float64Array | undefined)[];
  known: number;
}

/**
 * The redistribution planner: one answer to "how does a tensor get from this sharding to that one, and what does it cost",
 * used for prices, reports, simulation and the device program alike. Plans are shortest paths over placement states
 * (placements spec, section 5.2), so cost(A, C) <= cost(A, B) + cost(B, C) wherever all three are allowed.
 */
export class Redistributor {
  private readonly pricing: SlotPricing;
  private readonly merge: boolean;
  private readonly viaReplicate: boolean;
  /** Mesh dims that take part: those of one device only if the model charges for them. */
  private readonly active: readonly number[];
  private readonly activeProduct: number;
  private readonly graphs = new Map<string, KnownGraph>();
  /** By sharding id, see `trait`. */
  private readonly traits: Readonly<Record<'busy' | 'pending' | 'kinds' | 'lastDim', number[]>> = {
    busy: [],
    pending: [],
    kinds: [],
    lastDim: [],
  };
  private readonly kindBits: number[] = [];
  private readonly types = new Map<string, TypePrices>();
  private cached = 0;

  constructor(
    readonly space: ShardingSpace,
    readonly model: CollectiveModel,
    options: RedistributorOptions = {},
  ) {
    if (model.mesh !== space.mesh && model.mesh.text !== space.mesh.text)
      throw internalError(`prices of mesh ${model.mesh.text} used on mesh ${space.mesh.text}`);
    this.pricing = new SlotPricing(space, model);
    this.merge = options.merge ?? true;
    this.viaReplicate = options.viaReplicate ?? false;
    const { sizes } = space.mesh;
    this.active = sizes.map((_, m) => m).filter((m) => model.chargesUnitDims || sizes[m] > 1);
    this.activeProduct = space.mesh.sizeOf(this.active);
  }

  /** Seconds of the best plan; Infinity when the change is refused or impossible. */
  seconds(type: MovedType, from: number, to: number): number {
    if (from === to) return 0;
    if (this.refusal(from, to) !== undefined) return Infinity;
    const prices = this.pricesOf(type, [from, to]);
    const orbit = prices.symmetry.of(prices.graph.stateOf(from));
    return this.row(prices, orbit.canonical)[orbit.states[prices.graph.stateOf(to)]];
  }

  /**
   * Seconds from each source to each target, row by source. Equal types, and types that differ only in what does not
   * matter, share all work.
   */
  matrix(type: MovedType, fromIds: ArrayLike<number>, toIds: ArrayLike<number>): Float64Array {
    const width = toIds.length;
    const out = new Float64Array(fromIds.length * width);
    const ids: number[] = [];
    for (let i = 0; i < fromIds.length; i++) ids.push(fromIds[i]);
    for (let j = 0; j < width; j++) ids.push(toIds[j]);
    const prices = this.pricesOf(type, ids);
    const { graph, symmetry } = prices;
    const toStates = new Int32Array(width);
    for (let j = 0; j < width; j++) toStates[j] = graph.stateOf(toIds[j]);
    for (let i = 0; i < fromIds.length; i++) {
      const from = fromIds[i];
      const { canonical, states } = symmetry.of(graph.stateOf(from));
      const row = this.row(prices, canonical);
      for (let j = 0; j < width; j++)
        out[i * width + j] = this.refused(from, toIds[j]) ? Infinity : row[states[toStates[j]]];
    }
    return out;
  }

  /**
   * The best plan; ties within 1e-9 go to fewer collectives, then fewer steps, then the smaller list of steps written
   * as `mesh dims:sharding after` (so outer mesh dims move first). Undefined when the change is refused: `refusal` says why.
   */
  plan(type: MovedType, from: number, to: number): RedistributionPlan | undefined {
    const { space } = this;
    const start = space.get(from);
    if (from === to)
      return {
        from,
        to,
        seconds: 0,
        steps: [],
        collectives: 0,
        peakBytes: this.localBytes(type, from),
        text: start.orderedText,
      };
    if (this.refusal(from, to) !== undefined) return undefined;
    const prices = this.pricesOf(type, [from, to]);
    const { graph } = prices;
    const source = graph.stateOf(from);
    const target = graph.stateOf(to);
    const orbit = prices.symmetry.of(source);
    const canonical = this.row(prices, orbit.canonical);
    const dist = Float64Array.from(orbit.states, (s) => canonical[s]);
    if (dist[target] === Infinity) return undefined;
    const edges = source === target ? [] : this.bestPath(prices, dist, source, target, from);
    const steps: RedistributionStep[] = [];
    let text = start.orderedText;
    let peakBytes = this.localBytes(type, from);
    let seconds = 0;
    let collectives = 0;
    for (const e of edges) {
      const slot = graph.slots[graph.edgeSlot[e]];
      const meshDims = graph.dimLists[graph.edgeDims[e]];
      const id = space.intern(this.shardingOf(graph, graph.edgeTarget[e], from));
      const price = prices.prices[graph.edgeSlot[e]];
      steps.push({
        kind: slot.kind,
        meshDims,
        groupSize: slot.devices,
        bytes: this.pricing.bytes(slot, graph.cuts[slot.cuts], type),
        seconds: price,
        to: id,
      });
      seconds += price;
      if (isCollective(slot)) collectives++;
      text += (meshDims.length > 1 ? '-->' : '->') + space.get(id).orderedText;
      peakBytes = Math.max(peakBytes, this.localBytes(type, id));
    }
    if ((steps.at(-1)?.to ?? from) !== to) {
      const changed = space.mesh.sizes
        .map((_, m) => m)
        .filter((m) => !this.active.includes(m) && space.kindAt(from, m) !== space.kindAt(to, m));
      steps.push({ kind: 'relabel', meshDims: changed, groupSize: 1, bytes: 0, seconds: 0, to });
      text += `->${space.get(to).orderedText}`;
    }
    return { from, to, seconds, steps, collectives, peakBytes, text };
  }

  /** Why a change is refused, naming the legal route; undefined when it is allowed. */
  refusal(from: number, to: number): string | undefined {
    const { space } = this;
    for (const m of this.active) {
      if (!this.refusedOn(from, to, m)) continue;
      const a = space.get(from).placements[m].text;
      const b = space.get(to).placements[m].text;
      return `${space.text(from)} -> ${space.text(to)} is refused: on mesh dim '${space.mesh.names[m]}' ${a} does not become ${b}; go to R first, and from there ask for ${b}`;
    }
    return undefined;
  }

  private refused(from: number, to: number): boolean {
    if (this.viaReplicate) return false;
    const { busy, pending } = this.traits;
    this.trait(from);
    this.trait(to);
    // Only a mesh dim that is cut or pending before and pending after can be at fault.
    let suspects = busy[from] & pending[to];
    for (let m = 0; suspects !== 0; m++, suspects >>>= 1)
      if ((suspects & 1) !== 0 && this.space.kindAt(from, m) !== this.space.kindAt(to, m)) return true;
    return false;
  }

  private refusedOn(from: number, to: number, m: number): boolean {
    const { space } = this;
    const a = space.kindAt(from, m);
    const b = space.kindAt(to, m);
    if (a === b || a === 0 || b === 0 || this.viaReplicate || space.mesh.sizes[m] === 1) return false;
    // Both cut or pending and different: allowed only towards a cut.
    return isPending(space.placementOf(b));
  }

  /** Fills the traits of a sharding: bit masks over mesh dims, its largest cut dim, and its kinds that shape the graph. */
  private trait(id: number): void {
    const { space, traits } = this;
    if (traits.busy[id] !== undefined) return;
    let busy = 0;
    let pending = 0;
    let kinds = 0;
    let lastDim = -1;
    for (let m = 0; m < space.meshRank; m++) {
      lastDim = Math.max(lastDim, space.dimAt(id, m));
      const code = space.kindAt(id, m);
      if (code === REPLICATE_CODE || !this.active.includes(m)) continue;
      const p = space.placementOf(code);
      if (space.mesh.sizes[m] > 1) {
        busy |= 1 << m;
        if (isPending(p)) pending |= 1 << m;
      }
      if (shardDimOfCode(code) < 0) kinds |= 1 << this.kindBit(code);
    }
    traits.busy[id] = busy;
    traits.pending[id] = pending;
    traits.kinds[id] = kinds;
    traits.lastDim[id] = lastDim;
  }

  private kindBit(code: number): number {
    let bit = this.kindBits.indexOf(code);
    if (bit < 0) bit = this.kindBits.push(code) - 1;
    if (bit > 30)
      throw new ShardwrightError('E_PLACEMENT', 'more than 31 kinds of pending or special placements at once');
    return bit;
  }

  /** Fewest collectives, fewest steps, smallest step list among the paths of least price: the edges in order. */
  private bestPath(prices: TypePrices, dist: Float64Array, source: number, target: number, from: number): number[] {
    const { graph } = prices;
    const { edgeStart, edgeTarget, edgeSlot } = graph;
    interface Tail {
      readonly collectives: number;
      readonly steps: number;
      readonly text: string;
      readonly edges: readonly number[];
    }
    const memo = new Map<number, Tail | undefined>();
    const tail = (s: number): Tail | undefined => {
      if (s === target) return { collectives: 0, steps: 0, text: '', edges: [] };
      if (memo.has(s)) return memo.get(s);
      memo.set(s, undefined);
      let best: Tail | undefined;
      for (let e = edgeStart[s]; e < edgeStart[s + 1]; e++) {
        const v = edgeTarget[e];
        const reach = dist[s] + prices.prices[edgeSlot[e]];
        if (v === s || v === source || !(reach <= dist[v] * (1 + TIE)) || dist[v] > dist[target] * (1 + TIE)) continue;
        const rest = tail(v);
        if (rest === undefined) continue;
        const next: Tail = {
          collectives: rest.collectives + (isCollective(graph.slots[edgeSlot[e]]) ? 1 : 0),
          steps: rest.steps + 1,
          text: `${graph.dimLists[graph.edgeDims[e]].join(',')}:${this.shardingOf(graph, v, from).orderedText};${rest.text}`,
          edges: [e, ...rest.edges],
        };
        if (best === undefined || before(next, best)) best = next;
      }
      memo.set(s, best);
      return best;
    };
    const found = tail(source);
    if (found === undefined) throw internalError(`no path among the shortest ones from ${this.space.text(from)}`);
    return [...found.edges];
  }

  /** The state as a sharding; mesh dims that take no part keep what `like` has there. */
  private shardingOf(graph: StateGraph, state: number, like: number): Sharding {
    const { space, active } = this;
    const old = space.get(like);
    const placements: Placement[] = [...old.placements];
    const orders = new Map<number, number[]>();
    old.placements.forEach((p, m) => {
      if (p.dim !== undefined && !active.includes(m)) orders.set(p.dim, [...(orders.get(p.dim) ?? []), m]);
    });
    const cut: { dim: number; position: number; m: number }[] = [];
    active.forEach((m, a) => {
      const p = space.placementOf(graph.codeAt(state, a));
      placements[m] = p;
      if (p.dim !== undefined) cut.push({ dim: p.dim, position: graph.positionAt(state, a), m });
    });
    cut.sort((x, y) => x.position - y.position);
    for (const { dim, m } of cut) orders.set(dim, [...(orders.get(dim) ?? []), m]);
    // Mesh dims of one device carry no data: where they sit in an order means nothing, so mesh order is kept if it can be.
    for (const [dim, order] of orders) {
      const real = order.filter((m) => active.includes(m));
      if (real.every((m, i) => i === 0 || real[i - 1] < m))
        orders.set(
          dim,
          order.sort((a, b) => a - b),
        );
    }
    return new Sharding(placements, orders);
  }

  private localBytes(type: MovedType, id: number): number {
    let n = type.itemBytes;
    for (const size of this.space.localShape(id, type.shape)) n *= size;
    return n;
  }

  private row(prices: TypePrices, source: number): Float64Array {
    let row = prices.rows[source];
    if (row === undefined) {
      row = prices.finder.from(source, prices.prices);
      prices.rows[source] = row;
      prices.known++;
      this.cached += row.length;
      if (this.cached > CACHE_LIMIT) {
        for (const other of this.types.values()) {
          if (other === prices) continue;
          other.rows.fill(undefined);
          other.known = 0;
        }
        this.cached = prices.known * row.length;
      }
    }
    return row;
  }

  /** The state graph that has all these shardings, and its prices for the type. */
  private pricesOf(type: MovedType, ids: readonly number[]): TypePrices {
    const rank = type.shape.length;
    const { kinds, lastDim } = this.traits;
    let mask = 0;
    for (const id of ids) {
      this.trait(id);
      mask |= kinds[id];
      if (lastDim[id] >= rank)
        throw new ShardwrightError(
          'E_PLACEMENT',
          `${this.space.text(id)} cuts dim ${lastDim[id]} of a ${rank}-D tensor`,
        );
    }
    const graphKey = `${rank}|${mask}`;
    let entry = this.graphs.get(graphKey);
    const known = entry?.graph;
    const missing = known === undefined ? ids : ids.filter((id) => known.stateOf(id) < 0);
    if (entry === undefined || missing.length > 0) {
      const seeds = new Set(entry?.seeds);
      for (const id of missing) seeds.add(id);
      const graph = new StateGraph(this.space, this.active, rank, seeds, this.merge);
      entry = {
        graph,
        seeds,
        symmetries: new Map(),
        finder: new PathFinder(graph.edgeStart, graph.edgeTarget, graph.edgeSlot),
      };
      this.graphs.set(graphKey, entry);
    }
    const typeKey = `${graphKey}|${sizeKey(type, this.activeProduct)}`;
    let prices = this.types.get(typeKey);
    if (prices === undefined || prices.graph !== entry.graph) {
      const { graph, finder, symmetries } = entry;
      const classes = dimClasses(type, this.activeProduct);
      const classKey = classes.join(' ');
      let symmetry = symmetries.get(classKey);
      if (symmetry === undefined) symmetries.set(classKey, (symmetry = new DimSymmetry(graph, classes)));
      const rows = new Array<Float64Array | undefined>(graph.stateCount).fill(undefined);
      prices = { graph, finder, symmetry, prices: this.pricing.slots(graph, type), rows, known: 0 };
      this.types.set(typeKey, prices);
    }
    return prices;
  }
}

function isCollective(slot: PriceSlot): boolean {
  return slot.kind !== 'slice' && slot.kind !== 'to_partial' && slot.devices > 1;
}

interface Rank {
  readonly collectives: number;
  readonly steps: number;
  readonly text: string;
}
function before(a: Rank, b: Rank): boolean {
  if (a.collectives !== b.collectives) return a.collectives < b.collectives;
  if (a.steps !== b.steps) return a.steps < b.steps;
  return a.text < b.text;
}
