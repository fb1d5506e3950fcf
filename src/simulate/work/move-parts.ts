/**
 * Splits the seconds of redistributions by stream, for every entry of a model's tables: collectives
 * by kind of link, alone and in a bucket, and local copies. They are those of the steps that run.
 */
import type { PartsOfRoutes, StepSplit } from '../../cost/redistribution/redistribute.ts';
import { communicates, type PriceSlot } from '../../cost/redistribution/slots.ts';
import { internalError } from '../../errors.ts';
import { COLLECTIVE_KINDS } from '../../mesh/collective-kinds.ts';
import { copyIn, type CopyVariable, type Model, type Use } from '../../plan/model/model.ts';
import { splitStep } from './rules.ts';
import { COMPUTE, LINK_STREAMS, Streams } from './streams.ts';

/**
 * Seconds that moves keep each stream busy, by stream and then by move; the compute stream with
 * local copies.
 */
export interface MoveParts {
  readonly alone: readonly Float64Array[];
  /**
   * The seconds as a share of a full bucket. The seconds of a bucket for each of its bytes fall
   * with its bytes, so it takes no less than the shares of all its members.
   */
  readonly share: readonly Float64Array[];
  /**
   * The seconds that it adds to the fullest bucket. Seconds are concave in bytes: with one member
   * alone, the others add no less than that.
   */
  readonly added: readonly Float64Array[];
}

/** One move: place `at` of some parts. */
export interface MoveEntry {
  readonly parts: MoveParts;
  readonly at: number;
}

/** A number for move `i` of some parts. */
type Weigh = (parts: MoveParts, i: number) => number;

const PRICES = ['alone', 'share', 'added'] as const;
/** The ways to price a collective. */
export type CollectivePrice = (typeof PRICES)[number];
const LINKS = LINK_STREAMS - 1;

/** The parts of the moves of a model: of single ones, and whole tables weighed. */
export class MoveTables {
  /** By vector of a copy, and by table of a use. */
  private readonly copyRoutes = new Map<number, Routes>();
  private readonly useRoutes = new Map<number, Routes>();
  private readonly owners = new Map<number, Int32Array>();
  private readonly split: StepSplit;
  /** The streams; default those of `simulate`. */
  readonly streams: Streams;

  constructor(
    private readonly model: Model,
    /** Most bytes of a bucket of collectives, and seconds before every kernel. */
    options: { readonly bucketBytes: number; readonly launchSeconds: number },
  ) {
    this.split = {
      count: 1 + PRICES.length * LINKS,
      of: (slot, bytes, seconds) => this.ofStep(slot, bytes, seconds, options),
    };
    this.streams = new Streams('link', model.space.mesh, model.cluster);
  }

  /**
   * By value of a copy variable: what its copy takes, from the owned placement; 0 where it has
   * none.
   */
  weighCopy(variable: CopyVariable, times: number, vector: number, weigh: Weigh): Float64Array {
    const { owned, copy } = variable;
    const routes = this.routesOfCopy(variable, times, vector);
    return Float64Array.from(owned, (id, z) =>
      copy[z] < 0 ? 0 : routes.weighed(id, copy[z], weigh),
    );
  }

  /** The redistributions of a use itself, by entry of its table. */
  weighUse(use: Use, table: number, weigh: Weigh): Float64Array {
    const routes = this.routesOfUse(use, table);
    const { owned, copy, wanted } = routes;
    const known = new Map<number, Float64Array>();
    const row = (id: number): Float64Array => {
      let costs = known.get(id);
      if (costs === undefined) known.set(id, (costs = routes.weighedRow(id, weigh)));
      return costs;
    };
    const width = wanted.length;
    const out = new Float64Array(owned.length * width);
    for (let z = 0; z < owned.length; z++) {
      const direct = row(owned[z]);
      if (copy[z] < 0) {
        out.set(direct, z * width);
        continue;
      }
      const shared = row(copy[z]);
      const [alone, fromCopy] = [routes.seconds(owned[z]), routes.seconds(copy[z])];
      for (let j = 0; j < width; j++)
        out[z * width + j] = fromCopy[j] < alone[j] ? shared[j] : direct[j];
    }
    return out;
  }

  /**
   * The work of making the copy, by entry of the table of the first use; 0 where that use does not
   * take the copy.
   */
  weighMaking(use: Use, table: number, weigh: Weigh): Float64Array {
    const routes = this.routesOfUse(use, table);
    const { owned, copy, wanted } = routes;
    const width = wanted.length;
    const out = new Float64Array(owned.length * width);
    for (let z = 0; z < owned.length; z++) {
      if (copy[z] < 0) continue;
      const made = routes.weighed(owned[z], copy[z], weigh);
      const [alone, fromCopy] = [routes.seconds(owned[z]), routes.seconds(copy[z])];
      for (let j = 0; j < width; j++) if (fromCopy[j] < alone[j]) out[z * width + j] = made;
    }
    return out;
  }

  /** One entry of `weighCopy`, not weighed; `NO_MOVE` where nothing takes any time. */
  copyEntry(variable: CopyVariable, times: number, vector: number, z: number): MoveEntry {
    const to = variable.copy[z];
    return to < 0
      ? NO_MOVE
      : this.routesOfCopy(variable, times, vector).entry(variable.owned[z], to);
  }

  /** One entry of `weighUse`. */
  useEntry(use: Use, table: number, i: number): MoveEntry {
    return this.routesOfUse(use, table).moveAt(i);
  }

  /** One entry of `weighMaking`. */
  makingEntry(use: Use, table: number, i: number): MoveEntry {
    return this.routesOfUse(use, table).makingAt(i);
  }

  private routesOfCopy(
    { value, owned, copy }: CopyVariable,
    times: number,
    vector: number,
  ): Routes {
    let routes = this.copyRoutes.get(vector);
    if (routes === undefined)
      this.copyRoutes.set(
        vector,
        (routes = this.made({ value, times }, { owned, copy, wanted: [] })),
      );
    return routes;
  }

  /** Rows of its table: placements that the producer leaves, and the copy of each. */
  private routesOfUse(use: Use, table: number): Routes {
    let routes = this.useRoutes.get(table);
    if (routes === undefined) this.useRoutes.set(table, (routes = this.routesFor(use)));
    return routes;
  }

  private routesFor(use: Use): Routes {
    const wanted = use.demands.specs;
    if (use.copy >= 0) {
      const shared = this.model.copies[use.copy];
      const copy = shared.copy.map((_, z) => copyIn(shared, z, use.phase));
      return this.made(use, { owned: shared.owned, copy, wanted });
    }
    const owned = this.ownedBy(use.value);
    return this.made(use, { owned, copy: owned.map(() => -1), wanted });
  }

  private made({ value, times }: Pick<Use, 'value' | 'times'>, ends: RouteEnds): Routes {
    const { charges, flow, redistributor } = this.model;
    const type = charges.typeOf(flow.values[value]);
    const ids = new Set([
      ...Array.from(ends.owned),
      ...Array.from(ends.copy).filter((q) => q >= 0),
      ...Array.from(ends.wanted),
    ]);
    const parts = redistributor.parts(type, [...ids], this.split);
    return new Routes(ends, parts, times, (from) => charges.matrix(type, from, ends.wanted));
  }

  /** Distinct placements that the producer of a value leaves, in the order of its table. */
  private ownedBy(value: number): Int32Array {
    let owned = this.owners.get(value);
    if (owned !== undefined) return owned;
    const { node, result } = this.model.flow.values[value];
    const entry = this.model.strategies.nodes[node];
    if (entry === null) throw internalError(`node ${node} has no strategies`);
    const { set } = entry;
    const width = set.inputCount + set.outputCount;
    const seen = new Set<number>();
    for (let s = 0; s < set.count; s++) seen.add(set.specs[s * width + set.inputCount + result]);
    this.owners.set(value, (owned = Int32Array.from(seen)));
    return owned;
  }

  /**
   * Parts of one step of a redistribution: the local copy in it, and by price and stream its
   * collective.
   */
  private ofStep(
    slot: PriceSlot,
    bytes: number,
    seconds: number,
    {
      bucketBytes,
      launchSeconds,
    }: { readonly bucketBytes: number; readonly launchSeconds: number },
  ): number[] {
    const { meshDims } = slot;
    const kind = COLLECTIVE_KINDS.find((k) => k === slot.kind);
    const parts = new Array<number>(this.split.count).fill(0);
    const launched = (work: number): number => (work > 0 ? work + launchSeconds : 0);
    if (kind === undefined || !communicates(slot)) {
      parts[COMPUTE] = launched(seconds);
      return parts;
    }
    const { communicating, copying } = splitStep(this.model.collectives, kind, {
      bytes,
      meshDims,
      seconds,
    });
    const alone = launched(communicating);
    const isPacked = bytes < bucketBytes;
    const of = (n: number): number => launched(this.model.collectives.seconds(kind, n, meshDims));
    const share = isPacked ? (bytes / bucketBytes) * of(bucketBytes) : alone;
    const added = isPacked ? Math.max(0, of(bucketBytes) - of(bucketBytes - bytes)) : alone;
    parts[COMPUTE] = launched(copying);
    [alone, share, added].forEach(
      (price, p) => (parts[p * LINKS + this.streams.of(meshDims)] = Math.min(alone, price)),
    );
    return parts;
  }
}

/** Placements, by row or column of a table. */
type Ids = ArrayLike<number>;

interface RouteEnds {
  /** By row: where a value is, and the copy of it that may be taken instead; -1: none. */
  readonly owned: Ids;
  readonly copy: Ids;
  /** By column: where it is needed. */
  readonly wanted: Ids;
}

const NO_SECONDS = Array.from({ length: LINK_STREAMS }, () => new Float64Array(1));
/** An entry that moves nothing, or takes no time on any stream at any price. */
export const NO_MOVE: MoveEntry = {
  parts: { alone: NO_SECONDS, share: NO_SECONDS, added: NO_SECONDS },
  at: 0,
};

/** The moves of one table. Its many rows have few placements: each is looked at once. */
class Routes implements RouteEnds {
  readonly owned: Ids;
  readonly copy: Ids;
  readonly wanted: Ids;
  private readonly parts = new Map<number, MoveParts>();
  private charged: ReadonlyMap<number, Float64Array> | undefined;
  /** By entry of the table: what was asked for. */
  private readonly moves = new Map<number, MoveEntry>();
  private readonly makings = new Map<number, MoveEntry>();
  private states: Int32Array | undefined;

  constructor(
    { owned, copy, wanted }: RouteEnds,
    private readonly steps: PartsOfRoutes,
    private readonly times: number,
    /** Charged seconds from each placement to each that is needed. */
    private readonly charge: (from: readonly number[]) => Float64Array,
  ) {
    this.owned = owned;
    this.copy = copy;
    this.wanted = wanted;
  }

  entry(from: number, to: number): MoveEntry {
    const parts = this.partsFrom(from);
    const at = this.steps.stateOf(to);
    const isIdle = PRICES.every((price) => parts[price].every((seconds) => seconds[at] === 0));
    return isIdle ? NO_MOVE : { parts, at };
  }

  /** The move of entry `i` of the table. */
  moveAt(i: number): MoveEntry {
    let known = this.moves.get(i);
    if (known !== undefined) return known;
    const width = this.wanted.length;
    const [z, j] = [Math.floor(i / width), i % width];
    known = this.entry(this.takesCopy(z, j) ? this.copy[z] : this.owned[z], this.wanted[j]);
    this.moves.set(i, known);
    return known;
  }

  /** The copy that entry `i` of the table takes, as it is made. */
  makingAt(i: number): MoveEntry {
    let known = this.makings.get(i);
    if (known !== undefined) return known;
    const width = this.wanted.length;
    const z = Math.floor(i / width);
    known = this.takesCopy(z, i % width) ? this.entry(this.owned[z], this.copy[z]) : NO_MOVE;
    this.makings.set(i, known);
    return known;
  }

  /** By column: what the moves from a placement weigh. */
  weighedRow(from: number, weigh: Weigh): Float64Array {
    const parts = this.partsFrom(from);
    this.states ??= Int32Array.from(this.wanted, (to) => this.steps.stateOf(to));
    const out = new Float64Array(this.states.length);
    for (let j = 0; j < out.length; j++) out[j] = weigh(parts, this.states[j]);
    return out;
  }

  weighed(from: number, to: number, weigh: Weigh): number {
    return weigh(this.partsFrom(from), this.steps.stateOf(to));
  }

  /** Tells whether the copy is taken: where that is cheaper than from the owned placement. */
  takesCopy(z: number, j: number): boolean {
    return this.copy[z] >= 0 && this.seconds(this.copy[z])[j] < this.seconds(this.owned[z])[j];
  }

  /** By column: charged seconds from a placement. */
  seconds(from: number): Float64Array {
    this.charged ??= this.chargedFrom();
    const row = this.charged.get(from);
    if (row === undefined) throw internalError(`placement ${from} is in no row`);
    return row;
  }

  private chargedFrom(): Map<number, Float64Array> {
    const ids = [
      ...new Set([...Array.from(this.owned), ...Array.from(this.copy).filter((q) => q >= 0)]),
    ];
    const all = this.charge(ids);
    const width = this.wanted.length;
    return new Map(ids.map((id, r) => [id, all.subarray(r * width, (r + 1) * width)]));
  }

  private partsFrom(id: number): MoveParts {
    let known = this.parts.get(id);
    if (known !== undefined) return known;
    const once = this.steps.from(id);
    const { times } = this;
    const [copies, ...others] =
      times === 1 ? once : once.map((seconds) => seconds.map((s) => times * s));
    known = everyPrice((p) => [copies, ...others.slice(p * LINKS, (p + 1) * LINKS)]);
    this.parts.set(id, known);
    return known;
  }
}

function everyPrice(of: (price: number) => readonly Float64Array[]): MoveParts {
  const [alone, share, added] = PRICES.map((_, p) => of(p));
  return { alone, share, added };
}
