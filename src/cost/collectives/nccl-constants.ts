/**
 * Constants of the NCCL-like collective model that ship with the package (`data/nccl.json`);
 * microseconds and GB/s.
 */

import * as z from 'zod';

import { internalError } from '../../errors.ts';
import { packageData } from '../../platform/platform.ts';

const three = z.tuple([z.number(), z.number(), z.number()]);
const perFamily = <T extends z.ZodType>(entry: T) =>
  z.object({ ampere: entry, hopper: entry, blackwell: entry });
const byAlgorithm = z.object({
  tree: three,
  ring: three,
  collnetDirect: z.number(),
  collnetChain: z.number(),
  nvls: z.number(),
  nvlsTree: z.number(),
});
const ramp = z.array(z.number()).length(24);
/** Latency in microseconds and GB/s. */
const line = z.tuple([z.number(), z.number()]);
const lines = z.tuple([line, line, line]);

const schema = z.object({
  clusters: perFamily(
    z.object({
      channels: z.int(),
      intraGBps: z.number(),
      interGBps: z.number(),
      devicesPerNode: z.int(),
      nvSwitch: z.boolean(),
    }),
  ),
  latency_us: z.object({
    base: z.object({ tree: three, ring: three }),
    nvlink: byAlgorithm,
    net: byAlgorithm,
  }),
  caps_GBps: z.object({
    treePerChannel: perFamily(three),
    nvlsTreePerChannel: perFamily(three),
    llTotal: perFamily(three),
    ring128PerChannel: perFamily(z.number()),
    tree128PerChannel: perFamily(three),
  }),
  nvlsEfficiency: perFamily(z.number()),
  ramps: z.object({
    ring: ramp,
    full: ramp,
    nvls: ramp,
    allToAll: ramp,
    tree: z.tuple([ramp, ramp, ramp]),
  }),
  oneNode: z.object({
    devices: three,
    gather: z.object({ GBps: three, latency_us: three }),
    allReduce: z.object({ GBps: three, latency_us: three }),
    allToAll: z.object({
      latency_us: z.number(),
      hopperGBps: z.number(),
      blackwellGBps: z.number(),
    }),
  }),
  allToAllNodes: z.object({
    nodes: z.array(z.number()),
    latency_us: z.array(z.number()),
    networkLoss: z.number(),
  }),
  measuredRows: z.array(
    z.object({
      nodes: z.int(),
      perNode: z.int(),
      gather: lines,
      tree: lines,
      nvlsTree: line.optional(),
    }),
  ),
});

type NcclConstants = z.infer<typeof schema>;
/** GPU generations that the constants know. */
export type NcclFamily = keyof NcclConstants['clusters'];
export type NcclRow = NcclConstants['measuredRows'][number];

let loaded: NcclConstants | undefined;

/** The constants, read once; the file is part of the package and never changes while it runs. */
export function ncclConstants(): NcclConstants {
  if (loaded !== undefined) return loaded;
  const parsed = schema.safeParse(JSON.parse(packageData('nccl.json')));
  if (!parsed.success) throw internalError(`data/nccl.json: ${z.prettifyError(parsed.error)}`);
  return (loaded = parsed.data);
}

/**
 * Generation of an accelerator by its architecture name (`hopper sm90`), undefined for other
 * vendors and older ones.
 */
export function ncclFamily(arch: string): NcclFamily | undefined {
  return (['ampere', 'hopper', 'blackwell'] as const).find((family) => arch.startsWith(family));
}
