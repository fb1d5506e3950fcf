/**
 * PyTorch's `flex_attention` and its backward call: attention whose scores a body changes
 * (`score_mod`) and whose pairs a body chooses (`mask_mod`), as one kernel. The bodies see single
 * numbers: a score, its batch, head, row and column, then the tensors that the functions of the
 * user read. Source: `torch/_higher_order_ops/flex_attention.py` of PyTorch 2.13.
 *
 * Batch and heads are cut. A body that asks for its batch or head gets it from `rows` and `heads`,
 * the numbers of both in the whole, which are cut with them; so the bodies of all devices are the
 * same. Work is that of the share of pairs that the blocks of the mask keep (`kept`).
 */

import {
  defineOp,
  elements,
  metaBytes,
  type OpContext,
  type OperatorRecord,
  type OpWork,
  type TensorMeta,
  type TypedContext,
} from '../../record/record.ts';
import { P, R, type Rule, rule, type RuleSlot, S } from '../../record/rule.ts';
import { cuttable, need, sameShape } from '../../rules/dims.ts';
import {
  type AttentionSizes,
  backwardWork,
  forwardWork,
  fusedSizes,
  headCut,
} from './attention-rules.ts';

/** Arguments behind the tensors that both calls have. */
const SHARED =
  'Any mask_mod=None, float scale, Tensor? rows=None, Tensor? heads=None, ' +
  'Tensor[] score_buffers=[], Tensor[] mask_buffers=[], Tensor?[] blocks=[], int[] sizes=[], ' +
  'Any options=None, float kept=1.0';

/** Sizes of a call, with its `rows` and `heads` checked. */
function checkedSizes(ctx: OpContext): AttentionSizes {
  const sizes = fusedSizes(ctx);
  const [batch] = sizes.batch;
  for (const [name, size] of [
    ['rows', batch],
    ['heads', sizes.heads],
  ] as const) {
    const numbers = ctx.tensor(name);
    if (numbers !== undefined && !sameShape(numbers.shape, [size]))
      ctx.fail(`${name} has shape [${numbers.shape.join(', ')}], expected [${size}]`);
  }
  const kept = ctx.number('kept');
  if (!(kept >= 0 && kept <= 1)) ctx.fail(`kept is ${kept}, expected a share from 0 to 1`);
  return sizes;
}

/** Work of the pairs that are kept. */
function keptWork(ctx: OpContext, { matrix, vector }: OpWork): OpWork {
  const kept = ctx.number('kept');
  return { matrix: matrix * kept, vector: vector * kept };
}

/** The large tensors of a call, read or written once. */
function bytesOf(ctx: TypedContext, names: readonly string[], results: number): number {
  const inputs = names.flatMap((name) => ctx.tensor(name) ?? []);
  const outputs = ctx.outputs.slice(0, results).flatMap((meta) => meta ?? []);
  return [...inputs, ...outputs].reduce((sum, meta) => sum + metaBytes(meta), 0);
}

/** The placements of one call whose batch (dim 0) or heads (dim 1) are cut. */
class Cut {
  constructor(
    private readonly ctx: TypedContext,
    private readonly dim: 0 | 1,
    private readonly cut: RuleSlot,
  ) {}

  /** @param names tensors that have the dim */
  rule(names: readonly string[], results: readonly RuleSlot[]): Rule {
    const { ctx, cut } = this;
    const inputs: RuleSlot[] = ctx.inputs.map(() => R);
    for (const name of names) if (ctx.indexOf(name) >= 0) inputs[ctx.indexOf(name)] = cut;
    const numbers = ctx.indexOf(this.dim === 0 ? 'rows' : 'heads');
    if (numbers >= 0) inputs[numbers] = this.at(0);
    // Blocks of a mask that is one for all batches or heads have a dim of 1 there.
    for (const member of ctx.list('blocks'))
      if (member !== null && member.meta.shape[this.dim] > 1)
        inputs[member.index] = this.at(this.dim);
    return rule(inputs, results);
  }

  private at(dim: number): RuleSlot {
    return this.cut?.kind === 'shard' ? { ...this.cut, dim } : this.cut;
  }
}

/** The dims of a call that are cut, with how. */
function cuts(sizes: AttentionSizes): readonly (readonly [0 | 1, RuleSlot])[] {
  return [
    ...cuttable(sizes.batch).map(() => [0, S(0)] as const),
    ...(sizes.keyHeads > 1 ? [[1, headCut(1, sizes)] as const] : []),
  ];
}

const OPERANDS = ['query', 'key', 'value'];

const forward = defineOp('flex_attention', {
  schema: `Tensor query, Tensor key, Tensor value, *, Any score_mod=None, ${SHARED}`,
  cls: 'attention',
  results: 'tuple',
  infer: (ctx) => {
    const s = checkedSizes(ctx);
    const rows = [...s.batch, s.heads, s.queries];
    const { dtype } = need(ctx, 'query');
    return [
      { dtype, shape: [...rows, s.values] },
      // Log-sum-exp and largest score of each row, both by base 2.
      { dtype: 'f32', shape: rows },
      { dtype: 'f32', shape: rows },
    ];
  },
  shard: (ctx) =>
    cuts(fusedSizes(ctx)).map(([dim, cut]) =>
      new Cut(ctx, dim, cut).rule(OPERANDS, [cut, cut, cut]),
    ),
  flops: (ctx) => keptWork(ctx, forwardWork(fusedSizes(ctx))),
  bytes: (ctx) => bytesOf(ctx, OPERANDS, 2),
  samples: [
    'x[6,5,7,4], x[6,5,9,4], x[6,5,9,3], scale=0.5',
    'x[5,6,7,4], x[5,6,7,4], x[5,6,7,4], scale=0.5',
    'x[2,6,7,4], x[2,3,9,4], x[2,3,9,4], scale=0.5, kept=0.5',
  ],
});

const BACKWARD_OPERANDS = [...OPERANDS, ...['out', 'logsumexp', 'grad_out', 'grad_logsumexp']];

/** Gradients of what `score_mod` reads that are wanted. */
function bufferGradients(ctx: OpContext): readonly (TensorMeta | null)[] {
  const wanted = ctx.has('wanted') ? ctx.bools('wanted') : [];
  return ctx.list('score_buffers').map((buffer, i) => (wanted[i] ? (buffer?.meta ?? null) : null));
}

const backward = defineOp('flex_attention_backward', {
  schema:
    'Tensor query, Tensor key, Tensor value, Tensor out, Tensor logsumexp, Tensor? grad_out, ' +
    'Tensor? grad_logsumexp, *, Any score_mod=None, Any joint_mod=None, Any wanted=None, ' +
    SHARED,
  cls: 'attention',
  results: 'tuple',
  infer: (ctx) => {
    const s = checkedSizes(ctx);
    const out = need(ctx, 'out');
    if (!sameShape(out.shape, [...s.batch, s.heads, s.queries, s.values]))
      ctx.fail(`out has shape [${out.shape.join(', ')}], which query and value do not give`);
    return [...OPERANDS.map((name) => need(ctx, name)), ...bufferGradients(ctx)];
  },
  shard: (ctx) =>
    cuts(fusedSizes(ctx)).map(([dim, cut]) =>
      new Cut(ctx, dim, cut).rule(BACKWARD_OPERANDS, [
        ...OPERANDS.map(() => cut),
        ...ctx.outputs.slice(3).map((meta) => (meta === null ? null : P())),
      ]),
    ),
  flops: (ctx) => keptWork(ctx, backwardWork(fusedSizes(ctx))),
  bytes: (ctx) => bytesOf(ctx, BACKWARD_OPERANDS, 3),
  samples: [
    'x[6,5,7,4], x[6,5,9,4], x[6,5,9,3], x[6,5,7,3], large[6,5,7], x[6,5,7,3], None, scale=0.5',
    'x[2,6,7,4], x[2,3,9,4], x[2,3,9,4], x[2,6,7,4], large[2,6,7], x[2,6,7,4], None, scale=0.5',
  ],
});

/** The gradient of an indexed tensor in a body: values added up in zeros of a shape. */
const scatter = defineOp('flex_lib.zeros_and_scatter.default', {
  schema: 'int[] shape, Tensor[] indices, Tensor vals',
  cls: 'other',
  infer: (ctx) => [{ dtype: need(ctx, 'vals').dtype, shape: ctx.ints('shape') }],
  flops: (ctx) => ({ matrix: 0, vector: elements(need(ctx, 'vals').shape) }),
  samples: ['[9], [index9[]], x[]'],
});

export const flexAttentionOps: readonly OperatorRecord[] = [forward, backward, scatter];
