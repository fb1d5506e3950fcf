/**
 * The step of a plan: seconds and bytes of a whole training step on a device, from the placed
 * program and what the trainer does with it. A sweep composes its layouts from the same units by
 * the same sums, so that a plan and a layout that say the same have the same step.
 */

import { clusterTopology } from '../cost/hardware/topology.ts';
import { itemAt } from '../item-at.ts';
import type { Model } from '../plan/model/model.ts';
import type { StepFigures } from '../plan/record/types.ts';
import { type Checkpoint, moduleSets, POLICIES } from './checkpoints.ts';
import { type PricedBlocks, pricedBlocks, requiredLayout } from './costs/routed-plan.ts';
import { unitCosts, type UnitRequest } from './costs/unit-costs.ts';
import { deviceSums } from './device-sums.ts';
import type { StepFacts } from './facts.ts';
import { layerNumbers } from './layers.ts';
import { PlanReader } from './read/plan-reader.ts';
import type { StagedStates } from './read/plan-states.ts';
import { type RoutedPart, routedPart } from './read/routed-part.ts';
import type { DataGroups } from './states.ts';
import type { Unit } from './unit.ts';

/**
 * The step of a choice, run by a trainer. Where activations do not fit and the trainer counts them
 * (`StepFacts.recompute`), every layer recomputes what costs least among what fits, or what leaves
 * least where nothing does.
 */
export function stepOfPlan(model: Model, choice: Int32Array, facts: StepFacts): StepFigures {
  const request = unitRequest(model, choice, facts);
  const figures = (checkpoint: Checkpoint): StepFigures =>
    figuresOf(model, unitCosts({ ...request, checkpoint }), facts);
  const kept = figures('none');
  const { recompute } = facts;
  if (recompute === undefined || kept.peakBytes <= recompute.limitBytes) return kept;
  const { keptBytes } = itemAt(request.core.units, 0);
  const sets = moduleSets(keptBytes, request.routed !== undefined);
  const checkpoints = [...POLICIES, ...sets].filter((c) => c !== 'none' && recompute.runs(c));
  return checkpoints.reduce<StepFigures>((best, recomputes) => {
    const step = { ...figures(recomputes), recomputes };
    return isShorterWithin(recompute.limitBytes, step, best) ? step : best;
  }, kept);
}

/** Tells whether a step goes before another: what fits, then seconds; of two others, bytes. */
function isShorterWithin(limitBytes: number, a: StepFigures, b: StepFigures): boolean {
  const [fits, than] = [a.peakBytes <= limitBytes, b.peakBytes <= limitBytes];
  if (fits !== than) return fits;
  return fits ? a.stepSeconds < b.stepSeconds : a.peakBytes < b.peakBytes;
}

function figuresOf(model: Model, units: readonly Unit[], facts: StepFacts): StepFigures {
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
interface AroundPlan extends Omit<StagedStates, 'ends'> {
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
  return unitCosts(unitRequest(model, choice, facts, around));
}

function unitRequest(
  model: Model,
  choice: Int32Array,
  facts: StepFacts,
  around?: AroundPlan,
): UnitRequest {
  const { space, collectives, cluster, graph, table } = model;
  const { mesh } = space;
  const routed = routedPart(model);
  const reader = new PlanReader(model, choice, layerNumbers(graph).count, table, {
    system: facts.system,
    statesApart: true,
    recomputes: facts.recompute !== undefined,
    routed,
  });
  const { sums, dims } = reader.states(facts.optimizer, around);
  const blocks = blocksOf({ model, choice, facts, reader, around, sums }, routed);
  const group = around?.group ?? { mesh, collectives };
  const tensor = mesh.names.indexOf('tp');
  const dense = {
    pp: around?.stages ?? 1,
    dp_replicate: 1,
    dp_shard: 1,
    cp: 1,
    tp: tensor < 0 ? 1 : itemAt(mesh.sizes, tensor),
    ep: 1,
  };
  return {
    core: { request: { microbatch: 1 }, units: reader.units(), extras: [], traffic: [] },
    routed: blocks?.costs,
    sizes: blocks?.sizes ?? dense,
    kind: { mode: 'dp', context: 'cp', sequenceParallel: true },
    checkpoint: 'none',
    paired: false,
    groups: {
      ...(blocks?.groups ?? { expert: group, ep: 1, etp: 1 }),
      dense: group,
      overHosts: dims.size > 0 && clusterTopology(cluster, mesh, [...dims]).hosts > 1,
    },
    overlaps: facts.system.software.overlap,
    system: facts.system,
    // Keys and values go round no ring: the plan has the collectives that it chose.
    keyValueBytes: () => 0,
    states: { costs: () => [], sums: blocks?.sums ?? sums },
  };
}

/** The routed blocks of a plan; undefined for a dense one. */
function blocksOf(
  {
    model,
    choice,
    facts,
    reader,
    around,
    sums,
  }: Pick<Parameters<typeof pricedBlocks>[0], 'model' | 'facts' | 'sums'> & {
    readonly choice: Int32Array;
    readonly reader: PlanReader;
    readonly around: AroundPlan | undefined;
  },
  part: RoutedPart | undefined,
): PricedBlocks | undefined {
  if (part === undefined) return undefined;
  const placed = {
    model,
    part,
    units: reader.graphUnits,
    facts,
    stages: around?.stages ?? 1,
    once: around?.once === true,
    sums,
  };
  return pricedBlocks(placed, requiredLayout(placed, choice));
}
