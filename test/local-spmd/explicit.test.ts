import { readFileSync } from 'node:fs';

import { expect, test } from 'vitest';

import type { Graph } from '../../src/graph/types.ts';
import { checkTypes } from '../../src/local-spmd/check-types.ts';
import type { SpecWord } from '../../src/local-spmd/words.ts';
import { einsum } from '../../src/trace/tensor/einsum.ts';
import { arange, cat, stack, where, zeros } from '../../src/trace/tensor/functional.ts';
import { apply } from '../../src/trace/tensor/tensor.ts';
import { input, type Tensor, trace } from '../../src/trace/trace.ts';

/** Types of JAX 0.10.2, which `scripts/engines/run_explicit.py` prints and test/engines asks again. */
const jax = JSON.parse(
  readFileSync(new URL('../fixtures/local-spmd/explicit.json', import.meta.url), 'utf8'),
) as Readonly<Record<'a=2' | 'a=2,b=2', Readonly<Record<string, string>>>>;

const OURS: Readonly<Record<string, (x: Tensor, z: Tensor) => Tensor>> = {
  argmax: (x) => x.argmax(0),
  'argmax of rows': (x) => x.argmax(1),
  var: (x) => x.var(0),
  std: (x) => x.std(0),
  mean: (x) => x.mean(0),
  sum: (x) => x.sum(0),
  prod: (x) => x.prod(0),
  amax: (x) => x.amax(0),
  any: (x) => x.gt(3).any(0),
  logsumexp: (x) => x.logsumexp(0),
  norm: (x) => x.norm(2, 0),
  'norm of all': (x) => x.norm(),
  softmax: (x) => x.softmax(0),
  cumsum: (x) => x.cumsum(0),
  'cumsum of rows': (x) => x.cumsum(1),
  sort: (x) => x.sort(0).values,
  topk: (x) => x.t().topk(2, 1).values,
  flip: (x) => x.flip(0),
  roll: (x) => x.roll(1, 0),
  cat: (x) => cat([x, x], 0),
  'cat of columns': (x) => cat([x, x], 1),
  'cat with a whole one': (x, z) => cat([x, z], 1),
  stack: (x) => stack([x, x], 0),
  'stack with a whole one': (x, z) => stack([x, z], 0),
  tril: (x) => x.tril(),
  triu: (x) => x.triu(),
  pad: (x) => x.pad([0, 0, 1, 1]),
  'pad by one': (x) => x.pad([0, 0, 1, 0]),
  'pad of columns': (x) => x.pad([1, 1, 0, 0]),
  slice: (x) => x.slice(0, 0, 4),
  'slice of 3': (x) => x.slice(0, 0, 3),
  'slice with a step': (x) => x.slice(0, 0, 8, 2),
  'slice of columns': (x) => x.slice(1, 0, 4),
  select: (x) => x.select(0, 0),
  take: (x) => x.indexSelect(0, arange(2)),
  'take of columns': (x) => x.indexSelect(1, arange(2)),
  where: (x, z) => where(x.gt(0), x, z),
  'where of a number': (x) => where(x.gt(0), x, 0),
  'where by a whole one': (x, z) => where(z.gt(0), x, x),
  add: (x, z) => x.add(z),
  maximum: (x, z) => x.maximum(z),
  clamp: (x) => x.clamp(0, 1),
  transpose: (x) => x.t(),
  'view as one dim': (x) => x.view(64),
  'view that splits the cut': (x) => x.view(4, 2, 8),
  expand: (x) => x.expand(3, 8, 8),
  split: (x) => x.split(4, 0)[0],
  unbind: (x) => x.unbind(0)[0],
  'unbind of columns': (x) => x.unbind(1)[0],
  'matmul with a whole one': (x, z) => x.matmul(z),
  'matmul of a whole one': (x, z) => z.matmul(x),
  'matmul with itself': (x) => x.matmul(x),
  'matmul over the cut': (x) => x.t().matmul(x),
  'matmul that cuts twice': (x) => x.matmul(x.t()),
  'view that joins the cut': (x) => x.view(1, 64),
  'view into longer rows': (x) => x.view(4, 16),
  'view into shorter rows': (x) => x.view(16, 4),
  'view that splits columns': (x) => x.view(8, 2, 4),
  'repeat each row': (x) => apply('aten.repeat_interleave.self_int', [x, 2, 0]),
  'repeat each column': (x) => apply('aten.repeat_interleave.self_int', [x, 2, 1]),
  'tile of columns': (x) => apply('aten.repeat.default', [x, [1, 2]]),
  trace: (x) => apply('aten.trace.default', [x]),
  'slice inside': (x) => x.slice(0, 1, 7),
  'gather of columns': (x) => x.gather(1, zeros([8, 8], 'i64')),
  'argsort of rows': (x) => x.sort(1).indices,
  'minus a row': (x, z) => x.sub(z.select(0, 0)),
  'minus a column': (x, z) => x.sub(z.slice(1, 0, 1)),
  'product with a vector': (x, z) => x.matmul(z.select(0, 0)),
  'a vector with the product': (x, z) => z.select(0, 0).matmul(x),
  'layer norm': (x) => x.sub(x.mean(0, true)).mul(x.var(0, { keepdim: true }).add(1e-5).rsqrt()),
};

/** Calls that JAX refuses without `out_sharding` and that are taken here; docs/local-spmd.md has why. */
const TAKEN: Readonly<Record<string, string>> = {
  'view that joins the cut': '[1,64@a]',
  'view into longer rows': '[4@a,16]',
  'view into shorter rows': '[16@a,4]',
  'repeat each row': '[16@a,8]',
  trace: '[]',
};

/** Shape and cuts of a type: JAX has other widths of integers, and marks nothing as reduced. */
const shapeOf = (text: string): string => /\[.*\]/.exec(text)?.[0] ?? text;

/** The type of a program's result in explicit mode. */
function typeOf(graph: Graph, types: Readonly<Record<string, SpecWord>>): string {
  const { texts, violations } = checkTypes(graph, { mode: 'explicit', types });
  return violations.length > 0 ? 'refused' : shapeOf(texts.get(graph.outputs[0].value ?? '') ?? '');
}

test.each(Object.keys(jax['a=2']))('explicit: %s, as in JAX', (name) => {
  const graph = trace((x, z) => OURS[name](x, z), [input([8, 8]), input([8, 8])], { mesh: 'a=2' });
  const taken = name in TAKEN;
  const theirs = jax['a=2'][name];
  expect(typeOf(graph, { arg0: 'P("a")', arg1: { a: 'R' } })).toBe(
    taken ? TAKEN[name] : shapeOf(theirs),
  );
  if (taken) expect(theirs).toBe('refused');
});

/** Values of the mesh a=2,b=2. */
const HELD = {
  /** A grid: rows and columns are cut. */
  q: 'P("a", "b")',
  x: 'P("a", None)',
  y: 'P(None, "b")',
  z: 'P(None, None)',
  /** Its rows are cut by both axes. */
  d: 'P(("a", "b"), None)',
  /** A batch of grids. */
  t3: 'P(None, "a", "b")',
} as const;
type Values = Readonly<Record<keyof typeof HELD, Tensor>>;

const ON_TWO_AXES: Readonly<Record<string, (v: Values) => Tensor>> = {
  'matmul of a grid with a whole one': (v) => v.q.matmul(v.z),
  'matmul of rows and columns': (v) => v.x.matmul(v.y),
  'matmul of a grid with itself': (v) => v.q.matmul(v.q),
  'matmul of rows with a grid': (v) => v.x.matmul(v.q),
  'matmul of columns with rows': (v) => v.y.matmul(v.x),
  'matmul of fine rows': (v) => v.d.matmul(v.z),
  'matmul of a grid with its transpose': (v) => v.q.matmul(v.q.t()),
  'matmul over two whole dims and a cut one': (v) => v.x.matmul(v.y.t()),
  'matmul that cuts two dims finely': (v) => v.d.matmul(v.d.t()),
  'matmul over fine rows': (v) => v.d.t().matmul(v.d),
  'matmul over fine and coarse rows': (v) => v.d.t().matmul(v.x),
  'matmul of rows with fine rows': (v) => v.x.matmul(v.d),
  'matmul of columns with fine rows': (v) => v.y.matmul(v.d),
  'matmul of a grid with fine rows': (v) => v.q.matmul(v.d),
  'matmul of a grid with columns': (v) => v.q.matmul(v.y),
  'matmul of fine rows with a grid': (v) => v.d.matmul(v.q),
  'matmul of fine rows with columns': (v) => v.d.matmul(v.y),
  'dot of fine and coarse rows': (v) => v.d.sum(1).matmul(v.x.sum(1)),
  'batched matmul of a grid with itself': (v) => v.t3.matmul(v.t3),
  'batched matmul of a grid with a whole one': (v) => v.t3.matmul(v.z),
  'grid plus rows': (v) => v.q.add(v.x),
  'rows plus columns': (v) => v.x.add(v.y),
  'grid plus a whole row': (v) => v.q.add(v.z.select(0, 0)),
  'batch of grids plus a grid': (v) => v.t3.add(v.q),
  'fine plus coarse rows': (v) => v.d.add(v.x),
  'fine rows plus a grid': (v) => v.d.add(v.q),
  'fine rows plus columns': (v) => v.d.add(v.y),
  'maximum of fine and coarse rows': (v) => v.d.maximum(v.x),
  'sum of the rows of a grid': (v) => v.q.sum(0),
  'sum of a grid': (v) => v.q.sum(),
  'sum of fine rows': (v) => v.d.sum(0),
  'mean of grids': (v) => v.t3.mean([1, 2]),
  'variances of a grid': (v) => v.q.var(1),
  'argmax of fine rows': (v) => v.d.argmax(0),
  'minimum of a batch': (v) => v.t3.amin(1),
  'view that splits fine rows evenly': (v) => v.d.view(4, 2, 8),
  'view that splits fine rows coarsely': (v) => v.d.view(2, 4, 8),
  'view that splits fine rows twice': (v) => v.d.view(2, 2, 2, 8),
  'view into shorter fine rows': (v) => v.d.view(16, 4),
  'view of fine rows as one dim': (v) => v.d.view(64),
  'view of a grid as one dim': (v) => v.q.view(64),
  'view that joins a batch and rows': (v) => v.t3.view(32, 8),
  'view that joins rows and columns': (v) => v.t3.view(4, 64),
  'view that splits the columns of a grid': (v) => v.q.view(8, 2, 4),
  'view with a dim more': (v) => v.d.view(1, 8, 8),
  permute: (v) => v.t3.permute(2, 0, 1),
  'stack of grids': (v) => stack([v.q, v.q], 1),
  'cat of grids': (v) => cat([v.q, v.q], 1),
  'cat of a grid and rows': (v) => cat([v.q, v.x], 0),
  'cat of fine and coarse rows': (v) => cat([v.d, v.x], 0),
  'stack of fine and coarse rows': (v) => stack([v.d, v.x], 0),
  'slice of two fine rows': (v) => v.d.slice(0, 0, 2),
  'slice of four fine rows': (v) => v.d.slice(0, 0, 4),
  'slice of both dims': (v) => v.q.slice(0, 2, 6).slice(1, 2, 6),
  'slice with an odd step': (v) => v.q.slice(0, 0, 8, 3),
  'slice of six fine rows': (v) => v.d.slice(0, 0, 6),
  'split into two fine rows': (v) => v.d.split(2, 0)[0],
  'select of a whole dim': (v) => v.x.select(1, 0),
  'select of a cut dim': (v) => v.q.select(0, 0),
  'select of a batch': (v) => v.t3.select(0, 0),
  'where of a grid and rows': (v) => where(v.q.gt(0), v.q, v.x),
  'where of a whole one and a number': (v) => where(v.x.gt(0), v.z, 1),
  'where by a scalar': (v) => where(v.z.select(0, 0).select(0, 0).gt(0), v.q, v.q),
  'where of two whole ones': (v) => where(v.x.gt(0), v.z, v.z),
  'where of a number and a whole one': (v) => where(v.x.gt(0), 1, v.z),
  'where of columns and a number': (v) => where(v.x.gt(0), v.y, 1),
  'where by a whole one, of a number': (v) => where(v.z.gt(0), v.x, 1),
  'where by rows of two grids': (v) => where(v.x.gt(0), v.q, v.q),
  'where by sums of rows': (v) => where(v.x.sum(1, true).gt(0), v.x, 0),
  'where by a grid of rows': (v) => where(v.q.gt(0), v.x, v.x),
  'softmax of fine rows': (v) => v.d.softmax(0),
  'flip of a grid': (v) => v.q.flip([0, 1]),
  'flip of fine columns': (v) => v.d.t().flip(1),
  'tril of fine rows': (v) => v.d.tril(),
  'pad of fine rows': (v) => v.d.pad([0, 0, 2, 2]),
  'pad of fine rows by one': (v) => v.d.pad([0, 0, 1, 1]),
  'pad of one column': (v) => v.q.pad([1, 0]),
  'pad of a grid': (v) => v.q.pad([1, 1, 1, 1]),
  'cumsum along the columns': (v) => v.q.cumsum(1),
  'sort along the columns': (v) => v.q.sort(1).values,
  'topk along the columns': (v) => v.y.topk(2, 1).values,
  'roll of a grid': (v) => v.q.roll(1, 1),
  'take of whole columns': (v) => v.x.indexSelect(1, arange(2)),
  'expand of sums': (v) => v.d.sum(1).expand(3, 8),
  'rows plus their numbers': (v) => v.x.add(arange(8).unsqueeze(1)),
  'logsumexp of a grid': (v) => v.q.logsumexp(1),
  'tile of a grid': (v) => apply('aten.repeat.default', [v.q, [1, 2]]),
  'outer product of rows with themselves': (v) => einsum('i,j->ij', v.x.sum(1), v.x.sum(1)),
  'outer product of rows and columns': (v) => einsum('i,j->ij', v.x.sum(1), v.y.sum(0)),
  'layer norm of a grid': (v) =>
    v.q.sub(v.q.mean(1, true)).div(v.q.var(1, { keepdim: true }).add(1e-5).sqrt()),
};

/** Two dims that are cut and become one: JAX moves rows for it without a word; refused here. */
const JOINED = ['view of a grid as one dim', 'view that joins rows and columns'];
const TAKEN_ON_TWO: Readonly<Record<string, string>> = {
  'view into shorter fine rows': '[16@(a,b),4]',
};

test.each(Object.keys(jax['a=2,b=2']))('explicit, on two axes: %s, as in JAX', (name) => {
  const square = input([8, 8]);
  const inputs = { q: square, x: square, y: square, z: square, d: square, t3: input([4, 8, 8]) };
  const graph = trace((v) => ON_TWO_AXES[name](v), inputs, { mesh: 'a=2,b=2' });
  const theirs = shapeOf(jax['a=2,b=2'][name]);
  const ours = typeOf(graph, HELD);
  if (JOINED.includes(name)) {
    expect([ours, theirs]).toEqual(['refused', expect.stringMatching(/64@\(a,b\)/)]);
    return;
  }
  const taken = name in TAKEN_ON_TWO;
  expect(ours).toBe(taken ? TAKEN_ON_TWO[name] : theirs);
  if (taken) expect(theirs).toBe('refused');
});
