/**
 * Joins sharding and checkpointing in one problem. A forward node whose result the backward pass
 * wants has the domain strategy x decision: `save` its result, `recompute` it in the backward pass
 * in the same placement, or `discard` it (nothing that is recomputed needs it).
 *
 * - recomputing costs the node's seconds once more, and what its inputs cost to move once more;
 * - a recomputed node needs inputs that are saved or recomputed, and so does every backward reader;
 * - a kept view keeps its storage, which may be a moved copy, in the view's own placement; views
 *   that change the size are always recomputed; random and unknown operators are never recomputed;
 * - the bytes of a point enter as a linear row (`liveBytesAt`).
 *
 * Source: the integer program of Checkmate (P. Jain et al., MLSys 2020), with placements.
 */
import type { CompactProblem } from '../../../solver/problem/restrict.ts';
import type { LinearRow, Problem } from '../../../solver/types.ts';
import type { Model } from '../../model/model.ts';
import type { Liveness } from '../rows/liveness.ts';
import type { LiveBytes, RematDecision } from '../rows/peak-rows.ts';
import type { WithStorages } from '../rows/shared-storages.ts';

export interface RematProblem {
  readonly problem: Problem;
  /** Compact choice (strategies, copies, outputs) of a choice of the rematerialization problem. */
  readonly strategies: (choice: Int32Array) => Int32Array;
  /** Nodes that are recomputed under a choice. */
  readonly recomputed: (choice: Int32Array) => number[];
  /** The other way. Nodes that are neither in `recomputed` nor without choice are saved. */
  readonly join: (compact: Int32Array, recomputed: ReadonlySet<number>) => Int32Array;
  /** Number of decisions of a variable; value s * decisions + k takes strategy s and decision k. */
  readonly decisionsOf: (variable: number) => number;
  readonly row: (amounts: readonly LiveBytes[], name: string, bound: number) => LinearRow;
  /**
   * Variables of storages that several tensors keep, in the row of a point; they come after those
   * of the decisions.
   */
  readonly storagesAt?: WithStorages['rowAt'];
  /**
   * A choice of the problem from one of the same decisions, perhaps without the storages that count
   * now.
   */
  readonly complete: (choice: Int32Array) => Int32Array;
}

/** Decisions that a node may choose among; one decision is not a choice. */
export type RematDecisions = ReadonlyMap<number, readonly RematDecision[]>;

/**
 * The nodes that have a decision.
 *
 * @param smallBytes results that are smaller than this, whole, are kept without being asked: they
 *   decide nothing
 */
export function decisionsOf(
  model: Model,
  live: Liveness,
  bytesOf: (value: number) => number,
  smallBytes: number,
  canRecompute: (node: number) => boolean,
): Map<number, readonly RematDecision[]> {
  const { graph, flow } = model;
  const decisions = new Map<number, readonly RematDecision[]>();
  // A kept view is its storage kept, moved or not; that needs views of the size of a result that
  // something computed.
  const standsForStorage = (n: number): boolean => {
    const root = live.root[flow.results[n][0]];
    return (
      graph.nodes[flow.values[root].node].kind === 'call' &&
      bytesOf(root) === bytesOf(flow.results[n][0])
    );
  };
  for (let n = 0; n < live.split; n++) {
    if (live.wanted[n] === 0 || flow.alias[n] >= 0 || graph.nodes[n].kind !== 'call') continue;
    const results = [...flow.results[n]].filter((v) => v >= 0);
    const read = results.some((v) => live.firstBackward[v] >= 0);
    const small = results.every((v) => bytesOf(v) < smallBytes);
    if (!canRecompute(n) || (small && live.view[n] === 0)) continue;
    const list: RematDecision[] =
      live.view[n] === 1 && !standsForStorage(n) ? ['recompute'] : ['save', 'recompute'];
    if (!read) list.push('discard');
    decisions.set(n, list);
  }
  return decisions;
}

/**
 * Recomputed nodes are placed as first runs: the domain has one strategy a node.
 *
 * @param charge what a recomputed node pays to move its inputs again. `as placed`: all that the
 *   first paid, except that a weight which the backward pass gathers for itself is gathered once
 *   for both. `sure`: only moves that nothing else in the backward pass can share, which makes the
 *   optimum a lower bound on the plans that this problem describes.
 */
export function rematProblem(
  model: Model,
  compact: CompactProblem,
  decisions: RematDecisions,
  charge: 'as placed' | 'sure',
  live: Liveness,
): RematProblem {
  const { nodeVariable } = model;
  const options = optionsByVariable(model, compact.problem.domains.length, decisions);
  return {
    problem:
      decisions.size === 0
        ? { ...compact.problem, rows: [] }
        : decidedProblem(
            model,
            compact.problem,
            decisions,
            sharedVariables(model, live, decisions, charge),
          ),
    strategies: (choice) => choice.map((value, v) => Math.floor(value / (options[v]?.length ?? 1))),
    recomputed: (choice) =>
      [...decisions].flatMap(([n, list]) =>
        list[choice[nodeVariable[n]] % list.length] === 'recompute' ? [n] : [],
      ),
    join: (chosen, recomputed) => {
      const again = new Set([...recomputed].map((n) => nodeVariable[n]));
      return chosen.map((s, v) => {
        const list = options[v];
        if (list === undefined) return s;
        const wanted = wantedOf(list, again.has(v));
        return s * list.length + Math.max(0, list.indexOf(wanted));
      });
    },
    complete: (choice) => choice,
    decisionsOf: (v) => options[v]?.length ?? 1,
    row: (amounts, name, bound) => ({
      name,
      bound: Math.floor(bound),
      variables: Int32Array.from(amounts, ({ variable }) => variable),
      amounts: amounts.map((live) => decidedAmounts(live, compact, options[live.variable])),
    }),
  };
}

/** The decisions of each variable; undefined for a variable that decides nothing. */
type Options = readonly (readonly RematDecision[] | undefined)[];

function optionsByVariable(
  { nodeVariable }: Model,
  variables: number,
  decisions: RematDecisions,
): Options {
  const options = new Array<readonly RematDecision[] | undefined>(variables).fill(undefined);
  for (const [n, list] of decisions) options[nodeVariable[n]] = list;
  return options;
}

/** The decision of a node that is recomputed, or is not, among those that it has. */
function wantedOf(list: readonly RematDecision[], isRecomputed: boolean): RematDecision {
  if (isRecomputed) return 'recompute';
  return list.includes('discard') && !list.includes('save') ? 'discard' : 'save';
}

/** Bytes of every value of a variable at a point. */
function decidedAmounts(
  { variable, save, recompute, discard }: LiveBytes,
  compact: CompactProblem,
  list: readonly RematDecision[] | undefined,
): Float64Array {
  const values = compact.valuesOf(variable);
  if (list === undefined) return Float64Array.from(values, (s) => save[s]);
  const of = { save, recompute, discard };
  return spread(values.length, list, (i, decision) => of[decision][values[i]]);
}

/**
 * The problem whose variables also decide.
 *
 * @param shared 1 for variables whose moves to recomputed nodes are not charged
 */
function decidedProblem(
  model: Model,
  problem: Problem,
  decisions: RematDecisions,
  shared: Uint8Array,
): Problem {
  const options = optionsByVariable(model, problem.domains.length, decisions);
  const parts = new DecidedParts(problem, options);
  const unary = problem.unary.map((id, v) => parts.unary(id, v));
  // An edge always runs from producer or copy to consumer; ties of parameters have no decisions.
  for (let e = 0; e < problem.edges.first.length; e++)
    parts.addEdge(e, shared[problem.edges.first[e]] === 0);
  const linked = new Set<string>();
  for (const [n, list] of decisions) {
    if (!list.includes('recompute')) continue;
    for (const value of model.flow.inputs[n]) {
      const producer = model.nodeVariable[model.flow.values[value].node];
      if (options[producer]?.includes('discard') !== true) continue;
      const own = model.nodeVariable[n];
      const key = `${producer}:${own}`;
      if (linked.has(key)) continue;
      linked.add(key);
      parts.addPresence(producer, own);
    }
  }
  return {
    ...problem,
    domains: problem.domains.map((size, v) => size * (options[v]?.length ?? 1)),
    unary,
    vectors: parts.vectors.items,
    maps: parts.maps.items,
    tables: parts.tables.items,
    edges: parts.edges(),
    rows: [],
  };
}

/**
 * Map of the values of a variable with decisions: the class of the strategy times `classes`, plus
 * the class of the decision.
 */
interface DecisionClasses {
  readonly tag: string;
  readonly classes: number;
  readonly classOf: (decision: RematDecision) => number;
}

const recomputeOf = (decision: RematDecision): number => (decision === 'recompute' ? 1 : 0);
const STRATEGY: DecisionClasses = { tag: 'strategy', classes: 1, classOf: () => 0 };
const STRATEGY_TWICE: DecisionClasses = { tag: 'recompute', classes: 2, classOf: recomputeOf };
const RUNS: DecisionClasses = { tag: 'runs', classes: 0, classOf: recomputeOf };
const PRESENCE: DecisionClasses = {
  tag: 'presence',
  classes: 0,
  classOf: (decision) => (decision === 'discard' ? 1 : 0),
};

/** A list of a problem, and what was added to it by key. */
class Interned<T> {
  readonly items: T[];
  private readonly ids = new Map<string, number>();

  constructor(known: readonly T[]) {
    this.items = [...known];
  }

  id(key: string, make: () => T): number {
    let id = this.ids.get(key);
    if (id === undefined) {
      id = this.items.push(make()) - 1;
      this.ids.set(key, id);
    }
    return id;
  }
}

/** Vectors, maps, tables and edges of a problem whose variables also decide. */
class DecidedParts {
  readonly vectors: Interned<Float64Array>;
  readonly maps: Interned<Int32Array>;
  readonly tables: Interned<Problem['tables'][number]>;
  /** The edge of a producer that is discarded and a reader that runs again. */
  private readonly presence: number;
  private readonly first: number[] = [];
  private readonly second: number[] = [];
  private readonly table: number[] = [];
  private readonly firstMap: number[] = [];
  private readonly secondMap: number[] = [];

  constructor(
    private readonly problem: Problem,
    private readonly options: Options,
  ) {
    this.vectors = new Interned(problem.vectors);
    this.maps = new Interned(problem.maps);
    this.tables = new Interned(problem.tables);
    this.presence = this.tables.id('presence', () => ({
      rows: 2,
      columns: 2,
      costs: Float64Array.of(0, 0, 0, Infinity),
    }));
  }

  /** The costs of a variable: a node that is recomputed pays twice. */
  unary(id: number, variable: number): number {
    const list = this.options[variable];
    if (list === undefined) return id;
    return this.vectors.id(`${id}|${list.join()}`, () => {
      const own = this.problem.vectors[id];
      return spread(own.length, list, (s, decision) =>
        decision === 'recompute' ? 2 * own[s] : own[s],
      );
    });
  }

  /** @param charged whether a consumer that is recomputed pays for its move once more */
  addEdge(e: number, charged: boolean): void {
    const { edges } = this.problem;
    const consumer = edges.second[e];
    const twice = charged && this.options[consumer]?.includes('recompute') === true;
    this.first.push(edges.first[e]);
    this.second.push(consumer);
    this.table.push(twice ? this.doubled(edges.table[e]) : edges.table[e]);
    this.firstMap.push(this.map(edges.first[e], edges.firstMap[e], STRATEGY));
    const classes = twice ? STRATEGY_TWICE : STRATEGY;
    this.secondMap.push(this.map(consumer, edges.secondMap[e], classes));
  }

  /** A node that is recomputed reads nothing that is discarded. */
  addPresence(producer: number, reader: number): void {
    this.first.push(producer);
    this.second.push(reader);
    this.table.push(this.presence);
    this.firstMap.push(this.map(producer, -1, PRESENCE));
    this.secondMap.push(this.map(reader, -1, RUNS));
  }

  edges(): Problem['edges'] {
    return {
      first: Int32Array.from(this.first),
      second: Int32Array.from(this.second),
      table: Int32Array.from(this.table),
      firstMap: Int32Array.from(this.firstMap),
      secondMap: Int32Array.from(this.secondMap),
    };
  }

  /** A table with two columns for each of its own: once the costs, and twice. */
  private doubled(id: number): number {
    const { rows, columns, costs } = this.problem.tables[id];
    return this.tables.id(`${id}`, () => ({
      rows,
      columns: 2 * columns,
      costs: Float64Array.from(
        { length: 2 * costs.length },
        (_, i) => costs[i >> 1] * (1 + (i & 1)),
      ),
    }));
  }

  private map(variable: number, id: number, { tag, classes, classOf }: DecisionClasses): number {
    const list = this.options[variable];
    if (list === undefined) return id;
    const size = this.problem.domains[variable];
    const own = this.problem.maps[id];
    return this.maps.id(`${id}|${size}|${list.join()}|${tag}`, () =>
      Int32Array.from(
        spread(size, list, (s, decision) => (id < 0 ? s : own[s]) * classes + classOf(decision)),
      ),
    );
  }
}

/** Entry s * decisions + k for every strategy s and decision k. */
function spread(
  size: number,
  list: readonly RematDecision[],
  at: (s: number, decision: RematDecision) => number,
): Float64Array {
  const out = new Float64Array(size * list.length);
  for (let s = 0; s < size; s++)
    for (let k = 0; k < list.length; k++) out[s * list.length + k] = at(s, list[k]);
  return out;
}

/**
 * 1 for the variables of values, and of their copies, whose moves to recomputed nodes are not
 * charged.
 */
function sharedVariables(
  model: Model,
  live: Liveness,
  decisions: RematDecisions,
  charge: 'as placed' | 'sure',
): Uint8Array {
  const { graph, flow, nodeVariable, variables, copies } = model;
  const readers = new Int32Array(flow.values.length);
  for (const [n, list] of decisions)
    if (list.includes('recompute')) for (const value of flow.inputs[n]) readers[value]++;
  const isShared = (value: number): boolean =>
    graph.nodes[flow.values[live.root[value]].node].kind === 'placeholder' ||
    (charge === 'sure' && (live.firstBackward[value] >= 0 || readers[value] > 1));
  const out = new Uint8Array(variables.length);
  flow.results.forEach((results, n) => {
    if (nodeVariable[n] >= 0 && results.some((value) => value >= 0 && isShared(value)))
      out[nodeVariable[n]] = 1;
  });
  for (const { value, variable } of copies) if (isShared(value)) out[variable] = 1;
  return out;
}
