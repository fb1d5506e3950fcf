import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { expect } from 'vitest';

import type { Graph } from '../../src/graph/types.ts';
import { importGraph } from '../../src/import/import.ts';
import { builtinOperators } from '../../src/ops/builtin.ts';
import { inferCall } from '../../src/ops/record/infer.ts';
import type { LeastCostResult } from '../../src/plan/choice/result.ts';
import { leastCostPlan } from '../../src/plan/least-cost-plan.ts';
import { checkPlan, type PlanCheck } from '../../src/plan/questions/check-plan.ts';
import type { Plan } from '../../src/plan/record/types.ts';
import { DEFAULT_REQUEST, type PlanRequest } from '../../src/plan/request/request.ts';

export const TABLE = builtinOperators();

/** A graph text of the fixtures, such as `torch/mlp/joint.expanded` or `peers/ffn-65536`. */
export function load(name: string): Graph {
  const path = fileURLToPath(new URL(`../fixtures/${name}.txt.gz`, import.meta.url));
  return importGraph(readFileSync(path), {
    infer: (node, typeOf) => inferCall(TABLE, node, typeOf),
  });
}

/**
 * Prices by formulas, which tests can do by hand: what measured times say is a matter of the tests
 * of `nccl`.
 */
export function request(mesh: string, more: Partial<PlanRequest> = {}): PlanRequest {
  return { ...DEFAULT_REQUEST, cost: 'alpha-beta', mesh, cluster: 'dgx-h100', ...more };
}

/** What `shard` answers; a plan is what `check-plan` says that it is. */
export async function solveFor(
  graph: Graph,
  mesh: string,
  more: Partial<PlanRequest> = {},
): Promise<LeastCostResult> {
  const result = await leastCostPlan(graph, request(mesh, more), { table: TABLE });
  if (result.status === 'planned') expect(differencesOf(result)).toEqual([]);
  return result;
}

/** What the check of a written plan finds in a plan that was just made. */
export function differencesOf({
  plan,
  certificate,
  prepared: {
    question: { program, request: asked },
  },
}: Extract<LeastCostResult, { readonly status: 'planned' }>): PlanCheck['differences'] {
  const folder = { plan, certificate, isAsWritten: true, program, request: asked };
  return checkPlan(folder, TABLE).differences;
}

/** The plan of a request that has one. */
export async function planFor(
  graph: Graph,
  mesh: string,
  more: Partial<PlanRequest> = {},
): Promise<Plan> {
  const result = await solveFor(graph, mesh, more);
  if (result.status !== 'planned') throw new Error(`infeasible: ${result.conflict.join(', ')}`);
  return result.plan;
}

/** Placement of a parameter by name. */
export function placed(plan: Plan, name: string): string {
  const found = plan.parameters.find((p) => p.name === name);
  if (found === undefined) throw new Error(`no parameter ${name}`);
  return found.placement;
}
