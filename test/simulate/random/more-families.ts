import type { Arg } from '../../../src/graph/types.ts';
import { dtypeArg, float, type ProgramBuilder, ref, type Tensor } from './builder.ts';
import { type Family, floats, indices, mask, oneOf, partner, shapeOf } from './families.ts';

/**
 * Composite operators, rarer overloads, backwards of norms and pools, fused attention, grouped
 * products.
 */

const vectorOf = (b: ProgramBuilder, n: number): Arg => ref(b.input('f32', [n], 'parameter'));

const product: Family = (b) => {
  const x = floats(b, 3, 3);
  const [batch, rows, inner] = x.shape;
  const w = ref(b.input('f32', [batch, inner, 4]));
  oneOf(b, [
    [
      'aten.baddbmm.default',
      [ref(b.input('f32', b.draw.pick([[batch, rows, 4], [4], [rows, 1]]))), ref(x), w],
    ],
    ['aten.addbmm.default', [ref(b.input('f32', [rows, 4])), ref(x), w]],
  ]);
};

const matrixVector: Family = (b) => {
  const x = floats(b, 2, 2);
  const v = ref(b.input('f32', [x.shape[1]]));
  oneOf(b, [
    ['aten.mv.default', [ref(x), v]],
    ['aten.addmv.default', [vectorOf(b, x.shape[0]), ref(x), v]],
  ]);
};

const composites: Family = (b) => {
  const x = floats(b, 2);
  const dim = b.draw.below(x.shape.length);
  const last = x.shape[x.shape.length - 1];
  oneOf(b, [
    ['aten.softmax.int', [ref(x), dim]],
    ['aten.log_softmax.int', [ref(x), dim]],
    ['aten._safe_softmax.default', [ref(x), dim]],
    ['aten.layer_norm.default', [ref(x), [last], vectorOf(b, last), vectorOf(b, last)]],
    ['aten.rms_norm.default', [ref(x), [last], vectorOf(b, last), float(1e-5)]],
    ['aten.std.correction', [ref(x), [dim]]],
    ['aten.var_mean.correction', [ref(x), [dim]]],
    ['aten.median.dim', [ref(x), dim]],
    ['aten.cumprod.default', [ref(x), dim]],
    ['aten.logcumsumexp.default', [ref(x), dim]],
    ['aten.nansum.default', [ref(x), [dim]]],
    ['aten.prod.default', [ref(x)]],
    ['aten.histc.default', [ref(x), 5, -1, 1]],
    ['aten.diff.default', [ref(x), 1, dim]],
    ['aten.count_nonzero.default', [ref(x), dim]],
  ]);
};

const groupNorm: Family = (b) => {
  const groups = b.draw.pick([1, 2, 4]);
  const channels = groups * b.draw.pick([1, 2, 3]);
  const x = b.input('f32', [b.draw.pick([1, 2, 3, 4]), channels, b.draw.pick([1, 3, 4])]);
  const [n, , rest] = x.shape;
  const weight = vectorOf(b, channels);
  const sizes = [n, channels, rest, groups];
  const made = b.tuple('aten.native_group_norm.default', [
    ref(x),
    weight,
    vectorOf(b, channels),
    ...sizes,
    float(1e-5),
  ]);
  const [, mean, rstd] = made ?? [];
  if (
    mean === undefined ||
    rstd === undefined ||
    mean === null ||
    rstd === null ||
    b.draw.chance(0.4)
  )
    return;
  const g = b.input('f32', x.shape);
  b.tuple('aten.native_group_norm_backward.default', [
    ref(g),
    ref(x),
    ref(mean),
    ref(rstd),
    weight,
    ...sizes,
    [true, true, true],
  ]);
};

const batchNorm: Family = (b) => {
  const x = b.input('f32', [
    b.draw.pick([2, 3, 4]),
    b.draw.pick([1, 3, 4, 6]),
    b.draw.pick([1, 3]),
  ]);
  const c = x.shape[1];
  const [weight, bias, mean, variance] = [1, 2, 3, 4].map(() => vectorOf(b, c));
  const training = b.draw.chance(0.5);
  const made = b.tuple('aten._native_batch_norm_legit_functional.default', [
    ref(x),
    weight,
    bias,
    mean,
    variance,
    training,
    float(0.1),
    float(1e-5),
  ]);
  const [, saved, inverse] = made ?? [];
  if (
    saved === undefined ||
    inverse === undefined ||
    saved === null ||
    inverse === null ||
    !training
  )
    return;
  const g = b.input('f32', x.shape);
  b.tuple('aten.native_batch_norm_backward.default', [
    ref(g),
    ref(x),
    weight,
    mean,
    variance,
    ref(saved),
    ref(inverse),
    true,
    float(1e-5),
    [true, true, true],
  ]);
};

const rmsBackward: Family = (b) => {
  const x = floats(b, 2);
  const inner = [x.shape[x.shape.length - 1]];
  const weight = vectorOf(b, inner[0]);
  const made = b.tuple('aten._fused_rms_norm.default', [ref(x), inner, weight, float(1e-5)]);
  const rstd = made?.[1];
  if (rstd === undefined || rstd === null) return;
  b.tuple('aten._fused_rms_norm_backward.default', [
    ref(b.input('f32', x.shape)),
    ref(x),
    inner,
    ref(rstd),
    weight,
    [true, true],
  ]);
};

const poolBackward: Family = (b) => {
  const x = b.input('f32', [b.draw.pick([1, 2, 3]), b.draw.pick([1, 2, 4]), 4, 6]);
  const made = b.tuple('aten.max_pool2d_with_indices.default', [ref(x), [2, 2], [2, 2]]);
  const [out, at] = made ?? [];
  if (out === undefined || at === undefined || out === null || at === null) return;
  b.call('aten.max_pool2d_with_indices_backward.default', [
    ref(b.input('f32', out.shape)),
    ref(x),
    [2, 2],
    [2, 2],
    [0, 0],
    [1, 1],
    false,
    ref(at),
  ]);
};

const shapes: Family = (b) => {
  const x = floats(b, 1);
  const dim = b.draw.below(x.shape.length);
  const n = x.shape[dim];
  const first = 1 + b.draw.below(n);
  const divisors = Array.from({ length: n }, (_, i) => i + 1).filter((d) => n % d === 0);
  const part = b.draw.pick(divisors);
  const row = x.shape.filter((_, d) => d !== dim);
  oneOf(b, [
    ['aten.unflatten.int', [ref(x), dim, [part, b.draw.pick([-1, n / part])]]],
    ['aten.split_with_sizes.default', [ref(x), first === n ? [n] : [first, n - first], dim]],
    ['aten.narrow.default', [ref(x), dim, 0, first]],
    ['aten.select_scatter.default', [ref(x), ref(b.input('f32', row)), dim, b.draw.below(n)]],
    ['aten.expand_as.default', [ref(x), ref(b.input('f32', [2, ...x.shape]))]],
    ['aten.broadcast_tensors.default', [[ref(x), ref(partner(b, x))]]],
    ['aten.sort.stable', [ref(x)], { stable: true, dim }],
    ['aten.argsort.default', [ref(x), dim]],
    ['aten.numpy_T.default', [ref(x)]],
    ['aten.repeat_interleave.self_int', [ref(x), 2, dim], { output_size: 2 * n }],
  ]);
};

const fused: Family = (b) => {
  const heads = b.draw.pick([1, 2, 4]);
  const [batch, rows, channels, values] = [
    b.draw.pick([1, 2, 3]),
    b.draw.pick([3, 4, 32]),
    2,
    b.draw.pick([2, 3]),
  ];
  const causal = b.draw.chance(0.5);
  const keys = causal ? rows : b.draw.pick([2, 4, 5]);
  const q = ref(b.input('f32', [batch, heads, rows, channels]));
  const k = ref(b.input('f32', [batch, heads, keys, channels]));
  const v = ref(b.input('f32', [batch, heads, keys, values]));
  const bias =
    !causal && b.draw.chance(0.5) ? ref(b.input('f32', [batch, heads, rows, keys])) : null;
  const name = 'aten._scaled_dot_product_efficient_attention';
  const made = b.tuple(`${name}.default`, [q, k, v, bias, true, float(0), causal]);
  const [out, lse, seed, offset] = made ?? [];
  if (!out || !lse || !seed || !offset || b.draw.chance(0.4)) return;
  const g = ref(b.input('f32', out.shape));
  b.tuple(`${name}_backward.default`, [
    g,
    q,
    k,
    v,
    bias,
    ref(out),
    ref(lse),
    ref(seed),
    ref(offset),
    float(0),
    [true, true, true, bias !== null],
    causal,
  ]);
};

const entropy: Family = (b) => {
  const x = b.call('aten.sigmoid.default', [ref(floats(b, 1))]);
  if (x === undefined) return;
  const y = b.call('aten.sigmoid.default', [ref(b.input('f32', x.shape))]);
  if (y === undefined) return;
  const weight = b.draw.chance(0.3) ? ref(b.input('f32', x.shape)) : null;
  const reduction = b.draw.below(3);
  const g = (out: Tensor | undefined): Arg => ref(b.input('f32', out?.shape ?? []));
  if (b.draw.chance(0.4)) {
    b.call('aten.binary_cross_entropy_with_logits.default', [
      ref(x),
      ref(y),
      weight,
      null,
      reduction,
    ]);
    return;
  }
  const loss = b.call('aten.binary_cross_entropy.default', [ref(x), ref(y), weight, reduction]);
  if (loss !== undefined)
    b.call('aten.binary_cross_entropy_backward.default', [
      g(loss),
      ref(x),
      ref(y),
      weight,
      reduction,
    ]);
};

const made: Family = (b) => {
  const x = floats(b, 1);
  const shape = shapeOf(b, 2);
  const f32 = { dtype: dtypeArg('f32') };
  const device = { kind: 'device', word: 'cpu' } as const;
  oneOf(b, [
    ['aten.fill.Scalar', [ref(x), float(0.5)]],
    ['aten.zero_.default', [ref(x)]],
    ['aten.rand.default', [shape], f32],
    ['aten.randn_like.default', [ref(x)]],
    ['aten.normal_.default', [ref(x), float(1), float(2)]],
    ['aten.uniform_.default', [ref(x)]],
    ['aten.exponential_.default', [ref(x)]],
    [
      'prims.iota.default',
      [shape[0]],
      { start: 2, step: 3, dtype: dtypeArg('i64'), device, requires_grad: false },
    ],
  ]);
};

const maskedPut: Family = (b) => {
  const x = floats(b, 2, 3);
  const at = indices(b, [4]);
  const list: Arg[] = x.shape.map(() => null);
  list[b.draw.below(list.length)] = ref(at);
  const read = b.call('aten.index.Tensor', [ref(x), list]);
  if (read === undefined) return;
  const m = mask(b, read.shape);
  if (m.shape.join() !== read.shape.join()) return;
  b.call('aten._unsafe_masked_index_put_accumulate.default', [
    ref(x),
    ref(m),
    list,
    ref(b.input('f32', read.shape)),
  ]);
};

const convolutions: Family = (b) => {
  const groups = b.draw.pick([1, 2]);
  const [inside, outside] = [groups * b.draw.pick([1, 2, 3]), groups * b.draw.pick([1, 2, 4])];
  const x = ref(b.input('f32', [b.draw.pick([1, 2, 4]), inside, 4, 5]));
  const w = ref(b.input('f32', [outside, inside / groups, 2, 3], 'parameter'));
  b.call('aten.conv2d.default', [x, w, vectorOf(b, outside), [1], [1], [1], groups]);
};

export const MORE_FAMILIES: readonly (readonly [name: string, family: Family, weight: number])[] = [
  ['product', product, 2],
  ['matrixVector', matrixVector, 1],
  ['composites', composites, 5],
  ['groupNorm', groupNorm, 2],
  ['batchNorm', batchNorm, 1],
  ['rmsBackward', rmsBackward, 1],
  ['poolBackward', poolBackward, 1],
  ['shapes', shapes, 5],
  ['fused', fused, 2],
  ['entropy', entropy, 2],
  ['made', made, 2],
  ['maskedPut', maskedPut, 2],
  ['convolutions', convolutions, 2],
];
