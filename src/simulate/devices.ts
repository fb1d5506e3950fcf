import { internalError, ShardwrightError } from '../errors.ts';
import type { CollectiveKind } from '../cost/collectives.ts';
import { DTYPE_BYTES, type Graph, type Node } from '../graph/types.ts';
import { indexGraph } from '../graph/order.ts';
import { isRef } from '../graph/value.ts';
import { fromFlat, flat, NDArray } from '../ndarray/array.ts';
import { streamOf, type RandomStream } from '../ndarray/random.ts';
import { concat, slice } from '../ndarray/views.ts';
import { Partial } from '../mesh/partial.ts';
import { heldRows } from '../mesh/sharding.ts';
import { evaluateCall, type EvaluatedArg } from '../ops/kernels/evaluate.ts';
import type { OperatorTable } from '../ops/table.ts';
import { groupOf, collectiveKind, readCollective, type CollectiveCall } from '../plan/lower/collectives.ts';
import { programAtRank, type DeviceProgram, type RandomPiece } from '../plan/lower/program.ts';
import { argument, type Value } from './evaluate.ts';

/**
 * Virtual devices: every rank of the mesh runs the per-device program on its own arrays in float64, in step, and nothing
 * passes between ranks but through the program's collectives.
 */

/** A collective that ran, in all groups of its mesh dims. */
export interface ExecutedCollective {
  readonly kind: CollectiveKind;
  readonly meshDims: readonly number[];
  /**
   * Bytes at the tensor's own element type, of the largest group: all_gather the gathered output, reduce_scatter the input,
   * all_reduce the tensor, all_to_all and collective_permute the buffer of one rank.
   */
  readonly bytes: number;
  /** Name of the node. */
  readonly node: string;
}

export interface DeviceRun {
  /** By position in the graph's outputs, then by rank; null for one that the program does not return. */
  readonly outputs: readonly (readonly NDArray[] | null)[];
  readonly collectives: readonly ExecutedCollective[];
}

export interface DeviceOptions {
  /** Seed of the random operators; as for `evaluateGraph`. Default 0. */
  readonly seed?: number;
  /** Called with the arrays of every local value when it is made. */
  readonly onValue?: (name: string, byRank: readonly NDArray[]) => void;
}

/**
 * Runs a program on the virtual devices of its mesh.
 *
 * @param inputs arrays by placeholder, then by rank
 * @throws E_VERIFY when a local value does not have the shape that the program states on its rank; what `evaluateCall`
 *   throws, with the node
 */
export function runDevices(
  table: OperatorTable,
  program: DeviceProgram,
  inputs: readonly (readonly NDArray[])[],
  options: DeviceOptions = {},
): DeviceRun {
  return new Devices(table, program, options).run(inputs);
}

type Held = (Value | undefined)[];

class Devices {
  private readonly ranks: readonly Graph[];
  private readonly values = new Map<string, Held>();
  private readonly collectives: ExecutedCollective[] = [];
  private readonly streams = new Map<string, readonly RandomStream[]>();

  constructor(
    private readonly table: OperatorTable,
    private readonly program: DeviceProgram,
    private readonly options: DeviceOptions,
  ) {
    this.ranks = program.mesh.devices.map((_, rank) => programAtRank(program, rank));
  }

  run(inputs: readonly (readonly NDArray[])[]): DeviceRun {
    const { graph } = this.program;
    const { userStart, users, returned } = indexGraph(graph);
    const dying = graph.nodes.map((): string[] => []);
    graph.nodes.forEach((node, i) => {
      if (returned[i] === 0) dying[userStart[i + 1] > userStart[i] ? users[userStart[i + 1] - 1] : i].push(node.name);
    });
    let placeholders = 0;
    graph.nodes.forEach((node, i) => {
      const held = node.kind === 'placeholder' ? inputs[placeholders++] : this.compute(node, i);
      if (held === undefined || held.length !== this.ranks.length)
        throw new ShardwrightError('E_INPUT', `placeholder ${node.name} has no array for every rank`);
      this.checkShapes(node, i, held);
      this.values.set(node.name, [...held]);
      if (this.options.onValue !== undefined && held.every((x) => x instanceof NDArray))
        this.options.onValue(node.name, held);
      for (const name of dying[i]) this.values.delete(name);
    });
    const outputs = graph.outputs.map((output) =>
      output.value === null ? null : this.ranks.map((_, rank) => this.array(output.value ?? '', rank)),
    );
    return { outputs, collectives: this.collectives };
  }

  private compute(node: Node, i: number): readonly Value[] {
    try {
      if (collectiveKind(node.target) !== undefined) return this.collective(node);
      return this.ranks.map((graph, rank) => this.local(graph.nodes[i], rank));
    } catch (error) {
      if (error instanceof ShardwrightError && error.details.node === undefined) throw error.with({ node: node.name });
      throw error;
    }
  }

  private local(node: Node, rank: number): Value {
    const look = (name: string): Value => this.value(name, rank);
    if (node.target === 'operator.getitem') {
      const [source, k] = node.args;
      const list = isRef(source) ? look(source.name) : null;
      const member: Value | undefined = Array.isArray(list) ? (list as readonly Value[])[Number(k)] : undefined;
      if (member === undefined) throw internalError(`${node.name} reads a member that is not there`);
      return member;
    }
    const args = node.args.map((arg): EvaluatedArg => argument(arg, look));
    const kwargs = Object.fromEntries(Object.entries(node.kwargs).map(([key, arg]) => [key, argument(arg, look)]));
    return evaluateCall(this.table, node.target, args, kwargs, this.stream(node.name, rank));
  }

  /** Random numbers of a call on one rank: those of its positions in the global result. */
  private stream(name: string, rank: number): RandomStream {
    const seed = this.options.seed ?? 0;
    const piece = this.program.random.get(name);
    if (piece === undefined) return { seed, stream: streamOf(name) };
    let streams = this.streams.get(name);
    if (streams === undefined) this.streams.set(name, (streams = this.streamsOf(piece, seed)));
    return streams[rank];
  }

  private streamsOf({ stream, sharding, shape }: RandomPiece, seed: number): RandomStream[] {
    const { space, mesh } = this.program;
    const whole = { seed, stream: streamOf(stream) };
    const spec = space.get(sharding);
    if (spec.orders.size === 0) return mesh.devices.map(() => whole);
    const rows = shape.map((size, dim) => heldRows(spec, mesh, dim, size));
    return mesh.devices.map((_, rank) => {
      const local = rows.map((of) => of[rank]);
      return {
        ...whole,
        position: (at: number): number => {
          let rest = at;
          let position = 0;
          let step = 1;
          for (let d = local.length - 1; d >= 0; d--) {
            position += local[d][rest % local[d].length] * step;
            rest = Math.floor(rest / local[d].length);
            step *= shape[d];
          }
          return position;
        },
      };
    });
  }

  private collective(node: Node): NDArray[] {
    const { mesh } = this.program;
    const call = readCollective(mesh, node.target, node.args);
    const [input] = node.args;
    if (!isRef(input)) throw internalError(`${node.name} communicates no value`);
    const tensors = this.ranks.map((_, rank) => this.array(input.name, rank));
    let elements = 0;
    const out = tensors.map((_, rank): NDArray => {
      const group = groupOf(mesh, call.meshDims, rank);
      const parts = group.map((member) => tensors[member]);
      const [first] = parts;
      if (parts.some((p) => p.shape.join() !== first.shape.join()))
        throw new ShardwrightError('E_VERIFY', `members of a group bring tensors of different shapes`);
      elements = Math.max(elements, first.size * (call.kind === 'all_gather' ? group.length : 1));
      return exchange(call, parts, group.indexOf(rank));
    });
    const bytes = elements * DTYPE_BYTES[tensors[0].dtype];
    this.collectives.push({ kind: call.kind, meshDims: call.meshDims, bytes, node: node.name });
    return out;
  }

  private checkShapes(node: Node, i: number, held: readonly Value[]): void {
    held.forEach((value, rank) => {
      const { type } = this.ranks[rank].nodes[i];
      const fits =
        type.kind !== 'tensor' ||
        (value instanceof NDArray &&
          value.dtype === type.dtype &&
          value.rank === type.shape.length &&
          type.shape.every((size, d) => value.shape[d] === size));
      if (!fits)
        throw new ShardwrightError('E_VERIFY', `${node.name} is not the ${type.kind} that the program says on rank ${rank}`, {
          node: node.name,
        }); // prettier-ignore
    });
  }

  private value(name: string, rank: number): Value {
    const value = this.values.get(name)?.[rank];
    if (value === undefined) throw internalError(`${name} is read before it is made on rank ${rank}`);
    return value;
  }

  private array(name: string, rank: number): NDArray {
    const value = this.value(name, rank);
    if (!(value instanceof NDArray)) throw internalError(`${name} is no array`);
    return value;
  }
}

/** What member `me` of a group has after a collective; `parts` are what the members bring. */
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
