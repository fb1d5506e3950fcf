/**
 * Time of one operator on one device: a roofline over the largest shard, with an efficiency that
 * grows with arithmetic intensity.
 */

import type { DType } from '../graph/types.ts';
import { metaBytes, type OperatorRecord, type TypedContext } from '../ops/record/record.ts';
import type { BodyTraffic } from '../ops/record/rule.ts';
import type { Cluster } from './hardware/cluster.ts';
import { unalignedSeconds } from './kernels/alignment.ts';
import { attentionRate } from './kernels/attention.ts';
import { eagerWork } from './kernels/eager.ts';
import { matrixSeconds } from './kernels/matmul.ts';
import { measuredCall } from './kernels/measured-calls.ts';
import { matrixPeak } from './kernels/peak-flops.ts';

export { ATTENTION_SHARE } from './kernels/attention.ts';
export { matrixPeak } from './kernels/peak-flops.ts';
import type { CostRecord } from './collective-model.ts';

/** Classes that run no kernel of their own. */
const FREE_CLASSES: ReadonlySet<string> = new Set(['view', 'control']);

/**
 * The part of a call's traffic that reaches memory where a compiler joins calls into kernels, as
 * shares of its tensors at any sizes. An input of which half is read elsewhere in the kernel has
 * .5; one that is read twice has 2.
 */
export interface CallTraffic {
  /** By tensor input. */
  readonly inputs: readonly number[];
  /** By result. */
  readonly outputs: readonly number[];
  /**
   * The number of kernels of the call; 0 for a call that runs inside the kernel of another call.
   */
  readonly kernels: number;
  /** Read besides, by tensor input, where the rows that the call reduces are cut over devices. */
  readonly cut?: readonly number[];
}

/** Facts that the program states about a call, in addition to its operator and sizes. */
export interface CallFacts {
  /** The traffic of the call in a compiled program; absent: the call is a kernel of its own. */
  readonly traffic?: CallTraffic | undefined;
  /**
   * By tensor input of a product: whether it lies column by column in memory; absent: not known.
   */
  readonly turned?: readonly boolean[] | undefined;
}

/** Corrections that a preset adds to the roofline. */
export interface ComputeOptions extends CallFacts {
  /**
   * Share of the matrix peak that a fused attention kernel reaches, where the cluster has no
   * measured one. Absent: priced as a matmul of its intensity, which is far above what such kernels
   * reach, because they read little.
   */
  readonly attentionShare?: number;
  /** Kernels that run in place of the operator's own one. */
  readonly body?: BodyTraffic | undefined;
}

/**
 * Dtype whose units do the work: the first float among inputs and results, else that of the first
 * tensor.
 */
function workDtype(ctx: TypedContext): DType {
  const metas = [...ctx.inputs, ...ctx.outputs.filter((o) => o !== null)];
  return metas.find((m) => FLOATS.has(m.dtype))?.dtype ?? metas[0]?.dtype ?? 'f32';
}
const FLOATS: ReadonlySet<DType> = new Set<DType>([
  'f64',
  'f32',
  'bf16',
  'f16',
  'f8e4m3fn',
  'f8e5m2',
  'c64',
  'c128',
]);

/**
 * Bytes and kernels of a call: as it is, as what runs in its place, or as a part of a compiled
 * kernel.
 */
function workOf(
  record: OperatorRecord,
  ctx: TypedContext,
  { body, traffic }: ComputeOptions,
): BodyTraffic {
  if (traffic === undefined) return body ?? eagerWork(record, ctx);
  const { inputs, outputs, cut } = traffic;
  let { kernels } = traffic;
  let bytes = 0;
  ctx.inputs.forEach((meta, k) => (bytes += (inputs[k] ?? 0) * metaBytes(meta)));
  ctx.outputs.forEach(
    (meta, k) => (bytes += meta === null ? 0 : (outputs[k] ?? 0) * metaBytes(meta)),
  );
  if (body !== undefined && cut !== undefined) {
    ctx.inputs.forEach((meta, k) => (bytes += (cut[k] ?? 0) * metaBytes(meta)));
    kernels++;
  }
  return { bytes, kernels };
}

/**
 * Price of one call with its parts.
 *
 * @param ctx the call at the sizes of the largest shard
 */
export function computeCost(
  record: OperatorRecord,
  ctx: TypedContext,
  cluster: Cluster,
  options: ComputeOptions = {},
): CostRecord {
  if (FREE_CLASSES.has(record.cls))
    return { seconds: 0, kind: record.cls, terms: {}, source: 'no kernel' };
  const { bytes, kernels } = workOf(record, ctx, options);
  const matrix = record.flops(ctx).matrix;
  if (bytes <= 0 && matrix <= 0)
    return { seconds: 0, kind: record.cls, terms: {}, source: 'no work' };
  const measured = measuredCost(record, ctx, cluster, options, { matrix, bytes, kernels });
  if (measured !== undefined) return measured;
  const memorySeconds = bytes / (cluster.memoryBytesPerSecond * cluster.memoryEfficiency);
  let flopSeconds = 0;
  let source = `roofline on ${cluster.id}`;
  if (matrix > 0) {
    const dtype = workDtype(ctx);
    const { flopsPerSecond, unit } = matrixPeak(cluster, dtype);
    const rate =
      record.cls === 'attention'
        ? attentionRate(record, ctx, cluster, options.attentionShare)
        : undefined;
    flopSeconds =
      rate === undefined
        ? matrixSeconds(matrix, Math.max(bytes, 1), flopsPerSecond, cluster, unit)
        : (matrix * rate.part) / (flopsPerSecond * Math.min(rate.share, cluster.matmulCap));
    flopSeconds = Math.max(
      flopSeconds,
      unalignedSeconds(record, ctx, options.turned, matrix, cluster),
    );
    source += `, ${dtype} on the ${unit} units`;
    if (
      rate === undefined
        ? cluster.matmulCurves?.[unit] !== undefined
        : cluster.attentionShares !== undefined
    )
      source += ', calibrated';
  }
  const launch = kernels * (matrix > 0 ? cluster.matmulLaunchSeconds : cluster.launchSeconds);
  return {
    seconds: Math.max(flopSeconds, memorySeconds, launch),
    kind: record.cls,
    terms: { flopSeconds, memorySeconds, latencySeconds: launch },
    source,
  };
}

/**
 * The price of a call as it was timed on the machine; undefined where nothing was, and for parts of
 * compiled kernels, which no call alone is like.
 */
function measuredCost(
  record: OperatorRecord,
  ctx: TypedContext,
  cluster: Cluster,
  { body, traffic }: ComputeOptions,
  { matrix, bytes, kernels }: { matrix: number; bytes: number; kernels: number },
): CostRecord | undefined {
  if (cluster.calibration === undefined || traffic !== undefined) return undefined;
  // Shares of the peak say what attention takes.
  if (record.cls === 'attention' && cluster.attentionShares !== undefined) return undefined;
  const unit = matrix > 0 ? matrixPeak(cluster, workDtype(ctx)).unit : undefined;
  // Points have the tensors that go in and come out, not what kernels read again.
  const moved = body === undefined ? record.bytes(ctx) : bytes;
  const op = body === undefined ? record.name : '';
  const found = measuredCall(cluster, { op, unit, flops: matrix, bytes: moved, kernels });
  if (found === undefined) return undefined;
  return { seconds: found.seconds, kind: record.cls, terms: {}, source: found.source };
}
