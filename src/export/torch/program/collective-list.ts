/**
 * Lists the communication of `program.py` as a JSON record: every collective in the order in which
 * it is called.
 */
import { defined, nonEmpty } from '../../../defined.ts';
import { ShardwrightError } from '../../../errors.ts';
import { typesByName } from '../../../graph/nodes.ts';
import { DTYPE_BYTES, type Graph, type Node, type TensorType } from '../../../graph/types.ts';
import { isRef } from '../../../graph/value.ts';
import { collectiveKind, readCollective } from '../../../lower/program/collectives.ts';
import type { DeviceProgram } from '../../../lower/program/program.ts';
import type { CollectiveKind } from '../../../mesh/collective-kinds.ts';
import { product } from '../../../product.ts';
import { bytesText } from '../../../units.ts';
import { torchDtype } from './arguments.ts';
import { controlOf, tripsOf } from './control.ts';
import { sizeAt } from './sizes.ts';
import { callLines, type SplitProgram } from './split.ts';

/** The record in `collectives.json`; its keys are a contract. */
interface CollectiveList {
  readonly version: 1;
  readonly plan: string;
  /** Absent of a program at small sizes, which has the order of the whole one. */
  readonly order?: 'program' | 'simulated';
  /**
   * A simulated step in this order, and the most bytes of tensors alive in it, states of the
   * optimizer with them.
   */
  readonly seconds?: number;
  readonly peakBytes?: number;
  readonly collectives: readonly CollectiveRow[];
}

/** A collective of a bucket. */
interface CollectiveMember {
  readonly node: string;
  readonly bytes: number;
  readonly shape: readonly number[];
  readonly path?: string;
}

export interface CollectiveRow {
  readonly phase: 'forward' | 'backward';
  readonly node: string;
  readonly kind: CollectiveKind;
  /** Mesh dims in the order of the group's members. */
  readonly meshDims: readonly string[];
  readonly op?: string;
  /** Member to which each member sends. */
  readonly targets?: readonly number[];
  readonly dtype: string;
  /**
   * all_gather: gathered output; reduce_scatter: input; all_reduce: tensor; all_to_all,
   * collective_permute: one device's buffer.
   */
  readonly bytes: number;
  /** Sizes that each device brings, on the first device; a bucket has those of its members. */
  readonly shape?: readonly number[];
  /** For a bucket, the collectives that are one call, in its order. */
  readonly members?: readonly CollectiveMember[];
  /** Module that it serves. */
  readonly path?: string;
  /** Bodies that contain it, the outermost first. */
  readonly inside?: readonly BodyRow[];
}

/** A body of a loop or a branching. */
interface BodyRow {
  readonly call: string;
  readonly body: string;
  /** `loop`: every trip runs it; `branch`: it runs where it is taken; `call`: once. */
  readonly kind: 'loop' | 'branch' | 'call';
  /** Trips of a loop; null where a value decides. */
  readonly trips?: number | null;
}

/** @param chosen order of the calls, with its prices */
export function collectiveList(
  program: DeviceProgram,
  split: SplitProgram,
  plan: string,
  chosen?: Pick<CollectiveList, 'seconds' | 'peakBytes'> & {
    readonly name: 'program' | 'simulated';
  },
): CollectiveList {
  const { name: order, seconds, peakBytes } = chosen ?? {};
  return {
    version: 1,
    plan,
    ...defined({ order, seconds, peakBytes }),
    collectives: collectiveRows(program, split),
  };
}

/**
 * Every collective in the order in which it is called; those of a body once, with the loops and
 * branches around it.
 */
export function collectiveRows(program: DeviceProgram, split: SplitProgram): CollectiveRow[] {
  const { graph } = program;
  return (['forward', 'backward'] as const).flatMap((phase) =>
    rowsOf(program, graph, split[phase], phase, [], split.buckets),
  );
}

function rowsOf(
  program: DeviceProgram,
  graph: Graph,
  nodes: readonly Node[],
  phase: CollectiveRow['phase'],
  inside: readonly BodyRow[],
  buckets: SplitProgram['buckets'],
): CollectiveRow[] {
  const { mesh } = program;
  const types = typesByName(graph);
  const typeOf = (name: string): Node['type'] => types.get(name) ?? { kind: 'none' };
  return callLines(nodes, buckets).flatMap((line): CollectiveRow[] => {
    const [node] = line;
    const bodies = bodyRows(program, node, graph, typeOf);
    if (bodies !== undefined)
      return bodies.flatMap(([body, row]) =>
        rowsOf(program, body, body.nodes, phase, [...inside, row], buckets),
      );
    const kind = collectiveKind(node.target);
    if (kind === undefined) return [];
    const { meshDims, op, targets } = readCollective(mesh, node.target, node.args);
    const members = line.map((member) => memberRow(program, member, types));
    const [{ dtype, bytes, shape, path }] = members;
    return [
      {
        phase,
        node: node.name,
        kind,
        meshDims: meshDims.map((m) => mesh.names[m]),
        ...defined({ op, targets }),
        dtype,
        ...(line.length === 1
          ? { bytes, shape, ...defined({ path }) }
          : {
              bytes: members.reduce((sum, one) => sum + one.bytes, 0),
              members: members.map(({ dtype: _, ...member }) => member),
            }),
        ...nonEmpty({ inside }),
      },
    ];
  });
}

/** @param types of all values of its graph */
export function memberRow(
  program: DeviceProgram,
  { name, target, args, meta }: Node,
  types: ReadonlyMap<string, Node['type']>,
): CollectiveMember & { readonly dtype: string } {
  const { mesh } = program;
  const { kind, meshDims } = readCollective(mesh, target, args);
  const [value] = args;
  const type = isRef(value) ? types.get(value.name) : undefined;
  if (type?.kind !== 'tensor')
    throw new ShardwrightError('E_UNSUPPORTED', 'a collective of no tensor', { node: name });
  return {
    node: name,
    dtype: torchDtype(type.dtype),
    bytes: largestBytes(program, type) * (kind === 'all_gather' ? mesh.sizeOf(meshDims) : 1),
    shape: type.shape.map((dim) => sizeAt(program, dim, 0)),
    ...defined({ path: meta.path }),
  };
}

/** Bodies of a control-flow call in the order in which they run; undefined for any other call. */
function bodyRows(
  program: DeviceProgram,
  node: Node,
  graph: Graph,
  typeOf: (name: string) => Node['type'],
): [Graph, BodyRow][] | undefined {
  const form = controlOf(node, graph);
  if (form === undefined) return undefined;
  const row = (body: Graph, rest: Pick<BodyRow, 'kind' | 'trips'>): [Graph, BodyRow] => [
    body,
    { call: node.name, body: body.name, ...rest },
  ];
  switch (form.kind) {
    case 'scan':
      // Bodies that communicate run equally often everywhere.
      return [row(form.step, { kind: 'loop', trips: tripsOf(program, node, form, typeOf)[0] })];
    case 'while':
      return [form.condition, form.step].map((body) => row(body, { kind: 'loop', trips: null }));
    case 'branch':
      return form.bodies.map(({ graph: body }) =>
        row(body, { kind: form.test === null ? 'call' : 'branch' }),
      );
  }
}

/** Bytes of a local tensor, on the device that has most of it. */
export function largestBytes(program: DeviceProgram, { shape, dtype }: TensorType): number {
  const elements = program.mesh.devices.map((_, rank) =>
    product(shape.map((dim) => sizeAt(program, dim, rank))),
  );
  return Math.max(...elements) * DTYPE_BYTES[dtype];
}

/** One sentence on the buckets; none where collectives are called one by one. */
export function bucketNotes(program: DeviceProgram, split: SplitProgram): string[] {
  const rows = collectiveRows(program, split);
  const buckets = rows.flatMap(({ members, bytes }) =>
    members === undefined ? [] : [{ count: members.length, bytes }],
  );
  if (buckets.length === 0) return [];
  const sum = (of: 'count' | 'bytes'): number =>
    buckets.reduce((total, bucket) => total + bucket[of], 0);
  return [
    `${rows.length - buckets.length + sum('count')} collectives are ${rows.length} calls: ` +
      `${sum('count')} of them, ${bytesText(sum('bytes'))}, are in ${buckets.length} ` +
      `${buckets.length === 1 ? 'bucket' : 'buckets'}`,
  ];
}
