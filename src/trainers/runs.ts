/**
 * Says what a trainer can run: mesh dims, states, schedules, recomputation. A layout with anything
 * else is not searched for it, and is refused by the name of its setting, with the nearest value
 * that the trainer has. Each trainer's record names the release and the sources.
 */
import type { ComparedLayout } from '../recipes/compare/comparison.ts';
import { PIPELINE_SCHEDULES, type PipelineSchedule } from '../simulate/pipeline/schedules.ts';
import {
  type Checkpoint,
  isPolicy,
  modulesOf,
  POLICIES,
  type Policy,
  RECOMPUTE_MODULES,
  type RecomputeModule,
} from '../step/checkpoints.ts';
import { STATE_MODES, type StateMode } from '../step/zero-mode.ts';

/** Mesh dims that a trainer may lack; all have data ranks. */
type RunDim = 'pp' | 'cp' | 'tp' | 'ep' | 'etp';

/** The layouts that a trainer can run. */
export interface TrainerRuns {
  /** The release, and the files or pages that state it. */
  readonly source: string;
  readonly dims: readonly RunDim[];
  /** States of data ranks. */
  readonly modes: readonly StateMode[];
  /** How a cut sequence is handled. */
  readonly contexts: readonly ('ring' | 'cp' | 'ulysses')[];
  /** `true` if the residual stream may be cut over `tp`, `false` if it may be whole; or both. */
  readonly sequenceParallel: readonly boolean[];
  readonly schedules: readonly PipelineSchedule[];
  readonly policies: readonly Policy[];
  readonly modules: readonly RecomputeModule[];
  /**
   * `true` if FSDP may keep gathered parameters for the step, `false` if it may free them; or both.
   */
  readonly gathersOnce: readonly boolean[];
  /** True if a forward pass of one microbatch can run with the backward pass of another. */
  readonly pairsMicrobatches: boolean;
  /** True if kept activations may wait in the memory of the host. */
  readonly offloads?: true;
  /**
   * The layers of each part of a pipeline where the user states none; undefined where the trainer
   * makes no such parts. Absent: in equal parts, or by one layer unequal.
   */
  readonly cuts?: (parts: number, layers: number, chunks: number) => readonly number[] | undefined;
  /** True if every placement that the planner finds can be run, and stages are cut freely. */
  readonly isFree?: boolean;
  /** Combinations that the trainer refuses though it has each part. */
  readonly refuses?: (layout: RunLayout) => NotRun | undefined;
}

/** The part of a layout that a trainer may lack. */
export interface RunLayout {
  readonly sizes: ComparedLayout['sizes'];
  readonly kind: {
    readonly mode: StateMode;
    readonly context: 'ring' | 'cp' | 'ulysses';
    readonly sequenceParallel: boolean;
    readonly free?: boolean;
  };
  readonly tuning?: {
    readonly schedule: PipelineSchedule;
    readonly checkpoint: Checkpoint;
    readonly once: boolean;
    readonly paired?: boolean;
    readonly offload?: boolean;
  };
}

/** A setting that a trainer does not have, as `--layout` writes it, and the nearest that it has. */
export interface NotRun {
  readonly setting: string;
  readonly nearest: readonly string[];
}

/** The first setting of a layout that a trainer does not run. */
export function notRun(runs: TrainerRuns, layout: RunLayout): NotRun | undefined {
  if (runs.isFree === true) return undefined;
  return (
    dimNotRun(runs, layout) ??
    kindNotRun(runs, layout) ??
    runs.refuses?.(layout) ??
    tuningNotRun(runs, layout)
  );
}

const DIMS: readonly RunDim[] = ['pp', 'cp', 'tp', 'ep', 'etp'];

function dimNotRun({ dims }: TrainerRuns, { sizes }: RunLayout): NotRun | undefined {
  const dim = DIMS.find((name) => (sizes[name] ?? 1) > 1 && !dims.includes(name));
  return dim === undefined ? undefined : { setting: `${dim}=${sizes[dim]}`, nearest: [`${dim}=1`] };
}

function kindNotRun(runs: TrainerRuns, { sizes, kind }: RunLayout): NotRun | undefined {
  if (kind.free === true)
    return { setting: 'optimum', nearest: ['plans without optimum in their name'] };
  const { mode, context, sequenceParallel } = kind;
  const ranks = sizes.dp_replicate * sizes.dp_shard * sizes.cp;
  if (ranks > 1 && !runs.modes.includes(mode))
    return { setting: modeText(mode), nearest: nearestModes(mode, runs.modes).map(modeText) };
  if (sizes.cp > 1 && !runs.contexts.includes(context))
    return {
      setting: `context=${context}`,
      nearest: runs.contexts.map((name) => `context=${name}`),
    };
  if (sizes.tp > 1 && !runs.sequenceParallel.includes(sequenceParallel))
    return {
      setting: `sp=${Number(sequenceParallel)}`,
      nearest: [`sp=${Number(!sequenceParallel)}`],
    };
  return undefined;
}

function tuningNotRun(runs: TrainerRuns, { sizes, kind, tuning }: RunLayout): NotRun | undefined {
  if (tuning === undefined) return undefined;
  const { schedule, checkpoint, once, paired = false, offload = false } = tuning;
  if (sizes.pp > 1 && !runs.schedules.includes(schedule))
    return {
      setting: `schedule=${schedule}`,
      nearest: runs.schedules.map((name) => `schedule=${name}`),
    };
  if (!recomputes(runs, checkpoint))
    return {
      setting: `recompute=${checkpoint}`,
      nearest: [...runs.policies, ...runs.modules].map((name) => `recompute=${name}`),
    };
  const isSharded = kind.mode === 'fsdp' || kind.mode === 'hsdp';
  if (isSharded && !runs.gathersOnce.includes(once))
    return { setting: `reshard=${Number(!once)}`, nearest: [`reshard=${Number(once)}`] };
  if (paired && !runs.pairsMicrobatches) return { setting: 'pair=1', nearest: ['pair=0'] };
  if (offload && runs.offloads !== true) return { setting: 'offload=1', nearest: ['offload=0'] };
  return undefined;
}

/** Tells whether a trainer can recompute this: a policy, or modules. */
export function recomputes({ policies, modules }: TrainerRuns, checkpoint: Checkpoint): boolean {
  return isPolicy(checkpoint)
    ? policies.includes(checkpoint)
    : modulesOf(checkpoint).every((name) => modules.includes(name));
}

const STAGES: Readonly<Record<StateMode, number>> = { dp: 0, zero1: 1, zero2: 2, fsdp: 3, hsdp: 4 };

function nearestModes(mode: StateMode, modes: readonly StateMode[]): StateMode[] {
  const distance = (other: StateMode): number => Math.abs(STAGES[other] - STAGES[mode]);
  return [...modes].sort((a, b) => distance(a) - distance(b) || STAGES[b] - STAGES[a]);
}

function modeText(mode: StateMode): string {
  return mode === 'hsdp' ? 'dp_replicate=2,zero=3' : `zero=${STAGES[mode]}`;
}

/** A trainer without limits, whose placements are free. */
export const RUNS_ALL: Omit<TrainerRuns, 'source'> = {
  dims: DIMS,
  modes: STATE_MODES,
  contexts: ['ring', 'cp', 'ulysses'],
  sequenceParallel: [false, true],
  schedules: PIPELINE_SCHEDULES,
  policies: POLICIES,
  modules: RECOMPUTE_MODULES,
  gathersOnce: [false, true],
  pairsMicrobatches: true,
  offloads: true,
  isFree: true,
};
