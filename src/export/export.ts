/**
 * Writes a plan as the files of one engine, with the losses that they have. A file that means
 * something else than the plan is written only where the caller asks for it.
 */
import { checkKinds } from '../arguments.ts';
import {
  type ExportedPlan,
  type ExportResult,
  type ExportSource,
  exportSource,
  type OrderOptions,
  refuseLosses,
} from '../backend/target.ts';
import { defined } from '../defined.ts';
import { checkOptions, ShardwrightError, valueText, wrongArgument } from '../errors.ts';
import type { Graph } from '../graph/types.ts';
import type { OperatorTable } from '../ops/record/table.ts';
import { plannedProgram } from '../plan/record/planned.ts';
import { tableOf } from '../plan/request/check-call.ts';
import { exportTarget } from './targets.ts';

/** Operators of a plan, and how strictly it is exported. */
export interface ExportOptions extends OrderOptions {
  /** Default the built-in operators. */
  readonly table?: OperatorTable;
  /**
   * Write what the target can say although it cannot say all. Default false: losses are refused.
   */
  readonly allowLossy?: boolean;
  /** Write what holds the program against the uncut one at small sizes, too. Default false. */
  readonly check?: boolean;
}

const OPTIONS: Readonly<Record<keyof ExportOptions, true>> = {
  table: true,
  allowLossy: true,
  check: true,
  order: true,
  bucketBytes: true,
};

/**
 * Writes a plan for a target; equal plans give equal bytes.
 *
 * @param graph the planned graph, or the graph that was handed to `shard`
 * @param target one of `EXPORT_TARGETS` by its name
 * @throws E_PLAN when the plan is not of this graph, and what `exportFiles` throws
 *
 * @example
 * ```ts
 * import { exportPlan, input, parameter, shard, trace } from 'shardwright';
 *
 * const graph = trace(({ x, w1, w2 }) => x.matmul(w1).relu().matmul(w2), {
 *   x: input([4096, 4096]),
 *   w1: parameter([4096, 16384]),
 *   w2: parameter([16384, 4096]),
 * });
 * const result = await shard(graph, { mesh: 'tp=4', cluster: 'dgx-h100' });
 * if (result.status === 'infeasible') throw new Error(result.conflict.join('\n'));
 * const { files } = exportPlan(result.graph, result.plan, 'shardy');
 * console.log(files.map(({ name }) => name).join(' ')); // program.mlir shardings.json
 * ```
 */
export function exportPlan(
  graph: Graph,
  plan: ExportedPlan,
  target: string,
  options: ExportOptions = {},
): ExportResult {
  checkKinds('exportPlan', { graph: [graph, 'graph'], plan: [plan, 'plan'] });
  checkOptions('exportPlan', options, OPTIONS);
  if (typeof target !== 'string')
    throw wrongArgument(
      'exportPlan',
      'target',
      valueText(target),
      "give 'torch', or another name.",
    );
  const table = tableOf('exportPlan', options.table);
  checkKinds('exportPlan', { plan: [plan, 'writtenPlan'] });
  const { program, listed } = plannedProgram(graph, plan, table);
  return exportFiles(exportSource({ plan, program, graph: listed }, table), target, options);
}

/**
 * The files of a target from a plan that is ready to be written.
 *
 * @param source from `exportSource`
 * @throws E_USAGE for an unknown target, and for an order or buckets that a target does not take;
 *   E_EXPORT_LOSS listing what the target cannot say; E_UNSUPPORTED with the node
 */
export function exportFiles(
  source: ExportSource,
  name: string,
  options: Omit<ExportOptions, 'table'> = {},
): ExportResult {
  checkKinds('exportFiles', {
    source: [source, ['plan', 'mesh', 'program']],
    name: [name, 'string'],
    options: [options, 'record', 'undefined'],
  });
  const target = exportTarget(name);
  const { order, bucketBytes } = options;
  if (target.ordered !== true && (order !== undefined || bucketBytes !== undefined))
    throw new ShardwrightError(
      'E_USAGE',
      `--target ${name} takes no ${order === undefined ? '--bucket' : '--order'}`,
      {
        hint:
          'the order of calls and buckets of collectives are part of the program that --target ' +
          'torch writes.',
      },
    );
  const ordering: OrderOptions = {
    ...defined({ order, bucketBytes }),
  };
  const result = target.write(source, ordering);
  if (result.losses.length > 0 && options.allowLossy !== true)
    refuseLosses(target, result.losses, source.program);
  if (options.check !== true) return result;
  if (target.check === undefined)
    throw new ShardwrightError('E_USAGE', `${name} has no check at small sizes`, {
      hint: 'give --target torch; --target jax writes its check always.',
    });
  return { ...result, files: [...result.files, ...target.check(source, ordering)] };
}
