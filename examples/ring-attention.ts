/**
 * Ring attention in per-device code: every device keeps its queries, and keys and values go round
 * the ring, one device further in each trip of a scan, while a softmax is kept up to date. Its
 * types are checked, and it runs on 4 virtual devices, forward and gradient, against plain
 * attention on one. Run: npx tsx examples/ring-attention.ts
 */
import { fileURLToPath } from 'node:url';

import { type Graph, input, type Tensor, trace } from 'shardwright';
import { evaluateGraph, fromList, jointGraph, NDArray } from 'shardwright/graph';
import { axisSize, checkTypes, localMap, permute } from 'shardwright/local-spmd';
import { builtinOperators } from 'shardwright/ops';
import { scan } from 'shardwright/trace';

/** Options of tracing, for the command line too. */
export const options = { mesh: 'cp=4' };
const [heads, sequence, width] = [2, 16, 8];

export const inputs = {
  q: input([heads, sequence, width], 'f64'),
  k: input([heads, sequence, width], 'f64'),
  v: input([heads, sequence, width], 'f64'),
};
type Attended = Record<keyof typeof inputs, Tensor>;

/** Attention of all queries to all keys, as one device has it. */
function plain({ q, k, v }: Attended): Tensor {
  return q
    .bmm(k.transpose(1, 2))
    .mul(width ** -0.5)
    .softmax(-1)
    .bmm(v);
}

/**
 * What one device does: `q`, `k` and `v` are its rows of the sequence. `top` is the largest score
 * so far, `sum` the sum of the exponentials below it and `out` the values weighed by them; a larger
 * score scales both down.
 */
function ring(q: Tensor, k: Tensor, v: Tensor): Tensor {
  const next = Array.from({ length: axisSize('cp') }, (_, rank) => (rank + 1) % axisSize('cp'));
  const start = q.mul(0).sum(-1, true);
  const [[, , , sum, out]] = scan(
    ([keys, values, top, sum, out]: readonly [Tensor, Tensor, Tensor, Tensor, Tensor]) => {
      const scores = q.bmm(keys.transpose(1, 2)).mul(width ** -0.5);
      const larger = scores.amax(-1, true).maximum(top).detach();
      const [shrink, weights] = [top.sub(larger).exp(), scores.sub(larger).exp()];
      const carried = [
        permute(keys, 'cp', next),
        permute(values, 'cp', next),
        larger,
        sum.mul(shrink).add(weights.sum(-1, true)),
        out.mul(shrink).add(weights.bmm(values)),
      ] as const;
      return [carried, sum];
    },
    [k, v, start.add(-1e30), start, q.mul(0)] as const,
    [],
    { length: axisSize('cp') },
  );
  return out.div(sum);
}

export function model({ q, k, v }: Attended): Tensor {
  const rows = 'P(None, "cp")';
  return localMap(ring, { inSpecs: [rows, rows, rows], outSpecs: rows, autoCast: false })(q, k, v);
}

/** Numbers of a fixed sequence. */
function drawn(seed: number): NDArray {
  const size = heads * sequence * width;
  return fromList(
    [heads, sequence, width],
    Array.from({ length: size }, (_, i) => Math.sin((i + 1) * (seed + 1.3))),
    'f64',
  );
}

/** Largest difference of the outputs and gradients of two programs of the same inputs. */
function furthest(a: Graph, b: Graph): number[] {
  const values = Array.from(
    { length: a.nodes.filter((n) => n.kind === 'placeholder').length },
    (_, i) => drawn(i),
  );
  const [x, y] = [a, b].map((graph) =>
    evaluateGraph(builtinOperators(), graph, values).outputs.map((out) =>
      out instanceof NDArray ? out.toArray() : [],
    ),
  );
  return x.map((out, i) => Math.max(...out.map((value, j) => Math.abs(value - y[i][j]))));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const graph = trace(model, inputs, options);
  console.log('Types of what one device has:\n');
  for (const [name, text] of checkTypes(graph).texts)
    if (name.includes('/')) console.log(`  ${name}: ${text}`);

  const wrt = Object.keys(inputs);
  const [ours, theirs] = [graph, trace(plain, inputs)].map((g) => jointGraph(g, { wrt }));
  const names = ['the result', ...wrt.map((name) => `the gradient of ${name}`)];
  const differences = furthest(ours, theirs);
  console.log('\nOn 4 virtual devices, against attention on one:\n');
  names.forEach((name, i) =>
    console.log(`  ${name} differs by less than 1e-12: ${differences[i] < 1e-12}`),
  );
}
