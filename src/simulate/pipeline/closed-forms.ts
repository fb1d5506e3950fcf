/**
 * Counts the microbatches whose activations a pipeline schedule keeps on a device. Sources:
 * arXiv:2104.04473 section 2.2 (1F1B, interleaved), arXiv:2401.10241 section 2.3 (zero bubble).
 */

import type { PipelineSchedule, PipelineShape } from './schedules.ts';

/** Microbatches (of a chunk) that device i keeps the activations of. */
export function keptMicrobatches(
  schedule: PipelineSchedule,
  shape: PipelineShape,
  device: number,
): number {
  const { devices: p, microbatches: m, chunks: v = 1 } = shape;
  switch (schedule) {
    case 'gpipe':
      return m;
    case '1f1b':
      return Math.min(m, p - device);
    case 'interleaved':
      return Math.min(m * v, 2 * (p - 1 - device) + (v - 1) * p + 1);
    case 'zb-h1':
      return Math.min(m, p);
    case 'zb-h2':
      return Math.min(m, 2 * p - 1);
  }
}

/**
 * How many microbatches of each of its chunks device i keeps, moment by moment: the interleaved
 * schedule takes chunks in turn, for as many microbatches as there are devices, forward from the
 * first chunk and backward from the last.
 */
export function keptByChunk(
  { devices: p, microbatches: m, chunks: v = 1 }: PipelineShape,
  device: number,
): readonly (readonly number[])[] {
  const turn = (pass: number): number => Math.floor(pass / p) % v;
  const filled = keptMicrobatches(
    'interleaved',
    { devices: p, microbatches: m, chunks: v },
    device,
  );
  const mix = new Array<number>(v).fill(0);
  for (let f = 0; f < filled; f++) mix[turn(f)]++;
  const moments = [[...mix]];
  // From here on a backward pass goes before each forward pass; after one turn of all chunks the
  // mixes come again.
  for (let b = 0; b < Math.min(m * v - filled, p * v); b++) {
    mix[v - 1 - turn(b)]--;
    mix[turn(filled + b)]++;
    moments.push([...mix]);
  }
  return moments;
}
