/**
 * A program that uses the package as any page would: it makes a plan, runs it with numbers and
 * exports it, all as one text.
 */
import { exportPlan, input, parameter, shard, trace, verify } from 'shardwright';
import { modelEntries } from 'shardwright/models';

/** @typedef {import('shardwright').Tensor} Tensor */

/** @param {{ x: Tensor, w1: Tensor, w2: Tensor }} inputs */
const model = ({ x, w1, w2 }) => x.matmul(w1).relu().matmul(w2);

/** @returns {Promise<string>} */
export async function answer() {
  const inputs = { x: input([8, 128]), w1: parameter([128, 256]), w2: parameter([256, 64]) };
  const request = {
    mesh: 'dp=2,tp=4',
    cluster: 'dgx-h100',
    inputs: 'RR',
    outputs: 'RR',
    objective: /** @type {const} */ ('parameter-memory'),
  };
  const result = await shard(trace(model, inputs, { name: 'mlp' }), request);
  if (result.status === 'infeasible') throw new Error(result.conflict.join(', '));
  const { plan, graph: program } = result;
  const { status, bound, gap } = plan.proof;
  const { files } = exportPlan(program, plan, 'shardy', {
    allowLossy: true,
    check: false,
  });
  // Numbers to run with come from sines, whose last bit engines choose.
  const { maxRelativeError, ...verified } = verify(program, plan);
  return JSON.stringify({
    nodes: plan.nodes,
    objective: plan.objective,
    memory: plan.memory,
    proof: { status, bound, gap },
    verified: { ...verified, maxRelativeError: maxRelativeError < 1e-12 },
    files,
    models: modelEntries().length,
  });
}
