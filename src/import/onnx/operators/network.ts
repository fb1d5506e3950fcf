/** Products, convolutions, pooling, norms and reductions of ai.onnx. */

import type { Arg } from '../../../graph/types.ts';
import { floatArg, type Lowering, type OnnxCall, type OnnxOperand } from '../call.ts';
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
  const [transA, transB] = [c.int('transA', 0) !== 0, c.int('transB', 0) !== 0];
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
  if (c.int('transBatchA', 0) !== 0 || c.int('transBatchB', 0) !== 0)
    return c.fail('E_UNSUPPORTED', 'a transposed batch');
  const turned = (i: number, name: string): OnnxOperand =>
    c.int(name, 0) !== 0 ? c.build.emit('aten.transpose.int', [c.arg(i), -2, -1]) : c.input(i);
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

/**
 * Kernel, stride, dilation and pads of a convolution or pool over the dims behind the first two.
 */
function windowOf(c: OnnxCall, kernel: readonly number[]): Window {
  const n = kernel.length;
  const stride = c.ints('strides') ?? kernel.map(() => 1);
  const dilation = c.ints('dilations') ?? kernel.map(() => 1);
  let pads = c.ints('pads') ?? new Array<number>(2 * n).fill(0);
  const auto = c.text('auto_pad', 'NOTSET');
  if (auto === 'SAME_UPPER' || auto === 'SAME_LOWER') {
    const total = kernel.map((k, i) => {
      const size = c.size(c.type(0).shape[i + 2], 'a dim under SAME padding');
      const out = Math.ceil(size / stride[i]);
      return Math.max(0, (out - 1) * stride[i] + (k - 1) * dilation[i] + 1 - size);
    });
    const less = total.map((t) => Math.floor(t / 2));
    const more = total.map((t, i) => t - less[i]);
    pads = auto === 'SAME_UPPER' ? [...less, ...more] : [...more, ...less];
  } else if (auto === 'VALID') pads = new Array<number>(2 * n).fill(0);
  else if (auto !== 'NOTSET') c.fail('E_UNSUPPORTED', `auto_pad '${auto}'`);
  if (stride.length !== n || dilation.length !== n || pads.length !== 2 * n)
    c.fail('E_TYPE', `strides, dilations and pads do not fit a window of ${n} dims`);
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

const convolution =
  (transposed: boolean): Lowering =>
  (c) => {
    const { shape } = c.type(1);
    if (shape.length < 3 || c.rank(0) !== shape.length)
      return c.fail('E_TYPE', `an input of ${c.rank(0)} dims and a kernel of ${shape.length}`);
    const kernel = shape.slice(2).map((dim) => c.size(dim, 'a dim of the kernel'));
    const window = windowOf(c, kernel);
    if (
      transposed &&
      (c.ints('output_shape') !== undefined || window.begins.some((n, i) => n !== window.ends[i]))
    )
      return c.fail('E_UNSUPPORTED', 'a transposed convolution with uneven pads');
    const { operand, padding } = transposed
      ? { operand: c.input(0), padding: window.begins }
      : evened(c, window, floatArg(0));
    const extra = (transposed ? c.ints('output_padding') : undefined) ?? kernel.map(() => 0);
    return [
      c.build.emit('aten.convolution.default', [
        c.build.ref(operand),
        c.arg(1),
        c.optionalArg(2),
        window.stride,
        padding,
        window.dilation,
        transposed,
        extra,
        c.int('group', 1),
      ]),
    ];
  };

const pool =
  (kind: 'max' | 'avg'): Lowering =>
  (c) => {
    const kernel =
      c.ints('kernel_shape') ?? c.fail('E_TYPE', `attribute 'kernel_shape' is missing`);
    if (kernel.length !== 2) return c.fail('E_UNSUPPORTED', `pooling over ${kernel.length} dims`);
    if (c.node.outputs.length > 1) return c.fail('E_UNSUPPORTED', 'the positions of the maxima');
    const window = windowOf(c, kernel);
    const ceil = c.int('ceil_mode', 0) === 1;
    if (kind === 'max') {
      const { operand, padding } = evened(c, window, floatArg(-Infinity));
      return [
        c.build.emit('aten.max_pool2d.default', [
          c.build.ref(operand),
          kernel,
          window.stride,
          padding,
          window.dilation,
          ceil,
        ]),
      ];
    }
    if (window.dilation.some((n) => n !== 1))
      return c.fail('E_UNSUPPORTED', 'average pooling with dilation');
    if (window.begins.some((n, i) => n !== window.ends[i]))
      return c.fail('E_UNSUPPORTED', 'average pooling with uneven pads');
    const counted = c.int('count_include_pad', 0) === 1;
    return [
      c.build.emit('aten.avg_pool2d.default', [
        c.arg(0),
        kernel,
        window.stride,
        window.begins,
        ceil,
        counted,
      ]),
    ];
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
  if (c.int('training_mode', 0) === 1)
    return c.fail('E_UNSUPPORTED', 'batch norm in training mode');
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
  const channels = c.size(c.type(0).shape[1] ?? 0, 'the number of channels');
  const epsilon = floatArg(c.float('epsilon', 1e-5));
  return [
    c.build.emit('aten.group_norm.default', [c.arg(0), channels, c.arg(1), c.arg(2), epsilon]),
  ];
};

/** Reduced axes, counted from the front; undefined where the operator returns its input. */
function reducedAxes(c: OnnxCall): number[] | undefined {
  const axes = c.axes(1);
  if (axes !== undefined && axes.length > 0) return axes.map((axis) => c.axis(axis, c.rank(0)));
  if (c.int('noop_with_empty_axes', 0) === 1) return undefined;
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
      value = c.build.emit(target, [c.build.ref(value), axes, c.int('keepdims', 1) === 1]);
    for (const step of after) value = c.build.emit(step, [c.build.ref(value)]);
    return [value];
  };

const reduceProduct: Lowering = (c) => {
  const keep = c.int('keepdims', 1) === 1;
  let value = c.input(0);
  for (const axis of (reducedAxes(c) ?? []).sort((a, b) => b - a))
    value = c.build.emit('aten.prod.dim_int', [c.build.ref(value), axis, keep]);
  return [value];
};

const position =
  (target: string): Lowering =>
  (c) => {
    if (c.int('select_last_index', 0) === 1)
      return c.fail('E_UNSUPPORTED', 'the last of several equal positions');
    return [
      c.build.emit(target, [
        c.arg(0),
        c.axis(c.int('axis', 0), c.rank(0)),
        c.int('keepdims', 1) === 1,
      ]),
    ];
  };

const topK: Lowering = (c) => {
  const k = c.int('k') ?? c.constantInts(1)?.[0] ?? c.fail('E_TYPE', 'k is missing');
  const flags = [c.int('largest', 1) === 1, c.int('sorted', 1) === 1];
  return c.build.emitTuple('aten.topk.default', [c.arg(0), k, c.int('axis', -1), ...flags]);
};

const cumSum: Lowering = (c) => {
  if (c.int('exclusive', 0) === 1 || c.int('reverse', 0) === 1)
    return c.fail('E_UNSUPPORTED', 'an exclusive or reversed sum');
  const axis = c.constantInts(1)?.[0] ?? c.fail('E_TYPE', 'the axis is missing');
  return [c.build.emit('aten.cumsum.default', [c.arg(0), axis])];
};

/** Inference: the mask of a dropout is not made. */
const dropout: Lowering = (c) => {
  if (c.node.outputs.length > 1) return c.fail('E_UNSUPPORTED', 'the mask of a dropout');
  return [c.input(0)];
};

/** Opset 23, four-dimensional and without a cache. */
const attention: Lowering = (c) => {
  if (
    c.rank(0) !== 4 ||
    c.operands.slice(4).some((o) => o !== undefined) ||
    c.node.outputs.length > 1
  )
    return c.fail('E_UNSUPPORTED', 'attention with packed heads, a cache, or its inner results');
  const scale = c.attribute('scale')?.float;
  return [
    c.build.emit(
      'aten.scaled_dot_product_attention.default',
      [c.arg(0), c.arg(1), c.arg(2), c.optionalArg(3), floatArg(0), c.int('is_causal', 0) === 1],
      { ...(scale === undefined ? {} : { scale: floatArg(scale) }), enable_gqa: true },
    ),
  ];
};

export const NETWORK: readonly (readonly [string, Lowering])[] = [
  ['MatMul', (c) => [product(c, c.input(0), c.input(1))]],
  ['com.microsoft.FusedMatMul', fusedMatMul],
  ['Gemm', gemm],
  ['Conv', convolution(false)],
  ['ConvTranspose', convolution(true)],
  ['MaxPool', pool('max')],
  ['AveragePool', pool('avg')],
  ['GlobalAveragePool', globalPool('aten.mean.dim')],
  ['GlobalMaxPool', globalPool('aten.amax.default')],
  ['LayerNormalization', layerNorm],
  ['RMSNormalization', rmsNorm],
  ['SimplifiedLayerNormalization', rmsNorm],
  ['com.microsoft.SimplifiedLayerNormalization', rmsNorm],
  ['BatchNormalization', batchNorm],
  ['GroupNormalization', groupNorm],
  ['InstanceNormalization', instanceNorm],
  ['Softmax', (c) => [c.build.emit('aten.softmax.int', [c.arg(0), c.int('axis', -1)])]],
  ['LogSoftmax', (c) => [c.build.emit('aten.log_softmax.int', [c.arg(0), c.int('axis', -1)])]],
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
  ['ArgMax', position('aten.argmax.default')],
  ['ArgMin', position('aten.argmin.default')],
  ['TopK', topK],
  ['CumSum', cumSum],
  ['Dropout', dropout],
  ['Attention', attention],
];
