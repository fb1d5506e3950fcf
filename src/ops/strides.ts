/**
 * Strides of results that a text does not state, by the rules of eager PyTorch: a view moves
 * strides, a pointwise operator keeps the order of its operands (TensorIterator), attention on CPU
 * leaves its result as [batch, length, head, size], and everything else is row-major. Operator
 * rules know dtype and shape alone, so this runs behind them; sizes must be numbers.
 */

import type { Arg, Node, TensorType, ValueType } from '../graph/types.ts';
import {
  contiguousStride,
  eachOperand,
  getOwn,
  isContiguousStride,
  isList,
  isRef,
  tensorType,
} from '../graph/value.ts';
import { memoryOrder } from '../ndarray/views.ts';

/** A call, as far as it decides where its results lie. */
type CallToLay = Pick<Node, 'target' | 'args' | 'kwargs'>;

/** Sizes and strides of a value, in elements. */
interface Strided {
  readonly shape: readonly number[];
  readonly stride: readonly number[];
}

type TypeOf = (name: string) => ValueType;

/** The type with the strides that the call gives its tensors. */
export function withStrides(call: CallToLay, type: ValueType, typeOf: TypeOf): ValueType {
  const name = /^(?:aten|prims)\.(\w+?)(?:\.\w+)?$/.exec(call.target)?.[1];
  if (name === undefined || !RULES.has(name)) return type;
  const rule = RULES.get(name)!;
  const set = (item: ValueType, at: number): ValueType => {
    if (item.kind !== 'tensor' || item.stride !== undefined) return item;
    const shape = numbers(item.shape);
    const stride = shape === undefined ? undefined : rule(call, shape, typeOf, at);
    return stride === undefined || isContiguousStride(item.shape, stride)
      ? item
      : tensorType(item.dtype, item.shape, stride, item.given);
  };
  return type.kind === 'tuple' ? { kind: 'tuple', items: type.items.map(set) } : set(type, 0);
}

/** The dims of a tensor from the slowest to the fastest in memory. */
export function dimOrder({ shape, stride }: TensorType): readonly number[] {
  const steps = stride === undefined ? undefined : numbers(stride);
  return steps === undefined ? rowMajor(shape.length).reverse() : memoryOrder(steps);
}

/**
 * Strides of a tensor at other sizes: its dims in the same order, without gaps, and dims that
 * repeat their elements again. Undefined for row-major ones.
 */
export function stridesAt(
  type: TensorType,
  shape: readonly number[],
): readonly number[] | undefined {
  const steps = type.stride === undefined ? undefined : numbers(type.stride);
  if (steps === undefined) return undefined;
  const fastestFirst = dimOrder(type)
    .filter((dim) => steps[dim] !== 0)
    .reverse();
  const packed = dense(fastestFirst, shape);
  const stride = shape.map((_, dim) => (steps[dim] === 0 ? 0 : packed[dim]));
  return isContiguousStride(shape, stride) ? undefined : stride;
}

/** Strides of result `at`; undefined for row-major ones, and where they are not known. */
type Rule = (
  call: CallToLay,
  shape: readonly number[],
  typeOf: TypeOf,
  at: number,
) => readonly number[] | undefined;

function numbers(dims: TensorType['shape']): readonly number[] | undefined {
  return dims.every((dim) => typeof dim === 'number') ? dims : undefined;
}

function strided(type: ValueType): Strided | undefined {
  if (type.kind !== 'tensor') return undefined;
  const shape = numbers(type.shape);
  const stride = type.stride === undefined ? contiguousStride(type.shape) : numbers(type.stride);
  return shape === undefined || stride === undefined || stride === null
    ? undefined
    : { shape, stride };
}

function operand(call: CallToLay, typeOf: TypeOf): Strided | undefined {
  const [first] = call.args;
  return first !== undefined && isRef(first) ? strided(typeOf(first.name)) : undefined;
}

/** A positional argument, or the keyword of its name. */
function argument(call: CallToLay, at: number, name: string): Arg | undefined {
  return call.args[at] ?? getOwn(call.kwargs, name);
}

function integer(value: Arg | undefined, otherwise: number): number {
  return typeof value === 'number' ? value : otherwise;
}

function wrap(dim: number, rank: number): number {
  return dim < 0 ? dim + rank : dim;
}

// ---- views
// -----------------------------------------------------------------------------

type ViewRule = (
  x: Strided,
  call: CallToLay,
  shape: readonly number[],
) => readonly number[] | undefined;

function view(rule: ViewRule): Rule {
  return (call, shape, typeOf) => {
    const x = operand(call, typeOf);
    return x === undefined ? undefined : rule(x, call, shape);
  };
}

const same: ViewRule = (x) => x.stride;

const transposed: ViewRule = (x, call) => {
  const rank = x.shape.length;
  const a = wrap(integer(argument(call, 1, 'dim0'), 0), rank);
  const b = wrap(integer(argument(call, 2, 'dim1'), 1), rank);
  const stride = [...x.stride];
  [stride[a], stride[b]] = [x.stride[b], x.stride[a]];
  return stride;
};

const permuted: ViewRule = (x, call) => {
  const dims = argument(call, 1, 'dims');
  if (dims === undefined || !isList(dims)) return undefined;
  return dims.map((dim) => x.stride[wrap(integer(dim, 0), x.shape.length)]);
};

/** New and stretched dims repeat their elements: stride 0. */
const expanded: ViewRule = (x, _call, shape) => {
  const stride = new Array<number>(shape.length).fill(0);
  const shift = shape.length - x.shape.length;
  for (let d = shape.length - 1; d >= 0; d--) {
    const own = d >= shift ? x.shape[d - shift] : 1;
    const step =
      d >= shift ? x.stride[d - shift] : d + 1 < shape.length ? shape[d + 1] * stride[d + 1] : 1;
    stride[d] = own === shape[d] ? step : 0;
  }
  return stride;
};

const sliced: ViewRule = (x, call) => {
  const dim = wrap(integer(argument(call, 1, 'dim'), 0), x.shape.length);
  return x.stride.map((step, d) =>
    d === dim ? step * integer(argument(call, 4, 'step'), 1) : step,
  );
};

const without: ViewRule = (x, call) => {
  const dim = wrap(integer(argument(call, 1, 'dim'), 0), x.shape.length);
  return x.stride.filter((_, d) => d !== dim);
};

const unsqueezed: ViewRule = (x, call) => {
  const dim = wrap(integer(argument(call, 1, 'dim'), 0), x.shape.length + 1);
  const step = dim < x.shape.length ? x.shape[dim] * x.stride[dim] : 1;
  return [...x.stride.slice(0, dim), step, ...x.stride.slice(dim)];
};

const squeezed: ViewRule = (x, call) => {
  const stated = argument(call, 1, 'dim');
  const list =
    stated === undefined
      ? undefined
      : (isList(stated) ? stated : [stated]).map((dim) => wrap(integer(dim, 0), x.shape.length));
  return x.stride.filter((_, d) => x.shape[d] !== 1 || (list !== undefined && !list.includes(d)));
};

/** The strides that show the same elements in another shape; undefined where no strides do. */
const reshaped: ViewRule = (x, _call, shape) => {
  if (x.shape.includes(0)) return undefined;
  const stride = new Array<number>(shape.length);
  let at = shape.length - 1;
  let base = x.stride[x.shape.length - 1] ?? 1;
  let span = 1;
  let shown = 1;
  for (let d = x.shape.length - 1; d >= 0; d--) {
    span *= x.shape[d];
    // Dims that follow each other without a gap are one run of elements.
    if (d > 0 && (x.shape[d - 1] === 1 || x.stride[d - 1] === span * base)) continue;
    while (at >= 0 && (shown < span || shape[at] === 1)) {
      stride[at] = shown * base;
      shown *= shape[at];
      at--;
    }
    if (shown !== span) return undefined;
    if (d > 0) {
      base = x.stride[d - 1];
      span = 1;
      shown = 1;
    }
  }
  for (; at >= 0; at--) stride[at] = shown * base;
  return stride;
};

// ---- new memory
// -----------------------------------------------------------------------------

/** Dims from the fastest to the slowest. */
const rowMajor = (rank: number): number[] => Array.from({ length: rank }, (_, i) => rank - 1 - i);
const CHANNELS_LAST = [1, 3, 2, 0];

/**
 * Tells whether the elements fill their memory in this order of the dims; dims of one element may
 * have any stride.
 */
function followsOrder({ shape, stride }: Strided, order: readonly number[]): boolean {
  let step = 1;
  for (const d of order) {
    if (shape[d] === 1) continue;
    if (stride[d] !== step) return false;
    step *= shape[d];
  }
  return true;
}

/** Tells whether the elements fill their memory once, in some order of the dims. */
function isDense({ shape, stride }: Strided): boolean {
  const order = shape.map((_, d) => d).filter((d) => shape[d] !== 1);
  return followsOrder(
    { shape, stride },
    order.sort((a, b) => stride[a] - stride[b]),
  );
}

/** Copies keep the strides of a dense tensor; of any other they keep the order of the dims. */
const preserved: ViewRule = (x, call) => {
  const format = getOwn(call.kwargs, 'memory_format');
  if (
    format !== undefined &&
    format !== null &&
    !(
      typeof format === 'object' &&
      !isList(format) &&
      format.kind === 'layout' &&
      format.word === 'preserve_format'
    )
  )
    return undefined;
  return isDense(x) ? x.stride : iterated([x], x.shape);
};

/** `to` hands the tensor on where it has the dtype already. */
const converted: Rule = (call, shape, typeOf, at) => {
  const [first, to] = call.args;
  const type = first !== undefined && isRef(first) ? typeOf(first.name) : undefined;
  const stated = getOwn(call.kwargs, 'dtype') ?? to;
  const dtype =
    stated !== null && typeof stated === 'object' && !isList(stated) && stated.kind === 'dtype'
      ? stated.dtype
      : undefined;
  const kept = type?.kind === 'tensor' && (dtype === undefined || type.dtype === dtype);
  return view(kept ? same : preserved)(call, shape, typeOf, at);
};

/** Results of pointwise operators, over all tensor operands. */
const pointwise: Rule = (call, shape, typeOf) => {
  const operands: Strided[] = [];
  let known = true;
  eachOperand(call, (name) => {
    const x = strided(typeOf(name));
    if (x !== undefined) operands.push(x);
    else if (typeOf(name).kind === 'tensor') known = false;
  });
  // A number is an operand too, of no dims.
  const withNumber = !isRef(call.args[1] ?? null) && BINARY.test(call.target);
  return known ? iterated(operands, shape, withNumber) : undefined;
};

const BINARY =
  /^aten\.(add|sub|rsub|mul|div|floor_divide|eq|ne|lt|le|gt|ge|maximum|minimum|(bitwise|logical)_(and|or|xor)|__and__|__or__)_?\./;

/**
 * TensorIterator: dims are sorted from the smallest step of the operands to the largest, and the
 * result is dense in that order. Operands that all have one shape and one dense layout hand it on.
 */
function iterated(
  operands: readonly Strided[],
  shape: readonly number[],
  withNumber = false,
): readonly number[] | undefined {
  const [first] = operands;
  const sameShapes =
    !withNumber &&
    operands.every(
      (x) => x.shape.length === shape.length && x.shape.every((size, d) => size === shape[d]),
    );
  if (first !== undefined && sameShapes) {
    if (operands.every((x) => followsOrder(x, rowMajor(shape.length)))) return undefined;
    if (shape.length === 4 && operands.every((x) => followsOrder(x, CHANNELS_LAST)))
      return dense(CHANNELS_LAST, shape);
    if (
      isDense(first) &&
      operands.every((x) => x.stride.every((step, d) => step === first.stride[d]))
    )
      return first.stride;
  }
  const steps = operands.map((x) => {
    const shift = shape.length - x.shape.length;
    return shape.map((size, d) =>
      d < shift || (x.shape[d - shift] === 1 && size !== 1) ? 0 : x.stride[d - shift],
    );
  });
  /** Positive where dim `a` moves in larger steps than `b`. */
  const compare = (a: number, b: number): number => {
    for (const step of steps) {
      if (step[a] === 0 || step[b] === 0) continue;
      if (step[a] !== step[b]) return step[a] - step[b];
      if (shape[a] > shape[b]) return 1;
    }
    return 0;
  };
  const order = shape.map((_, i) => shape.length - 1 - i);
  // Insertion with comparisons that may be undecided, as the iterator does it.
  for (let i = 1; i < order.length; i++) {
    for (let k = i - 1, at = i; k >= 0; k--) {
      const found = compare(order[k], order[at]);
      if (found > 0) {
        [order[k], order[at]] = [order[at], order[k]];
        at = k;
      } else if (found < 0) break;
    }
  }
  return dense(order, shape);
}

/** Dense strides with the dims in this order, the fastest first. */
function dense(order: readonly number[], shape: readonly number[]): number[] {
  const stride = new Array<number>(shape.length);
  let step = 1;
  for (const dim of order) {
    stride[dim] = step;
    step *= Math.max(shape[dim], 1);
  }
  return stride;
}

/**
 * Attention on CPU works on [batch, length, head, size] and shows it as [batch, head, length,
 * size].
 */
const attention: Rule = (_call, shape) =>
  shape.length === 4
    ? dense([3, 1, 2, 0], shape)
    : shape.length === 3
      ? dense([1, 2, 0], shape)
      : undefined;

const POINTWISE = [
  'abs',
  'add',
  'add_',
  'bitwise_and',
  'bitwise_not',
  'bitwise_or',
  'ceil',
  'clamp',
  'clamp_min',
  'cos',
  'div',
  'div_',
  'eq',
  'erf',
  'exp',
  'floor',
  'floor_divide',
  'ge',
  'gelu',
  'gelu_backward',
  'gt',
  'le',
  'log',
  'logical_and',
  'logical_not',
  'logical_or',
  'lt',
  'maximum',
  'minimum',
  'mul',
  'mul_',
  'native_dropout_backward',
  'ne',
  'neg',
  'pow',
  'reciprocal',
  'relu',
  'relu_',
  'rsqrt',
  'rsub',
  'sigmoid',
  'sigmoid_backward',
  'sign',
  'silu',
  'silu_backward',
  'sin',
  'sqrt',
  'sub',
  'sub_',
  'tanh',
  'tanh_backward',
  'threshold_backward',
  'where',
  '__and__',
  '__or__',
];

const RULES: ReadonlyMap<string, Rule> = new Map<string, Rule>([
  ...POINTWISE.map((name): [string, Rule] => [name, pointwise]),
  ...[
    'alias',
    'detach',
    'detach_',
    'lift_fresh',
    'bernoulli_',
    'normal_',
    'uniform_',
    'exponential_',
    'log_normal_',
    'geometric_',
    'cauchy_',
  ].map((name): [string, Rule] => [name, view(same)]),
  // Tracing writes dropout as a copy, also where it drops nothing.
  ...[
    'clone',
    'dropout',
    '_to_copy',
    'empty_like',
    'zeros_like',
    'ones_like',
    'full_like',
    'convert_element_type',
    'rand_like',
    'randn_like',
    'randint_like',
    'normal_functional',
    'uniform',
    'exponential',
    'log_normal',
    'geometric',
    'cauchy',
    'bernoulli',
    'native_dropout',
  ].map((name): [string, Rule] => [name, view(preserved)]),
  ...['view', '_unsafe_view', 'reshape', 'flatten', 'unflatten'].map((name): [string, Rule] => [
    name,
    view(reshaped),
  ]),
  ...['split', 'split_with_sizes', 'chunk', 'tensor_split'].map((name): [string, Rule] => [
    name,
    view(same),
  ]),
  ...[
    '_scaled_dot_product_flash_attention_for_cpu',
    '_scaled_dot_product_flash_attention_for_cpu_backward',
    'scaled_dot_product_attention',
  ].map((name): [string, Rule] => [name, attention]),
  ['to', converted],
  ['t', view((x) => [...x.stride].reverse())],
  ['transpose', view(transposed)],
  ['permute', view(permuted)],
  ['expand', view(expanded)],
  ['slice', view(sliced)],
  ['select', view(without)],
  ['unbind', view(without)],
  ['unsqueeze', view(unsqueezed)],
  ['squeeze', view(squeezed)],
]);
