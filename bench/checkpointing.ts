/**
 * Both at once against one after the other: a step whose checkpointing is chosen with its
 * placements (`--checkpoint auto`), and one where it is chosen after them (`--checkpoint
 * two-stage`), at falling budgets. The budgets are shares of the peak of the plan of least seconds.
 * Prints rows of the table in `bench/memory.md`; CPU seconds are of the solve.
 *
 *     npx tsx bench/checkpointing.ts MODEL MESH 0.9,0.8,0.7 [--gap 0.01] [--batch 8] [--seq 2048]
 *     [--layers 4] [--training]
 */
import { parseArgs } from 'node:util';

import { loadModel } from '../src/cli/input/load.ts';
import { ShardwrightError } from '../src/errors.ts';
import { plannable } from '../src/passes/plannable/plannable.ts';
import { leastCostPlan } from '../src/plan/least-cost-plan.ts';
import type { Plan } from '../src/plan/record/types.ts';
import { DEFAULT_REQUEST, type PlanRequest } from '../src/plan/request/request.ts';
import { bytesText, secondsText } from '../src/units.ts';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    gap: { type: 'string' },
    batch: { type: 'string' },
    seq: { type: 'string' },
    layers: { type: 'string' },
    optimizer: { type: 'string' },
    cluster: { type: 'string', default: 'dgx-h100' },
    inputs: { type: 'string', default: 'free' },
    outputs: { type: 'string', default: 'free' },
    training: { type: 'boolean', default: false },
  },
});
const [model, mesh, shares] = positionals;
if (shares === undefined) throw new Error('name a model, a mesh and shares of the peak');
const { gap, batch, seq, layers, optimizer, cluster, inputs, outputs, training } = values;
const { graph: given, table } = await loadModel(model, {
  ...(batch === undefined ? {} : { batch: Number(batch) }),
  ...(seq === undefined ? {} : { seq: Number(seq) }),
  ...(layers === undefined ? {} : { layers: Number(layers) }),
  ...(training ? { training } : {}),
});
const graph = plannable(given, table);
const base: PlanRequest = {
  ...DEFAULT_REQUEST,
  mesh,
  cluster,
  inputs,
  outputs,
  ...(gap === undefined ? {} : { gap: Number(gap) }),
  ...(optimizer === undefined
    ? {}
    : { optimizer: optimizer as NonNullable<PlanRequest['optimizer']> }),
};

interface Answer {
  readonly plan?: Plan;
  readonly text: string;
  readonly cpuSeconds: number;
}

async function ask(more: Partial<PlanRequest>): Promise<Answer> {
  const before = process.cpuUsage();
  const cpuSeconds = (): number => {
    const { user, system } = process.cpuUsage(before);
    return (user + system) / 1e6;
  };
  try {
    const result = await leastCostPlan(graph, { ...base, ...more }, { table });
    if (result.status === 'infeasible') return { text: 'infeasible', cpuSeconds: cpuSeconds() };
    const { plan } = result;
    return { plan, text: secondsText(plan.objective.seconds), cpuSeconds: cpuSeconds() };
  } catch (error) {
    // The search may give up without a proof; every other error is a fault.
    if (error instanceof ShardwrightError && error.code === 'E_LIMIT')
      return { text: 'none found', cpuSeconds: cpuSeconds() };
    throw error;
  }
}

const free = await ask({
  memoryBytes: Number.MAX_SAFE_INTEGER,
  gap: base.gap > 0 ? base.gap : 0.01,
});
const peakBytes = free.plan?.memory.timeline?.peakBytes;
if (peakBytes === undefined) throw new Error(`no plan without a budget: ${free.text}`);
console.log(
  `${graph.name} on ${mesh}: ${graph.nodes.length} nodes, ${free.text}, peak ` +
    `${bytesText(peakBytes)} (${peakBytes} bytes) without a budget`,
);
console.log(
  '| share | budget, bytes | two stages | joint | joint better by | gap | CPU s two stages | ' +
    'CPU s joint | recomputed nodes |',
);
for (const share of shares.split(',').map(Number)) {
  const memoryBytes = Math.floor(peakBytes * share);
  const stages = await ask({ memoryBytes, checkpoint: 'two-stage' });
  const joint = await ask({ memoryBytes, checkpoint: 'auto' });
  const [a, b] = [stages.plan?.objective.seconds, joint.plan?.objective.seconds];
  const better = a === undefined || b === undefined ? '' : `${(100 * (1 - b / a)).toFixed(2)} %`;
  const again = (answer: Answer): string =>
    `${answer.plan?.nodes.filter((n) => n.name.includes('_recomputed')).length ?? '-'}`;
  const gapText = joint.plan === undefined ? '' : `${(100 * joint.plan.proof.gap).toFixed(2)} %`;
  console.log(
    '| ' +
      `${[share, memoryBytes, stages.text, joint.text, better, gapText, stages.cpuSeconds.toFixed(1), joint.cpuSeconds.toFixed(1), `${again(stages)}, ${again(joint)}`].join(' | ')} ` +
      '|',
  );
}
