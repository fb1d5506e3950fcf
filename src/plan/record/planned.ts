/**
 * Makes the planned program from the graph that the user gave and its plan: the graph that was
 * planned, with the statements of the plan on it.
 */
import { ShardwrightError } from '../../errors.ts';
import type { Graph } from '../../graph/types.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { openBodies } from '../../passes/plannable/open-bodies.ts';
import type { OpenedGraph } from '../../passes/plannable/opened-graph.ts';
import { plannable } from '../../passes/plannable/plannable.ts';
import type { Plan } from './types.ts';

/** The part of a plan that the lowering reads. */
export type LowerablePlan = Pick<Plan, 'request' | 'nodes' | 'outputs'>;

/** A program as it is planned. */
export interface PlannedProgram {
  /** The program itself, which runs. */
  readonly program: Graph;
  /**
   * The graph whose nodes the plan lists: the program, with its bodies in line where it has control
   * flow.
   */
  readonly listed: Graph;
  readonly opened?: OpenedGraph;
}

/**
 * The program of a plan, and the graph whose nodes the plan lists.
 *
 * @throws E_PLAN when the plan is not of this graph
 */
export function plannedProgram(
  graph: Graph,
  plan: LowerablePlan,
  table: OperatorTable,
): PlannedProgram {
  const fits = (g: Graph): boolean =>
    g.nodes.length === plan.nodes.length &&
    g.nodes.every((node, i) => node.name === plan.nodes[i].name);
  // A graph with its bodies in line is what was placed, and no program.
  const inLine = plan.nodes.some((node) => node.times !== undefined);
  if (fits(graph) && !inLine) return { program: graph, listed: graph };
  const written = plannable(graph, table);
  const earlier = (['scans', 'as written'] as const).map(
    (loops) => (): Graph => plannable(graph, table, loops),
  );
  const forms = written === graph ? [() => graph] : [() => written, ...earlier, () => graph];
  for (const form of forms) {
    const program = form();
    const opened = openBodies(program, table, plan.request);
    if (opened === undefined && fits(program) && !inLine) return { program, listed: program };
    if (opened !== undefined && fits(opened.graph))
      return { program, listed: opened.graph, opened };
  }
  throw new ShardwrightError(
    'E_PLAN',
    `the plan lists ${plan.nodes.length} nodes that are not those of graph ${graph.name}`,
    { hint: 'lower the graph that the plan was made for (graph.swg of the plan folder)' },
  );
}
