/** Sums over the parameters of one unit: bytes of a device and seconds of a step. */

type Summed =
  | 'gatherForwardSeconds'
  | 'gatherBackwardSeconds'
  | 'scatterSeconds'
  | 'sumSeconds'
  | 'gatherSeconds'
  | 'parameterBytes'
  | 'gradientBytes'
  | 'optimizerBytes'
  | 'gatheredBytes'
  | 'prefetchedBytes'
  | 'updatedElements';

/** Sums over the parameters of one unit. */
export type StateSums = Readonly<Record<Summed, number>> & {
  /** Moved to add the gradients of a microbatch to their buffers. */
  readonly addedBytes: number;
  /** Parameters with a gradient. */
  readonly trained: number;
};

export const NO_STATES: StateSums = {
  gatherForwardSeconds: 0,
  gatherBackwardSeconds: 0,
  scatterSeconds: 0,
  sumSeconds: 0,
  gatherSeconds: 0,
  parameterBytes: 0,
  gradientBytes: 0,
  optimizerBytes: 0,
  gatheredBytes: 0,
  prefetchedBytes: 0,
  updatedElements: 0,
  addedBytes: 0,
  trained: 0,
};

/** Bytes for each element of a gradient: it is read, its buffer read and written. */
export const ADDED_BYTES = 6;
