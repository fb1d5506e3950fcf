/**
 * The facts that price a step in addition to its plan: the trainer that runs it, and its software.
 */

import type { StepSystem } from '../cost/kernels/call.ts';
import type { StepSoftware } from '../cost/kernels/software.ts';
import type { Optimizer, StateBytes } from '../cost/memory/state-bytes.ts';
import { type DType, DTYPE_BYTES } from '../graph/types.ts';
import type { Checkpoint } from './checkpoints.ts';

/** The recomputation of a trainer where a step does not fit. */
interface StepRecompute {
  readonly limitBytes: number;
  /** Tells whether the trainer has it. */
  readonly runs: (checkpoint: Checkpoint) => boolean;
}

export interface StepFacts {
  /** Its id, such as `torchtitan`. */
  readonly trainer: string;
  readonly system: StepSystem;
  /** The optimizer of the request; absent: that of the trainer. */
  readonly optimizer?: Optimizer;
  /** Absent: what the program keeps is kept. */
  readonly recompute?: StepRecompute;
}

/**
 * Bytes of states where the software keeps others than the optimizer and the dtype say: software
 * that keeps a master copy keeps it in addition to 16-bit weights. An optimizer that is asked for
 * takes precedence.
 */
export function softwareState(
  software: StepSoftware | undefined,
  optimizer: Optimizer | undefined,
  dtype: DType,
): Partial<StateBytes> | undefined {
  const state = software?.state;
  if (state === undefined || DTYPE_BYTES[dtype] !== 2) return undefined;
  if (optimizer === undefined) return state;
  return state.gradient === undefined || optimizer === 'none'
    ? undefined
    : { gradient: state.gradient };
}
