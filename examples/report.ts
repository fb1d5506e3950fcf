/**
 * A plan, and what its report says: the answer, what each layer waits for, and why the recipes
 * lose. The page itself is `htmlPage(report, graph, drawParameters(plan))`; here its text is
 * printed. Run: npx tsx examples/report.ts
 */
import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';

import { importGraph, shard } from 'shardwright';
import { loadCluster } from 'shardwright/cost';
import { builtinOperators } from 'shardwright/ops';
import { analyse, drawParameters, htmlPage, reportOf } from 'shardwright/report';

const text = gunzipSync(
  readFileSync(new URL('./llama3-8b-2l-b16.fx.txt.gz', import.meta.url)),
).toString('utf8');
const operators = builtinOperators();
const result = await shard(importGraph(text, { name: 'llama3-8b-2l-b16' }), {
  mesh: 'dp=8',
  cluster: 'dgx-h100',
});
if (result.status === 'infeasible') throw new Error(result.conflict.join(', '));

const { plan, graph, prepared } = result;
const folder = { plan, graph, program: prepared.question.program, request: plan.request };
const analysis = await analyse(folder, operators, { recipes: true, whatIf: false });
const report = reportOf({
  plan,
  cluster: loadCluster(plan.request.cluster),
  graph,
  analysis,
  version: 'example',
});

for (const { label, text: line } of report.answer) console.log(`${label}: ${line}`);

console.log('\nwhat the largest layers wait for');
for (const g of (report.roofline?.groups ?? []).slice(0, 5))
  console.log(
    `  ${g.name}: ${g.bound}, ${((g.computeSeconds + g.communicationSeconds) * 1e3).toFixed(2)} ms`,
  );

console.log('\nwhy the recipes lose');
for (const p of report.zoo ?? [])
  console.log(`  ${p.name}: ${p.seconds === null ? p.reason : (p.losses[0]?.term ?? 'equal')}`);

const page = htmlPage(report, graph, drawParameters(plan));
console.log(
  '\none page, ' +
    `${page.includes('http-equiv="Content-Security-Policy"') ? 'closed to the network' : 'open'}`,
);
