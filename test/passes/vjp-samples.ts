import { GraphBuilder } from '../../src/graph/build.ts';
import type { Arg, DType, Graph, ValueRef, ValueType } from '../../src/graph/types.ts';
import { flat, fromFlat, type NDArray } from '../../src/ndarray/array.ts';
import { streamOf } from '../../src/ndarray/random.ts';
import { varlenAttentionOps } from '../../src/ops/aten/products/varlen-attention.ts';
import { builtinOperators } from '../../src/ops/builtin.ts';
import { isFloating } from '../../src/ops/record/dtypes.ts';
import { functionalForm } from '../../src/ops/record/in-place.ts';
import { inferCall } from '../../src/ops/record/infer.ts';
import { gpuAttention } from '../../src/ops/samples/attention.ts';
import { callOf, type CallText, parseCall } from '../../src/ops/samples/call-text.ts';
import { torchSamples } from '../../src/ops/samples/table.ts';
import { drawValues } from '../../src/ops/samples/values.ts';
import { compositeOf } from '../../src/ops/vjp/composite/composite.ts';
import { vjpOf } from '../../src/ops/vjp/table.ts';
import { jointGraph } from '../../src/passes/autodiff/joint.ts';
import { evaluateGraph } from '../../src/simulate/evaluate.ts';

/**
 * Sample calls of differentiable operators, with values: what vjps are tried with, here and against
 * PyTorch.
 */
export const table = builtinOperators();

export interface GradientSample {
  readonly text: string;
  readonly call: CallText;
  readonly target: string;
  /** Values of the tensors, by the name that the call uses. Every float is a float64. */
  readonly arrays: ReadonlyMap<string, NDArray>;
  /** Tensors that gradients are taken of. */
  readonly wanted: readonly string[];
  /** Results that gradients start at. */
  readonly results: readonly number[];
}

/**
 * Broadcasting, sizes of 1 and scalars: five shapes or pairs of shapes for every elementwise
 * operator.
 */
const SHAPES = ['7', '', '2,1,3', '1,4', '3,5'] as const;
const PAIRS = [
  ['2,3', '3'],
  ['1,4', '3,1'],
  ['', '5'],
  ['2,1,3', '4,1'],
  ['3,1', '3,1'],
] as const;
const UNARY: Readonly<Record<string, string>> = {
  neg: 'x',
  abs: 'x',
  square: 'x',
  sqrt: 'pos',
  rsqrt: 'pos',
  reciprocal: 'pos',
  exp: 'x',
  exp2: 'x',
  expm1: 'x',
  log: 'pos',
  log2: 'pos',
  log10: 'pos',
  log1p: 'pos',
  sin: 'x',
  cos: 'x',
  tan: 'unit',
  asin: 'unit',
  acos: 'unit',
  atan: 'x',
  sinh: 'x',
  cosh: 'x',
  asinh: 'x',
  acosh: 'above',
  atanh: 'unit',
  erf: 'x',
  erfc: 'x',
  lgamma: 'pos',
  sinc: 'pos',
  relu: 'x',
  sigmoid: 'x',
  tanh: 'x',
  silu: 'x',
  mish: 'x',
  hardsigmoid: 'x',
  hardswish: 'x',
  log_sigmoid: 'x',
  gelu: 'x',
  relu6: 'x',
  elu: 'x',
  celu: 'x',
  selu: 'x',
  softplus: 'x',
};
const BINARY: Readonly<Record<string, string>> = {
  'add.Tensor': 'x',
  'sub.Tensor': 'x',
  'rsub.Tensor': 'x',
  'mul.Tensor': 'x',
  'div.Tensor': 'pos',
  'pow.Tensor_Tensor': 'pos',
  maximum: 'x',
  minimum: 'x',
  fmax: 'x',
  fmin: 'x',
  atan2: 'pos',
  hypot: 'pos',
  logaddexp: 'x',
  logaddexp2: 'x',
  'xlogy.Tensor': 'pos',
  special_xlog1py: 'pos',
  'clamp_min.Tensor': 'x',
  'clamp_max.Tensor': 'x',
  'remainder.Tensor': 'pos',
  'fmod.Tensor': 'pos',
  'lerp.Scalar': 'x',
  'copysign.Tensor': 'x',
};

const broadcastCalls: readonly string[] = [
  ...Object.entries(UNARY).flatMap(([name, word]) => SHAPES.map((s) => `${name}(${word}[${s}])`)),
  ...Object.entries(BINARY).flatMap(([name, word]) =>
    PAIRS.flatMap(([a, b]) => {
      const more = name === 'lerp.Scalar' ? ', 0.3' : '';
      return [
        `${name}(${word}[${a}], ${word}[${b}]${more})`,
        `${name}(${word}[${b}], ${word}[${a}]${more})`,
      ];
    }),
  ),
];

/** Options and places that the samples of rules and kernels leave out. */
const more: readonly string[] = [
  'mv(x[5,6], x[6])',
  'linear(x[2,3,5], x[4,5], x[4])',
  'linear(x[5], x[4,5], x[4])',
  'linear(x[2,3,5], x[4,5])',
  'matmul(x[5], x[5])',
  'matmul(x[3,5], x[5])',
  'matmul(x[5], x[5,2])',
  'matmul(x[2,3,5], x[5])',
  'matmul(x[2,3,5], x[5,4])',
  'matmul(x[5], x[2,5,4])',
  'matmul(x[2,1,3,5], x[4,5,2])',
  'prod.dim_int(few[3,4], 1)',
  'prod(few[2,3])',
  'cumprod(few[3,4], 0)',
  'cumprod(few[2,5,3], 1)',
  'amax(shuffled[3,4], [0, 1], True)',
  'max.dim(shuffled[3,4], 0, True)',
  'cummax(shuffled[3,4], 1)',
  'linalg_vector_norm(x[3,4], 3, [1])',
  'linalg_vector_norm(x[3,4], 1)',
  'linalg_vector_norm(above[3,4], inf, [0])',
  'linalg_vector_norm(pos[3,4], 0.5, [0], True)',
  'var.correction(x[3,4])',
  'var_mean.correction(x[3,4,2], [0, 2], correction=0)',
  'std.correction(x[3,4], [1], correction=0, keepdim=True)',
  'diff(x[3,6], 2, 1)',
  'diff(x[3,6], 1, 0, x[1,6], x[2,6])',
  'logcumsumexp(x[3,4], 1)',
  'index_put(x[9,5], [distinct9[6]], x[5])',
  'scatter.src(x[5,9], 1, index9[5,1], x[5,3])',
  'diagonal(x[4,5], 1)',
  'diagonal(x[3,4,5], -1, 2, 0)',
  'mean(x[3,4])',
  'scaled_dot_product_attention(x[2,4,3,6], x[2,2,5,6], x[2,2,5,6], enable_gqa=True)',
  'scaled_dot_product_attention(x[2,2,3,6], x[2,2,3,6], x[2,2,3,6], None, 0.0, True, scale=0.3)',
  'scaled_dot_product_attention(x[2,2,3,6], x[2,2,5,6], x[2,2,5,6], bits[3,5])',
  'scaled_dot_product_attention(x[2,2,3,6], x[2,2,5,6], x[2,2,5,6], x[3,5])',
  'scaled_dot_product_attention(x[2,3,6], x[2,3,6], x[2,3,4], None, 0.0, True)',
  'cross_entropy_loss(x[5,7], index7[5], pos[7], 1, 3, 0.2)',
  'cross_entropy_loss(x[5,7], index7[5], None, 1, 3, 0.2)',
  'cross_entropy_loss(x[5,7], index7[5], pos[7], 0, -100, 0.2)',
  'cross_entropy_loss(x[5,7], unit[5,7], pos[7], 1, -100, 0.1)',
  'cross_entropy_loss(x[7], index7[], None, 1)',
  'cross_entropy_loss(x[2,4,3], index4[2,3])',
  'cross_entropy_loss(x[2,4,3,2], index4[2,3,2], None, 2)',
  'binary_cross_entropy_with_logits(x[3,4], unit[3,4], pos[4], pos[4], 1)',
  'binary_cross_entropy_with_logits(x[3,4], unit[3,4], None, None, 2)',
  'adaptive_avg_pool2d(x[2,3,5,6], [1, 1])',
  'native_batch_norm(x[6,5,7], None, None, None, None, True, 0.1, 1e-5)',
  'batch_norm(x[6,5,7], x[5], x[5], None, None, True, 0.1, 1e-5, False)',
  'conv1d(x[2,4,9], x[6,2,3], x[6], [2], [1], [1], 2)',
  'conv2d(x[2,4,7,7], x[6,4,3,3], None, [1, 2], [1])',
  'unflatten.int(x[5,12], 1, [4, 3])',
  'nan_to_num(x[3,4])',
  'mode(shuffled[3,4])',
  'sort.stable(shuffled[5,6], stable=True)',
];

/**
 * Kinks at the drawn values, where a derivative is one-sided: numbers with ties and zeros in
 * operators that break there.
 */
const KINKED =
  /^aten\.(maximum|minimum|fmax|fmin|clamp.*|sort|cummax|cummin|amax|amin|max|min|median|mode|topk|heaviside|abs)\./;

/**
 * Inputs without a derivative: statistics that run along, weights and classes of losses, masks of
 * the fused kernel, random numbers that place windows.
 */
const CONSTANT: Readonly<Record<string, readonly string[]>> = {
  running: ['running_mean', 'running_var'],
  'aten._scaled_dot_product_flash_attention_for_cpu.default': ['attn_mask'],
  'aten._scaled_dot_product_cudnn_attention.default': ['attn_bias'],
  'aten.fractional_max_pool2d.default': ['random_samples'],
  'aten.fractional_max_pool3d.default': ['random_samples'],
  'aten.soft_margin_loss.default': ['target'],
  'aten.soft_margin_loss_backward.default': ['target'],
};
const LOSS_WEIGHTS = ['weight', 'pos_weight'];

const wide = (dtype: DType): DType => (isFloating(dtype) ? 'f64' : dtype);

function widened(arg: Arg): Arg {
  if (Array.isArray(arg)) return (arg as readonly Arg[]).map(widened);
  const isType = arg !== null && typeof arg === 'object' && 'kind' in arg && arg.kind === 'dtype';
  return isType ? { kind: 'dtype', dtype: wide(arg.dtype) } : arg;
}

function sampleOf(text: CallText): GradientSample[] {
  const record = table.get(text.target);
  if (record === undefined) return [];
  const functional = functionalForm(text.target) ?? record.name;
  const entry = vjpOf(functional);
  if (entry === undefined && compositeOf(table.get(functional) ?? record) === undefined) return [];
  const call: CallText = {
    ...text,
    args: text.args.map(widened),
    kwargs: Object.fromEntries(Object.entries(text.kwargs).map(([k, v]) => [k, widened(v)])),
  };
  const specs = [...text.tensors];
  if (KINKED.test(functional) && specs.some(([, s]) => s.init === 'few')) return [];
  const arrays = new Map(
    specs.map(([name, spec], i) => [
      name,
      drawValues({ ...spec, dtype: wide(spec.dtype) }, streamOf(`${text.text} ${i}`)),
    ]),
  );
  const constant = new Set<string>([
    ...(CONSTANT['running'] ?? []),
    ...(CONSTANT[record.name] ?? []),
    ...(record.name.includes('loss') || record.name.includes('cross_entropy') ? LOSS_WEIGHTS : []),
  ]);
  const wanted = record.schema.flatMap((s, i) => {
    const at = record.schema.slice(0, i).filter((other) => !other.kwargOnly).length;
    const arg: Arg | undefined = s.kwargOnly
      ? call.kwargs[s.name]
      : (call.args[at] ?? call.kwargs[s.name]);
    return constant.has(s.name) || arg === undefined ? [] : namesIn(arg);
  });
  const real = [...new Set(wanted)].filter((name) => isFloating(arrays.get(name)?.dtype ?? 'i64'));
  const type = inferCall(table, call, (name) => typeOf(arrays, name));
  const items: readonly ValueType[] =
    type?.kind === 'tuple' ? type.items : type === undefined ? [] : [type];
  const allowed = entry?.results ?? [0];
  const results = items.flatMap((item, i) => {
    const differentiable = allowed === 'all' || allowed.includes(i);
    return differentiable && item.kind === 'tensor' && isFloating(item.dtype) ? [i] : [];
  });
  if (real.length === 0 || results.length === 0) return [];
  return [{ text: text.text, call, target: functional, arrays, wanted: real, results }];
}

function namesIn(arg: Arg): string[] {
  if (Array.isArray(arg)) return (arg as readonly Arg[]).flatMap(namesIn);
  return arg !== null && typeof arg === 'object' && 'kind' in arg && arg.kind === 'value'
    ? [arg.name]
    : [];
}

function typeOf(arrays: ReadonlyMap<string, NDArray>, name: string): ValueType {
  const array = arrays.get(name);
  if (array === undefined) throw new Error(`no tensor ${name}`);
  return { kind: 'tensor', dtype: array.dtype, shape: array.shape };
}

/** Every sample, each once. */
export const gradientSamples: readonly GradientSample[] = [
  ...torchSamples(table),
  ...[...more, ...gpuAttention, ...broadcastCalls].map(parseCall),
  ...varlenAttentionOps.flatMap((r) => (r.samples ?? []).map((args) => callOf(r.name, args))),
]
  .filter((c, i, all) => all.findIndex((other) => other.text === c.text) === i)
  .flatMap(sampleOf);

/** A graph of the one call, that returns the results which gradients start at. */
export function graphOf(s: GradientSample): Graph {
  const b = new GraphBuilder('sample');
  for (const [name, array] of s.arrays)
    b.placeholder(name, typeOf(s.arrays, name), {
      role: 'input',
      roleName: name,
      ...(array.rank < 0 ? { inferred: true } : {}),
    });
  const type = inferCall(table, s.call, (name) => b.typeOf({ kind: 'value', name }));
  if (type === undefined) throw new Error(`no operator ${s.call.target}`);
  const call = b.call(s.call.target, s.call.args, type, { kwargs: s.call.kwargs });
  s.results.forEach((index, k) => {
    let value: ValueRef = call;
    if (type.kind === 'tuple') value = b.call('operator.getitem', [call, index], type.items[index]);
    b.output({ value: value.name, role: 'output', index: k });
  });
  return b.build();
}

export function inputsOf(s: GradientSample): NDArray[] {
  return [...s.arrays.values()];
}

/** Gradients that arrive at the results: drawn, the same each time. */
export function tangentsOf(s: GradientSample, graph: Graph): NDArray[] {
  return graph.outputs.map((output, k) => {
    const type = graph.nodes.find((node) => node.name === output.value)?.type;
    if (type?.kind !== 'tensor') throw new Error('an output is not a tensor');
    const spec = {
      dtype: type.dtype,
      shape: type.shape.map(Number),
      init: 'any',
      free: true,
    } as const;
    return drawValues(spec, streamOf(`${s.text} tangent ${k}`));
  });
}

/** Our gradients of the wanted tensors; null for none. */
export function gradientsOf(s: GradientSample): (NDArray | null)[] {
  const graph = graphOf(s);
  const joint = jointGraph(graph, { table, wrt: s.wanted });
  const tangents = tangentsOf(s, graph);
  const used = joint.nodes
    .filter((node) => node.meta.role === 'tangent')
    .map((node) => tangents[node.meta.roleIndex ?? 0]);
  const values = evaluateGraph(table, joint, [...inputsOf(s), ...used]).outputs;
  return s.wanted.map((name) => {
    const at = joint.outputs.findIndex((output) => output.role === 'grad' && output.of === name);
    return (values[at] as NDArray | null | undefined) ?? null;
  });
}

/**
 * The results weighted with their tangents, as one number: what the gradients are the derivative
 * of.
 */
export function lossOf(
  graph: Graph,
  inputs: readonly NDArray[],
  tangents: readonly NDArray[],
): number {
  const { outputs } = evaluateGraph(table, graph, inputs);
  return outputs.reduce<number>((total, value, k) => {
    const [y, g] = [flat(value as NDArray), flat(tangents[k])];
    return total + y.reduce((sum, v, i) => sum + v * g[i], 0);
  }, 0);
}

/** Element positions that are tried: all of a small tensor, else spread over it. */
export function positions(size: number, most = 12): number[] {
  if (size <= most) return Array.from({ length: size }, (_, i) => i);
  return Array.from({ length: most }, (_, i) => Math.floor(((i + 0.5) * size) / most));
}

/** The array with one element moved. */
export function moved(x: NDArray, at: number, by: number): NDArray {
  const values = Float64Array.from(flat(x));
  values[at] += by;
  return fromFlat(x.shape, values, x.dtype);
}
