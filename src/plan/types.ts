import type { PlanRequest } from './request.ts';

/**
 * The plan: what `shard()` answers and what `plan.json` holds. Keys are a contract: they may be added to, never renamed.
 * Shardings are texts with one placement per mesh dim (`S(0)R`).
 */

export const PLAN_VERSION = 1;

export interface PlannedCollective {
  readonly kind: string;
  /** Names of the mesh dims that take part, outermost first. */
  readonly meshDims: readonly string[];
  /** all_gather: gathered output; reduce_scatter: input; all_reduce: tensor; all_to_all, collective_permute: one rank's buffer. */
  readonly bytes: number;
  readonly seconds: number;
}

export interface PlannedRedistribution {
  /** Position of the tensor input. */
  readonly input: number;
  readonly from: string;
  readonly to: string;
  readonly collectives: readonly PlannedCollective[];
  /** Seconds in all of one execution: the collectives and the local copies that they need. */
  readonly seconds: number;
  /** Executions in one run of the program where they are not one: trips of the loops around it. */
  readonly times?: number;
  /** `made`: this use makes a copy that later uses of the same phase take; `reused`: it takes one, and pays nothing. */
  readonly copy?: 'made' | 'reused';
}

export interface PlannedNode {
  readonly name: string;
  readonly target: string;
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  /** Compute of the node on the device with the largest shard. */
  readonly seconds: number;
  /** Runs of the node where they are not one: trips of the loops around it, or the weight of its branch. */
  readonly times?: number;
  /** Collectives inside the operator's own rule, where it has any. */
  readonly internalSeconds?: number;
  readonly redistributions: readonly PlannedRedistribution[];
}

export interface PlannedOutput {
  readonly value: string;
  readonly role: string;
  readonly of?: string;
  readonly placement: string;
  readonly redistributions: readonly PlannedRedistribution[];
}

export interface PlanMemory {
  readonly peakBytes: number;
  readonly budgetBytes: number;
  readonly parameterBytes: number;
  readonly gradientBytes: number;
  readonly optimizerBytes: number;
  /** Null: activation memory is not modelled yet, and `peakBytes` leaves it out. */
  readonly activationBytes: number | null;
}

export interface PlanProof {
  readonly status: 'optimal' | 'feasible' | 'infeasible';
  /** Proven lower bound on the seconds of every plan in the model. */
  readonly bound: number;
  readonly gap: number;
  readonly solver: string;
  /** Wall-clock; null in files, so that equal requests give equal bytes. */
  readonly solveSeconds: number | null;
  /** Seconds of the plan as re-costed from the plan alone. */
  readonly recheckedSeconds: number;
  readonly evidence: readonly string[];
}

export interface Plan {
  readonly version: number;
  readonly model: string;
  /** Mesh dims, outermost first, with the number of hosts that one group of the dim touches. */
  readonly mesh: readonly { readonly name: string; readonly size: number; readonly hosts: number }[];
  readonly cluster: string;
  readonly request: PlanRequest;
  readonly objective: {
    readonly seconds: number;
    readonly computeSeconds: number;
    readonly communicationSeconds: number;
  };
  readonly proof: PlanProof;
  readonly memory: PlanMemory;
  readonly parameters: readonly {
    readonly name: string;
    readonly shape: readonly number[];
    readonly placement: string;
  }[];
  readonly nodes: readonly PlannedNode[];
  readonly outputs: readonly PlannedOutput[];
  /** The best plan of node-by-node propagation, for the price of greed; null when greed finds none. */
  readonly greedySeconds: number | null;
  /** What was assumed or left out, one sentence each. */
  readonly assumptions: readonly string[];
  /** Plan folders only: SHA-256 of graph.swg and request.json beside the plan. */
  readonly hashes?: { readonly graph: string; readonly request: string };
}
