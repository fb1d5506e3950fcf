/**
 * Storages that several tensors keep alive, as one more variable each: at a program point a result
 * and views of it, or several views of one result, may wait for their readers. Where nothing is
 * moved on the way they share a storage, else they do not; either way the largest of them is held.
 * A row over single variables counts one of them; the variable here is the largest.
 *
 * For a program point, it gives the storages, a problem with their variables, and their part of the
 * row.
 */
import { DTYPE_BYTES } from '../../../graph/types.ts';
import { elements } from '../../../ops/record/record.ts';
import type { CompactProblem } from '../../../solver/problem/restrict.ts';
import type { LinearRow, Problem } from '../../../solver/types.ts';
import type { Model } from '../../model/model.ts';
import type { Liveness } from './liveness.ts';

/** A tensor that is alive at a point: a result of a node, or a view. */
interface Tensor {
  readonly variable: number;
  /** Local bytes by strategy of its node. */
  readonly bytes: Float64Array;
}

/** Storages of two or more tensors at one program point, by the value that each begins with. */
export type SharedStorages = ReadonlyMap<number, readonly Tensor[]>;

/**
 * The results that two or more tensors of their size wait on at a program point of a graph in which
 * nothing is recomputed. Inputs of the program are left out: their owner keeps them.
 */
export function sharedStorages(model: Model, live: Liveness, point: number): SharedStorages {
  const { graph, flow, strategies, space, nodeVariable } = model;
  const bytesOf = (value: number, specs: (s: number) => number, count: number): Float64Array => {
    const { meta } = flow.values[value];
    return Float64Array.from({ length: count }, (_, s) => {
      const id = specs(s);
      return (
        elements(id < 0 ? meta.shape : space.localShape(id, meta.shape)) * DTYPE_BYTES[meta.dtype]
      );
    });
  };
  const size = (value: number): number =>
    elements(flow.values[value].meta.shape) * DTYPE_BYTES[flow.values[value].meta.dtype];
  const storages = new Map<number, Tensor[]>();
  graph.nodes.forEach((node, n) => {
    if (node.kind !== 'call' || nodeVariable[n] < 0 || n > point || live.from[n] > point) return;
    const { set } = strategies.nodes[n]!;
    const width = set.inputCount + set.outputCount;
    flow.results[n].forEach((value, k) => {
      if (value < 0 || Math.max(live.lastForward[value], live.lastBackward[value]) <= point) return;
      const root = live.root[value];
      if (graph.nodes[flow.values[root].node].kind !== 'call' || size(root) !== size(value)) return;
      const tensor = {
        variable: nodeVariable[n],
        bytes: bytesOf(value, (s) => set.specs[s * width + set.inputCount + k], set.count),
      };
      const known = storages.get(root);
      if (known === undefined) storages.set(root, [tensor]);
      else known.push(tensor);
    });
  });
  for (const [root, tensors] of storages) if (tensors.length < 2) storages.delete(root);
  return storages;
}

/** A problem with variables for storages behind its own. */
export interface WithStorages {
  readonly problem: Problem;
  /** The amounts of a point's storages in its row; undefined for a point without. */
  readonly rowAt: (point: number) => Pick<LinearRow, 'variables' | 'amounts'> | undefined;
  /**
   * A choice of the problem, with the storages that it makes; also of one that has fewer of them.
   */
  readonly complete: (choice: Int32Array) => Int32Array;
}

/**
 * Adds a variable for each storage of some points: its value is a number of bytes that no tensor in
 * it exceeds.
 */
export function withStorages(
  problem: Problem,
  valuesOf: CompactProblem['valuesOf'],
  points: ReadonlyMap<number, SharedStorages>,
): WithStorages {
  const own = problem.domains.length;
  const domains: number[] = [...problem.domains];
  const unary: number[] = [...problem.unary];
  const vectors = [...problem.vectors];
  const maps = [...problem.maps];
  const tables = [...problem.tables];
  const edges = Object.fromEntries(
    Object.entries(problem.edges).map(([k, list]) => [k, [...list]]),
  ) as Record<keyof Problem['edges'], number[]>;
  const added = new Map<string, number>();
  const once = <T>(store: T[], key: string, make: () => T): number => {
    let id = added.get(key);
    if (id === undefined) added.set(key, (id = store.push(make()) - 1));
    return id;
  };
  const largest: { readonly variables: Int32Array; readonly classes: Int32Array[] }[] = [];
  const rows = new Map<number, Pick<LinearRow, 'variables' | 'amounts'>>();
  for (const [point, storages] of points) {
    const row: { variables: number[]; amounts: Float64Array[] } = { variables: [], amounts: [] };
    for (const tensors of storages.values()) {
      const bytes = tensors.map((tensor) =>
        Float64Array.from(valuesOf(tensor.variable), (s) => tensor.bytes[s]),
      );
      const floor = bytes.reduce(
        (most, list) =>
          Math.max(
            most,
            list.reduce((a, b) => Math.min(a, b), Infinity),
          ),
        0,
      );
      const all = [...new Set(bytes.flatMap((list) => [...list]))]
        .filter((b) => b >= floor)
        .sort((a, b) => a - b);
      const classes = bytes.map((list) =>
        Int32Array.from(list, (b) => all.findIndex((u) => u >= b)),
      );
      const key =
        'storage ' +
        `${tensors.map(({ variable }, i) => `${variable}:${classes[i].join()}`).join(';')}`;
      const variable = once(domains, key, () => all.length);
      row.variables.push(variable);
      row.amounts.push(Float64Array.from(all));
      if (variable < unary.length) continue;
      unary.push(once(vectors, `free ${all.length}`, () => new Float64Array(all.length)));
      const table = once(tables, `covers ${all.length}`, () => ({
        rows: all.length,
        columns: all.length,
        costs: Float64Array.from({ length: all.length ** 2 }, (_, i) =>
          Math.floor(i / all.length) <= i % all.length ? 0 : Infinity,
        ),
      }));
      tensors.forEach((tensor, i) => {
        edges.first.push(tensor.variable);
        edges.second.push(variable);
        edges.table.push(table);
        edges.firstMap.push(once(maps, `classes ${classes[i].join()}`, () => classes[i]));
        edges.secondMap.push(-1);
      });
      largest.push({ variables: Int32Array.from(tensors, (tensor) => tensor.variable), classes });
    }
    rows.set(point, { ...row, variables: Int32Array.from(row.variables) });
  }
  const { minPairs } = problem;
  const padded = (list: Int32Array): Int32Array =>
    Int32Array.from({ length: domains.length }, (_, v) => list[v] ?? -1);
  return {
    problem: {
      ...problem,
      domains: Int32Array.from(domains),
      unary: Int32Array.from(unary),
      vectors,
      maps,
      tables,
      edges: {
        first: Int32Array.from(edges.first),
        second: Int32Array.from(edges.second),
        table: Int32Array.from(edges.table),
        firstMap: Int32Array.from(edges.firstMap),
        secondMap: Int32Array.from(edges.secondMap),
      },
      ...(minPairs === undefined
        ? {}
        : { minPairs: { first: padded(minPairs.first), second: padded(minPairs.second) } }),
    },
    rowAt: (point) => rows.get(point),
    complete: (choice) => {
      const full = new Int32Array(domains.length);
      full.set(choice.subarray(0, own));
      largest.forEach(({ variables, classes }, z) => {
        variables.forEach(
          (v, i) => (full[own + z] = Math.max(full[own + z], classes[i][choice[v]])),
        );
      });
      return full;
    },
  };
}
