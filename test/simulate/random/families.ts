import type { Arg } from '../../../src/graph/types.ts';
import { kernelOf } from '../../../src/ops/kernels/table.ts';
import { dtypeArg, float, type ProgramBuilder, ref, TABLE, type Tensor } from './builder.ts';

/**
 * Ways to go on with a program: each takes tensors that are there, makes the inputs that it lacks,
 * and adds a call. What comes back does not matter; a call that does not fit is simply not added.
 */
export type Family = (b: ProgramBuilder) => void;

const SIZES = [1, 2, 3, 4, 4, 5, 6, 6, 7, 8, 8, 9, 12] as const;

export function shapeOf(b: ProgramBuilder, rank: number): number[] {
  return Array.from({ length: rank }, () => b.draw.pick(SIZES));
}

export function floats(b: ProgramBuilder, minRank = 0, maxRank = 4): Tensor {
  const fits = b.tensors.filter(
    (t) => t.dtype === 'f32' && t.shape.length >= minRank && t.shape.length <= maxRank,
  );
  // Mostly what was made last, so that chains grow.
  if (fits.length > 0 && b.draw.chance(0.85))
    return b.draw.chance(0.6) ? fits[fits.length - 1] : b.draw.pick(fits);
  return b.input(
    'f32',
    shapeOf(b, minRank + b.draw.below(Math.min(maxRank, 3) - minRank + 1)),
    b.draw.pick(['input', 'parameter']),
  );
}

type Call = readonly [target: string, args: readonly Arg[], kwargs?: Readonly<Record<string, Arg>>];

/** Adds one of several calls. */
export function oneOf(b: ProgramBuilder, calls: readonly Call[]): void {
  const [target, args, kwargs] = b.draw.pick(calls);
  b.tuple(target, args, kwargs ?? {});
}

const dimOf = (b: ProgramBuilder, t: Tensor): number => {
  const dim = b.draw.below(t.shape.length);
  return b.draw.chance(0.3) ? dim - t.shape.length : dim;
};
const front = (dim: number, rank: number): number => (dim < 0 ? dim + rank : dim);

/** A shape that broadcasts with another: dims left out or of size 1. */
function broadcastShape(b: ProgramBuilder, shape: readonly number[]): number[] {
  const drop = b.draw.chance(0.3) ? b.draw.below(shape.length + 1) : 0;
  return shape.slice(drop).map((n) => (b.draw.chance(0.2) ? 1 : n));
}

export function partner(b: ProgramBuilder, t: Tensor): Tensor {
  const same = b.tensors.filter((u) => u.dtype === t.dtype && u.shape.join() === t.shape.join());
  if (same.length > 0 && b.draw.chance(0.6)) return b.draw.pick(same);
  return b.input(t.dtype, b.draw.chance(0.5) ? t.shape : broadcastShape(b, t.shape));
}

const scalar = (b: ProgramBuilder): Arg =>
  b.draw.pick([float(2), float(-0.5), float(0), 3, -1, float(1)]);

// ---- elementwise
// -----------------------------------------------------------------------------

/** Functions of one tensor: every record of the kind that has a kernel. */
const UNARY = TABLE.records.filter(
  (r) =>
    r.cls === 'pointwise' &&
    r.name.startsWith('aten.') &&
    !/_\.|acosh|polygamma|_backward|isposinf|isneginf|lgamma|digamma/.test(r.name) &&
    kernelOf(r.name) !== undefined &&
    r.schema.filter((s) => s.required).length === 1 &&
    r.schema[0].type === 'Tensor' &&
    r.schema.filter((s) => s.type.startsWith('Tensor')).length === 1,
);

const unary: Family = (b) => {
  const record = b.draw.pick(UNARY);
  // Values between 0 and 1 are in the domain of nearly everything, and nothing overflows.
  const x = b.call('aten.sigmoid.default', [ref(floats(b))]);
  if (x !== undefined) b.call(record.name, [ref(x)]);
};

const tame: Family = (b) =>
  void b.call(
    b.draw.pick([
      'aten.tanh.default',
      'aten.relu.default',
      'aten.neg.default',
      'aten.clone.default',
      'aten.gelu.default',
      'aten.silu.default',
      'aten.sin.default',
    ]),
    [ref(floats(b))],
  );

const binary: Family = (b) => {
  const x = floats(b);
  const name = b.draw.pick(['add', 'sub', 'mul', 'add', 'mul', 'maximum', 'minimum']);
  const y = partner(b, x);
  const kwargs =
    (name === 'add' || name === 'sub') && b.draw.chance(0.3) ? { alpha: b.draw.pick([2, -1]) } : {};
  b.call(
    `aten.${name}.${/max|min/.test(name) ? 'default' : 'Tensor'}`,
    b.draw.chance(0.5) ? [ref(x), ref(y)] : [ref(y), ref(x)],
    kwargs,
  );
};

const withScalar: Family = (b) => {
  const x = floats(b);
  const name = b.draw.pick([
    'add.Tensor',
    'mul.Tensor',
    'mul.Scalar',
    'add.Scalar',
    'sub.Tensor',
    'rsub.Scalar',
    'div.Tensor',
  ]);
  const value = scalar(b);
  b.call(`aten.${name}`, [ref(x), name.startsWith('div') ? float(2.5) : value]);
};

const divide: Family = (b) => {
  const x = floats(b);
  const y = b.call('aten.sigmoid.default', [ref(partner(b, x))]);
  if (y !== undefined) b.call('aten.div.Tensor', [ref(x), ref(y)]);
};

const compare: Family = (b) => {
  const x = floats(b);
  const name = b.draw.pick(['lt', 'le', 'gt', 'ge']);
  if (b.draw.chance(0.4)) b.call(`aten.${name}.Scalar`, [ref(x), float(0.1)]);
  else b.call(`aten.${name}.Tensor`, [ref(x), ref(partner(b, x))]);
};

export function mask(b: ProgramBuilder, shape: readonly number[]): Tensor {
  const fits = b.tensors.filter((t) => t.dtype === 'b8' && t.shape.join() === shape.join());
  if (fits.length > 0 && b.draw.chance(0.7)) return b.draw.pick(fits);
  return b.input('b8', b.draw.chance(0.5) ? shape : broadcastShape(b, shape));
}

const logic: Family = (b) => {
  const x = floats(b);
  const m = mask(b, x.shape);
  const other = mask(b, m.shape);
  const name = b.draw.pick([
    'logical_and.default',
    'logical_or.default',
    'bitwise_and.Tensor',
    'bitwise_or.Tensor',
    'logical_not.default',
    'logical_xor.default',
  ]);
  b.call(`aten.${name}`, name.startsWith('logical_not') ? [ref(m)] : [ref(m), ref(other)]);
};

const select: Family = (b) => {
  const x = floats(b);
  const m = mask(b, x.shape);
  if (b.draw.chance(0.5)) b.call('aten.where.self', [ref(m), ref(x), ref(partner(b, x))]);
  else b.call('aten.masked_fill.Scalar', [ref(x), ref(m), b.draw.pick([0, float(1.5)])]);
};

const ternary: Family = (b) => {
  const x = floats(b);
  const [y, z] = [partner(b, x), partner(b, x)];
  const name = b.draw.pick(['addcmul.default', 'lerp.Tensor', 'clamp.Tensor']);
  b.call(`aten.${name}`, [ref(x), ref(y), ref(z)]);
};

const activationBackward: Family = (b) => {
  const x = floats(b);
  const g = partner(b, x);
  const name = b.draw.pick([
    'gelu_backward',
    'silu_backward',
    'sigmoid_backward',
    'tanh_backward',
    'threshold_backward',
  ]);
  b.call(
    `aten.${name}.default`,
    name === 'threshold_backward' ? [ref(g), ref(x), 0] : [ref(g), ref(x)],
  );
};

const cast: Family = (b) => {
  const t = b.tensors.length > 0 ? b.draw.pick(b.tensors) : floats(b);
  const to = b.draw.pick(['f32', 'f64', 'b8', 'bf16'] as const);
  const made = b.call('prims.convert_element_type.default', [ref(t), dtypeArg(to)]);
  if (made !== undefined && to !== 'f32')
    b.call('aten._to_copy.default', [ref(made)], { dtype: dtypeArg('f32') });
};

// ---- reductions
// -----------------------------------------------------------------------------

const reduceDims: Family = (b) => {
  const x = floats(b, 1);
  const dims = x.shape.map((_, d) => d).filter(() => b.draw.chance(0.5));
  const keep = b.draw.chance(0.5);
  const name = b.draw.pick([
    'sum.dim_IntList',
    'mean.dim',
    'amax.default',
    'amin.default',
    'logsumexp.default',
    'linalg_vector_norm.default',
  ]);
  if (name.startsWith('logsumexp') && dims.length === 0) return;
  if (name.startsWith('linalg'))
    b.call(`aten.${name}`, [ref(x), b.draw.pick([2, 1, 0, float(Infinity), 3]), dims, keep]);
  else b.call(`aten.${name}`, [ref(x), dims, keep]);
};

const reduceAll: Family = (b) =>
  void b.call(`aten.${b.draw.pick(['sum', 'mean', 'max', 'min'])}.default`, [ref(floats(b))]);

const reduceBool: Family = (b) => {
  const m = mask(b, floats(b, 1).shape);
  if (m.shape.length === 0) return;
  const dim = dimOf(b, m);
  oneOf(b, [
    ['aten.any.default', [ref(m)]],
    ['aten.all.default', [ref(m)]],
    ['aten.any.dim', [ref(m), dim]],
    ['aten.all.dim', [ref(m), dim, true]],
    ['aten.sum.dim_IntList', [ref(m), [dim]]],
    ['aten.amax.default', [ref(m), [dim]]],
  ]);
};

const alongDim: Family = (b) => {
  const x = floats(b, 1);
  const dim = dimOf(b, x);
  const name = b.draw.pick([
    'cumsum.default',
    'max.dim',
    'min.dim',
    'argmax.default',
    'cummax.default',
    'sort.default',
    'var.correction',
    'prod.dim_int',
  ]);
  b.tuple(`aten.${name}`, [ref(x), name.startsWith('var') ? [dim] : dim]);
};

const topk: Family = (b) => {
  const x = floats(b, 1);
  const dim = dimOf(b, x);
  b.tuple('aten.topk.default', [
    ref(x),
    1 + b.draw.below(x.shape[front(dim, x.shape.length)]),
    dim,
  ]);
};

const softmax: Family = (b) => {
  const x = floats(b, 1);
  const dim = dimOf(b, x);
  const log = b.draw.chance(0.5);
  const y = b.call(log ? 'aten._log_softmax.default' : 'aten._softmax.default', [
    ref(x),
    dim,
    false,
  ]);
  if (y === undefined || b.draw.chance(0.4)) return;
  const g = partner(b, x);
  if (g.shape.join() !== x.shape.join()) return;
  b.call(`aten._${log ? 'log_' : ''}softmax_backward_data.default`, [
    ref(g),
    ref(y),
    dim,
    dtypeArg('f32'),
  ]);
};

// ---- products
// -----------------------------------------------------------------------------

const mm: Family = (b) => {
  const x = floats(b, 2, 2);
  const n = b.draw.pick(SIZES);
  const w = b.input('f32', [x.shape[1], n], 'parameter');
  if (b.draw.chance(0.4)) {
    const bias = b.input(
      'f32',
      b.draw.pick([[n], [1, n], [x.shape[0], n], [x.shape[0], 1]]),
      'parameter',
    );
    b.call('aten.addmm.default', [ref(bias), ref(x), ref(w)]);
  } else b.call('aten.mm.default', [ref(x), ref(w)]);
};

const bmm: Family = (b) => {
  const x = floats(b, 3, 3);
  const w = b.input('f32', [x.shape[0], x.shape[2], b.draw.pick(SIZES)]);
  b.call('aten.bmm.default', [ref(x), ref(w)]);
};

const linear: Family = (b) => {
  const x = floats(b, 1);
  const out = b.draw.pick(SIZES);
  const w = b.input('f32', [out, x.shape[x.shape.length - 1]], 'parameter');
  const bias = b.draw.chance(0.5) ? [ref(b.input('f32', [out], 'parameter'))] : [];
  b.call('aten.linear.default', [ref(x), ref(w), ...bias]);
};

const matmul: Family = (b) => {
  const x = floats(b, 1);
  const inner = x.shape[x.shape.length - 1];
  const batch = b.draw.chance(0.5) ? broadcastShape(b, x.shape.slice(0, -2)) : [];
  const shape = b.draw.chance(0.2) ? [inner] : [...batch, inner, b.draw.pick(SIZES)];
  b.call('aten.matmul.default', [ref(x), ref(b.input('f32', shape))]);
};

const small: Family = (b) => {
  const x = floats(b, 1, 1);
  const other = b.input('f32', b.draw.chance(0.5) ? x.shape : shapeOf(b, 1));
  b.call(b.draw.pick(['aten.dot.default', 'aten.outer.default']), [ref(x), ref(other)]);
};

// ---- views
// -----------------------------------------------------------------------------

/** Neighbouring dims merged and dims split at random. */
function regrouped(b: ProgramBuilder, shape: readonly number[]): number[] {
  const out: number[] = [];
  for (const n of shape) {
    if (out.length > 0 && b.draw.chance(0.35)) {
      out[out.length - 1] *= n;
      continue;
    }
    const divisors = Array.from({ length: n }, (_, i) => i + 1).filter((d) => n % d === 0);
    const part = b.draw.pick(divisors);
    if (b.draw.chance(0.35)) out.push(part, n / part);
    else out.push(n);
  }
  return b.draw.chance(0.2) ? [...out, 1] : out;
}

const view: Family = (b) => {
  const x = floats(b, 1);
  const to = regrouped(b, x.shape);
  if (b.draw.chance(0.2)) to[b.draw.below(to.length)] = -1;
  b.call(b.draw.pick(['aten.view.default', 'aten.reshape.default', 'aten._unsafe_view.default']), [
    ref(x),
    to,
  ]);
};

const permute: Family = (b) => {
  const x = floats(b, 2);
  const order = x.shape.map((_, d) => d).sort(() => b.draw.below(3) - 1);
  oneOf(b, [
    ['aten.permute.default', [ref(x), order]],
    ['aten.transpose.int', [ref(x), dimOf(b, x), dimOf(b, x)]],
    ['aten.movedim.int', [ref(x), dimOf(b, x), dimOf(b, x)]],
  ]);
};

const ones: Family = (b) => {
  const x = floats(b);
  const added = b.call('aten.unsqueeze.default', [ref(x), b.draw.below(x.shape.length + 1)]);
  if (added === undefined || b.draw.chance(0.4)) return;
  oneOf(b, [
    ['aten.squeeze.dim', [ref(added), dimOf(b, added)]],
    ['aten.squeeze.default', [ref(added)]],
    [
      'aten.squeeze.dims',
      [ref(added), added.shape.map((_, d) => d).filter(() => b.draw.chance(0.6))],
    ],
    [
      'aten.expand.default',
      [ref(added), added.shape.map((n) => (n === 1 ? b.draw.pick(SIZES) : b.draw.pick([n, -1])))],
    ],
  ]);
};

const expand: Family = (b) => {
  const x = floats(b, 0, 2);
  const size = [b.draw.pick(SIZES), ...x.shape.map((n) => (n === 1 ? b.draw.pick(SIZES) : n))];
  b.call('aten.expand.default', [ref(x), size]);
};

const flatten: Family = (b) => {
  const x = floats(b, 1);
  const [from, to] = [b.draw.below(x.shape.length), b.draw.below(x.shape.length)];
  b.call('aten.flatten.using_ints', [ref(x), Math.min(from, to), Math.max(from, to)]);
};

const slice: Family = (b) => {
  const x = floats(b, 1);
  const dim = dimOf(b, x);
  const n = x.shape[front(dim, x.shape.length)];
  const start = b.draw.below(n);
  const whole = b.draw.chance(0.3);
  const end = whole ? b.draw.pick([n, 9_007_199_254_740_991]) : start + 1 + b.draw.below(n - start);
  const args = [ref(x), dim, whole ? 0 : start, end, b.draw.pick([1, 1, 1, 2, 3])];
  const made = b.call('aten.slice.Tensor', args);
  if (made !== undefined && b.draw.chance(0.3))
    b.call('aten.slice_backward.default', [ref(made), x.shape.slice(), ...args.slice(1)]);
  if (made !== undefined && b.draw.chance(0.3))
    b.call('aten.slice_scatter.default', [
      ref(x),
      ref(b.input('f32', made.shape)),
      ...args.slice(1),
    ]);
};

const pickRow: Family = (b) => {
  const x = floats(b, 1);
  const dim = dimOf(b, x);
  const index = b.draw.below(x.shape[front(dim, x.shape.length)]);
  const made = b.call('aten.select.int', [ref(x), dim, index]);
  if (made !== undefined && b.draw.chance(0.4))
    b.call('aten.select_backward.default', [ref(made), x.shape.slice(), dim, index]);
};

const split: Family = (b) => {
  const x = floats(b, 1);
  const dim = dimOf(b, x);
  const n = x.shape[front(dim, x.shape.length)];
  oneOf(b, [
    ['aten.split.Tensor', [ref(x), 1 + b.draw.below(n), dim]],
    ['aten.chunk.default', [ref(x), 1 + b.draw.below(3), dim]],
    ['aten.unbind.int', [ref(x), dim]],
  ]);
};

// ---- moving rows
// -----------------------------------------------------------------------------

const cat: Family = (b) => {
  const x = floats(b, 1);
  const dim = dimOf(b, x);
  const at = front(dim, x.shape.length);
  const other = b.draw.chance(0.4)
    ? x
    : b.input(
        'f32',
        x.shape.map((n, d) => (d === at ? b.draw.pick(SIZES) : n)),
      );
  if (b.draw.chance(0.7)) b.call('aten.cat.default', [[ref(x), ref(other)], dim]);
  else b.call('aten.stack.default', [[ref(x), ref(partner(b, x))], dim]);
};

const rearrange: Family = (b) => {
  const x = floats(b, 2);
  const dim = dimOf(b, x);
  oneOf(b, [
    ['aten.flip.default', [ref(x), [dim]]],
    ['aten.roll.default', [ref(x), [b.draw.below(5) - 2], [dim]]],
    ['aten.tril.default', [ref(x), b.draw.below(5) - 2]],
    ['aten.triu.default', [ref(x), b.draw.below(5) - 2]],
    [
      'aten.constant_pad_nd.default',
      [
        ref(x),
        [b.draw.below(3), b.draw.below(3), 0, b.draw.below(2)],
        b.draw.pick([0, float(1.5)]),
      ],
    ],
    ['aten.repeat.default', [ref(x), x.shape.map(() => 1 + b.draw.below(2))]],
    ['aten.repeat_interleave.self_int', [ref(x), 2, dim]],
    ['aten.diagonal.default', [ref(x), b.draw.below(3) - 1]],
  ]);
};

// ---- indexing
// -----------------------------------------------------------------------------

export const indices = (b: ProgramBuilder, shape: readonly number[]): Tensor =>
  b.input('i64', shape);

const embedding: Family = (b) => {
  const w = floats(b, 2, 2);
  const at = indices(b, shapeOf(b, 1 + b.draw.below(2)));
  const read = b.call('aten.embedding.default', [ref(w), ref(at)]);
  if (read === undefined || b.draw.chance(0.5)) return;
  const g = b.input('f32', read.shape);
  b.call('aten.embedding_dense_backward.default', [
    ref(g),
    ref(at),
    w.shape[0],
    b.draw.pick([-1, 0, 1]),
    b.draw.chance(0.3),
  ]);
};

const readRows: Family = (b) => {
  const x = floats(b, 1);
  const dim = dimOf(b, x);
  const at = front(dim, x.shape.length);
  const many = b.draw.pick(SIZES);
  if (b.draw.chance(0.4)) {
    b.call('aten.index_select.default', [ref(x), dim, ref(indices(b, [many]))]);
    return;
  }
  const shape = x.shape.map((n, d) =>
    d === at ? many : b.draw.chance(0.7) ? n : 1 + b.draw.below(n),
  );
  b.call('aten.gather.default', [ref(x), dim, ref(indices(b, shape))]);
};

const writeRows: Family = (b) => {
  const x = floats(b, 1);
  const dim = dimOf(b, x);
  const at = front(dim, x.shape.length);
  const many = b.draw.pick(SIZES);
  const shape = x.shape.map((n, d) => (d === at ? many : n));
  const name = b.draw.pick([
    'index_add.default',
    'index_copy.default',
    'index_fill.int_Scalar',
    'scatter.src',
    'scatter_add.default',
    'scatter.value',
  ]);
  const rows = name.startsWith('index');
  const index = ref(indices(b, rows ? [many] : shape));
  const source =
    name.endsWith('Scalar') || name.endsWith('value') ? float(1.25) : ref(b.input('f32', shape));
  b.call(`aten.${name}`, [ref(x), dim, index, source]);
};

const advanced: Family = (b) => {
  const x = floats(b, 1);
  const block = shapeOf(b, 1 + b.draw.below(2));
  const list: Arg[] = x.shape.map(() => null);
  list[b.draw.below(list.length)] = ref(indices(b, block));
  if (b.draw.chance(0.3)) list[b.draw.below(list.length)] = ref(indices(b, block));
  const read = b.call('aten.index.Tensor', [ref(x), list]);
  if (read === undefined || b.draw.chance(0.5)) return;
  b.call('aten.index_put.default', [
    ref(x),
    list,
    ref(b.input('f32', broadcastShape(b, read.shape))),
    true,
  ]);
};

const oneHot: Family = (b) => {
  const made = b.call('aten.one_hot.default', [
    ref(indices(b, shapeOf(b, 1 + b.draw.below(2)))),
    2 + b.draw.below(8),
  ]);
  if (made !== undefined) b.call('aten._to_copy.default', [ref(made)], { dtype: dtypeArg('f32') });
};

// ---- norms, losses, attention, convolution
// -----------------------------------------------------------------------------

const rowNorm: Family = (b) => {
  const x = floats(b, 2);
  const inner = x.shape.slice(1 + b.draw.below(x.shape.length - 1));
  const w = b.draw.chance(0.7) ? ref(b.input('f32', inner, 'parameter')) : null;
  const bias = w !== null && b.draw.chance(0.7) ? ref(b.input('f32', inner, 'parameter')) : null;
  if (b.draw.chance(0.3)) {
    b.tuple('aten._fused_rms_norm.default', [ref(x), inner, w, float(1e-5)]);
    return;
  }
  const made = b.tuple('aten.native_layer_norm.default', [ref(x), inner, w, bias, float(1e-5)]);
  const [, mean, rstd] = made ?? [];
  if (
    mean === undefined ||
    rstd === undefined ||
    mean === null ||
    rstd === null ||
    b.draw.chance(0.5)
  )
    return;
  const g = b.input('f32', x.shape);
  b.tuple('aten.native_layer_norm_backward.default', [
    ref(g),
    ref(x),
    inner,
    ref(mean),
    ref(rstd),
    w,
    bias,
    [true, w !== null, bias !== null],
  ]);
};

const channelNorm: Family = (b) => {
  const x = floats(b, 3);
  const channels = x.shape[1];
  const vector = (): Arg => ref(b.input('f32', [channels], 'parameter'));
  const divisors = Array.from({ length: channels }, (_, i) => i + 1).filter(
    (d) => channels % d === 0,
  );
  if (b.draw.chance(0.5)) {
    b.call('aten.group_norm.default', [
      ref(x),
      b.draw.pick(divisors),
      vector(),
      vector(),
      float(1e-5),
    ]);
    return;
  }
  const variance = ref(b.input('f32', [channels]));
  b.tuple('aten.native_batch_norm.default', [
    ref(x),
    vector(),
    vector(),
    vector(),
    variance,
    b.draw.chance(0.5),
    float(0.1),
    float(1e-5),
  ]);
};

const likelihood: Family = (b) => {
  const x = floats(b, 2, 3);
  const shape = x.shape.filter((_, d) => d !== 1);
  const target = indices(b, shape);
  const weight = b.draw.chance(0.4) ? ref(b.input('f32', [x.shape[1]])) : null;
  const reduction = b.draw.below(3);
  const ignore = b.draw.pick([-100, 0, 1]);
  // The likelihood alone is for rows, and for images.
  const composite = b.draw.chance(0.5) || x.shape.length === 3;
  if (composite) {
    b.call('aten.cross_entropy_loss.default', [ref(x), ref(target), weight, reduction, ignore]);
    return;
  }
  const scores = b.call('aten._log_softmax.default', [ref(x), 1, false]);
  if (scores === undefined) return;
  const made = b.tuple('aten.nll_loss_forward.default', [
    ref(scores),
    ref(target),
    weight,
    reduction,
    ignore,
  ]);
  const [loss, total] = made ?? [];
  if (
    loss === undefined ||
    total === undefined ||
    loss === null ||
    total === null ||
    b.draw.chance(0.3)
  )
    return;
  const g = b.input('f32', loss.shape);
  b.call('aten.nll_loss_backward.default', [
    ref(g),
    ref(scores),
    ref(target),
    weight,
    reduction,
    ignore,
    ref(total),
  ]);
};

const pairLoss: Family = (b) => {
  const x = floats(b, 1);
  const y = b.input('f32', x.shape);
  const reduction = b.draw.below(3);
  const name = b.draw.pick(['mse_loss', 'l1_loss', 'smooth_l1_loss', 'huber_loss']);
  const loss = b.call(`aten.${name}.default`, [ref(x), ref(y), reduction]);
  if (loss === undefined || name === 'l1_loss') return;
  const extra = name === 'mse_loss' ? [] : [float(1)];
  b.call(`aten.${name}_backward.default`, [
    ref(b.input('f32', loss.shape)),
    ref(x),
    ref(y),
    reduction,
    ...extra,
  ]);
};

const attention: Family = (b) => {
  const heads = b.draw.pick([1, 2, 4, 6]);
  const shared = b.draw.pick([1, 2].filter((h) => heads % h === 0));
  const [batch, rows, channels, values] = [
    b.draw.pick([1, 2, 3]),
    b.draw.pick([1, 3, 4, 5]),
    b.draw.pick([2, 3]),
    b.draw.pick([2, 3, 4]),
  ];
  const causal = b.draw.chance(0.5);
  const keys = causal && b.draw.chance(0.7) ? rows : b.draw.pick([2, 4, 5, 6]);
  const q = b.input('f32', [batch, heads, rows, channels]);
  const own = b.draw.chance(0.5) ? heads : shared;
  const k = b.input('f32', [batch, own, keys, channels]);
  const v = b.input('f32', [batch, own, keys, values]);
  const maskShape = b.draw.pick([
    [rows, keys],
    [batch, heads, rows, keys],
    [batch, 1, 1, keys],
  ]);
  const bias = !causal && b.draw.chance(0.4) ? { attn_mask: ref(b.input('f32', maskShape)) } : {};
  if (b.draw.chance(0.3)) {
    b.call('aten.scaled_dot_product_attention.default', [ref(q), ref(k), ref(v)], {
      is_causal: causal,
      ...bias,
      ...(own === heads ? {} : { enable_gqa: true }),
    });
    return;
  }
  const flash = 'aten._scaled_dot_product_flash_attention_for_cpu';
  const made = b.tuple(`${flash}.default`, [ref(q), ref(k), ref(v), float(0), causal], bias);
  const [out, lse] = made ?? [];
  if (out === undefined || lse === undefined || out === null || lse === null || b.draw.chance(0.4))
    return;
  const g = b.input('f32', out.shape);
  b.tuple(
    `${flash}_backward.default`,
    [ref(g), ref(q), ref(k), ref(v), ref(out), ref(lse), float(0), causal],
    bias,
  );
};

const convolution: Family = (b) => {
  const groups = b.draw.pick([1, 1, 2, 4]);
  const [inside, outside] = [groups * b.draw.pick([1, 2, 3]), groups * b.draw.pick([1, 2, 3])];
  const x = b.input('f32', [b.draw.pick([1, 2, 3, 4]), inside, 5, 4]);
  const w = b.input('f32', [outside, inside / groups, 3, 2], 'parameter');
  const bias = b.draw.chance(0.5) ? ref(b.input('f32', [outside], 'parameter')) : null;
  const how: Arg[] = [[1, 1], [1, 0], [1, 1], false, [0, 0], groups];
  const y = b.call('aten.convolution.default', [ref(x), ref(w), bias, ...how]);
  if (y === undefined || b.draw.chance(0.5)) return;
  const g = b.input('f32', y.shape);
  b.tuple('aten.convolution_backward.default', [
    ref(g),
    ref(x),
    ref(w),
    bias === null ? null : [outside],
    ...how,
    [true, true, bias !== null],
  ]);
};

const pooling: Family = (b) => {
  const x = floats(b, 4, 4);
  if (x.shape.slice(2).some((n) => n < 2)) return;
  oneOf(b, [
    ['aten.max_pool2d_with_indices.default', [ref(x), [2, 2], [2, 2]]],
    ['aten.avg_pool2d.default', [ref(x), [2, 2], [2, 2]]],
    ['aten._adaptive_avg_pool2d.default', [ref(x), [2, 1]]],
  ]);
};

// ---- factories, random
// -----------------------------------------------------------------------------

const factory: Family = (b) => {
  const shape = shapeOf(b, 1 + b.draw.below(3));
  const x = floats(b);
  const n = b.draw.pick(SIZES);
  const f32 = { dtype: dtypeArg('f32') };
  oneOf(b, [
    ['aten.full.default', [shape, float(0.75)], f32],
    ['aten.ones.default', [shape], f32],
    ['aten.zeros.default', [shape], f32],
    ['aten.zeros_like.default', [ref(x)]],
    ['aten.ones_like.default', [ref(x)]],
    ['aten.full_like.default', [ref(x), float(0.5)]],
    ['aten.new_ones.default', [ref(x), shape]],
    ['aten.new_zeros.default', [ref(x), shape]],
    ['aten.new_full.default', [ref(x), shape, float(2)]],
    ['aten.arange.default', [n], f32],
    ['aten.arange.start_step', [1, 1 + 2 * n, 2], f32],
    ['aten.arange.start', [float(0.5), float(n + 0.25)], f32],
    ['aten.linspace.default', [float(-1), float(1.5), n], f32],
  ]);
};

const noise: Family = (b) => {
  const x = floats(b, 1);
  const half = float(0.5);
  oneOf(b, [
    ['aten.dropout.default', [ref(x), half, true]],
    ['aten.native_dropout.default', [ref(x), half, true]],
    ['aten.rand_like.default', [ref(x)]],
    ['aten.bernoulli.p', [ref(x), half]],
    ['aten.randn.default', [shapeOf(b, 2)], { dtype: dtypeArg('f32') }],
  ]);
};

/** Every family with its weight. */
export const FAMILIES: readonly (readonly [name: string, family: Family, weight: number])[] = [
  ['unary', unary, 3],
  ['tame', tame, 4],
  ['binary', binary, 6],
  ['withScalar', withScalar, 3],
  ['divide', divide, 1],
  ['compare', compare, 2],
  ['logic', logic, 1],
  ['select', select, 2],
  ['ternary', ternary, 1],
  ['activationBackward', activationBackward, 1],
  ['cast', cast, 2],
  ['reduceDims', reduceDims, 5],
  ['reduceAll', reduceAll, 1],
  ['reduceBool', reduceBool, 1],
  ['alongDim', alongDim, 3],
  ['topk', topk, 1],
  ['softmax', softmax, 4],
  ['mm', mm, 4],
  ['bmm', bmm, 2],
  ['linear', linear, 2],
  ['matmul', matmul, 2],
  ['small', small, 1],
  ['view', view, 7],
  ['permute', permute, 4],
  ['ones', ones, 3],
  ['expand', expand, 2],
  ['flatten', flatten, 1],
  ['slice', slice, 4],
  ['pickRow', pickRow, 2],
  ['split', split, 2],
  ['cat', cat, 3],
  ['rearrange', rearrange, 4],
  ['embedding', embedding, 3],
  ['readRows', readRows, 3],
  ['writeRows', writeRows, 3],
  ['advanced', advanced, 3],
  ['oneHot', oneHot, 1],
  ['rowNorm', rowNorm, 3],
  ['channelNorm', channelNorm, 2],
  ['likelihood', likelihood, 3],
  ['pairLoss', pairLoss, 2],
  ['attention', attention, 2],
  ['convolution', convolution, 2],
  ['pooling', pooling, 1],
  ['factory', factory, 3],
  ['noise', noise, 2],
];
