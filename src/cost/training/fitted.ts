/**
 * The constants of the training-step model that no data sheet gives. One set serves every source: they were chosen on the
 * public single-node and multi-node runs as a whole, by physics rather than by row, and are never adapted to a run.
 */
export interface FittedConstants {
  /** Host time of one kernel of an eager framework: dispatch, autograd, Python. */
  eagerHostSeconds: number;
  /** The same when a compiler emits the calls. */
  compiledHostSeconds: number;
  /** Idle time of the device between two kernels. */
  kernelGapSeconds: number;
  /** Matmul time of devices of 500 W and more in a long step, relative to isolated shapes: clocks fall under load. */
  hotMatmulTime: number;
  /** Pointwise traffic of frameworks without fused kernels, relative to those that have them. */
  unfusedTraffic: number;
  /** Traffic of pointwise kernels that reaches memory, relative to all that they read and write (caches keep the rest). */
  pointwiseTraffic: number;
  /** Slowdown of compute while collectives run beside it (1.13 to 1.3 published). */
  overlapSlowdown: number;
  /** Host time of a pipeline hop: handshake and buffers. */
  hopHostSeconds: number;
  /** Fixed time of a step: loss scale check, clipping, logging. */
  stepHostSeconds: number;
}

export const FITTED: FittedConstants = {
  eagerHostSeconds: 38e-6,
  compiledHostSeconds: 6e-6,
  kernelGapSeconds: 6e-6,
  hotMatmulTime: 1.2,
  unfusedTraffic: 2,
  pointwiseTraffic: 0.8,
  overlapSlowdown: 1.13,
  hopHostSeconds: 100e-6,
  stepHostSeconds: 8e-3,
};
