/**
 * The step of a plan: seconds and bytes of a whole training step on a device, from the placed
 * program and what the trainer does with it. A sweep composes its layouts from the same units by
 * the same sums, so that a plan and a layout that say the same have the same step.
 */

import { clusterTopology } from '../cost/hardware/topology.ts';
import type { Model } from '../plan/model/model.ts';
import type { StepFigures } from '../plan/record/types.ts';
import { unitCosts, type UnitRequest } from './costs/unit-costs.ts';
import { deviceSums } from './device-sums.ts';
import type { StepFacts } from './facts.ts';
import { layerNumbers } from './layers.ts';
import { PlanReader } from './read/plan-reader.ts';
import type { StagedStates } from './read/plan-states.ts';
import type { DataGroups } from './states.ts';
import type { Unit } from './unit.ts';

/** The step of a choice, run by a trainer. */
export function stepOfPlan(model: Model, choice: Int32Array, facts: StepFacts): StepFigures {
  const units = planUnits(model, choice, facts);
  const { software, constants } = facts.system;
  const sums = deviceSums(units, [{ first: 0, end: units.length }], 0, software.overlap);
  const [{ forward, backwardInput, backwardWeight, keptBytes }] = sums.chunks;
  const passes = model.accumulate ?? 1;
  const forwardSeconds = passes * forward;
  const backwardSeconds = passes * (backwardInput + backwardWeight);
  const onceSeconds = sums.stepSeconds + constants.stepHostSeconds;
  const states = sums.parameterBytes + sums.gradientBytes + sums.optimizerBytes;
  return {
    trainer: facts.trainer,
    stepSeconds: forwardSeconds + backwardSeconds + onceSeconds,
    peakBytes: Math.ceil(states + keptBytes + sums.temporaryBytes + sums.aheadBytes),
    parts: { forwardSeconds, backwardSeconds, onceSeconds },
  };
}

/** The stages of a pipeline around the mesh of a plan, which is then that of one stage. */
export interface AroundPlan extends Omit<StagedStates, 'ends'> {
  /** The mesh of all stages, outermost dim `pp`, with the prices of its collectives. */
  readonly group: DataGroups['dense'];
}

/**
 * The units of a placed program with the moves of their states.
 *
 * @param around absent: the plan's mesh is that of the whole program
 */
export function planUnits(
  model: Model,
  choice: Int32Array,
  facts: StepFacts,
  around?: AroundPlan,
): readonly Unit[] {
  const { space, collectives, cluster, graph, table } = model;
  const { mesh } = space;
  const reader = new PlanReader(model, choice, layerNumbers(graph).count, table, {
    system: facts.system,
    statesApart: true,
  });
  const { sums, dims } = reader.states(facts.optimizer, around);
  const group = around?.group ?? { mesh, collectives };
  const tensor = mesh.names.indexOf('tp');
  const request: UnitRequest = {
    core: { request: { microbatch: 1 }, units: reader.units(), extras: [], traffic: [] },
    routed: undefined,
    sizes: {
      pp: around?.stages ?? 1,
      dp_replicate: 1,
      dp_shard: 1,
      cp: 1,
      tp: tensor < 0 ? 1 : mesh.sizes[tensor],
      ep: 1,
    },
    kind: { mode: 'dp', context: 'cp', sequenceParallel: true },
    checkpoint: 'none',
    paired: false,
    groups: {
      dense: group,
      expert: group,
      overHosts: dims.size > 0 && clusterTopology(cluster, mesh, [...dims]).hosts > 1,
      ep: 1,
      etp: 1,
    },
    overlaps: facts.system.software.overlap,
    system: facts.system,
    // Keys and values go round no ring: the plan has the collectives that it chose.
    keyValueBytes: () => 0,
    states: { costs: () => [], sums },
  };
  return unitCosts(request);
}
