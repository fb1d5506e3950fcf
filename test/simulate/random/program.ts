import type { Graph } from '../../../src/graph/types.ts';
import type { LowerablePlan } from '../../../src/plan/lower.ts';
import { prepare, type Prepared } from '../../../src/plan/prepare.ts';
import { randomPlan } from '../../../src/plan/random-plan.ts';
import { DEFAULT_REQUEST, type PlanRequest } from '../../../src/plan/request.ts';
import { shardPrepared } from '../../../src/plan/shard.ts';
import { drawOf, ProgramBuilder, TABLE } from './builder.ts';
import { FAMILIES, floats } from './families.ts';
import { MORE_FAMILIES } from './more-families.ts';
import { verify, type Verification } from '../../../src/simulate/verify.ts';

const ALL = [...FAMILIES, ...MORE_FAMILIES];

/** A typed random program: 2 to 14 calls over all families of operators. */
export function randomProgram(seed: number): Graph {
  const draw = drawOf(seed);
  const b = new ProgramBuilder(draw);
  const total = ALL.reduce((sum, [, , weight]) => sum + weight, 0);
  const wanted = 2 + draw.below(10);
  for (let tries = 0; (b.callCount < wanted || b.tensors.length === 0) && tries < 60; tries++) {
    let at = draw.below(total);
    for (const [, family, weight] of ALL) {
      at -= weight;
      if (at >= 0) continue;
      family(b);
      break;
    }
  }
  if (b.tensors.length === 0) b.call('aten.relu.default', [{ kind: 'value', name: floats(b).name }]);
  return b.build(`random${seed}`);
}

const MESHES = [
  'd=2', 'd=3', 'd=4', 'a=2,b=2', 'a=2,b=3', 'a=4,b=2', 'a=1,b=3', 'a=2,b=1', 'a=2,b=2,c=2', 'a=3,b=2', 'a=2,b=4',
] as const; // prettier-ignore

export interface Outcome {
  readonly seed: number;
  readonly mesh: string;
  readonly graph: Graph;
  readonly verification?: Verification;
  /** What is wrong; undefined when sharded equals unsharded. */
  readonly fault?: string;
}

/** One random program on a random mesh under a random feasible plan. */
export function runRandom(seed: number): Outcome {
  return judged(seed, (prepared) => randomPlan(prepared, seed));
}

/** One random program under the plan of the solver. */
export async function runSolved(seed: number): Promise<Outcome> {
  const { graph, mesh } = drawn(seed);
  const prepared = prepare(graph, requestOf(mesh), TABLE);
  const solved = await shardPrepared(prepared);
  if (solved.status !== 'planned') return { seed, mesh, graph, fault: `infeasible: ${solved.conflict.join()}` };
  return judged(seed, () => solved.plan);
}

function drawn(seed: number): { graph: Graph; mesh: string } {
  return { graph: randomProgram(seed), mesh: drawOf(seed + 1_000_003).pick(MESHES) };
}

const requestOf = (mesh: string): PlanRequest => ({ ...DEFAULT_REQUEST, mesh, cluster: 'dgx-h100' });

function judged(seed: number, planOf: (prepared: Prepared) => LowerablePlan): Outcome {
  const { graph, mesh } = drawn(seed);
  try {
    const plan = planOf(prepare(graph, requestOf(mesh), TABLE));
    const verification = verify(graph, plan, TABLE, { seed });
    const [first] = verification.mismatches;
    if (first === undefined) return { seed, mesh, graph, verification };
    const fault = `${first.where} (${first.target ?? ''}, ${first.sharding ?? ''}): ${first.message}`;
    return { seed, mesh, graph, verification, fault };
  } catch (error) {
    return { seed, mesh, graph, fault: error instanceof Error ? `${error.message} ${nodeOf(error)}` : String(error) };
  }
}

function nodeOf(error: Error): string {
  const details = (error as { details?: { node?: string } }).details;
  return details?.node === undefined ? '' : `(node ${details.node})`;
}
