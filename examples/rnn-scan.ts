/**
 * A recurrent network as a scan: the loop is one node of the graph, and so is its backward pass. Then the same program with
 * the loop written out, planned on 8 devices.
 * Run: npx tsx examples/rnn-scan.ts
 */
import {
  builtinOperators, DEFAULT_REQUEST, input, jointGraph, parameter, printGraph, scan, shard, trace, unrollScan,
} from 'shardwright'; // prettier-ignore

const graph = trace(
  ({ h0, xs, wx, wh }) => {
    const [last, ys] = scan(
      (h, x) => {
        const next = x.matmul(wx).add(h.matmul(wh)).tanh();
        return [next, next];
      },
      h0,
      xs,
    );
    return last.sum().add(ys.mul(ys).sum());
  },
  {
    h0: input([16, 64]),
    xs: input([4, 16, 64]),
    wx: parameter([64, 64]),
    wh: parameter([64, 64]),
  },
);
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
