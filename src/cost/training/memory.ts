/**
 * Takes the sizes of a transformer and a parallel plan and gives the peak bytes of a device in a training step, by closed
 * forms (Korthikanti et al., arXiv:2205.05198; ZeRO, arXiv:1910.02054).
 */

import {
  layerParameters,
  microbatches,
  stageLayers,
  type ParallelPlan,
  type TrainingSystem,
  type TransformerShape,
} from './shape.ts';

/** Peak bytes of a device in a training step and what they are. */
interface StepMemory {
  readonly peakBytes: number;
  readonly parameterBytes: number;
  readonly gradientBytes: number;
  readonly optimizerBytes: number;
  /** Saved for the backward pass on the device, all microbatches in flight. */
  readonly activationBytes: number;
  /** Gathered weights, recomputed layer, loss. */
  readonly transientBytes: number;
  /** Context of the device, allocator, communication buffers. */
  readonly reservedBytes: number;
}

/** What a running process holds beside tensors: context and kernels, and buffers of every group that communicates. */
const CONTEXT_BYTES = 1.5e9;
const GROUP_BYTES = 0.4e9;
/** Share by which an allocator's blocks exceed what is in them. */
const FRAGMENTATION = 1.06;

/**
 * Peak memory by closed forms: state bytes per parameter under ZeRO, saved activations of the layers of a stage for every
 * microbatch in flight, and the largest transient. The fullest stage counts.
 */
export function stepMemory(shape: TransformerShape, plan: ParallelPlan, system: TrainingSystem): StepMemory {
  let fullest: StepMemory | undefined;
  for (let stage = 0; stage < plan.pipeline; stage++) {
    // Stages between the first and the last hold the layers of the first and less in flight.
    if (stage > 1 && stage < plan.pipeline - 1) continue;
    const memory = stageMemory(shape, plan, system, stage);
    if (fullest === undefined || memory.peakBytes > fullest.peakBytes) fullest = memory;
  }
  return fullest as StepMemory;
}

function stageMemory(shape: TransformerShape, plan: ParallelPlan, system: TrainingSystem, stage: number): StepMemory {
  const { hidden: h, vocab } = shape;
  const p = plan.pipeline;
  const counts = stageLayers(shape, plan, system);
  const first = counts.slice(0, stage).reduce((a, b) => a + b, 0);
  // Layers that predict further tokens are the last one's like.
  const further = stage === p - 1 ? (shape.furtherTokens ?? 0) : 0;
  const end = first + counts[stage] + further;
  const t = plan.tensor;
  const tokens = (plan.microbatch * shape.sequence) / plan.context;

  let dense = 0;
  let routed = 0;
  let largest = 0;
  for (let l = first; l < end; l++) {
    const q = layerParameters(shape, l);
    const own = q.split / t + q.whole;
    dense += own;
    routed += q.routed / plan.expert;
    largest = Math.max(largest, own + q.routed / plan.expert);
  }
  const table = (vocab * h) / t;
  if (stage === 0) dense += table;
  if (stage === p - 1) dense += p === 1 && system.tiedEmbedding ? 0 : table;
  largest = Math.max(largest, stage === 0 || stage === p - 1 ? table : 0);

  const shards = plan.shards * plan.context;
  const data = plan.replicas * shards;
  const state = system.stateBytes;
  const sharded = shards > 1 && plan.zeroStage >= 2 && (plan.shards > 1 || plan.zeroStage === 3);
  const cut = (from: number, degree: number): number => (plan.zeroStage >= from ? degree : 1);
  const over = sharded ? shards : data;
  const expertOver = Math.max(1, over / plan.expert);
  const bytes = (per: number, from: number): number => per * (dense / cut(from, over) + routed / cut(from, expertOver));
  // Stage 2 with sharded weights keeps the 16-bit copy gathered; so do pipelines, and gradients until the last microbatch.
  const keeps = sharded && (plan.zeroStage === 2 || p > 1);
  const gathered = keeps ? 2 * (dense + routed) : 0;
  const whole = keeps && p > 1 ? state.gradient * (dense + routed) : 0;
  const parameterBytes = (sharded ? bytes(state.parameter, 0) / over : bytes(state.parameter, 3)) + gathered;
  const gradientBytes = (sharded ? bytes(state.gradient, 0) / over : bytes(state.gradient, 2)) + whole;
  const optimizerBytes = sharded ? bytes(state.optimizer, 0) / over : bytes(state.optimizer, 1);

  // 1F1B: a stage keeps as many microbatches as there are stages from it to the end.
  const m = microbatches(plan);
  const inFlight = Math.min(m, p - stage) * (plan.chunks > 1 && stage === 0 ? 1 + (p - 1) / (p * plan.chunks) : 1);
  let saved = 0;
  for (let l = first; l < end; l++) saved += layerActivationBytes(shape, plan, system, l, plan.recompute);
  // A pipeline stage also holds what it has sent until its gradient is back.
  const sent = p > 1 && stage < p - 1 ? (2 * tokens * h) / (plan.sequenceParallel ? t : 1) : 0;
  const allActivationBytes = inFlight * (saved + sent);

  const again = plan.recompute === 'none' ? 0 : layerActivationBytes(shape, plan, system, first, 'none');
  const unit = sharded && plan.zeroStage === 3 ? 2 * largest * 2 + 4 * largest : 0;
  const logits = stage === p - 1 ? tokens * (vocab / t) * system.logitBytes : 0;
  // The backward pass of a layer beside what it saved: gradients of its widest activations.
  const width = Math.max(shape.gated ? 2 * shape.ffn : shape.ffn, 4 * h);
  const backward = (2 * 2 * tokens * width) / t;
  const transientBytes = Math.max(logits, again + backward) + unit;

  const groups = [t, p, plan.context, data].filter((n) => n > 1).length;
  const reservedBytes = CONTEXT_BYTES + groups * GROUP_BYTES;
  const others = parameterBytes + gradientBytes + optimizerBytes + transientBytes;
  const room = Math.max(0, (system.cluster.memoryBytes - reservedBytes) / FRAGMENTATION - others);
  const activationBytes = system.offloadedActivations ? Math.min(allActivationBytes, room) : allActivationBytes;
  return {
    peakBytes: (others + activationBytes) * FRAGMENTATION + reservedBytes,
    parameterBytes,
    gradientBytes,
    optimizerBytes,
    activationBytes,
    transientBytes,
    reservedBytes,
  };
}

/**
 * Bytes that one layer saves for one microbatch on one device: inputs of norms, matmuls, attention and activation, masks.
 * With dropout and plain attention this is Korthikanti's 34 + 5as/h bytes a token and hidden element.
 */
export function layerActivationBytes(
  shape: TransformerShape,
  plan: ParallelPlan,
  system: TrainingSystem,
  layer: number,
  recompute: ParallelPlan['recompute'],
): number {
  const { hidden: h, heads, kvHeads, headDim, gated, experts, sequence, latent } = shape;
  const t = plan.tensor;
  const spread = plan.sequenceParallel ? t : 1;
  const tokens = (plan.microbatch * sequence) / plan.context;
  if (recompute === 'full') return (2 * tokens * h) / spread;
  const mask = system.dropout ? 1 : 0;
  const sparse = experts !== undefined && layer >= experts.denseLayers;
  const ffn = sparse ? experts.ffn * (experts.topK + experts.shared) : shape.ffn;
  const kept = recompute !== 'modules' && recompute !== 'products';
  const operand = system.savedOperandBytes;
  // Inputs of the two norms and of the two column-parallel matmuls, masks of the two residuals.
  const inputs = kept ? 2 * operand : 0;
  const whole = (2 * 2 + inputs + 2 * mask) * h + (sparse ? operand * experts.topK * h : 0);
  // Queries, keys and values, unless they are made again from their latents; the output, twice if the matmul keeps a cast.
  const states = latent === undefined ? (heads + 2 * kvHeads) * headDim : heads * (3 * headDim + 2 * latent.rotary);
  const latents = latent === undefined ? 0 : operand * (latent.query + latent.keyValue);
  const attention =
    (latent === undefined || kept ? 2 * states : 0) +
    (recompute === 'products' ? 0 : 2 + (operand < 2 ? operand : 0)) * heads * headDim;
  const mlp = ffn * (2 * (gated ? 2 : 1) + (kept ? operand : 0));
  const scores =
    system.flashAttention || recompute === 'core' || recompute === 'products'
      ? 0
      : (heads * sequence * (4 + mask)) / plan.context;
  const saved = tokens * (whole / spread + latents + (attention + mlp + scores) / t);
  // Every second matmul and the attention output stay; the rest is recomputed.
  return recompute === 'selective' ? SELECTIVE_KEPT * saved : saved;
}
const SELECTIVE_KEPT = 0.55;
