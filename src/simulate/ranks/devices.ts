/**
 * Virtual devices: every rank of the mesh runs the per-device program on its own arrays in float64,
 * in step, and nothing passes between ranks but through the program's collectives.
 */

import { checkKinds } from '../../arguments.ts';
import { internalError, ShardwrightError } from '../../errors.ts';
import { indexGraph } from '../../graph/order.ts';
import { DTYPE_BYTES, type Graph, type Node } from '../../graph/types.ts';
import { getOwn, isRef } from '../../graph/value.ts';
import {
  type CollectiveCall,
  collectiveKind,
  groupOf,
  readCollective,
} from '../../lower/program/collectives.ts';
import {
  type DeviceProgram,
  programAtRank,
  type RandomPiece,
} from '../../lower/program/program.ts';
import type { CollectiveKind } from '../../mesh/collective-kinds.ts';
import { Partial } from '../../mesh/placements/partials/partial.ts';
import { heldRows } from '../../mesh/sharding/sharding.ts';
import { flat, fromFlat, NDArray } from '../../ndarray/array.ts';
import { byParts } from '../../ndarray/complex.ts';
import { type RandomStream, streamOf } from '../../ndarray/random.ts';
import { concat, laidIn, memoryOrder, slice } from '../../ndarray/views.ts';
import { evaluateCall, type EvaluatedArg } from '../../ops/kernels/evaluate.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { controlFlow, isControl, type RankValues } from '../interpreter/control.ts';
import { argument, bodiesOf, runOf, type Value } from '../interpreter/evaluator.ts';
import { standIn } from '../interpreter/stand-in.ts';

/** A collective that ran, in all groups of its mesh dims. */
export interface ExecutedCollective {
  readonly kind: CollectiveKind;
  readonly meshDims: readonly number[];
  /**
   * Bytes at the tensor's own element type, of the largest group: all_gather the gathered output,
   * reduce_scatter the input, all_reduce the tensor, all_to_all and collective_permute the buffer
   * of one rank.
   */
  readonly bytes: number;
  /** Name of the node. */
  readonly node: string;
}

/** The result of a run on virtual devices: outputs by rank, and the collectives that ran. */
export interface DeviceRun {
  /**
   * By position in the graph's outputs, then by rank; null for one that the program does not
   * return.
   */
  readonly outputs: readonly (readonly NDArray[] | null)[];
  readonly collectives: readonly ExecutedCollective[];
  /** How often each body ran, by its name. */
  readonly runs: ReadonlyMap<string, number>;
}

interface DeviceOptions {
  /** Seed of the random operators; as for `evaluateGraph`. Default 0. */
  readonly seed?: number;
  /** Uses stand-ins, as `evaluateGraph` does. */
  readonly standIns?: boolean;
  /**
   * Called with the arrays of every local value when it is made, and the run of the body that it is
   * in.
   */
  readonly onValue?: (name: string, byRank: readonly NDArray[], run: string) => void;
}

/**
 * Runs a program on the virtual devices of its mesh.
 *
 * @param inputs arrays by placeholder, then by rank
 * @throws E_VERIFY when a local value does not have the shape that the program states on its rank;
 *   what `evaluateCall` throws, with the node
 */
export function runDevices(
  table: OperatorTable,
  program: DeviceProgram,
  inputs: readonly (readonly NDArray[])[],
  options: DeviceOptions = {},
): DeviceRun {
  checkKinds('runDevices', {
    table: [table, 'operators'],
    program: [program, 'program'],
    inputs: [inputs, 'list'],
    options: [options, 'record', 'undefined'],
  });
  return new Devices(table, program, options).run(inputs);
}

/** Trips of one while loop after which it counts as endless. */
const MAX_TRIPS = 10_000;

/** Calls that the lowering writes to lay a tensor row by row. */
const COPIES: ReadonlySet<string> = new Set(['aten.contiguous.default', 'aten.clone.default']);

/** A graph that is running: the program, or a body of it. */
interface RunningFrame {
  readonly graph: Graph;
  /** The graph as each rank has it. */
  readonly ranks: readonly Graph[];
  readonly values: Map<string, RankValues>;
  /** Path of the run, in names of the unsharded program. */
  readonly run: string;
}

class Devices {
  private readonly ranks: readonly Graph[];
  private frame: RunningFrame;
  private readonly collectives: ExecutedCollective[] = [];
  private readonly runs = new Map<string, number>();
  private readonly positions = new Map<string, readonly RandomStream['position'][]>();
  private readonly deaths = new Map<Graph, readonly (readonly string[])[]>();
  /** Memory order of what local calls give, by its name. */
  private readonly orders: ReadonlyMap<string, readonly number[]>;

  constructor(
    private readonly table: OperatorTable,
    private readonly program: DeviceProgram,
    private readonly options: DeviceOptions,
  ) {
    this.orders = new Map(
      program.values.map(({ local, shape, order }) => [local, order ?? shape.map((_, d) => d)]),
    );
    this.ranks = program.mesh.devices.map((_, rank) => programAtRank(program, rank));
    this.frame = { graph: program.graph, ranks: this.ranks, values: new Map(), run: '' };
  }

  run(inputs: readonly (readonly NDArray[])[]): DeviceRun {
    const { graph } = this.program;
    const placeholders = graph.nodes.filter((node) => node.kind === 'placeholder');
    placeholders.forEach((node, k) => {
      if (inputs[k]?.length !== this.ranks.length)
        throw new ShardwrightError(
          'E_INPUT',
          `placeholder ${node.name} has no array for every rank`,
        );
    });
    const returned = this.graph(graph, this.ranks, inputs, '');
    const outputs = returned.map(
      (byRank, k) => byRank?.map((value) => arrayOf(value, `output ${k}`)) ?? null,
    );
    return { outputs, collectives: this.collectives, runs: this.runs };
  }

  /**
   * Runs the program or a body of it on all ranks, node by node: what it returns, null where it
   * returns nothing.
   */
  private graph(
    graph: Graph,
    ranks: readonly Graph[],
    inputs: readonly (readonly Value[])[],
    run: string,
  ): (RankValues | null)[] {
    const around = this.frame;
    this.frame = { graph, ranks, values: new Map(), run };
    const { values } = this.frame;
    let dying = this.deaths.get(graph);
    if (dying === undefined) this.deaths.set(graph, (dying = deathsOf(graph)));
    let placeholders = 0;
    graph.nodes.forEach((node, i) => {
      const made = node.kind === 'placeholder' ? inputs[placeholders++] : this.compute(node, i);
      const byRank = this.laid(node, made);
      this.checkShapes(node, i, byRank);
      values.set(node.name, byRank);
      if (this.options.onValue !== undefined && byRank.every((x) => x instanceof NDArray))
        this.options.onValue(node.name, byRank, run);
      for (const name of dying[i]) values.delete(name);
    });
    const returned = graph.outputs.map(({ value }) =>
      value === null ? null : this.valuesOf(value),
    );
    this.frame = around;
    return returned;
  }

  /**
   * Kernels leave a tensor of the unsharded program in the memory order that it has there, and
   * pointwise ones any other tensor in that of their first operand.
   */
  private laid({ name, target, args }: Node, byRank: RankValues): RankValues {
    const stated = this.orders.get(name);
    const isPointwise = this.table.get(target)?.cls === 'pointwise' && !COPIES.has(target);
    const [first] = args;
    return byRank.map((value, rank) => {
      if (!(value instanceof NDArray)) return value;
      const operand = isPointwise && isRef(first) ? this.value(first.name, rank) : undefined;
      const order =
        stated ?? (operand instanceof NDArray ? memoryOrder(operand.strides) : undefined);
      return order?.length === value.rank
        ? byParts([value], ([part]) => laidIn(part, order))
        : value;
    });
  }

  private compute(node: Node, i: number): RankValues {
    const { ranks } = this.frame;
    try {
      if (collectiveKind(node.target) !== undefined) return this.collective(node);
      if (isControl(node.target)) return this.control(node, i);
      return ranks.map((graph, rank) => this.local(graph.nodes[i], rank));
    } catch (error) {
      if (error instanceof ShardwrightError && error.details.node === undefined)
        throw error.with({ node: node.name });
      throw error;
    }
  }

  /**
   * A call with bodies: all ranks take the same way through it. Its value is, on each rank, the
   * list of its results.
   */
  private control(node: Node, i: number): RankValues {
    const { graph, ranks, run } = this.frame;
    const call = this.program.calls.get(node.name);
    if (call === undefined) throw internalError(`${node.name} is a call of no known bodies`);
    const bodyOf = (of: Graph, name: string): Graph => {
      const body = getOwn(of.subgraphs, name);
      if (body === undefined) throw internalError(`graph ${of.name} has no body @${name}`);
      return body;
    };
    const results = controlFlow(node, {
      ranks: ranks.length,
      value: (name) => this.valuesOf(name),
      type: (rank) => ranks[rank].nodes[i].type,
      maxTrips: MAX_TRIPS,
      run: (name, inputs, trip) => {
        this.runs.set(name, (this.runs.get(name) ?? 0) + 1);
        const path = runOf(run, call.name, trip, call.bodies.get(name)?.name ?? name);
        const returned = this.graph(
          bodyOf(graph, name),
          ranks.map((of) => bodyOf(of, name)),
          inputs,
          path,
        );
        return returned.map((byRank) => byRank ?? ranks.map(() => null));
      },
    });
    return ranks.map((_, rank) => results.map((byRank) => byRank[rank]));
  }

  private local(node: Node, rank: number): Value {
    const look = (name: string): Value => this.value(name, rank);
    if (node.target === 'operator.getitem') {
      const [source, k] = node.args;
      const list = isRef(source) ? look(source.name) : null;
      const member: Value | undefined = Array.isArray(list)
        ? (list as readonly Value[])[Number(k)]
        : undefined;
      if (member === undefined)
        throw internalError(`${node.name} reads a member that is not there`);
      return member;
    }
    if (this.options.standIns === true && this.table.get(node.target) === undefined)
      return standIn(node, look);
    const bodies = bodiesOf(this.table, this.frame.ranks[rank]);
    const args = node.args.map((arg): EvaluatedArg => argument(arg, look, bodies));
    const kwargs = Object.fromEntries(
      Object.entries(node.kwargs).map(([key, arg]) => [key, argument(arg, look, bodies)]),
    );
    return evaluateCall(
      this.table,
      node.target,
      args,
      kwargs,
      this.stream(node.name, rank),
      node.type,
    );
  }

  /** Random numbers of a call on one rank: those of its positions in the global result. */
  private stream(name: string, rank: number): RandomStream {
    const seed = this.options.seed ?? 0;
    const { run } = this.frame;
    const piece = this.program.random.get(name);
    if (piece === undefined) return { seed, stream: streamOf(`${run}${name}`) };
    let positions = this.positions.get(name);
    if (positions === undefined) this.positions.set(name, (positions = this.positionsOf(piece)));
    const position = positions[rank];
    const stream = { seed, stream: streamOf(`${run}${piece.stream}`) };
    return position === undefined ? stream : { ...stream, position };
  }

  /**
   * For each rank where its elements lie in the global result; undefined where a rank holds all of
   * it.
   */
  private positionsOf({ sharding, shape }: RandomPiece): RandomStream['position'][] {
    const { space, mesh } = this.program;
    const spec = space.get(sharding);
    if (spec.orders.size === 0) return mesh.devices.map(() => undefined);
    const rows = shape.map((size, dim) => heldRows(spec, mesh, dim, size));
    return mesh.devices.map((_, rank) => {
      const local = rows.map((of) => of[rank]);
      return (at: number): number => {
        let rest = at;
        let position = 0;
        let step = 1;
        for (let d = local.length - 1; d >= 0; d--) {
          position += local[d][rest % local[d].length] * step;
          rest = Math.floor(rest / local[d].length);
          step *= shape[d];
        }
        return position;
      };
    });
  }

  private collective(node: Node): NDArray[] {
    const { mesh } = this.program;
    const call = readCollective(mesh, node.target, node.args);
    const [input] = node.args;
    if (!isRef(input)) throw internalError(`${node.name} communicates no value`);
    const tensors = this.valuesOf(input.name).map((value) => arrayOf(value, input.name));
    let elements = 0;
    const out = tensors.map((_, rank): NDArray => {
      const group = groupOf(mesh, call.meshDims, rank);
      const parts = group.map((member) => tensors[member]);
      const [first] = parts;
      if (parts.some((p) => p.shape.join() !== first.shape.join()))
        throw new ShardwrightError(
          'E_VERIFY',
          `members of a group bring tensors of different shapes`,
        );
      elements = Math.max(elements, first.size * (call.kind === 'all_gather' ? group.length : 1));
      return byParts(parts, (own) => exchange(call, own, group.indexOf(rank)));
    });
    const bytes = elements * DTYPE_BYTES[tensors[0].dtype];
    this.collectives.push({ kind: call.kind, meshDims: call.meshDims, bytes, node: node.name });
    return out;
  }

  private checkShapes(node: Node, i: number, byRank: RankValues): void {
    byRank.forEach((value, rank) => {
      const { type } = this.frame.ranks[rank].nodes[i];
      const fits =
        type.kind !== 'tensor' ||
        (value instanceof NDArray &&
          value.dtype === type.dtype &&
          value.rank === type.shape.length &&
          type.shape.every((size, d) => value.shape[d] === size));
      if (!fits)
        throw new ShardwrightError(
          'E_VERIFY',
          `${node.name} is not the ${type.kind} that the program says on rank ${rank}`,
          {
            node: node.name,
          },
        );
    });
  }

  private valuesOf(name: string): RankValues {
    const byRank = this.frame.values.get(name);
    if (byRank === undefined) throw internalError(`${name} is read before it is made`);
    return byRank;
  }

  private value(name: string, rank: number): Value {
    return this.valuesOf(name)[rank];
  }
}

/** For each node the values that nothing reads after it. */
function deathsOf(graph: Graph): string[][] {
  const { userStart, users, returned } = indexGraph(graph);
  const dying = graph.nodes.map((): string[] => []);
  graph.nodes.forEach((node, i) => {
    if (returned[i] === 0)
      dying[userStart[i + 1] > userStart[i] ? users[userStart[i + 1] - 1] : i].push(node.name);
  });
  return dying;
}

function arrayOf(value: Value, what: string): NDArray {
  if (!(value instanceof NDArray)) throw internalError(`${what} is not an array`);
  return value;
}

/**
 * The value of member `me` of a group after a collective; `parts` are the values of the members
 * before.
 */
function exchange(call: CollectiveCall, parts: readonly NDArray[], me: number): NDArray {
  const n = parts.length;
  switch (call.kind) {
    case 'all_reduce':
      return reduced(call, parts);
    case 'all_gather':
      return concat(parts, 0);
    case 'reduce_scatter':
      return chunk(reduced(call, parts), me, n);
    case 'all_to_all':
      return concat(
        parts.map((part) => chunk(part, me, n)),
        0,
      );
    case 'collective_permute': {
      const from = call.targets?.indexOf(me) ?? -1;
      if (from < 0) throw internalError(`nobody sends to member ${me}`);
      return parts[from];
    }
  }
}

/** Part `k` of `n` of dim 0. */
function chunk(x: NDArray, k: number, n: number): NDArray {
  const rows = x.shape[0] / n;
  if (!Number.isInteger(rows)) throw internalError(`${x.shape[0]} rows are not for ${n} members`);
  return slice(x, 0, k * rows, (k + 1) * rows);
}

function reduced({ op }: CollectiveCall, parts: readonly NDArray[]): NDArray {
  if (op === undefined) throw internalError('a reduction without an operation');
  const [first] = parts;
  const kind = first.kind === 'bool' ? 'bool' : 'number';
  const operands = parts.map((p) => flat(p));
  const partial = Partial.of(op);
  const out = new Float64Array(first.size);
  const column = new Array<number>(parts.length);
  for (let e = 0; e < out.length; e++) {
    for (let r = 0; r < column.length; r++) column[r] = operands[r][e];
    out[e] = partial.reduce(column, kind);
  }
  return fromFlat(first.shape, out, first.dtype);
}
