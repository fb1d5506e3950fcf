/**
 * The preset `autoparallel`: the figures of meta-pytorch/autoparallel, literally, faults included,
 * so that its choices can be reproduced: binary units for vendors' decimal bandwidths, a flat
 * efficiency of 0.7, a floor of 7 us, NCCL-like collectives of a reference cluster of the GPU's
 * generation. Other devices fall back to PyTorch's figures with an all_to_all of five all_gathers,
 * as there. It has no permutation: one costs the all_to_all of its buffer.
 *
 * The planning problem charges redistributions by AutoParallel's formula and lets each use pay for
 * its own, as AutoParallel does. The program that runs takes our steps; their prices are those of
 * the same collectives.
 */

import * as z from 'zod';

import { internalError, ShardwrightError } from '../../errors.ts';
import { type DType, DTYPE_BYTES } from '../../graph/types.ts';
import type { CollectiveKind } from '../../mesh/collective-kinds.ts';
import type { DeviceMesh } from '../../mesh/devices/mesh.ts';
import { isPending, type Sharding } from '../../mesh/sharding/sharding.ts';
import { elements, type OperatorRecord, type TypedContext } from '../../ops/record/record.ts';
import { packageData } from '../../platform/platform.ts';
import {
  type CollectiveModel,
  type CostRecord,
  groupTopology,
  type LiteralMove,
} from '../collective-model.ts';
import type { NcclGroup } from '../collectives/nccl-algorithms.ts';
import { ncclConstants, ncclFamily } from '../collectives/nccl-constants.ts';
import { literalGroup, literalLinks, literalMicros } from '../collectives/nccl-literal.ts';
import type { Cluster } from '../hardware/cluster.ts';
import { hardware } from '../hardware/hardware.ts';
import { dtensorModel } from './dtensor.ts';

const MICRO = 1e-6;

const schema = z.object({
  efficiency: z.number().positive(),
  floor_us: z.number().positive(),
  devices: z.record(
    z.string(),
    z.object({
      memory_TiBps: z.number().positive().optional(),
      memory_GiBps: z.number().positive().optional(),
      TFLOPS: z.record(z.string(), z.number().positive()),
    }),
  ),
});
let loaded: z.infer<typeof schema> | undefined;
function facts(): z.infer<typeof schema> {
  if (loaded !== undefined) return loaded;
  const parsed = schema.safeParse(JSON.parse(packageData('autoparallel.json')));
  if (!parsed.success)
    throw internalError(`data/autoparallel.json: ${z.prettifyError(parsed.error)}`);
  return (loaded = parsed.data);
}

/** A device of the preset. */
interface LiteralDevice {
  readonly name: string;
  readonly memoryBytesPerSecond: number;
  readonly peakTera: Readonly<Record<string, number>>;
}

/** @throws E_CLUSTER for a device that AutoParallel has no figures for, with the known ones */
function literalDevice(accelerator: string): LiteralDevice {
  const { devices } = facts();
  const name = Object.keys(devices)
    .filter((key) => accelerator.includes(key))
    .sort((a, b) => b.length - a.length || (a < b ? -1 : 1))[0];
  if (name === undefined)
    throw new ShardwrightError(
      'E_CLUSTER',
      `the preset autoparallel has no figures for ${accelerator}`,
      {
        hint: `it knows ${Object.keys(devices).join(', ')}; use --cost nccl or alpha-beta`,
      },
    );
  const { memory_TiBps = 0, memory_GiBps = 0, TFLOPS } = devices[name];
  return {
    name,
    memoryBytesPerSecond: memory_TiBps * 2 ** 40 + memory_GiBps * 2 ** 30,
    peakTera: TFLOPS,
  };
}

/** Microseconds to read and write bytes: at 70 % of the bandwidth, at least 7. */
function copyMicros(bytes: number, device: LiteralDevice): number {
  const { efficiency, floor_us } = facts();
  return Math.max(bytes / device.memoryBytesPerSecond / MICRO / efficiency, floor_us);
}

/** Calls that run no kernel, as in `compute.ts`. */
const FREE_CLASSES: ReadonlySet<string> = new Set(['view', 'control']);

/**
 * Time of one call: FLOPs at 70 % of the peak or all bytes read and written at 70 % of the
 * bandwidth, at least 7 us.
 *
 * @param ctx the call at the sizes of the largest shard
 * @throws E_CLUSTER for an unknown device, or one without a peak for the dtype of the first tensor
 */
export function autoparallelCompute(
  record: OperatorRecord,
  ctx: TypedContext,
  cluster: Cluster,
): CostRecord {
  const source = 'autoparallel: roofline at 70 %, floor 7 us';
  if (FREE_CLASSES.has(record.cls)) return { seconds: 0, kind: record.cls, terms: {}, source };
  const device = literalDevice(cluster.accelerator);
  const { efficiency, floor_us } = facts();
  let bytes = 0;
  for (const meta of [...ctx.inputs, ...ctx.outputs])
    if (meta !== null) bytes += DTYPE_BYTES[meta.dtype] * elements(meta.shape);
  const flops = record.flops(ctx).matrix;
  let flopSeconds = 0;
  if (flops > 0) {
    const dtype: DType = ctx.inputs[0]?.dtype ?? 'f32';
    const peak = device.peakTera[dtype];
    if (peak === undefined)
      throw new ShardwrightError(
        'E_CLUSTER',
        `the preset autoparallel has no ${dtype} peak for ${device.name}`,
        {
          hint: `it knows ${Object.keys(device.peakTera).join(', ')}`,
        },
      );
    flopSeconds = flops / (peak * 1e12) / efficiency;
  }
  const memorySeconds = bytes / device.memoryBytesPerSecond / efficiency;
  const latencySeconds = floor_us * MICRO;
  return {
    seconds: Math.max(flopSeconds, memorySeconds, latencySeconds),
    kind: record.cls,
    terms: { flopSeconds, memorySeconds, latencySeconds },
    source,
  };
}

/** Collectives and copies of the preset on a mesh. */
export function autoparallelModel(cluster: Cluster, mesh: DeviceMesh): CollectiveModel {
  const arch = hardware().accelerators.find((a) => a.name === cluster.accelerator)?.arch;
  const family = arch === undefined ? undefined : ncclFamily(arch);
  const fallback = family === undefined ? dtensorModel(mesh, cluster.devicesPerHost) : undefined;
  const devicesPerNode =
    family === undefined ? cluster.devicesPerHost : ncclConstants().clusters[family].devicesPerNode;
  const groupOf = (meshDims: readonly number[]): NcclGroup => {
    if (meshDims.length === 1)
      return literalGroup(mesh.sizes[meshDims[0]], mesh.strides[meshDims[0]], devicesPerNode);
    const { devices, hosts, perHost } = groupTopology(mesh, devicesPerNode, meshDims);
    return { n: devices, nodes: hosts, perNode: perHost };
  };
  const micros = (kind: CollectiveKind, bytes: number, meshDims: readonly number[]): number => {
    const asked = kind === 'collective_permute' ? 'all_to_all' : kind;
    if (mesh.sizeOf(meshDims) === 1) return 0;
    if (family !== undefined)
      return literalMicros(asked, bytes, literalLinks(family), groupOf(meshDims));
    if (fallback === undefined) throw internalError('no collectives for the preset autoparallel');
    return asked === 'all_to_all'
      ? (5 * fallback.seconds('all_gather', bytes, meshDims)) / MICRO
      : fallback.seconds(asked, bytes, meshDims) / MICRO;
  };
  const model: CollectiveModel = {
    preset: 'autoparallel',
    note:
      `Kernels and collectives at AutoParallel's own figures, whatever the cluster has: 70 % ` +
      'of every peak, 7 us a kernel at least, ' +
      (family === undefined
        ? "PyTorch's figures for collectives"
        : `NCCL constants of ${family} GPUs`) +
      `. The objective charges a redistribution by AutoParallel's formula, one mesh dim after ` +
      'another, at each use; what runs are our steps, listed with their own seconds. ' +
      'Placements that AutoParallel does not have are charged as they run.',
    mesh,
    byteRule: 'ceil',
    chargesUnitDims: false,
    seconds: (kind, bytes, meshDims) => micros(kind, bytes, meshDims) * MICRO,
    record(kind, bytes, meshDims): CostRecord {
      const seconds = micros(kind, bytes, meshDims) * MICRO;
      const latencySeconds = Math.min(seconds, micros(kind, 0, meshDims) * MICRO);
      return {
        seconds,
        kind,
        terms: { latencySeconds, bandwidthSeconds: seconds - latencySeconds },
        source:
          family === undefined
            ? `autoparallel: no NCCL constants for ${cluster.accelerator}, PyTorch's figures ` +
              'instead'
            : `autoparallel: NCCL-like, ${family}; permutation as an all_to_all`,
      };
    },
    copySeconds: (bytes) => copyMicros(bytes, literalDevice(cluster.accelerator)) * MICRO,
    sliceSeconds: () => 0,
    redistributionSeconds: (from, to, move) =>
      autoparallelRedistributionSeconds(model, cluster, from, to, move),
    copies: 'each-use',
  };
  return model;
}

/**
 * Seconds of a redistribution as AutoParallel prices it: mesh dim by mesh dim, outermost first
 * (innermost first only from two pending dims to two shards), each change by its own collective and
 * copy, whatever the execution merges. R to S costs nothing and leaves the byte count as it is; a
 * replicated source costs nothing at all.
 *
 * @returns Infinity where a value would have to become pending
 */
export function autoparallelRedistributionSeconds(
  model: CollectiveModel,
  cluster: Cluster,
  from: Sharding,
  to: Sharding,
  move: LiteralMove,
): number {
  const { mesh } = model;
  const source = from.placements;
  const target = to.placements;
  if (source.every((p) => p.kind === 'replicate')) return target.some(isPending) ? Infinity : 0;
  let bytes = move.bytes;
  source.forEach((p, m) => {
    if (p.dim !== undefined) bytes /= mesh.sizes[m];
  });
  bytes = Math.ceil(bytes);
  const dims = mesh.sizes.map((_, m) => m);
  if (dims.length === 2 && source.every(isPending) && target.every((p) => p.dim !== undefined))
    dims.reverse();
  const device = literalDevice(cluster.accelerator);
  const copy = (b: number): number => copyMicros(b, device) * MICRO;
  let seconds = 0;
  let first = true;
  for (const m of dims) {
    const a = source[m];
    const b = target[m];
    if (a.equals(b)) continue;
    if (isPending(b)) return Infinity;
    if (first && !move.contiguous) seconds += copy(2 * bytes);
    first = false;
    const n = mesh.sizes[m];
    if (a.dim !== undefined && b.dim !== undefined) {
      seconds += model.seconds('all_to_all', bytes, [m]);
      for (const d of [a.dim, b.dim]) if (d !== 0) seconds += copy(2 * bytes);
    } else if (a.dim !== undefined) {
      bytes *= n;
      seconds += model.seconds('all_gather', bytes, [m]);
      if (a.dim !== 0) seconds += copy(2 * bytes);
    } else if (isPending(a)) {
      if (b.dim === undefined) seconds += model.seconds('all_reduce', bytes, [m]);
      else {
        seconds += model.seconds('reduce_scatter', bytes, [m]);
        if (b.dim !== 0) seconds += copy(2 * bytes);
        bytes /= n;
      }
    }
  }
  return seconds;
}
