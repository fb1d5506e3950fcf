/** Reads `--mesh` first, so that an error points at the flag and not at the model. */

import { ShardwrightError } from '../../errors.ts';
import { checkPlannedDims, parseMesh } from '../../mesh/devices/mesh.ts';

/**
 * Reads `--mesh` before anything else is read, so that a slip in it is one of the flag and not of
 * the model.
 *
 * @throws E_USAGE with the place in the flag, E_MESH as `parseMesh` and for more dims than are
 *   planned on
 */
export function checkMeshFlag(text: string): void {
  try {
    checkPlannedDims(parseMesh(text));
  } catch (error) {
    if (!(error instanceof ShardwrightError) || error.code !== 'E_SYNTAX') throw error;
    const { hint } = error.details;
    throw new ShardwrightError(
      'E_USAGE',
      error.message.replace(/^mesh /, '--mesh '),
      hint === undefined ? {} : { hint },
    );
  }
}
