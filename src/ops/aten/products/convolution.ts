/**
 * Convolutions. Batch and channels are cut like the dims of a matrix product: the batch follows,
 * output channels follow the weight, cut input channels leave a pending sum. With groups, channels
 * are cut in whole groups only. Spatial dims stay whole (a cut would need halos).
 */

import { resultType } from '../../record/dtypes.ts';
import {
  defineOp,
  elements,
  type OpContext,
  type OperatorRecord,
  type TensorMeta,
  type TypedContext,
} from '../../record/record.ts';
import { LINEAR_KINDS, P, R, type Rule, rule, type RuleSlot, S } from '../../record/rule.ts';
import { cuttable, need } from '../../rules/dims.ts';

interface Setup {
  readonly x: TensorMeta;
  readonly w: TensorMeta;
  readonly groups: number;
  readonly transposed: boolean;
  /** Channels of the result. */
  readonly channels: number;
}

function setup(ctx: OpContext, xName: string, transposed: boolean): Setup {
  const x = need(ctx, xName);
  const w = need(ctx, 'weight');
  const groups = ctx.int('groups');
  const spatial = w.shape.length - 2;
  if (x.shape.length !== w.shape.length || spatial < 1) {
    ctx.fail(
      `input [${x.shape.join(', ')}] must be batched and of the rank of the weight ` +
        `[${w.shape.join(', ')}]`,
    );
  }
  const expected = transposed ? w.shape[0] : w.shape[1] * groups;
  if (x.shape[1] !== expected)
    ctx.fail(`input has ${x.shape[1]} channels, the weight takes ${expected}`);
  if (w.shape[0] % groups !== 0)
    ctx.fail(
      `the weight [${w.shape.join(', ')}] is not divisible in ${groups} groups along its first dim`,
    );
  return { x, w, groups, transposed, channels: transposed ? w.shape[1] * groups : w.shape[0] };
}

/** One number per spatial dim; a single number counts for all. */
function perDim(values: readonly number[], spatial: number): readonly number[] {
  return values.length === 1 ? Array<number>(spatial).fill(values[0]) : values;
}

function outputShape(ctx: OpContext, { x, w, transposed, channels }: Setup): readonly number[] {
  const spatial = w.shape.length - 2;
  const [stride, padding, dilation] = ['stride', 'padding', 'dilation'].map((n) =>
    perDim(ctx.ints(n), spatial),
  );
  const extra = transposed ? perDim(ctx.ints('output_padding'), spatial) : [];
  const sizes = x.shape.slice(2).map((size, i) => {
    const reach = dilation[i] * (w.shape[i + 2] - 1);
    const out = transposed
      ? (size - 1) * stride[i] - 2 * padding[i] + reach + extra[i] + 1
      : Math.floor((size + 2 * padding[i] - reach - 1) / stride[i]) + 1;
    return out > 0
      ? out
      : ctx.fail(`the kernel [${w.shape.slice(2).join(', ')}] is larger than the padded input`);
  });
  return [x.shape[0], channels, ...sizes];
}

/**
 * 2 * batch * positions * weight elements: every weight meets every position of the side it slides
 * over.
 */
function forwardFlops(
  x: TensorMeta,
  w: TensorMeta,
  out: readonly number[],
  transposed: boolean,
): number {
  const positions = elements((transposed ? x.shape : out).slice(2));
  return 2 * x.shape[0] * positions * elements(w.shape);
}

/** Spatial dims of the input over which every window is the element itself. */
function pointDims(ctx: OpContext, x: TensorMeta, transposed: boolean): number[] {
  const w = need(ctx, 'weight').shape;
  const spatial = w.length - 2;
  const [stride, padding] = ['stride', 'padding'].map((name) => perDim(ctx.ints(name), spatial));
  if (transposed) return [];
  return cuttable(x.shape).filter(
    (d) => d >= 2 && w[d] === 1 && stride[d - 2] === 1 && padding[d - 2] === 0,
  );
}

/**
 * A cut of channels, of which every device has one: PyTorch's kernels give a result of the input's
 * shape for none of the input's, a zero gradient of the bias, and refuse none of the output's.
 */
function channelCut(dim: number): RuleSlot {
  return S(dim, { filled: true });
}

function forwardRules(ctx: TypedContext, xName: string, transposed: boolean): Rule[] {
  const { x, groups } = setup(ctx, xName, transposed);
  const [wOut, wIn] = transposed ? [1, 0] : [0, 1];
  const bias = (slot: RuleSlot): RuleSlot[] => (ctx.has('bias') ? [slot] : []);
  const rules: Rule[] = [];
  if (x.shape[0] > 1) rules.push(rule([S(0), R, ...bias(R)], [S(0)]));
  // A window of one element needs no neighbours.
  for (const d of pointDims(ctx, x, transposed)) {
    const cut = S(d, { slicing: 'any', filled: true });
    rules.push(rule([cut, R, ...bias(R)], [cut], { origin: 'ext' }));
  }
  if (groups === 1) {
    rules.push(
      rule([R, channelCut(wOut), ...bias(channelCut(0))], [channelCut(1)], { origin: 'ext' }),
    );
    rules.push(
      rule([channelCut(1), channelCut(wIn), ...bias(P('sum'))], [P('sum')], { origin: 'ext' }),
    );
  } else {
    const cut = groupCut(ctx, xName, transposed);
    rules.push(
      rule([cut.x, cut.w, ...bias(cut.out(0))], [cut.out(1)], { origin: 'ext', rewrite: 'groups' }),
    );
  }
  for (const kind of LINEAR_KINDS) {
    rules.push(rule([P(kind), R, ...bias(P(kind))], [P(kind)], { origin: 'ext' }));
    rules.push(rule([R, P(kind), ...bias(P(kind))], [P(kind)], { origin: 'ext' }));
  }
  return rules;
}

/** Slots that cut channels of input, weight and output between whole groups. */
function groupCut(ctx: OpContext, xName: string, transposed: boolean) {
  const { x, w, groups, channels } = setup(ctx, xName, transposed);
  const whole = (dim: number, size: number): RuleSlot =>
    S(dim, { unit: size / groups, even: true, scaled: true });
  return {
    x: whole(1, x.shape[1]),
    w: whole(0, w.shape[0]),
    out: (dim: number): RuleSlot => whole(dim, channels),
  };
}

function forward(
  name: string,
  schema: string,
  transposedOf: (ctx: OpContext) => boolean,
): OperatorRecord {
  return defineOp(name, {
    schema,
    cls: 'matmul',
    infer(ctx) {
      const dtype = resultType({ tensors: ctx.inputs, scalars: [] }) ?? 'f32';
      return [{ dtype, shape: outputShape(ctx, setup(ctx, 'input', transposedOf(ctx))) }];
    },
    shard: (ctx) => forwardRules(ctx, 'input', transposedOf(ctx)),
    flops(ctx) {
      const out = ctx.outputs[0]?.shape ?? [];
      const matrix = forwardFlops(ctx.inputs[0], ctx.inputs[1], out, transposedOf(ctx));
      return { matrix, vector: ctx.has('bias') ? elements(out) : 0 };
    },
  });
}

const backward = defineOp('aten.convolution_backward.default', {
  schema:
    'Tensor grad_output, Tensor input, Tensor weight, int[]? bias_sizes, int[] stride, int[] ' +
    'padding, int[] dilation, bool transposed, int[] output_padding, int groups, bool[] ' +
    'output_mask',
  cls: 'matmul',
  results: 'tuple',
  infer(ctx) {
    const { x, w, channels } = setup(ctx, 'input', ctx.bool('transposed'));
    const [wantX, wantW, wantB] = ctx.bools('output_mask');
    return [
      wantX ? x : null,
      wantW ? w : null,
      wantB ? { dtype: w.dtype, shape: [channels] } : null,
    ];
  },
  shard: backwardRules,
  flops(ctx) {
    // One forward for the gradient of x, one for that of w; the bias gradient is a sum.
    const [grad, x, w] = ctx.inputs;
    const one = forwardFlops(x, w, grad.shape, ctx.bool('transposed'));
    const [wantX, wantW, wantB] = ctx.bools('output_mask');
    return {
      matrix: one * (Number(wantX) + Number(wantW)),
      vector: wantB ? elements(grad.shape) : 0,
    };
  },
});

function backwardRules(ctx: TypedContext): Rule[] {
  const transposed = ctx.bool('transposed');
  const { x, groups } = setup(ctx, 'input', transposed);
  const [wOut, wIn] = transposed ? [1, 0] : [0, 1];
  const mask = ctx.bools('output_mask');
  const out = (...all: readonly RuleSlot[]): RuleSlot[] =>
    all.map((slot, i) => (mask[i] ? slot : null));
  const rules: Rule[] = [];
  if (x.shape[0] > 1) rules.push(rule([S(0), S(0), R], out(S(0), P('sum'), P('sum'))));
  if (groups === 1) {
    const [ofOutput, ofInput] = [channelCut(wOut), channelCut(wIn)];
    rules.push(
      rule([channelCut(1), R, ofOutput], out(P('sum'), ofOutput, channelCut(0)), { origin: 'ext' }),
    );
    rules.push(
      rule([R, channelCut(1), ofInput], out(channelCut(1), ofInput, R), { origin: 'ext' }),
    );
  } else {
    const cut = groupCut(ctx, 'input', transposed);
    const options = { origin: 'ext', rewrite: 'groups' } as const;
    rules.push(rule([cut.out(1), cut.x, cut.w], out(cut.x, cut.w, cut.out(0)), options));
  }
  for (const kind of LINEAR_KINDS) {
    const p = P(kind);
    rules.push(rule([p, R, R], out(p, p, p), { origin: 'ext' }));
    // The gradient of each factor is linear in the other factor; what does not read it stays whole.
    rules.push(rule([R, p, R], out(R, p, R), { origin: 'ext' }));
    rules.push(rule([R, R, p], out(p, R, R), { origin: 'ext' }));
  }
  return rules;
}

const simple = (spatial: number): OperatorRecord =>
  forward(
    `aten.conv${spatial}d.default`,
    'Tensor input, Tensor weight, Tensor? bias=None, int[] stride=[1], int[] padding=[0], ' +
      'int[] dilation=[1], int groups=1',
    () => false,
  );

export const convolutionOps: readonly OperatorRecord[] = [
  forward(
    'aten.convolution.default',
    'Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation, ' +
      'bool transposed, int[] output_padding, int groups',
    (ctx) => ctx.bool('transposed'),
  ),
  simple(1),
  simple(2),
  simple(3),
  backward,
];
