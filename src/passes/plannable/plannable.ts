/** Runs the passes that turn an imported program into one that can be planned. */

import type { Graph, Node } from '../../graph/types.ts';
import { getOwn, setOwn } from '../../graph/value.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { countedText } from '../../units.ts';
import { inlineCalls } from '../control/inline-calls.ts';
import { atenCounter } from '../control/loops/counted-aten.ts';
import { withTripCounts } from '../control/loops/counted-loops.ts';
import { raiseLoops } from '../control/loops/raise-loops.ts';
import { unrollDraws } from '../control/loops/unroll-draws.ts';
import { withoutDeadCode } from '../dead-code.ts';
import { withoutChecks } from './checks.ts';
import { perDeviceRegions } from './device-regions.ts';
import { retakeWeightViews } from './weight-views.ts';

/**
 * The loops of a program: counted loops over rows become the scans that they are and the rounds of
 * random bits are written out, or only the former, or neither.
 */
type LoopsOfPlan = 'unrolled' | 'scans' | 'as written';

/**
 * The program that a plan is made of: checks and what nothing returned needs left out, regions and
 * calls written out, manual regions typed, loops counted, weight views taken again.
 *
 * @param loops `unrolled`; plans of earlier versions have the others
 */
export function plannable(
  graph: Graph,
  table: OperatorTable,
  loops: LoopsOfPlan = 'unrolled',
): Graph {
  const inLine = withoutDead(inlineCalls(regionsAsCalls(withoutChecks(graph))));
  const written = perDeviceRegions(inLine, table);
  const scans = loops === 'as written' ? written : raiseLoops(written);
  const raised = loops === 'unrolled' ? unrollDraws(scans, table) : scans;
  // A scan reads no counter: its start and end are needed no more.
  const live = raised === written ? written : withoutDeadCode(raised);
  return retakeWeightViews(withTripCounts(live, atenCounter), table);
}

/** Without dead code, and with a note of how many calls that are. */
function withoutDead(graph: Graph): Graph {
  const live = withoutDeadCode(graph);
  const dead = graph.nodes.length - live.nodes.length;
  if (dead === 0) return live;
  const note =
    `${countedText(dead, 'call')} that nothing returned needs ` +
    `${dead === 1 ? 'is' : 'are'} left out.`;
  return { ...live, notes: [...(live.notes ?? []), note] };
}

/**
 * `wrap_with_set_grad_enabled(flag, body, ...)` and `wrap_with_autocast(device, dtype, enabled,
 * cache, body, ...)` run their body once: each becomes a plain `call` of it. (The casts that
 * autocast asks for are in the body already.)
 */
export function regionsAsCalls(graph: Graph): Graph {
  let changed = false;
  const nodes = graph.nodes.map((node): Node => {
    const at = node.kind !== 'call' ? undefined : REGIONS.get(node.target);
    if (at === undefined) return node;
    changed = true;
    return { ...node, target: 'call', args: [node.args[at] ?? null, node.args.slice(at + 1)] };
  });
  const subgraphs: Record<string, Graph> = {};
  for (const name of Object.keys(graph.subgraphs)) {
    const before = getOwn(graph.subgraphs, name)!;
    const after = regionsAsCalls(before);
    changed ||= after !== before;
    setOwn(subgraphs, name, after);
  }
  return changed ? { ...graph, nodes, subgraphs } : graph;
}

/** Position of the body among the arguments. */
const REGIONS: ReadonlyMap<string, number> = new Map([
  ['wrap_with_set_grad_enabled', 1],
  ['wrap_with_autocast', 4],
]);
