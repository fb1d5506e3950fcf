/**
 * Describes the layout of a compared plan as trainers need it: mesh, kind and tuning in one record.
 * For a free plan these are those of the nearest recipe, and the record says so.
 */

import type {
  ComparedLayout,
  ComparedMesh,
  ComparedPlan,
  Comparison,
} from '../../recipes/compare/comparison.ts';
import type { PipelineSchedule } from '../../simulate/pipeline/schedules.ts';
import type { Checkpoint } from '../../step/checkpoints.ts';
import { STATE_MODES, type StateMode } from '../../step/zero-mode.ts';
import type { CutFault } from './stage-cuts.ts';

/** A part of the plan that the trainer will do in another way. */
export interface LaunchLoss {
  readonly planned: string;
  readonly instead: string;
}

/** A file for a trainer. */
export interface LaunchFile {
  readonly trainer: string;
  /** Name of the file. */
  readonly file: string;
  readonly text: string;
  /** Where it means another layout; such a file is not given to anyone. */
  readonly losses: readonly LaunchLoss[];
}

/** A layout with everything a launch configuration states. */
export interface LaunchedLayout {
  readonly model: string;
  readonly devices: number;
  readonly sequence: number;
  readonly globalBatch: number;
  readonly sizes: ComparedLayout['sizes'];
  readonly mode: StateMode;
  readonly context: 'ring' | 'cp' | 'ulysses';
  readonly sequenceParallel: boolean;
  readonly tuning: Pick<
    ComparedLayout,
    'microbatch' | 'microbatches' | 'schedule' | 'chunks' | 'checkpoint'
  >;
  /** Layers, embedding and head that are recomputed; absent: all of them, or none. */
  readonly unitsAgain?: number;
  readonly gathersOnce: boolean;
  readonly pairsMicrobatches: boolean;
  readonly layers: number;
  /** Layers of each stage, in the order of the model. */
  readonly stageLayers: readonly number[];
  /** Hosts that one group of each mesh dim touches, by the dim's name in the mesh. */
  readonly hosts: ReadonlyMap<string, number>;
  /** Losses of the placements themselves, whatever the trainer. */
  readonly losses: readonly LaunchLoss[];
}

type Question = NonNullable<Comparison['question']>;

/** Absent of plans of a graph, which `export` writes out. */
export function launchedLayout(
  { layout, plan, mesh }: ComparedPlan,
  question: Question,
  devices: number,
  meshes: readonly ComparedMesh[],
): LaunchedLayout | undefined {
  if (layout === undefined) return undefined;
  const losses: LaunchLoss[] = [];
  const free = plan.split('+').includes('optimum');
  const named = layout.placements?.split(' on ')[0] ?? plan;
  const parts = named.split('+');
  if (free && layout.placements === undefined)
    losses.push({
      planned: 'placements of the optimum inside the layers',
      instead: 'those of tensor and sequence parallelism',
    });
  const { sizes, microbatch, microbatches, schedule, chunks, checkpoint, unitsAgain, stages } =
    layout;
  const { layers, model, sequence, globalBatch } = question;
  const units = layers + 2;
  const dims = mesh
    .split(' ')[0]
    .split(',')
    .map((dim) => dim.split('=')[0]);
  const touched = meshes.find((m) => m.mesh === mesh)?.hosts ?? [];
  return {
    model,
    devices,
    sequence,
    globalBatch,
    sizes,
    layers,
    losses,
    mode: STATE_MODES.find((mode) => parts.includes(mode)) ?? 'dp',
    context: parts.includes('ulysses') ? 'ulysses' : parts.includes('cp') ? 'cp' : 'ring',
    sequenceParallel:
      sizes.tp > 1 && (parts.includes('sp') || (free && layout.placements === undefined)),
    tuning: {
      microbatch,
      microbatches,
      schedule,
      chunks,
      checkpoint: unitsAgain === 0 ? 'none' : checkpoint,
    },
    // The last layers of the list are embedding and head: recomputing all layers is recomputing all
    // that trainers can.
    ...(unitsAgain === undefined || unitsAgain === 0 || unitsAgain >= units - 2
      ? {}
      : { unitsAgain }),
    gathersOnce: layout.gathersOnce === true,
    pairsMicrobatches: layout.pairsMicrobatches === true,
    stageLayers: stages.map((stage) => stage.end - stage.first),
    hosts: new Map(dims.map((dim, i) => [dim, touched[i] ?? 1])),
  };
}

/** The parts of a layout that a launch configuration states; it leaves out the rest. */
export interface LaunchForms {
  readonly schedules: readonly PipelineSchedule[];
  /** The schedule that it runs in place of another, by the chunks of a device. */
  readonly otherSchedule: (chunks: number) => string;
  /** How it lays out layers that a plan lays in unequal stages; absent: as the plan does. */
  readonly unequalStages?: string;
  /** The layers of its stages, where they are unequal by themselves. */
  readonly cuts?: (parts: number, layers: number) => readonly number[] | CutFault;
  readonly recomputes: (checkpoint: Checkpoint) => boolean;
  /** True if it can recompute some layers and keep others. */
  readonly someUnits: boolean;
  /** True if a forward pass of one microbatch can run with the backward pass of another. */
  readonly pairsMicrobatches: boolean;
  /** True if FSDP can keep gathered parameters for the step. */
  readonly gathersOnce: boolean;
}

/** The parts of a layout that a trainer does not run, and what it runs in their place. */
export function differences(layout: LaunchedLayout, runs: LaunchForms): LaunchLoss[] {
  const { tuning, unitsAgain, stageLayers } = layout;
  const { schedule, chunks, checkpoint } = tuning;
  const piped = layout.sizes.pp > 1;
  const again = checkpoint !== 'none';
  const losses: readonly (LaunchLoss | false)[] = [
    layout.pairsMicrobatches &&
      !runs.pairsMicrobatches && {
        planned: 'forward passes overlapped with backward passes',
        instead: 'one after another',
      },
    layout.gathersOnce &&
      !runs.gathersOnce && {
        planned: 'parameters gathered once a step',
        instead: 'gathered for every pass',
      },
    piped &&
      !runs.schedules.includes(schedule) && {
        planned: `schedule ${schedule}`,
        instead: runs.otherSchedule(chunks),
      },
    piped &&
      runs.unequalStages !== undefined &&
      !cutsItself(layout, runs) && {
        planned: `stages of ${stageLayers.join(', ')} layers`,
        instead: runs.unequalStages,
      },
    again &&
      unitsAgain !== undefined &&
      !runs.someUnits && { planned: `${unitsAgain} units recomputed`, instead: 'all layers' },
    again &&
      !runs.recomputes(checkpoint) && {
        planned: `recompute=${checkpoint}`,
        instead: 'full, which is slower and keeps less',
      },
  ];
  return losses.filter((loss) => loss !== false);
}

/** Tells whether the stages are those that the trainer makes. */
function cutsItself(layout: LaunchedLayout, { cuts }: LaunchForms): boolean {
  const { stageLayers, layers } = layout;
  if (cuts === undefined) return hasEqualStages(layout);
  const made = cuts(stageLayers.length, layers);
  return !('fault' in made) && made.every((n, k) => n === stageLayers[k]);
}

/** Tells whether all stages have as many layers. */
export function hasEqualStages({ stageLayers }: LaunchedLayout): boolean {
  return stageLayers.every((n) => n === stageLayers[0]);
}

/** The question in a line for the head of a configuration. */
export function launchHead(layout: LaunchedLayout, trainer: string): string[] {
  const { model, devices, sequence, globalBatch } = layout;
  return [
    `${model} on ${devices} devices, sequences of ${sequence}, ${globalBatch} in a step: a ` +
      `layout of shardwright for ${trainer}.`,
  ];
}
