/** Decides whether a program has a sequence dim that context parallelism may cut. */

import type { Model } from '../plan/model/model.ts';
import { attentionNodes } from '../step/read/attention-paths.ts';
import type { InputRoles } from './inputs/roles.ts';

/**
 * Tells whether plans may cut the program along its sequence: some input has a dim that becomes the
 * rows of fused attention, and dims that views merge may be cut in strides, without which rows of
 * several sequences are one dim that is cut between them only.
 */
export function isCutAlongSequence(model: Model, roles: InputRoles): boolean {
  const { flow, strategies } = model;
  if ((strategies.options.strided ?? 'off') === 'off') return false;
  const rows = new Set(
    attentionNodes(model, 'forward').flatMap((n) =>
      [0, 1].map((input) => flow.values[flow.inputs[n][input]].meta.shape[2]),
    ),
  );
  return [...roles].some(
    ([n, { sequence }]) =>
      sequence !== undefined && rows.has(flow.values[flow.results[n][0]].meta.shape[sequence]),
  );
}
