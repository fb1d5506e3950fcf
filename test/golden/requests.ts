/**
 * Requests that reach every fork of the road of `shard()`: free and pinned, each price preset that
 * has a path of its own, budgets that bind at the states and at the peak, checkpointing, objectives,
 * solvers, programs with control flow, and the questions that go the same road.
 */
import { createHash } from 'node:crypto';

import { auditChoice } from '../../src/audit.ts';
import { ShardwrightError } from '../../src/errors.ts';
import type { Graph } from '../../src/graph/types.ts';
import { leastCostPlan } from '../../src/plan/least-cost-plan.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import { checkPlan } from '../../src/plan/questions/check-plan.ts';
import { reopen } from '../../src/plan/questions/explain.ts';
import { forceNode } from '../../src/plan/questions/what-if-history.ts';
import { planTexts } from '../../src/plan/record/folder.ts';
import { type PlanRequest } from '../../src/plan/request/request.ts';
import { priceRecipes } from '../../src/recipes/compare/compare.ts';
import { VERSION } from '../../src/version.ts';
import { load, request, TABLE } from '../plan/support.ts';

/** What a request came to: hashes of the texts of its plan, or why there is none. */
export type Golden = Readonly<Record<string, string | number>>;

const MLP = 'torch/mlp-loss/joint.expanded';
const SMALL_MLP = 'torch/mlp/joint.expanded';
const LLAMA = 'torch/llama-tiny/joint.expanded';
const FFN = 'peers/ffn-65536';
const SCAN = 'torch/hop-scan-joint/joint.expanded';
const GPT = 'torch/gpt2-2l/joint.expanded';
const FFN_ENDS = { inputs: 'S(0)R', outputs: 'S(0)R' } as const;
const MESH = 'dp=2,tp=2';

/** What is kept of a text: no clock, and no version of this package. */
function hash(text: string): string {
  return createHash('sha256').update(text.replaceAll(VERSION, '')).digest('hex').slice(0, 16);
}

function timeless(value: unknown): string {
  return JSON.stringify(value, (key, v: unknown) => (key === 'solveSeconds' ? undefined : v));
}

async function planOf(
  graph: Graph,
  more: Partial<PlanRequest> = {},
  mesh: string = MESH,
): Promise<Golden> {
  try {
    const result = await leastCostPlan(graph, request(mesh, more), { table: TABLE });
    if (result.status === 'infeasible') return { infeasible: timeless(result) };
    const { plan, certificate, prepared } = result;
    const { program, request: asked } = prepared.question;
    const texts = planTexts(plan, program, certificate);
    const folder = { plan, certificate, isAsWritten: true, program, request: asked };
    return {
      seconds: plan.objective.seconds,
      peakBytes: plan.memory.peakBytes,
      status: plan.proof.status,
      gap: plan.proof.gap,
      plan: hash(texts.plan),
      graph: hash(texts.graph),
      certificate: hash(texts.certificate),
      differences: checkPlan(folder, TABLE).differences.length,
    };
  } catch (error) {
    if (error instanceof ShardwrightError) return { error: `${error.code} ${error.message}` };
    throw error;
  }
}

/** Bytes of the plan that no budget limits. */
async function bytesOf(
  graph: Graph,
  more: Partial<PlanRequest> = {},
): Promise<{ readonly states: number; readonly peak: number }> {
  const asked = request(MESH, { ...more, activations: 'report' });
  const result = await leastCostPlan(graph, asked, { table: TABLE });
  if (result.status === 'infeasible') throw new Error('a request without a budget has a plan');
  const { peakBytes, timeline } = result.plan.memory;
  return { states: peakBytes, peak: timeline?.peakBytes ?? NaN };
}

const belowPeak = async (
  name: string,
  share: number,
  more: Partial<PlanRequest> = {},
): Promise<Golden> => {
  const graph = load(name);
  const { peak } = await bytesOf(graph);
  return planOf(graph, { memoryBytes: Math.floor(peak * share), ...more });
};

/** Requests that take a second or two. */
export const QUICK: Readonly<Record<string, () => Promise<Golden>>> = {
  free: () => planOf(load(MLP)),
  'alpha-beta': () => planOf(load(MLP), { cost: 'alpha-beta' }),
  ties: () => planOf(load(LLAMA)),
  propagate: () => planOf(load(LLAMA), { solver: 'propagate' }),
  'a byte below the peak': async () => {
    const graph = load(MLP);
    const { peak } = await bytesOf(graph, { cost: 'alpha-beta' });
    return planOf(graph, { cost: 'alpha-beta', memoryBytes: peak - 1 });
  },
  'full checkpointing': () => planOf(load(LLAMA), { checkpoint: 'full' }),
  'activations off': () => planOf(load(LLAMA), { activations: 'off' }),
  'least parameters': () => planOf(load(MLP), { objective: 'parameter-memory' }),
  'no budget to speak of': () => planOf(load(MLP), { memoryBytes: 1000 }),
  'no budget for states': () => planOf(load(MLP), { memoryBytes: 1000, activations: 'off' }),
  'activations alone over the budget': async () => {
    const graph = load(SMALL_MLP);
    const { states } = await bytesOf(graph);
    return planOf(graph, { memoryBytes: Math.floor(states * 1.001) });
  },
  'a pin': () => planOf(load(MLP), { pins: [{ node: 'm.fc1.weight', spec: 'S(0)R' }] }),
  'ends that are stated': () => planOf(load(FFN), { ...FFN_ENDS, memoryBytes: 200e6 }),
  'a scan': () => planOf(load(SCAN)),
  'a ceiling of prices': () => planOf(load(GPT), { cost: 'autoparallel' }, 'dp=8,tp=8'),
  'a forced node': async () => {
    const result = await leastCostPlan(load(MLP), request(MESH), { table: TABLE });
    if (result.status === 'infeasible') throw new Error('a request without a budget has a plan');
    const { program, request: asked } = result.prepared.question;
    const forced = await forceNode(reopen(result.plan, program, asked, TABLE), 'mm', 'S(0)S(0)');
    return { forced: hash(timeless(forced)) };
  },
  'recompute, MLP': () => belowPeak(MLP, 0.6, { checkpoint: 'auto' }),
  'recompute, feed-forward': () =>
    planOf(load(FFN), { ...FFN_ENDS, memoryBytes: 1.2e9, checkpoint: 'auto' }),
};

/** Requests that take up to minutes. */
export const LONG: Readonly<Record<string, () => Promise<Golden>>> = {
  highs: () => planOf(load(MLP), { solver: 'highs' }),
  'states over the budget': async () => {
    const graph = load(LLAMA);
    const { states } = await bytesOf(graph);
    return planOf(graph, { memoryBytes: Math.floor(states * 0.9), activations: 'report' });
  },
  'peak over the budget': () => belowPeak(LLAMA, 0.8),
  recompute: () => belowPeak(LLAMA, 0.7, { checkpoint: 'auto' }),
  'recompute after sharding': () => belowPeak(LLAMA, 0.7, { checkpoint: 'two-stage' }),
  'a gap that is asked for': () => belowPeak(LLAMA, 0.75, { budgetGap: 0.002 }),
  'BERT within .645 GiB': () =>
    planOf(load('torch/bert-base/joint.expanded'), { memoryBytes: 0.645 * 2 ** 30 }, 'd=8'),
  'recipes and an audit': async () => {
    const prepared = prepare(load(LLAMA), request(MESH), TABLE);
    const recipes = await priceRecipes(prepared);
    const priced = recipes.find((r) => r.status === 'priced');
    if (priced === undefined) throw new Error('no recipe is priced');
    const audited = await auditChoice(prepared, priced.choice, { edits: 2 });
    return { recipes: hash(timeless(recipes)), audit: hash(timeless(audited)) };
  },
};
