/**
 * The answer of a plan under the keys that all commands have for it: the step of its trainer, the
 * range in which measured steps like it lie, the peak, and the probability that the peak fits.
 */
import {
  type Circumstances,
  type ErrorPool,
  fitProbability,
  hasExperts,
  isUnmeasured,
  nearestPool,
} from '../../cost/error-bands.ts';
import type { Cluster } from '../../cost/hardware/cluster.ts';
import { loadCluster } from '../../cost/hardware/load-cluster.ts';
import type { Plan } from './types.ts';

/** The trainer of plans for no other: the PyTorch program that is exported. */
export const EXPORTED = 'shardwright';

/** The parts of a plan that its answer is made of. */
type Answering = Pick<Plan, 'parameters' | 'mesh' | 'request' | 'memory' | 'step'>;

/** Keys that each answer about one plan has. */
export interface StepKeys {
  /** The wall clock of a step, with communication overlapped. */
  readonly stepSeconds: number;
  /** Seconds of eight of ten measured steps; null where no runs of this kind were measured. */
  readonly stepBand: readonly [p10: number, p90: number] | null;
  /** Bytes of a device at the fullest moment of the step. */
  readonly peakBytes: number;
  /** Probability that the peak stays within the device; null where it is not known. */
  readonly fitProbability: number | null;
  /** Id of the trainer whose step it is. */
  readonly trainer: string;
}

/** The same keys of a plan whose step may not have been looked at; null: not known. */
export interface PlanAnswer extends Omit<StepKeys, 'stepSeconds' | 'peakBytes'> {
  readonly stepSeconds: number | null;
  readonly peakBytes: number | null;
}

export function planAnswer(plan: Answering): PlanAnswer {
  return {
    stepSeconds: plan.step?.stepSeconds ?? null,
    stepBand: planBand(plan) ?? null,
    peakBytes: planPeakBytes(plan) ?? null,
    fitProbability: planFits(plan) ?? null,
    trainer: plan.step?.trainer ?? plan.request.trainer ?? EXPORTED,
  };
}

/** Tells whether a plan is made for the software of a trainer, and its step was priced by it. */
export function isOfTrainer({ step }: Pick<Plan, 'step'>): boolean {
  return step !== undefined && step.trainer !== EXPORTED;
}

/** The circumstances that the errors of a plan's figures depend on. */
export function circumstancesOf(
  { parameters, mesh }: Pick<Plan, 'parameters' | 'mesh'>,
  { accelerator }: Cluster,
): Circumstances {
  return {
    accelerator,
    experts: hasExperts(parameters.map((p) => p.name)),
    unmeasured: isUnmeasured(parameters.map((p) => p.name)),
    hosts: Math.max(1, ...mesh.map((d) => d.hosts)),
  };
}

/**
 * Measured steps that resemble a plan's: those of trainers, under the prices that were set against
 * them; undefined where none do.
 */
export function planPool(plan: Answering): ErrorPool | undefined {
  const { step, request } = plan;
  if (step === undefined || !isOfTrainer(plan) || request.cost !== 'nccl') return undefined;
  const { trainer } = step;
  const assumed = request.trainerAssumed;
  return nearestPool({ ...circumstancesOf(plan, loadCluster(request.cluster)), trainer, assumed });
}

/** The range of a plan's step that eight of ten measured steps like it lie in. */
export function planBand(plan: Answering): readonly [low: number, high: number] | undefined {
  const pool = planPool(plan);
  if (pool === undefined || plan.step === undefined) return undefined;
  const { stepSeconds } = plan.step;
  return [stepSeconds * pool.step.p10, stepSeconds * pool.step.p90];
}

/** The bytes that a plan takes as its trainer runs it; undefined where activations do not count. */
export function planPeakBytes({ step, memory }: Pick<Plan, 'step' | 'memory'>): number | undefined {
  const { peakBytes, timeline } = memory;
  return step?.peakBytes ?? (timeline && Math.max(peakBytes, timeline.peakBytes));
}

/** The probability that the peak of a plan fits; undefined where the plan counts no activations. */
export function planFits(plan: Answering): number | undefined {
  const { memoryBytes, cluster } = plan.request;
  const bytes = planPeakBytes(plan);
  // A trainer's step counts activations, whether the plan does or not.
  if ((plan.memory.timeline === undefined && !isOfTrainer(plan)) || bytes === undefined)
    return undefined;
  return fitProbability(bytes, memoryBytes ?? loadCluster(cluster).memoryBytes);
}
