/**
 * Adds the costs of data ranks (parameter gathers, gradient sums) to the problem of one data rank's
 * program.
 */

import type { Cluster } from '../../cost/hardware/cluster.ts';
import { internalError } from '../../errors.ts';
import { DTYPE_BYTES } from '../../graph/types.ts';
import { shardCode } from '../../mesh/sharding/space.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import type { Model } from '../../plan/model/model.ts';
import { type ProblemInUnits, withExactSums } from '../../plan/model/tables.ts';
import type { Prepared } from '../../plan/prepare/prepared.ts';
import { Recosting } from '../../solver/problem/recost.ts';
import { GroupMaker } from '../../step/data-groups.ts';
import { graphUnits } from '../../step/read/graph-units.ts';
import { type DataGroups, type ParameterCost, parameterCost } from '../../step/states.ts';
import type { CoreParameter } from '../../step/units.ts';
import type { DataRanks } from '../../step/zero-mode.ts';

/** The prices of the moves of data ranks. */
interface DataPrices {
  /** Layers of the program. */
  readonly layers: number;
  readonly preset: string;
  readonly cluster: Cluster;
  readonly table: OperatorTable;
}

/**
 * The problem of a data rank's program with what data ranks add to it, per microbatch: each
 * placement of a parameter costs its gathers and the sums of its gradient, and what a gradient
 * moves over model dims on its way out counts once a step. Not exact where a sum runs over model
 * and data dims together: here it is both, one after another.
 */
export function withDataRanks(
  { model, left: { compact } }: Pick<Prepared, 'model' | 'left'>,
  data: DataRanks,
  { layers, preset, cluster, table }: DataPrices,
): ProblemInUnits {
  const { problem } = compact;
  const { graph, flow, space, strategies, nodeVariable, unitsPerSecond, quantum } = model;
  if (problem.domains.some((size, v) => size !== model.problem.domains[v]))
    throw internalError('a program without pins has lost placements');
  const units = (seconds: number): number =>
    Math.round((seconds * unitsPerSecond) / quantum) * quantum;
  const groups = new GroupMaker(preset, cluster).groups(data.sizes, data.context);
  const used = passesOf(model, layers, table);
  // Equal layers keep equal vectors, so that solving one of them solves all.
  const recosting = new Recosting(problem);
  for (const [n, state] of model.stateBytes) {
    const entry = strategies.nodes[n];
    if (entry === null || graph.nodes[n].meta.role !== 'parameter') continue;
    const { meta } = flow.values[flow.results[n][0]];
    const extra = Array.from({ length: entry.set.count }, (_, s): number => {
      const sharding = entry.set.specs[s];
      const local = space.localShape(sharding, meta.shape);
      const parameter: CoreParameter = {
        name: graph.nodes[n].name,
        unit: 0,
        kind: 'dense',
        localElements: state.localElements[s],
        localRows: local[0] ?? 1,
        rows: meta.shape[0] ?? 1,
        rowWays:
          meta.shape.length === 0
            ? Number.MAX_SAFE_INTEGER
            : space.mesh.sizes.reduce(
                (w, size, d) => (space.kindAt(sharding, d) === shardCode(0) ? w * size : w),
                1,
              ),
        itemBytes: DTYPE_BYTES[meta.dtype],
        state,
        usedForward: used.get(n)?.has('forward') ?? false,
        usedBackward: used.get(n)?.has('backward') ?? false,
        trained: state.gradient > 0,
        pending: [],
      };
      return units(perMicrobatch(parameter, data, groups));
    });
    recosting.variable(nodeVariable[n], extra.join(), (costs) => costs.map((c, s) => c + extra[s]));
  }
  gradientsOnceAStep(model, recosting, data.microbatches, units);
  return withExactSums({ problem: { ...recosting.problem, rows: [] }, unitsPerSecond });
}

function perMicrobatch(
  p: CoreParameter,
  { mode, once, microbatches, visible }: DataRanks,
  groups: DataGroups,
): number {
  const c: ParameterCost = parameterCost(p, mode, groups, once);
  const each = c.gatherForwardSeconds + c.gatherBackwardSeconds + c.scatterSeconds;
  return (
    each * visible.microbatch + ((c.sumSeconds + c.gatherSeconds) * visible.step) / microbatches
  );
}

/** Passes that use each parameter, itself or seen through views. */
function passesOf(model: Model, layers: number, table: OperatorTable): Map<number, Set<string>> {
  const { graph, flow, uses } = model;
  const { root, weight } = graphUnits(graph, flow.phases, layers, table);
  const out = new Map<number, Set<string>>();
  for (const use of uses) {
    const producer = flow.values[use.value].node;
    if (weight[producer] === 0 || use.at.kind !== 'input') continue;
    const found = out.get(root[producer]) ?? new Set<string>();
    out.set(root[producer], found.add(use.phase));
  }
  return out;
}

/** Edges on which gradients leave the program are charged at their price per microbatch. */
function gradientsOnceAStep(
  { edges, uses, flow, unitsPerSecond }: Model,
  recosting: Recosting,
  microbatches: number,
  units: (seconds: number) => number,
): void {
  edges.forEach((edge, e) => {
    const at = edge.kind === 'use' ? uses[edge.use].at : undefined;
    if (at?.kind !== 'output' || flow.outputs[at.output].output.role !== 'grad') return;
    recosting.edge(e, 'once', (costs) =>
      costs.map((c) => (c === Infinity ? c : units(c / unitsPerSecond / microbatches))),
    );
  });
}
