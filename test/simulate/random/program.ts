import { ShardwrightError } from '../../../src/errors.ts';
import type { Graph } from '../../../src/graph/types.ts';
import type { LowerablePlan } from '../../../src/lower/lower.ts';
import { jointGraph } from '../../../src/passes/autodiff/joint.ts';
import { randomPlan } from '../../../src/plan/choice/random-plan.ts';
import { leastCostPlanOf } from '../../../src/plan/least-cost-plan.ts';
import { prepare } from '../../../src/plan/prepare/prepare.ts';
import type { Prepared } from '../../../src/plan/prepare/prepared.ts';
import { DEFAULT_REQUEST, type PlanRequest } from '../../../src/plan/request/request.ts';
import { evaluateGraph } from '../../../src/simulate/evaluate.ts';
import { drawInputs } from '../../../src/simulate/inputs.ts';
import { type Verification, verify } from '../../../src/simulate/verify.ts';
import { drawOf, ProgramBuilder, TABLE } from './builder.ts';
import { CONTROL, grow } from './control.ts';

/**
 * `control`: with loops and branches. `joint`: with its backward pass, where every operator on the
 * way has a derivative.
 */
export type Kind = 'straight' | 'control' | 'joint';

/** A typed random program: 2 to 14 calls over all families of operators. */
export function randomProgram(seed: number, kind: Kind = 'straight'): Graph {
  const draw = drawOf(kind === 'straight' ? seed : seed + 5_000_011);
  const b = new ProgramBuilder(draw);
  if (kind === 'straight') grow(b, 2 + draw.below(10));
  else {
    const loops = kind === 'control' || draw.chance(0.5) ? 1 + draw.below(2) : 0;
    grow(b, 1 + draw.below(5));
    for (let i = 0; i < loops; i++) draw.pick(CONTROL)(b, 0);
    grow(b, b.callCount + draw.below(4));
  }
  const graph = b.build(`random${seed}`);
  return kind === 'joint' ? (withBackward(graph) ?? graph) : graph;
}

/**
 * Undefined where something on the way has no derivative: an operator, or a loop of unknown length.
 */
export function withBackward(graph: Graph): Graph | undefined {
  const floating = graph.nodes.filter(
    (n) => n.kind === 'placeholder' && n.type.kind === 'tensor' && n.type.dtype === 'f32',
  );
  try {
    return jointGraph(graph, { wrt: floating.map((node) => node.name) });
  } catch (error) {
    if (error instanceof ShardwrightError && NOT_DIFFERENTIABLE.has(error.code)) return undefined;
    throw error;
  }
}

const NOT_DIFFERENTIABLE: ReadonlySet<string> = new Set([
  'E_NO_VJP',
  'E_GRAD_WHILE',
  'E_TYPE',
  'E_MUTATION',
  'E_HOP_MUTATION',
]);

const MESHES = [
  'd=2',
  'd=3',
  'd=4',
  'a=2,b=2',
  'a=2,b=3',
  'a=4,b=2',
  'a=1,b=3',
  'a=2,b=1',
  'a=2,b=2,c=2',
  'a=3,b=2',
  'a=2,b=4',
] as const;

export interface Outcome {
  readonly seed: number;
  readonly mesh: string;
  readonly graph: Graph;
  readonly verification?: Verification;
  /** What is wrong; undefined when sharded equals unsharded. */
  readonly fault?: string;
}

/** One random program on a random mesh under a random feasible plan. */
export function runRandom(seed: number, kind: Kind = 'straight'): Outcome {
  return judged(seed, kind, (prepared) => randomPlan(prepared, seed));
}

/** One random program under the plan of the solver. */
export async function runSolved(seed: number, kind: Kind = 'straight'): Promise<Outcome> {
  const { graph, mesh } = drawn(seed, kind);
  const prepared = prepare(graph, requestOf(mesh, seed), TABLE);
  const solved = await leastCostPlanOf(prepared);
  if (solved.status !== 'planned')
    return { seed, mesh, graph, fault: `infeasible: ${solved.conflict.join()}` };
  return judged(seed, kind, () => solved.plan);
}

function drawn(seed: number, kind: Kind): { graph: Graph; mesh: string } {
  return { graph: randomProgram(seed, kind), mesh: drawOf(seed + 1_000_003).pick(MESHES) };
}

/**
 * Every other program shares out the rows of its maps; two of three cut what views merge in
 * strides; half of them keep copies for the backward pass.
 */
const requestOf = (mesh: string, seed: number): PlanRequest => ({
  ...DEFAULT_REQUEST,
  mesh,
  cluster: 'dgx-h100',
  ...(seed % 2 === 1 ? { maps: 'rows' } : {}),
  strided: seed % 3 === 0 ? 'off' : 'all',
  ...(seed % 4 < 2 ? { copies: 'step' } : {}),
});

function judged(seed: number, kind: Kind, planOf: (prepared: Prepared) => LowerablePlan): Outcome {
  const { graph, mesh } = drawn(seed, kind);
  try {
    const plan = planOf(prepare(graph, requestOf(mesh, seed), TABLE));
    const verification = verify(graph, plan, { table: TABLE, seed });
    const [first] = verification.mismatches;
    if (first === undefined) return { seed, mesh, graph, verification };
    const fault = `${first.where} (${first.target ?? ''}, ${first.sharding ?? ''}): ${first.message}`;
    return { seed, mesh, graph, verification, fault };
  } catch (error) {
    if (error instanceof ShardwrightError && error.code === 'E_VALUE' && hasNoValue(graph, seed))
      return { seed, mesh, graph };
    return {
      seed,
      mesh,
      graph,
      fault: error instanceof Error ? `${error.message} ${nodeOf(error)}` : String(error),
    };
  }
}

/**
 * A program that one device cannot run either: it makes row numbers that some table does not have.
 */
function hasNoValue(graph: Graph, seed: number): boolean {
  try {
    evaluateGraph(TABLE, graph, drawInputs(TABLE, graph, seed), { seed });
    return false;
  } catch (error) {
    return error instanceof ShardwrightError && error.code === 'E_VALUE';
  }
}

function nodeOf(error: Error): string {
  const details = (error as { details?: { node?: string } }).details;
  return details?.node === undefined ? '' : `(node ${details.node})`;
}
