/**
 * The step of a plan in pipeline stages as a trainer runs it: takes the plan of one stage's mesh,
 * cuts its units as the trainer cuts layers, and plays the schedule by the sums of a sweep.
 */

import { collectiveModel } from '../../cost/presets/presets.ts';
import { ShardwrightError } from '../../errors.ts';
import { DeviceMesh } from '../../mesh/devices/mesh.ts';
import type { Prepared } from '../../plan/prepare/prepared.ts';
import type { StepFigures } from '../../plan/record/types.ts';
import type { StepFacts } from '../../step/facts.ts';
import { planUnits } from '../../step/step-of-plan.ts';
import type { Unit } from '../../step/unit.ts';
import type { TrainerRuns } from '../../trainers/runs.ts';
import { PipelinePlayer } from '../model/fast-play.ts';
import { trainerLimits } from '../model/trainer-limits.ts';
import { endsSumSeconds } from '../rank/tied-embedding.ts';
import { HeldActivations } from '../step/stages/held-activations.ts';
import { evenBounds, stageBounds, statedBounds } from '../step/stages/stage-bounds.ts';
import {
  deviceFigures,
  inFlightOf,
  spansOf,
  type StagedRun,
  stepEnd,
} from '../step/stages/staged-step.ts';
import type { PlanPipelineRequest } from './request.ts';

/** The first unit of every chunk as the trainer cuts them, and the step. */
interface StagedStep {
  readonly bounds: readonly number[];
  readonly step: StepFigures;
}

/** @throws E_USAGE for stages that the trainer does not make */
export function stagedStep(
  { model, question }: Pick<Prepared, 'model' | 'question'>,
  choice: Int32Array,
  asked: PlanPipelineRequest,
  facts: StepFacts,
): StagedStep {
  const { devices, schedule, microbatches, virtual: chunks } = asked;
  const { cluster, space } = model;
  const { cost } = question.request;
  const { software, constants } = facts.system;
  const limits = trainerLimits({ trainer: facts.trainer });
  const mesh = new DeviceMesh([{ name: 'pp', size: devices }, ...space.mesh.dims]);
  const units = planUnits(model, choice, facts, {
    stages: devices,
    once: devices > 1 && limits?.gathersOnce.includes(true) !== false,
    endsSum: (bytes) => endsSumSeconds(bytes, mesh.size, cost, cluster),
    group: { mesh, collectives: collectiveModel(cost, cluster, mesh) },
  });
  const run: StagedRun = {
    schedule,
    shape: { devices, microbatches, chunks },
    paired: false,
    share: 0,
    overlaps: software.overlap,
    onceSeconds: () => constants.stepHostSeconds,
  };
  const bounds = trainerBounds(units, asked, facts.trainer, limits);
  const spans = spansOf(bounds);
  const stages = { bounds, spans, ...inFlightOf(run, new HeldActivations()) };
  const figures = Array.from({ length: devices }, (_, i) => deviceFigures(run, stages, units, i));
  const lasts = spans.slice(0, -1).map(({ end }) => units[end - 1]);
  return {
    bounds,
    step: {
      trainer: facts.trainer,
      stepSeconds: stepEnd(new PipelinePlayer(), run, figures, lasts),
      peakBytes: Math.max(...figures.map(({ peak }) => peak)),
    },
  };
}

/** The cuts of a trainer; one that cuts freely balances its stages within the budget. */
function trainerBounds(
  units: readonly Unit[],
  asked: PlanPipelineRequest,
  trainer: string,
  limits: TrainerRuns | undefined,
): readonly number[] {
  const { devices, schedule, microbatches, virtual: chunks, budgetBytes } = asked;
  const layers = units.length - 2;
  if (limits === undefined) {
    const all = { units, built: units.map((_, i) => i) };
    return stageBounds(devices, all, { schedule, chunks }, microbatches, budgetBytes);
  }
  const not = stagesNotRun(trainer, asked, layers);
  if (not !== undefined) throw new ShardwrightError('E_USAGE', not, { hint: FREE });
  const parts = devices * chunks;
  const cuts = limits.cuts?.(parts, layers, chunks);
  return cuts === undefined ? evenBounds(layers, parts) : statedBounds(cuts);
}

const FREE = 'ask for other stages, or for the exported program with --for shardwright.';

/** Why a trainer does not run these stages of so many layers; undefined where it does. */
export function stagesNotRun(
  trainer: string,
  {
    devices,
    schedule,
    virtual: chunks,
  }: Pick<PlanPipelineRequest, 'devices' | 'schedule' | 'virtual'>,
  layers: number,
): string | undefined {
  const limits = trainerLimits({ trainer });
  if (limits === undefined || devices === 1) return undefined;
  if (!limits.dims.includes('pp')) return `${trainer} does not run --pp ${devices}`;
  if (!limits.schedules.includes(schedule))
    return `${trainer} runs the schedules ${limits.schedules.join(', ')}, not ${schedule}`;
  const parts = devices * chunks;
  const isCut =
    layers >= parts &&
    (limits.cuts === undefined || limits.cuts(parts, layers, chunks) !== undefined);
  return isCut ? undefined : `${trainer} does not cut ${layers} layers into ${parts} stages`;
}
