/**
 * Puts the measured kernels of a device into a cluster: efficiency curves of matmuls by unit, the
 * shares of the peak that attention reaches forward and backward, the share of the memory bandwidth
 * that copies reach, and the least time of a kernel. Prices of single calls take the points
 * themselves (`kernels/measured-calls.ts`).
 */

import { ShardwrightError } from '../../errors.ts';
import { countedText } from '../../units.ts';
import type { Calibration } from './calibration.ts';
import type { AttentionShares, Cluster, MatmulCurve } from './cluster.ts';

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

/** The fields of a cluster that a calibration changes. */
type Change = { -readonly [key in keyof Cluster]?: Cluster[key] };

/**
 * The cluster with what was measured in place of what was published or assumed; each figure says
 * where it comes from.
 *
 * @throws E_CALIBRATION for a unit that the cluster has no peak for, and for points above the peak
 */
export function calibrated(cluster: Cluster, calibration: Calibration): Cluster {
  const change: Change = { calibration };
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
  return {
    ...cluster,
    ...change,
    sources: { ...cluster.sources, ...sources },
    assumptions: [
      ...cluster.assumptions.filter((text) => !text.startsWith(MEASURED)),
      measuredOn(calibration),
    ],
  };
}

/** How the sentence on the machine that was measured begins. */
const MEASURED = 'kernels were measured on ';

/** The machine that was measured, and what its file says of the measurement itself. */
function measuredOn(calibration: Calibration): string {
  const { device, software, date, processes, mesh, backend, notes = [] } = calibration;
  const how = [
    ...(processes === undefined ? [] : [countedText(processes, 'process', 'processes')]),
    ...(mesh === undefined ? [] : [mesh]),
    ...(backend === undefined ? [] : [backend]),
    ...(software === '' ? [] : [software]),
    ...(date === undefined ? [] : [date]),
  ];
  const busy = notes.filter((note) => note.startsWith('the machine is '));
  const more = notes.length - busy.length;
  return [
    `${MEASURED}${[device, ...how].join(', ')}: another machine has other times`,
    ...busy,
    ...(more > 0 ? [`the file has ${countedText(more, 'more note')} on what was measured`] : []),
  ].join('; ');
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
 * neighbours of the upper half of the sizes, so that the launch is not part of it. Undefined for
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
