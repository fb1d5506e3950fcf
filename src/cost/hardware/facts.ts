/**
 * The facts about one accelerator and one node design in `data/hardware.json`. They are interfaces
 * and not types inferred from the schema: the package's public types lead here, and zod is linked
 * into the package and not installed with it.
 */

/** An accelerator: memory, rates and links, with the codes of their sources. */
export interface AcceleratorFacts {
  readonly id: string;
  readonly name: string;
  readonly vendor: string;
  readonly arch: string;
  /** Memory as the data sheet states it. */
  readonly mem_GB: number;
  /** Memory as the driver's tool reports it. */
  readonly mem_usable_MiB?: number | undefined;
  readonly mem_bw_GBps: number;
  /** Dense peak rates by dtype. */
  readonly peak_dense_TFLOPS: Readonly<Record<string, number>>;
  readonly scaleup?: { readonly GBps_unidir_per_gpu: number } | undefined;
  /** Inter-chip links of a TPU: every chip has two links on each axis of a torus. */
  readonly ici?:
    | {
        readonly torus_dims: number;
        readonly GBps_per_link_unidir_effective: number;
        readonly hop_latency_us: number;
      }
    | undefined;
  /** The link to the host's memory: PCI Express, or NVLink to Grace. */
  readonly pcie?: { readonly GBps_unidir: number } | null | undefined;
  readonly tdp_W?: number | undefined;
  readonly chips_per_host?: number | undefined;
  /** Chips of the largest torus, axis by axis: `16x16`. */
  readonly max_torus?: string | undefined;
  readonly sources: readonly string[];
}

/** A host or rack as it is sold: its accelerators and their links outwards. */
export interface NodeFacts {
  readonly id: string;
  readonly name: string;
  /** Name of the accelerator. */
  readonly accelerator: string;
  readonly accelerators: number;
  readonly nvlink_domain?: number | undefined;
  readonly accelerators_per_tray?: number | undefined;
  /** Rated power of a whole host or rack, with the codes of its sources. */
  readonly system_W?: number | undefined;
  readonly system_W_sources?: readonly string[] | undefined;
  readonly scaleout_GBps_unidir_per_gpu: number;
  readonly sources: readonly string[];
  /** Facts that no source states, in whole words. */
  readonly assumed?: readonly string[] | undefined;
}
