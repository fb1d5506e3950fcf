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
  const storages = new StorageVariables(problem, valuesOf);
  const rows = new Map([...points].map(([point, at]) => [point, storages.row(at)]));
  return {
    problem: storages.problem(),
    rowAt: (point) => rows.get(point),
    complete: (choice) => storages.complete(choice),
  };
}

type StorageRow = Pick<LinearRow, 'variables' | 'amounts'>;

/** The bytes that a storage may have, and of them the least for every value of each tensor. */
interface StorageSizes {
  readonly bytes: readonly number[];
  readonly classes: readonly Int32Array[];
}

/** A problem with a variable for each storage that is asked for; equal storages have one. */
class StorageVariables {
  private readonly domains: number[];
  private readonly unary: number[];
  private readonly vectors: Problem['vectors'][number][];
  private readonly maps: Problem['maps'][number][];
  private readonly tables: Problem['tables'][number][];
  private readonly edges: Record<keyof Problem['edges'], number[]>;
  private readonly added = new Map<string, number>();
  /** By storage: its tensors, and the class of each of their values. */
  private readonly largest: {
    readonly variables: Int32Array;
    readonly classes: readonly Int32Array[];
  }[] = [];

  constructor(
    private readonly before: Problem,
    private readonly valuesOf: CompactProblem['valuesOf'],
  ) {
    this.domains = [...before.domains];
    this.unary = [...before.unary];
    this.vectors = [...before.vectors];
    this.maps = [...before.maps];
    this.tables = [...before.tables];
    this.edges = Object.fromEntries(
      Object.entries(before.edges).map(([k, list]) => [k, [...list]]),
    ) as Record<keyof Problem['edges'], number[]>;
  }

  /** The amounts of a point's storages. */
  row(storages: SharedStorages): StorageRow {
    const variables: number[] = [];
    const amounts: Float64Array[] = [];
    for (const tensors of storages.values()) {
      const sizes = this.sizesOf(tensors);
      variables.push(this.variable(tensors, sizes));
      amounts.push(Float64Array.from(sizes.bytes));
    }
    return { amounts, variables: Int32Array.from(variables) };
  }

  problem(): Problem {
    const { minPairs } = this.before;
    const padded = (list: Int32Array): Int32Array =>
      Int32Array.from({ length: this.domains.length }, (_, v) => list[v] ?? -1);
    return {
      ...this.before,
      domains: Int32Array.from(this.domains),
      unary: Int32Array.from(this.unary),
      vectors: this.vectors,
      maps: this.maps,
      tables: this.tables,
      edges: {
        first: Int32Array.from(this.edges.first),
        second: Int32Array.from(this.edges.second),
        table: Int32Array.from(this.edges.table),
        firstMap: Int32Array.from(this.edges.firstMap),
        secondMap: Int32Array.from(this.edges.secondMap),
      },
      ...(minPairs === undefined
        ? {}
        : { minPairs: { first: padded(minPairs.first), second: padded(minPairs.second) } }),
    };
  }

  /** A choice with the storages that it makes. */
  complete(choice: Int32Array): Int32Array {
    const own = this.before.domains.length;
    const full = new Int32Array(this.domains.length);
    full.set(choice.subarray(0, own));
    this.largest.forEach(({ variables, classes }, z) => {
      variables.forEach((v, i) => (full[own + z] = Math.max(full[own + z], classes[i][choice[v]])));
    });
    return full;
  }

  private sizesOf(tensors: readonly Tensor[]): StorageSizes {
    const bytes = tensors.map((tensor) =>
      Float64Array.from(this.valuesOf(tensor.variable), (s) => tensor.bytes[s]),
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
    return {
      bytes: all,
      classes: bytes.map((list) => Int32Array.from(list, (b) => all.findIndex((u) => u >= b))),
    };
  }

  /** The variable of a storage, with edges to its tensors. */
  private variable(tensors: readonly Tensor[], { bytes, classes }: StorageSizes): number {
    const count = bytes.length;
    const key =
      'storage ' +
      `${tensors.map(({ variable }, i) => `${variable}:${classes[i].join()}`).join(';')}`;
    const variable = this.once(this.domains, key, () => count);
    if (variable < this.unary.length) return variable;
    this.unary.push(this.once(this.vectors, `free ${count}`, () => new Float64Array(count)));
    const table = this.once(this.tables, `covers ${count}`, () => ({
      rows: count,
      columns: count,
      costs: Float64Array.from({ length: count ** 2 }, (_, i) =>
        Math.floor(i / count) <= i % count ? 0 : Infinity,
      ),
    }));
    tensors.forEach((tensor, i) => {
      this.edges.first.push(tensor.variable);
      this.edges.second.push(variable);
      this.edges.table.push(table);
      this.edges.firstMap.push(
        this.once(this.maps, `classes ${classes[i].join()}`, () => classes[i]),
      );
      this.edges.secondMap.push(-1);
    });
    this.largest.push({
      variables: Int32Array.from(tensors, (tensor) => tensor.variable),
      classes,
    });
    return variable;
  }

  private once<T>(store: T[], key: string, make: () => T): number {
    let id = this.added.get(key);
    if (id === undefined) this.added.set(key, (id = store.push(make()) - 1));
    return id;
  }
}
