/**
 * What a redistribution keeps busy. In: a planning model. Out: the seconds of every entry of its tables by stream: collectives
 * by kind of link, alone and in a bucket, and local copies. They are those of the steps that run.
 */
import { COLLECTIVE_KINDS } from '../../cost/collective-model.ts';
import { communicates, type PriceSlot } from '../../cost/redistribution/slots.ts';
import type { StepSplit } from '../../cost/redistribution/redistribute.ts';
import { internalError } from '../../errors.ts';
import type { CopyVariable, Model, Use } from '../model/model.ts';
import { splitStep } from './rules.ts';
import { COMPUTE, LINK_STREAMS, Streams } from './streams.ts';

/** Seconds that a move keeps each stream busy, row by row of its table; the compute stream with local copies. */
export interface MoveParts {
  readonly alone: readonly Float64Array[];
  /**
   * As a share of a full bucket. The seconds of a bucket for each of its bytes fall with its bytes, so it takes no less than the
   * shares of all its members.
   */
  readonly share: readonly Float64Array[];
  /** What it adds to the fullest bucket. Seconds are concave in bytes: with one member alone, the others add no less than that. */
  readonly added: readonly Float64Array[];
}

const PRICES = ['alone', 'share', 'added'] as const;
/** What a collective is priced by. */
export type CollectivePrice = (typeof PRICES)[number];
const LINKS = LINK_STREAMS - 1;

/**
 * The parts of the moves of a model, each worked out once: whole tables, and single entries of them. An entry of a table that is
 * not known whole is the only one that is worked out.
 */
export class MoveTables {
  private readonly parts = new Map<string, MoveParts>();
  private readonly owners = new Map<number, Int32Array>();
  private readonly split: StepSplit;
  /** Those of `simulate` by default. */
  readonly streams: Streams;

  constructor(
    private readonly model: Model,
    /** Most bytes of a bucket of collectives, and seconds before every kernel. */
    options: { readonly bucketBytes: number; readonly launchSeconds: number },
  ) {
    this.split = { count: 1 + PRICES.length * LINKS, of: (slot, bytes, seconds) => this.ofStep(slot, bytes, seconds, options) };
    this.streams = new Streams('link', model.space.mesh, model.cluster);
  } // prettier-ignore

  /** From the owned placement to the copy of each value of a copy variable; nothing where it has none. */
  ofCopy({ value, owned, copy }: CopyVariable, times: number, vector: number): MoveParts {
    return this.known(`c${vector}`, () => this.made(value, owned, copy, times));
  }

  /** The redistributions of a use itself, by entry of its table. */
  ofUse(use: Use, table: number): MoveParts {
    return this.known(`u${table}`, () => this.used(use, this.ownedOf(use), this.copyOf(use), use.demands.specs));
  }

  /** What making the copy takes, by entry of the table of the first use, where that use takes the copy. */
  ofMaking(use: Use, table: number): MoveParts {
    return this.known(`m${table}`, () => this.making(use, this.ownedOf(use), this.copyOf(use), use.demands.specs));
  }

  /** One entry of `ofCopy`. */
  copyEntry(variable: CopyVariable, times: number, vector: number, z: number): MoveEntry {
    const { value, owned, copy } = variable;
    return this.entry(`c${vector}`, z, () => this.made(value, [owned[z]], [copy[z]], times));
  }

  /** One entry of `ofUse`. */
  useEntry(use: Use, table: number, i: number): MoveEntry {
    return this.entry(`u${table}`, i, () => this.used(use, ...this.pair(use, i)));
  }

  /** One entry of `ofMaking`. */
  makingEntry(use: Use, table: number, i: number): MoveEntry {
    return this.entry(`m${table}`, i, () => this.making(use, ...this.pair(use, i)));
  }

  private pair(use: Use, i: number): [readonly number[], readonly number[], readonly number[]] {
    const { specs } = use.demands;
    const z = Math.floor(i / specs.length);
    return [[this.ownedOf(use)[z]], [this.copyOf(use)[z]], [specs[i % specs.length]]];
  }

  private made(value: number, owned: Ids, copy: Ids, times: number): MoveParts {
    const wanted = [...new Set(Array.from(copy).filter((q) => q >= 0))];
    const matrix = this.matrix(value, owned, wanted, times);
    return picked(matrix, owned.length, (z) => (copy[z] < 0 ? -1 : z * wanted.length + wanted.indexOf(copy[z])));
  }

  private used(use: Use, owned: Ids, copy: Ids, wanted: Ids): MoveParts {
    const direct = this.matrix(use.value, owned, wanted, use.times);
    if (use.copy < 0) return direct;
    const fromCopy = this.matrix(use.value, fallback(copy, owned), wanted, use.times);
    return merged(direct, fromCopy, this.takesCopy(use, owned, copy, wanted));
  }

  private making(use: Use, owned: Ids, copy: Ids, wanted: Ids): MoveParts {
    const made = [...new Set(Array.from(copy).filter((q) => q >= 0))];
    const matrix = this.matrix(use.value, owned, made, use.times);
    const takes = this.takesCopy(use, owned, copy, wanted);
    return picked(matrix, owned.length * wanted.length, (i) => {
      const z = Math.floor(i / wanted.length);
      return takes[i] === 1 ? z * made.length + made.indexOf(copy[z]) : -1;
    });
  }

  /** Whether the use takes the copy, by entry of its table: where that is cheaper than from the owned placement. */
  private takesCopy(use: Use, owned: Ids, copy: Ids, wanted: Ids): Uint8Array {
    const type = this.model.charges.typeOf(this.model.flow.values[use.value]);
    const direct = this.model.charges.matrix(type, owned, wanted);
    const shared = this.model.charges.matrix(type, fallback(copy, owned), wanted);
    const takes = new Uint8Array(direct.length);
    const width = wanted.length;
    for (let z = 0; z < owned.length; z++) {
      if (copy[z] < 0) continue;
      for (let i = z * width; i < (z + 1) * width; i++) takes[i] = Number(shared[i] < direct[i]);
    }
    return takes;
  }

  /** What the rows of the table of a use are: placements that the producer leaves, and the copy of each, -1 where there is none. */
  private ownedOf(use: Use): Ids {
    return use.copy < 0 ? this.ownedBy(use.value) : this.model.copies[use.copy].owned;
  }

  private copyOf(use: Use): Ids {
    return use.copy < 0 ? this.ownedBy(use.value).map(() => -1) : this.model.copies[use.copy].copy;
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

  private matrix(value: number, from: Ids, to: Ids, times: number): MoveParts {
    const { model } = this;
    const type = model.charges.typeOf(model.flow.values[value]);
    const once = model.redistributor.partsMatrix(type, from, to, this.split);
    const parts = times === 1 ? once : once.map((seconds) => seconds.map((s) => times * s));
    const [copies, ...others] = parts;
    const [alone, share, added] = PRICES.map((_, p) => [copies, ...others.slice(p * LINKS, (p + 1) * LINKS)]);
    return { alone, share, added };
  }

  /** Parts of one step of a redistribution: the local copy in it, and by price and stream its collective. */
  private ofStep(slot: PriceSlot, bytes: number, seconds: number, { bucketBytes, launchSeconds }: { readonly bucketBytes: number; readonly launchSeconds: number }): number[] {
    const { meshDims } = slot;
    const kind = COLLECTIVE_KINDS.find((k) => k === slot.kind);
    const parts = new Array<number>(this.split.count).fill(0);
    const launched = (work: number): number => (work > 0 ? work + launchSeconds : 0);
    if (kind === undefined || !communicates(slot)) {
      parts[COMPUTE] = launched(seconds);
      return parts;
    }
    const { communicating, copying } = splitStep(this.model.collectives, kind, { bytes, meshDims, seconds });
    const alone = launched(communicating);
    const isPacked = bytes < bucketBytes;
    const of = (n: number): number => launched(this.model.collectives.seconds(kind, n, meshDims));
    const share = isPacked ? (bytes / bucketBytes) * of(bucketBytes) : alone;
    const added = isPacked ? Math.max(0, of(bucketBytes) - of(bucketBytes - bytes)) : alone;
    parts[COMPUTE] = launched(copying);
    [alone, share, added].forEach((price, p) => (parts[p * LINKS + this.streams.of(meshDims)] = Math.min(alone, price)));
    return parts;
  } // prettier-ignore

  private known(key: string, make: () => MoveParts): MoveParts {
    let parts = this.parts.get(key);
    if (parts === undefined) this.parts.set(key, (parts = make()));
    return parts;
  }

  private entry(table: string, i: number, make: () => MoveParts): MoveEntry {
    const whole = this.parts.get(table);
    return whole === undefined ? { parts: this.known(`${table}:${i}`, make), at: 0 } : { parts: whole, at: i };
  }
}

/** Placements, by row or column of a table. */
type Ids = ArrayLike<number>;

/** Place `at` of some parts. */
export interface MoveEntry {
  readonly parts: MoveParts;
  readonly at: number;
}

/** The copies, and the owned placements where there is no copy. */
function fallback(copy: Ids, owned: Ids): Int32Array {
  return Int32Array.from(copy, (q, z) => (q < 0 ? owned[z] : q));
}

/** Entries of another matrix, 0 where the index is -1. */
function picked(parts: MoveParts, length: number, at: (i: number) => number): MoveParts {
  const indices = new Int32Array(length);
  for (let i = 0; i < length; i++) indices[i] = at(i);
  const pick = (from: Float64Array): Float64Array => {
    const out = new Float64Array(length);
    for (let i = 0; i < length; i++) if (indices[i] >= 0) out[i] = from[indices[i]];
    return out;
  };
  return { alone: parts.alone.map(pick), share: parts.share.map(pick), added: parts.added.map(pick) };
}

function merged(a: MoveParts, b: MoveParts, second: Uint8Array): MoveParts {
  const merge = (x: Float64Array, y: Float64Array): Float64Array => {
    const out = Float64Array.from(x);
    for (let i = 0; i < out.length; i++) if (second[i] === 1) out[i] = y[i];
    return out;
  };
  const both = (x: readonly Float64Array[], y: readonly Float64Array[]): readonly Float64Array[] =>
    x.map((part, s) => merge(part, y[s]));
  return { alone: both(a.alone, b.alone), share: both(a.share, b.share), added: both(a.added, b.added) };
}
