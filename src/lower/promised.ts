/** Lists the collectives that the per-device program of a plan must contain. */
import { COLLECTIVE_KINDS, type CollectiveKind } from '../cost/collective-model.ts';
import { internalError } from '../errors.ts';
import { parseMesh } from '../mesh/devices/mesh.ts';
import { ShardingSpace } from '../mesh/sharding/space.ts';
import { bindCall, withOutputs } from '../ops/record/context.ts';
import type { TensorMeta } from '../ops/record/record.ts';
import type { OperatorTable } from '../ops/record/table.ts';
import type { PlannedProgram } from '../plan/record/planned.ts';
import type { Plan, PlannedRedistribution } from '../plan/record/types.ts';
import { dataflow } from '../strategy/dataflow.ts';
import { rulesTaken } from './rules-taken.ts';

/** A collective that a plan says will run. */
export interface PromisedCollective {
  readonly kind: CollectiveKind;
  readonly meshDims: readonly number[];
  /**
   * The bytes in the plan; null for a collective inside an operator's rule, which the plan gives
   * only seconds for.
   */
  readonly bytes: number | null;
  /** Bodies in each run of which it runs once, by scope of the opened graph; 0 is the program. */
  readonly scopes: readonly number[];
  /**
   * For a collective in a branch inside a region, the body that contains it, which may or may not
   * run.
   */
  readonly body?: string;
}

/**
 * The communication that a plan promises: the collectives of its redistributions, and those inside
 * the rules that its placements take. Groups of one device communicate nothing. The communication
 * of a body is promised for each of its runs.
 */
export function promisedCollectives(
  { listed: graph, opened }: PlannedProgram,
  plan: Pick<Plan, 'request' | 'nodes' | 'outputs'>,
  table: OperatorTable,
): PromisedCollective[] {
  const operators = opened?.table ?? table;
  const space = new ShardingSpace(parseMesh(plan.request.mesh), table.kinds);
  const { mesh } = space;
  const list: PromisedCollective[] = [];
  const moves = (
    redistributions: readonly PlannedRedistribution[],
    scopes: readonly number[],
  ): void => {
    for (const { collectives } of redistributions)
      for (const { kind, meshDims, bytes } of collectives) {
        const known = COLLECTIVE_KINDS.find((k) => k === kind);
        if (known === undefined) throw internalError(`the plan lists a collective '${kind}'`);
        const dims = meshDims.map((name) => mesh.indexOf(name));
        if (mesh.sizeOf(dims) > 1) list.push({ kind: known, meshDims: dims, bytes, scopes });
      }
  };
  const flow = dataflow(graph, operators, plan.request.sharing, opened?.loops);
  const meetings = meetingScopes(opened);
  graph.nodes.forEach((node, n) => {
    const planned = plan.nodes[n];
    flow.inputs[n].forEach((value, i) => {
      const producer = graph.nodes[flow.values[value].node].name;
      const scopes = meetings.get(`${producer} ${node.name}`) ?? [
        opened?.loops.moveScope(producer, node.name) ?? 0,
      ];
      moves(
        planned.redistributions.filter((r) => r.input === i),
        scopes,
      );
    });
    const record = node.kind === 'call' ? operators.get(node.target) : undefined;
    if (record === undefined || flow.alias[n] >= 0) return;
    const results = Array.from(flow.results[n], (id): TensorMeta | null =>
      id < 0 ? null : flow.values[id].meta,
    );
    const call = withOutputs(
      bindCall(record, node.args, node.kwargs, (name) => flow.values[flow.valueOf(name)].meta),
      results,
    );
    const ids = (texts: readonly string[]): number[] =>
      texts.map((text) => (text === '-' ? -1 : space.parse(text)));
    rulesTaken(space, record.shard(call), ids(planned.inputs), ids(planned.outputs)).forEach(
      (rule, m) => {
        const branched = new Set<string>();
        for (const { kind, site } of rule?.collectives ?? []) {
          const one = {
            kind,
            meshDims: [m],
            bytes: null,
            scopes: [opened?.loops.scopeOf(node.name) ?? 0],
          };
          if (site?.times === undefined) list.push(one);
          // Each run of the branch has it; the rule lists it for each trip of the loops around.
          else if (!branched.has(site.node))
            list.push({
              ...one,
              body: `${node.name}/${site.node.slice(0, site.node.lastIndexOf('/'))}`,
            });
          if (site !== undefined) branched.add(site.node);
        }
      },
    );
  });
  const carries = new Map(opened?.carries.map(({ value, carry }) => [carry, value]));
  for (const { redistributions, role, of } of plan.outputs) {
    const value = role === 'carry' && of !== undefined ? carries.get(of) : undefined;
    if (opened === undefined || value === undefined || of === undefined)
      moves(redistributions, [0]);
    else {
      const producer = graph.nodes[flow.values[flow.valueOf(value)].node].name;
      moves(redistributions, [opened.loops.moveScope(producer, of)]);
    }
  }
  return list;
}

/**
 * Moves from one meeting of branches to the next, by the names of both: those of every later
 * branch.
 */
function meetingScopes(opened: PlannedProgram['opened']): Map<string, number[]> {
  const out = new Map<string, number[]>();
  for (const region of opened?.regions ?? []) {
    if (region.kind !== 'branch') continue;
    const scopes = region.bodies.map((body) => body.scope);
    for (const met of region.meets)
      for (let b = 0; b + 1 < met.length; b++)
        out.set(`${met[b + 1]} ${met[b]}`, scopes.slice(b + 1));
  }
  return out;
}
