/**
 * Makes the cluster of a node design in `data/hardware.json`, with the source of each figure and a
 * list of the figures that were assumed because nobody measured them.
 */

import { ShardwrightError } from '../../errors.ts';
import {
  type Cluster,
  HEADROOM,
  HEADROOM_ASSUMED,
  headroomOf,
  type TorusLinks,
} from './cluster.ts';
import {
  DEFAULT_MATMUL_CAP,
  INTER_EFFICIENCY,
  INTRA_EFFICIENCY,
  LAUNCH_SECONDS,
  MATMUL_LAUNCH_SECONDS,
} from './cluster-schema.ts';
import type { AcceleratorFacts, NodeFacts } from './facts.ts';
import { deviceMemoryBytes, type Hardware } from './hardware.ts';
import { operationOfNode } from './operation.ts';

const GB = 1e9;
const MICRO = 1e-6;

export function clusterOfNode(node: NodeFacts, facts: Hardware): Cluster {
  const design = designOf(node, facts);
  const { accelerator, torus, linkGBps } = design;
  const memoryBytes = deviceMemoryBytes(accelerator);
  const matmulCap = matmulCapOf(design);
  const efficiency = intraEfficiencyOf(design);
  const { nccl_us: nccl, aiconfigurator } = facts.latency_models;
  const devicesPerHost = node.nvlink_domain ?? node.accelerators;
  const devicesPerTray =
    node.accelerators_per_tray ??
    (torus === undefined ? node.accelerators : accelerator.chips_per_host);
  return {
    id: node.id,
    name: node.name,
    accelerator: accelerator.name,
    peakFlopsPerSecond: peaks(accelerator),
    matmulCap: matmulCap.value,
    memoryBytes,
    reservedBytes: headroomOf(memoryBytes),
    memoryBytesPerSecond: accelerator.mem_bw_GBps * GB,
    memoryEfficiency: aiconfigurator.mem_bw_empirical_scaling,
    devicesPerHost,
    ...(devicesPerTray === undefined || devicesPerTray >= devicesPerHost ? {} : { devicesPerTray }),
    operation: operationOfNode(node, accelerator),
    intra: {
      bytesPerSecond: linkGBps * GB,
      efficiency: efficiency.value,
      latencySeconds: torus?.hopSeconds ?? nccl.hop_nvlink.ring[0] * MICRO,
    },
    inter: {
      bytesPerSecond: node.scaleout_GBps_unidir_per_gpu * GB,
      efficiency: INTER_EFFICIENCY,
      latencySeconds: nccl.hop_net.ring[0] * MICRO,
    },
    ...(torus !== undefined && { torus }),
    baseLatencySeconds: nccl.base.ring[0] * MICRO,
    launchSeconds: LAUNCH_SECONDS,
    matmulLaunchSeconds: MATMUL_LAUNCH_SECONDS,
    sources: sourcesOf(design, matmulCap.source, efficiency.source),
    assumptions: [
      HEADROOM_ASSUMED,
      matmulCap.assumed,
      efficiency.assumed,
      ...(node.assumed ?? []),
    ].filter((words) => words !== undefined),
  };
}

/** A node design with the facts of its accelerator and of its links. */
interface Design {
  readonly node: NodeFacts;
  readonly facts: Hardware;
  readonly accelerator: AcceleratorFacts;
  readonly torus: TorusLinks | undefined;
  /**
   * For collectives inside a host or slice: the rate of the switch or mesh, or of both directions
   * of one axis of the torus.
   */
  readonly linkGBps: number;
}

function designOf(node: NodeFacts, facts: Hardware): Design {
  const accelerator = facts.accelerators.find((a) => a.name === node.accelerator);
  const torus = accelerator === undefined ? undefined : torusOf(accelerator);
  const linkGBps =
    accelerator?.scaleup?.GBps_unidir_per_gpu ??
    (torus === undefined ? undefined : (2 * torus.linkBytesPerSecond) / GB);
  if (accelerator === undefined || linkGBps === undefined)
    throw new ShardwrightError(
      'E_CLUSTER',
      `node design '${node.id}' names no accelerator with links that we know`,
    );
  return { node, facts, accelerator, torus, linkGBps };
}

/** A figure, where it is from, and what was assumed because nobody measured it. */
interface Sourced {
  readonly value: number;
  readonly source: string;
  readonly assumed?: string;
}

/** The share of the peak that large matmuls reach. */
function matmulCapOf({ facts, accelerator }: Design): Sourced {
  const cap = facts.achievable_matmul[accelerator.id];
  if (typeof cap === 'object')
    return {
      value: cap.measured_TFLOPS / cap.peak_TFLOPS,
      source: facts.achievable_matmul._about,
    };
  return {
    value: DEFAULT_MATMUL_CAP,
    source: 'assumed: the H100 figure, 794.5 of 989 TFLOPS',
    assumed:
      `no measured matmul peak for ${accelerator.name}: the H100 share of ` +
      `${pct(DEFAULT_MATMUL_CAP)} is used`,
  };
}

/** The share of the link rate that collectives inside a host or slice reach. */
function intraEfficiencyOf({ facts, accelerator, torus, linkGBps }: Design): Sourced {
  const measured = facts.measured_scaleup[accelerator.id];
  // A figure above the data-sheet link (L40S over switches) or a collapsed one would not be a share
  // of it.
  if (
    typeof measured === 'object' &&
    accelerator.vendor === 'nvidia' &&
    accelerator.id !== 'l40s-48gb'
  )
    return {
      value: measured.all_gather_busbw_GBps / linkGBps,
      source: facts.measured_scaleup._about,
    };
  if (torus !== undefined) return { value: 1, source: 'the link figure is the effective one' };
  const share = pct(INTRA_EFFICIENCY);
  return {
    value: INTRA_EFFICIENCY,
    source: `assumed: ${share}`,
    assumed:
      `no measured collectives for ${accelerator.name}: alpha-beta and nccl take ` +
      `${share} of the link rate`,
  };
}

/** The source of each figure of a cluster, by the path of the figure. */
function sourcesOf(
  { node, facts, accelerator, torus }: Design,
  matmulCap: string,
  intraEfficiency: string,
): Record<string, string> {
  const cite = (codes: readonly string[]): string =>
    codes.map((c) => facts._about.sources[c] ?? c).join('; ');
  const ofAccelerator = cite(accelerator.sources);
  const ofNode = cite(node.sources);
  const latency = `NCCL ring, LL protocol: ${facts._about.sources.nccl}`;
  return {
    memoryBytes:
      accelerator.mem_usable_MiB !== undefined
        ? `driver tool reports ${accelerator.mem_usable_MiB} MiB`
        : `data sheet, ${accelerator.mem_GB} GB of 1e9 bytes: ${ofAccelerator}`,
    reservedBytes: `assumed: ${100 * HEADROOM} %`,
    peakFlopsPerSecond: `dense peaks: ${ofAccelerator}`,
    memoryBytesPerSecond: ofAccelerator,
    matmulCap,
    'intra.efficiency': intraEfficiency,
    'intra.bytesPerSecond': `one way, one device: ${ofAccelerator}`,
    'inter.bytesPerSecond': `one way, one device: ${ofNode}`,
    'inter.efficiency': INTER_EFFICIENCY_SOURCE,
    baseLatencySeconds: latency,
    'intra.latencySeconds':
      torus === undefined ? latency : `one hop between chips: ${ofAccelerator}`,
    'inter.latencySeconds': latency,
    devicesPerHost:
      node.nvlink_domain !== undefined
        ? `NVLink domain of the rack: ${ofNode}`
        : `devices of the node: ${ofNode}`,
    devicesPerTray: `devices of a tray or instance: ${ofNode}`,
    operation: `rated power of a device: ${ofAccelerator}`,
    ...(node.system_W !== undefined && {
      'operation.hostWatts':
        `${node.system_W} W of the whole system: ` + cite(node.system_W_sources ?? []),
    }),
    launchSeconds: LAUNCH_SOURCE,
    matmulLaunchSeconds: MATMUL_LAUNCH_SOURCE,
    memoryEfficiency: `empirical memory bandwidth: ${facts._about.sources.aic}`,
  };
}

/** The torus of a TPU: 3-D pods close axes of multiples of 4, 2-D pods only whole axes. */
function torusOf(accelerator: AcceleratorFacts): TorusLinks | undefined {
  const { ici, max_torus } = accelerator;
  if (ici === undefined) return undefined;
  const given = (max_torus ?? '')
    .split('x')
    .map(Number)
    .filter((n) => n > 0);
  const longestAxes = given.length > 0 ? given : new Array<number>(ici.torus_dims).fill(TPU7X_AXIS);
  return {
    longestAxes: longestAxes.sort((a, b) => b - a),
    wrapMultiple: ici.torus_dims === 3 ? 4 : longestAxes[0],
    linkBytesPerSecond: ici.GBps_per_link_unidir_effective * GB,
    hopSeconds: ici.hop_latency_us * MICRO,
  };
}
/**
 * The largest torus of TPU v7x is not published: this is the cube root of 9216 chips, as a multiple
 * of 4.
 */
const TPU7X_AXIS = 20;

const INTER_EFFICIENCY_SOURCE = 'Calculon network file of an InfiniBand cluster: efficiency 0.9';
const LAUNCH_SOURCE = 'assumed: eager kernel launch of 4 us';
const MATMUL_LAUNCH_SOURCE = 'fit of 666 matmul shapes on H100: 9 us';

function pct(share: number): string {
  return `${(share * 100).toFixed(1)} %`;
}

function peaks(accelerator: AcceleratorFacts): Record<string, number> {
  return Object.fromEntries(
    Object.entries(accelerator.peak_dense_TFLOPS)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([unit, tera]) => [unit, tera * 1e12]),
  );
}
