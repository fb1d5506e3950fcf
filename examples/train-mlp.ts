/**
 * A two-layer MLP with its backward pass, planned on 2 x 2 devices.
 * Run: npx tsx examples/train-mlp.ts
 */
import * as sw from 'shardwright';

const table = sw.builtinOperators();
const batch = sw.input([4096, 1024]);
const weights = { w1: sw.parameter([1024, 4096]), w2: sw.parameter([4096, 1024]) };
const forward = sw.trace(({ x, y, w1, w2 }) => sw.mseLoss(x.matmul(w1).relu().matmul(w2), y), {
  ...weights,
  x: batch,
  y: batch,
});
const request = { ...sw.DEFAULT_REQUEST, mesh: 'dp=2,tp=2', cluster: 'dgx-h100' };
const result = await sw.shard(sw.jointGraph(forward), request, { table });
if (result.status === 'infeasible') throw new Error(result.conflict.join('\n'));
console.log(result.plan.proof.status, result.plan.objective.seconds, 'seconds');
console.log(sw.annotatedProgram(result.graph, result.plan));
