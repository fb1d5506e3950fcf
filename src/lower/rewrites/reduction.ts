/**
 * Rewrites reductions over a cut dim whose result is not just the reduction of the local rows: the
 * sum of the local results over the ranks is the global result.
 */
import { ref } from '../../graph/value.ts';
import { elements } from '../../ops/record/record.ts';
import type { LocalCall, Rewrite, Rewrites } from '../local-call.ts';

/** Dims that a reduction takes away, from the front. */
function reducedDims(call: LocalCall): number[] {
  const { shape } = call.global.inputs[0];
  const named = call.record.schema.some((s) => s.name === 'dim')
    ? call.global.optionalInts('dim')
    : undefined;
  if (named === undefined || named.length === 0) return shape.map((_, d) => d);
  return named.map((d) => (d < 0 ? d + shape.length : d));
}

/**
 * The divisor of a local sum that makes the pending reduction over the ranks the mean: the global
 * count, divided by the mesh dims that are averaged over.
 */
export function divisor(call: LocalCall, count: number): number {
  let ranks = 1;
  call.rules.forEach((r, m) => {
    const [out] = r?.outputs ?? [];
    const cut = r?.inputs.some((slot) => slot?.kind === 'shard') ?? false;
    if (cut && out?.kind === 'partial' && out.op === 'avg')
      ranks *= call.pieces.space.mesh.sizes[m];
  });
  return count / ranks;
}

/** A division by a constant, under the name of the call. */
export function dividedBy(call: LocalCall, value: string, by: number): string {
  return call.emit.call('aten.div.Scalar', [ref(value), { kind: 'float', value: by }], {
    name: call.node.name,
  });
}

/** The sum of the own rows over the GLOBAL count. */
const mean: Rewrite = (call) => {
  const { emit, global } = call;
  const dims = reducedDims(call);
  const count = elements(dims.map((d) => global.inputs[0].shape[d]));
  const keepdim = call.record.schema.some((s) => s.name === 'keepdim') && global.bool('keepdim');
  const kwargs = { dtype: { kind: 'dtype', dtype: global.outputs[0]?.dtype ?? 'f32' } } as const;
  const sum = emit.call('aten.sum.dim_IntList', [ref(call.inputs[0]), dims, keepdim], { kwargs });
  return [dividedBy(call, sum, divisor(call, count))];
};

export const reductionRewrites: Rewrites = {
  'aten.mean.default': mean,
  'aten.mean.dim': mean,
};
