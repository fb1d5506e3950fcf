/**
 * `audit`: how far a plan is from the best one, by the step of the trainer that it is made for. The
 * library and the command ask here, as they ask `shard` for a plan.
 */
import { checkKinds } from './arguments.ts';
import { defined } from './defined.ts';
import { checkOptions } from './errors.ts';
import { stepFactsOf } from './fidelity/trainer-step.ts';
import type { Graph } from './graph/types.ts';
import type { Infeasible } from './plan/choice/result.ts';
import { checkChoice } from './plan/choice/solver-arguments.ts';
import { choiceOfPlan } from './plan/choice/transfer.ts';
import { prepare } from './plan/prepare/prepare.ts';
import type { Prepared } from './plan/prepare/prepared.ts';
import type { LowerablePlan } from './plan/record/planned.ts';
import { tableOf } from './plan/request/check-call.ts';
import { type Audit, auditByStep, auditedRequest, type AuditOptions } from './recipes/audit.ts';

export type { Audit, AuditOptions, Edit } from './recipes/audit.ts';

const OPTIONS: Readonly<Record<keyof AuditOptions, true>> = {
  table: true,
  edits: true,
  signal: true,
  deadline: true,
  onPlan: true,
  onProgress: true,
};

/**
 * Prices a plan against the best plan of its graph, mesh and cluster without any pins: by the step
 * of its trainer, and by the sum of all costs, whose optimum is proven. Finds the edits that bring
 * it nearest to that optimum.
 *
 * @param graph the planned graph (`graph` of what `shard` gives, `program` of a plan folder)
 * @returns what is infeasible, where no plan fits
 * @throws E_PLAN when the plan is not of this graph, and what `shard` throws
 *
 * @example
 * ```ts
 * import { audit, input, parameter, shard, trace } from 'shardwright';
 *
 * const graph = trace(({ x, w1, w2 }) => x.matmul(w1).relu().matmul(w2), {
 *   x: input([4096, 4096]),
 *   w1: parameter([4096, 16384]),
 *   w2: parameter([16384, 4096]),
 * });
 * const request = { mesh: 'tp=4', cluster: 'dgx-h100' };
 * const pins = [{ node: 'w1', spec: 'S(1)' }];
 * const mine = await shard(graph, { ...request, pins });
 * if (mine.status === 'infeasible') throw new Error(mine.conflict.join('\n'));
 * const found = await audit(mine.graph, mine.plan);
 * if ('conflict' in found) throw new Error(found.conflict.join('\n'));
 * for (const { node, from, to } of found.edits) console.log(node, from, to); // w1 S(1) R
 * ```
 */
export async function audit(
  graph: Graph,
  plan: LowerablePlan,
  options: AuditOptions = {},
): Promise<Audit | Infeasible> {
  checkKinds('audit', { graph: [graph, 'graph'], plan: [plan, 'plan'] });
  checkOptions('audit', options, OPTIONS);
  const { table, ...limits } = options;
  const request = auditedRequest(plan.request);
  const prepared = prepare(graph, request, tableOf('audit', table), limits.deadline);
  return auditChoice(prepared, choiceOfPlan(plan, prepared.model), limits);
}

/**
 * The same for a choice of a request that is prepared.
 *
 * @param prepared without pins: the optimum is over the whole problem
 * @returns what is infeasible, where the problem has no plan that fits
 * @throws what `audit` throws, except for what `prepare` found already
 */
export async function auditChoice(
  prepared: Prepared,
  choice: Int32Array,
  options: Omit<AuditOptions, 'table'> = {},
): Promise<Audit | Infeasible> {
  checkKinds('auditChoice', {
    prepared: [prepared, 'solvable'],
    choice: [choice, 'list'],
    options: [options, 'record'],
  });
  checkChoice('auditChoice', prepared.model.problem, choice);
  const { request, program } = prepared.question;
  const facts = stepFactsOf(request, program);
  return auditByStep(prepared, choice, { ...options, ...defined({ facts }) });
}
