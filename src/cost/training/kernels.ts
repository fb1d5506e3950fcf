/**
 * Adds up the kernels of one phase of a transformer layer: takes products, element-wise traffic and attention, gives
 * device seconds and host seconds.
 */

import type { Cluster } from '../hardware/cluster.ts';
import { FITTED, type FittedConstants } from '../kernels/fitted.ts';
import { clockTime } from '../kernels/clocks.ts';
import { attentionSeconds, productSeconds, trafficSeconds } from '../kernels/seconds.ts';
import type { TrainingSystem } from './shape.ts';

/** Device and host time of a run of kernels; the device waits where the host is slower. */
export interface KernelTime {
  readonly deviceSeconds: number;
  readonly hostSeconds: number;
}

/** How often a product runs and what is on its right. */
interface ProductOptions {
  /** Products of the same size, in one kernel unless `separate`: one kernel each, with its own waves and casts. */
  readonly count?: number;
  readonly separate?: boolean;
  /** The right operand is a weight, whose cast may be kept. */
  readonly weight?: boolean;
}

/** Kernels of one phase of a layer, added up. */
export class KernelSum {
  private device = 0;
  private kernels = 0;
  private products = 0;
  private readonly peak: number;
  private readonly narrow: boolean;
  private readonly hot: number;
  private readonly traffic: number;
  private readonly constants: FittedConstants;

  constructor(private readonly system: TrainingSystem) {
    const constants = system.constants ?? FITTED;
    this.constants = constants;
    this.peak = unitPeak(system);
    this.narrow = system.matmulUnit === 'fp8' || system.matmulUnit === 'fp4';
    this.hot = clockTime(system, constants);
    this.traffic = constants.pointwiseTraffic * (system.fusedPointwise ? 1 : constants.unfusedTraffic);
  }

  /**
   * A product of [m,k] and [k,n] on the unit of the linear layers, 16-bit inputs and result. Units of 8 bits and less first read
   * both operands (twice where the scale needs their largest value) and write them.
   */
  matmul(m: number, k: number, n: number, { count = 1, weight = false, separate = false }: ProductOptions = {}): this {
    const { narrowCastBytes, castWeightsKept } = this.system;
    const cast = m * k + (weight && castWeightsKept ? 0 : k * n);
    if (this.narrow) this.memory(narrowCastBytes * cast * count, (cast > m * k ? 2 : 1) * (separate ? count : 1));
    return this.product(m, k, n, this.peak, count, separate);
  }

  /** `count` products in one kernel in 16 bits, whatever the unit of the linear layers: attention scores, output head. */
  wideMatmul(m: number, k: number, n: number, count = 1): this {
    return this.product(m, k, n, widePeak(this.system.cluster) ?? this.peak, count, false);
  }

  private product(m: number, k: number, n: number, peak: number, count: number, separate: boolean): this {
    const { cluster } = this.system;
    const flops = 2 * m * k * n * count;
    const bytes = 2 * (m * k + k * n + m * n) * count;
    const product = { rows: m, columns: n, count: separate ? 1 : count, flops, bytes };
    const seconds = productSeconds(product, { cluster, peak, clockTime: this.hot }, this.constants);
    this.device += seconds;
    this.products += seconds;
    return this.launch(separate ? count : 1);
  }

  /** Attention in one kernel over `pairs` query-key pairs of one head. */
  attention(flops: number, bytes: number): this {
    const { cluster } = this.system;
    const peak = widePeak(cluster) ?? this.peak;
    this.device += attentionSeconds(flops, bytes, cluster, peak * this.system.attentionShare);
    return this.launch(1);
  }

  /** Pointwise kernels that read and write bytes in all. */
  memory(bytes: number, kernels = 1): this {
    const { cluster, compiled } = this.system;
    this.device += trafficSeconds(this.traffic * bytes, cluster);
    return this.launch(compiled ? Math.ceil(kernels / 2) : kernels);
  }

  /** Seconds on the device that are no kernels of ours, such as `calls` collectives in the layer. */
  wait(seconds: number, calls = 1): this {
    this.device += seconds;
    return seconds > 0 ? this.launch(calls) : this;
  }

  /** Device time of the matmuls so far. */
  get productSeconds(): number {
    return this.products;
  }

  get time(): KernelTime {
    const { compiledHostSeconds, eagerHostSeconds, kernelGapSeconds } = this.constants;
    const host = this.system.compiled ? compiledHostSeconds : eagerHostSeconds;
    return {
      deviceSeconds: this.device + this.kernels * kernelGapSeconds,
      hostSeconds: this.kernels * host,
    };
  }

  private launch(kernels: number): this {
    this.kernels += kernels;
    return this;
  }
}

function unitPeak({ cluster, matmulUnit }: TrainingSystem): number {
  const { peakFlopsPerSecond: peaks } = cluster;
  return peaks[matmulUnit] ?? peaks.bf16 ?? peaks.fp16 ?? peaks.fp32;
}

function widePeak({ peakFlopsPerSecond: peaks }: Cluster): number | undefined {
  return peaks.bf16 ?? peaks.fp16;
}
