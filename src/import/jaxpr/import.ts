/** Reads the text of `str(jax.make_jaxpr(f)(...))` into a graph. */

import type { Graph } from '../../graph/types.ts';
import { countEquations } from './count.ts';
import { lowerJaxpr, type LowerOptions } from './lower.ts';
import { parseJaxpr } from './text/parse.ts';

/**
 * Reads the text of `str(jax.make_jaxpr(f)(...))`.
 *
 * @throws E_SYNTAX, E_REF, E_DUP, E_TYPE, E_UNSUPPORTED, E_LIMIT with line and column; E_GRAPH_LINT
 */
export function readJaxpr(
  text: string,
  options: LowerOptions & { readonly file?: string } = {},
): { readonly graph: Graph; readonly counts: ReturnType<typeof countEquations> } {
  const { root, parser } = parseJaxpr(text, options.file);
  return { graph: lowerJaxpr(root, parser, options), counts: countEquations(root) };
}
