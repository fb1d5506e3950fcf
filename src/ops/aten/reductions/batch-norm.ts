/**
 * Batch normalisation: each channel is its own problem. In training its statistics run over all
 * other dims, which must be whole; rules with collectives inside the operator (two values per
 * channel) are not offered yet.
 */

import {
  defineOp,
  elements,
  type OpContext,
  type OperatorRecord,
  type TensorMeta,
} from '../../record/record.ts';
import { P, R, type Rule, rule, type RuleSlot, S } from '../../record/rule.ts';
import { cuttable, need, sameShape, slotsByName } from '../../rules/dims.ts';
import {
  named,
  normWork,
  outputsOf,
  pendingAffine,
  pendingGrad,
  pendingWeight,
  statisticType,
  withOwnStatistics,
} from './norm-common.ts';

const PER_CHANNEL = [
  'weight',
  'bias',
  'running_mean',
  'running_var',
  'save_mean',
  'save_invstd',
] as const;

interface BatchForm {
  readonly name: string;
  readonly schema: string;
  /** Further results: saved mean and inverse deviation, updated running statistics, a reserve. */
  readonly rest: readonly ('saved' | 'running' | 'reserve')[];
  /** Tells whether this call normalises with statistics of the batch. */
  readonly training: (ctx: OpContext) => boolean;
}

function channelsOf(ctx: OpContext): number {
  const { shape } = need(ctx, 'input');
  if (shape.length < 2)
    return ctx.fail(`input has ${shape.length} dims, expected at least 2 [batch, channels, ..]`);
  for (const name of PER_CHANNEL) {
    const meta = ctx.tensor(name);
    // Evaluation saves nothing: its saved statistics are empty.
    if (meta !== undefined && elements(meta.shape) > 0 && !sameShape(meta.shape, [shape[1]]))
      ctx.fail(`${name} has shape [${meta.shape.join(', ')}], expected [${shape[1]}]`);
  }
  return shape[1];
}

function batchResults(form: BatchForm, ctx: OpContext): (TensorMeta | null)[] {
  const input = need(ctx, 'input');
  const channels = channelsOf(ctx);
  const type = statisticType(input.dtype);
  const training = form.training(ctx);
  const running = ['running_mean', 'running_var'];
  return [
    input,
    ...form.rest.map((what): TensorMeta | null => {
      if (what === 'reserve') return { dtype: 'u8', shape: [0] };
      if (what === 'saved') return { dtype: type, shape: [training ? channels : 0] };
      return ctx.tensor(running.shift() ?? '') ?? null;
    }),
  ];
}

function batchNorm(form: BatchForm): OperatorRecord {
  return defineOp(form.name, {
    schema: form.schema,
    cls: 'norm',
    results: form.rest.length === 0 ? 'single' : 'tuple',
    infer: (ctx) => batchResults(form, ctx),
    // There the running statistics come out in f32, whatever went in.
    variants: (ctx) =>
      withOwnStatistics(ctx, batchResults(form, ctx)).flatMap((own) => [
        own,
        own.map((meta, i) =>
          i < 3 || meta === null || meta.dtype === 'u8' ? meta : { ...meta, dtype: 'f32' as const },
        ),
      ]),
    shard: (ctx) => {
      const { shape } = need(ctx, 'input');
      const training = form.training(ctx);
      const rules: Rule[] = [];
      const results = (input: RuleSlot, vector: RuleSlot): RuleSlot[] =>
        outputsOf(ctx, [
          input,
          ...form.rest.map((what) =>
            what === 'reserve' || (what === 'saved' && !training) ? R : vector,
          ),
        ]);
      if (shape[1] > 1) {
        const vectors = PER_CHANNEL.filter((name) => ctx.indexOf(name) >= 0);
        rules.push(
          rule(slotsByName(ctx, { input: S(1), ...named(vectors, S(0)) }), results(S(1), S(0))),
        );
      }
      // In training a cut batch or spatial dim needs an all-reduce of two values per channel; such
      // rules belong here.
      if (!training)
        for (const d of cuttable(shape)) {
          const cut = S(d, { slicing: 'any' });
          if (d !== 1)
            rules.push(rule(slotsByName(ctx, { input: cut }), results(cut, R), { origin: 'ext' }));
        }
      return [...rules, ...pendingAffine(ctx, form.rest.length)];
    },
    flops: normWork,
  });
}

const AFFINE = 'Tensor input, Tensor? weight, Tensor? bias';
const asked = (ctx: OpContext): boolean => ctx.bool('training');

const batchNorms: readonly OperatorRecord[] = [
  batchNorm({
    name: 'aten.batch_norm.default',
    schema:
      `${AFFINE}, Tensor? running_mean, Tensor? running_var, bool training, float momentum, ` +
      'float eps, bool cudnn_enabled',
    rest: [],
    training: asked,
  }),
  batchNorm({
    name: 'aten.native_batch_norm.default',
    schema:
      `${AFFINE}, Tensor? running_mean, Tensor? running_var, bool training, float momentum, ` +
      'float eps',
    rest: ['saved', 'saved'],
    training: asked,
  }),
  batchNorm({
    name: 'aten._native_batch_norm_legit.default',
    schema:
      `${AFFINE}, Tensor running_mean, Tensor running_var, bool training, float momentum, ` +
      'float eps',
    rest: ['saved', 'saved'],
    training: asked,
  }),
  batchNorm({
    name: 'aten._native_batch_norm_legit.no_stats',
    schema: `${AFFINE}, bool training, float momentum, float eps`,
    rest: ['saved', 'saved'],
    training: () => true,
  }),
  batchNorm({
    name: 'aten._native_batch_norm_legit_no_training.default',
    schema: `${AFFINE}, Tensor running_mean, Tensor running_var, float momentum, float eps`,
    rest: ['saved', 'saved'],
    training: () => false,
  }),
  batchNorm({
    name: 'aten._native_batch_norm_legit_functional.default',
    schema:
      `${AFFINE}, Tensor running_mean, Tensor running_var, bool training, float momentum, ` +
      'float eps',
    rest: ['saved', 'saved', 'running', 'running'],
    training: asked,
  }),
  batchNorm({
    name: 'aten._batch_norm_with_update_functional.default',
    schema: `${AFFINE}, Tensor running_mean, Tensor running_var, float momentum, float eps`,
    rest: ['saved', 'saved', 'reserve', 'running', 'running'],
    training: () => true,
  }),
];

const batchNormBackward = defineOp('aten.native_batch_norm_backward.default', {
  schema:
    'Tensor grad_out, Tensor input, Tensor? weight, Tensor? running_mean, Tensor? ' +
    'running_var, Tensor? save_mean, ' +
    'Tensor? save_invstd, bool train, float eps, bool[] output_mask',
  cls: 'norm',
  results: 'tuple',
  infer: (ctx) => {
    const input = need(ctx, 'input');
    const channels = channelsOf(ctx);
    const mask = ctx.bools('output_mask');
    if (mask.length !== 3) ctx.fail(`output_mask has ${mask.length} entries, expected 3`);
    const vector: TensorMeta = {
      dtype: ctx.tensor('weight')?.dtype ?? input.dtype,
      shape: [channels],
    };
    return [mask[0] ? input : null, mask[1] ? vector : null, mask[2] ? vector : null];
  },
  shard: (ctx) => {
    const { shape } = need(ctx, 'input');
    const rules: Rule[] = [];
    if (shape[1] > 1) {
      const vectors = PER_CHANNEL.filter((name) => (ctx.tensor(name)?.shape[0] ?? 0) > 0);
      const inputs = slotsByName(ctx, { grad_out: S(1), input: S(1), ...named(vectors, S(0)) });
      rules.push(rule(inputs, outputsOf(ctx, [S(1), S(0), S(0)])));
    }
    // In training a cut batch or spatial dim needs an all-reduce of two values per channel; such
    // rules belong here.
    if (!ctx.bool('train'))
      for (const d of cuttable(shape))
        if (d !== 1)
          rules.push(
            rule(
              slotsByName(ctx, { grad_out: S(d), input: S(d) }),
              outputsOf(ctx, [S(d), P(), P()]),
              { origin: 'ext' },
            ),
          );
    return [...rules, ...pendingGrad(ctx), ...pendingWeight(ctx)];
  },
  flops: normWork,
});

export const batchNormOps: readonly OperatorRecord[] = [...batchNorms, batchNormBackward];
