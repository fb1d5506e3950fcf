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

/** Decisions that a node may choose among; one decision is no choice. */
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
  const { problem } = compact;
  const { edges } = problem;
  const optionsOf: (readonly RematDecision[] | undefined)[] = new Array<
    readonly RematDecision[] | undefined
  >(problem.domains.length);
  const nodeOf = new Int32Array(problem.domains.length).fill(-1);
  for (const [n, list] of decisions) {
    optionsOf[model.nodeVariable[n]] = list;
    nodeOf[model.nodeVariable[n]] = n;
  }
  const shared = sharedVariables(model, live, decisions, charge);
  const domains = problem.domains.map((size, v) => size * (optionsOf[v]?.length ?? 1));

  const vectors: Float64Array[] = [...problem.vectors];
  const vectorIds = new Map<string, number>();
  const unary = problem.unary.map((id, v) => {
    const list = optionsOf[v];
    if (list === undefined) return id;
    return interned(vectorIds, vectors, `${id}|${list.join()}`, () => {
      const own = problem.vectors[id];
      return spread(own.length, list, (s, decision) =>
        decision === 'recompute' ? 2 * own[s] : own[s],
      );
    });
  });

  const maps: Int32Array[] = [...problem.maps];
  const mapIds = new Map<string, number>();
  const tables = [...problem.tables];
  const tableIds = new Map<string, number>();
  const first: number[] = [];
  const second: number[] = [];
  const table: number[] = [];
  const firstMap: number[] = [];
  const secondMap: number[] = [];
  /**
   * Map of a variable with decisions: the class of its strategy times `classes`, plus the class of
   * its decision.
   */
  const mapOf = (
    variable: number,
    id: number,
    classes: number,
    classOf: (decision: RematDecision) => number,
    tag: string,
  ): number => {
    const list = optionsOf[variable];
    if (list === undefined) return id;
    const size = problem.domains[variable];
    return interned(mapIds, maps, `${id}|${size}|${list.join()}|${tag}`, () =>
      Int32Array.from(
        spread(
          size,
          list,
          (s, decision) => (id < 0 ? s : problem.maps[id][s]) * classes + classOf(decision),
        ),
      ),
    );
  };
  const presence = interned(tableIds, tables, 'presence', () => ({
    rows: 2,
    columns: 2,
    costs: Float64Array.of(0, 0, 0, Infinity),
  }));
  const presenceOf = (decision: RematDecision): number => (decision === 'discard' ? 1 : 0);
  const recomputeOf = (decision: RematDecision): number => (decision === 'recompute' ? 1 : 0);
  const linked = new Set<string>();
  for (let e = 0; e < edges.first.length; e++) {
    const [a, b] = [edges.first[e], edges.second[e]];
    // An edge always runs from producer or copy to consumer; ties of parameters have no decisions.
    const twice = optionsOf[b]?.includes('recompute') === true && shared[a] === 0;
    const old = problem.tables[edges.table[e]];
    const id = !twice
      ? edges.table[e]
      : interned(tableIds, tables, `${edges.table[e]}`, () => ({
          rows: old.rows,
          columns: 2 * old.columns,
          costs: Float64Array.from(
            { length: 2 * old.costs.length },
            (_, i) => old.costs[i >> 1] * (1 + (i & 1)),
          ),
        }));
    first.push(a);
    second.push(b);
    table.push(id);
    firstMap.push(mapOf(a, edges.firstMap[e], 1, () => 0, 'strategy'));
    secondMap.push(
      twice
        ? mapOf(b, edges.secondMap[e], 2, recomputeOf, 'recompute')
        : mapOf(b, edges.secondMap[e], 1, () => 0, 'strategy'),
    );
  }
  for (const [n, list] of decisions) {
    if (!list.includes('recompute')) continue;
    for (const value of model.flow.inputs[n]) {
      const producer = model.nodeVariable[model.flow.values[value].node];
      if (optionsOf[producer]?.includes('discard') !== true) continue;
      const own = model.nodeVariable[n];
      const key = `${producer}:${own}`;
      if (linked.has(key)) continue;
      linked.add(key);
      first.push(producer);
      second.push(own);
      table.push(presence);
      firstMap.push(mapOf(producer, -1, 0, presenceOf, 'presence'));
      secondMap.push(mapOf(own, -1, 0, recomputeOf, 'runs'));
    }
  }
  const split = (v: number, value: number): { s: number; decision: RematDecision | undefined } => {
    const list = optionsOf[v];
    return list === undefined
      ? { s: value, decision: undefined }
      : { s: Math.floor(value / list.length), decision: list[value % list.length] };
  };
  const same = decisions.size === 0;
  return {
    problem: same
      ? { ...problem, rows: [] }
      : {
          ...problem,
          domains,
          unary,
          vectors,
          maps,
          tables,
          edges: {
            first: Int32Array.from(first),
            second: Int32Array.from(second),
            table: Int32Array.from(table),
            firstMap: Int32Array.from(firstMap),
            secondMap: Int32Array.from(secondMap),
          },
          rows: [],
        },
    strategies: (choice) => choice.map((value, v) => split(v, value).s),
    recomputed: (choice) =>
      [...decisions.keys()].filter(
        (n) => split(model.nodeVariable[n], choice[model.nodeVariable[n]]).decision === 'recompute',
      ),
    join: (chosen, recomputed) =>
      chosen.map((s, v) => {
        const list = optionsOf[v];
        if (list === undefined) return s;
        const wanted: RematDecision = recomputed.has(nodeOf[v])
          ? 'recompute'
          : list.includes('discard') && !list.includes('save')
            ? 'discard'
            : 'save';
        return s * list.length + Math.max(0, list.indexOf(wanted));
      }),
    complete: (choice) => choice,
    decisionsOf: (v) => optionsOf[v]?.length ?? 1,
    row: (amounts, name, bound) => ({
      name,
      bound: Math.floor(bound),
      variables: Int32Array.from(amounts, ({ variable }) => variable),
      amounts: amounts.map(({ variable, save, recompute, discard }) => {
        const values = compact.valuesOf(variable);
        const list = optionsOf[variable];
        if (list === undefined) return Float64Array.from(values, (s) => save[s]);
        const of = { save, recompute, discard };
        return spread(values.length, list, (i, decision) => of[decision][values[i]]);
      }),
    }),
  };
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

function interned<T>(ids: Map<string, number>, store: T[], key: string, make: () => T): number {
  let id = ids.get(key);
  if (id === undefined) {
    id = store.push(make()) - 1;
    ids.set(key, id);
  }
  return id;
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
