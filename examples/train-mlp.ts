/**
 * A two-layer MLP with its backward pass, planned on 2 x 2 devices.
 * Run: npx tsx examples/train-mlp.ts
 */
import { input, parameter, shard, trace } from 'shardwright';
import { jointGraph } from 'shardwright/graph';
import { annotatedProgram } from 'shardwright/report';
import { mseLoss } from 'shardwright/trace';

const batch = input([4096, 1024]);
const weights = { w1: parameter([1024, 4096]), w2: parameter([4096, 1024]) };
const forward = trace(({ x, y, w1, w2 }) => mseLoss(x.matmul(w1).relu().matmul(w2), y), {
  ...weights,
  x: batch,
  y: batch,
});
const request = { mesh: 'dp=2,tp=2', cluster: 'dgx-h100', objective: 'serial' } as const;
const result = await shard(jointGraph(forward), request);
if (result.status === 'infeasible') throw new Error(result.conflict.join('\n'));
console.log(result.plan.proof.status, result.plan.objective.seconds, 'seconds');
console.log(annotatedProgram(result.graph, result.plan));
