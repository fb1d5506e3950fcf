/**
 * A classifier that runs its second half only where the first is not sure: the decision is a node
 * of the graph. Then the same as straight code, which computes both sides and selects. Run: npx tsx
 * examples/early-exit-cond.ts
 */
import { fileURLToPath } from 'node:url';

import { type Graph, input, parameter, shard, type Tensor, trace } from 'shardwright';
import { predicate, printGraph } from 'shardwright/graph';
import { cond } from 'shardwright/trace';

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

/**
 * Plans a graph on 8 devices so that its weights take the least memory, and prints their
 * placements.
 */
async function plan(what: string, graph: Graph): Promise<void> {
  const result = await shard(graph, {
    mesh: 'd=8',
    cluster: 'dgx-h100',
    objective: 'parameter-memory',
  });
  console.log(`\n${what}, planned:`);
  if (result.status === 'infeasible') return console.log('no plan:', result.conflict.join(', '));
  const { parameters, nodes, proof, memory } = result.plan;
  for (const { name, shape, placement } of parameters)
    console.log(`${name} [${shape.join(', ')}]: ${placement}`);
  // The branches of a condition stand in line, and end in one placement; the predicate is whole on
  // every device.
  const meet = nodes.find(({ name }) => name === 'cond.out.0');
  if (meet !== undefined)
    console.log(`predicate, branches -> result: ${meet.inputs.join(', ')} -> ${meet.outputs[0]}`);
  console.log(`${proof.status}, ${memory.parameterBytes} bytes of weights per device`);
}

// Run as a program it prints and plans; `shardwright trace` only takes the exports above.
if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const graph = trace(model, inputs);
  console.log(printGraph(graph, { source: false }));

  const straight = predicate(graph);
  console.log('As straight code:\n');
  console.log(printGraph(straight.graph, { source: false }));
  for (const { node, least, most } of straight.wasted)
    console.log(
      `${node}: ${least.matrix} to ${most.matrix} matrix FLOPs that the program would not need`,
    );

  await plan('The condition', graph);
  await plan('The straight code', straight.graph);
}
