/**
 * Measured kernels of one device, as `bench/calibrate.py` writes them, and what they change in a
 * cluster: efficiency curves of matmuls by unit, the shares of the peak that attention reaches
 * forward and backward, the share of the memory bandwidth that copies reach, and the least time of
 * a kernel.
 */

import * as z from 'zod';

import { ShardwrightError } from '../../errors.ts';
import type { AttentionShares, Cluster, MatmulCurve } from '../hardware/cluster.ts';
import { loadCluster } from '../hardware/load-cluster.ts';

const seconds = z.number().positive().max(100);
const size = z.int().positive().max(1e9);

/** An argument of a measured call: a tensor, a dtype, a scalar, or a list. */
const plain = z.union([
  z.strictObject({
    dtype: z.string().max(10),
    shape: z.array(z.int().nonnegative().max(1e12)).max(16),
    turned: z.boolean().default(false),
  }),
  z.strictObject({ name: z.string().max(10) }),
  z.number(),
  z.boolean(),
  z.null(),
]);
const argument = z.union([plain, z.array(plain).max(1000)]);

const calibrationSchema = z.strictObject({
  version: z.literal(1),
  /** Device as its driver names it. */
  device: z.string().max(200),
  /** Software that measured, for the record. */
  software: z.string().max(500).default(''),
  /** Products of [m, k] and [k, n] by unit (`bf16`, `fp8` ...), `bytes` read and written. */
  matmul: z
    .record(
      z.string(),
      z
        .array(
          z.strictObject({
            m: size,
            k: size,
            n: size,
            itemBytes: z.number().positive().max(16),
            seconds,
          }),
        )
        .max(10_000),
    )
    .default({}),
  /**
   * Fused attention of [batch, heads, rows, channels] on itself, every score computed; the backward
   * is timed alone.
   */
  attention: z
    .array(
      z.strictObject({
        unit: z.string().default('bf16'),
        batch: size,
        heads: size,
        rows: size,
        channels: size,
        backward: z.boolean(),
        seconds,
      }),
    )
    .max(10_000)
    .default([]),
  /** Copies: bytes read and written together. */
  memory: z
    .array(z.strictObject({ bytes: z.int().positive().max(1e12), seconds }))
    .max(10_000)
    .default([]),
  /**
   * Calls of models as they are, with their arguments: what prices are compared with
   * (`scripts/kernel-errors.ts`), never fitted.
   */
  kernels: z
    .array(
      z.strictObject({
        model: z.string().max(200),
        op: z.string().max(200),
        args: z.array(argument).max(100),
        kwargs: z.record(z.string(), argument).default({}),
        seconds,
      }),
    )
    .max(10_000)
    .default([]),
  /** Smallest kernels, launched one after another: seconds each. */
  launchSeconds: z.number().nonnegative().max(1).optional(),
  matmulLaunchSeconds: z.number().nonnegative().max(1).optional(),
});
/** A calibration file, as it is read. */
export type Calibration = z.infer<typeof calibrationSchema>;
/** A call that was timed as it is. */
export type MeasuredCall = Calibration['kernels'][number];

/** Characters of a calibration file that are read at most. */
const TEXT_LIMIT = 16 * 2 ** 20;

/** @throws E_CALIBRATION for a text that is no calibration, with what does not fit */
export function parseCalibration(text: string): Calibration {
  if (text.length > TEXT_LIMIT)
    throw new ShardwrightError(
      'E_CALIBRATION',
      `the calibration has ${text.length} characters; at most ${TEXT_LIMIT} are read`,
    );
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (error) {
    throw new ShardwrightError(
      'E_CALIBRATION',
      `the calibration is not JSON: ${error instanceof Error ? error.message : ''}`,
    );
  }
  const parsed = calibrationSchema.safeParse(json);
  if (!parsed.success)
    throw new ShardwrightError(
      'E_CALIBRATION',
      `the calibration does not fit: ${z.prettifyError(parsed.error)}`,
      {
        hint:
          'write it with bench/calibrate.py or `shardwright doctor PLAN --run trace.json ' +
          '--calibration FILE`.',
      },
    );
  return parsed.data;
}

/**
 * Curve through measured matmuls: plateau and half-intensity of the least squared error of the
 * logarithm of the time, over a fixed grid, so that the same points give the same curve.
 *
 * @param peakFlopsPerSecond of the unit
 * @throws E_CALIBRATION for fewer than three points, or points above the peak
 */
export function fitMatmulCurve(
  points: Calibration['matmul'][string],
  peakFlopsPerSecond: number,
  unit: string,
): MatmulCurve {
  if (points.length < 3)
    throw new ShardwrightError(
      'E_CALIBRATION',
      `${points.length} matmuls of unit ${unit}; at least 3 are needed for a curve`,
    );
  const measured = points.map(({ m, k, n, itemBytes, seconds: t }) => {
    const flops = 2 * m * k * n;
    const share = flops / (t * peakFlopsPerSecond);
    if (share > 1.02)
      throw new ShardwrightError(
        'E_CALIBRATION',
        `${m}x${k}x${n} at ${(share * 100).toFixed(0)} % of the ${unit} peak`,
        {
          hint:
            'the cluster is not the device that was measured, or the timer did not wait for ' +
            'the kernel',
        },
      );
    return { intensity: flops / (itemBytes * (m * k + k * n + m * n)), share };
  });
  let best: MatmulCurve = { plateau: 1, halfIntensity: 0 };
  let least = Infinity;
  for (let half = 0; half <= 2000; half += half < 100 ? 1 : 10) {
    // With the half-intensity fixed the best plateau is the geometric mean of what the points ask
    // for.
    let log = 0;
    for (const { intensity, share } of measured)
      log += Math.log((share * (intensity + half)) / intensity);
    const plateau = Math.min(1, Math.exp(log / measured.length));
    let error = 0;
    for (const { intensity, share } of measured)
      error += Math.log((plateau * intensity) / (intensity + half) / share) ** 2;
    if (error < least - 1e-12) {
      least = error;
      best = { plateau, halfIntensity: half };
    }
  }
  return best;
}

/**
 * Cluster file of a calibrated cluster: `clusterText` (a node design or JSON) with what was
 * measured in place of what was assumed. The result is JSON that `loadCluster` reads, so that a
 * plan can be made again from its request.
 *
 * @throws E_CALIBRATION for a unit that the cluster has no peak for; E_CLUSTER as `loadCluster`
 */
export function calibratedClusterText(clusterText: string, calibration: Calibration): string {
  const cluster = loadCluster(clusterText);
  const change: Record<string, unknown> = {};
  const sources: Record<string, string> = {};
  const from = `calibration on ${calibration.device}`;
  const curves: Record<string, MatmulCurve> = {};
  let cap = 0;
  for (const unit of Object.keys(calibration.matmul).sort()) {
    const points = calibration.matmul[unit];
    if (points.length === 0) continue;
    const peak = unitPeak(cluster, unit);
    curves[unit] = fitMatmulCurve(points, peak, unit);
    for (const { m, k, n, seconds: t } of points) cap = Math.max(cap, (2 * m * k * n) / (t * peak));
  }
  if (Object.keys(curves).length > 0) {
    change.matmulCurves = curves;
    change.matmulCap = Math.min(1, cap);
    sources.matmulCurves = `${from}, least squares of the logarithm`;
    sources.matmulCap = `${from}, best matmul`;
  }
  const shares = attentionShares(calibration.attention, cluster);
  if (shares !== undefined) {
    change.attentionShares = shares;
    sources.attentionShares =
      `${from}, median of the larger half of the sizes, ` + 'every score counted';
  }
  const share = copyShare(calibration.memory, cluster.memoryBytesPerSecond);
  if (share !== undefined) {
    change.memoryEfficiency = share;
    sources.memoryEfficiency = `${from}, median step between large copies`;
  }
  for (const key of ['launchSeconds', 'matmulLaunchSeconds'] as const) {
    const value = calibration[key];
    if (value === undefined) continue;
    change[key] = value;
    sources[key] = from;
  }
  return JSON.stringify({ ...fileOf(clusterText, cluster), ...change, sources });
}

/**
 * Shares of the peak that large attention kernels reach, with the FLOPs that the operators count:
 * two products forward, five backward. Undefined without points of both.
 *
 * @throws E_CALIBRATION for a unit that the cluster has no peak for, or points above the peak
 */
function attentionShares(
  points: Calibration['attention'],
  cluster: Cluster,
): AttentionShares | undefined {
  const of = (backward: boolean): number | undefined => {
    const shares = points
      .filter((p) => p.backward === backward)
      .map(({ unit, batch, heads, rows, channels, seconds: t }) => {
        const peak = unitPeak(cluster, unit);
        const flops = (backward ? 10 : 4) * batch * heads * rows * rows * channels;
        const share = flops / (t * peak);
        if (share > 1.02)
          throw new ShardwrightError(
            'E_CALIBRATION',
            `attention of ${rows} rows at ${(share * 100).toFixed(0)} % of the ${unit} peak`,
            {
              hint:
                'time kernels that compute every score: causal ones do half of the work that ' +
                'is counted here',
            },
          );
        return { flops, share: Math.min(1, share) };
      })
      .sort((a, b) => a.flops - b.flops)
      .slice(-Math.max(1, points.filter((p) => p.backward === backward).length >> 1))
      .map((p) => p.share)
      .sort((a, b) => a - b);
    return shares[shares.length >> 1];
  };
  const [forwardShare, backwardShare] = [of(false), of(true)];
  return forwardShare === undefined || backwardShare === undefined
    ? undefined
    : { forwardShare, backwardShare };
}

function unitPeak(cluster: Cluster, unit: string): number {
  const peak = Object.hasOwn(cluster.peakFlopsPerSecond, unit)
    ? cluster.peakFlopsPerSecond[unit]
    : undefined;
  if (peak !== undefined) return peak;
  throw new ShardwrightError('E_CALIBRATION', `${cluster.name} has no ${unit} units`, {
    hint: `it has ${Object.keys(cluster.peakFlopsPerSecond).join(', ')}`,
  });
}

/**
 * Share of the bandwidth that large copies reach: what more bytes cost more time, between
 * neighbours of the upper half of the sizes, so that the launch is no part of it. Undefined for
 * fewer than three sizes.
 */
function copyShare(copies: Calibration['memory'], bytesPerSecond: number): number | undefined {
  const sorted = [...copies].sort((a, b) => a.bytes - b.bytes);
  const rates: number[] = [];
  for (let i = Math.max(1, sorted.length >> 1); i < sorted.length; i++) {
    const bytes = sorted[i].bytes - sorted[i - 1].bytes;
    const time = sorted[i].seconds - sorted[i - 1].seconds;
    if (bytes > 0 && time > 0) rates.push(bytes / time / bytesPerSecond);
  }
  if (sorted.length < 3 || rates.length === 0) return undefined;
  rates.sort((a, b) => a - b);
  return Math.min(1, rates[rates.length >> 1]);
}

/** The text as a cluster file that more fields can be added to. */
function fileOf(text: string, cluster: Cluster): Record<string, unknown> {
  const trimmed = text.trim();
  return trimmed.startsWith('{')
    ? (JSON.parse(trimmed) as Record<string, unknown>)
    : { base: cluster.id };
}
