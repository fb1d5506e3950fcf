/** Products, convolutions, pooling, norms and reductions of ai.onnx. */

import { type Arg, type DType, DTYPE_BYTES } from '../../../graph/types.ts';
import { itemAt } from '../../../item-at.ts';
import { dimArg, floatArg, type Lowering, type OnnxCall, type OnnxOperand } from '../call.ts';
import { padded } from './movement.ts';

function product(c: OnnxCall, a: OnnxOperand, b: OnnxOperand): OnnxOperand {
  const ranks = [a.type.shape.length, b.type.shape.length];
  const target = ranks[0] === 2 && ranks[1] === 2 ? 'aten.mm.default' : 'aten.matmul.default';
  return c.build.emit(target, [c.build.ref(a), c.build.ref(b)]);
}

/**
 * alpha A B + beta C. The form of a linear layer (B transposed, C a vector or absent) becomes
 * `linear`.
 */
const gemm: Lowering = (c) => {
  const [alpha, beta] = [c.float('alpha', 1), c.float('beta', 1)];
  const [transA, transB] = [c.flag('transA', false), c.flag('transB', false)];
  const bias = c.optional(2);
  if (
    transB &&
    !transA &&
    alpha === 1 &&
    (bias === undefined || (beta === 1 && bias.type.shape.length === 1))
  )
    return [
      c.build.emit('aten.linear.default', [
        c.arg(0),
        c.arg(1),
        ...(bias === undefined ? [] : [c.arg(2)]),
      ]),
    ];
  const turned = (i: number, turn: boolean): OnnxOperand =>
    turn ? c.build.emit('aten.t.default', [c.arg(i)]) : c.input(i);
  const [a, b] = [turned(0, transA), turned(1, transB)];
  if (bias !== undefined) {
    const factors: Record<string, Arg> = {
      ...(beta === 1 ? {} : { beta: floatArg(beta) }),
      ...(alpha === 1 ? {} : { alpha: floatArg(alpha) }),
    };
    return [
      c.build.emit(
        'aten.addmm.default',
        [c.build.ref(bias), c.build.ref(a), c.build.ref(b)],
        factors,
      ),
    ];
  }
  const made = product(c, a, b);
  return [
    alpha === 1 ? made : c.build.emit('aten.mul.Tensor', [c.build.ref(made), floatArg(alpha)]),
  ];
};

/** com.microsoft: MatMul with the last two dims of an operand exchanged first. */
const fusedMatMul: Lowering = (c) => {
  if (c.flag('transBatchA', false) || c.flag('transBatchB', false))
    return c.fail('E_UNSUPPORTED', 'a transposed batch');
  const turned = (i: number, name: string): OnnxOperand =>
    c.flag(name, false) ? c.build.emit('aten.transpose.int', [c.arg(i), -2, -1]) : c.input(i);
  const made = product(c, turned(0, 'transA'), turned(1, 'transB'));
  const alpha = c.float('alpha', 1);
  return [
    alpha === 1 ? made : c.build.emit('aten.mul.Tensor', [c.build.ref(made), floatArg(alpha)]),
  ];
};

interface Window {
  readonly kernel: number[];
  readonly stride: number[];
  readonly dilation: number[];
  readonly begins: number[];
  readonly ends: number[];
}

/** So many integers of an attribute, each the default where it is absent. @throws E_TYPE */
function intsOf(c: OnnxCall, attribute: string, count: number, fallback: number): number[] {
  const given = c.ints(attribute) ?? new Array<number>(count).fill(fallback);
  if (given.length !== count)
    c.fail('E_TYPE', `attribute '${attribute}' has ${given.length} numbers where ${count} fit`);
  return given;
}

/** Strides or dilations of a window: for each of its dims a number from 1. @throws E_TYPE */
function stepsOf(c: OnnxCall, attribute: 'strides' | 'dilations', count: number): number[] {
  const steps = intsOf(c, attribute, count, 1);
  if (steps.some((step) => step < 1))
    c.fail('E_TYPE', `attribute '${attribute}' is [${steps.join(', ')}]: it counts from 1`);
  return steps;
}

const AUTO_PADS = ['NOTSET', 'SAME_UPPER', 'SAME_LOWER', 'VALID'] as const;

/**
 * Kernel, stride, dilation and pads of a convolution or pool over the dims behind the first two.
 */
function windowOf(c: OnnxCall, kernel: readonly number[]): Window {
  const n = kernel.length;
  const stride = stepsOf(c, 'strides', n);
  const dilation = stepsOf(c, 'dilations', n);
  let pads = intsOf(c, 'pads', 2 * n, 0);
  const auto = c.word('auto_pad', AUTO_PADS, 'NOTSET');
  if (auto === 'SAME_UPPER' || auto === 'SAME_LOWER') {
    const total = kernel.map((k, i) => {
      const size = c.sizeAt(c.type(0), i + 2, 'a dim under SAME padding');
      const step = itemAt(stride, i);
      const out = Math.ceil(size / step);
      return Math.max(0, (out - 1) * step + (k - 1) * itemAt(dilation, i) + 1 - size);
    });
    const less = total.map((t) => Math.floor(t / 2));
    const more = total.map((t) => Math.ceil(t / 2));
    pads = auto === 'SAME_UPPER' ? [...less, ...more] : [...more, ...less];
  } else if (auto === 'VALID') pads = new Array<number>(2 * n).fill(0);
  return { kernel: [...kernel], stride, dilation, begins: pads.slice(0, n), ends: pads.slice(n) };
}

/** torch pads both ends equally; other padding is made before. */
function evened(
  c: OnnxCall,
  window: Window,
  value: Arg,
): { operand: OnnxOperand; padding: number[] } {
  const { begins, ends } = window;
  if (begins.every((n, i) => n === ends[i])) return { operand: c.input(0), padding: begins };
  const axes = begins.map((_, i) => i + 2);
  return {
    operand: padded(c, c.input(0), axes, [...begins, ...ends], value),
    padding: begins.map(() => 0),
  };
}

/**
 * The whole transposed convolution, cut to the stated pads: `auto_pad` and `output_shape` say the
 * sizes of the result, and the pads follow (the formula of ONNX's ConvTranspose).
 */
function transposedConvolution(c: OnnxCall, kernel: readonly number[]): OnnxOperand {
  const n = kernel.length;
  const stride = stepsOf(c, 'strides', n);
  const dilation = stepsOf(c, 'dilations', n);
  const extra = intsOf(c, 'output_padding', n, 0);
  const auto = c.word('auto_pad', AUTO_PADS, 'NOTSET');
  const sizes = c
    .type(0)
    .shape.slice(2)
    .map((dim) => c.size(dim, 'a dim of the input'));
  const whole = sizes.map(
    (size, i) =>
      itemAt(stride, i) * (size - 1) +
      itemAt(extra, i) +
      (itemAt(kernel, i) - 1) * itemAt(dilation, i) +
      1,
  );
  const isSame = auto === 'SAME_UPPER' || auto === 'SAME_LOWER';
  const wanted =
    c.ints('output_shape')?.slice(-n) ??
    (isSame ? sizes.map((s, i) => s * itemAt(stride, i)) : undefined);
  let pads = intsOf(c, 'pads', 2 * n, 0);
  if (wanted !== undefined) {
    const total = whole.map((size, i) => size - itemAt(wanted, i));
    const half = total.map((t) => Math.floor(t / 2));
    const rest = total.map((t) => Math.ceil(t / 2));
    pads = auto === 'SAME_UPPER' ? [...half, ...rest] : [...rest, ...half];
  }
  const isEven = pads.every((pad, i) => pad >= 0 && pad === pads[(i + n) % (2 * n)]);
  const padding = isEven ? pads.slice(0, n) : kernel.map(() => 0);
  const made = c.op(
    'convolution',
    c.input(0),
    c.input(1),
    c.optionalArg(2),
    stride,
    padding,
    dilation,
    true,
    isEven ? extra : kernel.map(() => 0),
    c.int('group', 1),
  );
  if (isEven) return made;
  const axes = kernel.map((_, i) => i + 2);
  const cut = pads.map((pad, i) => (i < n ? -pad : itemAt(extra, i - n) - pad));
  return padded(c, made, axes, cut, floatArg(0));
}

const convolution =
  (transposed: boolean): Lowering =>
  (c) => {
    const { shape } = c.type(1);
    if (shape.length < 3 || c.rank(0) !== shape.length)
      return c.fail('E_TYPE', `an input of ${c.rank(0)} dims and a kernel of ${shape.length}`);
    const kernel = shape.slice(2).map((dim) => c.size(dim, 'a dim of the kernel'));
    const stated = c.ints('kernel_shape');
    if (stated !== undefined && stated.join() !== kernel.join())
      c.fail(
        'E_TYPE',
        `attribute 'kernel_shape' is [${stated.join(', ')}], not that of the weight`,
      );
    if (transposed) return [transposedConvolution(c, kernel)];
    const window = windowOf(c, kernel);
    const { operand, padding } = evened(c, window, floatArg(0));
    return [
      c.build.emit('aten.convolution.default', [
        c.build.ref(operand),
        c.arg(1),
        c.optionalArg(2),
        window.stride,
        padding,
        window.dilation,
        false,
        kernel.map(() => 0),
        c.int('group', 1),
      ]),
    ];
  };

/** Ends with what a last window may reach into, where sizes are rounded up. */
function ceiled(c: OnnxCall, { kernel, stride, dilation, begins, ends }: Window): number[] {
  return kernel.map((k, i) => {
    const [end, step] = [itemAt(ends, i), itemAt(stride, i)];
    const size = c.sizeAt(c.type(0), i + 2, 'a pooled dim') + itemAt(begins, i) + end;
    const reach = (k - 1) * itemAt(dilation, i) + 1;
    const out = Math.ceil((size - reach) / step) + 1;
    // A window that starts in the padding at the end is none.
    const last = (out - 1) * step >= size - end ? out - 2 : out - 1;
    return Math.max(end, end + last * step + reach - size);
  });
}

function poolWindow(c: OnnxCall): Window {
  const kernel = c.ints('kernel_shape') ?? c.fail('E_TYPE', `attribute 'kernel_shape' is missing`);
  const window = windowOf(c, kernel);
  return c.flag('ceil_mode', false) ? { ...window, ends: ceiled(c, window) } : window;
}

const maxPool: Lowering = (c) => {
  const { kernel, stride, dilation, begins, ends } = poolWindow(c);
  // The order of indices, which are not a result here.
  c.int('storage_order', 0);
  const n = kernel.length;
  if (n > 3) return c.fail('E_UNSUPPORTED', `pooling over ${n} dims`, 'pool over three at a time');
  const axes = kernel.map((_, i) => i + 2);
  const isEven = begins.every((pad, i) => pad === ends[i] && 2 * pad <= itemAt(kernel, i));
  const low = lowest(c.type(0).dtype);
  const input = isEven ? c.input(0) : padded(c, c.input(0), axes, [...begins, ...ends], low);
  const padding = isEven ? begins : begins.map(() => 0);
  if (n !== 1) return [c.op(`max_pool${n}d`, input, kernel, stride, padding, dilation, false)];
  const wide = c.op('unsqueeze', input, 2);
  const lead = (list: readonly number[], first: number): number[] => [first, ...list];
  const pooled = c.op(
    'max_pool2d',
    wide,
    lead(kernel, 1),
    lead(stride, 1),
    lead(padding, 0),
    lead(dilation, 1),
    false,
  );
  return [c.op('squeeze.dims', pooled, [2])];
};

/** The number that no other is below. */
function lowest(dtype: DType): Arg {
  if (!/^[iu]/.test(dtype)) return floatArg(-Infinity);
  return dtype.startsWith('u') ? 0 : -(2 ** (8 * DTYPE_BYTES[dtype] - 1));
}

/** Sums of the windows, as a convolution of each channel with ones. */
function windowSums(c: OnnxCall, x: OnnxOperand, window: Window): OnnxOperand {
  const { kernel, stride, dilation } = window;
  const channels = c.sizeAt(x.type, 1, 'the number of channels');
  const ones = c.filled(1, x.type.dtype, [channels, 1, ...kernel]);
  const none = kernel.map(() => 0);
  return c.op('convolution', x, ones, null, stride, none, dilation, false, none, channels);
}

const averagePool: Lowering = (c) => {
  const window = poolWindow(c);
  const { kernel, stride, dilation, begins, ends } = window;
  const isCounted = c.flag('count_include_pad', false);
  const isPlain =
    kernel.length === 2 &&
    !c.flag('ceil_mode', false) &&
    dilation.every((n) => n === 1) &&
    begins.every((pad, i) => pad === ends[i] && 2 * pad <= itemAt(kernel, i));
  if (isPlain) return [c.op('avg_pool2d', c.input(0), kernel, stride, begins, false, isCounted)];
  const axes = kernel.map((_, i) => i + 2);
  const pads = [...begins, ...ends];
  const sums = windowSums(c, padded(c, c.input(0), axes, pads, floatArg(0)), window);
  // Elements that count are 1: those of the input, and its stated padding where that counts.
  const stated = windowOf(c, kernel);
  const inner = padded(
    c,
    c.filled(1, c.type(0).dtype, c.type(0).shape),
    axes,
    [...stated.begins, ...stated.ends],
    floatArg(isCounted ? 1 : 0),
  );
  const beyond = [...begins.map(() => 0), ...ends.map((n, i) => n - itemAt(stated.ends, i))];
  const counts = windowSums(c, padded(c, inner, axes, beyond, floatArg(0)), window);
  return [c.op('div.Tensor', sums, counts)];
};

/** The p-norm of each window. */
const lpPool: Lowering = (c) => {
  const window = poolWindow(c);
  const p = c.int('p', 2);
  const axes = window.kernel.map((_, i) => i + 2);
  const x = padded(c, c.input(0), axes, [...window.begins, ...window.ends], floatArg(0));
  const powers = c.op('pow.Tensor_Scalar', c.op('abs', x), p);
  return [c.op('pow.Tensor_Scalar', windowSums(c, powers, window), floatArg(1 / p))];
};

/** Over all dims behind the first two. */
const globalPool =
  (target: string): Lowering =>
  (c) => [
    c.build.emit(target, [c.arg(0), Array.from({ length: c.rank(0) - 2 }, (_, i) => i + 2), true]),
  ];

const normalized = (c: OnnxCall, axis: number): number[] =>
  c
    .type(0)
    .shape.slice(c.axis(axis, c.rank(0)))
    .map((dim) => c.size(dim, 'a normalized dim'));

const layerNorm: Lowering = (c) => {
  const shape = normalized(c, c.int('axis', -1));
  const epsilon = floatArg(c.float('epsilon', 1e-5));
  if (c.node.outputs.filter((name) => name !== '').length <= 1)
    return [
      c.build.emit('aten.layer_norm.default', [
        c.arg(0),
        shape,
        c.arg(1),
        c.optionalArg(2),
        epsilon,
      ]),
    ];
  return c.build.emitTuple('aten.native_layer_norm.default', [
    c.arg(0),
    shape,
    c.arg(1),
    c.optionalArg(2),
    epsilon,
  ]);
};

const rmsNorm: Lowering = (c) => {
  if (c.node.outputs.filter((name) => name !== '').length > 1)
    return c.fail('E_UNSUPPORTED', 'the statistics of an RMS norm');
  const epsilon = floatArg(c.float('epsilon', 1e-5));
  return [
    c.build.emit('aten.rms_norm.default', [
      c.arg(0),
      normalized(c, c.int('axis', -1)),
      c.arg(1),
      epsilon,
    ]),
  ];
};

const batchNorm: Lowering = (c) => {
  if (c.flag('training_mode', false)) return c.fail('E_UNSUPPORTED', 'batch norm in training mode');
  const momentum = floatArg(1 - c.float('momentum', 0.9));
  const epsilon = floatArg(c.float('epsilon', 1e-5));
  const stats = [1, 2, 3, 4].map((i) => c.arg(i));
  return [
    c.build.emit('aten.batch_norm.default', [c.arg(0), ...stats, false, momentum, epsilon, false]),
  ];
};

const groupNorm: Lowering = (c) => {
  const groups = c.int('num_groups') ?? c.fail('E_TYPE', `attribute 'num_groups' is missing`);
  const epsilon = floatArg(c.float('epsilon', 1e-5));
  return [c.build.emit('aten.group_norm.default', [c.arg(0), groups, c.arg(1), c.arg(2), epsilon])];
};

const instanceNorm: Lowering = (c) => {
  const channels = c.sizeAt(c.type(0), 1, 'the number of channels');
  const epsilon = floatArg(c.float('epsilon', 1e-5));
  return [
    c.build.emit('aten.group_norm.default', [c.arg(0), channels, c.arg(1), c.arg(2), epsilon]),
  ];
};

/** Before opset 13 the axis and all behind it count as one. */
function alongAxis(c: OnnxCall, make: (x: OnnxOperand, axis: number) => OnnxOperand): OnnxOperand {
  const rank = c.rank(0);
  if (c.opset >= 13) return make(c.input(0), c.axis(c.int('axis', -1), rank));
  const axis = c.axis(c.int('axis', 1), rank);
  if (axis === rank - 1) return make(c.input(0), axis);
  const flat = c.op('flatten.using_ints', c.input(0), axis, -1);
  return c.op('reshape', make(flat, axis), c.type(0).shape.map(dimArg));
}

function hardmax(c: OnnxCall, x: OnnxOperand, axis: number): OnnxOperand {
  const size = c.sizeAt(x.type, axis);
  const behind = Array.from({ length: x.type.shape.length - 1 - axis }, () => 1);
  const places = c.op('reshape', c.counted(size), [size, ...behind]);
  return c.cast(c.op('eq.Tensor', c.op('argmax', x, axis, true), places), x.type.dtype);
}

const lpNormalization: Lowering = (c) => {
  const axis = c.axis(c.int('axis', -1), c.rank(0));
  const p = c.int('p', 2);
  if (p !== 1 && p !== 2) c.fail('E_TYPE', `attribute 'p' is ${p}, neither 1 nor 2`);
  const norm = c.op('linalg_vector_norm', c.input(0), p, [axis], true);
  const isZero = c.op('eq.Scalar', norm, 0);
  const divided = c.op('div.Tensor', c.input(0), c.op('masked_fill.Scalar', norm, isZero, 1));
  return [divided];
};

const meanVariance: Lowering = (c) => {
  const axes = c.ints('axes') ?? [0, 2, 3];
  const centred = c.op('sub.Tensor', c.input(0), c.op('mean.dim', c.input(0), axes, true));
  const variance = c.op('mean.dim', c.op('square', centred), axes, true);
  return [c.op('div.Tensor', centred, c.op('add.Tensor', c.op('sqrt', variance), floatArg(1e-9)))];
};

/** x / (bias + alpha / size * sum of squares of the channels around)^beta. */
const lrn: Lowering = (c) => {
  const size = c.int('size') ?? c.fail('E_TYPE', `attribute 'size' is missing`);
  const before = Math.floor((size - 1) / 2);
  const squares = padded(
    c,
    c.op('square', c.input(0)),
    [1],
    [before, size - 1 - before],
    floatArg(0),
  );
  const channels = c.sizeAt(c.type(0), 1, 'the number of channels');
  let sum = c.op('slice.Tensor', squares, 1, 0, channels);
  for (let i = 1; i < size; i++)
    sum = c.op('add.Tensor', sum, c.op('slice.Tensor', squares, 1, i, channels + i));
  const scaled = c.op('mul.Tensor', sum, floatArg(c.float('alpha', 1e-4) / size));
  const base = c.op('add.Tensor', scaled, floatArg(c.float('bias', 1)));
  const divisor = c.op('pow.Tensor_Scalar', base, floatArg(c.float('beta', 0.75)));
  return [c.op('div.Tensor', c.input(0), divisor)];
};

const einsum: Lowering = (c) => {
  const equation = c.text('equation', '').replaceAll(' ', '');
  const operands = Array.from({ length: c.inputCount }, (_, i) => c.input(i));
  return [c.op('einsum', equation, operands)];
};

/** Reduced axes, counted from the front; undefined where the operator returns its input. */
function reducedAxes(c: OnnxCall): number[] | undefined {
  const axes = c.axes(1);
  if (axes !== undefined && axes.length > 0) return axes.map((axis) => c.axis(axis, c.rank(0)));
  if (c.flag('noop_with_empty_axes', false)) return undefined;
  return Array.from({ length: c.rank(0) }, (_, i) => i);
}

/** Reduction by one aten operator, between operators on the elements before and after. */
const reduce =
  (target: string, before: readonly string[] = [], after: readonly string[] = []): Lowering =>
  (c) => {
    const axes = reducedAxes(c);
    let value = c.input(0);
    for (const step of before) value = c.build.emit(step, [c.build.ref(value)]);
    if (axes !== undefined)
      value = c.build.emit(target, [c.build.ref(value), axes, c.flag('keepdims', true)]);
    for (const step of after) value = c.build.emit(step, [c.build.ref(value)]);
    return [value];
  };

const reduceProduct: Lowering = (c) => {
  const keep = c.flag('keepdims', true);
  let value = c.input(0);
  for (const axis of (reducedAxes(c) ?? []).sort((a, b) => b - a))
    value = c.build.emit('aten.prod.dim_int', [c.build.ref(value), axis, keep]);
  return [value];
};

/** The first or the last of several equal positions. */
const position =
  (target: string): Lowering =>
  (c) => {
    const axis = c.axis(c.int('axis', 0), c.rank(0));
    const keep = c.flag('keepdims', true);
    if (!c.flag('select_last_index', false)) return [c.op(target, c.input(0), axis, keep)];
    const size = c.sizeAt(c.type(0), axis);
    const backwards = c.op(target, c.op('flip', c.input(0), [axis]), axis, keep);
    return [c.op('rsub.Scalar', backwards, size - 1)];
  };

const topK: Lowering = (c) => {
  const k = c.int('k') ?? c.constantInts(1)?.[0] ?? c.fail('E_TYPE', 'k is missing');
  const flags = [c.flag('largest', true), c.flag('sorted', true)];
  return c.build.emitTuple('aten.topk.default', [c.arg(0), k, c.int('axis', -1), ...flags]);
};

/** Running sums or products, without the element itself (`exclusive`), backwards (`reverse`). */
const running =
  (target: string, neutral: number): Lowering =>
  (c) => {
    const axis = c.axis(
      c.constantInts(1)?.[0] ?? c.fail('E_TYPE', 'the axis is missing'),
      c.rank(0),
    );
    const isReversed = c.flag('reverse', false);
    let value = isReversed ? c.op('flip', c.input(0), [axis]) : c.input(0);
    if (c.flag('exclusive', false)) {
      const { dtype, shape } = value.type;
      const size = c.sizeAt(value.type, axis);
      const first = c.filled(
        neutral,
        dtype,
        shape.map((dim, d) => (d === axis ? 1 : dim)),
      );
      const rest = c.op('slice.Tensor', value, axis, 0, size - 1);
      value = c.op('cat', [first, rest], axis);
    }
    const sums = c.cast(c.op(target, value, axis), c.type(0).dtype);
    return [isReversed ? c.op('flip', sums, [axis]) : sums];
  };

/** Inference, where the mask is true everywhere. */
const dropout: Lowering = (c) => {
  // Opsets before 12 state these; an inference does not depend on them.
  c.float('ratio', 0.5);
  c.int('seed');
  c.int('is_test', 0);
  const ratio = c.optional(1)?.constant?.values[0];
  const isTraining = c.optional(2);
  if (isTraining !== undefined && isTraining.constant?.values[0] !== 0 && ratio !== 0)
    return c.fail(
      'E_UNSUPPORTED',
      'a dropout in training mode, whose draws ONNX leaves to the runtime',
      'export the model with training_mode false, or with ratio 0',
    );
  const mask = c.wants(1) ? c.filled(1, 'b8', c.type(0).shape) : undefined;
  return [c.input(0), mask];
};

export const NETWORK: readonly (readonly [string, Lowering])[] = [
  ['MatMul', (c) => [product(c, c.input(0), c.input(1))]],
  ['com.microsoft.FusedMatMul', fusedMatMul],
  ['Gemm', gemm],
  ['Conv', convolution(false)],
  ['ConvTranspose', convolution(true)],
  ['MaxPool', maxPool],
  ['AveragePool', averagePool],
  ['LpPool', lpPool],
  ['GlobalAveragePool', globalPool('aten.mean.dim')],
  ['GlobalMaxPool', globalPool('aten.amax.default')],
  ['LayerNormalization', layerNorm],
  ['RMSNormalization', rmsNorm],
  ['SimplifiedLayerNormalization', rmsNorm],
  ['com.microsoft.SimplifiedLayerNormalization', rmsNorm],
  ['BatchNormalization', batchNorm],
  ['GroupNormalization', groupNorm],
  ['InstanceNormalization', instanceNorm],
  ['Softmax', (c) => [alongAxis(c, (x, axis) => c.op('softmax.int', x, axis))]],
  ['LogSoftmax', (c) => [alongAxis(c, (x, axis) => c.op('log_softmax.int', x, axis))]],
  ['Hardmax', (c) => [alongAxis(c, (x, axis) => hardmax(c, x, axis))]],
  ['LpNormalization', lpNormalization],
  ['MeanVarianceNormalization', meanVariance],
  ['LRN', lrn],
  ['Det', (c) => [c.op('linalg_det', c.input(0))]],
  ['Einsum', einsum],
  ['ReduceSum', reduce('aten.sum.dim_IntList')],
  ['ReduceMean', reduce('aten.mean.dim')],
  ['ReduceMax', reduce('aten.amax.default')],
  ['ReduceMin', reduce('aten.amin.default')],
  ['ReduceL1', reduce('aten.sum.dim_IntList', ['aten.abs.default'])],
  ['ReduceL2', reduce('aten.sum.dim_IntList', ['aten.square.default'], ['aten.sqrt.default'])],
  ['ReduceLogSum', reduce('aten.sum.dim_IntList', [], ['aten.log.default'])],
  ['ReduceLogSumExp', reduce('aten.logsumexp.default')],
  ['ReduceSumSquare', reduce('aten.sum.dim_IntList', ['aten.square.default'])],
  ['ReduceProd', reduceProduct],
  ['ArgMax', position('argmax')],
  ['ArgMin', position('argmin')],
  ['TopK', topK],
  ['CumSum', running('cumsum', 0)],
  ['CumProd', running('cumprod', 1)],
  ['Dropout', dropout],
];
