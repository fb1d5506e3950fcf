/**
 * A feed-forward layer whose batch is not fixed: one graph for all admissible sizes. It is planned
 * at one size, and the plan is compared with the best plan at both ends of the range. Run: npx tsx
 * examples/dynamic-batch.ts
 */
import { fileURLToPath } from 'node:url';

import { dim, shard, spec, type Tensor } from 'shardwright';
import { atSizes, printGraph } from 'shardwright/graph';
import { planAtEnds } from 'shardwright/plan';
import { capture, MLP } from 'shardwright/trace';

const net = new MLP('net', [4096, 16384, 4096]);

export const inputs = { x: spec([dim('batch', { min: 8, max: 65536, multiple: 8 }), 4096]) };

export function model({ x }: { x: Tensor }): Tensor {
  return net.forward(x);
}

// Run as a program it prints and plans; `shardwright trace` only takes the exports above.
if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { graph, guards } = capture(model, inputs);
  console.log(printGraph(graph, { source: false }));
  for (const { text } of guards) console.log(`guard ${text}`);

  const request = { mesh: 'd=8', cluster: 'dgx-h100' };
  for (const batch of [8, 4096]) {
    const sizes = new Map([['batch', batch]]);
    const result = await shard(atSizes(graph, sizes), request);
    if (result.status === 'infeasible') continue;
    const { plan } = result;
    console.log(
      `\nPlanned at batch ${batch}:`,
      plan.parameters.map(({ name, placement }) => `${name} ${placement}`).join(', '),
    );
    for (const end of await planAtEnds(plan, graph, sizes, request))
      console.log(
        `at batch ${end.sizes.batch} it could save at most ` +
          `${((end.regret ?? 1) * 100).toFixed(1)} %`,
      );
  }
}
