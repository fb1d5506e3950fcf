/**
 * Rewrites literals that are sizes or positions when the tensors of a call get new sizes. `written`
 * knows the meaning of a literal; `byValue` replaces numbers that equal old sizes of the tensors.
 */

import type { Arg, Node } from '../../graph/types.ts';
import { isList } from '../../graph/value.ts';
import type { OperatorRecord, TypedContext } from '../../ops/record/record.ts';
import { product } from '../../product.ts';
import { sliceParts } from './relations.ts';
import { cumulative } from './window-relations.ts';

export interface Resized {
  /** The call at the old sizes. */
  readonly ctx: TypedContext;
  /** New shapes, as `ctx.inputs` and `ctx.outputs`. */
  readonly inputs: readonly (readonly number[])[];
  readonly outputs: readonly (readonly number[])[];
  /** New values of literals that have axes of their own, by name. */
  readonly literals: Readonly<Record<string, number>>;
}

/** New values of some arguments, by name. */
type Literals = (call: Resized) => Readonly<Record<string, Arg>>;

/** The call with the literals whose meaning is known at the new sizes. */
export function written(node: Node, record: OperatorRecord, call: Resized): Node {
  const name = record.name.replace(/^(aten|prims)\./, '');
  const rewrite = Object.hasOwn(LITERALS, name) ? LITERALS[name] : undefined;
  return rewrite === undefined ? node : withArgs(record, node, rewrite(call));
}

/** The call with every number that is a size of its tensors replaced by the new one. */
export function byValue(node: Node, call: Resized): Node {
  const sizes = new Map<number, number>();
  const pairs = [
    ...call.ctx.outputs.map((m, i) => [m, call.outputs[i]] as const),
    ...call.ctx.inputs.map((m, i) => [m, call.inputs[i]] as const),
  ];
  for (const [meta, to] of pairs)
    meta?.shape.forEach((n, d) => !sizes.has(n) && sizes.set(n, to[d]));
  const change = (arg: Arg): Arg => {
    if (isList(arg)) return arg.map(change);
    return typeof arg === 'number' && arg > 1 ? (sizes.get(arg) ?? arg) : arg;
  };
  const kwargs = Object.fromEntries(
    Object.entries(node.kwargs).map(([key, arg]) => [key, change(arg)]),
  );
  return { ...node, args: node.args.map(change), kwargs };
}

function withArgs(
  record: OperatorRecord,
  node: Node,
  changed: Readonly<Record<string, Arg>>,
): Node {
  const args = [...node.args];
  const kwargs = { ...node.kwargs };
  let position = 0;
  for (const s of record.schema) {
    const at = s.kwargOnly ? -1 : position++;
    if (!Object.hasOwn(changed, s.name)) continue;
    if (at >= 0 && at < args.length) args[at] = changed[s.name];
    else if (Object.hasOwn(kwargs, s.name)) kwargs[s.name] = changed[s.name];
  }
  return { ...node, args, kwargs };
}

/** The result's shape, where the call does not leave a size open. */
const shaped =
  (name: string): Literals =>
  ({ ctx, outputs }) => ({ [name]: ctx.ints(name).map((n, d) => (n === -1 ? -1 : outputs[0][d])) });

const dimOf = (ctx: TypedContext, rank: number): number =>
  ctx.int('dim') < 0 ? ctx.int('dim') + rank : ctx.int('dim');

/** The last dims of an operand. */
const trailing =
  (name: string, of: string): Literals =>
  ({ ctx, inputs }) => {
    const count = (ctx.optionalInts(name) ?? []).length;
    const shape = inputs[ctx.indexOf(of)];
    return { [name]: shape.slice(shape.length - count) };
  };

type Parts = (call: Resized) => readonly [before: number, whole: number, rows: number];
const along = (
  before: readonly number[],
  whole: readonly number[],
  part: readonly number[],
  ctx: TypedContext,
): readonly [number, number, number] => {
  const dim = dimOf(ctx, before.length);
  return [before[dim], whole[dim], part[dim]];
};
const cutOut: Parts = ({ ctx, inputs, outputs }) =>
  along(ctx.inputs[0].shape, inputs[0], outputs[0], ctx);
const putIn: Parts = ({ ctx, inputs }) => along(ctx.inputs[0].shape, inputs[0], inputs[1], ctx);
const gradient: Parts = ({ ctx, inputs, outputs }) =>
  along(ctx.outputs[0]?.shape ?? [], outputs[0], inputs[0], ctx);

const slice =
  (parts: Parts): Literals =>
  (call) => {
    const { ctx, outputs, literals } = call;
    const [before, whole, rows] = parts(call);
    const { start, rest, step } = sliceParts(ctx, before);
    const backward: Record<string, Arg> = ctx.target.includes('slice_backward')
      ? { input_sizes: [...outputs[0]] }
      : {};
    const from = literals['start'] ?? start;
    return {
      ...backward,
      start: from,
      end: rest <= 0 ? whole : step === 1 ? from + rows : (ctx.optionalInt('end') ?? whole),
    };
  };

const select: Literals = ({ ctx, outputs, literals }) => ({
  ...(ctx.target.includes('backward') ? { input_sizes: [...outputs[0]] } : {}),
  ...(ctx.int('index') < 0 ? {} : { index: literals['start'] ?? ctx.int('index') }),
});

const repeats: Literals = ({ ctx, inputs, outputs }) => {
  const times = ctx.ints('repeats');
  return {
    repeats: times.map((n, out) =>
      (inputs[0][out - (times.length - inputs[0].length)] ?? 1) === 1 ? outputs[0][out] : n,
    ),
  };
};

/** Counting from a start: as many rows as the result has now. */
const range: Literals = ({ ctx, outputs }) => {
  const start = ctx.target.includes('start') ? ctx.number('start') : 0;
  const step = ctx.target.includes('step') ? ctx.number('step') : 1;
  if (step !== 1 || !Number.isInteger(start)) return {};
  const end = start + outputs[0][0];
  return { end: ctx.scalar('end')?.kind === 'float' ? { kind: 'float', value: end } : end };
};

/** Rows of the results of a split. */
const partSizes =
  (name: string): Literals =>
  ({ ctx, inputs, outputs }) => {
    const dim = dimOf(ctx, inputs[0].length);
    return { [name]: outputs.map((shape) => shape[dim]) };
  };

const unflatten: Literals = ({ ctx, inputs, outputs }) => {
  const dim = dimOf(ctx, inputs[0].length);
  return { sizes: ctx.ints('sizes').map((n, i) => (n === -1 ? -1 : outputs[0][dim + i])) };
};

const groupNorm: Literals = ({ ctx, inputs }) => {
  const [rows, channels, ...spatial] = inputs[ctx.indexOf('input')];
  return { N: rows, C: channels, HxW: product(spatial) };
};

const resultDim =
  (name: string, dim: (ctx: TypedContext, rank: number) => number = () => 0): Literals =>
  ({ ctx, outputs }) => ({ [name]: outputs[0][dim(ctx, outputs[0].length)] });

const last = (_: TypedContext, rank: number): number => rank - 1;

const groups: Literals = ({ literals }): Record<string, Arg> =>
  literals['groups'] === undefined ? {} : { groups: literals['groups'] };
const convolutionGradient: Literals = (call) => ({
  ...groups(call),
  ...(call.ctx.has('bias_sizes')
    ? { bias_sizes: [call.inputs[call.ctx.indexOf('grad_output')][1]] }
    : {}),
});

/** Sizes of the result, of images that are resampled or padded to a stated size. */
const imageSize =
  (name: string): Literals =>
  ({ ctx, outputs }): Record<string, Arg> => {
    const count = ctx.optionalInts(name)?.length;
    return count === undefined ? {} : { [name]: outputs[0].slice(outputs[0].length - count) };
  };

const stablehloSlice: Literals = ({ ctx, inputs, outputs, literals }) => {
  const { shape } = ctx.inputs[0];
  const starts = ctx.ints('start_indices').map((n, d) => literals[`start${d}`] ?? n);
  const limits = ctx.ints('limit_indices').map((n, d) => {
    if (n === shape[d]) return inputs[0][d];
    return (ctx.ints('strides')[d] ?? 1) === 1 ? starts[d] + outputs[0][d] : n;
  });
  return { start_indices: starts, limit_indices: limits };
};

/** A window that is as wide as the dim stays so. */
const cumulativeWindow: Literals = ({ ctx, inputs }) => {
  const { shape } = ctx.inputs[0];
  const widths = [...ctx.ints('window_dimensions')];
  const padding = [...ctx.ints('padding')];
  shape.forEach((rows, d) => {
    if (!cumulative(widths[d], rows, padding[2 * d] ?? 0, padding[2 * d + 1] ?? 0)) return;
    for (const side of [2 * d, 2 * d + 1]) if (padding[side] > 0) padding[side] = inputs[0][d] - 1;
    widths[d] = inputs[0][d];
  });
  return { window_dimensions: widths, padding };
};

const LITERALS: Readonly<Record<string, Literals>> = {
  ...Object.fromEntries(
    [
      'view',
      '_unsafe_view',
      'expand',
      'zeros',
      'ones',
      'full',
      'rand',
      'randn',
      'new_zeros',
      'new_ones',
      'new_empty',
      'new_full',
      'empty_strided',
      'new_empty_strided',
    ].map((name) => [`${name}.default`, shaped('size')]),
  ),
  'empty.memory_format': shaped('size'),
  'reshape.default': shaped('shape'),
  'unflatten.int': unflatten,
  'slice_backward.default': slice(gradient),
  'slice.Tensor': slice(cutOut),
  'slice_scatter.default': slice(putIn),
  'select.int': select,
  'select_scatter.default': select,
  'select_backward.default': select,
  'split.Tensor': resultDim('split_size', dimOf),
  'split_copy.Tensor': resultDim('split_size', dimOf),
  'split.sizes': partSizes('split_size'),
  'split_with_sizes.default': partSizes('split_sizes'),
  'repeat.default': repeats,
  'arange.default': range,
  'arange.start': range,
  'arange.start_step': range,
  'iota.default': resultDim('length'),
  'topk.default': resultDim('k', dimOf),
  'histc.default': resultDim('bins'),
  'one_hot.default': resultDim('num_classes', last),
  'embedding_dense_backward.default': resultDim('num_weights'),
  'native_layer_norm.default': trailing('normalized_shape', 'input'),
  'native_layer_norm_backward.default': trailing('normalized_shape', 'input'),
  'layer_norm.default': trailing('normalized_shape', 'input'),
  '_fused_rms_norm.default': trailing('normalized_shape', 'input'),
  '_fused_rms_norm_backward.default': trailing('normalized_shape', 'input'),
  'rms_norm.default': trailing('normalized_shape', 'input'),
  'convolution.default': groups,
  'conv1d.default': groups,
  'conv2d.default': groups,
  'conv3d.default': groups,
  'convolution_backward.default': convolutionGradient,
  'native_group_norm.default': groupNorm,
  'native_group_norm_backward.default': groupNorm,
  ...Object.fromEntries(
    ['constant', 'iota', 'broadcast_in_dim', 'reshape', 'bitcast_convert', 'rng'].map((name) => [
      `stablehlo.${name}`,
      shaped('shape'),
    ]),
  ),
  'stablehlo.rng_bit_generator': ({ outputs }) => ({ shape: [...outputs[1]] }),
  'jax.random_bits': ({ inputs, outputs }) => ({
    shape: outputs[0].slice(inputs[0].length - 1),
  }),
  'jax.random_split': ({ inputs, outputs }) => ({
    shape: outputs[0].slice(inputs[0].length - 1, -1),
  }),
  'stablehlo.slice': stablehloSlice,
  'stablehlo.dynamic_slice': ({ outputs }) => ({ slice_sizes: [...outputs[0]] }),
  'stablehlo.gather': ({ ctx, inputs }) => ({
    slice_sizes: ctx
      .ints('slice_sizes')
      .map((n, d) => (n === ctx.inputs[0].shape[d] ? inputs[0][d] : n)),
  }),
  'stablehlo.reduce_window': cumulativeWindow,
  'chlo.top_k': resultDim('k', last),
  ...Object.fromEntries(
    [
      'upsample_nearest1d',
      'upsample_nearest2d',
      'upsample_nearest3d',
      '_upsample_nearest_exact2d',
      'upsample_bilinear2d',
      'upsample_bicubic2d',
      '_adaptive_avg_pool2d',
      'adaptive_avg_pool2d',
    ].map((name) => [`${name}.default`, imageSize('output_size')]),
  ),
};
