/**
 * Joins consecutive collectives of the per-device program over their elements, wherever that is
 * cheaper.
 */

import { checkKinds } from '../../arguments.ts';
import { lintGraph } from '../../graph/lint.ts';
import { NameSet } from '../../graph/names.ts';
import { indexGraph } from '../../graph/order.ts';
import { type Arg, type DType, DTYPE_BYTES, type Graph, type Node } from '../../graph/types.ts';
import { isRef, NO_KWARGS, ref, tensorType } from '../../graph/value.ts';
import {
  collectiveKind,
  collectiveTarget,
  readCollective,
} from '../../lower/program/collectives.ts';
import type { DeviceProgram } from '../../lower/program/program.ts';
import type { CollectiveKind } from '../../mesh/collective-kinds.ts';
import { product } from '../../product.ts';

/**
 * Buckets in the program itself: consecutive collectives of one kind, group, reduction and dtype
 * become one over their joined elements, where the last of them stood. What they give keeps its
 * names, so that nothing else changes. The program computes what it did before, with fewer
 * collectives of the same bytes in all.
 */
export function bucketProgram(program: DeviceProgram, bucketBytes: number): DeviceProgram {
  checkKinds('bucketProgram', {
    program: [program, 'program'],
    bucketBytes: [bucketBytes, 'number'],
  });
  const { graph } = program;
  const buckets = findBuckets(program, bucketBytes);
  if (buckets.length === 0) return program;
  const names = new NameSet(graph.nodes.map((n) => n.name));
  const bucketOf = new Map(buckets.flatMap((b) => b.members.map((m) => [m.at, b] as const)));
  // Calls on what is not there yet follow the bucket.
  const waiting = new Map<string, Bucket>();
  const delayed = new Map(buckets.map((b) => [b, [] as Node[]]));
  const nodes: Node[] = [];
  graph.nodes.forEach((node, at) => {
    const bucket = bucketOf.get(at);
    if (bucket !== undefined) {
      waiting.set(node.name, bucket);
      if (at !== bucket.members[bucket.members.length - 1].at) return;
      const after = delayed.get(bucket) ?? [];
      nodes.push(...new Join(bucket, names).write(), ...after);
      for (const { name } of [...bucket.members.map((m) => m.node), ...after]) waiting.delete(name);
      return;
    }
    const [first] = node.args;
    const source =
      first !== undefined && isRef(first) && FOLLOWING.has(node.target)
        ? waiting.get(first.name)
        : undefined;
    if (source === undefined) nodes.push(node);
    else {
      delayed.get(source)?.push(node);
      waiting.set(node.name, source);
    }
  });
  const bucketed: Graph = { ...graph, nodes };
  lintGraph(bucketed);
  return { ...program, graph: bucketed };
}

interface Member {
  readonly at: number;
  readonly node: Node;
  readonly input: string;
  /** Shapes of the operand and of the result. */
  readonly from: readonly number[];
  readonly to: readonly number[];
}

interface Bucket {
  readonly kind: CollectiveKind;
  readonly dtype: DType;
  readonly groupSize: number;
  readonly members: Member[];
  bytes: number;
  /** First node that reads a result. */
  reader: number;
}

/** Kinds whose pieces can be joined; a permutation has no elements to join them over. */
const JOINED: ReadonlySet<CollectiveKind> = new Set<CollectiveKind>([
  'all_reduce',
  'all_gather',
  'reduce_scatter',
  'all_to_all',
]);

/** Calls that a redistribution writes after its collective: these move with it. */
const FOLLOWING: ReadonlySet<string> = new Set([
  'aten.contiguous.default',
  'aten.transpose.int',
  'aten.slice.Tensor',
  'aten.view.default',
  'aten.permute.default',
  'aten.reshape.default',
]);

function findBuckets({ graph, mesh }: DeviceProgram, bucketBytes: number): Bucket[] {
  const { users, userStart, position } = indexGraph(graph);
  /** First node that needs a value itself; the program's return comes after every node. */
  const firstReader = (at: number): number => {
    let first = Infinity;
    for (let k = userStart[at]; k < userStart[at + 1]; k++) {
      const user = users[k];
      const [operand] = graph.nodes[user].args;
      const follows =
        FOLLOWING.has(graph.nodes[user].target) && operand !== undefined && isRef(operand);
      first = Math.min(first, follows ? firstReader(user) : user);
    }
    return first;
  };
  const open = new Map<string, Bucket>();
  const all: Bucket[] = [];
  graph.nodes.forEach((node, at) => {
    const kind = collectiveKind(node.target);
    const [input] = node.args;
    if (kind === undefined || !JOINED.has(kind) || !isRef(input) || node.type.kind !== 'tensor')
      return;
    const source = graph.nodes[position.get(input.name) ?? at].type;
    if (source.kind !== 'tensor') return;
    const [from, to] = [sizes(source.shape), sizes(node.type.shape)];
    // Sizes that differ from rank to rank have no common place in a joined buffer.
    if (from === undefined || to === undefined || from.length === 0) return;
    const call = readCollective(mesh, node.target, node.args);
    const groupSize = mesh.sizeOf(call.meshDims);
    if (kind === 'all_to_all' && !evenSplits(node.args, from[0] / groupSize)) return;
    const { dtype } = node.type;
    const bytes = Math.max(product(from), product(to)) * DTYPE_BYTES[dtype];
    const reader = firstReader(at);
    const where = `${kind} ${call.meshDims.join()} ${call.op ?? ''}`;
    const key = `${where} ${dtype} ${node.meta.phase ?? ''}`;
    const member = { at, node, input: input.name, from, to };
    const last = open.get(key);
    if (last !== undefined && last.reader > at && last.bytes + bytes <= bucketBytes) {
      last.members.push(member);
      last.bytes += bytes;
      last.reader = Math.min(last.reader, reader);
      return;
    }
    const fresh: Bucket = { kind, dtype, groupSize, members: [member], bytes, reader };
    open.set(key, fresh);
    all.push(fresh);
  });
  return all.filter((b) => b.members.length > 1);
}

function sizes(shape: readonly unknown[]): readonly number[] | undefined {
  return shape.every((n) => typeof n === 'number') ? shape : undefined;
}

function evenSplits(args: readonly Arg[], rows: number): boolean {
  const even = (arg: Arg | undefined): boolean =>
    Array.isArray(arg) && arg.every((n) => n === rows);
  return even(args[1]) && even(args[2]);
}

/**
 * The nodes of one bucket. Operands are laid side by side as rows of one matrix: one row for a
 * reduction and a gather, one for each member of the group where the operand is cut among them.
 */
class Join {
  private readonly nodes: Node[] = [];

  constructor(
    private readonly bucket: Bucket,
    private readonly names: NameSet,
  ) {}

  write(): Node[] {
    const { kind, members, groupSize: n } = this.bucket;
    const cutBefore = kind === 'reduce_scatter' || kind === 'all_to_all';
    const cutAfter = kind === 'all_gather' || kind === 'all_to_all';
    const rows = cutBefore ? n : 1;
    const widths = members.map((m) => product(m.from) / rows);
    const width = widths.reduce((a, b) => a + b, 0);
    const flat = members.map((m, i) =>
      ref(this.call('aten.reshape.default', [ref(m.input), [rows, widths[i]]], [rows, widths[i]])),
    );
    const joined = this.call('aten.cat.default', [flat, 1], [rows, width]);
    const buffer = this.call('aten.reshape.default', [ref(joined), [rows * width]], [rows * width]);
    const outRows = cutAfter ? n : 1;
    const done = this.collective(buffer, rows * width, outRows * width);
    const matrix = this.call(
      'aten.reshape.default',
      [ref(done), [outRows, width]],
      [outRows, width],
    );
    let start = 0;
    members.forEach((m, i) => {
      const end = start + widths[i];
      const part = this.call(
        'aten.slice.Tensor',
        [ref(matrix), 1, start, end],
        [outRows, widths[i]],
      );
      this.call('aten.reshape.default', [ref(part), [...m.to]], m.to, m.node.name);
      start = end;
    });
    return this.nodes;
  }

  private collective(buffer: string, elements: number, result: number): string {
    const { kind, members, groupSize: n } = this.bucket;
    const { args } = members[0].node;
    const splits = new Array<number>(n).fill(elements / n);
    const rest = kind === 'all_to_all' ? [splits, splits, args[args.length - 1]] : args.slice(1);
    return this.call(collectiveTarget(kind), [ref(buffer), ...rest], [result]);
  }

  private call(
    target: string,
    args: readonly Arg[],
    shape: readonly number[],
    name?: string,
  ): string {
    const [first] = this.bucket.members;
    const own = name ?? this.unique(`${first.node.name}_bucket`);
    const { meta } = first.node;
    const type = tensorType(this.bucket.dtype, [...shape]);
    this.nodes.push({ name: own, kind: 'call', target, args, kwargs: NO_KWARGS, type, meta });
    return own;
  }

  private unique(base: string): string {
    return this.names.take(base);
  }
}
