/**
 * Takes the `gpu_type` of a measured run and gives its cluster, with a list of what had to be
 * assumed.
 */

import type { Cluster } from '../cost/hardware/cluster.ts';
import { acceleratorOf, deviceMemoryBytes } from '../cost/hardware/hardware.ts';
import { loadCluster } from '../cost/hardware/load-cluster.ts';
import { defined } from '../defined.ts';

/**
 * Machines of published runs: the device text of a row as a cluster. Links and memory by the text
 * where it says them, the node design else; what had to be assumed is written down and printed.
 */
export interface RunMachine {
  readonly cluster: Cluster;
  /** Name or JSON text that `cluster` is loaded from. */
  readonly text: string;
  /** Jobs on it run with blocking launches where a row does not say. */
  readonly blockingLaunches?: boolean;
  readonly assumption?: string;
}

interface MachineRule {
  readonly text: RegExp;
  readonly base: string;
  /** Fields of the cluster that differ, as a cluster file has them. */
  readonly change?: Readonly<Record<string, unknown>>;
  readonly blockingLaunches?: true;
  readonly assumption?: string;
}

const GB = 1e9;
const inter = (bytesPerSecond: number, efficiency?: number): Record<string, unknown> => ({
  inter: { bytesPerSecond, ...defined({ efficiency }) },
});

/** The first pattern that matches decides. */
const RULES: readonly MachineRule[] = [
  {
    text: /V100-16GB/,
    base: 'dgx-v100',
    change: { memoryBytes: 16 * GB, devicesPerHost: 8, ...inter(3.125 * GB) },
  },
  { text: /V100-32GB \(DGX-2\)/, base: 'dgx-v100', change: { devicesPerHost: 16 } },
  {
    text: /A100.*Omni-Path/,
    base: 'dgx-a100-80gb',
    // A pair over nodes reaches 8.1 of 12.5 GB/s (two devices share a card), and 8 devices of a
    // node 154 GB/s on the bus.
    change: { ...inter(6.25 * GB, 0.65), intra: { efficiency: 154 / 300 } },
    // bigscience-workshop/bigscience, train/tr11-176B-ml/tr11-176B-ml.slurm sets
    // CUDA_LAUNCH_BLOCKING=1: without it jobs hang there.
    blockingLaunches: true,
    assumption:
      "Omni-Path: 65 % of the cards' rate, as a measured pair of devices reaches; NVLink: " +
      '154 GB/s on the bus, as measured on such nodes; launches block, since jobs hang there ' +
      'otherwise',
  },
  { text: /A100.*4x200Gb/, base: 'dgx-a100-80gb', change: inter(12.5 * GB) },
  {
    text: /A100-40GB/,
    base: 'dgx-a100-80gb',
    change: {
      memoryBytes: deviceMemoryBytes(acceleratorOf('a100-sxm4-40gb')),
      memoryBytesPerSecond: 1555 * GB,
    },
  },
  { text: /A100-80GB/, base: 'dgx-a100-80gb' },
  {
    text: /H100-96GB-HBM2e-500W/,
    base: 'dgx-h100',
    change: { memoryBytes: 102 * GB, memoryBytesPerSecond: 2400 * GB, powerShare: 500 / 700 },
    assumption: 'H100 at 500 of 700 W: clocks by the cube root of the power, HBM2e of 2.4 TB/s',
  },
  { text: /H200/, base: 'dgx-h200' },
  { text: /H100/, base: 'dgx-h100' },
  // Groups of powers of two: 64 of the 72 devices of a rack.
  { text: /DGX-GB300/, base: 'gb300-nvl72', change: { devicesPerHost: 64 } },
  { text: /DGX-GB200/, base: 'gb200-nvl72', change: { devicesPerHost: 64 } },
  {
    text: /DGX-B300/,
    base: 'gb300-nvl72',
    // B300-SXM (data sheet): a tenth less peak than in a rack, 8 a node.
    change: {
      accelerator: 'B300-SXM-288GB',
      devicesPerHost: 8,
      peakFlopsPerSecond: { bf16: 2250e12, fp16: 2250e12, fp8: 4500e12, fp4: 14_000e12 },
      memoryBytesPerSecond: 7750 * GB,
      memoryBytes: deviceMemoryBytes(acceleratorOf('b300-sxm-288gb')),
    },
  },
  {
    text: /B200 \(power limited\)/,
    base: 'dgx-b200',
    change: { matmulCap: 0.55 },
    assumption: 'power-limited B200: 55 % of the peak at most',
  },
  { text: /B200/, base: 'dgx-b200' },
  { text: /TPU v5p/, base: 'tpu-v5p-pod' },
  { text: /TPU v5e/, base: 'tpu-v5e-pod' },
];

const known = new Map<string, RunMachine | undefined>();

/** The machine of a row's `gpu_type`, undefined when it is none that we know. */
export function runMachine(gpuType: string): RunMachine | undefined {
  if (known.has(gpuType)) return known.get(gpuType);
  const rule = RULES.find((r) => r.text.test(gpuType));
  const text =
    rule?.change === undefined
      ? (rule?.base ?? '')
      : JSON.stringify({ base: rule.base, ...rule.change });
  const machine =
    rule === undefined
      ? undefined
      : {
          cluster: loadCluster(text),
          text,
          ...(rule.blockingLaunches === true && { blockingLaunches: true }),
          ...(rule.assumption !== undefined && { assumption: rule.assumption }),
        };
  known.set(gpuType, machine);
  return machine;
}
