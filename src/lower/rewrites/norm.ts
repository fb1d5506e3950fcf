/**
 * Rewrites group norms. With cut batch or channels they are calls with the sizes of the rank. With
 * cut positions the statistics are of all ranks; then every channel of every row is normalised as a
 * channel of one row.
 */
import type { Arg } from '../../graph/types.ts';
import { ref } from '../../graph/value.ts';
import { product } from '../../product.ts';
import type { LocalCall, Rewrite, Rewrites } from '../local-call.ts';
import { combine, type RankInt } from '../program/rank-int.ts';
import { directGradients, float, normalised, rowsOf, withTerms } from './given-statistics.ts';
import { cast, reducedOver, widened } from './softmax.ts';
import { moments } from './statistics.ts';

/** Group norms name their sizes: batch rows, channels and groups that the rank has. */
const sizes: Rewrite = (call) => {
  const { emit } = call;
  const [rows, channels] = emit.type(call.tensor('input')).shape;
  const pieces = call.piecesOf('input', 1);
  return call.run({
    N: emit.int(rows),
    C: emit.int(channels),
    group: call.global.int('group') / pieces,
  });
};

const groups: Rewrite = (call) =>
  call.run({ num_groups: call.global.int('num_groups') / call.piecesOf('input', 1) });

/** The tensors of a call in the shapes of its groups and of its channels, at the rank's sizes. */
class Grouped {
  readonly shape: readonly RankInt[];
  private readonly groups: number;
  private readonly each: RankInt;
  private readonly places: RankInt;

  constructor(private readonly call: LocalCall) {
    const { shape } = call.emit.type(call.tensor('input'));
    this.shape = shape;
    this.groups = call.global.int('group') / call.piecesOf('input', 1);
    this.each = combine([shape[1]], 'channels of a group', (c) => c / this.groups);
    this.places = combine(shape.slice(2), 'places', (...own) => product(own));
  }

  /** `[rows, groups, channels of a group, places]` */
  byGroup(x: string): string {
    return this.reshaped(x, [this.shape[0], this.groups, this.each, this.places]);
  }

  /** `[1, rows * channels, places]` */
  byChannel(x: string): string {
    return this.reshaped(x, [1, -1, this.places]);
  }

  /** `[rows * channels]` of a statistic by row and group. */
  ofStatistic(value: string): string {
    const [rows] = this.shape;
    const column = this.reshaped(value, [rows, this.groups, 1]);
    return this.spread(column, [rows, this.groups, this.each]);
  }

  /** `[rows * channels]` of a vector by channel, in the dtype of the statistics. */
  ofVector(value: string): string {
    const wide = widened(this.call, value);
    return this.spread(this.reshaped(wide, [1, this.shape[1]]), this.shape.slice(0, 2));
  }

  /**
   * Sums by row and channel, `[2, rows * channels]`, added up over the channels of a group and
   * given to each of them, times a number.
   */
  throughGroups(sums: string, by: number): string {
    const { emit } = this.call;
    const parts = [2, this.shape[0], this.groups, this.each];
    const shaped = this.reshaped(sums, parts);
    const total = emit.call('aten.sum.dim_IntList', [ref(shaped), [3], true]);
    const share = emit.call('aten.mul.Tensor', [ref(total), float(by)]);
    const wide = emit.call('aten.expand.default', [ref(share), emit.ints(parts)]);
    return this.reshaped(wide, [2, -1]);
  }

  /** Sums by row and channel, added up over the rows. */
  overRows(sums: string): string {
    const shaped = this.reshaped(sums, this.shape.slice(0, 2));
    return this.call.emit.call('aten.sum.dim_IntList', [ref(shaped), [0]]);
  }

  reshaped(x: string, shape: readonly RankInt[]): string {
    const { emit } = this.call;
    return emit.call('aten.reshape.default', [ref(x), emit.ints(shape)]);
  }

  private spread(x: string, shape: readonly RankInt[]): string {
    const { emit } = this.call;
    const wide = emit.call('aten.expand.default', [ref(x), emit.ints(shape)]);
    return this.reshaped(wide, [-1]);
  }
}

const forward: Rewrite = (call) => {
  const meshDims = call.meshDims('all-gather-statistics');
  if (meshDims.length === 0) return sizes(call);
  const { emit, global } = call;
  const x = call.tensor('input');
  const grouped = new Grouped(call);
  const eps = global.number('eps');
  const { mean, variance } = moments(call, grouped.byGroup(x), [2, 3], meshDims);
  const [weight, bias] = ['weight', 'bias'].map((name): Arg => {
    const vector = call.optional(name);
    return vector === undefined ? null : ref(grouped.ofVector(vector));
  });
  const of = {
    x: grouped.byChannel(x),
    mean: grouped.ofStatistic(mean),
    variance: grouped.ofStatistic(variance),
  };
  const out = grouped.reshaped(normalised(call, of, [weight, bias], eps), grouped.shape);
  const sum = emit.call('aten.add.Tensor', [ref(variance), float(eps)]);
  const rstd = emit.call('aten.rsqrt.default', [ref(sum)]);
  return [out, mean, rstd].map((value, k) => {
    const type = global.outputs[k];
    return type === null ? null : cast(call, value, type.dtype);
  });
};

const backward: Rewrite = (call) => {
  const meshDims = call.meshDims('all-reduce-statistics');
  if (meshDims.length === 0) return sizes(call);
  const { emit, global } = call;
  const grouped = new Grouped(call);
  const [mean, rstd] = ['mean', 'rstd'].map((name) =>
    grouped.ofStatistic(widened(call, call.tensor(name))),
  );
  // 1 / rstd^2 is variance and epsilon together.
  const variance = emit.call('aten.pow.Tensor_Scalar', [ref(rstd), -2]);
  const vector = call.optional('weight');
  const weight =
    vector === undefined
      ? emit.call('aten.full_like.default', [ref(rstd), 1])
      : grouped.ofVector(vector);
  const of = { x: grouped.byChannel(call.tensor('input')), mean, variance };
  const direct = directGradients(call, of, grouped.byChannel(call.tensor('grad_out')), weight);
  const sums = reducedOver(call, direct.sums, 'sum', meshDims);
  const weighted = emit.call('aten.mul.Tensor', [ref(sums), ref(weight)]);
  const values = (global.int('C') / global.int('group')) * global.int('HxW');
  const terms = emit.call('aten.mul.Tensor', [
    ref(grouped.throughGroups(weighted, -1 / values)),
    ref(rstd),
  ]);
  const input = grouped.reshaped(withTerms(call, of, direct.input, terms), grouped.shape);
  const rows = rowsOf(call, sums);
  return global.outputs.map((type, k) => {
    if (type === null) return null;
    return cast(call, k === 0 ? input : grouped.overRows(rows[k - 1]), type.dtype);
  });
};

export const normRewrites: Rewrites = {
  'aten.native_group_norm.default': forward,
  'aten.native_group_norm_backward.default': backward,
  'aten.group_norm.default': groups,
};
