/** Rewrites loops that gradients pass into scans, which can be differentiated. */

import type { Graph, Node } from '../../../graph/types.ts';
import type { OperatorTable } from '../../../ops/record/table.ts';
import { controlForm } from '../../control/control-form.ts';
import { boundedLoopsToScans } from '../../control/loops/bounded-loops.ts';
import { hoistInvariants } from '../../control/loops/hoist-invariants.ts';
import { Activity } from '../activity.ts';
import { differentiated, type Wanted } from '../wanted.ts';

/**
 * The graph with the loops that a gradient passes in a form that it can pass: bounded `while_loop`
 * calls as scans, and calls that are the same on every trip before the loop, so that they are
 * differentiated once. Other loops stay.
 */
export function withDifferentiableLoops(graph: Graph, table: OperatorTable, wanted: Wanted): Graph {
  const isLoop = (node: Node): boolean => {
    const form = controlForm(node, graph.subgraphs);
    return form !== undefined && form.kind !== 'branch';
  };
  if (!graph.nodes.some(isLoop)) return graph;
  const onTheWay = (source: Graph): ((node: Node) => boolean) => {
    const placeholders = source.nodes.filter((node) => node.kind === 'placeholder');
    const activity = new Activity(table, differentiated(source, placeholders, wanted));
    for (const node of source.nodes) activity.visit(node);
    return (node) => activity.has(node.name);
  };
  const scans = boundedLoopsToScans(graph, { table, nested: false, only: onTheWay(graph) });
  return hoistInvariants(scans, { table, nested: false, only: onTheWay(scans) });
}
