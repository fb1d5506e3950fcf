/**
 * Bodies of norms whose statistics are of values on several ranks, written from their definition:
 * the mean of all values, then the mean square distance from it, as sums over the ranks.
 */

import { fromFlat, full, type NDArray, sizeOf } from '../../ndarray/array.ts';
import { map, map2, map3, multiply, subtract } from '../../ndarray/elementwise.ts';
import { sum } from '../../ndarray/reduce.ts';
import { expand, reshape } from '../../ndarray/views.ts';
import { reduceRanks } from './pieces.ts';
import type { Results, SampleCall } from './sample-call.ts';

/** By rank: a tensor argument, undefined where the call has none. */
type ByRank = (name: string) => readonly (NDArray | undefined)[];

const others = (x: NDArray): number[] => x.shape.flatMap((_, d) => (d === 1 ? [] : [d]));
const spread = (vector: NDArray, x: NDArray): NDArray =>
  reshape(
    vector,
    x.shape.map((n, d) => (d === 1 ? n : 1)),
  );

function argumentsOf(sample: SampleCall, inputs: readonly (readonly NDArray[])[]): ByRank {
  return (name) => inputs.map((given) => given[sample.ctx.indexOf(name)]);
}

/** A sum over some dims of the parts of all ranks. */
const sumOver = (parts: readonly NDArray[], dims: readonly number[]): NDArray =>
  reduceRanks(
    parts.map((x) => sum(x, dims)),
    'sum',
  );

/** A sum over batch and positions of all ranks. */
const total = (parts: readonly NDArray[]): NDArray => sumOver(parts, others(parts[0]));

function countOf(sample: SampleCall): number {
  const { shape } = sample.ctx.inputs[sample.ctx.indexOf('input')];
  return shape.reduce((n, size, d) => (d === 1 ? n : n * size), 1);
}

/** Training of a batch norm whose batch or positions are cut. */
export function batchNormAcross(
  sample: SampleCall,
  inputs: readonly (readonly NDArray[])[],
): readonly Results[] {
  const { ctx } = sample;
  const of = argumentsOf(sample, inputs);
  const count = countOf(sample);
  const parts = of('input') as readonly NDArray[];
  const mean = map(total(parts), (v) => v / count);
  const squares = total(
    parts.map((x) => {
      const apart = subtract(x, spread(mean, x));
      return multiply(apart, apart);
    }),
  );
  const variance = map(squares, (v) => v / count);
  const [eps, momentum] = [ctx.number('eps'), ctx.number('momentum')];
  const rstd = map(variance, (v) => 1 / Math.sqrt(v + eps));
  const moved = (old: NDArray | undefined, now: NDArray): NDArray | null =>
    old === undefined ? null : map2(old, now, (a, b) => (1 - momentum) * a + momentum * b);
  return parts.map((x, rank) => {
    const given = [of('weight')[rank] ?? null, of('bias')[rank] ?? null, mean, variance];
    const [out] = sample.runAs('aten._native_batch_norm_legit_no_training.default', [
      x,
      ...given,
      momentum,
      eps,
    ]);
    const reserve = ctx.outputs.length === 6 ? [fromFlat([0], new Float64Array(0))] : [];
    const running = [
      moved(of('running_mean')[rank], mean),
      moved(
        of('running_var')[rank],
        map(squares, (v) => v / (count - 1)),
      ),
    ];
    return [out, mean, rstd, ...reserve, ...running].slice(0, ctx.outputs.length);
  });
}

/** Its backward: the two sums of a channel are of all ranks. */
export function batchNormBackwardAcross(
  sample: SampleCall,
  inputs: readonly (readonly NDArray[])[],
): readonly Results[] {
  const { ctx } = sample;
  const of = argumentsOf(sample, inputs);
  const count = countOf(sample);
  const grads = of('grad_out') as readonly NDArray[];
  const [mean, rstd] = ['save_mean', 'save_invstd'].map((name) => of(name)[0] as NDArray);
  const standard = (of('input') as readonly NDArray[]).map((x) =>
    map3(x, spread(mean, x), spread(rstd, x), (v, m, r) => (v - m) * r),
  );
  const along = total(grads.map((g, rank) => multiply(g, standard[rank])));
  const plain = total(grads);
  const weight = of('weight')[0] ?? full(rstd.shape, 1);
  return grads.map((g, rank) => {
    const y = standard[rank];
    const through = map2(y, spread(along, y), (v, s) => (v * s) / count);
    const rest = map2(subtract(g, through), spread(plain, y), (v, s) => v - s / count);
    const results = [multiply(rest, spread(multiply(weight, rstd), y)), along, plain];
    return results.map((x, k) => (ctx.outputs[k] === null ? null : x));
  });
}

/** `[rows, groups, channels of a group, positions]` of a tensor of group norm. */
function grouped(sample: SampleCall, x: NDArray): NDArray {
  const [rows, channels, ...rest] = x.shape;
  const groups = sample.ctx.int('group');
  return reshape(x, [rows, groups, channels / groups, sizeOf(rest)]);
}

/** `[rows, groups, 1, 1]` of a statistic. */
const ofGroup = (statistic: NDArray): NDArray => reshape(statistic, [...statistic.shape, 1, 1]);

/** A vector by channel, given to every position of each row; ones where there is none. */
function byChannel(vector: NDArray | undefined, like: NDArray, instead: number): NDArray {
  const [, groups, each] = like.shape;
  return vector === undefined ? full([1], instead) : reshape(vector, [1, groups, each, 1]);
}

/** A group norm whose positions are cut. */
export function groupNormAcross(
  sample: SampleCall,
  inputs: readonly (readonly NDArray[])[],
): readonly Results[] {
  const { ctx } = sample;
  const of = argumentsOf(sample, inputs);
  const count = (ctx.int('C') / ctx.int('group')) * ctx.int('HxW');
  const given = of('input') as readonly NDArray[];
  const parts = given.map((x) => grouped(sample, x));
  const mean = map(sumOver(parts, [2, 3]), (v) => v / count);
  const apart = parts.map((x) => subtract(x, ofGroup(mean)));
  const squares = sumOver(
    apart.map((x) => multiply(x, x)),
    [2, 3],
  );
  const rstd = map(squares, (v) => 1 / Math.sqrt(v / count + ctx.number('eps')));
  return given.map((x, rank) => {
    const y = multiply(apart[rank], ofGroup(rstd));
    const scaled = multiply(y, byChannel(of('weight')[rank], y, 1));
    const out = map2(scaled, byChannel(of('bias')[rank], y, 0), (a, b) => a + b);
    return [reshape(out, x.shape), mean, rstd];
  });
}

/** Its backward: the sums of a group are of all ranks. */
export function groupNormBackwardAcross(
  sample: SampleCall,
  inputs: readonly (readonly NDArray[])[],
): readonly Results[] {
  const { ctx } = sample;
  const of = argumentsOf(sample, inputs);
  const count = (ctx.int('C') / ctx.int('group')) * ctx.int('HxW');
  const given = of('input') as readonly NDArray[];
  const grads = (of('grad_out') as readonly NDArray[]).map((g) => grouped(sample, g));
  const [mean, rstd] = ['mean', 'rstd'].map((name) => ofGroup(of(name)[0] as NDArray));
  const standard = given.map((x) => map3(grouped(sample, x), mean, rstd, (v, m, r) => (v - m) * r));
  const weighted = grads.map((g) => multiply(g, byChannel(of('weight')[0], g, 1)));
  const along = ofGroup(
    sumOver(
      weighted.map((g, rank) => multiply(g, standard[rank])),
      [2, 3],
    ),
  );
  const plain = ofGroup(sumOver(weighted, [2, 3]));
  const vector = (parts: readonly NDArray[]): NDArray =>
    reshape(sumOver(parts, [0, 3]), [ctx.int('C')]);
  const [weight, bias] = [
    vector(grads.map((g, rank) => multiply(g, standard[rank]))),
    vector(grads),
  ];
  return given.map((x, rank) => {
    const through = map3(standard[rank], along, plain, (y, a, p) => (y * a + p) / count);
    const input = multiply(subtract(weighted[rank], through), expand(rstd, through.shape));
    return [reshape(input, x.shape), weight, bias].map((value, k) =>
      ctx.outputs[k] === null ? null : value,
    );
  });
}
