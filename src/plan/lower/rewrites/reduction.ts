import type { DType } from '../../../graph/types.ts';
import { isFloating } from '../../../ops/dtypes.ts';
import { elements } from '../../../ops/record.ts';
import { ref } from '../emitter.ts';
import type { LocalCall } from '../local-call.ts';
import { combine } from '../rank-int.ts';
import type { Rewrite, Rewrites } from '../rewrite.ts';
import { padEnd, someEmpty } from './masked.ts';

/** Reductions over a cut dim whose result is not just the reduction of the local rows. */

/** Dims that a reduction takes away, from the front. */
function reducedDims(call: LocalCall): number[] {
  const { shape } = call.global.inputs[0];
  const named = call.record.schema.some((s) => s.name === 'dim') ? call.global.optionalInts('dim') : undefined;
  if (named === undefined || named.length === 0) return shape.map((_, d) => d);
  return named.map((d) => (d < 0 ? d + shape.length : d));
}

/**
 * What a local sum is divided by so that the pending reduction over the ranks is the mean: the global count, less the mesh
 * dims that are averaged over.
 */
export function divisor(call: LocalCall, count: number): number {
  let ranks = 1;
  call.rules.forEach((r, m) => {
    const [out] = r?.outputs ?? [];
    const cut = r?.inputs.some((slot) => slot?.kind === 'shard') ?? false;
    if (cut && out?.kind === 'partial' && out.op === 'avg') ranks *= call.pieces.space.mesh.sizes[m];
  });
  return count / ranks;
}

/** A division by a constant, under the name of the call. */
export function dividedBy(call: LocalCall, value: string, by: number): string {
  return call.emit.call('aten.div.Scalar', [ref(value), { kind: 'float', value: by }], { name: call.node.name });
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

/** Which way the value that never wins lies. */
const LOSING_SIDE: Readonly<Record<string, 1 | -1>> = {
  'aten.max.default': -1,
  'aten.amax.default': -1,
  'aten.min.default': 1,
  'aten.amin.default': 1,
};

/**
 * A largest or smallest value where some rank has none of the rows: it gets one row that never wins. Undefined for calls
 * that need nothing of the kind.
 */
export function extremes(call: LocalCall): (string | null)[] | undefined {
  if (!Object.hasOwn(LOSING_SIDE, call.record.name)) return undefined;
  const { emit } = call;
  const [input] = call.inputs;
  const { dtype, shape } = emit.type(input);
  const empty = reducedDims(call).filter((d) => someEmpty(shape[d]));
  if (empty.length === 0) return undefined;
  const side = LOSING_SIDE[call.record.name];
  const loser = loserOf(dtype, side);
  let padded = input;
  for (const d of empty)
    padded = padEnd(emit, padded, d, combine([shape[d]], 'padding of an empty piece', (n) => (n === 0 ? 1 : 0)), loser); // prettier-ignore
  return call.run({ self: ref(padded) });
}

/** A value that no other loses against, exact in float64. */
function loserOf(dtype: DType, side: 1 | -1): number {
  if (dtype === 'b8') return side === 1 ? 1 : 0;
  if (isFloating(dtype)) return side * Infinity;
  if (dtype.startsWith('u') && side === -1) return 0;
  const bits = Number(dtype.slice(1));
  return side * (bits === 64 ? Number.MAX_SAFE_INTEGER : 2 ** (bits - 1) - 1);
}

export const reductionRewrites: Rewrites = {
  'aten.mean.default': mean,
  'aten.mean.dim': mean,
};
