/**
 * Plans redistributions: takes a tensor type and two shardings and gives the cheapest chain of
 * collectives between them, by a shortest path over placement states.
 */

import { defined } from '../../defined.ts';
import { internalError, ShardwrightError } from '../../errors.ts';
import { refusedCut } from '../../mesh/sharding/sharding.ts';
import type { ShardingSpace } from '../../mesh/sharding/space.ts';
import type { CollectiveModel } from '../collective-model.ts';
import { bestPath, shardingOfState } from './best-path.ts';
import { partsAlong, PathFinder } from './paths.ts';
import { permutationPairs } from './permutation.ts';
import { type RedistributionPlan, type RedistributionStep } from './plan.ts';
import { dimClasses, localTensorBytes, type MovedType, sizeKey, SlotPricing } from './pricing.ts';
import { Refusals } from './refusals.ts';
import { communicates, type PriceSlot } from './slots.ts';
import { StateGraph } from './states.ts';
import { AxisExchanges, DimSymmetry } from './symmetry.ts';

export interface RedistributorOptions {
  /** Steps over several mesh dims at once and permutations; default true. */
  readonly merge?: boolean;
  /** S -> P and P(a) -> P(b) on one mesh dim, by way of R; default false: refused as in DTensor. */
  readonly viaReplicate?: boolean;
  /**
   * Asked while prices are found, which takes long on meshes of many dims; what it throws ends the
   * work.
   */
  readonly checkTime?: () => void;
}

/** Plans kept; all are dropped when there are more. */
const PLAN_LIMIT = 20_000;
/** Cached distances, in numbers (8 bytes each), before old types are dropped. */
const CACHE_LIMIT = 24e6;

/** A state graph and what hangs on it alone. */
interface KnownGraph {
  readonly graph: StateGraph;
  readonly finder: PathFinder;
  readonly seeds: ReadonlySet<number>;
  readonly exchanges: AxisExchanges;
  /** By the classes of tensor dims and the exchanges of mesh dims that keep prices. */
  readonly symmetries: Map<string, DimSymmetry>;
}

interface TypePrices {
  /** The key of everything that prices depend on. */
  readonly key: string;
  readonly finder: PathFinder;
  readonly graph: StateGraph;
  readonly prices: Float64Array;
  readonly symmetry: DimSymmetry;
  /** Distances by source state, for sources that represent their orbit. */
  readonly rows: (Float64Array | undefined)[];
  known: number;
  /** By split: the parts of each slot; by source state those of the best plans from there. */
  parts: WeakMap<
    StepSplit,
    {
      readonly ofSlot: readonly Float64Array[];
      readonly from: Map<number, readonly Float64Array[]>;
    }
  >;
}

/** How the seconds of a step are taken apart. */
export interface StepSplit {
  /** Number of parts. */
  readonly count: number;
  /** The parts of one step, given its bytes and seconds; they need not sum to its seconds. */
  of(slot: PriceSlot, bytes: number, seconds: number): readonly number[];
}

/** Parts of the best plans between shardings that were named beforehand. */
export interface PartsOfRoutes {
  /** State of a sharding. */
  stateOf(id: number): number;
  /** By part and state of the target. */
  from(id: number): readonly Float64Array[];
}

/**
 * The redistribution planner: one answer to "how does a tensor get from this sharding to that one,
 * and what does it cost", used for prices, reports, simulation and the device program. Plans are
 * shortest paths over placement states (placements spec, section 5.2), so cost(A, C) <= cost(A, B)
 * + cost(B, C) wherever all three are allowed.
 */
export class Redistributor {
  private readonly pricing: SlotPricing;
  private readonly merge: boolean;
  private readonly checkTime: (() => void) | undefined;
  private readonly refusals: Refusals;
  /** Mesh dims that take part: those of one device only if the model charges for them. */
  private readonly active: readonly number[];
  private readonly activeProduct: number;
  private readonly graphs = new Map<string, KnownGraph>();
  private readonly types = new Map<string, TypePrices>();
  /** By graph, tensor type as far as it matters, source and target. */
  private readonly plans = new Map<string, RedistributionPlan>();
  private cached = 0;
  private keptParts = 0;

  constructor(
    readonly space: ShardingSpace,
    readonly model: CollectiveModel,
    options: RedistributorOptions = {},
  ) {
    if (model.mesh !== space.mesh && model.mesh.text !== space.mesh.text)
      throw internalError(`prices of mesh ${model.mesh.text} used on mesh ${space.mesh.text}`);
    this.pricing = new SlotPricing(space, model);
    this.merge = options.merge ?? true;
    this.checkTime = options.checkTime;
    const { sizes } = space.mesh;
    this.active = sizes.map((_, m) => m).filter((m) => model.chargesUnitDims || sizes[m] > 1);
    this.activeProduct = space.mesh.sizeOf(this.active);
    this.refusals = new Refusals(space, this.active, options.viaReplicate ?? false);
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
   * Seconds from each source to each target, row by source. Equal types, and types that differ only
   * in what does not matter, share all work.
   */
  matrix(type: MovedType, fromIds: ArrayLike<number>, toIds: ArrayLike<number>): Float64Array {
    const width = toIds.length;
    const out = new Float64Array(fromIds.length * width);
    const ids: number[] = [];
    // Sources repeat where the placement of a producer appears with each copy of it: their rows are
    // computed once.
    const rowOf = new Map<number, number>();
    for (let i = 0; i < fromIds.length; i++) {
      if (rowOf.has(fromIds[i])) continue;
      rowOf.set(fromIds[i], i);
      ids.push(fromIds[i]);
    }
    for (let j = 0; j < width; j++) ids.push(toIds[j]);
    const prices = this.pricesOf(type, ids);
    const { graph, symmetry } = prices;
    const { refusals } = this;
    const toStates = new Int32Array(width);
    const pending = new Int32Array(width);
    for (let j = 0; j < width; j++) {
      toStates[j] = graph.stateOf(toIds[j]);
      // Targets with operands that cannot be made of every value are looked at each time.
      pending[j] = refusals.unmakeable[toIds[j]] !== 0 ? -1 : refusals.pending[toIds[j]];
    }
    for (let i = 0; i < fromIds.length; i++) {
      const from = fromIds[i];
      const same = rowOf.get(from) ?? i;
      if (same < i) {
        out.copyWithin(i * width, same * width, (same + 1) * width);
        continue;
      }
      this.checkTime?.();
      const { canonical, states } = symmetry.of(graph.stateOf(from));
      const row = this.row(prices, canonical);
      const busy = refusals.busy[from];
      for (let j = 0; j < width; j++)
        // Only what is pending in the target, on mesh dims that the source uses, can be refused.
        out[i * width + j] =
          (busy & pending[j]) !== 0 && refusals.refused(from, toIds[j])
            ? Infinity
            : row[states[toStates[j]]];
    }
    return out;
  }

  /**
   * Splits the seconds between some shardings into their parts. Sums of one split are kept, so that
   * the split is asked once for each step.
   */
  parts(type: MovedType, ids: readonly number[], split: StepSplit): PartsOfRoutes {
    const prices = this.pricesOf(type, ids);
    const stateOf = (id: number): number => prices.graph.stateOf(id);
    return { stateOf, from: (id) => this.partsFrom(prices, type, stateOf(id), split) };
  }

  /** By part and state: the parts of the best plans from one state. */
  private partsFrom(
    prices: TypePrices,
    type: MovedType,
    source: number,
    split: StepSplit,
  ): readonly Float64Array[] {
    const { graph, symmetry } = prices;
    let known = prices.parts.get(split);
    if (known === undefined) {
      const ofSlot = Array.from(
        { length: split.count },
        () => new Float64Array(graph.slots.length),
      );
      graph.slots.forEach((slot, i) => {
        const seconds = prices.prices[i];
        if (seconds === Infinity) return;
        const bytes = this.pricing.bytes(slot, graph.cuts[slot.cuts], type);
        split.of(slot, bytes, seconds).forEach((part, k) => (ofSlot[k][i] = part));
      });
      prices.parts.set(split, (known = { ofSlot, from: new Map() }));
    }
    let sums = known.from.get(source);
    if (sums === undefined) {
      this.checkTime?.();
      const { canonical, states } = symmetry.of(source);
      const row = this.row(prices, canonical);
      const dist = new Float64Array(states.length);
      for (let k = 0; k < dist.length; k++) dist[k] = row[states[k]];
      this.keptParts += split.count * dist.length;
      if (this.keptParts > CACHE_LIMIT) {
        for (const other of this.types.values()) other.parts = new WeakMap();
        this.keptParts = split.count * dist.length;
        prices.parts.set(split, (known = { ofSlot: known.ofSlot, from: new Map() }));
      }
      known.from.set(source, (sums = partsAlong(graph, source, dist, prices.prices, known.ofSlot)));
    }
    return sums;
  }

  /**
   * The best plan; ties within 1e-9 go to fewer collectives, then fewer steps, then the smaller
   * list of steps written as `mesh dims:sharding after` (so outer mesh dims move first). Undefined
   * when the change is refused: `refusal` says why. Plans are kept: the same question has the same
   * object for an answer.
   *
   * @throws E_PLACEMENT when a sharding does not fit the shape
   */
  plan(type: MovedType, from: number, to: number): RedistributionPlan | undefined {
    if (from !== to && this.refusal(from, to) !== undefined) return undefined;
    const prices = this.pricesOf(type, [from, to]);
    const key = `${prices.key}|${from}|${to}`;
    const known = this.plans.get(key);
    if (known !== undefined) return known;
    this.checkCuts(type, from);
    this.checkCuts(type, to);
    const plan = this.search(prices, type, from, to);
    if (plan === undefined) return undefined;
    if (this.plans.size >= PLAN_LIMIT) this.plans.clear();
    this.plans.set(key, plan);
    return plan;
  }

  private search(
    prices: TypePrices,
    type: MovedType,
    from: number,
    to: number,
  ): RedistributionPlan | undefined {
    const { space } = this;
    const { graph } = prices;
    const source = graph.stateOf(from);
    const target = graph.stateOf(to);
    const orbit = prices.symmetry.of(source);
    const canonical = this.row(prices, orbit.canonical);
    const dist = Float64Array.from(orbit.states, (s) => canonical[s]);
    if (dist[target] === Infinity) return undefined;
    const site = { graph, space, active: this.active };
    const edges =
      source === target ? [] : bestPath(site, prices.prices, dist, { source, target, from });
    const steps: RedistributionStep[] = [];
    let before = space.get(from);
    let text = before.orderedText;
    let operand = localTensorBytes(space, from, type);
    let peakBytes = operand;
    let seconds = 0;
    let collectives = 0;
    for (const e of edges) {
      const slot = graph.slots[graph.edgeSlot[e]];
      const meshDims = graph.dimLists[graph.edgeDims[e]];
      const id = space.intern(shardingOfState(site, graph.edgeTarget[e], from));
      const after = space.get(id);
      const price = prices.prices[graph.edgeSlot[e]];
      const held = localTensorBytes(space, id, type);
      const pieceBytes = communicates(slot)
        ? this.pricing.pieceBytes(slot, graph.cuts[slot.cuts], type, Math.max(operand, held))
        : undefined;
      steps.push({
        kind: slot.kind,
        meshDims,
        groupSize: slot.devices,
        bytes: this.pricing.bytes(slot, graph.cuts[slot.cuts], type),
        seconds: price,
        to: id,
        ...defined({ pieceBytes }),
        ...(slot.kind === 'collective_permute' && {
          pairs: permutationPairs(before, after, space.mesh, meshDims),
        }),
      });
      seconds += price;
      if (communicates(slot)) collectives++;
      text += (meshDims.length > 1 ? '-->' : '->') + after.orderedText;
      peakBytes = Math.max(peakBytes, held);
      operand = held;
      before = after;
    }
    if ((steps.at(-1)?.to ?? from) !== to) {
      const meshDims = this.renamed(from, to);
      steps.push({ kind: 'relabel', meshDims, groupSize: 1, bytes: 0, seconds: 0, to });
      text += `->${space.get(to).orderedText}`;
    }
    return { from, to, seconds, steps, collectives, peakBytes, text };
  }

  /** Mesh dims of one device whose placement differs, though nothing moves. */
  private renamed(from: number, to: number): number[] {
    const { space } = this;
    return space.mesh.sizes.flatMap((_, m) =>
      !this.active.includes(m) && space.kindAt(from, m) !== space.kindAt(to, m) ? [m] : [],
    );
  }

  /** @throws E_PLACEMENT when a kind cannot cut a dim of the shape into its pieces */
  private checkCuts(type: MovedType, id: number): void {
    const { space } = this;
    const sharding = space.get(id);
    for (const dim of sharding.orders.keys()) {
      const reason = refusedCut(sharding, space.mesh, dim, type.shape[dim]);
      if (reason !== undefined)
        throw new ShardwrightError(
          'E_PLACEMENT',
          `${space.text(id)} does not fit [${type.shape.join(', ')}]: ${reason}`,
        );
    }
  }

  /** Why a change is refused, naming the legal route; undefined when it is allowed. */
  refusal(from: number, to: number): string | undefined {
    return this.refusals.refused(from, to) ? this.refusals.reason(from, to) : undefined;
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
    const { kinds, lastDim } = this.refusals;
    let mask = 0;
    for (const id of ids) {
      this.refusals.read(id);
      mask |= kinds[id];
      if (lastDim[id] >= rank)
        throw new ShardwrightError(
          'E_PLACEMENT',
          `${this.space.text(id)} cuts dim ${lastDim[id]} of a ${rank}-D tensor`,
        );
    }
    const graphKey = `${rank}|${mask}`;
    const entry = this.graphOf(graphKey, rank, ids);
    // Pieces of cuts that are not ceil chunks depend on the sizes themselves.
    const size = entry.graph.hasSpecialCuts
      ? `${type.itemBytes}|${type.shape.join(',')}|${type.order?.join() ?? ''}`
      : sizeKey(type, this.activeProduct);
    const typeKey = `${graphKey}|${size}`;
    let prices = this.types.get(typeKey);
    if (prices === undefined || prices.graph !== entry.graph) {
      const { graph, finder, symmetries } = entry;
      const classes = dimClasses(type, this.activeProduct);
      const slotPrices = this.pricing.slots(graph, type);
      const swaps = entry.exchanges.withEqualPrices(slotPrices);
      const classKey = `${classes.join(' ')}|${swaps.map(({ a, b }) => `${a}=${b}`).join()}`;
      let symmetry = symmetries.get(classKey);
      if (symmetry === undefined)
        symmetries.set(classKey, (symmetry = new DimSymmetry(graph, classes, swaps)));
      const rows = new Array<Float64Array | undefined>(graph.stateCount).fill(undefined);
      prices = {
        key: typeKey,
        graph,
        finder,
        symmetry,
        prices: slotPrices,
        rows,
        known: 0,
        parts: new WeakMap(),
      };
      this.types.set(typeKey, prices);
    }
    return prices;
  }

  /** The state graph of some kinds and a rank; it grows by the shardings that it lacks. */
  private graphOf(key: string, rank: number, ids: readonly number[]): KnownGraph {
    const entry = this.graphs.get(key);
    const known = entry?.graph;
    const missing = known === undefined ? ids : ids.filter((id) => known.stateOf(id) < 0);
    if (entry !== undefined && missing.length === 0) return entry;
    const seeds = new Set(entry?.seeds);
    for (const id of missing) seeds.add(id);
    this.checkTime?.();
    const graph = new StateGraph(this.space, this.active, rank, seeds, this.merge);
    const made = {
      graph,
      seeds,
      symmetries: new Map<string, DimSymmetry>(),
      exchanges: new AxisExchanges(graph),
      finder: new PathFinder(graph.edgeStart, graph.edgeTarget, graph.edgeSlot),
    };
    this.graphs.set(key, made);
    return made;
  }
}
