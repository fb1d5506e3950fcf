/**
 * Prices the calls of a traced program as kernels that software runs: it groups the calls that a
 * compiler (or a library of fused kernels) joins into one kernel, and gives each call its share of
 * the group's memory traffic and launches.
 */

import {
  matrixCall,
  memoryCall,
  type ProductRole,
  type StepSystem,
} from '../../cost/kernels/call.ts';
import type { Graph } from '../../graph/types.ts';
import type { TypedContext } from '../../ops/record/record.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import type { GraphUnits } from './graph-units.ts';
import { isJoined, ONE_KERNEL } from './joined-calls.ts';

/** The placed program as kernels are priced from it. */
interface PlacedProgram {
  readonly graph: Graph;
  readonly units: GraphUnits;
  readonly table: OperatorTable;
  /** Bytes of what a node makes, on one device; of several results the largest. */
  readonly bytesOf: (node: number) => number;
  /** The call of a node at the sizes of a device; undefined for nodes that compute nothing. */
  readonly contextOf: (node: number) => TypedContext | undefined;
}

/** Device seconds and launched kernels by node. */
interface ProgramKernels {
  readonly seconds: Float64Array;
  readonly kernels: Float64Array;
}

export function programKernels(program: PlacedProgram, system: StepSystem): ProgramKernels {
  const { graph, units, table, contextOf } = program;
  const groups = joined(program, system);
  const traffic = memoryTraffic(program, groups, system);
  const seconds = new Float64Array(graph.nodes.length);
  const kernels = new Float64Array(graph.nodes.length);
  const launched = new Set<number>();
  const roleOf = productRoles(program, system);
  const libraryKernels = { ...system, software: { ...system.software, fusedPointwise: true } };
  const inLoss = (i: number): boolean =>
    units.unit[i] === units.count - 1 && !ONE_KERNEL.test(graph.nodes[i].meta.path ?? '');
  graph.nodes.forEach((node, i) => {
    const record = node.kind === 'call' ? table.get(node.target) : undefined;
    if (
      record === undefined ||
      record.cls === 'view' ||
      record.cls === 'control' ||
      units.root[i] !== i
    )
      return;
    const group = groups[i];
    let time: ReturnType<typeof memoryCall> | undefined;
    if (group < 0) {
      const ctx = contextOf(i);
      if (ctx === undefined) return;
      const bytes = record.bytes(ctx);
      time =
        matrixCall(record, ctx, system, roleOf(i)) ?? memoryCall(bytes, bytes > 0 ? 1 : 0, system);
    } else {
      const isFirst = !launched.has(group);
      launched.add(group);
      // Every framework takes the loss in a few kernels of its library; what others do not fuse is
      // in the layers.
      time = memoryCall(traffic[i], isFirst ? 1 : 0, inLoss(i) ? libraryKernels : system);
    }
    seconds[i] = time.seconds;
    kernels[i] = time.kernels;
  });
  return { seconds, kernels };
}

/**
 * The kernel (its first node) that each call is part of, -1 for calls that are kernels of their
 * own. Calls of one unit and pass are joined where one reads the other and as many kernels of their
 * own lie before both, so that no group waits for itself.
 */
function joined({ graph, units, table }: PlacedProgram, { software }: StepSystem): Int32Array {
  const { root, unit, index } = units;
  const count = graph.nodes.length;
  const isForward = (i: number): boolean => units.pass[i] === 'forward';
  const joins = graph.nodes.map((node) => isJoined(node, table));
  const fuses = software.fusedPointwise || software.compiled;
  const operands = (i: number): number[] => [
    ...new Set(
      [...index.operands.subarray(index.operandStart[i], index.operandStart[i + 1])].map(
        (o) => root[o],
      ),
    ),
  ];
  const level = new Int32Array(count);
  /** Backward calls that need nothing but saved values; they run just before what reads them. */
  const floats = new Uint8Array(count);
  for (let i = 0; i < count; i++) {
    if (graph.nodes[i].kind !== 'call' || root[i] !== i) continue;
    const own = operands(i).filter(
      (r) => graph.nodes[r].kind === 'call' && isForward(r) === isForward(i),
    );
    floats[i] = Number(!isForward(i) && own.every((r) => floats[r] === 1) && joins[i]);
    for (const r of own) level[i] = Math.max(level[i], level[r] + (joins[r] ? 0 : 1));
  }
  const least = new Int32Array(count).fill(-1);
  for (let i = count - 1; i >= 0; i--) {
    if (floats[i] === 1 && least[i] >= 0) level[i] = least[i];
    if (graph.nodes[i].kind !== 'call' || root[i] !== i || isForward(i)) continue;
    for (const r of operands(i))
      if (floats[r] === 1) least[r] = least[r] < 0 ? level[i] : Math.min(least[r], level[i]);
  }
  const parent = Int32Array.from({ length: count }, (_, i) => i);
  const find = (i: number): number => {
    while (parent[i] !== i) i = parent[i] = parent[parent[i]];
    return i;
  };
  for (let i = 0; i < count; i++) {
    if (!joins[i] || root[i] !== i) continue;
    for (const r of operands(i)) {
      if (
        !joins[r] ||
        isForward(r) !== isForward(i) ||
        level[r] !== level[i] ||
        unit[r] !== unit[i]
      )
        continue;
      const path = graph.nodes[i].meta.path;
      if (
        !fuses &&
        (path === undefined || path !== graph.nodes[r].meta.path || !ONE_KERNEL.test(path))
      )
        continue;
      const [a, b] = [find(i), find(r)];
      parent[Math.max(a, b)] = Math.min(a, b);
    }
  }
  return Int32Array.from({ length: count }, (_, i) => (joins[i] && root[i] === i ? find(i) : -1));
}

/** Modules of low-rank adapters. */
const ADAPTER = /\.lora_[AB]$/;

/** The calls of attention that read a cache. */
function cacheReads(
  graph: Graph,
  { root, index }: GraphUnits,
  table: OperatorTable,
): Map<number, ProductRole> {
  const roles = new Map<number, ProductRole>();
  graph.nodes.forEach((node, i) => {
    if (node.kind !== 'call' || root[i] !== i || table.get(node.target)?.cls !== 'attention')
      return;
    const [, key, value] = index.operands.subarray(
      index.operandStart[i],
      index.operandStart[i + 1],
    );
    const { kind, meta } = graph.nodes[root[key]];
    if (kind !== 'placeholder' || meta.role !== 'buffer') return;
    roles.set(i, { cache: root[key] === root[value] ? 'latent' : 'whole' });
  });
  return roles;
}

/** The role of each product: the unit on which it may run, and the calls that run in its kernel. */
function productRoles(
  { graph, units, table, contextOf }: PlacedProgram,
  { software }: StepSystem,
): (node: number) => ProductRole {
  const { root, unit, pass, weight, index } = units;
  const isProduct = (i: number): boolean => {
    const node = graph.nodes[i];
    return node.kind === 'call' && root[i] === i && table.get(node.target)?.cls === 'matmul';
  };
  const operands = (i: number): number[] =>
    [...index.operands.subarray(index.operandStart[i], index.operandStart[i + 1])].map(
      (o) => root[o],
    );
  const sizes = (i: number): readonly number[] => contextOf(i)?.outputs[0]?.shape ?? [];
  const roles = cacheReads(graph, units, table);
  const together = new Map<string, number[]>();
  graph.nodes.forEach(({ meta }, i) => {
    if (!isProduct(i)) return;
    // Adapters stay in 16 bits, in kernels of their own.
    if (ADAPTER.test(meta.path ?? '')) return;
    const inLayer = unit[i] > 0 && unit[i] < units.count - 1;
    roles.set(i, { narrow: inLayer, weight: operands(i).some((r) => weight[r] === 1) });
    if (!software.fusedProjections || !inLayer || sizes(i).length !== 2) return;
    // Forward they share what they read; the products of their weights' gradients share it too.
    for (const r of operands(i)) {
      if (weight[r] === 1 || graph.nodes[r].kind !== 'call' || pass[r] !== 'forward') continue;
      const key = `${r} ${unit[i]} ${pass[i]}`;
      const list = together.get(key) ?? [];
      list.push(i);
      together.set(key, list);
    }
  });
  for (const list of together.values()) {
    if (list.length < 2) continue;
    const [rows, columns] = [0, 1].map((d) => list.map((i) => sizes(i)[d]));
    const sum = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0);
    for (const i of list) {
      const role = roles.get(i) ?? {};
      if (rows.every((n) => n === rows[0])) roles.set(i, { ...role, columns: sum(columns) });
      else if (columns.every((n) => n === columns[0])) roles.set(i, { ...role, rows: sum(rows) });
    }
  }
  return (node) => roles.get(node) ?? {};
}

/**
 * Bytes that each joined call moves between its kernel and memory. A kernel reads what it takes
 * from outside once, and writes what somebody outside takes. What a fused forward pass makes
 * element by element of values in memory is not kept for the backward pass but made again from
 * them.
 */
function memoryTraffic(
  { graph, units, table, bytesOf }: PlacedProgram,
  groups: Int32Array,
  { software }: StepSystem,
): Float64Array {
  const { root, index, pass } = units;
  const count = graph.nodes.length;
  const isForward = (i: number): boolean => pass[i] === 'forward';
  const fuses = software.fusedPointwise || software.compiled;
  const again = (i: number): boolean =>
    groups[i] >= 0 &&
    isForward(i) &&
    table.get(graph.nodes[i].target)?.cls === 'pointwise' &&
    (fuses || ONE_KERNEL.test(graph.nodes[i].meta.path ?? ''));
  const operands = (i: number): number[] => [
    ...new Set(
      [...index.operands.subarray(index.operandStart[i], index.operandStart[i + 1])].map(
        (o) => root[o],
      ),
    ),
  ];
  const written = new Uint8Array(count);
  for (let i = 0; i < count; i++) {
    const node = graph.nodes[i];
    if (node.kind !== 'call' || root[i] !== i) continue;
    for (const r of operands(i)) {
      if (groups[r] < 0 || groups[r] === groups[i]) continue;
      const isMadeAgain = groups[i] >= 0 && isForward(r) && !isForward(i) && again(r);
      if (!isMadeAgain) written[r] = 1;
    }
  }
  const names = new Map(graph.nodes.map((n, i) => [n.name, i]));
  for (const { value } of graph.outputs) {
    const at = value === null ? undefined : names.get(value);
    if (at !== undefined) written[root[at]] = 1;
  }
  const traffic = new Float64Array(count);
  const seen = new Set<string>();
  for (let i = 0; i < count; i++) {
    const group = groups[i];
    if (group < 0) continue;
    if (written[i] === 1) traffic[i] += bytesOf(i);
    const read = (r: number): void => {
      if (groups[r] === group) return;
      const key = `${group} ${r}`;
      if (seen.has(key)) return;
      seen.add(key);
      if (groups[r] >= 0 && written[r] === 0 && again(r)) for (const o of operands(r)) read(o);
      else traffic[i] += bytesOf(r);
    };
    for (const r of operands(i)) read(r);
  }
  return traffic;
}
