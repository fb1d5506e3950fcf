/**
 * The schema of a user's cluster file: JSON with the abilities of a device, the links by level, and
 * the cost of operation. A list of levels is read into hosts, trays and the links between them.
 * Times are in seconds, rates in bytes or FLOPs per second.
 */

import * as z from 'zod';

import { calibrationSchema } from './calibration.ts';
import { collectiveTableSchema } from './collective-table.ts';
import { operationSchema } from './operation.ts';

export const DEFAULT_MATMUL_CAP = 794.5 / 989;
/** Share of a link inside a host that collectives reach, where no figure is known. */
export const INTRA_EFFICIENCY = 0.7;
/** Share of a link between hosts that collectives reach, where no figure is known. */
export const INTER_EFFICIENCY = 0.9;
export const LAUNCH_SECONDS = 4e-6;
export const MATMUL_LAUNCH_SECONDS = 9e-6;

/**
 * The range of rates that can be priced. Outside of it times overflow or vanish, and rounding would
 * decide the plan.
 */
const rate = z.number().min(1).max(1e24);
const share = z.number().min(1e-6).max(1);
const seconds = z.number().nonnegative().max(1e18);
const bytes = z.number().min(1).max(Number.MAX_SAFE_INTEGER);
const devices = z
  .int()
  .positive()
  .max(2 ** 24);

const linkSchema = z.strictObject({
  bytesPerSecond: rate,
  efficiency: share.optional(),
  latencySeconds: seconds,
});

const levelSchema = linkSchema.extend({
  name: z.string().min(1).max(40),
  devices,
  oversubscription: z.number().min(1).max(1e6).default(1),
  rails: z.boolean().default(false),
});

/** A name on one line. */
const label = z.string().regex(/^[^\n\r]*$/, 'a name is one line');

const torusSchema = z.strictObject({
  longestAxes: z.array(devices).min(1),
  wrapMultiple: devices,
  linkBytesPerSecond: rate,
  hopSeconds: seconds,
});

/**
 * Form of a user's cluster file; what `hardware show --json` prints is one. Times in seconds, rates
 * in bytes or FLOPs per second.
 *
 * @internal
 */
export const clusterFileSchema = z.strictObject({
  id: label.default('custom'),
  name: label.optional(),
  accelerator: label.default('custom'),
  peakFlopsPerSecond: z.record(z.string(), rate),
  matmulCap: share.default(DEFAULT_MATMUL_CAP),
  memoryBytes: bytes,
  reservedBytes: z.number().nonnegative().optional(),
  memoryBytesPerSecond: rate,
  memoryEfficiency: share.default(0.8),
  powerShare: share.optional(),
  devicesPerHost: devices,
  devicesPerTray: devices.optional(),
  usedPerHost: devices.optional(),
  intra: linkSchema,
  inter: linkSchema,
  levels: z.array(levelSchema).min(1).max(8).optional(),
  operation: operationSchema.optional(),
  torus: torusSchema.optional(),
  baseLatencySeconds: seconds.default(6.6e-6),
  launchSeconds: seconds.default(LAUNCH_SECONDS),
  matmulLaunchSeconds: seconds.default(MATMUL_LAUNCH_SECONDS),
  matmulCurves: z
    .record(
      z.string(),
      z.strictObject({ plateau: share, halfIntensity: z.number().nonnegative().max(1e18) }),
    )
    .optional(),
  attentionShares: z.strictObject({ forwardShare: share, backwardShare: share }).optional(),
  collectiveTable: collectiveTableSchema.optional(),
  calibration: calibrationSchema.optional(),
  sources: z.record(z.string(), z.string()).optional(),
  /** Assumptions of a cluster record that we printed. */
  assumptions: z.array(z.string()).optional(),
});

export const derivedFileSchema = clusterFileSchema
  .extend({ intra: linkSchema.partial(), inter: linkSchema.partial() })
  .partial()
  .extend({ base: z.string() });

/**
 * The same record without a list of levels from the tray outward: levels that say `scaleUp` are
 * those inside a host, the largest of them the host and the smallest its trays; the others are the
 * network.
 */
export function withoutScaleUp(json: unknown): unknown {
  if (typeof json !== 'object' || json === null) return json;
  const { levels, ...rest } = json as Readonly<Record<string, unknown>>;
  if (!Array.isArray(levels)) return json;
  const all = levels as readonly Readonly<Record<string, unknown>>[];
  const isInside = (level: unknown): boolean =>
    typeof level === 'object' &&
    level !== null &&
    (level as Readonly<Record<string, unknown>>).scaleUp === true;
  const inside = all.filter(isInside).map(({ scaleUp: _, ...level }) => level);
  const network = all.filter((level) => !isInside(level));
  if (inside.length === 0) return json;
  const link = ({
    name: _,
    devices: __,
    oversubscription: ___,
    rails: ____,
    ...own
  }: Readonly<Record<string, unknown>>): object => own;
  const [tray, host] = [inside[0], inside[inside.length - 1]];
  return {
    devicesPerHost: host.devices,
    ...(tray.devices === host.devices ? {} : { devicesPerTray: tray.devices }),
    intra: link(host),
    ...(network.length === 0 ? {} : { inter: link(network[0]), levels: network }),
    ...rest,
  };
}
