/**
 * A recurrent network as a scan: the loop is one node of the graph, and so is its backward pass.
 * Planned on 8 devices it gets the layout of the same program with the loop written out, but the
 * problem that is solved does not grow with the trips. Run: npx tsx examples/rnn-scan.ts
 */
import { fileURLToPath } from 'node:url';

import { type Graph, input, parameter, type Tensor, trace } from 'shardwright';
import { jointGraph, printGraph, unrollScan } from 'shardwright/graph';
import { prepare, shardPrepared } from 'shardwright/plan';
import { scan } from 'shardwright/trace';

const [batch, width] = [64, 2048];

const inputsFor = (trips: number) => ({
  h0: input([batch, width]),
  xs: input([trips, batch, width]),
  wx: parameter([width, width]),
  wh: parameter([width, width]),
});

export const inputs = inputsFor(4);

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

/** Plans a training step and prints what it was and how large the problem is. */
async function plan(what: string, graph: Graph): Promise<void> {
  const request = { cost: 'alpha-beta', mesh: 'd=8', cluster: 'dgx-h100' };
  const prepared = prepare(jointGraph(graph, { seed: 1 }), request);
  const result = await shardPrepared(prepared);
  const { length } = prepared.left.problem.domains;
  if (result.status === 'infeasible')
    console.log(`${what}: no plan: ${result.conflict.join(', ')}`);
  else {
    const layout = result.plan.parameters
      .map(({ name, placement }) => `${name} ${placement}`)
      .join(', ');
    console.log(`${what}: ${layout}; ${result.plan.proof.status}, ${length} choices`);
  }
}

// Run as a program it prints and plans; `shardwright trace` only takes the exports above.
if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const graph = trace(model, inputs);
  console.log(printGraph(graph, { source: false }));

  console.log('With its backward pass: the second scan goes the other way.\n');
  console.log(printGraph(jointGraph(graph, { seed: 1 }), { source: false }));

  console.log('A training step, planned on 8 devices:\n');
  await plan('scan of 4 trips', graph);
  await plan('written out, 4 trips', unrollScan(graph));
  await plan('scan of 4000 trips', trace(model, inputsFor(4000)));
}
