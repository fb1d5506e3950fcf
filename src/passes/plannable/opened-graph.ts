/**
 * Defines the record of a program whose bodies are inlined: the graph that is planned, and the way
 * back to the calls that were opened.
 */

import type { Graph } from '../../graph/types.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import type { OpenedRegion } from './local-map-record.ts';
import type { Loops } from './loops.ts';
import type { Region, SharedMap } from './regions.ts';

/**
 * A view of a program with control flow for planning: every body is inlined once, at its call.
 *
 * - A carry is a node of its own: it starts as the initial value, the body and whoever reads the
 *   result see it, and what the body returns must end in its placement (`carries`). One placement
 *   holds at entry, in the body and at exit.
 * - A scanned tensor is read by `aten.select.int` on dim 0, so a cut of dim 0 cannot survive; a
 *   stacked result leaves by `unsqueeze` and `expand`, so its new dim 0 is whole until the loop is
 *   over.
 * - The results of branches meet in `aten.where.self`, which makes their placements equal and the
 *   predicate replicated; so does one of the test of a while loop with itself.
 *
 * `loops` says how often each node runs; the nodes that only place values are marks, which never
 * do. The graph is for pricing and placing; running it would run each body once. `regions` records
 * the original calls, for the way back.
 */
export interface OpenedGraph {
  readonly graph: Graph;
  readonly loops: Loops;
  /** The control-flow calls that were opened, inner ones before the one that holds them. */
  readonly regions: readonly Region[];
  /** The names of body nodes in their own graph. */
  readonly origins: ReadonlyMap<string, string>;
  /** The values that a body returns for the next trip, and the carries that they become. */
  readonly carries: readonly { readonly value: string; readonly carry: string }[];
  /** Maps whose rows are shared out, by the node that each is. */
  readonly sharedMaps: ReadonlyMap<string, SharedMap>;
  /** Regions of per-device code, by the node that each is. */
  readonly localMaps: ReadonlyMap<string, OpenedRegion>;
  /** The operators of the graph: those that were given, and one for each such map. */
  readonly table: OperatorTable;
  /** Assumptions on trip counts and branches, one sentence each. */
  readonly notes: readonly string[];
}
