/**
 * Who makes which tensor and who uses it, by number. A value is one tensor result of one node. Two
 * kinds of node make no value of their own but are another name of one that exists: `getitem`, so
 * that a placement cannot change between a tuple and its member; and, with `mergeViews`, a view
 * that repeats an earlier view of the same value in the same pass, so that one redistribution
 * serves the users of both (PyTorch views the input of q, k and v once for each).
 */

import { internalError, ShardwrightError } from '../errors.ts';
import type { Arg, Graph, Node, Output, TensorType, ValueType } from '../graph/types.ts';
import { tensorInputs } from '../ops/record/context.ts';
import type { TensorMeta } from '../ops/record/record.ts';
import type { OperatorTable } from '../ops/record/table.ts';
import { dimOrder } from '../ops/strides.ts';
import {
  type Pass,
  passOfUse,
  type Purpose,
  purposesOf,
} from '../passes/canonical/pass-of-uses.ts';
import type { Loops } from '../passes/plannable/loops.ts';
import { backwardStart } from '../passes/plannable/weight-views.ts';

interface Value {
  /** Index of the producing node in `graph.nodes`. */
  readonly node: number;
  /** Position among the producer's results. */
  readonly result: number;
  /** Shared by content: equal types are one object, and carry one id. */
  readonly meta: TensorMeta;
  readonly type: number;
  /**
   * True if the graph has it row by row in memory; strides that are not stated are those of such a
   * tensor.
   */
  readonly contiguous: boolean;
  /** Dims from the slowest to the fastest in memory; absent where it lies row by row. */
  readonly order?: readonly number[];
}

export interface Dataflow {
  readonly values: readonly Value[];
  /** Distinct tensor types; `Value.type` indexes it. */
  readonly types: readonly TensorMeta[];
  /** Per node: ids of the tensor inputs in schema order. */
  readonly inputs: readonly Int32Array[];
  /** Per node: ids of the results, -1 where a result is none or no tensor. */
  readonly results: readonly Int32Array[];
  /** Per graph output: the value id, or -1 for none. */
  readonly outputs: readonly { readonly output: Output; readonly value: number }[];
  /** Per node: the value that it is another name of, -1 for a node that decides for itself. */
  readonly alias: Int32Array;
  /**
   * Per node: the pass in which it runs. By place in the program, not by what it depends on: a
   * value that only the backward pass needs and that is made there counts to it.
   */
  readonly phases: readonly Pass[];
  /** Index of the node of that name. */
  readonly byName: ReadonlyMap<string, number>;
  /**
   * The pass whose copies of a value a node can share. By what the node depends on, not by its
   * place: the order of independent lines does not change what a program costs. With control flow
   * by its place.
   */
  passOf(node: number, value: number): Pass;
  /** Value id of a name (a getitem's name gives the member of its tuple). */
  valueOf(name: string): number;
}

/**
 * @param mergeViews whether a view that repeats an earlier one is another name of it
 * @param loops of an opened graph: views of different bodies are not merged, and marks are not
 *   views
 * @throws E_UNSUPPORTED for symbolic sizes without an example, and for calls whose tensors sit in
 *   places that no schema names
 */
export function dataflow(
  graph: Graph,
  table: OperatorTable,
  mergeViews: boolean,
  loops?: Pick<Loops, 'scopeOf' | 'isMark'>,
): Dataflow {
  const split = backwardStart(graph);
  const byPlace = graph.nodes.map((_, i): Pass => (i < split ? 'forward' : 'backward'));
  // Members of opened bodies are placed by their call: with control flow the place decides.
  const purposes = loops === undefined ? purposesOf(graph, table) : byPlace;
  const views = mergeViews ? { purposes, loops } : undefined;
  const reader = new DataflowReader(table, graph.nodes.length, views);
  for (const node of graph.nodes) reader.read(node);
  const { values, types, inputs, results, alias, byName } = reader;
  const isReadBackward = new Uint8Array(values.length);
  inputs.forEach((ids, n) => {
    if (purposes[n] === 'backward') for (const value of ids) isReadBackward[value] = 1;
  });
  return {
    values,
    types,
    inputs,
    results,
    alias,
    phases: byPlace,
    passOf: (node, value) => passOfUse(purposes[node], isReadBackward[value] === 1),
    outputs: graph.outputs.map((output) => ({
      output,
      value: output.value === null ? -1 : reader.valueOf(output.value),
    })),
    byName,
    valueOf: (name) => reader.valueOf(name),
  };
}

/** By what views are told apart that are not to be merged. */
interface ViewMerging {
  readonly purposes: readonly Purpose[];
  readonly loops: Pick<Loops, 'scopeOf' | 'isMark'> | undefined;
}

/** Numbers the values of a graph, node by node. */
class DataflowReader {
  readonly values: Value[] = [];
  readonly types: TensorMeta[] = [];
  readonly inputs: Int32Array[] = [];
  readonly results: Int32Array[] = [];
  readonly byName = new Map<string, number>();
  readonly alias: Int32Array;
  private readonly typeIds = new Map<string, number>();
  private readonly byObject = new Map<TensorType, number>();
  /** Value of each name that is a tensor, and values of each that is a tuple. */
  private readonly names = new Map<string, number>();
  private readonly tuples = new Map<string, Int32Array>();
  private readonly views = new Map<string, number>();

  /** @param merging absent: no views are merged */
  constructor(
    private readonly table: OperatorTable,
    nodeCount: number,
    private readonly merging: ViewMerging | undefined,
  ) {
    this.alias = new Int32Array(nodeCount).fill(-1);
  }

  valueOf(name: string): number {
    const id = this.names.get(name);
    if (id === undefined)
      throw new ShardwrightError('E_TYPE', `'${name}' is used as a tensor but is none`, {
        node: name,
      });
    return id;
  }

  read(node: Node): void {
    const index = this.inputs.length;
    this.byName.set(node.name, index);
    if (node.kind === 'call' && node.target === 'operator.getitem') {
      const member = tupleMember(node, this.tuples);
      if (member >= 0) this.names.set(node.name, member);
      this.repeat(index, member);
      return;
    }
    let used: Int32Array = NONE;
    if (node.kind === 'call') {
      used = this.used(node);
      const earlier = this.earlierView(node, index, used);
      if (earlier !== undefined) {
        this.names.set(node.name, earlier);
        this.repeat(index, earlier);
        return;
      }
    }
    this.inputs.push(used);
    const ids = this.make(node, index);
    this.results.push(ids);
    if (node.type.kind === 'tensor') this.names.set(node.name, ids[0]);
    else if (node.type.kind === 'tuple') this.tuples.set(node.name, ids);
  }

  /** Notes a node that is another name of a value. */
  private repeat(index: number, value: number): void {
    this.alias[index] = value;
    this.inputs.push(NONE);
    this.results.push(NONE);
  }

  private used(node: Node): Int32Array {
    const record = this.table.get(node.target);
    const names =
      record !== undefined ? tensorInputs(record, node.args, node.kwargs) : everyValue(node);
    return names.length === 0 ? NONE : Int32Array.from(names, (name) => this.valueOf(name));
  }

  /** The value of an equal view before this one; a first one is noted. */
  private earlierView(node: Node, index: number, used: Int32Array): number | undefined {
    if (this.merging === undefined || used.length !== 1 || node.type.kind !== 'tensor')
      return undefined;
    const { purposes, loops } = this.merging;
    if (this.table.get(node.target)?.cls !== 'view' || loops?.isMark(node.name) === true)
      return undefined;
    const pass = purposes[index] === 'forward' ? 'f' : 'b';
    const key = [
      `${pass}${loops?.scopeOf(node.name) ?? 0}`,
      node.target,
      used[0],
      literalKey(node.args),
      literalKey(Object.entries(node.kwargs).flat()),
    ].join('|');
    const earlier = this.views.get(key);
    // A first view makes the next value.
    if (earlier === undefined) this.views.set(key, this.values.length);
    return earlier;
  }

  /** Ids of the results of a node that makes values of its own. */
  private make(node: Node, index: number): Int32Array {
    const flat = flatTypes(node.type);
    const ids = new Int32Array(flat.length).fill(-1);
    flat.forEach((type, result) => {
      if (type === null) return;
      ids[result] = this.values.length;
      const id = this.typeId(type, node);
      const meta = this.types[id];
      this.values.push({
        node: index,
        result,
        meta,
        type: id,
        contiguous: isContiguous(type, meta),
        ...orderOf(type),
      });
    });
    return ids;
  }

  private typeId(type: TensorType, node: Node): number {
    const known = this.byObject.get(type);
    if (known !== undefined) return known;
    const meta = concreteMeta(type, node);
    const key = `${meta.dtype}[${meta.shape.join()}]`;
    let id = this.typeIds.get(key);
    if (id === undefined) {
      id = this.types.length;
      this.types.push(meta);
      this.typeIds.set(key, id);
    }
    this.byObject.set(type, id);
    return id;
  }
}

const NONE = new Int32Array(0);

function tupleMember(node: Node, tuples: ReadonlyMap<string, Int32Array>): number {
  const [source, index] = node.args;
  const name = isValue(source) ? source.name : undefined;
  const ids = name === undefined ? undefined : tuples.get(name);
  if (ids === undefined || typeof index !== 'number')
    throw new ShardwrightError(
      'E_UNSUPPORTED',
      'getitem of something that is not a tuple of tensors',
      {
        node: node.name,
      },
    );
  const id = ids[index < 0 ? ids.length + index : index];
  if (id === undefined)
    throw new ShardwrightError('E_TYPE', `getitem ${index} of a tuple of ${ids.length}`, {
      node: node.name,
    });
  return id;
}

function isValue(arg: Arg | undefined): arg is { kind: 'value'; name: string } {
  return typeof arg === 'object' && arg !== null && 'kind' in arg && arg.kind === 'value';
}

/** Literal arguments as text; values are marked only, because their ids follow the text. */
function literalKey(args: readonly Arg[]): string {
  return JSON.stringify(args, (_key, value: unknown) => {
    if (typeof value === 'bigint') return `${value}n`;
    return typeof value === 'object' && value !== null && 'kind' in value && value.kind === 'value'
      ? '%'
      : value;
  });
}

/**
 * Tensor uses of a call whose operator has no record: every value among its arguments, in order.
 */
function everyValue(node: Node): string[] {
  const names: string[] = [];
  const take = (arg: Arg): void => {
    if (Array.isArray(arg)) arg.forEach(take);
    else if (isValue(arg)) names.push(arg.name);
  };
  node.args.forEach(take);
  for (const key of Object.keys(node.kwargs).sort()) take(node.kwargs[key]);
  return names;
}

function flatTypes(type: ValueType): (TensorType | null)[] {
  switch (type.kind) {
    case 'tensor':
      return [type];
    case 'tuple':
      return type.items.map((item) => (item.kind === 'tensor' ? item : null));
    case 'sym':
    case 'none':
      return [];
  }
}

function orderOf(type: TensorType): { readonly order?: readonly number[] } {
  if (type.stride === undefined) return {};
  const order = dimOrder(type);
  return order.every((dim, place) => dim === place) ? {} : { order };
}

/** Dims of one element have no stride that matters. */
function isContiguous({ stride }: TensorType, { shape }: TensorMeta): boolean {
  if (stride === undefined) return true;
  let step = 1;
  for (let d = shape.length - 1; d >= 0; d--) {
    const own = stride[d];
    if (shape[d] !== 1 && (typeof own === 'number' ? own : own.example) !== step) return false;
    step *= shape[d];
  }
  return true;
}

/** Sizes as numbers; a symbolic size counts at its example. */
function concreteMeta(type: TensorType, node: Node): TensorMeta {
  const shape = type.shape.map((dim) => {
    if (typeof dim === 'number') return dim;
    if (dim.example === undefined)
      throw new ShardwrightError('E_UNSUPPORTED', `size '${dim.sym}' has no example value`, {
        node: node.name,
        hint:
          `give --size NAME=VALUE for each name in '${dim.sym}' (atSizes in the library), or ` +
          'export with the sizes you will run.',
      });
    return dim.example;
  });
  if (shape.some((n) => n < 0)) throw internalError(`negative size of ${node.name}`);
  return { dtype: type.dtype, shape };
}
