/**
 * Placements and checkpointing decided together, against placements first and checkpointing after:
 * two layers of Llama-3 8B with a batch of 16 x 8192 tokens on one host, within a budget that binds.
 * Placements chosen for speed alone leave less room for activations, so more of the forward pass
 * has to run twice; chosen together, some tensors are cut further instead. Run: npx tsx
 * examples/checkpointing.ts
 */
import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';

import { importGraph, type Plan, shard } from 'shardwright';

const text = gunzipSync(
  readFileSync(new URL('./llama3-8b-2l-b16.fx.txt.gz', import.meta.url)),
).toString('utf8');
const graph = importGraph(text, { name: 'llama3-8b-2l-b16' });
const names = new Set(graph.nodes.map((n) => n.name));

/** Runs in seconds on a laptop, so a gap of 1 % will do. */
async function planned(memoryBytes: number, checkpoint: 'auto' | 'two-stage'): Promise<Plan> {
  const request = { mesh: 'd=8', cluster: 'dgx-h100', memoryBytes, checkpoint, gap: 0.01 };
  const result = await shard(graph, request);
  if (result.status === 'infeasible') throw new Error(result.conflict.join(', '));
  return result.plan;
}

const GiB = 2 ** 30;
const ms = (seconds: number): string => `${(seconds * 1e3).toFixed(0)} ms`;
const gib = (bytes: number): string => `${(bytes / GiB).toFixed(1)} GiB`;

const budget = 31;
const stages = await planned(budget * GiB, 'two-stage');
const joint = await planned(budget * GiB, 'auto');
const gain = 1 - joint.objective.seconds / stages.objective.seconds;
console.log(`within ${budget} GiB: together ${(100 * gain).toFixed(1)} % quicker`);
for (const [name, plan] of [
  ['one after the other', stages],
  ['together', joint],
] as const) {
  const again = plan.nodes.filter((n) => !names.has(n.name) && n.seconds > 0);
  const seconds = again.reduce((sum, n) => sum + n.seconds, 0);
  const { objective, memory } = plan;
  console.log(
    `  ${name.padEnd(19)}  step ${ms(objective.seconds)}, peak ${gib(memory.peakBytes)}, ` +
      `communication ${ms(objective.communicationSeconds)}, ${again.length} kernels run ` +
      `twice in ${ms(seconds)}`,
  );
}
