/**
 * A classifier that runs its second half only where the first is not sure: the decision is a node of the graph. Then the same
 * as straight code, which computes both sides and selects.
 * Run: npx tsx examples/early-exit-cond.ts
 */
import { fileURLToPath } from 'node:url';
import {
  builtinOperators,
  cond,
  DEFAULT_REQUEST,
  input,
  parameter,
  predicate,
  printGraph,
  shard,
  trace,
  type Tensor,
} from 'shardwright';

export const inputs = {
  x: input([32, 128]),
  w1: parameter([128, 256]),
  w2: parameter([256, 256]),
  head: parameter([256, 16]),
};

export function model({ x, w1, w2, head }: Record<keyof typeof inputs, Tensor>): Tensor {
  const h = x.matmul(w1).relu();
  const early = h.matmul(head);
  const sure = early.softmax(-1).amax(-1).gt(0.9).all();
  return cond(
    sure,
    () => early,
    () => h.matmul(w2).relu().matmul(head),
  );
}

// Run as a program it plans and prints; `shardwright trace` only takes the exports above.
if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const graph = trace(model, inputs);
  console.log(printGraph(graph, { source: false }));

  const straight = predicate(graph);
  console.log('As straight code:\n');
  console.log(printGraph(straight.graph, { source: false }));
  for (const { node, least, most } of straight.wasted)
    console.log(`${node}: ${least.matrix} to ${most.matrix} matrix FLOPs that the program would not need`);

  const result = await shard(
    straight.graph,
    { ...DEFAULT_REQUEST, mesh: 'd=8', cluster: 'dgx-h100', objective: 'parameter-memory' },
    { table: builtinOperators() },
  );
  if (result.status === 'infeasible') console.log('no plan:', result.conflict.join(', '));
  else {
    console.log('\nPlanned:');
    for (const { name, shape, placement } of result.plan.parameters)
      console.log(`${name} [${shape.join(', ')}]: ${placement}`);
    console.log(`${result.plan.proof.status}, ${result.plan.memory.parameterBytes} bytes of weights per device`);
  }
}
