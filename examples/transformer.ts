/**
 * One transformer block, written by the recipe of the einshard tutorial: each product is an einsum,
 * the letters that a product sums over are those that its weights are cut on last, norms and
 * embeddings are replicated. The plan cuts q, k and v by head, the feed-forward layer by column and
 * then by row, and needs one all-reduce for each pair of products: after attention, and after the
 * feed-forward layer. It is printed in einshard notation: `d h k -> h8 d k` cuts h into 8. Run: npx
 * tsx examples/transformer.ts
 */
import { fileURLToPath } from 'node:url';

import { shard, spec, type Tensor, trace } from 'shardwright';
import { printGraph } from 'shardwright/graph';
import { einshardParameters } from 'shardwright/report';
import { einsum, embedding, param, scaledDotProductAttention, scope } from 'shardwright/trace';

const [vocabulary, width, heads, headWidth, hidden] = [512, 256, 8, 32, 1024];

function norm(x: Tensor): Tensor {
  return x.rmsNorm([width], param('norm', [width]), 1e-5);
}

function attention(x: Tensor): Tensor {
  const [q, k, v] = ['wq', 'wk', 'wv'].map((name) =>
    einsum('bsd,dhk->bhsk', x, param(name, [width, heads, headWidth])),
  );
  const mixed = scaledDotProductAttention(q, k, v, { causal: true });
  return einsum('bhsk,hkd->bsd', mixed, param('wo', [heads, headWidth, width]));
}

function feedForward(x: Tensor): Tensor {
  const inner = einsum('bsd,df->bsf', x, param('w1', [width, hidden])).gelu();
  return einsum('bsf,fd->bsd', inner, param('w2', [hidden, width]));
}

export const inputs = { tokens: spec([4, 128], 'i64') };

export function model({ tokens }: { tokens: Tensor }): Tensor {
  const x = embedding(param('table', [vocabulary, width]), tokens);
  const seen = x.add(scope('attention', () => attention(norm(x))));
  return seen.add(scope('mlp', () => feedForward(norm(seen))));
}

/** What the dims of the parameters are called in the einsums above. */
const LETTERS = {
  table: 'vd',
  'attention.norm': 'd',
  'attention.wq': 'dhk',
  'attention.wk': 'dhk',
  'attention.wv': 'dhk',
  'attention.wo': 'hkd',
  'mlp.norm': 'd',
  'mlp.w1': 'df',
  'mlp.w2': 'fd',
};

// Run as a program it prints and plans; `shardwright trace` only takes the exports above.
if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const graph = trace(model, inputs, { name: 'transformer' });
  console.log(printGraph(graph, { source: false }));

  const replicated = ['table', 'attention.norm', 'mlp.norm'].map((node) => ({ node, spec: 'R' }));
  const result = await shard(graph, {
    mesh: 'd=8',
    cluster: 'dgx-h100',
    inputs: 'R',
    outputs: 'R',
    pins: replicated,
    objective: 'parameter-memory',
  });

  if (result.status === 'infeasible') console.log('no plan:', result.conflict.join(', '));
  else {
    const { plan } = result;
    console.log(
      'On 8 devices, inputs and outputs whole, embedding and norms replicated, the least ' +
        'memory of weights:\n',
    );
    for (const { name, expression, refused } of einshardParameters(plan, LETTERS))
      console.log(`${name.padEnd(16)} ${expression ?? refused}`);
    for (const node of [...plan.nodes, ...plan.outputs])
      for (const { collectives } of node.redistributions)
        for (const { kind, bytes } of collectives)
          console.log(
            `${kind} of ${bytes} bytes before ${'name' in node ? node.name : 'the output'}`,
          );
    console.log(`${plan.proof.status}, ${plan.memory.parameterBytes} bytes of weights per device`);
  }
}
