/**
 * Computes the bytes of activations that each device of a pipeline keeps, from the bytes that one
 * microbatch keeps on each of its chunks and the microbatches in flight under a schedule.
 */

import { keptByChunk } from '../../../simulate/pipeline/closed-forms.ts';
import type { PipelineSchedule, PipelineShape } from '../../../simulate/pipeline/schedules.ts';

/** Bytes that a device keeps in all, of those that a microbatch keeps of each of its chunks. */
export type HeldBytes = (chunkBytes: readonly number[]) => number;

/** The activations that pipelines keep; for each shape the mixes of chunks are made once. */
export class HeldActivations {
  private readonly mixesOf = new Map<string, readonly (readonly number[])[]>();

  of(schedule: PipelineSchedule, shape: PipelineShape, inFlight: readonly number[]): HeldBytes[] {
    return inFlight.map((count, i): HeldBytes => {
      if (schedule !== 'interleaved') return (bytes) => count * Math.max(...bytes);
      const mixes = this.mixes(shape, i);
      return (bytes) => {
        let most = 0;
        for (const mix of mixes)
          most = Math.max(
            most,
            mix.reduce((sum, n, c) => sum + n * bytes[c], 0),
          );
        return most;
      };
    });
  }

  private mixes(shape: PipelineShape, device: number): readonly (readonly number[])[] {
    const key = `${shape.devices} ${shape.microbatches} ${shape.chunks} ${device}`;
    let found = this.mixesOf.get(key);
    if (found === undefined) this.mixesOf.set(key, (found = keptByChunk(shape, device)));
    return found;
  }
}
