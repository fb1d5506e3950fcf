import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';

import { describe, expect, it } from 'vitest';

import { build, flat, NDArray } from '../../../src/ndarray/array.ts';
import { builtinOperators } from '../../../src/ops/builtin.ts';
import { evaluateGraph } from '../../../src/simulate/evaluate.ts';
import { MultiHeadAttention } from '../../../src/trace/nn/attention.ts';
import { MixtureOfExperts } from '../../../src/trace/nn/moe.ts';
import { GRUCell, LSTMCell } from '../../../src/trace/nn/recurrent.ts';
import { rotation } from '../../../src/trace/nn/rope.ts';
import { spec } from '../../../src/trace/record/spec.ts';
import { einsum } from '../../../src/trace/tensor/einsum.ts';
import * as f from '../../../src/trace/tensor/functional.ts';
import { type OutputTree, type Tensor, trace } from '../../../src/trace/trace.ts';

/**
 * Every method and layer, traced and evaluated, against what PyTorch gives
 * (scripts/engines/run_layers.py).
 */

interface Answer {
  readonly shape: readonly number[];
  readonly values: readonly number[];
}
const answers = JSON.parse(
  gunzipSync(
    readFileSync(join(import.meta.dirname, '../../fixtures/trace/layers.json.gz')),
  ).toString(),
) as { methods: Record<string, Answer>; layers: Record<string, Answer[]> };
const table = builtinOperators();

const wave = (k: number, ...shape: number[]): NDArray =>
  build(shape, (i) => Math.sin(0.7 * i + 1.3 * k + 0.3), 'f32');
const map = (a: NDArray, g: (v: number) => number): NDArray =>
  build(a.shape, (i) => g(flat(a)[i]), a.dtype);
const ints = (k: number, bound: number, ...shape: number[]): NDArray =>
  build(shape, (i) => (7 * i + 3 * k) % bound, 'i64');

/**
 * Traces `fn` over arrays of these names and runs the graph on them; parameters and buffers are
 * looked up by name.
 */
function run<K extends string>(
  values: Readonly<Record<K, NDArray>>,
  fn: (tensors: Readonly<Record<K, Tensor>>) => OutputTree,
  state: Readonly<Record<string, NDArray>> = {},
): NDArray[] {
  const inputs = Object.fromEntries(
    Object.entries<NDArray>(values).map(([name, a]) => [name, spec(a.shape, a.dtype)]),
  );
  const graph = trace(fn as (t: unknown) => OutputTree, inputs as never);
  const all: Readonly<Record<string, NDArray>> = { ...values, ...state };
  const given = graph.nodes
    .filter((n) => n.kind === 'placeholder')
    .map((n) => {
      const value = all[n.meta.roleName ?? ''];
      if (value === undefined) throw new Error(`no value for ${n.meta.roleName}`);
      return value;
    });
  return evaluateGraph(table, graph, given).outputs.map((v) => {
    if (!(v instanceof NDArray)) throw new Error('no array');
    return v;
  });
}

function same(got: NDArray, { shape, values }: Answer): void {
  expect(got.shape).toEqual(shape);
  const mine = got.toArray();
  values.forEach((v, i) =>
    expect(Math.abs(mine[i] - v), `element ${i}: ${mine[i]}, PyTorch has ${v}`).toBeLessThan(
      1e-12 * (1 + Math.abs(v)),
    ),
  );
}

const values = {
  x: wave(0, 3, 4),
  y: wave(1, 3, 4),
  q: map(wave(2, 3, 4), (v) => Math.abs(v) + 0.1),
  m: wave(3, 4, 5),
  b3: wave(4, 2, 3, 4),
  c3: wave(5, 2, 4, 5),
  i: ints(6, 4, 3, 4),
  j: ints(7, 3, 3),
  img: wave(8, 2, 3, 6, 6),
  ker: wave(9, 4, 3, 3, 3),
  kb: wave(10, 4),
  seq: wave(11, 2, 3, 8),
  k1: wave(12, 4, 3, 3),
  w4: wave(13, 4),
  v4: wave(14, 4),
  A: wave(20, 2, 3, 4),
  B: wave(21, 4, 5),
  C: wave(22, 2, 4, 5),
};
type T = Readonly<Record<keyof typeof values, Tensor>>;

const METHODS: Readonly<Record<string, (t: T) => Tensor>> = {
  add: ({ x, y }) => x.add(y),
  'add number': ({ x }) => x.add(2.5),
  sub: ({ x, y }) => x.sub(y),
  rsub: ({ x }) => x.rsub(2),
  mul: ({ x, y }) => x.mul(y),
  div: ({ x, q }) => x.div(q),
  floordiv: ({ x, q }) => x.floordiv(q),
  remainder: ({ x }) => x.remainder(0.3),
  pow: ({ q }) => q.pow(2.5),
  'pow tensor': ({ q, y }) => q.pow(y),
  maximum: ({ x, y }) => x.maximum(y),
  'maximum number': ({ x }) => x.maximum(0.1),
  minimum: ({ x, y }) => x.minimum(y),
  'minimum number': ({ x }) => x.minimum(0.1),
  clamp: ({ x }) => x.clamp(-0.2, 0.3),
  atan2: ({ x, y }) => x.atan2(y),
  lerp: ({ x, y }) => x.lerp(y, 0.3),
  neg: ({ x }) => x.neg(),
  abs: ({ x }) => x.abs(),
  sign: ({ x }) => x.sign(),
  exp: ({ x }) => x.exp(),
  expm1: ({ x }) => x.expm1(),
  log: ({ q }) => q.log(),
  log2: ({ q }) => q.log2(),
  log1p: ({ q }) => q.log1p(),
  sqrt: ({ q }) => q.sqrt(),
  rsqrt: ({ q }) => q.rsqrt(),
  square: ({ x }) => x.square(),
  reciprocal: ({ q }) => q.reciprocal(),
  sin: ({ x }) => x.sin(),
  cos: ({ x }) => x.cos(),
  tan: ({ x }) => x.tan(),
  tanh: ({ x }) => x.tanh(),
  erf: ({ x }) => x.erf(),
  floor: ({ x }) => x.floor(),
  ceil: ({ x }) => x.ceil(),
  round: ({ x }) => x.mul(3).round(),
  trunc: ({ x }) => x.mul(3).trunc(),
  relu: ({ x }) => x.relu(),
  leakyRelu: ({ x }) => x.leakyRelu(0.2),
  elu: ({ x }) => x.elu(0.7),
  gelu: ({ x }) => x.gelu(),
  'gelu tanh': ({ x }) => x.gelu('tanh'),
  silu: ({ x }) => x.silu(),
  sigmoid: ({ x }) => x.sigmoid(),
  softplus: ({ x }) => x.softplus(),
  hardtanh: ({ x }) => x.hardtanh(-0.5, 0.5),
  eq: ({ x, y }) => x.eq(y),
  ne: ({ x }) => x.ne(0),
  lt: ({ x, y }) => x.lt(y),
  le: ({ x }) => x.le(0.1),
  gt: ({ x, y }) => x.gt(y),
  ge: ({ x }) => x.ge(0.1),
  logicalAnd: ({ x, y }) => x.gt(0).logicalAnd(y.gt(0)),
  logicalOr: ({ x, y }) => x.gt(0).logicalOr(y.gt(0)),
  logicalXor: ({ x, y }) => x.gt(0).logicalXor(y.gt(0)),
  logicalNot: ({ x }) => x.gt(0).logicalNot(),
  bitwiseAnd: ({ i }) => i.bitwiseAnd(2),
  bitwiseOr: ({ i }) => i.bitwiseOr(1),
  isnan: ({ x }) => x.isnan(),
  isfinite: ({ x }) => x.isfinite(),
  where: ({ x, y }) => f.where(x.gt(0), x, y),
  'where number': ({ x }) => f.where(x.gt(0), x, 0.5),
  'where numbers': ({ x }) => f.where(x.gt(0), 1, 0.5),
  maskedFill: ({ x }) => x.maskedFill(x.gt(0), -7),
  to: ({ x }) => x.mul(3).to('i64'),
  detach: ({ x }) => x.detach(),
  sum: ({ x }) => x.sum(),
  'sum dims': ({ x }) => x.sum(0, true),
  mean: ({ x }) => x.mean(),
  'mean dims': ({ x }) => x.mean([-1]),
  prod: ({ x }) => x.prod(1),
  amax: ({ x }) => x.amax([0, 1]),
  amin: ({ x }) => x.amin(1, true),
  'max values': ({ x }) => x.max(1).values,
  'max indices': ({ x }) => x.max(1).indices,
  'min values': ({ x }) => x.min(0).values,
  argmax: ({ x }) => x.argmax(1),
  argmin: ({ x }) => x.argmin(0),
  any: ({ x }) => x.gt(0.9).any(),
  'all dim': ({ x }) => x.gt(-0.9).all(1),
  var: ({ x }) => x.var([1]),
  'var of all': ({ x }) => x.var(undefined, { correction: 0 }),
  std: ({ x }) => x.std(0, { keepdim: true }),
  logsumexp: ({ x }) => x.logsumexp(1),
  norm: ({ x }) => x.norm(3, 1),
  softmax: ({ x }) => x.softmax(-1),
  logSoftmax: ({ x }) => x.logSoftmax(0),
  cumsum: ({ x }) => x.cumsum(1),
  cumprod: ({ x }) => x.cumprod(0),
  sort: ({ x }) => x.sort(1, true).values,
  'sort indices': ({ x }) => x.sort(0).indices,
  argsort: ({ x }) => x.argsort(1),
  topk: ({ x }) => x.topk(2, 1).values,
  'topk smallest': ({ x }) => x.topk(2, 1, false).indices,
  view: ({ x }) => x.view(2, 6),
  reshape: ({ x }) => x.t().reshape([-1]),
  flatten: ({ b3 }) => b3.flatten(1),
  unflatten: ({ x }) => x.unflatten(1, [2, 2]),
  permute: ({ b3 }) => b3.permute(2, 0, 1),
  transpose: ({ b3 }) => b3.transpose(-1, 0),
  t: ({ x }) => x.t(),
  expand: ({ w4 }) => w4.expand(3, -1),
  unsqueeze: ({ x }) => x.unsqueeze(1),
  squeeze: ({ x }) => x.unsqueeze(0).squeeze(0),
  contiguous: ({ x }) => x.t().contiguous(),
  repeat: ({ x }) => x.repeat(2, 1),
  repeatInterleave: ({ x }) => x.repeatInterleave(2, 0),
  flip: ({ x }) => x.flip(1),
  roll: ({ x }) => x.roll(1, 0),
  pad: ({ x }) => x.pad([1, 2], 0.5),
  tril: ({ x }) => x.tril(),
  triu: ({ x }) => x.triu(1),
  select: ({ x }) => x.select(0, -1),
  slice: ({ x }) => x.slice(1, 1, 3),
  'slice open': ({ x }) => x.slice(0, 1),
  'slice step': ({ x }) => x.slice(1, 0, null, 2),
  narrow: ({ x }) => x.narrow(1, 1, 2),
  split: ({ x }) => x.split(3, 1)[1],
  'split sizes': ({ x }) => x.split([1, 3], 1)[1],
  chunk: ({ x }) => x.chunk(2, 1)[0],
  unbind: ({ x }) => x.unbind(1)[2],
  gather: ({ x, i }) => x.gather(1, i),
  scatter: ({ x, i, y }) => x.scatter(1, i, y),
  'scatter number': ({ x, i }) => x.scatter(1, i, 2),
  scatterAdd: ({ x, i, y }) => x.scatterAdd(1, i, y),
  indexSelect: ({ x, j }) => x.indexSelect(0, j),
  index: ({ b3, j }) => b3.index(null, j),
  indexPut: ({ x, j, y }) => x.indexPut([j], y, true),
  oneHot: ({ i }) => i.oneHot(4),
  matmul: ({ x, m }) => f.matmul(x, m),
  'matmul batched': ({ b3, m }) => b3.matmul(m),
  bmm: ({ b3, c3 }) => b3.bmm(c3),
  linear: ({ x, y, w4 }) => x.linear(y, w4.slice(0, 0, 3)),
  layerNorm: ({ x, w4, v4 }) => x.layerNorm([4], w4, v4),
  rmsNorm: ({ x, w4 }) => x.rmsNorm([4], w4, 1e-6),
  groupNorm: ({ img }) => img.groupNorm(3),
  conv2d: ({ img, ker, kb }) => img.conv2d(ker, kb, { stride: 2, padding: 1 }),
  conv1d: ({ seq, k1 }) => seq.conv1d(k1),
  maxPool2d: ({ img }) => img.maxPool2d(2),
  avgPool2d: ({ img }) => img.avgPool2d(3, 1, 1),
  adaptiveAvgPool2d: ({ img }) => img.adaptiveAvgPool2d(2, 3),
  cat: ({ x, y }) => f.cat([x, y], 1),
  stack: ({ x, y }) => f.stack([x, y], 1),
  embedding: ({ i, m }) => f.embedding(m, i),
  crossEntropy: ({ x, j }) => f.crossEntropy(x, j),
  'crossEntropy sum': ({ x, j }) => f.crossEntropy(x, j, { reduction: 'sum' }),
  'crossEntropy smoothed': ({ x, j }) => f.crossEntropy(x, j, { labelSmoothing: 0.1 }),
  mseLoss: ({ x, y }) => f.mseLoss(x, y),
  arange: ({ x }) => f.arange(7, { start: 2 }).add(x.sum().mul(0).to('i64')),
  segmentSum: ({ x, j }) => f.segmentSum(x, j, 3),
  attention: ({ b3 }) => f.scaledDotProductAttention(b3, b3, b3, { causal: true }),
  'attention masked': ({ b3 }) =>
    f.scaledDotProductAttention(b3, b3, b3, {
      mask: b3.select(0, 0).matmul(b3.select(0, 1).t()),
      scale: 0.3,
    }),
  'einsum ij,jk->ik': ({ x, m }) => einsum('ij,jk->ik', x, m),
  'einsum bij,jk->bik': ({ A, B }) => einsum('bij,jk->bik', A, B),
  'einsum bij,bjk->bki': ({ A, C }) => einsum('bij,bjk->bki', A, C),
  'einsum bij->ji': ({ A }) => einsum('bij->ji', A),
  'einsum i,j->ij': ({ w4, v4 }) => einsum('i,j->ij', w4, v4),
  'einsum ij,ij->': ({ x, y }) => einsum('ij,ij->', x, y),
  'einsum bij,jk,bjk->bi': ({ A, B, C }) => einsum('bij,jk,bjk->bi', A, B, C),
  'einsum bij,bjk->j': ({ A, C }) => einsum('bij,bjk->j', A, C),
  'einsum ij,kj->ki': ({ x, y }) => einsum('ij,kj->ki', x, y),
  'einsum ab,cd->acbd': ({ x, m }) => einsum('ab,cd->acbd', x, m),
  'einsum ij,jk': ({ x, m }) => einsum('ij,jk', x, m),
};

describe('methods against PyTorch', () => {
  it('every recorded method is tested', () =>
    expect(Object.keys(METHODS).sort()).toEqual(Object.keys(answers.methods).sort()));
  for (const [name, method] of Object.entries(METHODS))
    it(name, () => same(run(values, (t) => method(t))[0], answers.methods[name]));
});

describe('layers against PyTorch', () => {
  const scaled = (k: number, ...shape: number[]): NDArray =>
    map(wave(k, ...shape), (v) => v / Math.sqrt(shape.at(-1) ?? 1));
  const state = (
    path: string,
    first: number,
    shapes: Readonly<Record<string, number[]>>,
  ): Record<string, NDArray> =>
    Object.fromEntries(
      Object.entries(shapes).map(([name, shape], k) => [
        `${path}.${name}`,
        scaled(first + k, ...shape),
      ]),
    );
  const cell = { x: wave(30, 2, 3), h: wave(31, 2, 5), c: wave(32, 2, 5) };
  const gates = (n: number): Record<string, number[]> => ({
    weight_ih: [5 * n, 3],
    bias_ih: [5 * n],
    weight_hh: [5 * n, 5],
    bias_hh: [5 * n],
  });

  it("LSTMCell gives PyTorch's states", () => {
    const [c, h] = run(
      cell,
      ({ x, h, c }) => new LSTMCell('lstm', 3, 5).forward(x, { h, c }),
      state('lstm', 33, gates(4)),
    );
    const [wantedH, wantedC] = answers.layers.lstm;
    same(h, wantedH);
    same(c, wantedC);
  });

  it("GRUCell gives PyTorch's state", () => {
    const [h] = run(
      cell,
      ({ x, h }) => new GRUCell('gru', 3, 5).forward(x, h),
      state('gru', 33, gates(3)),
    );
    same(h, answers.layers.gru[0]);
  });

  it('attention with grouped queries, causal, with rotary positions', () => {
    const layer = new MultiHeadAttention('attn', 16, 4, { keyHeads: 2, causal: true });
    const weights = state('attn', 41, {
      'q_proj.weight': [16, 16],
      'k_proj.weight': [8, 16],
      'v_proj.weight': [8, 16],
      'o_proj.weight': [16, 16],
    });
    const frequencies = build([2], (i) => answers.layers.frequencies[0].values[i], 'f32');
    const [out] = run(
      { x: wave(40, 2, 6, 16) },
      ({ x }) => layer.forward(x, { rotation: rotation(6, 4) }),
      {
        ...weights,
        'rotary_emb.inv_freq': frequencies,
      },
    );
    same(out, answers.layers.attention[0]);
  });

  for (const [name, capacityFactor] of [
    ['moe roomy', 2],
    ['moe tight', 0.5],
  ] as const)
    it(`MixtureOfExperts, ${name}: dense dispatch is routing token by token`, () => {
      const layer = new MixtureOfExperts('moe', 4, 5, 3, { active: 2, capacityFactor });
      const weights = {
        'moe.gate.weight': map(wave(51, 3, 4), (v) => 2 * v),
        'moe.experts.gate': wave(52, 3, 4, 5),
        'moe.experts.up': wave(53, 3, 4, 5),
        'moe.experts.down': wave(54, 3, 5, 4),
      };
      same(
        run({ x: wave(50, 2, 6, 4) }, ({ x }) => layer.forward(x), weights)[0],
        answers.layers[name][0],
      );
    });
});
