/**
 * A written plan under a mode. In: its graph and its record. Out: what `check` says of a program: every redistribution of the plan
 * is one that nobody wrote in the program, so strict mode names it with the verb that would say it. Collectives are listed as
 * the plan's report counts them.
 */
import { internalError } from '../../errors.ts';
import type { Graph } from '../../graph/types.ts';
import type { CheckReport } from '../../local-spmd/check.ts';
import type { Mode } from '../../local-spmd/modes.ts';
import type { ImplicitMove, Violation } from '../../local-spmd/typed.ts';
import { redistribution } from '../../mesh/local-types/primitives.ts';
import { isAxisType, type AxisType } from '../../mesh/local-types/types.ts';
import { parseMesh } from '../../mesh/devices/mesh.ts';
import { ShardingSpace } from '../../mesh/sharding/space.ts';
import { tensorInputs } from '../../ops/record/context.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import type { Plan, PlannedRedistribution } from '../record/types.ts';

export interface PlanCheckReport extends CheckReport {
  /** As the report of the plan has them, in its order; copies that later uses share are there once. */
  readonly collectives: readonly {
    readonly node: string;
    readonly kind: string;
    readonly meshDims: readonly string[];
  }[];
}

/**
 * Checks a plan.
 *
 * @param graph the planned graph, whose nodes the plan lists
 */
export function checkPlannedModes(graph: Graph, plan: Plan, table: OperatorTable, mode: Mode): PlanCheckReport {
  const mesh = parseMesh(plan.request.mesh);
  const space = new ShardingSpace(mesh, table.kinds);
  const implicit: ImplicitMove[] = [];
  const violations: Violation[] = [];
  const collectives: { node: string; kind: string; meshDims: readonly string[] }[] = [];
  const nodes = new Map(graph.nodes.map((node) => [node.name, node]));
  const move = (node: string, value: string, r: PlannedRedistribution): void => {
    if (r.copy === 'reused') return;
    collectives.push(...r.collectives.map(({ kind, meshDims }) => ({ node, kind, meshDims })));
    const [from, to] = [space.get(space.parse(r.from)), space.get(space.parse(r.to))];
    mesh.names.forEach((axis, m) => {
      const [src, dst] = [from.placements[m], to.placements[m]].map((p) => p.text.replace('P(sum)', 'P'));
      if (src === dst || mesh.sizes[m] === 1) return;
      const verb = verbOf(src, dst);
      implicit.push({ node, meshDim: axis, value, kind: verb, from: src, to: dst });
      const { source, target } = nodes.get(node)?.meta === undefined ? { source: undefined, target: node } : { source: nodes.get(node)?.meta.source, target: nodes.get(node)?.target ?? node };
      violations.push({
        node, meshDim: axis, rule: 'implicit redistribution', types: [`%${value}: ${r.from}`],
        fix: `${verb}(${value}, "${axis}", ${src}→${dst})`,
        message: `Implicit redistribution occurred for ${target} (%${node}): ${value} goes from ${src} to ${dst} on ${axis}${source === undefined ? '' : ` at ${source}`}`,
        ...(source === undefined ? {} : { source }),
      });
    });
  }; // prettier-ignore
  for (const planned of plan.nodes) {
    const node = nodes.get(planned.name);
    const record = node === undefined ? undefined : table.get(node.target);
    const names = node === undefined || record === undefined ? [] : tensorInputs(record, node.args, node.kwargs);
    for (const r of planned.redistributions) move(planned.name, names[r.input] ?? `input ${r.input}`, r);
  }
  for (const output of plan.outputs) for (const r of output.redistributions) move('output', output.value, r);
  const strict = mode === 'strict';
  if (strict && violations.length !== implicit.length) throw internalError('a redistribution is counted twice');
  return {
    mode,
    eraseable: violations.length === 0,
    violations: strict ? violations : [],
    localNotGlobal: [],
    implicit: strict ? [] : implicit,
    assumed: [],
    collectives,
  };
}

/** The verb that says a change; of placements that types do not know, how it is said in a plan. */
function verbOf(src: string, dst: string): string {
  const [from, to] = [src, dst].map((text): AxisType | undefined => (isAxisType(text) ? text : undefined));
  if (from === undefined || to === undefined) return 'redistribute';
  return redistribution(from, to, { expert: true }).op;
}
