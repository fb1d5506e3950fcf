/**
 * Low-rank adapters beside linear layers: `y = W x + s B A x`, with `A` of `rank` rows and `B` of
 * `rank` columns (LoRA, Hu et al. 2021, arXiv:2106.09685, section 4.1).
 */

import type { DType } from '../../graph/types.ts';
import type { LowRank } from '../record/low-rank.ts';
import { needRecorder } from '../record/recorder.ts';
import { param, scope } from '../tensor/state.ts';
import type { Tensor } from '../tensor/tensor.ts';

/** Runs `body`; linear layers that it makes get their adapters. */
export function withLowRank<T>(adapters: LowRank, body: () => T): T {
  const { trace } = needRecorder('withLowRank()');
  const before = trace.lowRank;
  trace.lowRank = adapters;
  try {
    return body();
  } finally {
    trace.lowRank = before;
  }
}

/** The result of the layer at the present module path, with that of its adapter if it has one. */
export function adapted(
  x: Tensor,
  made: Tensor,
  { inputs, outputs, dtype }: { inputs: number; outputs: number; dtype: DType },
): Tensor {
  const { lowRank, path } = needRecorder('a linear layer').trace;
  if (lowRank === undefined || !lowRank.adapts(path)) return made;
  const { rank, scale } = lowRank;
  const down = scope('lora_A', () => x.linear(param('weight', { shape: [rank, inputs], dtype })));
  return scope('lora_B', () =>
    made.add(down.linear(param('weight', { shape: [outputs, rank], dtype })).mul(scale)),
  );
}
