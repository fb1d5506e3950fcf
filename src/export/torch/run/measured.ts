/**
 * Makes a calibration from the measured calls of a run, in the form of `bench/calibrate.py`, so
 * that the next plan has the prices of this run.
 */
import type { Calibration } from '../../../cost/collectives/calibration.ts';
import { matrixPeak } from '../../../cost/compute.ts';
import type { Cluster } from '../../../cost/hardware/cluster.ts';
import type { Graph, Node } from '../../../graph/types.ts';
import { isRef } from '../../../graph/value.ts';
import { metaBytes, type TensorMeta } from '../../../ops/record/record.ts';
import type { RunReport } from './doctor.ts';

/** Operands of the product in calls that are one. */
const PRODUCTS: Readonly<Record<string, readonly [number, number]>> = {
  'aten.mm.default': [0, 1],
  'aten.addmm.default': [1, 2],
};
/** Calls that read and write every byte once and compute next to nothing. */
const COPIES = new Set([
  'aten.clone.default',
  'aten._to_copy.default',
  'aten.add.Tensor',
  'aten.mul.Tensor',
  'aten.neg.default',
]);
/** A curve has two unknowns. */
const LEAST_PRODUCTS = 3;
/** The most bytes that the smallest kernels read and write: their time is that of the launch. */
const SMALL_BYTES = 2 ** 14;

/**
 * Products, copies and launches of a run; calls of one shape count once, with their median. Sizes
 * that differ from rank to rank are left out, and so is attention, whose measured form (every score
 * computed) models do not call.
 *
 * @param program that the trace was compared with, as it was lowered
 * @param device as the trace names it
 */
export function runCalibration(
  { calls, timed }: RunReport,
  program: Graph,
  cluster: Cluster,
  device: string,
): Calibration {
  const nodes = new Map(program.nodes.map((node) => [node.name, node]));
  const products = new Map<
    string,
    { unit: string; m: number; k: number; n: number; itemBytes: number; seconds: number[] }
  >();
  const copies = new Map<number, number[]>();
  const launches: number[] = [];
  const matmulLaunches: number[] = [];
  for (const { node: name, kind, measuredSeconds } of calls) {
    const node = nodes.get(name);
    if (node === undefined || kind !== 'compute' || measuredSeconds <= 0) continue;
    const tensors = operands(node, nodes);
    const result = metaOf(node);
    if (tensors === undefined || result === undefined) continue;
    const bytes = [...tensors, result].reduce((sum, meta) => sum + metaBytes(meta), 0);
    if (Object.hasOwn(PRODUCTS, node.target)) {
      const [a, b] = PRODUCTS[node.target].map((k) => tensors[k]);
      const [[m, k], [, n]] = [a.shape, b.shape];
      const { unit } = matrixPeak(cluster, result.dtype);
      const itemBytes = metaBytes({ dtype: a.dtype, shape: [1] });
      if (bytes <= SMALL_BYTES) matmulLaunches.push(measuredSeconds);
      if (m === 0 || k === 0 || n === 0) continue;
      const key = `${unit} ${m} ${k} ${n} ${itemBytes}`;
      const known = products.get(key);
      if (known === undefined)
        products.set(key, { unit, m, k, n, itemBytes, seconds: [measuredSeconds] });
      else known.seconds.push(measuredSeconds);
    } else if (
      COPIES.has(node.target) &&
      tensors.every(({ shape }) => shape.join() === result.shape.join())
    ) {
      if (bytes <= SMALL_BYTES) launches.push(measuredSeconds);
      if (bytes > 0) copies.set(bytes, [...(copies.get(bytes) ?? []), measuredSeconds]);
    }
  }
  const matmul: Calibration['matmul'] = {};
  for (const { unit, seconds, ...sizes } of products.values())
    (matmul[unit] ??= []).push({ ...sizes, seconds: median(seconds) });
  for (const unit of Object.keys(matmul))
    if (matmul[unit].length < LEAST_PRODUCTS) delete matmul[unit];
  return {
    version: 1,
    device,
    software:
      `a step of ${program.name}, timed by its ${timed === 'kernels' ? 'kernels' : 'calls'}; ` +
      'shardwright doctor',
    matmul,
    attention: [],
    memory: [...copies]
      .sort(([a], [b]) => a - b)
      .map(([bytes, seconds]) => ({ bytes, seconds: median(seconds) })),
    kernels: [],
    ...(launches.length > 0 && { launchSeconds: median(launches) }),
    ...(matmulLaunches.length > 0 && { matmulLaunchSeconds: median(matmulLaunches) }),
  };
}

/** Tensors that a call reads, in order; undefined where a size differs from rank to rank. */
function operands(node: Node, nodes: ReadonlyMap<string, Node>): TensorMeta[] | undefined {
  const metas = node.args
    .flatMap((arg) => (isRef(arg) ? [nodes.get(arg.name)] : []))
    .map((from) => from && metaOf(from));
  return metas.every((meta) => meta !== undefined) ? metas : undefined;
}

function metaOf({ type }: Node): TensorMeta | undefined {
  if (type.kind !== 'tensor') return undefined;
  const shape = type.shape.filter((dim) => typeof dim === 'number');
  return shape.length === type.shape.length ? { dtype: type.dtype, shape } : undefined;
}

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[sorted.length >> 1];
}
