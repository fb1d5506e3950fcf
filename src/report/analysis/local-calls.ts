/** Gives every call of a planned program at the sizes of the largest shard. */

import { itemAt } from '../../item-at.ts';
import { atSizes, bindCall, withOutputs } from '../../ops/record/context.ts';
import type { OperatorRecord, TensorMeta, TypedContext } from '../../ops/record/record.ts';
import { asRun, takenRows } from '../../ops/record/taken-rows.ts';
import type { Prepared } from '../../plan/prepare/prepared.ts';
import type { Plan, PlannedNode } from '../../plan/record/types.ts';
import { rulesTaken } from '../../strategy/rules-taken.ts';

/** A call of the program at the sizes of the largest shard that a plan gives it. */
interface LocalCall {
  /** Index in the graph, and in the plan's nodes. */
  readonly node: number;
  readonly planned: PlannedNode;
  readonly record: OperatorRecord;
  readonly context: TypedContext;
  /** Runs in one step. */
  readonly times: number;
}

/**
 * Every call that a plan prices, in the order of the program; other names of a value and calls
 * without a record are left out.
 */
export function localCalls({ model }: Pick<Prepared, 'model'>, plan: Plan): LocalCall[] {
  const { graph, flow, space, table } = model;
  const ids = new Map<string, number>();
  const idOf = (text: string): number => {
    if (text === '-') return -1;
    let id = ids.get(text);
    if (id === undefined) ids.set(text, (id = space.parse(text)));
    return id;
  };
  const local = (meta: TensorMeta, id: number): TensorMeta => ({
    dtype: meta.dtype,
    shape: id < 0 ? meta.shape : space.localShape(id, meta.shape),
  });
  return graph.nodes.flatMap((node, n): LocalCall[] => {
    const planned = itemAt(plan.nodes, n);
    const record =
      node.kind === 'call' && itemAt(flow.alias, n) < 0 ? table.get(node.target) : undefined;
    if (record === undefined) return [];
    const meta = (name: string): TensorMeta => itemAt(flow.values, flow.valueOf(name)).meta;
    const results = Array.from(itemAt(flow.results, n), (id): TensorMeta | null =>
      id < 0 ? null : itemAt(flow.values, id).meta,
    );
    const call = withOutputs(bindCall(record, node.args, node.kwargs, meta), results);
    const [inputs, outputs] = [planned.inputs.map(idOf), planned.outputs.map(idOf)];
    const parts = atSizes(
      call,
      call.inputs.map((of, i) => local(of, itemAt(inputs, i))),
      results.map((of, k) => (of === null ? null : local(of, itemAt(outputs, k)))),
    );
    const rules = record.shard(call);
    const context =
      takenRows(rules) === undefined
        ? parts
        : asRun(rulesTaken(space, rules, inputs, outputs), call, parts, (i, dim) =>
            space.pieces(itemAt(inputs, i), dim),
          );
    return [{ node: n, planned, record, context, times: planned.times ?? 1 }];
  });
}
