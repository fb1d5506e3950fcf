/**
 * A recurrent network as a scan: the loop is one node of the graph, and so is its backward pass. Then the same program with
 * the loop written out, planned on 8 devices.
 * Run: npx tsx examples/rnn-scan.ts
 */
import { fileURLToPath } from 'node:url';
import {
  builtinOperators, DEFAULT_REQUEST, input, jointGraph, parameter, printGraph, scan, shard, trace, unrollScan, type Tensor,
} from 'shardwright'; // prettier-ignore

export const inputs = {
  h0: input([16, 64]),
  xs: input([4, 16, 64]),
  wx: parameter([64, 64]),
  wh: parameter([64, 64]),
};

export function model({ h0, xs, wx, wh }: Record<keyof typeof inputs, Tensor>): Tensor {
  const [last, ys] = scan(
    (h, x) => {
      const next = x.matmul(wx).add(h.matmul(wh)).tanh();
      return [next, next];
    },
    h0,
    xs,
  );
  return last.sum().add(ys.mul(ys).sum());
}

// Run as a program it plans and prints; `shardwright trace` only takes the exports above.
if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const graph = trace(model, inputs);
  console.log(printGraph(graph, { source: false }));

  console.log('With its backward pass: the second scan goes the other way.\n');
  console.log(printGraph(jointGraph(graph, { seed: 1 }), { source: false }));

  const table = builtinOperators();
  const result = await shard(
    unrollScan(graph),
    { ...DEFAULT_REQUEST, mesh: 'd=8', cluster: 'dgx-h100', objective: 'parameter-memory' },
    { table },
  );
  if (result.status === 'infeasible') console.log('no plan:', result.conflict.join(', '));
  else {
    console.log('The loop written out, planned:\n');
    for (const { name, shape, placement } of result.plan.parameters)
      console.log(`${name} [${shape.join(', ')}]: ${placement}`);
    console.log(`${result.plan.proof.status}, ${result.plan.memory.parameterBytes} bytes of weights per device`);
  }
}
