import { ncclGroupSeconds } from '../nccl/preset.ts';
import type { NcclGroup } from '../nccl/algorithms.ts';
import type { CollectiveKind } from '../collectives.ts';
import { FITTED, type FittedConstants } from './fitted.ts';
import { KernelSum, type KernelTime } from './kernels.ts';
import {
  layerParameters,
  microbatches,
  type ParallelPlan,
  type TrainingSystem,
  type TransformerShape,
} from './shape.ts';

/** Seconds of one training step and where they go. */
export interface StepTime {
  readonly seconds: number;
  /** Compute of the longest stage over all its microbatches, collectives inside layers included. */
  readonly stageSeconds: number;
  /** Idle time of the pipeline. */
  readonly bubbleSeconds: number;
  /** Collectives over data-parallel devices that no compute hides. */
  readonly exposedSeconds: number;
  readonly optimizerSeconds: number;
}

/**
 * Time of a step by layer-level closed forms: kernels of a layer by the roofline, tensor-parallel collectives inside it,
 * pipeline `sum of stages + (m-1) * longest`, data-parallel collectives beside or after the backward pass, optimizer.
 */
export function stepTime(shape: TransformerShape, plan: ParallelPlan, system: TrainingSystem): StepTime {
  return new StepModel(shape, plan, system).time();
}

type Clock = ReturnType<typeof ncclGroupSeconds>;
const clocks = new WeakMap<object, Clock>();
function clockOf(system: TrainingSystem): Clock {
  let clock = clocks.get(system.cluster);
  if (clock === undefined) clocks.set(system.cluster, (clock = ncclGroupSeconds(system.cluster)));
  return clock;
}

class StepModel {
  private readonly clock: Clock;
  private readonly constants: FittedConstants;
  /** Tokens of a microbatch on one device, and tokens of the norms and dropouts between tensor-parallel parts. */
  private readonly tokens: number;
  private readonly spread: number;

  constructor(
    private readonly shape: TransformerShape,
    private readonly plan: ParallelPlan,
    private readonly system: TrainingSystem,
  ) {
    this.clock = clockOf(system);
    this.constants = system.constants ?? FITTED;
    this.tokens = (plan.microbatch * shape.sequence) / plan.context;
    this.spread = this.tokens / (plan.sequenceParallel ? plan.tensor : 1);
  }

  time(): StepTime {
    const { plan, shape, system } = this;
    const m = microbatches(plan);
    const stages = this.stages();
    // One hop each way: between stages that are neighbours on the mesh, outermost dim.
    const hop = plan.pipeline === 1 ? 0 : this.hopSeconds() * (plan.chunks > 1 ? plan.chunks : 1);
    // An interleaved schedule sends one chunk's result while it works on the next chunk.
    const hidden = system.overlap && plan.chunks > 1;
    const times = stages.map((s) => s + 2 * (hidden ? Math.max(0, hop - HIDING * s) : hop));
    const longest = Math.max(...times);
    const sum = times.reduce((a, b) => a + b, 0);
    const fill = (sum - longest + (hidden ? 2 * hop * (plan.pipeline - 1) : 0)) / plan.chunks;
    const stageSeconds = m * longest;
    const exposedSeconds = this.exposed(m * Math.max(...stages));
    const optimizerSeconds = this.optimizer() + this.constants.stepHostSeconds;
    const contention = system.overlap && plan.shards > 1 ? this.contention(m, shape.layers) : 0;
    return {
      seconds: stageSeconds + fill + exposedSeconds + contention + optimizerSeconds,
      stageSeconds: stageSeconds + contention,
      bubbleSeconds: fill,
      exposedSeconds,
      optimizerSeconds,
    };
  }

  /** Seconds of one microbatch, forward and backward, on every stage. */
  private stages(): number[] {
    const { plan, shape } = this;
    const p = plan.pipeline;
    const dense = shape.experts?.denseLayers ?? 0;
    const cached = new Map<boolean, number>();
    const layer = (l: number): number => {
      const sparse = shape.experts !== undefined && l >= dense;
      let seconds = cached.get(sparse);
      if (seconds === undefined) cached.set(sparse, (seconds = this.layerSeconds(sparse)));
      return seconds;
    };
    const stages = new Array<number>(p).fill(0);
    // Layers go round by chunks; uneven counts give the first stages one more.
    for (let l = 0; l < shape.layers; l++) stages[Math.floor((l * p) / shape.layers)] += layer(l);
    stages[0] += this.embeddingSeconds();
    stages[p - 1] += this.headSeconds();
    return stages;
  }

  /** One layer, one microbatch: forward, what is computed again, backward. */
  private layerSeconds(sparse: boolean): number {
    const { recompute } = this.plan;
    const forward = busySeconds(this.forward(sparse));
    const backward = busySeconds(this.backward(sparse));
    const again =
      recompute === 'full'
        ? forward
        : recompute === 'core'
          ? busySeconds(this.core().time)
          : recompute === 'selective'
            ? SELECTIVE * forward
            : 0;
    return forward + backward + again;
  }

  private forward(sparse: boolean): KernelTime {
    const { shape, plan, tokens: T } = this;
    const { hidden: h, heads, kvHeads, headDim } = shape;
    const t = plan.tensor;
    const sum = this.core();
    const qkv = (heads + 2 * kvHeads) * headDim;
    sum.matmul(T, h, qkv / t).matmul(T, (heads * headDim) / t, h);
    this.mlp(sum, sparse, 1);
    // Norms, bias-dropout-residuals: 16-bit reads and writes, mask.
    sum.memory(this.spread * h * (2 * 4 + 2 * (this.system.dropout ? 8 : 6)), 6);
    this.tensorParallel(sum, 2);
    return sum.time;
  }

  private backward(sparse: boolean): KernelTime {
    const { shape, plan, tokens: T, system } = this;
    const { hidden: h, heads, kvHeads, headDim } = shape;
    const t = plan.tensor;
    const sum = new KernelSum(system);
    this.coreInto(sum, system.flashAttention ? 2.5 : 2);
    const qkv = (heads + 2 * kvHeads) * headDim;
    // Gradient of the input and of the weight.
    for (const [k, n] of [
      [h, qkv / t],
      [(heads * headDim) / t, h],
    ])
      sum.matmul(T, n, k).matmul(k, T, n);
    this.mlp(sum, sparse, 2);
    sum.memory(this.spread * h * (2 * 8 + 2 * (system.dropout ? 8 : 6)), 10);
    // Every weight's gradient is added to its buffer.
    const { split } = layerParameters(shape, shape.layers - 1);
    sum.memory((split / t) * 6, 8);
    this.tensorParallel(sum, 2);
    return sum.time;
  }

  /** The two or three products of the MLP, `passes` 1 forward, 2 backward. */
  private mlp(sum: KernelSum, sparse: boolean, passes: 1 | 2): void {
    const { shape, plan, tokens: T } = this;
    const { hidden: h, gated, experts } = shape;
    const t = plan.tensor;
    const up = gated ? 2 : 1;
    const block = (tokens: number, ffn: number, copies: number): void => {
      for (const [k, n] of [
        [h, (up * ffn) / t],
        [ffn / t, h],
      ]) {
        if (passes === 1) sum.matmul(tokens, k, n, copies);
        else sum.matmul(tokens, n, k, copies).matmul(k, tokens, n, copies);
      }
      sum.memory(tokens * copies * (ffn / t) * 2 * (up + 1) * passes, 2 * passes);
    };
    if (!sparse || experts === undefined) {
      block(T, shape.ffn, 1);
      return;
    }
    if (experts.shared > 0) block(T, experts.ffn * experts.shared, 1);
    // Tokens are spread evenly over experts: a device works on its experts for all tokens that reach them.
    const local = Math.max(1, experts.count / plan.expert);
    block((T * experts.topK) / local, experts.ffn, local);
    const routed = T * experts.topK * h * 2;
    sum.memory(2 * routed * passes, 6 * passes);
    const group = this.group(plan.expert, plan.tensor * plan.context);
    sum.wait(2 * this.collective('all_to_all', routed, group));
  }

  private core(): KernelSum {
    const sum = new KernelSum(this.system);
    this.coreInto(sum, 1);
    return sum;
  }

  /** Attention scores, softmax, weighted sum; `times` 1 forward, 2 or 2.5 backward. */
  private coreInto(sum: KernelSum, times: number): void {
    const { shape, plan, tokens: T } = this;
    const { heads, headDim, sequence } = shape;
    const local = heads / plan.tensor;
    const b = plan.microbatch;
    if (this.system.flashAttention) {
      const flops = (4 * b * local * sequence * sequence * headDim) / 2 / plan.context;
      sum.attention(flops * times, 8 * T * local * headDim * times);
      if (plan.context > 1) {
        const bytes = 2 * b * sequence * 2 * (shape.kvHeads / plan.tensor) * headDim;
        const comm = this.collective('all_gather', bytes, this.group(plan.context, plan.tensor)) * (times > 1 ? 2 : 1);
        // The ring exchanges the next block while it works on this one.
        const beside = (flops * times) / (this.peak() * this.system.attentionShare);
        sum.wait(Math.max(0, comm - beside));
      }
      return;
    }
    const n = b * local;
    const s = sequence / plan.context;
    if (times === 1) sum.wideMatmul(s, headDim, sequence, n).wideMatmul(s, sequence, headDim, n);
    else for (let i = 0; i < 2; i++) sum.wideMatmul(s, headDim, sequence, n).wideMatmul(s, sequence, headDim, n);
    // Scaled masked softmax, dropout with its mask, and their gradients.
    sum.memory(n * s * sequence * (4 + (this.system.dropout ? 5 : 0)) * (times > 1 ? 1.5 : 1), times > 1 ? 3 : 4);
    sum.memory(8 * T * local * headDim, 4);
  }

  /**
   * Adds the collectives of `times` tensor-parallel regions of a layer, as sums of the full activation. Where products and
   * collectives are cut into one part per device and interleaved, the first part is exposed, and what the products cannot
   * hide; a sum in one piece (no sequence parallelism) cannot be cut.
   */
  private tensorParallel(sum: KernelSum, times: number): void {
    const { plan, shape, tokens: T, system } = this;
    if (plan.tensor === 1) return;
    const group = this.group(plan.tensor, 1);
    const bytes = T * shape.hidden * 2;
    if (!plan.sequenceParallel) {
      sum.wait(times * this.collective('all_reduce', bytes, group), times);
      return;
    }
    const pair = this.collective('all_gather', bytes, group) + this.collective('reduce_scatter', bytes, group);
    const seconds = times * pair;
    const parts = seconds * (1 - 1 / plan.tensor);
    const hidden = Math.min(system.tensorOverlap * parts, HIDING * sum.productSeconds);
    sum.wait(seconds - hidden + hidden * (this.constants.overlapSlowdown - 1), 2 * times);
  }

  private embeddingSeconds(): number {
    const { shape, plan, system, spread, tokens: T } = this;
    const sum = new KernelSum(system).memory(spread * shape.hidden * 2 * 8, 8);
    if (plan.tensor > 1) sum.wait(this.collective('all_reduce', T * shape.hidden * 2, this.group(plan.tensor, 1)));
    return busySeconds(sum.time);
  }

  /** Last norm, output head and loss, forward and backward. */
  private headSeconds(): number {
    const { shape, plan, system, tokens: T } = this;
    const v = shape.vocab / plan.tensor;
    const sum = new KernelSum(system)
      .wideMatmul(T, shape.hidden, v)
      .wideMatmul(T, v, shape.hidden)
      .wideMatmul(shape.hidden, T, v)
      .memory(T * v * (system.compiled ? 10 : 26), 12)
      .memory(shape.hidden * v * 6, 2);
    if (plan.tensor > 1) sum.wait(this.collective('all_reduce', T * shape.hidden * 2, this.group(plan.tensor, 1)));
    return busySeconds(sum.time);
  }

  /** One boundary: every tensor-parallel device sends its part, and the parts are gathered on the other side. */
  private hopSeconds(): number {
    const { plan, shape, tokens: T } = this;
    const bytes = T * shape.hidden * 2;
    const inner = plan.tensor * plan.context * plan.shards * plan.replicas;
    const message = this.collective('collective_permute', bytes / plan.tensor, this.group(2, inner));
    const gather = plan.sequenceParallel ? 0 : this.collective('all_gather', bytes, this.group(plan.tensor, 1));
    return message + gather + this.constants.hopHostSeconds;
  }

  /** Parameter elements on the fullest device before data-parallel sharding: replicated part and routed experts. */
  private localParameters(): { readonly dense: number; readonly routed: number } {
    const { shape, plan } = this;
    const perStage = Math.ceil(shape.layers / plan.pipeline);
    let dense = (shape.vocab * shape.hidden) / plan.tensor;
    let routed = 0;
    for (let l = shape.layers - perStage; l < shape.layers; l++) {
      const p = layerParameters(shape, l);
      dense += p.split / plan.tensor + p.whole;
      routed += p.routed / plan.expert;
    }
    return { dense, routed };
  }

  /** Seconds of gradient and parameter collectives that stay visible. */
  private exposed(compute: number): number {
    const { plan, system, shape } = this;
    const { dense, routed } = this.localParameters();
    const data = plan.replicas * plan.shards * plan.context;
    const inner = plan.tensor;
    const elements = dense + routed;
    const m = microbatches(plan);
    const group = this.group(data, inner);
    let seconds = 0;
    if (plan.shards > 1) {
      const width = plan.shards * plan.context;
      const shard = this.group(width, inner);
      const bytes = 2 * elements;
      const unit = bytes / Math.max(1, shape.layers / plan.pipeline);
      // Gathers of layers in both passes and a scatter of gradients, each microbatch anew; once if weights stay gathered,
      // as they do in a pipeline (`stageMemory` counts them so).
      const keeps = plan.zeroStage === 2 || plan.pipeline > 1;
      const rounds = keeps ? 1 : m;
      const perUnit =
        (keeps ? 1 : 2) * this.collective('all_gather', unit, shard) + this.collective('reduce_scatter', unit, shard);
      seconds = (rounds * perUnit * bytes) / unit;
      if (plan.replicas > 1)
        seconds += this.collective('all_reduce', bytes / width, this.group(plan.replicas, inner * width));
      const first = this.collective('all_gather', unit, shard);
      return system.overlap ? Math.max(rounds * 2 * first, seconds - compute * HIDING) : seconds;
    }
    if (data === 1) return 0;
    const bytes = elements * (system.overlap ? system.stateBytes.gradient : 2);
    seconds =
      plan.zeroStage === 0
        ? this.collective('all_reduce', bytes, group)
        : // Without overlap the whole gradient is summed everywhere before the optimizer takes its part (DeepSpeed).
          this.collective(system.overlap ? 'reduce_scatter' : 'all_reduce', bytes, group) +
          this.collective('all_gather', 2 * elements, group);
    // Beside the last microbatch's backward only: two thirds of it.
    return system.overlap ? Math.max(0.1 * seconds, seconds - ((compute / m) * 2) / 3) : seconds;
  }

  /** Compute slows down while gathers and scatters run beside it. */
  private contention(m: number, layers: number): number {
    const { plan } = this;
    const { dense, routed } = this.localParameters();
    const shard = this.group(plan.shards * plan.context, plan.tensor);
    const unit = (2 * (dense + routed)) / Math.max(1, layers / plan.pipeline);
    const perLayer = 2 * this.collective('all_gather', unit, shard) + this.collective('reduce_scatter', unit, shard);
    return (m * perLayer * layers * (this.constants.overlapSlowdown - 1)) / plan.pipeline;
  }

  /** Adam over the local state: read and write gradient, master copy and moments. */
  private optimizer(): number {
    const { plan, system } = this;
    const { cluster } = system;
    const { dense, routed } = this.localParameters();
    const data = plan.replicas * plan.shards * plan.context;
    const share = plan.zeroStage === 0 && plan.shards === 1 ? 1 : plan.shards === 1 ? data : plan.shards * plan.context;
    const bytes = ((dense + routed) / share) * 32;
    const rate = system.offloadedOptimizer
      ? HOST_BYTES_PER_SECOND
      : cluster.memoryBytesPerSecond * cluster.memoryEfficiency;
    return bytes / rate;
  }

  private peak(): number {
    const { peakFlopsPerSecond: peaks } = this.system.cluster;
    return peaks.bf16 ?? peaks.fp16 ?? peaks.fp32;
  }

  private group(n: number, inner: number): NcclGroup {
    const host = this.system.cluster.devicesPerHost;
    const perNode = Math.max(1, Math.min(Math.floor(host / inner), n));
    return { n, nodes: Math.ceil(n / perNode), perNode };
  }

  private collective(kind: CollectiveKind, bytes: number, group: NcclGroup): number {
    return this.clock(kind, bytes, group);
  }
}

/** Selective checkpointing of operators keeps the results of every second matmul: about half of the forward runs again. */
const SELECTIVE = 0.4;
/** Share of the compute that collectives can hide behind. */
const HIDING = 0.8;
/** Optimizer on the host: its memory's rate for one device's share. */
const HOST_BYTES_PER_SECOND = 25e9;

function busySeconds({ deviceSeconds, hostSeconds }: KernelTime): number {
  return Math.max(deviceSeconds, hostSeconds);
}
