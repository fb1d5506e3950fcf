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
  const accelerator = facts.accelerators.find((a) => a.name === node.accelerator);
  const torus = accelerator === undefined ? undefined : torusOf(accelerator);
  // Collectives inside a host or slice: the switch's or mesh's rate, or both directions of one axis
  // of the torus.
  const linkGBps =
    accelerator?.scaleup?.GBps_unidir_per_gpu ??
    (torus === undefined ? undefined : (2 * torus.linkBytesPerSecond) / GB);
  if (accelerator === undefined || linkGBps === undefined)
    throw new ShardwrightError(
      'E_CLUSTER',
      `node design '${node.id}' names no accelerator with links that we know`,
    );
  const assumptions: string[] = [];
  const sources: Record<string, string> = {};
  const cite = (codes: readonly string[]): string =>
    codes.map((c) => facts._about.sources[c] ?? c).join('; ');
  const ofAccelerator = cite(accelerator.sources);
  const ofNode = cite(node.sources);

  const memoryBytes = deviceMemoryBytes(accelerator);
  sources.memoryBytes =
    accelerator.mem_usable_MiB !== undefined
      ? `driver tool reports ${accelerator.mem_usable_MiB} MiB`
      : `data sheet, ${accelerator.mem_GB} GB of 1e9 bytes: ${ofAccelerator}`;
  const reservedBytes = headroomOf(memoryBytes);
  assumptions.push(HEADROOM_ASSUMED);
  sources.reservedBytes = `assumed: ${100 * HEADROOM} %`;
  sources.peakFlopsPerSecond = `dense peaks: ${ofAccelerator}`;
  sources.memoryBytesPerSecond = ofAccelerator;

  const cap = facts.achievable_matmul[accelerator.id];
  let matmulCap = DEFAULT_MATMUL_CAP;
  if (typeof cap === 'object') {
    matmulCap = cap.measured_TFLOPS / cap.peak_TFLOPS;
    sources.matmulCap = facts.achievable_matmul._about;
  } else {
    sources.matmulCap = 'assumed: the H100 figure, 794.5 of 989 TFLOPS';
    assumptions.push(
      `no measured matmul peak for ${accelerator.name}: the H100 share of ${pct(matmulCap)} ` +
        'is used',
    );
  }

  const measured = facts.measured_scaleup[accelerator.id];
  let efficiency = INTRA_EFFICIENCY;
  // A figure above the data-sheet link (L40S over switches) or a collapsed one would be no share of
  // it.
  if (
    typeof measured === 'object' &&
    accelerator.vendor === 'nvidia' &&
    accelerator.id !== 'l40s-48gb'
  ) {
    efficiency = measured.all_gather_busbw_GBps / linkGBps;
    sources['intra.efficiency'] = facts.measured_scaleup._about;
  } else if (torus !== undefined) {
    efficiency = 1;
    sources['intra.efficiency'] = 'the link figure is the effective one';
  } else {
    sources['intra.efficiency'] = `assumed: ${pct(efficiency)}`;
    assumptions.push(
      `no measured collectives for ${accelerator.name}: alpha-beta and nccl take ` +
        `${pct(efficiency)} of the link rate`,
    );
  }
  sources['intra.bytesPerSecond'] = `one way, one device: ${ofAccelerator}`;
  sources['inter.bytesPerSecond'] = `one way, one device: ${ofNode}`;
  sources['inter.efficiency'] = INTER_EFFICIENCY_SOURCE;
  const nccl = facts.latency_models.nccl_us;
  const latencySource = `NCCL ring, LL protocol: ${facts._about.sources.nccl}`;
  sources.baseLatencySeconds = latencySource;
  sources['intra.latencySeconds'] =
    torus === undefined ? latencySource : `one hop between chips: ${ofAccelerator}`;
  sources['inter.latencySeconds'] = latencySource;
  sources.devicesPerHost =
    node.nvlink_domain !== undefined
      ? `NVLink domain of the rack: ${ofNode}`
      : `devices of the node: ${ofNode}`;
  const devicesPerHost = node.nvlink_domain ?? node.accelerators;
  const devicesPerTray =
    node.accelerators_per_tray ??
    (torus === undefined ? node.accelerators : accelerator.chips_per_host);
  sources.devicesPerTray = `devices of a tray or instance: ${ofNode}`;
  sources.operation = `rated power of a device: ${ofAccelerator}`;
  if (node.system_W !== undefined)
    sources['operation.hostWatts'] =
      `${node.system_W} W of the whole system: ${cite(node.system_W_sources ?? [])}`;
  sources.launchSeconds = LAUNCH_SOURCE;
  sources.matmulLaunchSeconds = MATMUL_LAUNCH_SOURCE;
  sources.memoryEfficiency = `empirical memory bandwidth: ${facts._about.sources.aic}`;

  return {
    id: node.id,
    name: node.name,
    accelerator: accelerator.name,
    peakFlopsPerSecond: peaks(accelerator),
    matmulCap,
    memoryBytes,
    reservedBytes,
    memoryBytesPerSecond: accelerator.mem_bw_GBps * GB,
    memoryEfficiency: facts.latency_models.aiconfigurator.mem_bw_empirical_scaling,
    devicesPerHost,
    ...(devicesPerTray === undefined || devicesPerTray >= devicesPerHost ? {} : { devicesPerTray }),
    operation: operationOfNode(node, accelerator),
    intra: {
      bytesPerSecond: linkGBps * GB,
      efficiency,
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
    sources,
    assumptions,
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
