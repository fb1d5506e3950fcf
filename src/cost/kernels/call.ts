/**
 * Seconds of one call of a traced program on a device in a training step: takes the operator's
 * record and the call at the sizes of a device, gives seconds and kernels that are launched. What
 * of a pointwise call reaches memory is the caller's to say.
 */

import { defined } from '../../defined.ts';
import { type DType, DTYPE_BYTES } from '../../graph/types.ts';
import { elements, type OperatorRecord, type TypedContext } from '../../ops/record/record.ts';
import type { Cluster } from '../hardware/cluster.ts';
import { clocksOf, clockTime } from './clocks.ts';
import type { FittedConstants } from './fitted.ts';
import { matrixPeak } from './peak-flops.ts';
import { attentionSeconds, type Product, productSeconds, trafficSeconds } from './seconds.ts';
import type { StepSoftware } from './software.ts';

/** A machine, the software on it, and the constants of the model. */
export interface StepSystem {
  readonly cluster: Cluster;
  readonly software: StepSoftware;
  readonly constants: FittedConstants;
}

/** Device time of a call, gaps included, and the kernels that the host launches for it. */
export interface CallTime {
  readonly seconds: number;
  readonly kernels: number;
}

/**
 * Kernels of attention whose scores are stored: two products forward, four backward, and scaling,
 * mask, softmax, dropout.
 */
const STORED_KERNELS = { forward: 10, backward: 11 };

/**
 * Seconds of kernels that only read and write `bytes`, with the gaps before them; frameworks
 * without fused ones move more.
 */
export function memoryCall(
  bytes: number,
  kernels: number,
  { cluster, software, constants }: StepSystem,
): CallTime {
  const traffic =
    constants.pointwiseTraffic * (software.fusedPointwise ? 1 : constants.unfusedTraffic);
  const seconds = trafficSeconds(traffic * bytes, cluster) + kernels * constants.kernelGapSeconds;
  return { seconds, kernels };
}

/** The role of a matrix product in its program. */
export interface ProductRole {
  /**
   * Runs on the narrow unit where the software has one: products with weights inside the layers.
   */
  readonly narrow?: boolean;
  /** The right operand is a weight, whose cast may be kept. */
  readonly weight?: boolean;
  /** Columns of the products that run in the same kernel, this one's among them; and their rows. */
  readonly columns?: number;
  readonly rows?: number;
  /**
   * Attention reads keys and values from a cache; `latent`: values are channels of keys, so that
   * one read serves both.
   */
  readonly cache?: 'whole' | 'latent';
}

/** Seconds of a product of matrices or of attention; undefined for other calls. */
export function matrixCall(
  record: OperatorRecord,
  ctx: TypedContext,
  system: StepSystem,
  role: ProductRole = {},
): CallTime | undefined {
  if (record.cls !== 'matmul' && record.cls !== 'attention') return undefined;
  const { cluster, constants, software } = system;
  const dtype = ctx.outputs[0]?.dtype ?? ctx.inputs[0]?.dtype ?? 'bf16';
  const { flopsPerSecond: peak, unit } = matrixPeak(cluster, dtype);
  const matrix = { cluster, peak, clockTime: clockTime(clocksOf(cluster), constants), unit };
  if (record.cls === 'attention') return attentionCall(record, ctx, system, matrix, role);
  const product = productOf(record, ctx);
  if (product === undefined) return undefined;
  const { rows, columns, count, flops } = product;
  const kernels = record.name.includes('_grouped_mm') && !software.groupedExperts ? count : 1;
  // Projections in one kernel: the sizes of all decide on its tiles and its efficiency, and each
  // pays its share.
  const all = { rows: role.rows ?? rows, columns: role.columns ?? columns };
  const share = (rows * columns) / (all.rows * all.columns);
  const wide = {
    ...all,
    count: count / kernels,
    flops: flops / share,
    bytes: storedBytes(product, dtype, role, software) / share,
    ...defined({ isFilled: software.splitsProducts }),
  };
  const narrow = role.narrow === true ? software.narrowUnit : undefined;
  const narrowPeak = narrow === undefined ? undefined : cluster.peakFlopsPerSecond[narrow];
  const unit16 = narrowPeak === undefined ? matrix : { ...matrix, peak: narrowPeak, unit: narrow };
  const seconds =
    share *
    (productSeconds(wide, unit16 as typeof matrix, constants) +
      kernels * constants.kernelGapSeconds);
  if (narrowPeak === undefined) return { seconds, kernels: share * kernels };
  const inner = flops / (2 * rows * columns * count);
  const kept = role.weight === true && software.castWeightsKept;
  const cast = count * (rows * inner + (kept ? 0 : inner * columns));
  const casting = memoryCall(software.narrowCastBytes * cast, (kept ? 1 : 2) * kernels, system);
  return { seconds: seconds + casting.seconds, kernels: share * kernels + casting.kernels };
}

/** Bytes of a product whose weights may lie in memory in fewer bytes than those of their dtype. */
function storedBytes(
  { rows, flops, bytes }: Product,
  dtype: DType,
  { weight, narrow }: ProductRole,
  { weightBytes }: StepSoftware,
): number {
  if (weightBytes === undefined || weight !== true || narrow !== true) return bytes;
  // Every element of the weight is multiplied once for each row.
  return bytes - (flops / (2 * rows)) * (DTYPE_BYTES[dtype] - weightBytes);
}

/** Bytes that attention moves, of which keys and values may be those of a cache. */
function attentionBytes(
  record: OperatorRecord,
  ctx: TypedContext,
  { cache }: ProductRole,
  { cacheBytes, cacheShare = 1 }: StepSoftware,
): number {
  const bytes = record.bytes(ctx);
  const [key, value] = [ctx.tensor('key'), ctx.tensor('value')];
  if (cache === undefined || key === undefined || value === undefined) return bytes;
  const item = DTYPE_BYTES[key.dtype];
  const [keys, values] = [elements(key.shape), elements(value.shape)];
  const read = cacheShare * (keys + (cache === 'latent' ? 0 : values));
  return bytes - (keys + values) * item + read * (cacheBytes ?? item);
}

type Unit = Parameters<typeof productSeconds>[1];

function attentionCall(
  record: OperatorRecord,
  ctx: TypedContext,
  system: StepSystem,
  unit: Unit,
  role: ProductRole,
): CallTime {
  const { cluster, software, constants } = system;
  const backward = record.name.includes('backward');
  const flops = record.flops(ctx).matrix;
  const bytes = attentionBytes(record, ctx, role, software);
  const query = ctx.tensor('query')?.shape;
  const key = ctx.tensor('key')?.shape;
  const value = ctx.tensor('value')?.shape;
  if (software.flashAttention || query?.length !== 4 || key === undefined || value === undefined) {
    const measured = cluster.attentionShares?.[backward ? 'backwardShare' : 'forwardShare'];
    // Measured shares count every score, ours those below the diagonal.
    const causal = measured === undefined && isCausal(ctx) ? 0.5 : 1;
    const rate = unit.peak * (measured ?? software.attentionShare);
    return {
      seconds: attentionSeconds(flops * causal, bytes, cluster, rate) + constants.kernelGapSeconds,
      kernels: 1,
    };
  }
  const count = query[0] * query[1];
  const [queries, keys, width] = [query[2], key[2], query[3]];
  const item = 2;
  const product = (rows: number, inner: number, columns: number): number =>
    productSeconds(
      {
        rows,
        columns,
        count,
        flops: 2 * rows * inner * columns * count,
        bytes: item * (rows * inner + inner * columns + rows * columns) * count,
      },
      unit,
      constants,
    );
  const pair = product(queries, width, keys) + product(queries, keys, value[3]);
  const scores =
    count *
    queries *
    keys *
    (2 * item + (software.dropout ? 2 * item + 1 : 0)) *
    (backward ? 1.5 : 1);
  const { seconds } = memoryCall(
    scores + bytes,
    STORED_KERNELS[backward ? 'backward' : 'forward'],
    system,
  );
  return {
    seconds: (backward ? 2 : 1) * pair + seconds,
    kernels: STORED_KERNELS[backward ? 'backward' : 'forward'],
  };
}

/**
 * Bytes that attention keeps for the backward pass where it stores its scores: the softmax of 16
 * bits, and under dropout the mask and what is left (arXiv:2205.05198, section 4.1: 5 a s^2 b).
 */
export function keptScoreBytes(
  ctx: TypedContext,
  { flashAttention, dropout }: StepSoftware,
): number {
  const query = ctx.tensor('query')?.shape;
  const key = ctx.tensor('key')?.shape;
  if (flashAttention || query?.length !== 4 || key === undefined) return 0;
  return query[0] * query[1] * query[2] * key[2] * (dropout ? 5 : 2);
}

function isCausal(ctx: TypedContext): boolean {
  return ctx.bool('is_causal');
}

/** Rows and columns of a product's result on a device, and how many there are in one kernel. */
function productOf(record: OperatorRecord, ctx: TypedContext): Product | undefined {
  const out = ctx.outputs[0];
  const flops = record.flops(ctx).matrix;
  if (out === null || out === undefined || out.shape.length === 0 || flops === 0) return undefined;
  const columns = out.shape[out.shape.length - 1];
  const total = elements(out.shape) / columns;
  const operands = ctx.inputs.filter((meta) => meta.shape.length >= 2);
  // A stack of matrices on both sides is a batch of products; a stack on one side, rows of one
  // product.
  const stacked = operands.length >= 2 && operands.slice(-2).every((meta) => meta.shape.length > 2);
  const grouped = record.name.includes('_grouped_mm');
  const groups = grouped ? (ctx.tensor('offs')?.shape[0] ?? 1) : 1;
  const count = grouped ? groups : stacked ? elements(out.shape.slice(0, -2)) : 1;
  return { rows: total / count, columns, count, flops, bytes: record.bytes(ctx) };
}
