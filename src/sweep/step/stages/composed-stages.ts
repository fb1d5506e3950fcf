/**
 * Lists the stages of a layout and their messages, as a comparison prints them. The lists are made
 * when they are asked for: a sweep prices tens of thousands of layouts and shows the stages of a
 * few.
 */

import type { ComparedBoundary, ComparedStage } from '../../../recipes/compare/comparison.ts';
import type { StageSeconds } from '../../../simulate/pipeline/play.ts';

/** The sums of a pipeline's device. */
interface StageDevice {
  readonly peak: number;
  readonly inFlight: number;
  /** Seconds of a step in which it works. */
  readonly works: number;
}

/** The lists of a layout. */
export interface ComposedStages {
  readonly stages: readonly ComparedStage[];
  readonly boundaries: readonly ComparedBoundary[];
}

/**
 * The stages of a layout, on demand.
 *
 * @param bounds first unit of every chunk, and the number of units
 * @param sent bytes and seconds of a message from each chunk but the last; none where there is one
 *   device
 */
export function composedStages(
  bounds: readonly number[],
  seconds: readonly StageSeconds[],
  devices: readonly StageDevice[],
  sent: readonly { readonly boundaryBytes: number; readonly boundary: number }[],
  stepSeconds: number,
): ComposedStages {
  // Numbers in a row: of all layouts that are priced these are kept.
  const passes = new Float64Array(3 * seconds.length);
  seconds.forEach((s, k) => {
    passes[3 * k] = s.forward;
    passes[3 * k + 1] = s.backwardInput;
    passes[3 * k + 2] = s.backwardWeight;
  });
  const own = new Float64Array(3 * devices.length);
  devices.forEach((d, i) => {
    own[3 * i] = d.peak;
    own[3 * i + 1] = d.inFlight;
    own[3 * i + 2] = Math.max(0, 1 - d.works / stepSeconds);
  });
  const messages = new Float64Array(2 * sent.length);
  sent.forEach((u, k) => {
    messages[2 * k] = u.boundaryBytes;
    messages[2 * k + 1] = u.boundary;
  });
  return onDemand(bounds, passes, own, messages);
}

/** The lists hold on to nothing but the data that they are made from. */
function onDemand(
  bounds: readonly number[],
  passes: Float64Array,
  own: Float64Array,
  messages: Float64Array,
): ComposedStages {
  const units = bounds[bounds.length - 1];
  return {
    get stages() {
      return Array.from({ length: passes.length / 3 }, (_, k): ComparedStage => {
        const device = 3 * (k % (own.length / 3));
        const [forwardSeconds, backwardInputSeconds, backwardWeightSeconds] = passes.subarray(
          3 * k,
          3 * k + 3,
        );
        return {
          first: Math.max(0, bounds[k] - 1),
          end: Math.min(units - 2, bounds[k + 1] - 1),
          embedding: bounds[k] === 0,
          head: bounds[k + 1] === units,
          seconds: forwardSeconds + backwardInputSeconds + backwardWeightSeconds,
          forwardSeconds,
          backwardInputSeconds,
          backwardWeightSeconds,
          peakBytes: own[device],
          inFlight: own[device + 1],
          idleShare: own[device + 2],
        };
      });
    },
    get boundaries() {
      return Array.from({ length: messages.length / 2 }, (_, k) => ({
        bytes: messages[2 * k],
        seconds: messages[2 * k + 1],
      }));
    },
  };
}
