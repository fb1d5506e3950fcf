/**
 * Takes a model config and a cluster and gives the comparison of all recipes on all meshes,
 * composed from prices of representative layers.
 */

import { loadCluster } from '../cost/hardware/load-cluster.ts';
import { defined } from '../defined.ts';
import { ShardwrightError } from '../errors.ts';
import { type ModelConfig, parseModelConfig } from '../models/families.ts';
import type { OperatorTable } from '../ops/record/table.ts';
import { Deadline } from '../plan/request/deadline.ts';
import { defaultThreads } from '../platform/platform.ts';
import { DEFAULT_RISK } from '../recipes/compare/best-plan.ts';
import { withCertainty } from '../recipes/compare/certainty.ts';
import { comparedPadding } from '../recipes/compare/compared-padding.ts';
import type { Comparison } from '../recipes/compare/comparison.ts';
import { UNCUT_STREAM } from '../recipes/expert-mesh.ts';
import { sweepComparison } from './conclude.ts';
import type { SweepQuestion } from './model/question.ts';
import { type LayerKinds, layerKinds } from './model/representative-layers.ts';
import { trainerLimits } from './model/trainer-limits.ts';
import { withOptima } from './optima.ts';
import { checkPlansRun, parsePlans } from './plan-names.ts';
import { resumedPool } from './resume.ts';
import { sweep, type SweepResult } from './sweep.ts';
import { localPool } from './threads/local-pool.ts';
import type { SweepPool } from './threads/pool.ts';
import { threadPool } from './threads/thread-pool.ts';
import { riskierPlan, whatIf } from './what-if.ts';

/** A plan with tensor parallelism and a whole residual stream. */
function isUncutTensor(name: string): boolean {
  const parts = name.split('+');
  return parts.includes('tp') && !parts.includes('sp');
}

interface CompareModelOptions {
  readonly table: OperatorTable;
  /**
   * Names of plans, such as `pp+fsdp+tp+sp`, or of families; absent: all. `optimum` is the free
   * optimum of the model dims.
   */
  readonly plans?: readonly string[];
  readonly slice?: { readonly index: number; readonly count: number };
  /** Prices also what a bound says is not the best, so that plans can be counted. */
  readonly exhaustive?: boolean;
  /** True if the answer says what would change it; default true. */
  readonly whatIf?: boolean;
  /** Threads; default as many as there are cores, 1: none besides this one. */
  readonly threads?: number;
  /** File that keeps what was priced. */
  readonly resume?: string;
  /** The deadline of the whole comparison; default: none. */
  readonly deadline?: Deadline;
  /** Called when a plan is priced: from then on there is something to answer with. */
  readonly onPlan?: () => void;
  readonly onProgress?: (line: string) => void;
}

/**
 * The recipes on every mesh of some devices for a model known by its config: layers of a kind are
 * priced once, stages and data ranks are put together from them.
 *
 * @throws E_TIME_LIMIT, E_INTERRUPTED where there is no plan by then; E_USAGE for an unknown
 *   recipe, E_UNSUPPORTED for a model whose layers are not one stack, E_CLUSTER, E_IO
 */
export async function compareModel(
  asked: SweepQuestion,
  options: CompareModelOptions,
): Promise<Comparison> {
  const question = { risk: DEFAULT_RISK, ...asked };
  const { table, slice, onProgress, deadline = new Deadline(undefined) } = options;
  const wants = parsePlans(options.plans);
  checkPlansRun(question, options.plans);
  const config = parseModelConfig(question.config);
  refuseUncut(question, config, options.plans);
  const cluster = loadCluster(question.cluster);
  onProgress?.(`${question.model}: reading its layers`);
  const sizes = {
    batch: 1,
    sequence: question.sequence,
    ...defined({ dtype: question.dtype }),
  };
  const kinds = layerKinds(config, sizes, table);
  const pool = poolOf(question, kinds, options, deadline);
  try {
    const found = await sweep({
      question,
      config,
      cluster,
      kinds,
      pool,
      wants: wants.row,
      asked: wants,
      expertTensor: wants.expertTensor,
      deadline,
      ...defined({ onPlan: options.onPlan, slice, exhaustive: options.exhaustive, onProgress }),
    });
    const isFree = trainerLimits(question) === undefined;
    const result =
      wants.optimum && isFree ? await withOptima(question, found, pool, table, onProgress) : found;
    return await concluded(question, config, result, { ...options, deadline });
  } finally {
    await pool.close();
  }
}

/** @throws E_USAGE for plans that leave the stream of tokens of routed experts whole */
function refuseUncut(
  { model }: SweepQuestion,
  { architecture }: ModelConfig,
  plans: readonly string[] | undefined,
): void {
  const cut = architecture.routed === undefined ? undefined : plans?.find(isUncutTensor);
  if (cut !== undefined)
    throw new ShardwrightError(
      'E_USAGE',
      `--plans ${cut}: tp without sp, and ${model} has routed experts`,
      { hint: `${UNCUT_STREAM}: ask for ${cut.replace(/\btp\b/, 'tp+sp')}.` },
    );
}

/** The threads that price, or this one; with the file of what was priced before. */
function poolOf(
  question: SweepQuestion,
  kinds: LayerKinds,
  { table, resume, threads = Math.min(8, defaultThreads()) }: CompareModelOptions,
  deadline: Deadline,
): SweepPool {
  const pool =
    threads > 1
      ? threadPool(threads, { question, kinds }, deadline)
      : localPool(question, table, kinds, deadline);
  return resume === undefined ? pool : resumedPool(pool, question, resume);
}

/** The comparison, with what would change it, its certainty and what was left out. */
async function concluded(
  question: SweepQuestion,
  config: ModelConfig,
  result: SweepResult,
  options: CompareModelOptions & { readonly deadline: Deadline },
): Promise<Comparison> {
  const { table, deadline, onProgress } = options;
  const asks = options.slice === undefined && options.whatIf !== false;
  if (asks) onProgress?.('pricing what would change the answer');
  const changes = asks ? await whatIf(question, result, table, deadline) : [];
  const riskier = await riskierPlan(question, result, table);
  const notAsked = [
    ...result.notAsked,
    ...(asks && deadline.isOver ? ['what would change the answer'] : []),
  ];
  const compared = withCertainty(sweepComparison(question, result, { whatIf: changes, riskier }), {
    cluster: result.composer.cluster,
    experts: config.architecture.routed !== undefined,
    unmeasured: config.lora !== undefined || config.architecture.isUnmeasured === true,
    cost: question.cost,
    by: 'step',
    trainer: question.trainer,
    assumed: question.trainerAssumed,
    trains: true,
    memoryBytes: question.memoryBytes,
  });
  const { boundSeconds } = result;
  const bound = boundSeconds === undefined ? {} : { boundSeconds };
  const comparison =
    notAsked.length === 0
      ? compared
      : { ...compared, stopped: { by: deadline.cause, notAsked, ...bound } };
  const tensors = result.priced.map(({ row }) => row.sizes.tp);
  const padding = comparedPadding(config, question.padVocabulary ?? 1, tensors);
  return padding === undefined ? comparison : { ...comparison, padding };
}
