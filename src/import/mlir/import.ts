/** Reads StableHLO text, pretty or generic, into a graph. */

import type { Graph } from '../../graph/types.ts';
import { countProgram, type ProgramCounts } from './count.ts';
import { lowerModule, type LowerOptions } from './lower.ts';
import { parseModule } from './module.ts';

/**
 * Reads StableHLO text, pretty or generic.
 *
 * @throws E_SYNTAX, E_REF, E_DUP, E_TYPE, E_UNSUPPORTED, E_LIMIT with line and column; E_GRAPH_LINT
 */
export function readStablehlo(
  text: string,
  options: LowerOptions & { readonly file?: string } = {},
): { readonly graph: Graph; readonly counts: ProgramCounts } {
  const { module, reader } = parseModule(text, options.file);
  return { graph: lowerModule(module, reader, options), counts: countProgram(module) };
}
