/** Defines the records of a comparison of plans, which are printed as JSON and read by reports. */

import type { Allocation } from '../../cost/hardware/topology.ts';
import type { RunCost } from '../../cost/training/run-cost.ts';
import type { PipelineSchedule } from '../../simulate/pipeline/schedules.ts';
import type { Checkpoint } from '../../step/checkpoints.ts';
import type { Traffic } from '../../step/traffic.ts';
import type { Finding } from '../lint.ts';

/** One plan on one mesh. */
export interface ComparedPlan {
  /**
   * The plan's name; with the sizes of the mesh behind it where a better mesh has the plain name.
   */
  readonly name: string;
  readonly plan: string;
  readonly origin: 'ilp' | 'zoo';
  readonly mesh: string;
  /**
   * The step time by which plans rank: the wall clock of a step, with communication overlapped.
   * Absent in comparisons of earlier versions.
   */
  readonly stepSeconds?: number;
  /**
   * Seconds between which eight of ten measured steps lie; null where no runs of this kind were
   * measured.
   */
  readonly stepBand?: readonly [p10: number, p90: number] | null;
  /** The trainer whose step is priced, by its id; of a graph `shardwright`. */
  readonly trainer?: string;
  /**
   * All costs of a step one after another; for a model by name the composed step, with its overlap,
   * and for a graph in stages the played one.
   */
  readonly seconds: number;
  /** The overlapped step of all microbatches, as `simulate` plays it; absent for models by name. */
  readonly simulatedSeconds?: number;
  readonly communicationSeconds: number;
  readonly peakBytes: number;
  readonly fits: boolean;
  /** Bytes above the budget. */
  readonly overBytes?: number;
  /** Seconds between which eight of ten measured steps lie; absent where no measured run tells. */
  readonly secondsBand?: readonly [p10: number, p90: number];
  /**
   * Probability that the peak stays within the device, by measured readings; null where states
   * alone are counted.
   */
  readonly fitProbability?: number | null;
  /** False for ZeRO-1 and ZeRO-2, which are priced outside the planning problem. */
  readonly choice: boolean;
  /**
   * `goodEnough`: the gap that was asked for where it is not that of the question, as under a peak
   * that binds.
   */
  readonly proof?: {
    readonly status: string;
    readonly bound: number;
    readonly gap: number;
    readonly goodEnough?: number;
  };
  readonly traffic?: readonly Traffic[];
  /** Why it is not the best: the parts below in one sentence. */
  readonly why?: string;
  /** The term that it loses by, or what fills the memory that it is over by. */
  readonly cause?: string;
  /** Name of a fitting plan that is at most as slow and as large, and less in one of them. */
  readonly dominatedBy?: string;
  /**
   * The layout of a plan that was composed from priced layers; absent where the whole graph was
   * priced.
   */
  readonly layout?: ComparedLayout;
  /** The pipeline stages of a graph; absent without any, and for models by name. */
  readonly pipeline?: ComparedPipeline;
}

/** The pipeline of a compared graph. */
export interface ComparedPipeline {
  readonly schedule: PipelineSchedule;
  readonly microbatches: number;
  /** The calls before which the program is cut. */
  readonly cuts: readonly string[];
  readonly bubbleSeconds: number;
  /** The largest gap of the proof of a stage's plan. */
  readonly gap: number;
}

/** How sure a comparison is, by measured runs. */
export interface Certainty {
  /**
   * Quantiles of measured over predicted seconds: one of ten lies below `p10`, nine of ten below
   * `p90`.
   */
  readonly p10: number;
  readonly p90: number;
  /** The common features of the runs, their number, and their families. */
  readonly from: string;
  readonly runs: number;
  readonly families: readonly string[];
  /**
   * The difference that decides: of two plans, the one that is predicted to be slower by more than
   * this is slower, nine times in ten; and the groups of runs that show it.
   */
  readonly alikeShare: number;
  readonly alikeGroups: number;
  /**
   * Plans that cannot be told from the best and fit as surely as is asked for, by seconds; the
   * simplest of them, by what counts first; and the best again, for readers of earlier versions.
   */
  readonly alike: readonly string[];
  readonly simplest?: string | null;
  readonly recommended: string | null;
  readonly order: readonly string[];
}

/** A pipeline stage of a plan; seconds are those of one microbatch. */
export interface ComparedStage {
  /** Layers from `first` up to and without `end`. */
  readonly first: number;
  readonly end: number;
  readonly embedding: boolean;
  readonly head: boolean;
  /** The sum of the three that follow. */
  readonly seconds: number;
  readonly forwardSeconds: number;
  /** Recomputation of unsaved values included. */
  readonly backwardInputSeconds: number;
  readonly backwardWeightSeconds: number;
  /** The peak of the device that holds it. */
  readonly peakBytes: number;
  /** Microbatches (of a chunk) that the device keeps. */
  readonly inFlight: number;
  /** Share of the step that the device waits, 0..1. */
  readonly idleShare: number;
}

/**
 * The message between two stages that follow one another: activations forward, and as many bytes of
 * gradients back.
 */
export interface ComparedBoundary {
  /** Bytes that each device sends for one microbatch and direction. */
  readonly bytes: number;
  readonly seconds: number;
}

/** Bytes of a device by class. */
export type MemoryByClass = Readonly<
  Record<
    'parameterBytes' | 'gradientBytes' | 'optimizerBytes' | 'activationBytes' | 'temporaryBytes',
    number
  >
>;

/**
 * Facts about a plan in a comparison by model name, in addition to its figures. Seconds are those
 * of the device that works longest.
 */
export interface ComparedLayout {
  readonly computeSeconds: number;
  readonly exposedCommunicationSeconds: number;
  readonly bubbleSeconds: number;
  /** Tokens per second of all devices. */
  readonly tokensPerSecond: number;
  /** Model FLOPs utilisation; its convention is `question.mfuConvention`. */
  readonly mfu: number;
  /** Memory of the fullest device. */
  readonly memory: MemoryByClass;
  /** `etp`: devices that cut each expert between them; absent for models without routed experts. */
  readonly sizes: Readonly<
    Record<'pp' | 'dp_replicate' | 'dp_shard' | 'cp' | 'tp' | 'ep', number>
  > & {
    readonly etp?: number;
  };
  /** The whole layout as `--layout` takes it; absent where nothing states it. */
  readonly stated?: string;
  /** Sequences of a microbatch on a data rank, and microbatches of a step. */
  readonly microbatch: number;
  readonly microbatches: number;
  readonly schedule: PipelineSchedule;
  readonly chunks: number;
  /** A policy, or modules joined by `+`. */
  readonly checkpoint: Checkpoint;
  /** Modules that are recomputed; absent under a policy. */
  readonly recomputes?: readonly string[];
  /** Layers (and embedding or head) whose results are recomputed; absent where none do. */
  readonly unitsAgain?: number;
  /**
   * FSDP gathers parameters once a step and keeps them (`reshard=false`); absent where it gathers
   * for every pass.
   */
  readonly gathersOnce?: true;
  /**
   * Forward passes overlap with backward passes of another microbatch, which hides exchanges with
   * experts; absent where not.
   */
  readonly pairsMicrobatches?: true;
  /** By chunk * devices + device. */
  readonly stages: readonly ComparedStage[];
  /** Between each stage and the one after it; empty without stages. */
  readonly boundaries: readonly ComparedBoundary[];
  /** Sent over all boundaries in a step, both directions, by one row of devices. */
  readonly pointToPointBytes: number;
  /** Layers that were priced; the others are written the same way. */
  readonly pricedLayers: number;
  /** For a free plan, the recipe whose placements it has, because they are cheaper in all. */
  readonly placements?: string;
  /**
   * For a free plan, the proof for the program of the priced layers, which is not a proof for the
   * whole model.
   */
  readonly shallowProof?: {
    readonly status: string;
    readonly bound: number;
    readonly gap: number;
    readonly objective: number;
  };
}

/** A change of the question that would change the answer. */
export interface WhatIf {
  readonly change: string;
  readonly best: string | null;
  readonly mesh?: string;
  readonly seconds?: number;
  /** True if plan and mesh are those of the answer. */
  readonly same: boolean;
  /**
   * Microbatches, schedule and recomputation, where the same plan needs others; absent where they
   * are the same.
   */
  readonly settings?: string;
  readonly next?: string;
}

/**
 * A plan that is faster than the best, or fits where none does with the probability that is asked
 * for, but with a smaller probability.
 */
export interface RiskierPlan {
  readonly plan: string;
  readonly mesh: string;
  /** Microbatches, schedule and recomputation; absent for graphs. */
  readonly settings?: string;
  readonly seconds: number;
  readonly peakBytes: number;
  readonly fitProbability: number;
  /** 1 - seconds / those of the best plan; null where there is no best. */
  readonly faster: number | null;
}

/** A plan that a mesh, the model or the linter does not admit. */
export interface RefusedPlan {
  readonly plan: string;
  readonly mesh: string;
  readonly code?: string;
  readonly reason: string;
}

/** The fate of a mesh. */
export interface ComparedMesh {
  readonly mesh: string;
  /** Hosts that one group of each dim touches. */
  readonly hosts: readonly number[];
  readonly status:
    'solved' | 'beaten' | 'refused' | 'infeasible' | 'not asked' | 'not reached' | 'not found';
  readonly boundSeconds?: number;
  /** Rule of the linter that refuses it. */
  readonly code?: string;
  readonly reason?: string;
  readonly smallestBudgetBytes?: number;
  /** Bytes below which no plan of the mesh exists, activations included. */
  readonly neededBytes?: number;
}

/** A layout that somebody runs, as the comparison prices it. */
export interface AskedLayout {
  /** The text as given; for a file, its contents as `--layout` would take them. */
  readonly text: string;
  /** The assumed behaviour of products in fp8; absent where there are none. */
  readonly assumes?: string;
  /**
   * The trainer's configuration that states it, and its settings that have no price; absent where
   * it was written out.
   */
  readonly from?: {
    readonly file: string;
    readonly format: string;
    readonly notPriced: readonly {
      readonly key: string;
      readonly value: string;
      readonly why: string;
    }[];
  };
  readonly name: string;
  readonly mesh: string;
  readonly seconds: number;
  readonly tokensPerSecond: number;
  readonly peakBytes: number;
  readonly fits: boolean;
  /** The fields of `ComparedPlan`. */
  readonly stepSeconds?: number;
  readonly stepBand?: readonly [p10: number, p90: number] | null;
  readonly trainer?: string;
  readonly secondsBand?: readonly [p10: number, p90: number];
  readonly fitProbability?: number;
  readonly computeSeconds: number;
  readonly communicationSeconds: number;
  readonly bubbleSeconds: number;
  readonly microbatches: number;
  /** The cost of a run of so many tokens on it; absent where none is asked for. */
  readonly run?: RunCost;
  /** seconds / those of the best plan - 1; absent where no plan fits. */
  readonly overBest?: number;
  /**
   * Changes of one setting that are faster and fit with the probability that is asked for, the
   * fastest first.
   */
  readonly edits: readonly {
    readonly change: string;
    readonly seconds: number;
    readonly peakBytes: number;
    readonly fitProbability?: number;
  }[];
}

/**
 * Errors, predicted over measured seconds minus 1: their median, and the mean of their absolute
 * values.
 */
export interface RefitErrors {
  readonly bias: number;
  readonly mape: number;
}

/**
 * Constants of a machine that were fitted on somebody's own runs, and what they do for the errors
 * on them.
 */
export interface Refit {
  /** Runs with a step time and a price. */
  readonly runs: number;
  readonly notPriced: readonly {
    readonly line: number;
    readonly id: string;
    readonly reason: string;
  }[];
  /** Runs on other accelerators than that of the comparison. */
  readonly elsewhere: number;
  /**
   * False: runs that are left out are not predicted better, and the comparison has the shipped
   * constants.
   */
  readonly taken: boolean;
  /** The constants as in `FittedConstants`; equal where a constant did not move. */
  readonly constants: readonly {
    readonly name: string;
    readonly before: number;
    readonly after: number;
  }[];
  readonly before: RefitErrors;
  readonly after: RefitErrors;
  /**
   * Each group, or each run where there are few groups, by constants that were fitted without it.
   */
  readonly leftOut: RefitErrors & { readonly by: 'group' | 'run' };
  /**
   * The range of measured over predicted seconds of left-out runs; absent for few runs, and where
   * the fit was not taken.
   */
  readonly range?: { readonly p10: number; readonly p90: number };
}

/** A vocabulary that was padded for the comparison. */
export interface ComparedPadding {
  readonly multiple: number;
  /** The vocabulary as the model states it. */
  readonly vocabulary: number;
  /**
   * For each number of tensor ranks that was priced, ascending: the rows that were built, and the
   * parameters among them that are padding.
   */
  readonly byTensor: readonly {
    readonly tensor: number;
    readonly rows: number;
    readonly parameters: number;
  }[];
}

/** Low-rank adapters of a compared model. */
export interface ComparedAdapters {
  /** `LoRA of rank 16 on all linear layers`. */
  readonly text: string;
  /** Parameters that are trained, of how many. */
  readonly trained: number;
  readonly parameters: number;
}

/**
 * Every recipe and the optimum on every mesh, with seconds and bytes, the best of them, and why
 * others are not.
 */
export interface Comparison {
  /**
   * The cause that ended the comparison before it was done, and the questions that were not asked,
   * one sentence each; absent where all was asked. `boundSeconds`: no recipe, priced or not, has a
   * shorter step; absent for graphs, and where nothing is known about the plans that were not
   * priced.
   */
  readonly stopped?: {
    readonly by: 'interrupted' | 'time limit';
    readonly notAsked: readonly string[];
    readonly boundSeconds?: number;
  };
  /** Name of the graph that was compared; of a model by name `question` has it. */
  readonly model?: string;
  /** Microbatches of a step, each of which is a pass of the graph; absent: one. */
  readonly microbatches?: number;
  readonly devices: number;
  readonly cluster: string;
  readonly budgetBytes: number;
  /**
   * The least probability with which the best plan fits, and the most bytes that fit with it;
   * absent where states alone are counted, and in comparisons of earlier versions.
   */
  readonly risk?: number;
  readonly safeBytes?: number;
  /**
   * The bytes that `peakBytes` counts in plans of a graph; absent for models by name, and in
   * comparisons of earlier versions, which counted states.
   */
  readonly holds?: 'peak' | 'states';
  readonly plans: readonly ComparedPlan[];
  readonly refused: readonly RefusedPlan[];
  readonly findings: readonly (Finding & { readonly plan: string; readonly mesh: string })[];
  readonly meshes: readonly ComparedMesh[];
  /**
   * Name of the best plan: the fastest that fits with at least the probability `risk`; null where
   * none does, and `safest` then comes nearest.
   */
  readonly best: string | null;
  /**
   * Where no plan fits with the probability `risk`: name of the one that fits with the largest;
   * absent where none fits at all.
   */
  readonly safest?: string;
  /** The fastest plan that fits with a smaller probability; absent where none is faster. */
  readonly riskier?: RiskierPlan;
  readonly pareto: readonly string[];
  /** Names of the plans that fit, by simulated seconds; absent where none was simulated. */
  readonly simulatedRanking?: readonly string[];
  /** The question, where a model was named. */
  readonly question?: {
    readonly model: string;
    readonly sequence: number;
    readonly globalBatch: number;
    readonly cost: string;
    readonly layers: number;
    readonly pricedLayers: number;
    readonly layerKinds: number;
    readonly mfuConvention: string;
    /** Id of the trainer that the question is for; absent: whatever can be priced. */
    readonly trainer?: string;
    /** True if nobody asked for that trainer and it was taken as the default. */
    readonly trainerAssumed?: true;
    /** Low-rank adapters, which are all that is trained; absent without any. */
    readonly adapters?: ComparedAdapters;
  };
  /** Absent where no padding was asked for. */
  readonly padding?: ComparedPadding;
  /** How sure the figures are; absent where no measured run tells, and `unsure` says why. */
  readonly certainty?: Certainty;
  readonly unsure?: string;
  /**
   * Constants that were fitted on runs of the user's own (`--like`); absent where none were given.
   */
  readonly refit?: Refit;
  /** How the figures were made, one sentence each. */
  readonly notes?: readonly string[];
  /** Faults of the question that make the answer useless or wasteful, one or two sentences each. */
  readonly warnings?: readonly string[];
  /** The Pareto front by memory. */
  readonly frontier?: readonly {
    readonly peakBytes: number;
    readonly seconds: number;
    readonly gap: number | null;
    readonly name: string;
  }[];
  readonly priceOfMemory?: readonly {
    readonly fromBytes: number;
    readonly toBytes: number;
    readonly deltaSeconds: number;
  }[];
  readonly nextBest?: readonly {
    readonly kind: string;
    readonly name: string;
    readonly mesh: string;
    readonly deltaSeconds: number;
  }[];
  readonly whatIf?: readonly WhatIf[];
  readonly smallestBudgetBytes?: number;
  /** Hosts that the best plan holds, and what of them stays idle; absent where no plan fits. */
  readonly held?: Allocation;
  /**
   * The cost of a run of so many tokens on the best plan; absent where none is asked for, or no
   * plan fits.
   */
  readonly run?: RunCost;
  /** The layout that the user asked about (`--layout`), to compare with the best. */
  readonly layout?: AskedLayout;
}
