/**
 * The types of the plan record: `shard()` returns it and `plan.json` contains it. Its keys are a
 * contract: they may be added to, never renamed. Shardings are texts with one placement per mesh
 * dim (`S(0)R`).
 */
import type { MemoryKind } from '../../cost/memory/peak.ts';
import type { CollectiveSite } from '../../ops/record/rule.ts';
import type { PricedRequest } from '../request/request.ts';

export const PLAN_VERSION = 1;

interface PlannedCollective {
  readonly kind: string;
  /** Names of the mesh dims that take part, outermost first. */
  readonly meshDims: readonly string[];
  /**
   * all_gather: gathered output; reduce_scatter: input; all_reduce: tensor; all_to_all,
   * collective_permute: one rank's buffer.
   */
  readonly bytes: number;
  readonly seconds: number;
}

/**
 * A collective inside an operator; of a region of per-device code the call of its body, with the
 * types that it takes to each other.
 */
export type PlannedInside = PlannedCollective & Partial<CollectiveSite>;

/** One step of a redistribution, local steps among them: what a runtime executes, in order. */
export interface PlannedStep {
  /**
   * A collective, or a local step: `slice` (R to S), `to_partial` (R to P), `relabel` (mesh dims of
   * one device).
   */
  readonly kind: string;
  /** Names of the mesh dims of the group, in the order of its members. */
  readonly meshDims: readonly string[];
  /** Placement after the step. */
  readonly to: string;
  /** Tensor dim whose pieces are joined: all_gather, all_to_all. */
  readonly joinDim?: number;
  /** Tensor dim that is cut: reduce_scatter, all_to_all, slice. */
  readonly cutDim?: number;
  /** Reduction of each mesh dim: all_reduce, reduce_scatter. */
  readonly ops?: readonly string[];
  /**
   * For a permutation, the sender and receiver of each tile, by place in the mesh; those that keep
   * their tile send to themselves.
   */
  readonly pairs?: readonly (readonly [source: number, target: number])[];
}

export interface PlannedRedistribution {
  /** Position of the tensor input. */
  readonly input: number;
  /** Name of the node that made what is moved, `split[1]` of one with several results. */
  readonly value?: string;
  readonly from: string;
  readonly to: string;
  readonly collectives: readonly PlannedCollective[];
  /**
   * The steps from `from` to `to`; absent where a copy is taken, and in plans of earlier versions.
   */
  readonly steps?: readonly PlannedStep[];
  /**
   * Seconds in all of one execution that the objective counts: the collectives and the local copies
   * that they need, or, where `executedSeconds` is there, what the preset's own formula charges.
   */
  readonly seconds: number;
  /**
   * Only where the preset charges redistributions by a formula: what the steps that run cost at its
   * collectives and copies.
   */
  readonly executedSeconds?: number;
  /** Executions in one run of the program where they are not one: trips of the loops around it. */
  readonly times?: number;
  /**
   * `made`: this use makes a copy that later uses take, those of the same phase or, where copies
   * are kept, of the next as well; `reused`: it takes one, and pays nothing.
   */
  readonly copy?: 'made' | 'reused';
  /** Number of that copy: its uses carry the same. */
  readonly copyId?: number;
}

export interface PlannedNode {
  readonly name: string;
  readonly target: string;
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  /**
   * Pass in which it runs: uses in one pass share a copy of what they read, and uses in both where
   * copies are kept. Absent in plans of
   * earlier versions, as what follows.
   */
  readonly phase?: 'forward' | 'backward';
  /**
   * The values that `inputs` read: the node that made each, `split[1]` for one with several
   * results.
   */
  readonly operands?: readonly string[];
  /**
   * The value that this node is another name of: a member of a tuple, or a view that repeats an
   * earlier one.
   */
  readonly aliasOf?: string;
  /**
   * Sizes of each of `outputs` on the first device, which has the most of each; null for `-`.
   * Others: ceil chunks, in order.
   */
  readonly local?: readonly (readonly number[] | null)[];
  /** The forward node that this one computes again in the backward pass. */
  readonly repeats?: string;
  /**
   * A call that draws numbers: from the stream of that name, for a tensor of that global shape, of
   * which each device has its part.
   */
  readonly random?: { readonly stream: string; readonly shape: readonly number[] };
  /** Compute of the node on the device with the largest shard. */
  readonly seconds: number;
  /**
   * Runs of the node where they are not one: trips of the loops around it, or the weight of its
   * branch.
   */
  readonly times?: number;
  /** Collectives inside the operator's own rule, where it has any. */
  readonly internalSeconds?: number;
  /** The collectives of `internalSeconds` in order; a loop in a region lists its own each trip. */
  readonly inside?: readonly PlannedInside[];
  readonly redistributions: readonly PlannedRedistribution[];
}

export interface PlannedOutput {
  readonly value: string;
  readonly role: string;
  readonly of?: string;
  readonly placement: string;
  readonly redistributions: readonly PlannedRedistribution[];
}

/**
 * Memory of the device with the largest shards over the program points; see `planMemoryTimeline`
 * for what counts.
 */
export interface PlanTimeline {
  /** The most bytes alive at one program point, states and activations together. */
  readonly peakBytes: number;
  /** Node that runs, or whose inputs are being brought, at the first such point. */
  readonly node: string;
  readonly phase: 'forward' | 'backward';
  /** Bytes at that point that are not a parameter, buffer, gradient or optimizer state. */
  readonly activationBytes: number;
  readonly byKind: Readonly<Partial<Record<MemoryKind, number>>>;
  /** The largest tensors at the peak that are not states. */
  readonly largest: readonly {
    readonly name: string;
    readonly bytes: number;
    readonly kind: MemoryKind;
  }[];
  /**
   * The most bytes in each of equally long stretches of the program, with the index of the node
   * there.
   */
  readonly curve: readonly { readonly bytes: number; readonly node: number }[];
}

export interface PlanMemory {
  /**
   * The bytes that count against the budget: the peak of the timeline; with other `activations`
   * than `'constraint'` the sum of parameters, gradients, optimizer state and buffers.
   */
  readonly peakBytes: number;
  readonly budgetBytes: number;
  readonly parameterBytes: number;
  readonly gradientBytes: number;
  readonly optimizerBytes: number;
  /**
   * `timeline.activationBytes`: activations, temporaries and copies at the peak. Null with
   * `activations: 'off'` and `'trainer'`.
   */
  readonly activationBytes: number | null;
  /** Absent with `activations: 'off'` and `'trainer'`. */
  readonly timeline?: PlanTimeline;
}

/**
 * The step of a plan as a trainer runs it: the whole training step by the clock, communication
 * overlapped as that software does it. The objective is another figure: every cost one after
 * another.
 */
export interface StepFigures {
  /** Id of the trainer; `shardwright` is the PyTorch program that is exported. */
  readonly trainer: string;
  readonly stepSeconds: number;
  /** Bytes of a device at the fullest moment, by what the trainer keeps. */
  readonly peakBytes: number;
  /** The parts that every layer recomputes in its backward pass; absent: nothing. */
  readonly recomputes?: string;
  /** Parts of the step in plain view, which sum to it; absent where calls are played one by one. */
  readonly parts?: {
    readonly forwardSeconds: number;
    readonly backwardSeconds: number;
    /** Once a step: sums of gradients, the update, the host. */
    readonly onceSeconds: number;
  };
}

interface PlanProof {
  readonly status: 'optimal' | 'feasible' | 'infeasible';
  /** Proven lower bound on the seconds of every plan in the model, in rounded prices. */
  readonly bound: number;
  /**
   * Relative; 0 where optimal: the bound and `roundingSeconds` together then leave at most 1e-9 of
   * the step open.
   */
  readonly gap: number;
  readonly solver: string;
  /** Wall-clock; null in files, so that equal requests give equal bytes. */
  readonly solveSeconds: number | null;
  /** Seconds of the plan as re-costed from the plan alone. */
  readonly recheckedSeconds: number;
  /** The most by which the solver's sum of rounded prices can differ from the exact one. */
  readonly roundingSeconds?: number;
  readonly evidence: readonly string[];
}

/**
 * A plan: placements of every value with their seconds and bytes, the memory per device, and the
 * proof. `docs/plan.schema.json` is its schema.
 */
export interface Plan {
  readonly version: typeof PLAN_VERSION;
  /** The program whose prices the plan has: `shardwright 0.2.0`. */
  readonly producer?: string;
  readonly model: string;
  /** Mesh dims, outermost first, with the number of hosts that one group of the dim touches. */
  readonly mesh: readonly {
    readonly name: string;
    readonly size: number;
    readonly hosts: number;
  }[];
  readonly cluster: string;
  readonly request: PricedRequest;
  readonly objective: {
    readonly seconds: number;
    readonly computeSeconds: number;
    readonly communicationSeconds: number;
    /**
     * Only where the preset charges redistributions by a formula: `communicationSeconds` of the
     * steps that run.
     */
    readonly executedCommunicationSeconds?: number;
  };
  readonly proof: PlanProof;
  readonly memory: PlanMemory;
  /** Absent where no step was looked at: no time was left, or the objective is not time. */
  readonly step?: StepFigures;
  readonly parameters: readonly {
    readonly name: string;
    readonly shape: readonly number[];
    readonly placement: string;
    /**
     * The parameter that this is another name of: one tensor, stored and counted under that name.
     */
    readonly tiedTo?: string;
  }[];
  /** Parameters among them that are padding of the vocabulary; absent where none was asked for. */
  readonly paddedParameters?: number;
  readonly nodes: readonly PlannedNode[];
  readonly outputs: readonly PlannedOutput[];
  /** The best plan of node-by-node propagation, as the greedy baseline; null when it finds none. */
  readonly greedySeconds: number | null;
  /** Assumptions and omissions, one sentence each. */
  readonly assumptions: readonly string[];
  /**
   * Plan folders only: SHA-256 of graph.swg, request.json and the certificate (unpacked), and of
   * the plan itself with those three and without its own.
   */
  readonly hashes?: {
    readonly graph: string;
    readonly request: string;
    readonly certificate?: string;
    readonly pipeline?: string;
    readonly plan?: string;
  };
}
