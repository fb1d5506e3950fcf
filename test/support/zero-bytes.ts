import type { StateBytes } from '../../src/cost/memory/state-bytes.ts';

/**
 * Peak state bytes of a device under ZeRO with what stage 3 holds beside its shards: the gathered
 * unit. arXiv:1910.02054, figure 1 and section 3.
 */
export interface ZeroPlan {
  readonly stage: 0 | 1 | 2 | 3;
  /** Data-parallel devices. */
  readonly dataParallel: number;
  /** Elements of the largest unit that is gathered at once; stage 3 only. */
  readonly largestUnitElements?: number;
  /** Units gathered at once: 1, or 3 when a prefetch and a gradient overlap it. */
  readonly gatheredUnits?: number;
}

/** Bytes by what they are; a shard of `n` elements over `d` devices has ceil(n/d). */
export interface ZeroBytes {
  readonly parameterBytes: number;
  readonly gradientBytes: number;
  readonly optimizerBytes: number;
  readonly gatheredBytes: number;
  readonly totalBytes: number;
}

/**
 * @param elements parameter elements of the device before data-parallel sharding
 * @param state bytes per element
 */
export function zeroBytes(state: StateBytes, elements: number, plan: ZeroPlan): ZeroBytes {
  const { stage, dataParallel, largestUnitElements = 0, gatheredUnits = 1 } = plan;
  const cut = (from: number): number =>
    stage >= from ? Math.ceil(elements / dataParallel) : elements;
  const parameterBytes = state.parameter * cut(3);
  const gradientBytes = state.gradient * cut(2);
  const optimizerBytes = state.optimizer * cut(1);
  const gatheredBytes = stage === 3 ? state.parameter * largestUnitElements * gatheredUnits : 0;
  return {
    parameterBytes,
    gradientBytes,
    optimizerBytes,
    gatheredBytes,
    totalBytes: parameterBytes + gradientBytes + optimizerBytes + gatheredBytes,
  };
}
