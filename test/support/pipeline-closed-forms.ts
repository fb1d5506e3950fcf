/**
 * Pipeline steps in closed form, for equal stages and free messages: what the event simulation is
 * held to. Sources: arXiv:2104.04473 section 2.2 (1F1B, interleaved), arXiv:2401.10241 section 2.3
 * (zero bubble).
 */
import { ShardwrightError } from '../../src/errors.ts';
import type { StageSeconds } from '../../src/simulate/pipeline/play.ts';
import type { PipelineSchedule, PipelineShape } from '../../src/simulate/pipeline/schedules.ts';

/**
 * Seconds that a device waits in a step. Zero-bubble forms hold from as many microbatches on as the
 * schedule needs to fill (twice the devices), and are 0 where they would be negative.
 */
export function bubbleSeconds(
  schedule: PipelineSchedule,
  shape: PipelineShape,
  stage: StageSeconds,
): number {
  const { devices: p, chunks: v = 1 } = shape;
  const { forward: f, backwardInput: b, backwardWeight: w } = stage;
  switch (schedule) {
    case 'gpipe':
    case '1f1b':
      return (p - 1) * (f + b + w);
    case 'interleaved':
      return ((p - 1) * (f + b + w)) / v;
    case 'zb-h1':
      return Math.max(0, (p - 1) * (f + b - w));
    case 'zb-h2':
      return Math.max(0, (p - 1) * (f + b - 2 * w));
  }
}

/**
 * Seconds of a step over stages of any length: every stage once, and the longest for every further
 * microbatch. Exact for equal stages, an upper bound otherwise.
 *
 * @param stages seconds of one microbatch, forward and backward, by stage
 */
export function pipelineSeconds(stages: readonly number[], microbatches: number): number {
  if (stages.length === 0 || !(microbatches >= 1))
    throw new ShardwrightError(
      'E_USAGE',
      `a pipeline of ${stages.length} stages and ${microbatches} microbatches`,
    );
  return stages.reduce((sum, s) => sum + s, 0) + (microbatches - 1) * Math.max(...stages);
}
