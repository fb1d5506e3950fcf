/** Builds the integer problem from vectors, maps and costs in seconds, with its rounding error. */
import type { ChargedType, RedistributionCharges } from '../../cost/redistribution/charges.ts';
import { defined } from '../../defined.ts';
import { internalError, ShardwrightError } from '../../errors.ts';
import type { Problem } from '../../solver/types.ts';
import type { Model, ModelEdge, SpecList, Variable } from './model.ts';

/** A variable at an edge, and the map of its values to those of the table; -1: all of them. */
interface EdgeEnd {
  readonly variable: number;
  readonly map: number;
}

/**
 * The number side of the model while it is built: vectors, maps and cost tables in seconds, each
 * stored once by meaning (the lists of shardings and the tensor type that it prices), and turned
 * into integers together at the end.
 */
export class TableBuilder {
  private readonly listIds = new Map<string, number>();
  private readonly lists: Int32Array[] = [];
  private readonly mapIds = new Map<string, number>();
  private readonly maps: Int32Array[] = [];
  private readonly tableIds = new Map<string, number>();
  private readonly tables: { rows: number; columns: number; costs: Float64Array }[] = [];
  private readonly vectorIds = new Map<string, number>();
  private readonly vectors: Float64Array[] = [];
  private readonly variables: Variable[] = [];
  private readonly edges: ModelEdge[] = [];
  private readonly domains: number[] = [];
  private readonly unary: number[] = [];
  private readonly minPairs: { readonly first: number[]; readonly second: number[] } = {
    first: [],
    second: [],
  };
  private readonly first: number[] = [];
  private readonly second: number[] = [];
  private readonly edgeTable: number[] = [];
  private readonly firstMap: number[] = [];
  private readonly secondMap: number[] = [];

  constructor(private readonly charges: RedistributionCharges) {}

  /** Distinct shardings of a column of strategies, in order of first appearance. */
  specList(ids: Int32Array): SpecList {
    const position = new Map<number, number>();
    const map = new Int32Array(ids.length);
    let identity = true;
    for (let i = 0; i < ids.length; i++) {
      let p = position.get(ids[i]);
      if (p === undefined) {
        p = position.size;
        position.set(ids[i], p);
      }
      map[i] = p;
      if (p !== i) identity = false;
    }
    const specs = Int32Array.from(position.keys());
    return { specs, list: this.listId(specs), map, mapId: identity ? -1 : this.mapId(map) };
  }

  listId(specs: Int32Array): number {
    return internArray(specs, this.listIds, this.lists);
  }

  mapId(map: Int32Array): number {
    return internArray(map, this.mapIds, this.maps);
  }

  /** Id of a unary cost vector in seconds, known by its meaning. */
  vector(key: string, make: () => Float64Array): number {
    let id = this.vectorIds.get(key);
    if (id === undefined) {
      id = this.vectors.length;
      this.vectors.push(make());
      this.vectorIds.set(key, id);
    }
    return id;
  }

  /** Adds a variable and returns its number. */
  addVariable(variable: Variable, size: number, vector: number): number {
    this.variables.push(variable);
    this.domains.push(size);
    this.unary.push(vector);
    this.minPairs.first.push(-1);
    this.minPairs.second.push(-1);
    return this.domains.length - 1;
  }

  /**
   * Says that each value of a variable is a pair of choices; every use takes the cheaper one (maps,
   * see `specList`).
   */
  pairs(variable: number, first: number, second: number): void {
    this.minPairs.first[variable] = first;
    this.minPairs.second[variable] = second;
  }

  /**
   * Id of the table of redistribution prices from every sharding of one list to every one of
   * another.
   */
  redistribution(
    type: number,
    charged: ChargedType,
    from: SpecList,
    to: SpecList,
    times: number,
  ): number {
    return this.table(
      `r${chargedKey(type, charged)}:${from.list}:${to.list}x${times}`,
      from.specs.length,
      to.specs.length,
      () => repeated(this.charges.matrix(charged, from.specs, to.specs), times),
    );
  }

  table(key: string, rows: number, columns: number, make: () => Float64Array): number {
    let id = this.tableIds.get(key);
    if (id === undefined) {
      id = this.tables.length;
      this.tables.push({ rows, columns, costs: make() });
      this.tableIds.set(key, id);
    }
    return id;
  }

  addEdge(edge: ModelEdge, table: number, first: EdgeEnd, second: EdgeEnd): void {
    this.edges.push(edge);
    this.first.push(first.variable);
    this.second.push(second.variable);
    this.edgeTable.push(table);
    this.firstMap.push(first.map);
    this.secondMap.push(second.map);
  }

  /**
   * The problem in integers. One unit is a nanosecond divided by a power of two, chosen so that the
   * sum of every term's largest price stays below 2^52, and each price below 2^46: sums are then
   * exact in doubles, and the value that means "any cost" in a message is greater than each of
   * them.
   *
   * @param ceilingSeconds a price above it is forbidden
   * @throws E_LIMIT where prices are too far apart to be added
   */
  finish(ceilingSeconds = Infinity): BuiltProblem {
    const { terms, most, least, largest } = this.priceSums(ceilingSeconds);
    if (!(most < MOST_SECONDS))
      throw new ShardwrightError(
        'E_LIMIT',
        `the prices of this program sum to ${most} s, which is no time to plan with`,
        {
          hint:
            `check the cluster's rates and latencies and the measured tables: all prices ` +
            `together must stay below ${MOST_SECONDS} s.`,
        },
      );
    const unitsPerSecond = finestUnits(most, largest);
    // Costs are multiples of a quantum of units: bounds, which round in units, then reach the next
    // multiple exactly. Where that would round too much, so many units are tolerated instead.
    const wanted = Math.ceil((this.unary.length + this.edgeTable.length) / TERMS_PER_UNIT);
    const harmless = (MOST_ROUNDING / 2) * least * unitsPerSecond;
    const quantum = quantumOf(wanted, terms, harmless, unitsPerSecond);
    const tolerance = Math.min(wanted, Math.floor(harmless));
    const rounding = new Rounding(unitsPerSecond, quantum, ceilingSeconds);
    const vectorErrors = this.vectors.map((costs) => rounding.round(costs));
    const tableErrors = this.tables.map(({ costs }) => rounding.round(costs));
    let roundingSeconds = 0;
    for (const v of this.unary) roundingSeconds += vectorErrors[v];
    for (const t of this.edgeTable) roundingSeconds += tableErrors[t];
    return {
      variables: this.variables,
      edges: this.edges,
      unitsPerSecond,
      quantum,
      roundingSeconds,
      problem: this.problem(tolerance),
    };
  }

  /** Sums over all terms of their least and largest prices, and how many have any. */
  private priceSums(ceilingSeconds: number): PriceSums {
    const vectors = this.vectors.map((costs) => spanOf(costs, ceilingSeconds));
    const tables = this.tables.map(({ costs }) => spanOf(costs, ceilingSeconds));
    const sums = { most: 0, largest: 0, least: 0, terms: 0 };
    const spans = [...this.unary.map((v) => vectors[v]), ...this.edgeTable.map((t) => tables[t])];
    for (const span of spans) {
      sums.most += span.most;
      sums.least += span.least;
      sums.largest = Math.max(sums.largest, span.most);
      if (span.most > 0) sums.terms++;
    }
    return sums;
  }

  private problem(tolerance: number): Problem {
    return {
      domains: Int32Array.from(this.domains),
      unary: Int32Array.from(this.unary),
      vectors: this.vectors,
      edges: {
        first: Int32Array.from(this.first),
        second: Int32Array.from(this.second),
        table: Int32Array.from(this.edgeTable),
        firstMap: Int32Array.from(this.firstMap),
        secondMap: Int32Array.from(this.secondMap),
      },
      maps: this.maps,
      minPairs: {
        first: Int32Array.from(this.minPairs.first),
        second: Int32Array.from(this.minPairs.second),
      },
      tables: this.tables,
      tolerance,
    };
  }
}

/** Seconds of all terms together: at most, and at least; the largest of one term. */
interface PriceSums {
  readonly most: number;
  readonly least: number;
  readonly largest: number;
  /** Terms that have a price. */
  readonly terms: number;
}

/**
 * A problem in integer units, the meaning of its variables and edges, and the largest distance of
 * its units from seconds.
 */
type BuiltProblem = Pick<
  Model,
  'problem' | 'variables' | 'edges' | 'unitsPerSecond' | 'quantum' | 'roundingSeconds'
>;

/** Key of a tensor type whose redistributions are charged the same way. */
export function chargedKey(type: number, charged: ChargedType): string {
  const lies = charged.order === undefined ? '' : `@${charged.order.join('.')}`;
  return `${type}${charged.contiguous === false ? 'n' : ''}${lies}`;
}

/** A bound loses about a unit in so many terms. */
const TERMS_PER_UNIT = 8;

/** Largest quantum of costs, in seconds. */
const COARSEST_SECONDS = 4e-9;

/**
 * Rounding may be this share of the step where a plan is called optimal: half of it what prices
 * lose as integers, half of it what a bound may stay below the cost that it proves.
 */
export const MOST_ROUNDING = 1e-9;

/** Seconds that all prices of a program together stay below. */
const MOST_SECONDS = 1e30;

/** A unit is never finer than a nanosecond over 2 to this power. */
const FINEST_BITS = 40;

/**
 * Units in a quantum, a power of two: as wanted, at most 4 ns, and no more than keeps the rounding
 * of all priced terms, half a quantum each, harmless.
 */
function quantumOf(
  wanted: number,
  priced: number,
  harmless: number,
  unitsPerSecond: number,
): number {
  const coarsest = Math.max(1, COARSEST_SECONDS * unitsPerSecond);
  const most = Math.max(1, Math.min(coarsest, (2 * harmless) / Math.max(1, priced)));
  return 2 ** Math.min(Math.ceil(Math.log2(Math.max(1, wanted))), Math.floor(Math.log2(most)));
}

/**
 * Units per second where the largest prices of all terms sum to so many seconds, and the largest is
 * so many.
 */
function finestUnits(most: number, largest: number): number {
  const bits = Math.log2(
    Math.min((0.99 * 2 ** 52) / (most * 1e9 || 1), 2 ** 46 / (largest * 1e9 || 1)),
  );
  return 1e9 * 2 ** Math.min(FINEST_BITS, Math.floor(bits));
}

/** Units per second that a model gets where no price is above so many seconds. */
export function unitsBelow(
  { problem, unitsPerSecond }: Pick<Model, 'problem' | 'unitsPerSecond'>,
  ceilingSeconds: number,
): number {
  const ceiling = ceilingSeconds * unitsPerSecond;
  const vectors = problem.vectors.map((costs) => spanOf(costs, ceiling).most);
  const tables = problem.tables.map(({ costs }) => spanOf(costs, ceiling).most);
  let most = 0;
  let largest = 0;
  for (const span of [...problem.unary]
    .map((v) => vectors[v])
    .concat([...problem.edges.table].map((t) => tables[t]))) {
    most += span;
    largest = Math.max(largest, span);
  }
  return finestUnits(most / unitsPerSecond, largest / unitsPerSecond);
}

/** A problem, and the units of its costs in a second. */
export type ProblemInUnits = Pick<Model, 'problem' | 'unitsPerSecond'>;

/**
 * The problem in units so coarse that the sums of its costs are exact: a problem that was given
 * more costs than it was built with may sum to more. The same where they are exact as they are.
 */
export function withExactSums({ problem, unitsPerSecond }: ProblemInUnits): ProblemInUnits {
  const coarsest = unitsBelow({ problem, unitsPerSecond }, Infinity);
  if (coarsest >= unitsPerSecond) return { problem, unitsPerSecond };
  const share = coarsest / unitsPerSecond;
  const scaled = (costs: Float64Array): Float64Array => costs.map((c) => Math.round(c * share));
  return {
    unitsPerSecond: coarsest,
    problem: {
      ...problem,
      ...defined({
        constant: problem.constant && Math.round(problem.constant * share),
        tolerance: problem.tolerance && Math.floor(problem.tolerance * share),
      }),
      vectors: problem.vectors.map(scaled),
      tables: problem.tables.map((table) => ({ ...table, costs: scaled(table.costs) })),
    },
  };
}

/** Turns prices in seconds into whole quanta of units. */
class Rounding {
  constructor(
    private readonly unitsPerSecond: number,
    private readonly quantum: number,
    private readonly ceilingSeconds: number,
  ) {}

  /**
   * In place: tables are the bulk of a problem, and nobody else has them.
   *
   * @returns the largest change of a price, in seconds
   */
  round(costs: Float64Array): number {
    let worst = 0;
    const perQuantum = this.unitsPerSecond / this.quantum;
    for (let c = 0; c < costs.length; c++) {
      const exact = costs[c] * perQuantum;
      if (costs[c] > this.ceilingSeconds) costs[c] = Infinity;
      if (costs[c] === Infinity) continue;
      const rounded = Math.round(exact);
      worst = Math.max(worst, Math.abs(exact - rounded));
      costs[c] = rounded * this.quantum;
    }
    return worst / perQuantum;
  }
}

/** Costs that are paid so many times; what is forbidden stays so, even where it is never paid. */
export function repeated(costs: Float64Array, times: number): Float64Array {
  return times === 1 ? costs : costs.map((c) => (c === Infinity ? Infinity : c * times));
}

function internArray(array: Int32Array, ids: Map<string, number>, store: Int32Array[]): number {
  const key = array.join();
  let id = ids.get(key);
  if (id === undefined) {
    id = store.length;
    store.push(array);
    ids.set(key, id);
  }
  return id;
}

/** The least price, and the largest that is not forbidden; 0 and 0 where all are. */
function spanOf(
  costs: Float64Array,
  ceiling: number,
): { readonly least: number; readonly most: number } {
  let most = 0;
  let least = Infinity;
  for (let k = 0; k < costs.length; k++) {
    const cost = costs[k];
    if (cost === Infinity || cost > ceiling) continue;
    if (!(cost >= 0)) throw internalError(`a price of ${cost} s`);
    if (cost > most) most = cost;
    if (cost < least) least = cost;
  }
  return { least: least === Infinity ? 0 : least, most };
}
