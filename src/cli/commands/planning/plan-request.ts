/** The request that the flags of `plan`, `verify` and `audit` ask for. */

import { ShardwrightError } from '../../../errors.ts';
import type { VocabularyPadding } from '../../../models/vocabulary.ts';
import {
  DEFAULT_REQUEST,
  type PlanRequest,
  recomputesUnderBudget,
} from '../../../plan/request/request.ts';
import { type Given, requestOfFlags } from '../../input/flags/flag.ts';
import { PLAN_FLAGS } from '../../input/flags/planning-flags.ts';
import { PLAN_COMMAND } from './flags.ts';

const { batchDim, sequenceDim, ...others } = PLAN_FLAGS;
const { ignoreShardings, overlap, recipe, for: trainer, risk } = PLAN_COMMAND;
/**
 * Flags that say something of the plan that is asked for, in the order of the fields that they set.
 */
const REQUEST_FLAGS = {
  ignoreShardings,
  ...others,
  overlap,
  recipe,
  for: trainer,
  risk,
  batchDim,
  sequenceDim,
};
type RequestOptions = Given<typeof REQUEST_FLAGS> & {
  readonly mesh: string;
  readonly cluster: string;
};

/**
 * The request that the flags ask for. @param options `cluster` is the text of a cluster, or the
 * name of a node design
 */
export function requestOf(options: RequestOptions): PlanRequest {
  const { mesh, cluster } = options;
  const request = requestOfFlags(REQUEST_FLAGS, options, { ...DEFAULT_REQUEST, mesh, cluster });
  if (
    request.activations !== undefined &&
    request.activations !== 'constraint' &&
    recomputesUnderBudget(request)
  )
    throw new ShardwrightError(
      'E_USAGE',
      `--checkpoint ${String(request.checkpoint)} limits peak memory to the budget, and ` +
        `--activations ${request.activations} does not`,
      { hint: 'leave --activations out, or give --activations constraint.' },
    );
  return request;
}

/** The request with what was padded before planning. */
export function padded(request: PlanRequest, padding: VocabularyPadding | undefined): PlanRequest {
  return padding === undefined ? request : { ...request, padVocabulary: padding };
}
