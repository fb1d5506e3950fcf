/**
 * Products: `dot_general` is an einsum written as four lists of dims; a convolution cuts like one
 * in batch and channels.
 */

import {
  defineOp,
  elements,
  type OpContext,
  type OperatorRecord,
  type TypedContext,
} from '../record/record.ts';
import { LINEAR_KINDS, P, R, type Rule, rule, type RuleSlot, S } from '../record/rule.ts';
import { perDim, sameShape } from '../rules/dims.ts';
import { einsumFlops, einsumRules } from '../rules/einsum.ts';

const LETTERS = 'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ';

interface DotDims {
  readonly batch: readonly [readonly number[], readonly number[]];
  readonly contract: readonly [readonly number[], readonly number[]];
}

/**
 * Einsum of a dot: batch dims first in the result, then what is left of the first operand, then of
 * the second.
 */
function equation(ctx: OpContext, { batch, contract }: DotDims): string {
  const shapes = [ctx.inputs[0].shape, ctx.inputs[1].shape];
  if (shapes[0].length + shapes[1].length > LETTERS.length) ctx.fail('operands have too many dims');
  const letters: string[][] = shapes.map((shape) => new Array<string>(shape.length).fill(''));
  let next = 0;
  const pair = (
    what: string,
    [left, right]: readonly [readonly number[], readonly number[]],
  ): void => {
    if (left.length !== right.length)
      ctx.fail(
        `${left.length} and ${right.length} ${what} dims; they come in pairs, one of each operand`,
      );
    left.forEach((dim, i) => {
      const letter = LETTERS[next++];
      for (const [k, d] of [dim, right[i]].entries()) {
        if (d < 0 || d >= shapes[k].length)
          ctx.fail(`${what} dim ${d} of a tensor of ${shapes[k].length} dims`);
        if (letters[k][d] !== '') ctx.fail(`dim ${d} of operand ${k} is named twice`);
        letters[k][d] = letter;
      }
      if (shapes[0][dim] !== shapes[1][right[i]])
        ctx.fail(
          `${what} dims ${dim} and ${right[i]} have sizes ${shapes[0][dim]} and ` +
            `${shapes[1][right[i]]}`,
        );
    });
  };
  pair('batching', batch);
  const shared = next;
  pair('contracting', contract);
  let result = LETTERS.slice(0, shared);
  for (const own of letters)
    own.forEach((letter, d) => {
      if (letter !== '') return;
      own[d] = LETTERS[next++];
      result += own[d];
    });
  return `${letters.map((own) => own.join('')).join(',')}->${result}`;
}

function dot(name: string, schema: string, dims: (ctx: OpContext) => DotDims): OperatorRecord {
  const letters = (ctx: OpContext): string => equation(ctx, dims(ctx));
  return defineOp(name, {
    schema,
    cls: 'matmul',
    infer(ctx) {
      const [left, out] = letters(ctx).split('->');
      const sizes = new Map<string, number>();
      left.split(',').forEach((own, k) => {
        [...own].forEach((letter, d) => sizes.set(letter, ctx.inputs[k].shape[d]));
      });
      const shape = [...out].map((letter) => sizes.get(letter) ?? 1);
      return [{ dtype: ctx.dtype('dtype') ?? ctx.inputs[0].dtype, shape }];
    },
    shard: (ctx) => einsumRules(letters(ctx)),
    flops: (ctx) => ({
      matrix: einsumFlops(letters(ctx), ctx.inputs[0].shape, ctx.inputs[1].shape),
      vector: 0,
    }),
  });
}

/** `dtype`: element type of the result where it is not that of the operands. */
const dotGeneral = dot(
  'stablehlo.dot_general',
  'Tensor lhs, Tensor rhs, *, int[] lhs_batching_dimensions=[], int[] ' +
    'rhs_batching_dimensions=[], int[] lhs_contracting_dimensions=[], int[] ' +
    'rhs_contracting_dimensions=[], ScalarType? dtype=None, Any precision=None, Any ' +
    'algorithm=None',
  (ctx) => ({
    batch: [ctx.ints('lhs_batching_dimensions'), ctx.ints('rhs_batching_dimensions')],
    contract: [ctx.ints('lhs_contracting_dimensions'), ctx.ints('rhs_contracting_dimensions')],
  }),
);

/**
 * The older product of vectors and matrices: the last dim of the first operand meets the first of
 * the second.
 */
const plainDot = dot(
  'stablehlo.dot',
  'Tensor lhs, Tensor rhs, *, ScalarType? dtype=None, Any precision=None',
  (ctx) => ({
    batch: [[], []],
    contract: [[Math.max(0, ctx.inputs[0].shape.length - 1)], [0]],
  }),
);

// ---- convolution
// -----------------------------------------------------------------------------

interface Roles {
  /** Positions of batch (or input feature), feature (or output feature) and spatial dims. */
  readonly first: number;
  readonly second: number;
  readonly spatial: readonly number[];
}

const roles = (ctx: OpContext, name: 'input' | 'kernel' | 'output'): Roles => {
  const [first, second, ...spatial] = ctx.ints(`${name}_dimensions`);
  return { first, second, spatial };
};

function convolutionShape(ctx: OpContext): number[] {
  const [x, w] = ctx.inputs;
  const [xr, wr, or] = [roles(ctx, 'input'), roles(ctx, 'kernel'), roles(ctx, 'output')];
  const rank = xr.spatial.length;
  for (const [role, t, name] of [
    [xr, x, 'input'],
    [wr, w, 'kernel'],
  ] as const)
    if (
      role.spatial.length + 2 !== t.shape.length ||
      [role.first, role.second, ...role.spatial].some((d) => !(d in t.shape))
    )
      ctx.fail(`${name} dims do not fit [${t.shape.join(', ')}]`);
  if (wr.spatial.length !== rank || or.spatial.length !== rank)
    ctx.fail('input, kernel and output differ in rank');
  const groups = ctx.int('feature_group_count');
  const batchGroups = ctx.int('batch_group_count');
  if (x.shape[xr.second] !== w.shape[wr.first] * groups)
    ctx.fail(
      `the input has ${x.shape[xr.second]} features, the kernel takes ${w.shape[wr.first]} ` +
        `of each of ${groups} groups`,
    );
  const stride = perDim(ctx, 'window_strides', rank, 1);
  const padding = perDim(ctx, 'padding', 2 * rank, 0);
  const lhs = perDim(ctx, 'lhs_dilation', rank, 1);
  const rhs = perDim(ctx, 'rhs_dilation', rank, 1);
  const shape = new Array<number>(rank + 2).fill(0);
  shape[or.first] = x.shape[xr.first] / batchGroups;
  shape[or.second] = w.shape[wr.second];
  or.spatial.forEach((d, i) => {
    const size = dilated(x.shape[xr.spatial[i]], lhs[i]) + padding[2 * i] + padding[2 * i + 1];
    const reach = dilated(w.shape[wr.spatial[i]], rhs[i]);
    shape[d] = size < reach ? 0 : Math.floor((size - reach) / stride[i]) + 1;
  });
  return shape;
}

export function dilated(size: number, step: number): number {
  return size === 0 ? 0 : (size - 1) * step + 1;
}

function convolutionRules(ctx: TypedContext): Rule[] {
  const [x, w] = ctx.inputs;
  const [xr, wr, or] = [roles(ctx, 'input'), roles(ctx, 'kernel'), roles(ctx, 'output')];
  const groups = ctx.int('feature_group_count');
  const rules: Rule[] = [];
  if (ctx.int('batch_group_count') === 1) {
    if (x.shape[xr.first] > 1) rules.push(rule([S(xr.first), R], [S(or.first)]));
    if (groups === 1) {
      if (w.shape[wr.second] > 1)
        rules.push(rule([R, S(wr.second)], [S(or.second)], { origin: 'ext' }));
      if (w.shape[wr.first] > 1)
        rules.push(rule([S(xr.second), S(wr.first)], [P('sum')], { origin: 'ext' }));
    } else {
      // Channels in whole groups; the local call has fewer of them.
      const whole = (dim: number, size: number): RuleSlot =>
        S(dim, { unit: size / groups, even: true, scaled: true });
      const out = whole(or.second, w.shape[wr.second]);
      rules.push(
        rule([whole(xr.second, x.shape[xr.second]), whole(wr.second, w.shape[wr.second])], [out], {
          origin: 'ext',
          rewrite: 'groups',
        }),
      );
    }
  }
  for (const kind of LINEAR_KINDS) {
    rules.push(rule([P(kind), R], [P(kind)], { origin: 'ext' }));
    rules.push(rule([R, P(kind)], [P(kind)], { origin: 'ext' }));
  }
  return rules;
}

/**
 * `*_dimensions` hold batch (kernel: input feature), feature (kernel: output feature), then the
 * spatial dims; `padding` low and high of each spatial dim in turn.
 */
const convolution = defineOp('stablehlo.convolution', {
  schema:
    'Tensor lhs, Tensor rhs, *, int[] input_dimensions, int[] kernel_dimensions, int[] ' +
    'output_dimensions, int[] window_strides=[], int[] padding=[], int[] lhs_dilation=[], ' +
    'int[] rhs_dilation=[], Any window_reversal=None, int feature_group_count=1, int ' +
    'batch_group_count=1, ScalarType? dtype=None, Any precision=None',
  cls: 'matmul',
  infer: (ctx) => [
    { dtype: ctx.dtype('dtype') ?? ctx.inputs[0].dtype, shape: convolutionShape(ctx) },
  ],
  shard: convolutionRules,
  flops: (ctx) => {
    // Every element of the result meets the kernel's window over the features of its group.
    const { second } = roles(ctx, 'kernel');
    const perOutput = elements(ctx.inputs[1].shape) / Math.max(1, ctx.inputs[1].shape[second]);
    return { matrix: 2 * elements(ctx.outputs[0]?.shape ?? []) * perOutput, vector: 0 };
  },
});

/** `einsum` of the older dialect: the equation is written out. */
const einsum = defineOp('stablehlo.einsum', {
  schema: 'Tensor lhs, Tensor rhs, *, str einsum_config',
  cls: 'matmul',
  infer: (ctx) => {
    const [left, out] = plainEquation(ctx).split('->');
    const sizes = new Map<string, number>();
    left.split(',').forEach((own, k) => {
      if (own.length !== ctx.inputs[k].shape.length) ctx.fail(`'${own}' does not fit operand ${k}`);
      [...own].forEach((letter, d) => {
        const size = sizes.get(letter) ?? ctx.inputs[k].shape[d];
        if (size !== ctx.inputs[k].shape[d]) ctx.fail(`letter ${letter} has two sizes`);
        sizes.set(letter, size);
      });
    });
    return [
      { dtype: ctx.inputs[0].dtype, shape: [...out].map((letter) => sizes.get(letter) ?? 1) },
    ];
  },
  shard: (ctx) => einsumRules(plainEquation(ctx)),
  flops: (ctx) => ({
    matrix: einsumFlops(plainEquation(ctx), ...ctx.inputs.map((t) => t.shape)),
    vector: 0,
  }),
});

function plainEquation(ctx: OpContext): string {
  const text = ctx.text('einsum_config').replaceAll(' ', '');
  if (!/^[A-Za-z]*,[A-Za-z]*->[A-Za-z]*$/.test(text))
    ctx.fail(`'${text}' is not an einsum of two operands`);
  const [left, out] = text.split('->');
  if ([...out].some((letter, i) => !left.includes(letter) || out.indexOf(letter) !== i))
    ctx.fail(`'${text}' has a result letter that no operand has, or twice`);
  return text;
}

/**
 * `triangular_solve`: independent over batch dims; linear in, and independent over the columns of,
 * the right side.
 */
const triangularSolve = defineOp('stablehlo.triangular_solve', {
  schema:
    'Tensor a, Tensor b, *, bool left_side=True, bool lower=True, bool unit_diagonal=False, ' +
    'Any transpose_a=None',
  cls: 'other',
  infer: (ctx) => [ctx.inputs[1]],
  shard: (ctx) => {
    const [a, b] = ctx.inputs;
    const rank = b.shape.length;
    const rules: Rule[] = [];
    for (let d = 0; d < rank - 2; d++) if (b.shape[d] > 1) rules.push(rule([S(d), S(d)], [S(d)]));
    const free = ctx.bool('left_side') ? rank - 1 : rank - 2;
    if (b.shape[free] > 1 && sameShape(a.shape.slice(0, -2), b.shape.slice(0, -2)))
      rules.push(rule([R, S(free)], [S(free)], { origin: 'ext' }));
    return [
      ...rules,
      ...LINEAR_KINDS.map((kind) => rule([R, P(kind)], [P(kind)], { origin: 'ext' })),
    ];
  },
  flops: (ctx) => ({
    matrix: 0,
    vector: elements(ctx.inputs[1].shape) * (ctx.inputs[0].shape.at(-1) ?? 1),
  }),
});

export const productOps: readonly OperatorRecord[] = [
  dotGeneral,
  plainDot,
  einsum,
  convolution,
  triangularSolve,
];
