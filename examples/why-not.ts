/**
 * Why is this weight placed so, and what if not? The strategies of a node where it stands, then the
 * plan solved again with another placement, and what differs between the two plans. Run: npx tsx
 * examples/why-not.ts
 */
import { explain, input, parameter, shard, trace } from 'shardwright';
import { diffPlans, forceNode } from 'shardwright/plan';

const graph = trace(({ x, w1, w2 }) => x.matmul(w1).relu().matmul(w2), {
  x: input([4096, 4096]),
  w1: parameter([4096, 16384]),
  w2: parameter([16384, 4096]),
});
const result = await shard(graph, { mesh: 'd=8', cluster: 'dgx-h100', inputs: 'R' });
if (result.status === 'infeasible') throw new Error(result.conflict.join(', '));

const found = explain(result, 'w1');
console.log(`w1 is ${found.chosen}`);
for (const s of found.strategies)
  console.log(
    (
      `  ${s.spec.padEnd(5)} ${s.class.padEnd(11)} ` +
      `${s.localSeconds === null ? '' : `${(s.localSeconds * 1e6).toFixed(1)} us more here`}`
    ).trimEnd(),
  );

const forced = await forceNode(result, 'w1', 'S(1)');
if ('status' in forced) throw new Error('no plan with w1 cut on dim 1');
console.log(`\nw1 as S(1): ${(forced.globalSeconds * 1e6).toFixed(1)} us more in all, because of`);
for (const term of forced.attribution)
  console.log(`  ${term.term}: ${(term.delta * 1e6).toFixed(1)} us`);

console.log('\nwhat differs');
for (const p of diffPlans(result.plan, forced.plan, new Set(['w1', 'w2'])).placements)
  console.log(`  ${p.name}: ${p.a} -> ${p.b}`);
