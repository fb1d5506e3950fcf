/**
 * Lowers reads and writes of rows by number to HLO: embeddings, advanced indexing, gather, scatter.
 * Negative numbers count from the end where PyTorch lets them. HLO clamps numbers outside the
 * range, which PyTorch refuses.
 */
import type { HloCall, Lowering, Lowerings } from '../call.ts';
import type { HloCode, Val } from '../code.ts';

interface GatherDims {
  readonly offset: readonly number[];
  readonly collapsed: readonly number[];
  readonly map: readonly number[];
  readonly sizes: readonly number[];
}

function gather(
  hlo: HloCode,
  x: Val,
  indices: Val,
  dims: GatherDims,
  shape: readonly number[],
): Val {
  const [out] = hlo.emit('gather', [x, indices], [{ dtype: x.dtype, shape }], {
    offset_dims: dims.offset,
    collapsed_slice_dims: dims.collapsed,
    operand_batching_dims: [],
    start_indices_batching_dims: [],
    start_index_map: dims.map,
    index_vector_dim: indices.shape.length - 1,
    slice_sizes: dims.sizes,
  });
  return out;
}

interface ScatterDims {
  readonly window: readonly number[];
  readonly inserted: readonly number[];
  readonly map: readonly number[];
}

function scatter(
  hlo: HloCode,
  x: Val,
  indices: Val,
  updates: Val,
  dims: ScatterDims,
  adds: boolean,
): Val {
  const [out] = hlo.emit('scatter', [x, indices, updates], [x], {
    update_window_dims: dims.window,
    inserted_window_dims: dims.inserted,
    input_batching_dims: [],
    scatter_indices_batching_dims: [],
    scatter_dims_to_operand_dims: dims.map,
    index_vector_dim: indices.shape.length - 1,
    reducer: adds ? 'add' : 'second',
  });
  return out;
}

/** Row numbers with a last dim of 1, as HLO's index vectors. */
const vectors = (hlo: HloCode, indices: Val): Val => hlo.reshape(indices, [...indices.shape, 1]);

/** Negative numbers counted from the end. */
function fromStart(hlo: HloCode, indices: Val, size: number): Val {
  if (indices.dtype.startsWith('u')) return indices;
  const negative = hlo.compare('LT', indices, hlo.like(indices, 0));
  return hlo.select(negative, hlo.add(indices, hlo.like(indices, size)), indices);
}

// ---- rows of a table
// -----------------------------------------------------------------------------

/** Whole rows of dim `dim` by number; the dims of the numbers take the place of that dim. */
function rows(hlo: HloCode, x: Val, indices: Val, dim: number): Val {
  const before = x.shape.slice(0, dim);
  const after = x.shape.slice(dim + 1);
  const shape = [...before, ...indices.shape, ...after];
  const offset = shape.map((_, d) => d).filter((d) => d < dim || d >= dim + indices.shape.length);
  const sizes = x.shape.map((n, d) => (d === dim ? 1 : n));
  return gather(
    hlo,
    x,
    vectors(hlo, indices),
    { offset, collapsed: [dim], map: [dim], sizes },
    shape,
  );
}

const embedding: Lowering = (call) =>
  rows(call.hlo, call.tensor('weight'), call.tensor('indices'), 0);

/** Rows of the gradient added up where they came from; those of the padding row are left out. */
const embeddingBackward: Lowering = (call) => {
  const { hlo } = call;
  const { dtype, shape } = call.out();
  if (call.ctx.bool('scale_grad_by_freq'))
    return call.unsupported('scaled by frequency is not written');
  const indices = call.tensor('indices');
  let grad = hlo.convert(call.tensor('grad_output'), dtype);
  const padding = call.ctx.int('padding_idx');
  if (padding >= 0 || call.byRank('padding_idx') !== undefined) {
    const own = hlo.compare(
      'EQ',
      indices,
      call.filled('padding_idx', indices.dtype, indices.shape),
    );
    const mask = hlo.broadcastInDim(
      own,
      grad.shape,
      indices.shape.map((_, d) => d),
    );
    grad = hlo.select(mask, hlo.like(grad, 0), grad);
  }
  const window = grad.shape.map((_, d) => d).slice(indices.shape.length);
  const zeros = hlo.constant(0, dtype, shape);
  return scatter(
    hlo,
    zeros,
    vectors(hlo, indices),
    grad,
    { window, inserted: [0], map: [0] },
    true,
  );
};

const indexSelect: Lowering = (call) => {
  const x = call.tensor('self');
  const dim = call.dim('dim', x.shape.length);
  return call.hlo.reshape(rows(call.hlo, x, call.tensor('index'), dim), call.out().shape);
};

/** Rows written or added by number. */
const rowWrite =
  (adds: boolean): Lowering =>
  (call) => {
    const { hlo } = call;
    const x = call.tensor('self');
    const dim = call.dim('dim', x.shape.length);
    let source = hlo.convert(call.tensor('source'), x.dtype);
    if (adds) source = hlo.scaled(source, call.ctx.scalar('alpha')?.value ?? 1);
    const window = source.shape.map((_, d) => d).filter((d) => d !== dim);
    return scatter(
      hlo,
      x,
      vectors(hlo, call.tensor('index')),
      source,
      { window, inserted: [dim], map: [dim] },
      adds,
    );
  };

// ---- one number for every element
// -----------------------------------------------------------------------------

/** For every element of `index` the place it names: the own place in all dims but one. */
function places(hlo: HloCode, index: Val, dim: number): Val {
  const one = [...index.shape, 1];
  const parts = index.shape.map((_, d) =>
    d === dim ? hlo.reshape(index, one) : hlo.iota(index.dtype, one, d),
  );
  return hlo.concatenate(parts, index.shape.length);
}

const gathered: Lowering = (call) => {
  const { hlo } = call;
  const [x, index] = [call.tensor('self'), call.tensor('index')];
  const dims = x.shape.map((_, d) => d);
  if (dims.length === 0) return hlo.reshape(x, call.out().shape);
  const at = places(hlo, index, call.dim('dim', dims.length));
  return gather(
    hlo,
    x,
    at,
    { offset: [], collapsed: dims, map: dims, sizes: dims.map(() => 1) },
    index.shape,
  );
};

const scattered =
  (adds: boolean): Lowering =>
  (call) => {
    const { hlo } = call;
    const [x, index] = [call.tensor('self'), call.tensor('index')];
    const dims = x.shape.map((_, d) => d);
    const source = call.optional('src');
    const updates =
      source === undefined
        ? call.filled('value', x.dtype, index.shape)
        : hlo.sliceTo(hlo.convert(source, x.dtype), index.shape);
    const at = places(hlo, index, call.dim('dim', dims.length));
    return scatter(hlo, x, at, updates, { window: [], inserted: dims, map: dims }, adds);
  };

// ---- lists of indices
// -----------------------------------------------------------------------------

interface Indexed {
  /** Dims of the tensor that have numbers. */
  readonly dims: readonly number[];
  /** [.., number of indexed dims]. */
  readonly at: Val;
  /** Place in the result of the dims that the numbers have. */
  readonly place: number;
  readonly shape: readonly number[];
}

/**
 * Numbers of several dims, broadcast against each other; masks have no size that is known
 * beforehand.
 */
function indexed(call: HloCall, x: Val): Indexed {
  const { hlo } = call;
  const given = call.tensors('indices');
  const dims = given.flatMap((v, d) => (v === null ? [] : [d]));
  const numbers = given.flatMap((v) => (v === null ? [] : [v]));
  if (numbers.some((v) => v.dtype === 'b8'))
    call.unsupported('by a mask has a size that no plan knows');
  const rank = Math.max(0, ...numbers.map((v) => v.shape.length));
  const shape = Array.from({ length: rank }, (_, d) =>
    Math.max(1, ...numbers.map((v) => v.shape[v.shape.length - rank + d] ?? 1)),
  );
  const wide = numbers.map((v, k) => {
    const own = hlo.broadcast(hlo.convert(v, 'i64'), shape);
    return hlo.reshape(fromStart(hlo, own, x.shape[dims[k]]), [...shape, 1]);
  });
  const together = dims.every((d, k) => k === 0 || d === dims[k - 1] + 1);
  return { dims, at: hlo.concatenate(wide, rank), place: together ? dims[0] : 0, shape };
}

const index: Lowering = (call) => {
  const { hlo } = call;
  const x = call.tensor('self');
  const { dims, at, place, shape } = indexed(call, x);
  const out = call.out().shape;
  const offset = out.map((_, d) => d).filter((d) => d < place || d >= place + shape.length);
  const sizes = x.shape.map((n, d) => (dims.includes(d) ? 1 : n));
  return gather(hlo, x, at, { offset, collapsed: dims, map: dims, sizes }, out);
};

const indexPut: Lowering = (call) => {
  const { hlo } = call;
  const x = call.tensor('self');
  const { dims, at, place, shape } = indexed(call, x);
  const rest = x.shape.filter((_, d) => !dims.includes(d));
  const written = [...rest.slice(0, place), ...shape, ...rest.slice(place)];
  const values = hlo.broadcast(hlo.convert(call.tensor('values'), x.dtype), written);
  const window = written.map((_, d) => d).filter((d) => d < place || d >= place + shape.length);
  return scatter(
    hlo,
    x,
    at,
    values,
    { window, inserted: dims, map: dims },
    call.ctx.bool('accumulate'),
  );
};

// ---- slices written back
// -----------------------------------------------------------------------------

const sliceScatter: Lowering = (call) => {
  const { hlo } = call;
  const x = call.tensor('self');
  const dim = call.dim('dim', x.shape.length);
  const update = hlo.convert(call.tensor('src'), x.dtype);
  const one = call.record.name === 'aten.select_scatter.default';
  const size = x.shape[dim];
  const given = one ? call.ctx.int('index') : (call.ctx.optionalInt('start') ?? 0);
  const start = Math.min(size, Math.max(0, given < 0 ? given + size : given));
  const step = one ? 1 : call.ctx.int('step');
  const wide = hlo.reshape(
    update,
    x.shape.map((n, d) => (d === dim ? (one ? 1 : update.shape[d]) : n)),
  );
  const ranks = call.byRank(one ? 'index' : 'start');
  if (step !== 1) return call.unsupported('with a step is not written');
  const zero = hlo.constant(0, 'i32');
  const first = ranks === undefined ? hlo.constant(start, 'i32') : hlo.rankValue(ranks, 'i32');
  return hlo.dynamicUpdateSlice(
    x,
    wide,
    x.shape.map((_, d) => (d === dim ? first : zero)),
  );
};

export const indexingLowerings: Lowerings = {
  'aten.embedding.default': embedding,
  'aten.embedding_dense_backward.default': embeddingBackward,
  'aten.index_select.default': indexSelect,
  'aten.index_add.default': rowWrite(true),
  'aten.index_copy.default': rowWrite(false),
  'aten.gather.default': gathered,
  'aten.scatter.src': scattered(false),
  'aten.scatter.value': scattered(false),
  'aten.scatter_add.default': scattered(true),
  'aten.index.Tensor': index,
  'aten.index_put.default': indexPut,
  'aten.slice_scatter.default': sliceScatter,
  'aten.select_scatter.default': sliceScatter,
};
