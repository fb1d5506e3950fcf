/**
 * Why is this weight placed so, and what if not? The strategies of a node where it stands, then the
 * plan solved again with another placement, and what differs between the two plans. Run: npx tsx
 * examples/why-not.ts
 */
import { explain, input, parameter, shard, trace } from 'shardwright';
import { builtinOperators } from 'shardwright/ops';
import { DEFAULT_REQUEST, diffPlans, forceNode, reopen } from 'shardwright/plan';

const graph = trace(({ x, w1, w2 }) => x.matmul(w1).relu().matmul(w2), {
  x: input([4096, 4096]),
  w1: parameter([4096, 16384]),
  w2: parameter([16384, 4096]),
});
const table = builtinOperators();
const result = await shard(
  graph,
  { ...DEFAULT_REQUEST, mesh: 'd=8', cluster: 'dgx-h100', inputs: 'R' },
  { table },
);
if (result.status === 'infeasible') throw new Error(result.conflict.join(', '));

const { plan, prepared } = result;
const opened = reopen(plan, prepared.question.program, plan.request, table);
const found = explain(opened, 'w1');
console.log(`w1 is ${found.chosen}`);
for (const s of found.strategies)
  console.log(
    (
      `  ${s.spec.padEnd(5)} ${s.class.padEnd(11)} ` +
      `${s.localSeconds === null ? '' : `${(s.localSeconds * 1e6).toFixed(1)} us more here`}`
    ).trimEnd(),
  );

const forced = await forceNode(opened, 'w1', 'S(1)');
if ('status' in forced) throw new Error('no plan with w1 cut on dim 1');
console.log(`\nw1 as S(1): ${(forced.globalSeconds * 1e6).toFixed(1)} us more in all, because of`);
for (const term of forced.attribution)
  console.log(`  ${term.term}: ${(term.delta * 1e6).toFixed(1)} us`);

console.log('\nwhat differs');
for (const p of diffPlans(plan, forced.plan, new Set(['w1', 'w2'])).placements)
  console.log(`  ${p.name}: ${p.a} -> ${p.b}`);
