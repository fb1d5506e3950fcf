import { COLLECTIVE_KINDS, type CollectiveKind } from '../../cost/collectives.ts';
import { internalError } from '../../errors.ts';
import type { Graph } from '../../graph/types.ts';
import { parseMesh } from '../../mesh/mesh.ts';
import { ShardingSpace } from '../../mesh/space.ts';
import { bindCall, withOutputs } from '../../ops/context.ts';
import type { TensorMeta } from '../../ops/record.ts';
import type { OperatorTable } from '../../ops/table.ts';
import { dataflow } from '../../strategy/dataflow.ts';
import type { Plan, PlannedRedistribution } from '../types.ts';
import { rulesTaken } from './rules-taken.ts';

/** A collective that a plan says will run. */
export interface PromisedCollective {
  readonly kind: CollectiveKind;
  readonly meshDims: readonly number[];
  /** As the plan lists it; null for a collective inside an operator's rule, which the plan gives only seconds for. */
  readonly bytes: number | null;
}

/**
 * What a plan promises to communicate, read from the plan: the collectives of its redistributions, and those inside the
 * rules that its placements take. Groups of one device communicate nothing.
 */
export function promisedCollectives(
  graph: Graph,
  plan: Pick<Plan, 'request' | 'nodes' | 'outputs'>,
  table: OperatorTable,
): PromisedCollective[] {
  const space = new ShardingSpace(parseMesh(plan.request.mesh));
  const { mesh } = space;
  const list: PromisedCollective[] = [];
  const moves = (redistributions: readonly PlannedRedistribution[]): void => {
    for (const { collectives } of redistributions)
      for (const { kind, meshDims, bytes } of collectives) {
        const known = COLLECTIVE_KINDS.find((k) => k === kind);
        if (known === undefined) throw internalError(`the plan lists a collective '${kind}'`);
        const dims = meshDims.map((name) => mesh.indexOf(name));
        if (mesh.sizeOf(dims) > 1) list.push({ kind: known, meshDims: dims, bytes });
      }
  };
  const flow = dataflow(graph, table, plan.request.sharing);
  graph.nodes.forEach((node, n) => {
    const planned = plan.nodes[n];
    moves(planned.redistributions);
    const record = node.kind === 'call' ? table.get(node.target) : undefined;
    if (record === undefined || flow.alias[n] >= 0) return;
    const results = Array.from(flow.results[n], (id): TensorMeta | null => (id < 0 ? null : flow.values[id].meta));
    const call = withOutputs(
      bindCall(record, node.args, node.kwargs, (name) => flow.values[flow.valueOf(name)].meta),
      results,
    );
    const ids = (texts: readonly string[]): number[] => texts.map((text) => (text === '-' ? -1 : space.parse(text)));
    rulesTaken(space, record.shard(call), ids(planned.inputs), ids(planned.outputs)).forEach((rule, m) => {
      for (const { kind } of rule?.collectives ?? []) list.push({ kind, meshDims: [m], bytes: null });
    });
  });
  for (const { redistributions } of plan.outputs) moves(redistributions);
  return list;
}
