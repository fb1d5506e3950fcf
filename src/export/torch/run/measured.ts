/**
 * Makes a calibration from the measured calls of a run, in the form of `bench/calibrate.py`, so
 * that the next plan has the prices of this run.
 */
import { matrixPeak } from '../../../cost/compute.ts';
import type { Calibration } from '../../../cost/hardware/calibration.ts';
import type { Cluster } from '../../../cost/hardware/cluster.ts';
import { nodesByName } from '../../../graph/nodes.ts';
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
  const nodes = nodesByName(program);
  const kernels = new MeasuredKernels(cluster);
  for (const { node: name, kind, measuredSeconds } of calls) {
    const node = nodes.get(name);
    if (node === undefined || kind !== 'compute' || measuredSeconds <= 0) continue;
    const tensors = operands(node, nodes);
    const result = metaOf(node);
    if (tensors !== undefined && result !== undefined)
      kernels.add(node.target, tensors, result, measuredSeconds);
  }
  const { launches, matmulLaunches } = kernels;
  return {
    version: 1,
    device,
    software:
      `a step of ${program.name}, timed by its ${timed === 'kernels' ? 'kernels' : 'calls'}; ` +
      'shardwright doctor',
    matmul: kernels.matmul(),
    attention: [],
    memory: kernels.memory(),
    kernels: [],
    ...(launches.length > 0 && { launchSeconds: median(launches) }),
    ...(matmulLaunches.length > 0 && { matmulLaunchSeconds: median(matmulLaunches) }),
  };
}

interface MeasuredProduct {
  readonly unit: string;
  readonly m: number;
  readonly k: number;
  readonly n: number;
  readonly itemBytes: number;
  readonly seconds: number[];
}

/** Measured products and copies by their shapes. */
class MeasuredKernels {
  /** Seconds of the smallest kernels. */
  readonly launches: number[] = [];
  readonly matmulLaunches: number[] = [];
  private readonly products = new Map<string, MeasuredProduct>();
  /** Seconds by the bytes that a copy reads and writes. */
  private readonly copies = new Map<number, number[]>();

  constructor(private readonly cluster: Cluster) {}

  add(target: string, tensors: readonly TensorMeta[], result: TensorMeta, seconds: number): void {
    const bytes = [...tensors, result].reduce((sum, meta) => sum + metaBytes(meta), 0);
    const isSmall = bytes <= SMALL_BYTES;
    if (Object.hasOwn(PRODUCTS, target)) {
      if (isSmall) this.matmulLaunches.push(seconds);
      const [a, b] = PRODUCTS[target].map((k) => tensors[k]);
      this.addProduct(a, b, result, seconds);
    } else if (
      COPIES.has(target) &&
      tensors.every(({ shape }) => shape.join() === result.shape.join())
    ) {
      if (isSmall) this.launches.push(seconds);
      if (bytes > 0) this.copies.set(bytes, [...(this.copies.get(bytes) ?? []), seconds]);
    }
  }

  private addProduct(a: TensorMeta, b: TensorMeta, result: TensorMeta, seconds: number): void {
    const [[m, k], [, n]] = [a.shape, b.shape];
    if (m === 0 || k === 0 || n === 0) return;
    const { unit } = matrixPeak(this.cluster, result.dtype);
    const itemBytes = metaBytes({ dtype: a.dtype, shape: [1] });
    const key = `${unit} ${m} ${k} ${n} ${itemBytes}`;
    const known = this.products.get(key);
    if (known === undefined)
      this.products.set(key, { unit, m, k, n, itemBytes, seconds: [seconds] });
    else known.seconds.push(seconds);
  }

  matmul(): Calibration['matmul'] {
    const matmul: Calibration['matmul'] = {};
    for (const { unit, seconds, ...sizes } of this.products.values())
      (matmul[unit] ??= []).push({ ...sizes, seconds: median(seconds) });
    for (const unit of Object.keys(matmul))
      if (matmul[unit].length < LEAST_PRODUCTS) delete matmul[unit];
    return matmul;
  }

  memory(): Calibration['memory'] {
    return [...this.copies]
      .sort(([a], [b]) => a - b)
      .map(([bytes, seconds]) => ({ bytes, seconds: median(seconds) }));
  }
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
