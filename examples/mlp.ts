/**
 * A traced MLP, planned on 8 devices so that its weights take the least memory.
 * Run: npx tsx examples/mlp.ts
 */
import { fileURLToPath } from 'node:url';

import { input, parameter, shard, type Tensor, trace } from 'shardwright';
import { annotatedProgram } from 'shardwright/report';

export const inputs = {
  x: input([8, 128]),
  w1: parameter([128, 256]),
  w2: parameter([256, 64]),
};

export function model({ x, w1, w2 }: Record<keyof typeof inputs, Tensor>): Tensor {
  return x.matmul(w1).relu().matmul(w2);
}

// Run as a program it plans; `shardwright trace` only takes the exports above.
if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const result = await shard(trace(model, inputs), {
    mesh: 'd=8',
    cluster: 'dgx-h100',
    inputs: 'R',
    outputs: 'R',
    objective: 'parameter-memory',
  });
  if (result.status === 'infeasible') console.log('no plan:', result.conflict.join(', '));
  else {
    const { plan } = result;
    console.log(annotatedProgram(result.graph, plan));
    console.log(
      `\n${plan.proof.status}, ${plan.memory.parameterBytes} bytes of weights per device`,
    );
  }
}
