/**
 * Losses. A mean over a cut batch divides by a GLOBAL figure: the number of elements, or for
 * `nll_loss` the total weight of the targets that are not ignored, which no rank knows alone.
 * PyTorch 2.13 averages the means of the ranks, which is wrong whenever targets are ignored,
 * weighted or unevenly cut; that rule is not offered here.
 */

import { isFloating } from '../../record/dtypes.ts';
import {
  defineOp,
  elements,
  type OpContext,
  type OperatorRecord,
  type TypedContext,
} from '../../record/record.ts';
import {
  ALL_KINDS,
  type InternalCollective,
  LINEAR_KINDS,
  P,
  R,
  type Rule,
  rule,
  type RuleOptions,
  type RuleSlot,
  S,
} from '../../record/rule.ts';
import { broadcastAll, broadcastSlot, cuttable, need } from '../../rules/dims.ts';
import { jointPartial, linearIn, onePartial } from '../../rules/partials.ts';

const NONE = 0;
const MEAN = 1;

/** One f32 per call: the total weight of all targets. */
const TOTAL_WEIGHT: InternalCollective = { kind: 'all_reduce', bytes: () => 4 };
/** Loss and total weight together. */
const LOSS_AND_WEIGHT: InternalCollective = { kind: 'all_reduce', bytes: () => 8 };

// ---- negative log likelihood
// -----------------------------------------------------------------------------

/**
 * Dims of `self` [N, C, d1, ...] (or [C]): the class dim, and for every other dim its place in
 * `target`.
 */
function classDims(ctx: OpContext): {
  readonly classes: number;
  readonly others: readonly [number, number][];
} {
  const rank = need(ctx, 'self').shape.length;
  const classes = rank === 1 ? 0 : 1;
  const others: [number, number][] = [];
  for (let d = 0, t = 0; d < rank; d++) if (d !== classes) others.push([d, t++]);
  return { classes, others };
}

/**
 * Slots by argument name; arguments that are absent are left out, those not named are replicated.
 */
function slots(ctx: TypedContext, named: Readonly<Record<string, RuleSlot>>): RuleSlot[] {
  const out: RuleSlot[] = ctx.inputs.map(() => R);
  for (const [name, slot] of Object.entries(named)) {
    const i = ctx.indexOf(name);
    if (i >= 0) out[i] = slot;
  }
  return out;
}

const contiguous = (dim: number): RuleSlot => S(dim, { slicing: 'contiguous' });

/** Numbers of dims that the kernels of rows and of images take. */
const ROWS: readonly number[] = [1, 2];
const IMAGES: readonly number[] = [4];

function nllForward(name: string, ranks: readonly number[]): OperatorRecord {
  return defineOp(name, {
    schema: 'Tensor self, Tensor target, Tensor? weight, int reduction, int ignore_index',
    cls: 'reduction',
    results: 'tuple',
    infer(ctx) {
      const self = need(ctx, 'self');
      const target = need(ctx, 'target');
      checkRank(ctx, ranks);
      checkTarget(ctx);
      const shape = ctx.int('reduction') === NONE ? target.shape : [];
      return [
        { dtype: self.dtype, shape },
        { dtype: self.dtype, shape: [] },
      ];
    },
    shard: nllForwardRules,
    flops: (ctx) => ({ matrix: 0, vector: 2 * elements(need(ctx, 'target').shape) }),
    // One score a target is gathered, not the whole row.
    bytes: (ctx) => gatheredBytes(ctx),
  });
}

function checkRank(ctx: OpContext, ranks: readonly number[]): void {
  const rank = need(ctx, 'self').shape.length;
  if (!ranks.includes(rank)) ctx.fail(`input has ${rank} dims, expected ${ranks.join(' or ')}`);
}

function checkTarget(ctx: OpContext): void {
  const { others } = classDims(ctx);
  const self = need(ctx, 'self').shape;
  const target = need(ctx, 'target').shape;
  const fits = target.length === others.length && others.every(([d, t]) => self[d] === target[t]);
  if (!fits)
    ctx.fail(
      `target of shape [${target.join(', ')}] does not fit input of shape [${self.join(', ')}]`,
    );
}

function gatheredBytes(ctx: TypedContext): number {
  const targets = elements(need(ctx, 'target').shape);
  let total = targets * (8 + 4);
  for (const out of ctx.outputs) if (out !== null) total += 4 * elements(out.shape);
  return total;
}

function nllForwardRules(ctx: TypedContext): Rule[] {
  const reduction = ctx.int('reduction');
  const { classes, others } = classDims(ctx);
  const shape = need(ctx, 'self').shape;
  const rules: Rule[] = [];
  for (const [d, t] of others) {
    if (shape[d] === 1) continue;
    const inputs = slots(ctx, { self: S(d), target: S(t) });
    if (reduction === NONE) rules.push(rule(inputs, [S(t), R]));
    else if (reduction === MEAN) {
      // Each rank divides the sum of its own losses by the total weight of all ranks, which one
      // all-reduce provides.
      rules.push(
        rule(inputs, [P('sum'), R], {
          origin: 'ext',
          rewrite: 'global-count',
          collectives: [TOTAL_WEIGHT],
        }),
      );
      rules.push(
        rule(inputs, [R, R], {
          origin: 'ext',
          rewrite: 'all-reduce-loss',
          collectives: [LOSS_AND_WEIGHT],
        }),
      );
    } else rules.push(rule(inputs, [P('sum'), P('sum')]));
  }
  for (const kind of LINEAR_KINDS) {
    rules.push(rule(slots(ctx, { self: P(kind) }), [P(kind), R], { origin: 'ext' }));
  }
  if (shape[classes] > 1) {
    // A target's score lies on one rank; the others contribute zero. Targets and so the total
    // weight are known everywhere.
    rules.push(
      rule(slots(ctx, { self: contiguous(classes) }), [P('sum'), R], {
        origin: 'ext',
        rewrite: 'mask',
      }),
    );
  }
  return rules;
}

function nllBackward(name: string, ranks: readonly number[]): OperatorRecord {
  return defineOp(name, {
    schema:
      'Tensor grad_output, Tensor self, Tensor target, Tensor? weight, int reduction, int ' +
      'ignore_index, Tensor total_weight',
    cls: 'reduction',
    infer(ctx) {
      checkRank(ctx, ranks);
      checkTarget(ctx);
      return [need(ctx, 'self')];
    },
    shard: nllBackwardRules,
    flops: (ctx) => ({ matrix: 0, vector: elements(need(ctx, 'self').shape) }),
    // The input's values are not read; the gradient is written whole.
    bytes: (ctx) => gatheredBytes(ctx),
  });
}

function nllBackwardRules(ctx: TypedContext): Rule[] {
  const { classes, others } = classDims(ctx);
  const { shape } = need(ctx, 'self');
  const perTarget = ctx.int('reduction') === NONE;
  const rules: Rule[] = [];
  for (const [d, t] of others) {
    if (shape[d] === 1) continue;
    rules.push(
      rule(slots(ctx, { grad_output: perTarget ? S(t) : R, self: S(d), target: S(t) }), [S(d)]),
    );
  }
  rules.push(...linearIn('grad_output')(ctx));
  // Only the shape of `self` matters, so its pending reductions do not.
  for (const kind of ALL_KINDS)
    rules.push(rule(slots(ctx, { self: P(kind) }), [R], { origin: 'ext' }));
  for (const kind of LINEAR_KINDS) {
    rules.push(
      rule(slots(ctx, { grad_output: P(kind), self: P(kind) }), [P(kind)], { origin: 'ext' }),
    );
  }
  if (shape[classes] > 1) {
    const inputs = slots(ctx, { self: contiguous(classes) });
    rules.push(rule(inputs, [contiguous(classes)], { origin: 'ext', rewrite: 'mask' }));
  }
  return rules;
}

// ---- cross entropy as one node
// -----------------------------------------------------------------------------

const crossEntropy = defineOp('aten.cross_entropy_loss.default', {
  schema:
    'Tensor self, Tensor target, Tensor? weight=None, int reduction=1, int ' +
    'ignore_index=-100, float label_smoothing=0.0',
  cls: 'reduction',
  infer(ctx) {
    const self = need(ctx, 'self');
    const target = need(ctx, 'target');
    const probabilities = isFloating(target.dtype);
    if (!probabilities) checkTarget(ctx);
    const { classes } = classDims(ctx);
    const perTarget = self.shape.filter((_, d) => d !== classes);
    return [{ dtype: self.dtype, shape: ctx.int('reduction') === NONE ? perTarget : [] }];
  },
  shard(ctx) {
    const reduction = ctx.int('reduction');
    const { classes, others } = classDims(ctx);
    const self = need(ctx, 'self');
    const probabilities = isFloating(need(ctx, 'target').dtype);
    const rules: Rule[] = [];
    for (const [d, t] of others) {
      if (self.shape[d] === 1) continue;
      const inputs = slots(ctx, { self: S(d), target: S(probabilities ? d : t) });
      if (reduction === NONE) rules.push(rule(inputs, [S(t)]));
      else if (reduction !== MEAN) rules.push(rule(inputs, [P('sum')]));
      // With class probabilities the mean divides by the batch, which is known; with class indices
      // by what is not ignored.
      else if (probabilities)
        rules.push(rule(inputs, [P('sum')], { origin: 'ext', rewrite: 'global-count' }));
      else {
        rules.push(
          rule(inputs, [P('sum')], {
            origin: 'ext',
            rewrite: 'global-count',
            collectives: [TOTAL_WEIGHT],
          }),
        );
        rules.push(
          rule(inputs, [R], {
            origin: 'ext',
            rewrite: 'all-reduce-loss',
            collectives: [LOSS_AND_WEIGHT],
          }),
        );
      }
    }
    if (self.shape[classes] > 1 && !probabilities && ctx.number('label_smoothing') === 0) {
      const row: InternalCollective = {
        kind: 'all_reduce',
        bytes: (local) => (self.dtype === 'f64' ? 8 : 4) * elements(need(local, 'target').shape),
      };
      const inputs = slots(ctx, { self: contiguous(classes) });
      rules.push(
        rule(inputs, [P('sum')], {
          origin: 'ext',
          rewrite: 'vocabulary-parallel',
          collectives: [row, row],
        }),
      );
    }
    return rules;
  },
  flops: (ctx) => ({ matrix: 0, vector: 6 * elements(need(ctx, 'self').shape) }),
});

// ---- elementwise losses
// -----------------------------------------------------------------------------

/** Mean, sum or nothing over an elementwise function of broadcast tensors. */
function elementwiseLoss(name: string, schema: string, cost: number): OperatorRecord {
  const shapeOf = (ctx: OpContext): readonly number[] =>
    broadcastAll(
      ctx,
      ctx.inputs.map((t) => t.shape),
    );
  return defineOp(name, {
    schema,
    cls: 'reduction',
    infer: (ctx) => [
      { dtype: need(ctx, 'self').dtype, shape: ctx.int('reduction') === NONE ? shapeOf(ctx) : [] },
    ],
    shard(ctx) {
      const reduction = ctx.int('reduction');
      const shape = shapeOf(ctx);
      const cut = (d: number, even: boolean): RuleSlot[] =>
        ctx.inputs.map((t) => broadcastSlot(t.shape, shape.length, d, { even }));
      const dims = cuttable(shape);
      if (reduction === NONE) return dims.map((d) => rule(cut(d, false), [S(d)]));
      if (reduction !== MEAN) return dims.map((d) => rule(cut(d, false), [P('sum')]));
      const global: RuleOptions = { origin: 'ext', rewrite: 'global-count' };
      return [
        ...dims.map((d) => rule(cut(d, true), [P('avg')])),
        ...dims.map((d) => rule(cut(d, false), [P('sum')], global)),
      ];
    },
    flops: (ctx) => ({ matrix: 0, vector: cost * elements(shapeOf(ctx)) }),
  });
}

/**
 * Backward of an elementwise loss. With mean reduction the divisor is the global count: a rank that
 * divides by its own count makes the gradient n times too large (the fault of 2.13), so cut inputs
 * need a rewritten body.
 */
function elementwiseLossBackward(
  name: string,
  schema: string,
  cost: number,
  jointly = false,
): OperatorRecord {
  return defineOp(name, {
    schema,
    cls: 'pointwise',
    infer: (ctx) => [
      {
        dtype: need(ctx, 'self').dtype,
        shape: broadcastAll(
          ctx,
          ctx.inputs.map((t) => t.shape),
        ),
      },
    ],
    shard(ctx) {
      const out = ctx.outputs[0]?.shape ?? [];
      const options: RuleOptions =
        ctx.int('reduction') === MEAN ? { origin: 'ext', rewrite: 'global-count' } : {};
      return [
        ...cuttable(out).map((d) =>
          rule(
            ctx.inputs.map((t) => broadcastSlot(t.shape, out.length, d)),
            [S(d)],
            options,
          ),
        ),
        ...LINEAR_KINDS.map((kind) =>
          onePartial(ctx, ctx.indexOf('grad_output'), kind, kind, 'ext'),
        ),
        ...(jointly ? LINEAR_KINDS.map((kind) => jointPartial(ctx, ['self', 'target'], kind)) : []),
      ];
    },
    flops: (ctx) => ({ matrix: 0, vector: cost * elements(ctx.outputs[0]?.shape ?? []) }),
  });
}

const PAIR = 'Tensor self, Tensor target';
const GRAD = `Tensor grad_output, ${PAIR}`;

export const lossOps: readonly OperatorRecord[] = [
  nllForward('aten.nll_loss_forward.default', ROWS),
  nllForward('aten.nll_loss2d_forward.default', IMAGES),
  nllBackward('aten.nll_loss_backward.default', ROWS),
  nllBackward('aten.nll_loss2d_backward.default', IMAGES),
  crossEntropy,
  elementwiseLoss('aten.mse_loss.default', `${PAIR}, int reduction=1`, 3),
  elementwiseLoss('aten.l1_loss.default', `${PAIR}, int reduction=1`, 3),
  elementwiseLoss('aten.smooth_l1_loss.default', `${PAIR}, int reduction=1, float beta=1.0`, 5),
  elementwiseLoss('aten.huber_loss.default', `${PAIR}, int reduction=1, float delta=1.0`, 5),
  elementwiseLoss(
    'aten.binary_cross_entropy.default',
    `${PAIR}, Tensor? weight=None, int reduction=1`,
    20,
  ),
  elementwiseLoss(
    'aten.binary_cross_entropy_with_logits.default',
    `${PAIR}, Tensor? weight=None, Tensor? pos_weight=None, int reduction=1`,
    20,
  ),
  elementwiseLossBackward('aten.mse_loss_backward.default', `${GRAD}, int reduction`, 3, true),
  elementwiseLossBackward(
    'aten.smooth_l1_loss_backward.default',
    `${GRAD}, int reduction, float beta`,
    5,
  ),
  elementwiseLossBackward(
    'aten.huber_loss_backward.default',
    `${GRAD}, int reduction, float delta`,
    5,
  ),
  elementwiseLossBackward(
    'aten.binary_cross_entropy_backward.default',
    `${GRAD}, Tensor? weight=None, int reduction=1`,
    6,
  ),
];
