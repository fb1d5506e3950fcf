/**
 * Predictions that ours must beat: a constant utilisation, the same with the pipeline's bubble, and
 * a layer model untuned.
 */

import { activeMatmulParameters, microbatches } from '../cost/training/shape.ts';
import { median } from './metrics.ts';
import type { MeasuredRun } from './runs.ts';

/** Peak that the constant-utilisation baselines divide by; it cancels in the fitted factor. */
const NOMINAL_PEAK = 312e12;

function constantWork(run: MeasuredRun): number {
  const { shape, plan } = run;
  const perToken =
    6 * activeMatmulParameters(shape) + 12 * shape.layers * shape.hidden * shape.sequence;
  const again = plan.recompute === 'full' ? 4 / 3 : 1;
  return (perToken * plan.globalBatch * shape.sequence * again) / (run.devices * NOMINAL_PEAK);
}

function bubble(run: MeasuredRun): number {
  const { plan } = run;
  return 1 + (plan.pipeline - 1) / (plan.chunks * microbatches(plan));
}

/**
 * Seconds of every run: model FLOPs over one utilisation, the median of the same runs, optionally
 * times the bubble.
 */
export function fittedUtilisation(runs: readonly MeasuredRun[], withBubble: boolean): number[] {
  const work = runs.map((r) => constantWork(r) * (withBubble ? bubble(r) : 1));
  const factor = median(runs.map((r, i) => (r.stepSeconds ?? 0) / work[i])) ?? 1;
  return work.map((w) => w * factor);
}

/**
 * A layer model in the manner of Calculon with the constants of its A100 file, untouched:
 * efficiencies in steps of the operation's size, collectives by rate and latency, full overlap of
 * nothing. Undefined on devices that the file is not for.
 */
export function calculonSeconds(run: MeasuredRun): number | undefined {
  const { shape, plan, system } = run;
  if (!system.cluster.accelerator.startsWith('A100')) return undefined;
  const { hidden: h, heads, headDim, kvHeads, ffn, gated, vocab, sequence } = shape;
  const t = plan.tensor;
  const b = plan.microbatch;
  const T = (b * sequence) / plan.context;
  const mm = (m: number, k: number, n: number, count = 1): number => {
    const flops = 2 * m * k * n * count;
    const giga = flops / 1e9;
    const share = giga >= 128 ? 0.95 : giga >= 16 ? 0.9 : giga >= 1 ? 0.6 : 0.1;
    return flops / (312e12 * share);
  };
  const touch = (bytes: number): number => {
    const mega = bytes / 1e6;
    const share = mega >= 100 ? 0.9 : mega >= 10 ? 0.75 : mega >= 1 ? 0.6 : 0.3;
    return bytes / (2048e9 * share);
  };
  const inside = (bytes: number, n: number, scale: number, offset: number): number =>
    n === 1 ? 0 : 10e-6 + (bytes * scale * (1 + offset / n)) / (300e9 * 0.65);
  const outside = (bytes: number, scale: number): number => 20e-6 + (bytes * scale) / (25e9 * 0.9);

  const qkv = (heads + 2 * kvHeads) * headDim;
  const up = gated ? 2 : 1;
  const local = (b * heads) / t;
  const matmuls =
    mm(T, h, qkv / t) +
    mm(T, (heads * headDim) / t, h) +
    mm(T, h, (up * ffn) / t) +
    mm(T, ffn / t, h) +
    mm(sequence, headDim, sequence, local) * 2;
  const spread = plan.sequenceParallel ? t : 1;
  const pointwise =
    touch((4 * T * h) / spread) * 2 +
    touch((5 * T * h) / spread) * 2 +
    touch((4 * T * ffn) / t) +
    touch(local * sequence * sequence * 9);
  const reduce = inside(2 * T * h, t, 2, -1) * 2;
  const forward = matmuls + pointwise + reduce;
  const layer = forward * (plan.recompute === 'full' ? 2 : 1) + 2 * (matmuls + pointwise) + reduce;
  const perStage = Math.ceil(shape.layers / plan.pipeline);
  const head = 3 * mm(T, h, vocab / t);
  const message = (2 * T * h) / (plan.sequenceParallel ? t : 1);
  const hop =
    plan.pipeline === 1 ? 0 : run.devices <= 8 ? inside(message, 2, 1, 0) : outside(message, 1);
  const stage = perStage * layer + 2 * hop * plan.chunks;
  const m = microbatches(plan);
  const parameters = (activeMatmulParameters(shape) + vocab * h) / (t * plan.pipeline);
  const data = plan.replicas * plan.shards;
  const gradients =
    data === 1
      ? 0
      : run.devices <= 8
        ? inside(2 * parameters, data, 2, -1)
        : outside(2 * parameters, 2 * ((data - 1) / data));
  const optimizer = touch((parameters * 32) / (plan.zeroStage > 0 ? data : 1));
  return m * stage + ((plan.pipeline - 1) * stage) / plan.chunks + m * head + gradients + optimizer;
}
