/**
 * Mean and variance of values that lie on several ranks: each rank takes those of its own values,
 * and groups of ranks combine theirs without a difference of large squares. Method: Chan, Golub and
 * LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances" (1979).
 */
import { ref } from '../../graph/value.ts';
import { product } from '../../product.ts';
import type { LocalCall } from '../local-call.ts';
import { groupOf } from '../program/collectives.ts';
import { atRank, combine, plus, type RankInt, rankInt, times } from '../program/rank-int.ts';
import { widened } from './softmax.ts';

/** Statistics of some values, in at least f32; the variance is by the number of values. */
export interface Moments {
  readonly mean: string;
  readonly variance: string;
  /** Values that each of them is of. */
  readonly count: RankInt;
}

/**
 * Statistics over some dims of a tensor, which go away.
 *
 * @param meshDims mesh dims that cut these dims; every rank must have values
 */
export function moments(
  call: LocalCall,
  x: string,
  dims: readonly number[],
  meshDims: readonly number[],
): Moments {
  const { shape } = call.emit.type(x);
  const sizes = dims.map((d) => shape[d]);
  const count = combine(sizes, 'values', (...own) => product(own));
  const own: Moments = { ...varianceAndMean(call, widened(call, x), dims), count };
  return meshDims.reduce((now, m) => ofGroup(call, now, m), own);
}

function varianceAndMean(
  call: LocalCall,
  x: string,
  dims: readonly number[],
): { variance: string; mean: string } {
  const [variance, mean] = call.emit.callTuple('aten.var_mean.correction', [ref(x), dims], {
    kwargs: { correction: 0 },
  });
  return variance === null || mean === null
    ? call.unsupported('it has no statistics')
    : { variance, mean };
}

/** The statistics of all members of a group along a mesh dim: one all-gather. */
function ofGroup(call: LocalCall, own: Moments, m: number): Moments {
  const { emit } = call;
  const { mesh } = emit;
  const members = mesh.sizes[m];
  const { shape } = emit.type(own.mean);
  const total = combine(
    [
      rankInt(
        mesh.devices.map((_, rank) => rank),
        'rank',
      ),
    ],
    'values of a group',
    (rank) => groupOf(mesh, [m], rank).reduce((n, r) => n + atRank(own.count, r), 0),
  );
  if (typeof own.count === 'number') {
    // Equal shares: the means and variances of the members count alike.
    const both = emit.call('aten.stack.default', [[ref(own.mean), ref(own.variance)]]);
    const all = emit.call('aten.reshape.default', [
      ref(emit.collective('all_gather', both, [m], [members])),
      emit.ints([members, 2, ...shape]),
    ]);
    const [means, variances] = emit.callTuple('aten.unbind.int', [ref(all), 1]);
    if (means === null || variances === null) return call.unsupported('it has no statistics');
    const between = varianceAndMean(call, means, [0]);
    const within = emit.call('aten.mean.dim', [ref(variances), [0]]);
    const variance = emit.call('aten.add.Tensor', [ref(within), ref(between.variance)]);
    return { mean: between.mean, variance, count: total };
  }
  return { ...ofUnequal(call, own, m, total), count: total };
}

/** Members with different numbers of values tell them too. */
function ofUnequal(
  call: LocalCall,
  own: Moments,
  m: number,
  total: RankInt,
): { mean: string; variance: string } {
  const { emit } = call;
  const members = emit.mesh.sizes[m];
  const { shape, dtype } = emit.type(own.mean);
  const size = combine(shape, 'statistics', (...own) => product(own));
  const flat = (value: string): string =>
    shape.length === 1 ? value : emit.call('aten.reshape.default', [ref(value), [-1]]);
  const count = emit.call('aten.full.default', [[1], emit.int(own.count)], {
    kwargs: { dtype: { kind: 'dtype', dtype } },
  });
  const values = [flat(own.mean), flat(own.variance), count];
  const joined = emit.call('aten.cat.default', [values.map(ref)]);
  const all = emit.call('aten.reshape.default', [
    ref(emit.collective('all_gather', joined, [m], [members])),
    emit.ints([members, plus(times(size, 2), 1)]),
  ]);
  const columns = (from: RankInt, to: RankInt): string =>
    emit.call('aten.slice.Tensor', [ref(all), 1, emit.int(from), emit.int(to)]);
  const means = columns(0, size);
  const variances = columns(size, times(size, 2));
  const counts = columns(times(size, 2), plus(times(size, 2), 1));
  const shares = emit.call('aten.div.Tensor', [ref(counts), emit.int(total)]);
  const weighted = (value: string): string =>
    emit.call('aten.sum.dim_IntList', [
      ref(emit.call('aten.mul.Tensor', [ref(value), ref(shares)])),
      [0],
    ]);
  const mean = weighted(means);
  const apart = emit.call('aten.sub.Tensor', [ref(means), ref(mean)]);
  const variance = weighted(
    emit.call('aten.addcmul.default', [ref(variances), ref(apart), ref(apart)]),
  );
  const shaped = (value: string): string =>
    shape.length === 1 ? value : emit.call('aten.reshape.default', [ref(value), emit.ints(shape)]);
  return { mean: shaped(mean), variance: shaped(variance) };
}
