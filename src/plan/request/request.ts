/**
 * The user's request for a plan, with its defaults. It is plain, frozen data: what-if questions are
 * immer patches of it, and it is written to `request.json` in the plan folder so that a plan can be
 * made again.
 */
import type { Cluster } from '../../cost/hardware/cluster.ts';
import type { Gradients, Optimizer } from '../../cost/memory/state-bytes.ts';
import type { VocabularyPadding } from '../../models/vocabulary.ts';
import type { StridedCuts } from '../../ops/expansion/patterns.ts';

/**
 * One placement the user fixes: `node` is a value name or a parameter's name, `spec` a sharding
 * text such as `S(0)R`.
 */
export interface Pin {
  readonly node: string;
  readonly spec: string;
}

/** The treatment of operators without a record: an error, or they run whole on every device. */
export const UNKNOWN = ['refuse', 'replicate'] as const;
/** Who solves the choice problem; `propagate` is the greedy way of DTensor. */
export const SOLVERS = ['auto', 'exact', 'highs', 'javascript-lp-solver', 'propagate'] as const;
/** True if a dim may be cut into unequal pieces. */
export const UNEVEN = ['allow', 'forbid'] as const;
/** Which strided cuts of merged dims are offered. */
export const STRIDED = ['rows', 'all', 'off'] as const satisfies readonly StridedCuts[];
/** The objectives that a plan may minimise. */
export const OBJECTIVES = ['time', 'serial', 'parameter-memory'] as const;
/** How long a redistributed copy may live. */
export const COPIES = ['pass', 'step'] as const;
/** How maps are planned. */
export const MAPS = ['bodies', 'rows'] as const;
/** The treatments of activation memory. */
export const ACTIVATIONS = ['constraint', 'report', 'off', 'trainer'] as const;
/** Checkpointing by name. */
export const CHECKPOINT_POLICIES = ['none', 'full', 'selective', 'auto', 'two-stage'] as const;

/**
 * The request of a plan, as plain data: it is written in the plan folder, and what-if questions are
 * patches of it.
 */
export interface PlanRequest {
  /** Mesh dims, outermost first: `dp=8,tp=8`. */
  readonly mesh: string;
  /** Id of a node design (`dgx-h100`), or the JSON text of a cluster. */
  readonly cluster: string;
  /** Memory budget per device in bytes; absent means the memory of the device less its headroom. */
  readonly memoryBytes?: number;
  /**
   * Share of a device's memory that is held back, 0..1; absent: the share that the cluster holds
   * back. It has no effect together with `memoryBytes`.
   */
  readonly headroom?: number;
  readonly pins: readonly Pin[];
  /** The treatment of shardings that the program states (`Graph.given`). Absent: they are pins. */
  readonly shardings?: 'ignore';
  /** Absent means by dtype: `adamw-mixed` for 16-bit weights, `adam` for float32. */
  readonly optimizer?: Optimizer;
  /**
   * The dtype that gradients are kept in between the backward pass and the update. Absent: the
   * dtype of their parameter.
   */
  readonly gradients?: Gradients;
  /** Name of a cost preset, see `COST_PRESETS`. Absent: `defaultCostPreset` of the cluster. */
  readonly cost?: string;
  readonly solver: (typeof SOLVERS)[number];
  /** Relative gap that is good enough; 0 asks for proof. */
  readonly gap: number;
  /**
   * Relative gap that is good enough where peak memory binds (see `peakBinds`). Absent: `gap`, or 1
   * % where that is 0, because such problems are rarely closed. The plan says which it was.
   */
  readonly budgetGap?: number;
  readonly timeLimitSeconds?: number;
  readonly seed: number;
  /** Tells whether a dim may be cut into unequal pieces. */
  readonly uneven: (typeof UNEVEN)[number];
  /**
   * Kinds of cuts beyond plain shards that parameters, inputs and rules may take, on any tensor
   * dim: `_S(0, 3)`, `Interleaved(0, [64, 16, 16])`. Absent means none.
   */
  readonly cuts?: readonly string[];
  /**
   * Strided cuts of dims that views merge, as that of a sequence is once batch and sequence are one
   * dim. `rows` (and absent, on meshes of up to three dims): of leading dims, by inner mesh dims;
   * `all`: also of others, such as heads and what is in a head, in any order; `off` (and absent, on
   * other meshes): such a view wants the dim whole.
   */
  readonly strided?: StridedCuts;
  /** The treatment of operators without a record. */
  readonly unknown: (typeof UNKNOWN)[number];
  /** True if a redistribution that several consumers need is paid once. */
  readonly sharing: boolean;
  /**
   * How long a redistributed copy may live. `pass`: each pass redistributes for itself. `step`: it
   * may stay from the forward to the backward pass, as FSDP2 keeps gathered weights with
   * `reshard_after_forward=False`; its bytes count in between. Absent: `pass`, unless `step` makes
   * the plan faster. It has no effect without `sharing`.
   */
  readonly copies?: (typeof COPIES)[number];
  /**
   * True if kernels in place of an operator's own one run as one, as the fused loss of a trainer
   * does; absent: they run as exported.
   */
  readonly joinedBodies?: boolean;
  /**
   * True if the program runs under a compiler, which joins calls (`compiledTraffic`); absent: call
   * by call.
   */
  readonly compiled?: true;
  /**
   * Passes over microbatches in one step: the program is one of them, and gradients are reduced in
   * the last. Absent: one.
   */
  readonly accumulate?: number;
  /**
   * Placements of inputs and outputs: `free`, or one sharding text for all of them (`R` everywhere
   * for the tutorial).
   */
  readonly inputs: string;
  readonly outputs: string;
  /**
   * `serial`: least seconds, every cost one after another. `time`: the same plan, unless the
   * simulated step of a recipe is shorter, which is then taken.
   * `parameter-memory`: least bytes of parameters first, then least seconds.
   */
  readonly objective: (typeof OBJECTIVES)[number];
  /**
   * How maps are planned. `bodies` (and absent): tensors of the body are cut, rows are not. `rows`:
   * each device runs the whole body for its own rows.
   */
  readonly maps?: (typeof MAPS)[number];
  /**
   * The bytes that the budget limits. Absent: peak memory, activations included; rows for it are
   * added where the plan of least seconds does not fit, and its request then says `constraint`.
   * `constraint`: the same, known to bind. `report`: the states alone (parameters, gradients,
   * optimizer state, buffers); the peak is computed and reported. `off`: the states; no peak is
   * computed. `trainer`: the step of the trainer, which recomputes as that software does where
   * activations do not fit.
   */
  readonly activations?: (typeof ACTIVATIONS)[number];
  /**
   * Which forward results the backward pass recomputes. `none` (and absent): what the graph itself
   * does. `full`: all but the narrow points of the program. `selective`: all but what matmuls and
   * attention make. A number from 0 to 1: the share of the way from keeping least to keeping what
   * is expensive. `auto`: chosen together with the placements under the memory budget; `two-stage`:
   * chosen after them. Both imply `activations: 'constraint'`.
   */
  readonly checkpoint?: (typeof CHECKPOINT_POLICIES)[number] | number;
  /**
   * Present where the budget bound and the search chose which forward results are recomputed: those
   * nodes are part of the program by now, so `checkpoint` is `none`. Bounds are about every such
   * choice, not about this program alone.
   */
  readonly recomputation?: 'chosen';
  /**
   * True if the search is for the plan of the shortest simulated step (`overlapPlan`). Absent: for
   * the least sum, compared with the known plans by the simulated step.
   */
  readonly overlap?: true;
  /**
   * How the vocabulary of the model was padded before it was planned (`vocabularyPadding`); the
   * graph has the padded rows. Absent: as the model states it. Recorded so that the model can be
   * built again, and the padding counted apart.
   */
  readonly padVocabulary?: VocabularyPadding;
  /**
   * Name of a known plan, such as `fsdp+tp`: the plan is that recipe, and not the best one. Absent:
   * the best one.
   */
  readonly recipe?: string;
  /**
   * Id of the trainer that runs the training step, such as `torchtitan`: of the known plans the one
   * of the shortest step under its software is taken. Absent: the exported PyTorch program runs it.
   */
  readonly trainer?: string;
  /**
   * True if nobody asked for that trainer and it was taken as the default: the range of the step is
   * then that of runs whatever their trainer.
   */
  readonly trainerAssumed?: true;
  /**
   * The least probability, 0 to 1, with which a known plan must fit to be taken for its step;
   * absent: 0.9.
   */
  readonly risk?: number;
  /**
   * Which dims of inputs are the batch and the sequence, for recipes; absent: as the program tells.
   */
  readonly inputDims?: StatedDims;
}

/** Dims of inputs by their names, `{ tokens: 0 }`. */
export interface StatedDims {
  readonly batch?: Readonly<Record<string, number>>;
  readonly sequence?: Readonly<Record<string, number>>;
}

/** A request whose prices are named, as a plan keeps it. */
export type PricedRequest = PlanRequest & { readonly cost: string };

/**
 * A request as a caller states it: a mesh, a cluster (its name, its JSON text, or its record), and
 * the fields that differ from `DEFAULT_REQUEST`.
 */
export type GivenRequest = Partial<Omit<PlanRequest, 'mesh' | 'cluster'>> &
  Pick<PlanRequest, 'mesh'> & {
    readonly cluster:
      string | Cluster | { readonly base: string; readonly [field: string]: unknown };
  };

/** The request of somebody who states a mesh and a cluster only. */
export const DEFAULT_REQUEST: Omit<PlanRequest, 'mesh' | 'cluster'> = {
  pins: [],
  solver: 'auto',
  gap: 0,
  seed: 0,
  uneven: 'allow',
  unknown: 'refuse',
  sharing: true,
  inputs: 'free',
  outputs: 'free',
  objective: 'time',
};

/**
 * The gap that is good enough under a budget that binds, where the user named none; see
 * `PlanRequest.budgetGap`.
 */
const BUDGET_GAP = 0.01;

/** Tells whether somebody asked for a gap under a budget that binds. */
export function isGapGiven({ gap, budgetGap }: PlanRequest): boolean {
  return budgetGap !== undefined || gap > 0;
}

/** The relative gap that is good enough where peak memory binds, or that of a trainer's step. */
export function gapUnderMemory(request: PlanRequest): number {
  return isGapGiven(request) ? (request.budgetGap ?? request.gap) : BUDGET_GAP;
}

/**
 * Tells whether the checkpoint policy chooses recomputed nodes so that the peak keeps the budget.
 */
export function recomputesUnderBudget({ checkpoint }: PlanRequest): boolean {
  return checkpoint === 'auto' || checkpoint === 'two-stage';
}

/** Tells whether bounds are about plans that recompute whatever keeps the budget. */
export function coversRecomputation(request: PlanRequest): boolean {
  return recomputesUnderBudget(request) || request.recomputation === 'chosen';
}

/**
 * The bytes that the budget limits, as asked for or as checkpointing implies; peak memory where the
 * user did not say.
 */
export function activationsOf(request: PlanRequest): (typeof ACTIVATIONS)[number] {
  return recomputesUnderBudget(request) ? 'constraint' : (request.activations ?? 'constraint');
}

/** Tells whether the memory of the program is followed over its calls. */
export function hasTimeline(request: PlanRequest): boolean {
  const counted = activationsOf(request);
  return counted === 'constraint' || counted === 'report';
}

/** Tells whether the budget limits peak memory, activations included. */
export function holdsPeak(request: PlanRequest): boolean {
  return activationsOf(request) === 'constraint';
}

/**
 * Tells whether the plan is sought under a limit on its peak from the start: asked for, or found to
 * bind.
 */
export function peakBinds(request: PlanRequest): boolean {
  return request.activations === 'constraint' || recomputesUnderBudget(request);
}

/** The relative gap that is good enough for a request; the command's exit code goes by it. */
export function askedGap(request: PlanRequest): number {
  return peakBinds(request) ? gapUnderMemory(request) : gapWithoutPeak(request);
}

/**
 * The same while no limit on the peak is known to bind. Plans of a trainer's step are chosen among
 * known ones, so that the least sum of costs is no more than the plan that others are beside.
 */
export function gapWithoutPeak(request: PlanRequest): number {
  return request.activations === 'trainer' ? gapUnderMemory(request) : request.gap;
}
