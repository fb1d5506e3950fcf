/**
 * Collects facts that the program states about its calls in addition to operators and sizes: their
 * traffic where the program is compiled, and the memory order of the operands of products.
 */

import type { CallFacts } from '../../cost/compute.ts';
import { ShardwrightError } from '../../errors.ts';
import type { Graph } from '../../graph/types.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { compiledTraffic } from '../../passes/fusion/fusion.ts';
import { isXlaProgram } from '../../passes/fusion/xla-loops.ts';
import type { OpenedGraph } from '../../passes/plannable/opened-graph.ts';
import { turnedOperands } from '../../passes/turned.ts';
import type { PricedRequest } from '../request/request.ts';

/** The plan's note on prices of compiled programs. */
export const COMPILED_NOTE =
  'Calls are priced as torch.compile (Inductor) joins them (--compiled): loops over the same ' +
  'elements are one kernel, softmax and norms with what is around them. Where a plan moves a ' +
  'value inside such a kernel, its write and read beside the move are not counted; memory is ' +
  'that of the calls one by one.';

/** The plan's note on prices of programs of JAX. */
export const XLA_NOTE =
  'Calls are priced as XLA joins them: elementwise calls, slices and reductions of the same rows ' +
  'are one kernel with what they read, and constants are part of it. Where a plan moves a value ' +
  'inside such a kernel, its write and read beside the move are not counted; memory is that of ' +
  'the calls one by one.';

/** The compiler whose kernels are priced; undefined where calls run one by one. */
export function pricedCompiler(
  { compiled, cost }: Pick<PricedRequest, 'compiled' | 'cost'>,
  graph: Graph,
): 'inductor' | 'xla' | undefined {
  // Another planner's prices are literal: its calls run one by one.
  if (cost !== 'autoparallel' && isXlaProgram(graph)) return 'xla';
  return compiled === true ? 'inductor' : undefined;
}

/**
 * By the name of a node; undefined where there is nothing to say of any.
 *
 * @param devices of the mesh
 * @throws E_USAGE for prices that are literal where the program is to be compiled: another
 *   planner's calls run one by one
 */
export function callFacts(
  request: PricedRequest,
  graph: Graph,
  table: OperatorTable,
  devices: number,
  opened: OpenedGraph | undefined,
): ReadonlyMap<string, CallFacts> | undefined {
  const { compiled, cost } = request;
  if (compiled === true && cost === 'autoparallel')
    throw new ShardwrightError(
      'E_USAGE',
      `--compiled does not go with --cost ${cost}, whose prices are of calls one by one`,
      {
        hint: 'leave out --cost, or --compiled.',
      },
    );
  const facts = new Map<string, CallFacts>();
  for (const [name, turned] of turnedOperands(graph, table, devices)) facts.set(name, { turned });
  if (pricedCompiler(request, graph) !== undefined)
    for (const [name, traffic] of compiledTraffic(graph, table, opened))
      facts.set(name, { ...facts.get(name), traffic });
  return facts.size === 0 ? undefined : facts;
}
