/**
 * Lowers products of ATen to HLO: matrices, convolution, attention. A product of 16-bit numbers has
 * the type of its operands, as in PyTorch; XLA adds it up in f32.
 */
import type { HloCall, Lowering, Lowerings } from '../call.ts';
import type { HloCode, Val } from '../code.ts';

const mm: Lowering = (call) => call.hlo.matmul(call.first, call.second);

const addmm: Lowering = (call) => {
  const { hlo } = call;
  const { dtype, shape } = call.out();
  const [left, right] = call.takes('batch1') ? ['batch1', 'batch2'] : ['mat1', 'mat2'];
  const product = hlo.matmul(call.tensor(left), call.tensor(right));
  const [alpha, beta] = ['alpha', 'beta'].map((name) => call.ctx.scalar(name)?.value ?? 1);
  return hlo.add(hlo.scaled(call.operand('self', dtype, shape), beta), hlo.scaled(product, alpha));
};

/** x wᵀ + b over the last dim. */
const linear: Lowering = (call) => {
  const { hlo } = call;
  const [x, w] = [call.tensor('input'), call.tensor('weight')];
  const product = hlo.dot(x, w, {
    batch: [[], []],
    contract: [[x.shape.length - 1], [w.shape.length - 1]],
  });
  return call.ctx.has('bias')
    ? hlo.add(product, hlo.broadcast(call.tensor('bias'), product.shape))
    : product;
};

/** PyTorch's matmul: vectors become matrices, and dims before the last two are broadcast. */
const matmul: Lowering = (call) => {
  const { hlo } = call;
  let [x, y] = [call.first, call.second];
  const [vectorLeft, vectorRight] = [x.shape.length === 1, y.shape.length === 1];
  if (vectorLeft) x = hlo.reshape(x, [1, ...x.shape]);
  if (vectorRight) y = hlo.reshape(y, [...y.shape, 1]);
  if (y.shape.length === 2) {
    const product = hlo.dot(x, y, { batch: [[], []], contract: [[x.shape.length - 1], [0]] });
    return hlo.reshape(product, call.out().shape);
  }
  const rank = Math.max(x.shape.length, y.shape.length) - 2;
  const size = (v: Val, d: number): number => v.shape[v.shape.length - 2 - rank + d] ?? 1;
  const batch = Array.from({ length: rank }, (_, d) => Math.max(size(x, d), size(y, d)));
  const wide = (v: Val): Val => hlo.broadcast(v, [...batch, ...v.shape.slice(-2)]);
  return hlo.reshape(hlo.matmul(wide(x), wide(y)), call.out().shape);
};

// ---- convolution
// -----------------------------------------------------------------------------

/** Input [batch, channels, ..], kernel [out, in / groups, ..]. */
const convolution: Lowering = (call) => {
  const { hlo, ctx } = call;
  const [x, w] = [call.tensor('input'), call.tensor('weight')];
  if (ctx.bool('transposed')) return call.unsupported('that is transposed is not written');
  const spatial = x.shape.length - 2;
  const each = (name: string): number[] => {
    const given = ctx.ints(name);
    return given.length === 1 ? new Array<number>(spatial).fill(given[0]) : [...given];
  };
  const dims = [0, 1, ...Array.from({ length: spatial }, (_, d) => d + 2)];
  const padding = each('padding').flatMap((n) => [n, n]);
  const { dtype, shape } = call.out();
  const [out] = hlo.emit('convolution', [x, w], [{ dtype, shape }], {
    input_dimensions: dims,
    kernel_dimensions: [1, 0, ...dims.slice(2)],
    output_dimensions: dims,
    window_strides: each('stride'),
    padding,
    rhs_dilation: each('dilation'),
    feature_group_count: ctx.int('groups'),
    batch_group_count: 1,
  });
  return ctx.has('bias') ? hlo.add(out, hlo.broadcastInDim(call.tensor('bias'), shape, [1])) : out;
};

// ---- attention
// -----------------------------------------------------------------------------

/** Key or value heads repeated to the number of query heads. */
function repeatHeads(hlo: HloCode, x: Val, heads: number): Val {
  const rank = x.shape.length;
  if (rank < 3 || x.shape[rank - 3] === heads) return x;
  const own = x.shape[rank - 3];
  const wide = [...x.shape.slice(0, -2), heads / own, ...x.shape.slice(-2)];
  const dims = [...x.shape.slice(0, -2).map((_, d) => d), rank - 1, rank];
  return hlo.reshape(hlo.broadcastInDim(x, wide, dims), [
    ...x.shape.slice(0, -3),
    heads,
    ...x.shape.slice(-2),
  ]);
}

/** Gradients of repeated heads added up. */
function foldHeads(hlo: HloCode, x: Val, own: number): Val {
  const rank = x.shape.length;
  if (rank < 3 || x.shape[rank - 3] === own) return x;
  const split = hlo.reshape(x, [
    ...x.shape.slice(0, -3),
    own,
    x.shape[rank - 3] / own,
    ...x.shape.slice(-2),
  ]);
  return hlo.reduce(split, 'add', [rank - 2]);
}

interface Scores {
  /** Scaled and masked, [.., heads, queries, keys], at least f32. */
  readonly scores: Val;
  readonly scale: number;
  readonly query: Val;
  readonly key: Val;
  readonly value: Val;
}

function scoresOf(call: HloCall, mask: string | undefined): Scores {
  const { hlo, ctx } = call;
  const wide = (x: Val): Val => hlo.convert(x, x.dtype === 'f64' ? 'f64' : 'f32');
  const query = wide(call.tensor('query'));
  const heads = query.shape[query.shape.length - 3] ?? 1;
  const [key, value] = ['key', 'value'].map((name) =>
    repeatHeads(hlo, wide(call.tensor(name)), heads),
  );
  const scale = ctx.optionalNumber('scale') ?? 1 / Math.sqrt(query.shape[query.shape.length - 1]);
  let scores = hlo.scaled(hlo.matmul(query, hlo.transposed(key)), scale);
  const given = mask === undefined ? undefined : call.optional(mask);
  if (given?.dtype === 'b8')
    scores = hlo.select(hlo.broadcast(given, scores.shape), scores, hlo.like(scores, -Infinity));
  else if (given !== undefined)
    scores = hlo.add(scores, hlo.broadcast(hlo.convert(given, scores.dtype), scores.shape));
  if (ctx.bool('is_causal')) {
    const rank = scores.shape.length;
    const [row, column] = [rank - 2, rank - 1].map((d) => hlo.iota('i32', scores.shape, d));
    scores = hlo.select(hlo.compare('GE', row, column), scores, hlo.like(scores, -Infinity));
  }
  if (ctx.number('dropout_p') > 0)
    call.unsupported('with dropout draws numbers that only PyTorch draws');
  return { scores, scale, query, key, value };
}

/** Rows without a single key have weights of zero. */
function weightsOf(hlo: HloCode, scores: Val): { readonly weights: Val; readonly logSumExp: Val } {
  const last = scores.shape.length - 1;
  const wide = (x: Val): Val => hlo.broadcast(x, scores.shape);
  const peak = hlo.reduceKept(scores, 'maximum', [last]);
  const safe = hlo.select(hlo.unary('is_finite', peak, 'b8'), peak, hlo.like(peak, 0));
  const raised = hlo.unary('exponential', hlo.subtract(scores, wide(safe)));
  const total = hlo.reduceKept(raised, 'add', [last]);
  const divisor = hlo.select(
    hlo.compare('EQ', total, hlo.like(total, 0)),
    hlo.like(total, 1),
    total,
  );
  const logSumExp = hlo.add(hlo.unary('log', total), safe);
  return {
    weights: hlo.divide(raised, wide(divisor)),
    logSumExp: hlo.reshape(logSumExp, scores.shape.slice(0, -1)),
  };
}

const attention: Lowering = (call) => {
  const { scores, value } = scoresOf(call, 'attn_mask');
  return call.hlo.convert(
    call.hlo.matmul(weightsOf(call.hlo, scores).weights, value),
    call.out().dtype,
  );
};

/** The kernel of the CPU: the output, and the log-sum-exp that its gradient reads. */
const flashForCpu: Lowering = (call) => {
  const { hlo } = call;
  const { scores, value } = scoresOf(call, 'attn_mask');
  const { weights, logSumExp } = weightsOf(hlo, scores);
  const saved = call.ctx.outputs[1];
  return [
    hlo.convert(hlo.matmul(weights, value), call.out().dtype),
    saved === null ? null : hlo.convert(logSumExp, saved.dtype),
  ];
};

const flashForCpuBackward: Lowering = (call) => {
  const { hlo, ctx } = call;
  const { scores, scale, query, key } = scoresOf(call, 'attn_mask');
  const wide = (x: Val): Val => hlo.convert(x, scores.dtype);
  const heads = query.shape[query.shape.length - 3] ?? 1;
  const value = repeatHeads(hlo, wide(call.tensor('value')), heads);
  const [grad, out, lse] = ['grad_out', 'out', 'logsumexp'].map((name) => wide(call.tensor(name)));
  const column = hlo.broadcastInDim(
    lse,
    scores.shape,
    lse.shape.map((_, d) => d),
  );
  const seen = hlo.compare('GT', scores, hlo.like(scores, -Infinity));
  const weights = hlo.select(
    seen,
    hlo.unary('exponential', hlo.subtract(scores, column)),
    hlo.like(scores, 0),
  );
  const last = scores.shape.length - 1;
  const inner = hlo.broadcast(hlo.reduceKept(hlo.multiply(grad, out), 'add', [last]), scores.shape);
  const gradScores = hlo.multiply(
    weights,
    hlo.subtract(hlo.matmul(grad, hlo.transposed(value)), inner),
  );
  const own = call.tensor('key').shape[query.shape.length - 3] ?? 1;
  const results = [
    hlo.scaled(hlo.matmul(gradScores, key), scale),
    foldHeads(hlo, hlo.scaled(hlo.matmul(hlo.transposed(gradScores), query), scale), own),
    foldHeads(hlo, hlo.matmul(hlo.transposed(weights), grad), own),
  ];
  return ctx.outputs.map((meta, k) => (meta === null ? null : hlo.convert(results[k], meta.dtype)));
};

const FLASH = 'aten._scaled_dot_product_flash_attention_for_cpu';

export const productLowerings: Lowerings = {
  'aten.mm.default': mm,
  'aten.bmm.default': mm,
  'aten.matmul.default': matmul,
  'aten.mv.default': matmul,
  'aten.dot.default': matmul,
  'aten.addmm.default': addmm,
  'aten.baddbmm.default': addmm,
  'aten.linear.default': linear,
  'aten.convolution.default': convolution,
  'aten.scaled_dot_product_attention.default': attention,
  [`${FLASH}.default`]: flashForCpu,
  [`${FLASH}_backward.default`]: flashForCpuBackward,
};
