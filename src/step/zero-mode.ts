/**
 * Lists the ways in which the data ranks of a layout handle parameters, gradients and optimizer
 * states: unsharded, ZeRO 1 or 2 (arXiv:1910.02054), all of it sharded, or sharded inside replicas.
 */
export const STATE_MODES = ['dp', 'zero1', 'zero2', 'fsdp', 'hsdp'] as const;
export type StateMode = (typeof STATE_MODES)[number];

/**
 * The data ranks that a program of one of them is placed for. Plain data: it travels between
 * threads.
 */
export interface DataRanks {
  /** Sizes as in `LayoutSizes`. */
  readonly sizes: Readonly<Record<'pp' | 'dp_replicate' | 'dp_shard' | 'cp' | 'tp' | 'ep', number>>;
  readonly mode: StateMode;
  readonly context: 'cp' | 'ring' | 'ulysses';
  readonly once: boolean;
  /** Microbatches of a step. */
  readonly microbatches: number;
  /**
   * Share of state collectives that compute does not hide: of those of each microbatch, and of
   * those of a step.
   */
  readonly visible: { readonly microbatch: number; readonly step: number };
}
