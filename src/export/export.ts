/**
 * The door of the room: a plan as the files of one engine. In: a plan with its graph and the name
 * of a target. Out: files by name, and the losses that stand in them. Nothing that means something
 * else than the plan is written unless it is asked for.
 */
import {
  type ExportResult,
  type ExportSource,
  type OrderOptions,
  refuseLosses,
} from '../backend/target.ts';
import { ShardwrightError } from '../errors.ts';
import { checkArguments } from '../plan/request/check-call.ts';
import { exportTarget } from './targets.ts';

/** How strictly a plan is exported. */
export interface ExportOptions extends OrderOptions {
  /**
   * Write what the target can say although it cannot say all. Default false: losses are refused.
   */
  readonly allowLossy?: boolean;
  /** Write what holds the program against the uncut one at small sizes, too. Default false. */
  readonly check?: boolean;
}

/**
 * Writes a plan for a target; equal plans give equal bytes.
 *
 * @param source from `exportSource`
 * @throws E_USAGE for an unknown target, and for an order or buckets that a target does not take;
 *   E_EXPORT_LOSS listing what the target cannot say; E_UNSUPPORTED with the node
 */
export function exportPlan(
  source: ExportSource,
  name: string,
  options: ExportOptions = {},
): ExportResult {
  checkArguments('exportPlan', { source });
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
    ...(order === undefined ? {} : { order }),
    ...(bucketBytes === undefined ? {} : { bucketBytes }),
  };
  const result = target.write(source, ordering);
  if (result.losses.length > 0 && options.allowLossy !== true) refuseLosses(target, result.losses);
  if (options.check !== true) return result;
  if (target.check === undefined)
    throw new ShardwrightError('E_USAGE', `${name} has no check at small sizes`, {
      hint: 'give --target torch; --target jax writes its check always.',
    });
  return { ...result, files: [...result.files, ...target.check(source, ordering)] };
}
