/**
 * The types of per-device programs: a graph of local calls and collectives, and what it means
 * globally.
 */
import { checkKinds } from '../../arguments.ts';
import type { Arg, Graph, Node, ValueType } from '../../graph/types.ts';
import type { DeviceMesh } from '../../mesh/devices/mesh.ts';
import type { ShardingSpace } from '../../mesh/sharding/space.ts';
import type { DimOrder } from './memory-orders.ts';
import { argAtRank, dimAtRank } from './rank-int.ts';

/**
 * The program that every device runs: a graph of local calls and explicit collectives, and the
 * meaning of its values in terms of the unsharded program. Only the collective nodes communicate
 * (`collectives.ts` has their vocabulary).
 */
export interface DeviceProgram {
  readonly graph: Graph;
  readonly mesh: DeviceMesh;
  readonly space: ShardingSpace;
  /**
   * Value on each rank of the integers that differ from rank to rank; they are symbolic sizes in
   * the graph. Empty if every cut is even and nothing counts rows.
   */
  readonly symbols: ReadonlyMap<string, readonly number[]>;
  /** Places of the tensors of the unsharded program, by its names, in its order. */
  readonly values: readonly ProgramValue[];
  /**
   * Shardings of what the program returns, by position in `graph.outputs`; null where it returns
   * nothing.
   */
  readonly outputs: readonly (number | null)[];
  /** Calls that draw random numbers, by name of the local call. */
  readonly random: ReadonlyMap<string, RandomPiece>;
  /** Control-flow calls, by name of the local call. */
  readonly calls: ReadonlyMap<string, ProgramCall>;
  /**
   * Steps of redistributions in the order of the plan; absent of a program that no plan was lowered
   * to.
   */
  readonly moves?: readonly Redistributed[];
  /**
   * Values as redistributions leave them for a use; absent of a program that no plan was lowered
   * to.
   */
  readonly brought?: readonly BroughtValue[];
}

/** A value that was moved for a use. */
export interface BroughtValue {
  /** Name of the local value. */
  readonly local: string;
  /** Name of the node of the unsharded program that makes the value. */
  readonly name: string;
  /** Dims from the slowest to the fastest in memory, as in the unsharded program. */
  readonly order: DimOrder;
}

/** A step of a redistribution that does something: it moves or copies elements. */
export interface Redistributed {
  /** The kind as the redistribution planner names it, `all_gather` or `slice`. */
  readonly kind: string;
  /** Name of the local value after the step. */
  readonly local: string;
}

/** The call of the unsharded program that a control-flow call of the program comes from. */
export interface ProgramCall {
  readonly name: string;
  /**
   * By name of a body here: its name there, and the scope of the opened graph that it is; of a body
   * in a region, `region/body`.
   */
  readonly bodies: ReadonlyMap<
    string,
    { readonly name: string; readonly scope: number; readonly path?: string }
  >;
}

/** A local value of a device's program: the tensor that it is a piece of, and how it is placed. */
export interface ProgramValue {
  /**
   * Name of the tensor in its graph of the unsharded program; of a member of a tuple, that of the
   * call.
   */
  readonly name: string;
  /** Which result of the call. */
  readonly result: number;
  /** Name of the local tensor, as its producer leaves it. */
  readonly local: string;
  /** Id in the program's space. */
  readonly sharding: number;
  /** Global shape. */
  readonly shape: readonly number[];
  /** Dims from the slowest to the fastest in memory; absent: row by row. */
  readonly order?: DimOrder;
  /** True if it is in a body, so that it has a value for every run of that. */
  readonly inBody: boolean;
}

/**
 * Random numbers are a function of the position in the global result, so that shards are parts of
 * the unsharded one.
 */
export interface RandomPiece {
  /** Name of the call in its graph of the unsharded program: the stream of numbers. */
  readonly stream: string;
  readonly sharding: number;
  readonly shape: readonly number[];
  /** Memory order in which one process draws, where that is not row by row. */
  readonly order?: DimOrder;
}

/** The program of one rank (a place in the mesh): no symbols of the program are left in it. */
export function programAtRank(program: DeviceProgram, rank: number): Graph {
  checkKinds('programAtRank', { program: [program, 'program'], rank: [rank, 'number'] });
  const { symbols, graph } = program;
  return symbols.size === 0 ? graph : graphAtRank(graph, symbols, rank);
}

function graphAtRank(graph: Graph, symbols: DeviceProgram['symbols'], rank: number): Graph {
  const type = (of: ValueType): ValueType => {
    if (of.kind === 'tuple') return { ...of, items: of.items.map(type) };
    return of.kind === 'tensor'
      ? { ...of, shape: of.shape.map((dim) => dimAtRank(dim, symbols, rank)) }
      : of;
  };
  const nodes = graph.nodes.map((node): Node => {
    const arg = (of: Arg): Arg => argAtRank(of, symbols, rank);
    const kwargs = Object.fromEntries(
      Object.entries(node.kwargs).map(([key, value]) => [key, arg(value)]),
    );
    return { ...node, args: node.args.map(arg), kwargs, type: type(node.type) };
  });
  const bodies = Object.entries(graph.subgraphs).map(([name, body]): [string, Graph] => [
    name,
    graphAtRank(body, symbols, rank),
  ]);
  return { ...graph, nodes, subgraphs: Object.fromEntries(bodies) };
}
