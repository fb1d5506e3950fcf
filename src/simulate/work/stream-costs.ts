/**
 * Makes the problem of a planning model with every price weighted by a packing of its streams, and
 * the seconds that one choice keeps each stream busy.
 */
import type { Cut } from '../../solver/dual/best-mixture.ts';
import type { Problem } from '../../solver/types.ts';
import type { KernelOrder } from './kernel-order.ts';
import type { LongestPath } from './longest-path.ts';
import type { MoveParts } from './move-parts.ts';
import { everyStretch, Packing, type Stretch } from './packing.ts';
import type { MoveWeights, WorkWeights } from './path-mixture.ts';
import { secondsAt, type Site, type StepWork } from './step-work.ts';
import { ANY_LINK, COMPUTE, LINK_STREAMS } from './streams.ts';

/** Plans of least seconds whose stretches say where the program is cut. */
const PLANS_OF_CUTS = 4;
/** Share of the cuts that are left to bins of equal seconds, at least. */
const EQUAL_SHARE = 1 / 4;

/** Places of a program: bins of kernels, and what lies between them. */
export class StreamCosts {
  /** The first place is before all kernels, the last after them. */
  readonly places: number;
  readonly stretches: readonly Stretch[];
  readonly none: Packing;
  private readonly binOf: Int32Array;

  /**
   * @param bins of kernels that packings tell apart
   * @param paths of plans: the program is cut where streams take over in those of them that take
   *   least
   */
  constructor(
    readonly work: StepWork,
    bins: number,
    paths: readonly LongestPath[] = [],
  ) {
    const { order } = work;
    this.binOf = binsOf(order, cutsOf(work, Math.max(1, Math.min(bins, order.count)), paths));
    this.places = 2 * (order.count === 0 ? 1 : this.binOf[order.count - 1] + 1) + 1;
    this.stretches = everyStretch(this.places, work.streams);
    this.none = this.packing(this.stretches.map(() => 0));
  }

  packing(shares: readonly number[]): Packing {
    return new Packing(this.places, this.stretches, shares);
  }

  /** First place in which what waits for the end of a kernel can run. */
  private placeAfter(kernel: number): number {
    if (kernel < 0) return 0;
    const bin = this.binOf[kernel];
    const isLast = kernel + 1 === this.binOf.length || this.binOf[kernel + 1] > bin;
    return 2 * bin + (isLast ? 2 : 1);
  }

  /** Last place in which what a kernel waits for can run. */
  private placeBefore(kernel: number): number {
    if (kernel >= this.binOf.length) return this.places - 1;
    const bin = this.binOf[kernel];
    const isFirst = kernel === 0 || this.binOf[kernel - 1] < bin;
    return 2 * bin + (isFirst ? 0 : 1);
  }

  private placeOfKernel(kernel: number): number {
    return 2 * this.binOf[kernel] + 1;
  }

  /**
   * The model's problem with weighted prices: every bound on it is one on the overlapped step.
   *
   * @param serial share of the prices one after another that is added; with more than 0 the problem
   *   bounds nothing, but its plans move less that may or may not be hidden
   */
  problem(packing: Packing | WorkWeights, serial = 0): Problem {
    const weights = packing instanceof Packing ? this.weightsOf(packing) : packing;
    return new WeightedProblem(this.work, weights, serial).make();
  }

  /**
   * The bound on the step of one choice, as a function of the shares: the seconds of the chain, and
   * what a share of 1 of each stretch adds. Copies that can run in several places of the chain
   * count in that where it has the least share in a packing, so that other packings are never given
   * less than they are worth.
   */
  cut(choice: Int32Array, packing = this.none): Cut {
    const { places, work } = this;
    const chain = new Float64Array(places);
    const own = Array.from({ length: LINK_STREAMS }, () => new Float64Array(places * places));
    work.visit(choice, {
      kernel: (at, seconds) => {
        const place = this.placeOfKernel(at);
        chain[place] += seconds;
        own[COMPUTE][place * places + place] += seconds;
      },
      move: (site, { parts, at: i }, sign) => {
        const [lo, hi] = this.placesOf(site);
        const lists = secondsAt(site, parts);
        for (let stream = 0; stream < lists.length; stream++) {
          const seconds = sign * lists[stream][i];
          if (site.chained[stream]) chain[lo] += seconds;
          if (site.isFree && stream === COMPUTE) chain[packing.leastChained(lo, hi)] += seconds;
          if (stream < LINK_STREAMS) own[stream][lo * places + hi] += seconds;
        }
      },
    });
    const slopes = this.stretches.map(({ stream, from, to }) => {
      let sum = 0;
      for (let lo = from; lo <= to; lo++) {
        sum -= chain[lo];
        for (let hi = lo; hi <= to; hi++) sum += own[stream][lo * places + hi];
      }
      return sum;
    });
    return { constant: chain.reduce((a, b) => a + b, 0), slopes };
  }

  private placesOf({ after, before }: Site): [number, number] {
    return [this.placeAfter(after), this.placeBefore(before)];
  }

  /** The weights that the shares of a packing give to pieces of work. */
  private weightsOf(packing: Packing): WorkWeights {
    const known = new Map<readonly boolean[], (MoveWeights | undefined)[]>();
    const made = (lo: number, hi: number, { chained, isFree }: Site): MoveWeights => {
      const byStream = chained.map((isChained, s) => {
        if (isChained) return packing.chained(s, lo);
        const free =
          isFree && s === COMPUTE ? packing.chained(ANY_LINK, packing.leastChained(lo, hi)) : 0;
        return s < LINK_STREAMS ? packing.hidden(s, lo, hi) + free : 0;
      });
      return { byStream, latency: 0 };
    };
    return {
      kernel: (at) => packing.chained(COMPUTE, this.placeOfKernel(at)),
      // Few places, and few ways to be chained: many sites share their weights.
      move: (site) => {
        let own = known.get(site.chained);
        if (own === undefined) known.set(site.chained, (own = []));
        const [lo, hi] = this.placesOf(site);
        return (own[2 * (lo * this.places + hi) + Number(site.isFree)] ??= made(lo, hi, site));
      },
    };
  }
}

const NONE: MoveWeights = { byStream: [], latency: 0 };

/** The problem of a model with weighted prices. Equal vectors and tables are made once. */
class WeightedProblem {
  private readonly vectors: Float64Array[] = [];
  private readonly tables: Problem['tables'][number][] = [];
  private readonly known = new Map<string, number>();
  private readonly numbers = new WeightNumbers();

  constructor(
    private readonly work: StepWork,
    private readonly weights: WorkWeights,
    private readonly serial: number,
  ) {}

  make(): Problem {
    const { variables, edges, problem } = this.work.model;
    const unary = Int32Array.from(variables, (_, v) => this.vectorOf(v));
    const table = Int32Array.from(edges, (_, e) => this.tableOf(e));
    return {
      ...problem,
      vectors: this.vectors,
      tables: this.tables,
      unary,
      edges: { ...problem.edges, table },
    };
  }

  private vectorOf(v: number): number {
    const { work, weights } = this;
    const { model } = work;
    const variable = model.variables[v];
    const id = model.problem.unary[v];
    const base = model.problem.vectors[id];
    if (variable.kind === 'node') return this.nodeVector(variable.node, id, base);
    if (variable.kind === 'output')
      return this.shared(this.vectors, `v${id}`, () => base.map(() => 0));
    const site = work.copySites[variable.copy];
    const own = weights.move(site);
    return this.shared(this.vectors, `v${id}:${site.price}:${this.numbers.of(own)}`, () => {
      const made = work.moves.weighCopy(
        model.copies[variable.copy],
        work.timesOfCopy(variable.copy),
        id,
        (parts, i) => weighed(site, parts, i, own),
      );
      return base.map((cost, z) => this.units(made[z], cost));
    });
  }

  /** A node costs the time of its kernels, and of the moves inside of it. */
  private nodeVector(node: number, id: number, base: Float64Array): number {
    const { work, weights } = this;
    const at = work.order.ofNode[node];
    const kernel = at < 0 ? 0 : weights.kernel(at);
    const inside = work.insideOf(node);
    const own = inside === undefined ? NONE : weights.move(inside.site);
    return this.shared(this.vectors, `v${id}:${kernel}:${this.numbers.of(own)}`, () => {
      const seconds = work.kernelSeconds(node);
      return base.map((cost, a) =>
        this.units(
          kernel * seconds[a] +
            (inside === undefined ? 0 : weighed(inside.site, inside.parts, a, own)),
          cost,
        ),
      );
    });
  }

  private tableOf(e: number): number {
    const { work, weights, numbers } = this;
    const { model, moves } = work;
    const id = model.problem.edges.table[e];
    const base = model.problem.tables[id];
    const edge = model.edges[e];
    if (edge.kind !== 'use') return this.shared(this.tables, `t${id}`, () => base);
    const use = model.uses[edge.use];
    const site = work.useSites[edge.use];
    const own = weights.move(site);
    const isFirst = use.copy >= 0 && work.firstUse[use.copy] === edge.use;
    const late = isFirst ? work.copySites[use.copy] : undefined;
    const lateWeights = late === undefined ? NONE : weights.move(late);
    const key = `t${id}:${site.price}:${numbers.of(own)}:${late?.price}:${numbers.of(lateWeights)}`;
    return this.shared(this.tables, key, () => {
      const seconds = moves.weighUse(use, id, (parts, i) => weighed(site, parts, i, own));
      if (late !== undefined) {
        // A copy that is made for the first use can run in a part of the copy's places, and weighs
        // no less there.
        const more = moves.weighMaking(use, id, (parts, i) =>
          Math.max(0, weighed(site, parts, i, own) - weighed(late, parts, i, lateWeights)),
        );
        for (let i = 0; i < more.length; i++) seconds[i] += more[i];
      }
      return { ...base, costs: seconds.map((s, i) => this.units(s, base.costs[i])) };
    });
  }

  private shared<T>(store: T[], key: string, make: () => T): number {
    let at = this.known.get(key);
    if (at === undefined) this.known.set(key, (at = store.push(make()) - 1));
    return at;
  }

  /** Seconds in the unit of the problem, rounded down: a bound in units is one in seconds. */
  private units(seconds: number, base: number): number {
    if (base === Infinity) return Infinity;
    const { unitsPerSecond, quantum } = this.work.model;
    return Math.floor((seconds * unitsPerSecond + this.serial * base) / quantum) * quantum;
  }
}

/** A number for each content of weights. */
class WeightNumbers {
  private readonly known = new Map<MoveWeights, number>();
  private readonly contents = new Map<string, number>();

  of(weights: MoveWeights): number {
    let number = this.known.get(weights);
    if (number !== undefined) return number;
    const content = `${weights.byStream.join()},${weights.latency}`;
    number = this.contents.get(content) ?? this.contents.size;
    this.contents.set(content, number);
    this.known.set(weights, number);
    return number;
  }
}

function weighed(
  site: Site,
  parts: MoveParts,
  i: number,
  { byStream, latency }: MoveWeights,
): number {
  const seconds = secondsAt(site, parts);
  let sum = 0;
  for (let s = 0; s < seconds.length; s++) sum += byStream[s] * seconds[s][i];
  if (latency > 0) for (const list of parts.alone) sum += latency * list[i];
  return sum;
}

/**
 * Kernels before which a bin begins: where streams take over in the plans that take least, and
 * where bins of equal seconds begin.
 */
function cutsOf(work: StepWork, bins: number, paths: readonly LongestPath[]): ReadonlySet<number> {
  const { count, seconds } = work.order;
  const least = [...paths].sort((a, b) => a.seconds - b.seconds).slice(0, PLANS_OF_CUTS);
  const gains = new Map<number, number>();
  for (const { stretches } of least)
    for (const { from, to, gainSeconds } of stretches)
      for (const gap of [from, to])
        if (gap > 0 && gap < count) gains.set(gap, Math.max(gains.get(gap) ?? 0, gainSeconds));
  const best = [...gains].sort(([a, x], [b, y]) => y - x || a - b).map(([gap]) => gap);
  const cuts = new Set(best.slice(0, Math.floor((bins - 1) * (1 - EQUAL_SHARE))));
  const total = seconds.reduce((a, b) => a + b, 0);
  const equal = bins - cuts.size;
  let before = 0;
  let bin = 0;
  seconds.forEach((own, k) => {
    const now = Math.min(equal - 1, Math.floor((equal * (before + own / 2)) / total));
    if (now > bin) cuts.add(k);
    bin = now;
    before += own;
  });
  return cuts;
}

function binsOf({ count }: KernelOrder, cuts: ReadonlySet<number>): Int32Array {
  let bin = 0;
  return Int32Array.from({ length: count }, (_, k) => (k > 0 && cuts.has(k) ? ++bin : bin));
}
