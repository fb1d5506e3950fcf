import type { Optimizer } from '../cost/memory.ts';

/**
 * What the user asks for. The request is plain, frozen data: what-if questions are immer patches on it, and it is
 * written beside the plan (`request.json`) so that a plan can be made again.
 */

/** One placement the user fixes: `node` is a value name or a parameter's name, `spec` a sharding text such as `S(0)R`. */
export interface Pin {
  readonly node: string;
  readonly spec: string;
}

export interface PlanRequest {
  /** Mesh dims, outermost first: `dp=8,tp=8`. */
  readonly mesh: string;
  /** Id of a node design (`dgx-h100`), or the JSON text of a cluster. */
  readonly cluster: string;
  /** Memory budget per device in bytes; absent means the usable memory of the device. */
  readonly memoryBytes?: number;
  readonly pins: readonly Pin[];
  /** Absent means by dtype: `adamw-mixed` for 16-bit weights, `adam` for float32. */
  readonly optimizer?: Optimizer;
  /** Name of a cost preset, see `COST_PRESETS`. */
  readonly cost: string;
  readonly solver: 'auto' | 'exact' | 'highs' | 'javascript-lp-solver' | 'propagate';
  /** Relative gap that is good enough; 0 asks for proof. */
  readonly gap: number;
  readonly timeLimitSeconds?: number;
  readonly seed: number;
  /** Whether a dim may be cut into unequal pieces. */
  readonly uneven: 'allow' | 'forbid';
  /** What to do with operators that have no record. */
  readonly unknown: 'refuse' | 'replicate';
  /** Whether a redistribution that several consumers need is paid once. */
  readonly sharing: boolean;
  /** Placements of inputs and outputs: `free`, or one sharding text for all of them (`R` everywhere for the tutorial). */
  readonly inputs: string;
  readonly outputs: string;
  /** `time`: least seconds. `parameter-memory`: least bytes of parameters first, then least seconds. */
  readonly objective: 'time' | 'parameter-memory';
}

export const DEFAULT_REQUEST: Omit<PlanRequest, 'mesh' | 'cluster'> = {
  pins: [],
  cost: 'alpha-beta',
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
