/**
 * Takes a transformer, a parallel plan and a cluster and gives the seconds of one training step with their parts, by
 * layer-level closed forms.
 */

import { ncclGroupSeconds } from '../collectives/nccl.ts';
import type { NcclGroup } from '../collectives/nccl-algorithms.ts';
import { FITTED, type FittedConstants } from '../kernels/fitted.ts';
import { KernelSum, type KernelTime } from './kernels.ts';
import {
  attentionProducts,
  layerParameters,
  microbatches,
  pairWidth,
  stageLayers,
  type ParallelPlan,
  type TrainingSystem,
  type TransformerShape,
} from './shape.ts';

/** Seconds of one training step and where they go. */
interface StepTime {
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
  const clock = clocks.get(system.cluster) ?? ncclGroupSeconds(system.cluster);
  clocks.set(system.cluster, clock);
  return clock;
}

class StepModel {
  private readonly collective: Clock;
  private readonly constants: FittedConstants;
  /** Tokens of a microbatch on one device, and tokens of the norms and dropouts between tensor-parallel parts. */
  private readonly tokens: number;
  private readonly spread: number;

  constructor(
    private readonly shape: TransformerShape,
    private readonly plan: ParallelPlan,
    private readonly system: TrainingSystem,
  ) {
    this.collective = clockOf(system);
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
    let l = 0;
    stageLayers(shape, plan, this.system).forEach((count, stage) => {
      for (const end = l + count; l < end; l++) stages[stage] += layer(l);
    });
    const { furtherTokens = 0 } = shape;
    stages[0] += this.embeddingSeconds();
    stages[p - 1] += (1 + furtherTokens) * this.headSeconds() + furtherTokens * layer(shape.layers);
    return stages;
  }

  /** One layer, one microbatch: forward, what is recomputed, backward. */
  private layerSeconds(sparse: boolean): number {
    const forward = busySeconds(this.forward(sparse));
    const backward = busySeconds(this.backward(sparse));
    return forward + backward + this.recomputeSeconds(sparse, forward);
  }

  /** What the backward pass recomputes. */
  private recomputeSeconds(sparse: boolean, forward: number): number {
    const { recompute } = this.plan;
    if (recompute === 'full') return forward;
    if (recompute === 'selective') return SELECTIVE * forward;
    const cheap = recompute === 'modules' || recompute === 'products' ? busySeconds(this.cheapModules(sparse)) : 0;
    return cheap + (recompute === 'core' || recompute === 'products' ? busySeconds(this.core().time) : 0);
  }

  private forward(sparse: boolean): KernelTime {
    const { shape, plan, tokens: T } = this;
    const { hidden: h } = shape;
    const sum = this.core();
    for (const [k, n] of attentionProducts(shape, plan.tensor)) sum.matmul(T, k, n, { weight: true });
    this.mlp(sum, sparse, 1);
    // Norms, bias-dropout-residuals: 16-bit reads and writes, mask.
    sum.memory(this.spread * h * (2 * 4 + 2 * (this.system.dropout ? 8 : 6)), 6);
    this.tensorParallel(sum, 2);
    return sum.time;
  }

  private backward(sparse: boolean): KernelTime {
    const { shape, plan, tokens: T, system } = this;
    const { hidden: h } = shape;
    const t = plan.tensor;
    const sum = new KernelSum(system);
    this.coreInto(sum, system.flashAttention ? 2.5 : 2);
    // Gradient of the input and of the weight.
    for (const [k, n] of attentionProducts(shape, t)) sum.matmul(T, n, k, { weight: true }).matmul(k, T, n);
    this.mlp(sum, sparse, 2);
    sum.memory(this.spread * h * (2 * 8 + 2 * (system.dropout ? 8 : 6)), 10);
    // Every weight's gradient is added to its buffer.
    const { split, routed } = layerParameters(shape, sparse || shape.experts === undefined ? shape.layers - 1 : 0);
    sum.memory((split / t + routed / plan.expert) * 6, 8);
    this.tensorParallel(sum, 2);
    return sum.time;
  }

  /** Norms, activation functions and the products up from latents once more, as in the forward pass. */
  private cheapModules(sparse: boolean): KernelTime {
    const { shape, plan, tokens: T } = this;
    const { hidden: h, gated, experts, latent } = shape;
    const ffn = sparse && experts !== undefined ? experts.ffn * (experts.topK + experts.shared) : shape.ffn;
    const sum = new KernelSum(this.system)
      .memory(this.spread * h * 2 * 4, 2)
      .memory(T * (ffn / plan.tensor) * 2 * ((gated ? 2 : 1) + 1), 2);
    if (latent !== undefined)
      for (const [k, n] of attentionProducts(shape, plan.tensor))
        if (k === latent.query || k === latent.keyValue) sum.matmul(T, k, n, { weight: true });
    return sum.time;
  }

  /** The two or three products of the MLP, `passes` 1 forward, 2 backward. */
  private mlp(sum: KernelSum, sparse: boolean, passes: 1 | 2): void {
    const { shape, plan, tokens: T } = this;
    const { hidden: h, gated, experts } = shape;
    const t = plan.tensor;
    const up = gated ? 2 : 1;
    const block = (tokens: number, ffn: number, count: number): void => {
      const separate = count > 1 && !this.system.groupedExperts;
      for (const [k, n] of [
        [h, up * ffn],
        [ffn, h],
      ]) {
        sum.matmul(tokens, passes === 1 ? k : n, passes === 1 ? n : k, { count, separate, weight: true });
        if (passes === 2) sum.matmul(k, tokens, n, { count, separate });
      }
      sum.memory(tokens * count * ffn * 2 * (up + 1) * passes, 2 * passes);
    };
    if (!sparse || experts === undefined) {
      block(T, shape.ffn / t, 1);
      return;
    }
    if (experts.shared > 0) block(T, (experts.ffn * experts.shared) / t, 1);
    // Experts are whole on their devices, which follow one another; a device sends its own part of the sequence.
    const own = plan.sequenceParallel ? T / t : T;
    const local = Math.max(1, experts.count / plan.expert);
    block((own * experts.topK) / local, experts.ffn, local);
    const routed = own * experts.topK * h * 2;
    // Copies are put in order for the exchange, sorted by expert after it, and both undone (Megatron's dispatcher); kernels that
    // hold all experts take them as the exchange leaves them.
    sum.memory((this.system.groupedExperts ? 2 : 6) * routed * passes, 6 * passes);
    const seconds = 2 * this.exchange(routed);
    const hidden = this.system.expertOverlap ? Math.min(seconds, HIDING * sum.time.deviceSeconds) : 0;
    sum.wait(seconds - hidden + hidden * (this.constants.overlapSlowdown - 1));
  }

  /** Tokens to their experts: `routed` bytes of a device, a copy for each expert. */
  private exchange(routed: number): number {
    const { plan, shape, system } = this;
    const group = this.group(plan.expert, 1);
    const topK = shape.experts?.topK ?? 1;
    const places = group.nodes > 1 ? group.nodes : group.n;
    // Of `topK` experts spread over `places`, this many places are different ones.
    const distinct = places * (1 - (1 - 1 / places) ** topK);
    return this.collective('all_to_all', system.expertTokensOnce ? (routed * distinct) / topK : routed, group);
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
      const flops = (4 * b * local * sequence * sequence * pairWidth(shape)) / 2 / plan.context;
      sum.attention(flops * times, 8 * T * local * headDim * times);
      if (plan.context > 1) {
        const bytes = 2 * b * sequence * 2 * (shape.kvHeads / plan.tensor) * headDim;
        const comm = this.collective('all_gather', bytes, this.group(plan.context, plan.tensor)) * (times > 1 ? 2 : 1);
        // The ring exchanges the next block while it works on this one.
        const { bf16, fp16, fp32 } = this.system.cluster.peakFlopsPerSecond;
        const beside = (flops * times) / ((bf16 ?? fp16 ?? fp32) * this.system.attentionShare);
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
      .memory(T * v * (system.fusedLoss ? 10 : 26), 12)
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
    const gradients = elements * (system.overlap ? system.stateBytes.gradient : 2);
    const summed =
      plan.zeroStage === 0 || !system.overlap
        ? // Without overlap the whole gradient is summed everywhere before the optimizer takes its part (DeepSpeed).
          this.collective('all_reduce', gradients, group)
        : this.collective('reduce_scatter', gradients, group);
    const gathered = plan.zeroStage === 0 ? 0 : this.collective('all_gather', 2 * elements, group);
    seconds = summed + gathered;
    if (!system.overlap) return seconds;
    // Sums run beside the last microbatch's backward pass, two thirds of it, gathers beside the first one's forward pass.
    const pass = compute / m / 3;
    return Math.max(0.1 * seconds, Math.max(0, summed - 2 * pass) + Math.max(0, gathered - pass));
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

  private group(n: number, inner: number): NcclGroup {
    const host = this.system.cluster.devicesPerHost;
    const perNode = Math.max(1, Math.min(Math.floor(host / inner), n));
    return { n, nodes: Math.ceil(n / perNode), perNode };
  }
}

/** Selective checkpointing of operators keeps the results of every second matmul: about half of the forward is recomputed. */
const SELECTIVE = 0.4;
/** Share of the compute that collectives can hide behind. */
const HIDING = 0.8;
/** Optimizer on the host: its memory's rate for one device's share. */
const HOST_BYTES_PER_SECOND = 25e9;

function busySeconds({ deviceSeconds, hostSeconds }: KernelTime): number {
  return Math.max(deviceSeconds, hostSeconds);
}
