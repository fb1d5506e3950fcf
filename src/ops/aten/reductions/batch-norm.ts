/**
 * Batch normalisation: each channel is its own problem. In training its statistics run over all
 * other dims. Where one of these is cut, the ranks gather the mean, the variance and the count of
 * what each has, and combine them (Chan, Golub and LeVeque 1979, as torch.nn.SyncBatchNorm does);
 * the backward adds up two sums per channel. One small collective each.
 */

import {
  defineOp,
  elements,
  type OpContext,
  type OperatorRecord,
  type TensorMeta,
  type TypedContext,
} from '../../record/record.ts';
import { P, R, type Rule, rule, type RuleOptions, type RuleSlot, S } from '../../record/rule.ts';
import { cuttable, need, sameShape, slotsByName } from '../../rules/dims.ts';
import {
  gatheredStatistics,
  named,
  normWork,
  outputsOf,
  pendingAffine,
  pendingGrad,
  pendingWeight,
  statisticType,
  summedStatistics,
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

/** Dims over which the statistics run: those of batch and positions. */
function sampleDims(shape: readonly number[]): number[] {
  return cuttable(shape).filter((d) => d !== 1);
}

/**
 * Tells whether a call in training leaves nothing but its results: another one moves the running
 * statistics in place, which the calls of a local form would not do.
 */
function returnsAll(form: BatchForm, ctx: OpContext): boolean {
  return form.rest.includes('running') || ctx.indexOf('running_mean') < 0;
}

const channels = (local: TypedContext): number => need(local, 'input').shape[1];

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
      const small = form.rest.includes('running') ? 8 : 5;
      const across: RuleOptions = training
        ? gatheredStatistics(channels, small)
        : { origin: 'ext' };
      if (!training || returnsAll(form, ctx))
        for (const d of sampleDims(shape)) {
          const cut = S(d, { slicing: 'any', filled: training });
          rules.push(rule(slotsByName(ctx, { input: cut }), results(cut, R), across));
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
    // The gradient of the input goes through the statistics: it needs the two sums of all ranks,
    // which are the gradients of weight and bias. Without it each rank has a part of these.
    const across = ctx.bool('train') && ctx.outputs[0] !== null;
    for (const d of sampleDims(shape)) {
      const cut = S(d, { filled: across });
      rules.push(
        rule(
          slotsByName(ctx, { grad_out: cut, input: cut }),
          outputsOf(ctx, across ? [cut, R, R] : [cut, P(), P()]),
          across ? summedStatistics(channels, 5) : { origin: 'ext' },
        ),
      );
    }
    return [...rules, ...pendingGrad(ctx), ...pendingWeight(ctx)];
  },
  flops: normWork,
});

export const batchNormOps: readonly OperatorRecord[] = [...batchNorms, batchNormBackward];
