import { matrixSeconds } from '../compute.ts';
import { FITTED } from './fitted.ts';
import type { TrainingSystem } from './shape.ts';

/** Device and host time of a run of kernels; the device waits where the host is slower. */
export interface KernelTime {
  readonly deviceSeconds: number;
  readonly hostSeconds: number;
}

/** Kernels of one phase of a layer, added up. */
export class KernelSum {
  private device = 0;
  private kernels = 0;
  private readonly peak: number;
  private readonly hot: number;
  private readonly traffic: number;

  constructor(private readonly system: TrainingSystem) {
    this.peak = unitPeak(system);
    this.hot = system.powerLimited ? FITTED.hotMatmulTime : 1;
    this.traffic = FITTED.pointwiseTraffic * (system.fusedPointwise ? 1 : FITTED.unfusedTraffic);
  }

  /** `count` products of [m,k] and [k,n], 16-bit inputs and result. */
  matmul(m: number, k: number, n: number, count = 1, kernels = 1): this {
    const { cluster } = this.system;
    const flops = 2 * m * k * n * count;
    const bytes = 2 * (m * k + k * n + m * n) * count;
    const memory = bytes / (cluster.memoryBytesPerSecond * cluster.memoryEfficiency);
    this.device += Math.max(matrixSeconds(flops, bytes, this.peak, cluster) * this.hot, memory);
    return this.launch(kernels);
  }

  /** Attention in one kernel over `pairs` query-key pairs of one head. */
  attention(flops: number, bytes: number): this {
    const { cluster } = this.system;
    const peak = cluster.peakFlopsPerSecond.bf16 ?? cluster.peakFlopsPerSecond.fp16 ?? this.peak;
    const memory = bytes / (cluster.memoryBytesPerSecond * cluster.memoryEfficiency);
    this.device += Math.max(flops / (peak * this.system.attentionShare), memory);
    return this.launch(1);
  }

  /** Pointwise kernels that read and write bytes in all. */
  memory(bytes: number, kernels = 1): this {
    const { cluster, compiled } = this.system;
    this.device += (this.traffic * bytes) / (cluster.memoryBytesPerSecond * cluster.memoryEfficiency);
    return this.launch(compiled ? Math.ceil(kernels / 2) : kernels);
  }

  /** Seconds on the device that are no kernel of ours, such as a collective in the layer. */
  wait(seconds: number): this {
    this.device += seconds;
    return seconds > 0 ? this.launch(1) : this;
  }

  get time(): KernelTime {
    const host = this.system.compiled ? FITTED.compiledHostSeconds : FITTED.eagerHostSeconds;
    return {
      deviceSeconds: this.device + this.kernels * FITTED.kernelGapSeconds,
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
