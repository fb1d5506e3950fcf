/**
 * Compares a program of per-device code traced on axes of size 1 with the same program traced on
 * larger axes, on the whole inputs of both, and reports the first value that differs: pieces that
 * join to the whole one on no dim, addends that do not add up to it, replicas that differ from it.
 * It finds faults that types do not see, such as a sum over a rank's own rows that was meant to be
 * over all.
 */
import { defined } from '../defined.ts';
import { internalError } from '../errors.ts';
import { LOCAL_MAP, localMapCall } from '../graph/local-map.ts';
import type { Graph, Node } from '../graph/types.ts';
import { eachOperand, getOwn } from '../graph/value.ts';
import { checkTypes } from '../local-spmd/check-types.ts';
import type { LocalType } from '../mesh/local-types/types.ts';
import { flat, fromFlat, type NDArray } from '../ndarray/array.ts';
import { concat, unsqueeze } from '../ndarray/views.ts';
import type { OperatorTable } from '../ops/record/table.ts';
import { spmdName } from '../ops/spmd/operators.ts';
import { evaluateGraph, type Value } from './evaluate.ts';
import { localMapValues } from './ranks/local-map.ts';

/** A value of a region that is another one on the ranks than on one device. */
export interface OffOnDifference {
  /** Node of the region, or the region itself for its result. */
  readonly node: string;
  readonly region: string;
  /** The claimed type of its values on the ranks, `{dp: V}` by axis. */
  readonly type: LocalType;
  readonly source?: string;
}

/** Largest relative difference that is none. */
const TOLERANCE = 1e-9;

/**
 * Runs the regions of two traces of one program and compares what they compute, value by value.
 *
 * @param off traced with every axis of size 1
 * @param on traced with the axes as they are
 * @returns undefined where nothing differs
 */
export function offOnDifference(
  table: OperatorTable,
  off: Graph,
  on: Graph,
  inputs: readonly Value[],
): OffOnDifference | undefined {
  const { types } = checkTypes(on, { mode: 'strict', table });
  const [whole, pieces] = [off, on].map((graph) => regionRuns(table, graph, inputs));
  for (const [name, run] of pieces) {
    const reference = whole.get(name);
    if (reference === undefined)
      throw internalError(`the program has no region ${name} where its axes have size 1`);
    const addends = new Map(run.axes.map(({ name: axis }) => [axis, addendsOf(run.body, axis)]));
    for (const [value, byRank] of run.values) {
      const expected = reference.values.get(value)?.[0];
      const node = run.body.nodes.find((n) => n.name === value);
      if (expected === undefined || node === undefined || node.kind !== 'call') continue;
      const type: LocalType = types.get(`${run.bodyName}/${value}`) ?? new Map();
      const joins = assembled(
        byRank,
        run.axes,
        new Map(
          [...type].map(([axis, t]) => [
            axis,
            t === 'V' && addends.get(axis)?.has(value) === true ? 'V or P' : t,
          ]),
        ),
      ).some((x) => isClose(x, expected));
      if (!joins)
        return {
          node: value,
          region: name,
          type,
          ...defined({ source: node.meta.source }),
        };
    }
  }
  return undefined;
}

interface RegionRun {
  readonly body: Graph;
  readonly bodyName: string;
  readonly axes: readonly { readonly name: string; readonly size: number }[];
  /** Values by rank, in the order in which they are made. */
  readonly values: ReadonlyMap<string, readonly NDArray[]>;
}

/** The values inside of every region of the top level. */
function regionRuns(
  table: OperatorTable,
  graph: Graph,
  inputs: readonly Value[],
): Map<string, RegionRun> {
  const known = new Map<string, Value>();
  evaluateGraph(table, graph, inputs, {
    onValue: (_run, node, value) => void known.set(node.name, value),
  });
  return new Map(
    graph.nodes.flatMap((node) => {
      if (node.target !== LOCAL_MAP) return [];
      const { body: bodyName, axes } = localMapCall(node);
      const body = getOwn(graph.subgraphs, bodyName);
      if (body === undefined) throw internalError(`${node.name} has no body`);
      const values = new Map<string, readonly NDArray[]>();
      localMapValues(
        table,
        { node, body },
        (name) => known.get(name) ?? null,
        0,
        (name, byRank) => void values.set(name, [...byRank]),
      );
      return [[node.name, { body, bodyName, axes, values }] as const];
    }),
  );
}

/**
 * The values of which all that is made is read as addends over an axis in the end, so that they may
 * be addends already.
 */
function addendsOf(body: Graph, axis: string): ReadonlySet<string> {
  const isRead = ({ target, args }: Node): boolean =>
    spmdName(target) === 'reinterpret' && args[1] === axis && args[4] === 'P';
  const addends = new Set<string>();
  const used = new Set<string>();
  const other = new Set(body.outputs.map(({ value }) => value));
  // Users come after what they use.
  for (const node of [...body.nodes].reverse()) {
    if (used.has(node.name) && !other.has(node.name)) addends.add(node.name);
    const passes = isRead(node) || addends.has(node.name);
    eachOperand(node, (operand) => void (passes ? used : other).add(operand));
  }
  return addends;
}

/**
 * The possible whole values of all ranks together, by the type on each axis: pieces have no stated
 * dim, so each is tried.
 */
function assembled(
  byRank: readonly NDArray[],
  axes: RegionRun['axes'],
  type: ReadonlyMap<string, string>,
): NDArray[] {
  const last = axes.at(-1);
  if (last === undefined) return [byRank[0]];
  const groups = Array.from({ length: byRank.length / last.size }, (_, g) =>
    byRank.slice(g * last.size, (g + 1) * last.size),
  );
  const joined = groups.map((group) =>
    together(group, last.size === 1 ? 'I' : (type.get(last.name) ?? 'I')),
  );
  const count = Math.min(...joined.map((list) => list.length));
  return Array.from({ length: count }, (_, way) => way).flatMap((way) =>
    assembled(
      joined.map((list) => list[way]),
      axes.slice(0, -1),
      type,
    ),
  );
}

function together(group: readonly NDArray[], type: string): NDArray[] {
  const [first] = group;
  if (type === 'I' || type === 'R') return group.every((x) => isClose(x, first)) ? [first] : [];
  if (type === 'P') return [sumOf(group)];
  const stacked = concat(
    group.map((x) => unsqueeze(x, 0)),
    0,
  );
  return [
    ...first.shape.map((_, d) => concat(group, d)),
    stacked,
    ...(type === 'V or P' ? [sumOf(group)] : []),
  ];
}

function sumOf(group: readonly NDArray[]): NDArray {
  const [first] = group;
  const lists = group.map((x) => flat(x));
  return fromFlat(
    first.shape,
    Float64Array.from(lists[0], (_, i) => lists.reduce((sum, list) => sum + list[i], 0)),
    first.dtype,
  );
}

function isClose(a: NDArray, b: NDArray): boolean {
  if (a.shape.join() !== b.shape.join()) return false;
  const [x, y] = [flat(a), flat(b)];
  return x.every((value, i) => Math.abs(value - y[i]) <= TOLERANCE * (1 + Math.abs(y[i])));
}
