/** Takes a StableHLO program and gives it with the trip counts of its loops and with phases. */

import { stampPhases } from '../../graph/phases.ts';
import type { Graph } from '../../graph/types.ts';
import { withTripCounts } from '../../passes/control/loops/counted-loops.ts';

/** A StableHLO program whose loops say how often they run, phases set. */
export function counted<T extends { readonly graph: Graph }>(read: T): T {
  const graph = withTripCounts(read.graph);
  stampPhases(graph);
  return { ...read, graph };
}
