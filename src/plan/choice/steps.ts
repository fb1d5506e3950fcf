/**
 * Lists the steps of a redistribution with the facts that a runtime needs to execute each: the
 * placement after it, the tensor dims, the reductions, and the senders and receivers.
 */
import type { RedistributionPlan } from '../../cost/redistribution/plan.ts';
import { defined } from '../../defined.ts';
import { Partial } from '../../mesh/placements/partials/partial.ts';
import type { ShardingSpace } from '../../mesh/sharding/space.ts';
import type { PlannedStep } from '../record/types.ts';

export function plannedSteps(plan: RedistributionPlan, space: ShardingSpace): PlannedStep[] {
  let from = plan.from;
  return plan.steps.map(({ kind, meshDims, to, pairs }): PlannedStep => {
    const [before, after] = [space.get(from), space.get(to)];
    from = to;
    const [m] = meshDims;
    const joins = kind === 'all_gather' || kind === 'all_to_all';
    const cuts = kind === 'reduce_scatter' || kind === 'all_to_all' || kind === 'slice';
    const reduces = kind === 'all_reduce' || kind === 'reduce_scatter';
    const [joinDim, cutDim] = [
      joins ? before.placements[m]?.dim : undefined,
      cuts ? after.placements[m]?.dim : undefined,
    ];
    const op = (d: number): string => {
      const placement = before.placements[d];
      return placement instanceof Partial ? placement.op : placement.text;
    };
    return {
      kind,
      meshDims: meshDims.map((d) => space.mesh.names[d]),
      to: after.text,
      ...defined({ joinDim, cutDim }),
      ...(reduces ? { ops: meshDims.map(op) } : {}),
      ...defined({ pairs }),
    };
  });
}
