import { readFileSync } from 'node:fs';

import { expect, test } from 'vitest';

import { checkTypes } from '../../src/local-spmd/check-types.ts';
import { arange, cat, stack, where, zeros } from '../../src/trace/tensor/functional.ts';
import { apply } from '../../src/trace/tensor/tensor.ts';
import { input, type Tensor, trace } from '../../src/trace/trace.ts';

/** Types of JAX 0.10.2, which `scripts/engines/run_explicit.py` prints and test/engines asks again. */
const jax = JSON.parse(
  readFileSync(new URL('../fixtures/local-spmd/explicit.json', import.meta.url), 'utf8'),
) as Readonly<Record<string, string>>;

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

test.each(Object.keys(jax))('explicit: %s, as in JAX', (name) => {
  const graph = trace((x, z) => OURS[name](x, z), [input([8, 8]), input([8, 8])], { mesh: 'a=2' });
  const types = { arg0: 'P("a")', arg1: { a: 'R' } } as const;
  const { texts, violations } = checkTypes(graph, { mode: 'explicit', types });
  const ours =
    violations.length > 0 ? 'refused' : shapeOf(texts.get(graph.outputs[0].value ?? '') ?? '');
  const taken = name in TAKEN;
  expect(ours).toBe(taken ? TAKEN[name] : shapeOf(jax[name]));
  if (taken) expect(jax[name]).toBe('refused');
});
