/**
 * A traced MLP, planned on 8 devices so that its weights take the least memory.
 * Run: npx tsx examples/mlp.ts
 */
import { annotatedProgram, builtinOperators, DEFAULT_REQUEST, input, parameter, shard, trace } from 'shardwright';

const graph = trace(({ x, w1, w2 }) => x.matmul(w1).relu().matmul(w2), {
  x: input([8, 128]),
  w1: parameter([128, 256]),
  w2: parameter([256, 64]),
});

const result = await shard(
  graph,
  {
    ...DEFAULT_REQUEST,
    mesh: 'd=8',
    cluster: 'dgx-h100',
    inputs: 'R',
    outputs: 'R',
    objective: 'parameter-memory',
  },
  { table: builtinOperators() },
);

if (result.status === 'infeasible') console.log('no plan:', result.conflict.join(', '));
else {
  const { plan } = result;
  console.log(annotatedProgram(result.graph, plan));
  console.log(`\n${plan.proof.status}, ${plan.memory.parameterBytes} bytes of weights per device`);
}
