/** Takes a request and a program and gives what its calls move where it is compiled, with what the plan says of that. */

import type { CallTraffic } from '../../cost/compute.ts';
import { ShardwrightError } from '../../errors.ts';
import type { Graph } from '../../graph/types.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { compiledTraffic } from '../../passes/fusion/fusion.ts';
import type { OpenedGraph } from '../../passes/plannable/opened-graph.ts';
import type { PricedRequest } from './request.ts';

/** What the plan says of prices of compiled programs. */
export const COMPILED_NOTE =
  'Calls are priced as torch.compile (Inductor) joins them (--compiled): loops over the same elements are one kernel, softmax and norms with what is around them. Where a plan moves a value inside such a kernel, its write and read beside the move are not counted; memory is that of the calls one by one.';

/**
 * What calls move in a compiled program, by the name of their node; undefined where the request asks for none.
 *
 * @throws E_USAGE for prices that are literal: another planner's calls run one by one
 */
export function trafficOf(
  { compiled, cost }: PricedRequest,
  graph: Graph,
  table: OperatorTable,
  opened: OpenedGraph | undefined,
): ReadonlyMap<string, CallTraffic> | undefined {
  if (compiled !== true) return undefined;
  if (cost === 'autoparallel')
    throw new ShardwrightError('E_USAGE', `--compiled does not go with --cost ${cost}, whose prices are of calls one by one`, {
      hint: 'leave out --cost, or --compiled.',
    }); // prettier-ignore
  return compiledTraffic(graph, table, opened === undefined ? undefined : (name) => opened.loops.scopeOf(name));
}
