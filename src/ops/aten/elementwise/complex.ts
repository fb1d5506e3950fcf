/**
 * Complex numbers, as rotary embeddings use them: pairs of reals viewed as one complex number and
 * back, made of parts or of length and angle, conjugated. The arithmetic operators are those of
 * reals.
 */

import type { DType, ValueRef } from '../../../graph/types.ts';
import { defineOp, type OpContext, type OperatorRecord } from '../../record/record.ts';
import { LINEAR_KINDS, rule, S } from '../../record/rule.ts';
import { cuttable, kindsPass, need } from '../../rules/dims.ts';
import { jointPartial, linearIn } from '../../rules/partials.ts';
import { pointwise } from '../../rules/pointwise.ts';
import type { Body, DecomposedSpec } from '../../vjp/composite/decomposed.ts';

const PARTS: Readonly<Partial<Record<DType, DType>>> = { c64: 'f32', c128: 'f64' };
const WHOLE: Readonly<Partial<Record<DType, DType>>> = { f32: 'c64', f64: 'c128' };

const partOf = (ctx: OpContext, dtype: DType): DType =>
  PARTS[dtype] ?? ctx.fail(`self has dtype ${dtype}, expected c64 or c128`);
const complexOf = (ctx: OpContext, dtype: DType): DType =>
  WHOLE[dtype] ??
  ctx.fail(`there are no complex numbers with parts of ${dtype}; expected f32 or f64`);

const viewAsComplex = defineOp('aten.view_as_complex.default', {
  schema: 'Tensor self',
  cls: 'view',
  infer: (ctx) => {
    const { dtype, shape } = need(ctx, 'self');
    if (shape.at(-1) !== 2)
      ctx.fail(`the last dim of [${shape.join(', ')}] must be 2: real and imaginary part`);
    return [{ dtype: complexOf(ctx, dtype), shape: shape.slice(0, -1) }];
  },
  // Both parts of a number stay together.
  shard: (ctx) => {
    const { shape } = need(ctx, 'self');
    const cuts = cuttable(shape.slice(0, -1)).map((d) =>
      rule([S(d, { slicing: 'any' })], [S(d, { slicing: 'any' })]),
    );
    return [...cuts, ...linearIn()(ctx)];
  },
});

const viewAsReal = defineOp('aten.view_as_real.default', {
  schema: 'Tensor self',
  cls: 'view',
  infer: (ctx) => {
    const { dtype, shape } = need(ctx, 'self');
    return [{ dtype: partOf(ctx, dtype), shape: [...shape, 2] }];
  },
  shard: (ctx) => {
    const { shape } = need(ctx, 'self');
    const cuts = cuttable(shape).map((d) =>
      rule([S(d, { slicing: 'any' })], [S(d, { slicing: 'any' })]),
    );
    return [...cuts, ...linearIn()(ctx)];
  },
});

const complex = pointwise('aten.complex.default', {
  schema: 'Tensor real, Tensor imag',
  result: (ctx) => complexOf(ctx, need(ctx, 'real').dtype),
  extra: (ctx) => LINEAR_KINDS.map((kind) => jointPartial(ctx, ['real', 'imag'], kind)),
});

/** On real numbers it changes nothing. */
const conjugate = defineOp('aten._conj.default', {
  schema: 'Tensor self',
  cls: 'other',
  aliases: ['conj', 'conj_physical', '_conj_physical', '_conj_copy'].map(
    (name) => `aten.${name}.default`,
  ),
  infer: (ctx) => [need(ctx, 'self')],
  shard: (ctx) => [
    ...cuttable(need(ctx, 'self').shape).map((d) =>
      rule([S(d, { slicing: 'any' })], [S(d, { slicing: 'any' })]),
    ),
    ...kindsPass(need(ctx, 'self').dtype),
  ],
});

export const complexOps: readonly OperatorRecord[] = [
  viewAsComplex,
  viewAsReal,
  complex,
  conjugate,
];

const part =
  (index: number) =>
  ({ b, x }: Body): readonly ValueRef[] => [
    b.call('aten.select.int', [b.call('aten.view_as_real.default', [x('self')]), -1, index]),
  ];

/** Operators that decompose into those above. */
export const complexSpecs: Readonly<Record<string, DecomposedSpec>> = {
  'aten.polar.default': {
    schema: 'Tensor abs, Tensor angle',
    cls: 'pointwise',
    decompose: ({ b, x }) => {
      const [length, angle] = [x('abs'), x('angle')];
      const [real, imag] = ['cos', 'sin'].map((name) => b.mul(length, b.unary(name, angle)));
      return [b.call('aten.complex.default', [real, imag])];
    },
  },
  'aten.real.default': { schema: 'Tensor self', cls: 'other', decompose: part(0) },
  'aten.imag.default': { schema: 'Tensor self', cls: 'other', decompose: part(1) },
};

export const complexSamples: readonly string[] = [
  'view_as_complex(x[6,5,2])',
  'view_as_complex(x[5,2])',
  'view_as_real(c128[6,5])',
  'view_as_real(c128[5])',
  'complex(x[6,5], x[6,5])',
  'complex(x[5], x[6,1])',
  '_conj(c128[6,5])',
  'polar(pos[6,5], x[6,5])',
  'polar(pos[5], x[6,1])',
  'real(c128[6,5])',
  'imag(c128[5,6])',
  'mul.Tensor(c128[6,5], c128[6,5])',
  'mul.Tensor(c128[6,5], x[5])',
  'mul.Tensor(c128[5,6], 1.5)',
  'div.Tensor(c128[6,5], pos[6,1])',
  'add.Tensor(c128[6,5], c128[5], alpha=-2)',
  'sub.Tensor(c128[5], x[6,5])',
  'neg(c128[6,5])',
  'abs(c128[6,5])',
  'clone(c128[6,5])',
  'unsqueeze(c128[6,5], 1)',
  'transpose.int(c128[6,5], 0, 1)',
  'cat([c128[6,5], c128[6,2]], 1)',
  'select.int(c128[6,5], 0, 1)',
  'sum.dim_IntList(c128[6,5], [0])',
  '_to_copy(c128[6,5])',
];
