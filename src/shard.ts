/**
 * `shard`: the plan of a graph on a mesh. The library, the command `plan` and the page ask here, so
 * that one request has one answer.
 *
 * 1. `prepare` turns the request into an integer program with all prices.
 * 2. `answer` prices the known recipes on it, which start the search for the plan of least cost
 *    (`src/plan/least-cost-plan.ts`); of all plans it takes the one of the shortest training step.
 *    The step is that of the trainer that the request names, or of the exported program.
 *
 * The memory budget binds where the plan of least cost has its peak above it. Then:
 *
 * - `answer` searches again with the memory at the peak as a row of the integer program, until a
 *   plan fits (`holdBudget`).
 * - If activations keep every plan from fitting, a trainer runs the step, and the request fixes
 *   neither what the budget limits nor what is recomputed, `recomputed` asks once more: layers
 *   recompute what the trainer can, and the budget limits the trainer's step.
 * - If nothing fits then either, the answer says how many bytes would do, or what conflicts.
 */
import { checkKinds } from './arguments.ts';
import { defined } from './defined.ts';
import { checkOptions } from './errors.ts';
import { stepFactsOf, withRoutedRows } from './fidelity/trainer-step.ts';
import type { Graph } from './graph/types.ts';
import type { OperatorTable } from './ops/record/table.ts';
import type { Infeasible } from './plan/choice/result.ts';
import { prepare } from './plan/prepare/prepare.ts';
import type { Prepared } from './plan/prepare/prepared.ts';
import { completeRequest, tableOf } from './plan/request/check-call.ts';
import type { GivenRequest, PlanRequest } from './plan/request/request.ts';
import { startRun } from './plan/request/run.ts';
import { type Answer, answer, type AnswerOptions, prepareToAnswer } from './recipes/answer.ts';
import type { StepFacts } from './step/facts.ts';

/** Until when and from where an answer to a prepared request is looked for. */
export type PreparedOptions = Omit<AnswerOptions, 'facts'>;

/** Operators, and how long and from where an answer is looked for. */
export interface ShardOptions extends Pick<
  AnswerOptions,
  'deadline' | 'onProgress' | 'recipes' | 'starts' | 'workLimit'
> {
  /** Default the built-in operators. */
  readonly table?: OperatorTable;
  readonly signal?: AbortSignal;
}

const OPTIONS: Readonly<Record<keyof ShardOptions, true>> = {
  table: true,
  deadline: true,
  onProgress: true,
  recipes: true,
  starts: true,
  workLimit: true,
  signal: true,
};

/**
 * Plans a graph on a mesh, as the command `plan` does: the plan to take with its bound and
 * certificate, or why there is none. The step is that of the trainer that the request names, or of
 * the exported program.
 *
 * @throws E_USAGE for a trainer that is unknown or does not run the graph, and for an overlap that
 *   is not looked for; E_TIME_LIMIT,
 *   E_LIMIT where neither a plan was found nor its absence proven; what `prepare` throws
 *
 * @example
 * ```ts
 * import { input, parameter, shard, trace } from 'shardwright';
 *
 * const graph = trace(({ x, w1, w2 }) => x.matmul(w1).relu().matmul(w2), {
 *   x: input([4096, 4096]),
 *   w1: parameter([4096, 16384]),
 *   w2: parameter([16384, 4096]),
 * });
 * const result = await shard(graph, {
 *   mesh: 'tp=4',
 *   cluster: 'dgx-h100',
 *   inputs: 'R',
 *   outputs: 'R',
 *   objective: 'parameter-memory',
 * });
 * if (result.status === 'infeasible') throw new Error(result.conflict.join('\n'));
 * const [w1, w2] = result.plan.parameters;
 * console.log(result.plan.proof.status, w1.placement, w2.placement); // optimal S(1) S(0)
 * ```
 */
export async function shard(
  graph: Graph,
  given: GivenRequest,
  options: ShardOptions = {},
): Promise<Answer> {
  checkKinds('shard', { graph: [graph, 'graph'] });
  checkOptions('shard', options, OPTIONS);
  const request = withRoutedRows(completeRequest(given), graph);
  // What is refused is refused before prices are looked up, which may take minutes.
  stepFactsOf(request, graph);
  if (request.overlap === true) (await import('./simulate/overlap/plan.ts')).checkOverlap(request);
  const { table: asked, recipes = true, ...limits } = options;
  const run = startRun(request, limits);
  const table = tableOf('shard', asked);
  const { prepared, search } = prepareToAnswer(graph, request, table, run.deadline);
  return shardPrepared(prepared, { ...run, search, recipes });
}

/**
 * The same for a request that is prepared.
 *
 * @throws what `shard` throws, except for what `prepare` found already
 */
export async function shardPrepared(
  prepared: Prepared,
  options: PreparedOptions = {},
): Promise<Answer> {
  checkKinds('shardPrepared', { prepared: [prepared, 'solvable'], options: [options, 'record'] });
  const { request, program } = prepared.question;
  const facts = stepFactsOf(request, program);
  if (options.isMicrobatch === true || !mayRecompute(request, facts))
    return answer(prepared, { ...options, ...defined({ facts }) });
  const kept = await answer(prepared, { ...options, facts, findsBudget: false });
  if (kept.status !== 'infeasible') return kept;
  // Whatever budget would do is looked for only where recomputation is no way out.
  if (!isOfActivations(kept)) return answer(prepared, { ...options, facts });
  return recomputed(prepared, kept, options);
}

/**
 * Tells whether a plan that does not fit may still be one that its trainer fits by recomputation:
 * nobody said what the budget limits, or what is recomputed.
 */
function mayRecompute(
  { activations, checkpoint = 'none', overlap }: PlanRequest,
  facts: StepFacts | undefined,
): facts is StepFacts {
  const isSaid = activations !== undefined || checkpoint !== 'none';
  return facts !== undefined && !isSaid && overlap !== true;
}

/** Tells whether states alone may fit, so that what activations take is what is in the way. */
function isOfActivations({ neededBytes, enoughBytes, smallestBudgetBytes }: Infeasible): boolean {
  return smallestBudgetBytes === undefined && (neededBytes ?? enoughBytes) !== undefined;
}

/** The answer where layers recompute what the trainer can (`activations: 'trainer'`). */
async function recomputed(
  { question }: Prepared,
  kept: Infeasible,
  options: PreparedOptions,
): Promise<Answer> {
  const { program, operators } = question;
  const request: PlanRequest = { ...question.request, activations: 'trainer' };
  const again = prepare(program, request, operators, options.deadline);
  const facts = stepFactsOf(request, program);
  const found = await answer(again, { ...options, ...defined({ facts }) });
  // What the leanest step needs is said of both.
  return found.status === 'infeasible' && found.enoughBytes === undefined ? kept : found;
}
