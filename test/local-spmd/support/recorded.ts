import { gunzipSync, gzipSync } from 'node:zlib';

/**
 * Answers of the two packages, as scripts/engines/run_spmd_types.py and run_shard_map.py write
 * them.
 */

export interface Refusal {
  readonly refused: string;
}

/** One primitive run forward and backward: rows hold the values of one rank each. */
export interface CellAnswer {
  readonly type: string;
  readonly gradient: string;
  readonly shape: readonly number[];
  readonly input: readonly (readonly number[])[];
  readonly output: readonly (readonly number[])[];
  readonly upstream: readonly (readonly number[])[];
  readonly back: readonly (readonly number[])[];
  readonly forward: readonly string[];
  readonly backward: readonly string[];
}

export interface SpmdAnswers {
  readonly cells: readonly (CellAnswer | Refusal)[];
  readonly calls: readonly ({ readonly type: string } | Refusal)[];
  readonly einsums: readonly ({ readonly types: readonly string[] } | Refusal)[];
  readonly refinements: readonly ({ readonly types: Readonly<Record<string, string>> } | Refusal)[];
  readonly versions: Readonly<Record<string, string>>;
}

/** `V`, `I`, `R` and `U` are JAX's marks: varying, none, reduced, unreduced. */
export type JaxState = 'V' | 'I' | 'R' | 'U';

export interface JaxPrimitive {
  readonly type: JaxState;
  readonly shape: readonly number[];
  readonly gradient?: JaxState;
  readonly transpose?: readonly string[];
}

/** Kind, groups of devices, and the shapes of what one device holds after it. */
export type JaxCollective = readonly [string, readonly (readonly number[])[], readonly string[]];

export interface JaxAnswers {
  readonly jax: string;
  readonly devices: number;
  /**
   * By primitive and state of the operand; casts written out, then with those that JAX inserts
   * itself.
   */
  readonly primitives: Readonly<Record<string, Readonly<Record<JaxState, JaxPrimitive | Refusal>>>>;
  readonly implicit: Readonly<Record<string, Readonly<Record<JaxState, JaxPrimitive | Refusal>>>>;
  /** By operator and the states of its operands, `VI`. */
  readonly operators: Readonly<
    Record<string, Readonly<Record<string, { readonly type: JaxState } | Refusal>>>
  >;
  readonly implicit_operators: Readonly<
    Record<string, Readonly<Record<string, { readonly type: JaxState } | Refusal>>>
  >;
  readonly programs: {
    readonly column: Readonly<Record<string, string>>;
    readonly column_no_cast: Readonly<Record<string, string>>;
    readonly column_out_replicated: Readonly<Record<string, string>>;
    readonly scan_swap: Readonly<Record<string, string>>;
    readonly scan_swap_cast: { readonly accepted: readonly string[] };
    /**
     * Sums over dp in the gradient of a weight that each trip of a scan uses, by where it is cast.
     */
    readonly microbatches: Readonly<Record<'before' | 'inside' | 'auto', number>>;
    readonly mlp_uncut: Readonly<
      Record<'forward' | 'gradient_all' | 'gradient_weights', readonly JaxCollective[]>
    >;
    readonly mlp_cut: Readonly<
      Record<'forward' | 'gradient_all' | 'gradient_weights', readonly JaxCollective[]>
    >;
    readonly block: Readonly<Record<'forward' | 'both', readonly JaxCollective[]>>;
    readonly block_sequence: Readonly<Record<'forward' | 'both', readonly JaxCollective[]>>;
  };
}

export const isRefusal = (answer: object): answer is Refusal => 'refused' in answer;

export function readAnswers<T>(bytes: Uint8Array): T {
  return JSON.parse(gunzipSync(bytes).toString('utf8')) as T;
}

export function writeAnswers(answer: unknown): Buffer {
  return gzipSync(JSON.stringify(answer), { level: 9 });
}
