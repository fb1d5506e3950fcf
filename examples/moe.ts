/**
 * A mixture of experts with dense dispatch, planned on a mesh of data and expert parallelism: the
 * experts are cut over devices, and tokens travel to their experts and back. Run: npx tsx
 * examples/moe.ts
 */
import { fileURLToPath } from 'node:url';

import { shard, spec, type Tensor, trace } from 'shardwright';
import { printGraph } from 'shardwright/graph';
import { MixtureOfExperts, RMSNorm } from 'shardwright/trace';

const norm = new RMSNorm('norm', 1024);
const moe = new MixtureOfExperts('moe', 1024, 4096, 8, { active: 2, capacityFactor: 1.25 });

export const inputs = { x: spec([8, 512, 1024]) };

export function model({ x }: { x: Tensor }): Tensor {
  return x.add(moe.forward(norm.forward(x)));
}

// Run as a program it prints and plans; `shardwright trace` only takes the exports above.
if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const graph = trace(model, inputs, { name: 'moe' });
  console.log(printGraph(graph, { source: false }));

  const result = await shard(graph, {
    mesh: 'ep=8',
    cluster: 'dgx-h100',
    pins: [
      { node: 'x', spec: 'S(0)' },
      ...['gate', 'up', 'down'].map((w) => ({ node: `moe.experts.${w}`, spec: 'S(0)' })),
    ],
  });

  if (result.status === 'infeasible') console.log('no plan:', result.conflict.join(', '));
  else {
    const { plan } = result;
    console.log('On 8 devices, tokens by batch and weights by expert:\n');
    for (const { name, placement } of plan.parameters)
      console.log(`${name.padEnd(18)} ${placement}`);
    for (const node of [...plan.nodes, ...plan.outputs])
      for (const { from, to, collectives } of node.redistributions)
        for (const { kind, bytes } of collectives)
          console.log(
            `${kind} of ${bytes} bytes, ${from} -> ${to}, before ` +
              `${'name' in node ? node.name : 'the output'}`,
          );
    console.log(plan.proof.status);
  }
}
