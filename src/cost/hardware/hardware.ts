/**
 * The hardware facts that ship with the package (`data/hardware.json`): accelerators, node designs,
 * latency constants, each with the codes of its sources. Units are in the field names; GB, TB and
 * GBps are powers of ten.
 */

import * as z from 'zod';

import { internalError } from '../../errors.ts';
import { packageData } from '../../platform/platform.ts';
import type { AcceleratorFacts } from './facts.ts';

const scaleupSchema = z.looseObject({ GBps_unidir_per_gpu: z.number().positive() });

/** Inter-chip links of a TPU: every chip has two links on each axis of a torus. */
const iciSchema = z.looseObject({
  torus_dims: z.int().positive(),
  GBps_per_link_unidir_effective: z.number().positive(),
  hop_latency_us: z.number().positive(),
});

const acceleratorSchema = z.looseObject({
  id: z.string(),
  name: z.string(),
  vendor: z.string(),
  arch: z.string(),
  mem_GB: z.number().positive(),
  mem_usable_MiB: z.number().positive().optional(),
  mem_bw_GBps: z.number().positive(),
  peak_dense_TFLOPS: z.record(z.string(), z.number().positive()),
  scaleup: scaleupSchema.optional(),
  ici: iciSchema.optional(),
  pcie: z.looseObject({ GBps_unidir: z.number().positive() }).nullish(),
  tdp_W: z.number().positive().optional(),
  chips_per_host: z.int().positive().optional(),
  /** Chips of the largest torus, axis by axis: `16x16`. */
  max_torus: z.string().optional(),
  sources: z.array(z.string()),
});

const nodeSchema = z.looseObject({
  id: z.string(),
  name: z.string(),
  /** Name of the accelerator. */
  accelerator: z.string(),
  accelerators: z.int().positive(),
  nvlink_domain: z.int().positive().optional(),
  accelerators_per_tray: z.int().positive().optional(),
  /** Rated power of a whole host or rack, with the codes of its sources. */
  system_W: z.number().positive().optional(),
  system_W_sources: z.array(z.string()).optional(),
  scaleout_GBps_unidir_per_gpu: z.number().positive(),
  sources: z.array(z.string()),
  assumed: z.array(z.string()).optional(),
});

const three = z.tuple([z.number(), z.number(), z.number()]);

const hardwareSchema = z.object({
  _about: z.looseObject({ sources: z.record(z.string(), z.string()) }),
  accelerators: z.array(acceleratorSchema),
  nodes: z.array(nodeSchema),
  latency_models: z.looseObject({
    nccl_us: z.looseObject({
      base: z.looseObject({ ring: three }),
      hop_nvlink: z.looseObject({ ring: three }),
      hop_net: z.looseObject({ ring: three }),
    }),
    torch_dtensor_default: z.looseObject({
      base_us: z.number(),
      intra_host: z.object({ GBps: z.number(), hop_us: z.number() }),
      inter_host: z.object({ GBps: z.number(), hop_us: z.number() }),
    }),
    aiconfigurator: z.looseObject({ mem_bw_empirical_scaling: z.number() }),
  }),
  achievable_matmul: z
    .object({ _about: z.string() })
    .catchall(
      z.object({ measured_TFLOPS: z.number().positive(), peak_TFLOPS: z.number().positive() }),
    ),
  measured_scaleup: z.object({ _about: z.string() }).catchall(
    z.object({
      devices: z.int().positive(),
      all_gather_busbw_GBps: z.number().positive(),
      pair_latency_us: z.number().positive(),
    }),
  ),
});

export type Hardware = z.infer<typeof hardwareSchema>;

/**
 * Memory of an accelerator in bytes, as the driver's tool reports it (`mem_usable_MiB`): data
 * sheets say GB where the device has about as many GiB. Where no report is known the data sheet's
 * figure counts as decimal GB.
 */
export function deviceMemoryBytes({ mem_usable_MiB, mem_GB }: AcceleratorFacts): number {
  return mem_usable_MiB === undefined ? mem_GB * 1e9 : mem_usable_MiB * 2 ** 20;
}

/** The facts of an accelerator by its id. @throws E_INTERNAL for an unknown one */
export function acceleratorOf(id: string): AcceleratorFacts {
  const found = hardware().accelerators.find((a) => a.id === id);
  if (found === undefined) throw internalError(`data/hardware.json has no accelerator '${id}'`);
  return found;
}

let loaded: Hardware | undefined;

/** The facts, read once; the file is part of the package and never changes while it runs. */
export function hardware(): Hardware {
  if (loaded !== undefined) return loaded;
  const parsed = hardwareSchema.safeParse(JSON.parse(packageData('hardware.json')));
  if (!parsed.success) throw internalError(`data/hardware.json: ${z.prettifyError(parsed.error)}`);
  return (loaded = parsed.data);
}
