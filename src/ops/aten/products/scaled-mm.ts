/**
 * A product of two matrices of 8-bit numbers, each with scales: one for the whole matrix, or a
 * matrix of them, each for a block of as many rows and columns as there are to a scale. A matrix of
 * scales is cut with the matrix that it scales: its sharding rules are those of an einsum in which
 * both have the same letters.
 */

import { build, flat, type NDArray } from '../../../ndarray/array.ts';
import { matmul } from '../../../ndarray/matmul.ts';
import { type KernelCall, one, optional, tensor, valueError } from '../../record/kernel.ts';
import {
  defineOp,
  elements,
  type OpContext,
  type OperatorRecord,
  type TensorMeta,
  type TypedContext,
} from '../../record/record.ts';
import { R, type Rule, rule, type RuleSlot, S } from '../../record/rule.ts';
import { need } from '../../rules/dims.ts';
import { einsumRules } from '../../rules/einsum.ts';

const blocks = (scale: TensorMeta): boolean => elements(scale.shape) > 1;

/** Sizes m, k, n. */
function product(ctx: OpContext): readonly [m: number, k: number, n: number] {
  const [a, b] = [need(ctx, 'self').shape, need(ctx, 'mat2').shape];
  if (a.length !== 2 || b.length !== 2 || a[1] !== b[0])
    ctx.fail(`shapes [${a.join(', ')}] and [${b.join(', ')}] do not match`);
  for (const [name, shape] of [
    ['scale_a', a],
    ['scale_b', b],
  ] as const) {
    const scale = need(ctx, name).shape;
    const fits =
      elements(scale) === 1 || scale.length < 2 || scale.every((s, d) => shape[d] % s === 0);
    if (!fits)
      ctx.fail(`${name} of shape [${scale.join(', ')}] does not divide [${shape.join(', ')}]`);
  }
  return [a[0], a[1], b[1]];
}

/**
 * Slot of a matrix and of its scales when dim `dim` of it is cut; undefined where they cannot be
 * cut together: scales in a list are in an order of the hardware's.
 */
function together(
  matrix: TensorMeta,
  scale: TensorMeta,
  dim: number,
): readonly [RuleSlot, RuleSlot] | undefined {
  if (!blocks(scale)) return [S(dim), R];
  if (scale.shape.length !== 2) return undefined;
  const rows = scale.shape[dim];
  if (rows === 1) return [S(dim), R];
  if (rows === matrix.shape[dim]) return [S(dim), S(dim)];
  return [
    S(dim, { even: true, scaled: true, unit: matrix.shape[dim] / rows }),
    S(dim, { even: true, scaled: true }),
  ];
}

/** A product of four factors: each matrix meets its scales letter by letter. */
const EQUATION = 'mk,kn,mk,kn->mn';

/** The rules of the equation, with each cut as the scales allow it. */
function productRules(ctx: TypedContext): Rule[] {
  const [a, b] = [need(ctx, 'self'), need(ctx, 'mat2')];
  const [sa, sb] = [need(ctx, 'scale_a'), need(ctx, 'scale_b')];
  const tied = (slot: RuleSlot, other: RuleSlot): RuleSlot =>
    slot?.kind === 'shard' && other?.kind === 'shard' && other.scaled
      ? { ...slot, even: true, scaled: true, unit: other.unit }
      : slot;
  return einsumRules(EQUATION).flatMap((plain): Rule[] => {
    const [x, y, u, v] = plain.inputs;
    const left = x?.kind === 'shard' ? together(a, sa, x.dim) : ([x, u] as const);
    const right = y?.kind === 'shard' ? together(b, sb, y.dim) : ([y, v] as const);
    if (left === undefined || right === undefined) return [];
    if (
      (x?.kind === 'shard' && a.shape[x.dim] <= 1) ||
      (y?.kind === 'shard' && b.shape[y.dim] <= 1)
    )
      return [];
    const inputs = [tied(left[0], right[0]), tied(right[0], left[0]), left[1], right[1]];
    const output = tied(tied(plain.outputs[0], left[0]), right[0]);
    // Pending 8-bit numbers do not occur in programs; those of scales 2.13 does not list.
    const scales = left[1]?.kind === 'partial' || right[1]?.kind === 'partial';
    return [rule(inputs, [output], scales ? { origin: 'ext' } : {})];
  });
}

function scaled(call: KernelCall, name: string, scaleName: string): NDArray {
  const [x, scale] = [tensor(call, name), tensor(call, scaleName)];
  const by = flat(scale);
  const data = flat(x);
  if (scale.size > 1 && scale.rank !== 2)
    valueError(call, 'a list of scales is in an order of the hardware, which is not modelled');
  const [height, width] = scale.size === 1 ? [1, 1] : scale.shape;
  const [m, n] = x.shape;
  return build([m, n], (i) => {
    const [r, c] = [Math.floor(i / n), i % n];
    return data[i] * by[Math.floor((r * height) / m) * width + Math.floor((c * width) / n)];
  });
}

const scaledMm = defineOp('aten._scaled_mm.default', {
  schema:
    'Tensor self, Tensor mat2, Tensor scale_a, Tensor scale_b, Tensor? bias=None, Tensor? ' +
    'scale_result=None, ScalarType? out_dtype=None, bool use_fast_accum=False',
  cls: 'matmul',
  infer: (ctx) => {
    const [m, , n] = product(ctx);
    return [{ dtype: ctx.dtype('out_dtype') ?? need(ctx, 'self').dtype, shape: [m, n] }];
  },
  shard: (ctx) => (ctx.has('bias') || ctx.has('scale_result') ? [] : productRules(ctx)),
  flops: (ctx) => {
    const [m, k, n] = product(ctx);
    return {
      matrix: 2 * m * k * n,
      vector: elements(need(ctx, 'self').shape) + elements(need(ctx, 'mat2').shape),
    };
  },
  kernel: one((call) => {
    const out = matmul(scaled(call, 'self', 'scale_a'), scaled(call, 'mat2', 'scale_b'));
    const bias = optional(call, 'bias');
    if (bias === undefined) return out;
    const [values, added] = [flat(out), flat(bias)];
    return build(out.shape, (i) => values[i] + added[i % added.length]);
  }),
});

export const scaledMmOps: readonly OperatorRecord[] = [scaledMm];

export const scaledMmSamples: readonly string[] = [
  '_scaled_mm(f8e4m3fn[6,5], f8e4m3fn[5,7], f32[], f32[], out_dtype=f32)',
  '_scaled_mm(f8e4m3fn[16,32], f8e4m3fn[32,48], f32[], f32[], out_dtype=f32)',
  '_scaled_mm(f8e4m3fn[16,32], f8e4m3fn[32,48], f32[16,1], f32[1,48], out_dtype=f32)',
];
