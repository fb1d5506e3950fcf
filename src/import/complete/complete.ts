/** Takes a graph as a reader made it and gives it with values only, linted, with phases set. */

import { lintGraph } from '../../graph/lint.ts';
import { stampPhases } from '../../graph/phases.ts';
import type { Graph } from '../../graph/types.ts';
import { withScalarTrips } from '../../passes/control/loops/scalar-loops.ts';
import { withoutMutation } from './inplace.ts';
import { withoutStrides } from './strided-views.ts';

/** A graph as a reader made it: values only, linted, phases set. */
export function complete(made: Graph): Graph {
  const graph = withScalarTrips(withoutStrides(withoutMutation(made)));
  lintGraph(graph);
  stampPhases(graph);
  return graph;
}
