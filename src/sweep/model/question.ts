/** The question of a sweep as plain data, so that worker threads can receive it. */

import type { Cluster } from '../../cost/hardware/cluster.ts';
import { loadCluster } from '../../cost/hardware/load-cluster.ts';
import type { StepSystem } from '../../cost/kernels/call.ts';
import { FITTED, type FittedConstants } from '../../cost/kernels/fitted.ts';
import { defaultRecipe, inFp4, inFp8 } from '../../cost/kernels/fp8-recipes.ts';
import {
  DEFAULT_SOFTWARE,
  type Fp8Recipe,
  type StepSoftware,
} from '../../cost/kernels/software.ts';
import {
  gradientDtype,
  type Gradients,
  type Optimizer,
  STATES,
  type States,
} from '../../cost/memory/state-bytes.ts';
import { ShardwrightError } from '../../errors.ts';
import { type DType, DTYPE_BYTES } from '../../graph/types.ts';

/**
 * A sweep's question over meshes and plans. It is plain data, because worker threads are given it.
 */
export interface SweepQuestion {
  /** Name of the model for people. */
  readonly model: string;
  /** Its Hugging Face config, JSON. */
  readonly config: string;
  readonly devices: number;
  /** Node design, or the JSON text of a cluster. */
  readonly cluster: string;
  /** Tokens of a sequence. */
  readonly sequence: number;
  /** Sequences of one optimizer step. */
  readonly globalBatch: number;
  /** Cost preset. */
  readonly cost: string;
  readonly optimizer?: Optimizer;
  readonly dtype?: DType;
  /**
   * True if collectives of parameters and gradients overlap with compute; default: as the software
   * does.
   */
  readonly overlap?: boolean;
  /**
   * True if the passes of a step run one after another, as those of a plan do; default: two overlap
   * where the trainer overlaps them.
   */
  readonly serialPasses?: true;
  /**
   * The trainer that the question is asked for, by its id: only layouts that it runs are searched.
   * Absent: whatever can be priced.
   */
  readonly trainer?: string;
  /** True if nobody asked for that trainer and it was taken as the default. */
  readonly trainerAssumed?: true;
  /** The behaviour of the training software; default `DEFAULT_SOFTWARE`. */
  readonly software?: StepSoftware;
  /** Constants of the model of a step; default `FITTED`. */
  readonly constants?: FittedConstants;
  /**
   * `calls`: call by call, as a plan is priced, with nothing added for launches, updates and
   * clocks; default `step`.
   */
  readonly priced?: 'step' | 'calls';
  /** Budget per device, bytes; default the memory of the device less its headroom. */
  readonly memoryBytes?: number;
  /** Share of a device's memory that is held back, 0..1; default what the cluster holds back. */
  readonly headroom?: number;
  /** The least probability with which the best plan fits; absent: the budget alone counts. */
  readonly risk?: number;
  /**
   * Vocabulary padded to a multiple of this times the ranks of tensor parallelism of each mesh;
   * default 1: not at all.
   */
  readonly padVocabulary?: number;
}

/**
 * The software of a question with its products in fp8.
 *
 * @param recipe absent: what trainers take on the device
 * @param asked where it is asked for, for errors
 * @throws E_USAGE where products in fp8 have no price
 */
export function softwareInFp8(
  { cost, cluster: design, software }: SweepQuestion,
  recipe: Fp8Recipe | undefined,
  asked: string,
): StepSoftware {
  const cluster = loadCluster(design);
  const { accelerator } = cluster;
  const fail = (hint: string): ShardwrightError =>
    new ShardwrightError('E_USAGE', `${asked} on ${cluster.id} under --cost ${cost}`, { hint });
  if (cost !== 'nccl' || cluster.peakFlopsPerSecond.fp8 === undefined)
    throw fail('products in fp8 have a price under --cost nccl, on devices with such a unit.');
  const own = defaultRecipe(accelerator);
  if (recipe === 'mxfp8' && own !== 'mxfp8')
    throw fail(`its products read no scales of 32 values: take ${own}.`);
  return inFp8(software ?? DEFAULT_SOFTWARE, recipe ?? own, accelerator);
}

/**
 * The software of a question with its products in NVFP4.
 *
 * @param asked where it is asked for, for errors
 * @throws E_USAGE where products in fp4 have no price
 */
export function softwareInFp4(
  { cost, cluster: design, software }: SweepQuestion,
  asked: string,
): StepSoftware {
  const cluster = loadCluster(design);
  if (cost !== 'nccl' || cluster.peakFlopsPerSecond.fp4 === undefined)
    throw new ShardwrightError('E_USAGE', `${asked} on ${cluster.id} under --cost ${cost}`, {
      hint: 'products in fp4 have a price under --cost nccl, on devices with such a unit.',
    });
  return inFp4(software ?? DEFAULT_SOFTWARE);
}

/** Software that keeps and sums gradients in a dtype of its own. */
export function softwareWithGradients(
  software: StepSoftware | undefined,
  gradients: Gradients,
): StepSoftware {
  const bytes = DTYPE_BYTES[gradientDtype(gradients, 'bf16')];
  const base = software ?? DEFAULT_SOFTWARE;
  return { ...base, gradientBytes: bytes, state: { ...base.state, gradient: bytes } };
}

/** Software that keeps weights and moments in dtypes of its own. */
export function softwareWithStates(
  software: StepSoftware | undefined,
  states: States,
): StepSoftware {
  return { ...(software ?? DEFAULT_SOFTWARE), state: STATES[states] };
}

/**
 * The machine and its software as steps are priced from them. Absent under presets that copy other
 * planners or are bare formulas: those price calls as a plan does, and add nothing for launches,
 * updates and clocks.
 */
export function stepSystem(question: SweepQuestion, cluster: Cluster): StepSystem | undefined {
  const { cost, software = DEFAULT_SOFTWARE, constants = FITTED, priced = 'step' } = question;
  return cost === 'nccl' && priced === 'step' ? { cluster, software, constants } : undefined;
}
