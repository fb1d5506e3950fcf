import type { Graph } from '../../../src/graph/types.ts';
import { drawOf, ProgramBuilder, TABLE } from './builder.ts';
import { FAMILIES, floats } from './families.ts';
import { prepare } from '../../../src/plan/prepare.ts';
import { randomPlan } from '../../../src/plan/random-plan.ts';
import { DEFAULT_REQUEST } from '../../../src/plan/request.ts';
import { verify, type Verification } from '../../../src/simulate/verify.ts';

/** A typed random program: 2 to 14 calls over all families of operators. */
export function randomProgram(seed: number): Graph {
  const draw = drawOf(seed);
  const b = new ProgramBuilder(draw);
  const total = FAMILIES.reduce((sum, [, , weight]) => sum + weight, 0);
  const wanted = 2 + draw.below(10);
  for (let tries = 0; (b.callCount < wanted || b.tensors.length === 0) && tries < 60; tries++) {
    let at = draw.below(total);
    for (const [, family, weight] of FAMILIES) {
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
  const graph = randomProgram(seed);
  const mesh = drawOf(seed + 1_000_003).pick(MESHES);
  try {
    const prepared = prepare(graph, { ...DEFAULT_REQUEST, mesh, cluster: 'dgx-h100' }, TABLE);
    const plan = randomPlan(prepared, seed);
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
