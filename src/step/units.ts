/**
 * The work of one training step by unit: what comes before the layers, one layer, what comes after
 * them. Plain data: it travels between threads.
 */

/** Compute and collectives of one microbatch. */
export interface PassSeconds {
  readonly compute: number;
  readonly communication: number;
  /** The part of the compute that is products of matrices. */
  readonly products: number;
  /**
   * The part of the communication that is gathers and scatters over `tp` alone: they can be cut
   * into parts that overlap with the products.
   */
  readonly tensorParts: number;
  /** Kernels and collectives that the host launches. */
  readonly kernels: number;
}

/** The work of a unit's pass over `cp`: a ring of keys and values can replace it. */
export interface ContextPass {
  /** Seconds of its collectives over `cp`. */
  readonly seconds: number;
  /** Seconds of its attention. */
  readonly attentionSeconds: number;
}

/** A figure for each policy and each set of modules that was priced. */
export type ByCheckpoint<T> = Readonly<Record<string, T>>;

/** One unit of a pipeline: what comes before the layers, one layer, what comes after them. */
export interface CoreUnit {
  readonly forward: PassSeconds;
  readonly backwardInput: PassSeconds;
  readonly backwardWeight: PassSeconds;
  /** Recomputation of unsaved values, by policy or modules; 0 for `none`. */
  readonly again: ByCheckpoint<PassSeconds>;
  /** Bytes kept from forward to backward. */
  readonly keptBytes: ByCheckpoint<number>;
  /** The most bytes alive besides states and what is kept. */
  readonly temporaryBytes: number;
  /** Bytes of the tensor that the next unit reads. */
  readonly boundaryBytes: number;
  /** Seconds once a step: gradients that are laid out again over the model dims. */
  readonly stepSeconds: number;
  /** Absent without a dim `cp`, and outside the layers. */
  readonly context?: {
    readonly forward: ContextPass;
    readonly backward: ContextPass;
    readonly again: ByCheckpoint<ContextPass>;
  };
}

/** One parameter as the program takes it: cut by the model dims. */
export interface CoreParameter {
  readonly name: string;
  readonly unit: number;
  /** Also used by this unit (a tied table). */
  readonly alsoUnit?: number;
  /** `expert`: cut by expert groups; `router`: sees other tokens on every device. */
  readonly kind: 'dense' | 'router' | 'expert';
  /** Elements on a device, before data ranks cut it. Of experts: all elements. */
  readonly localElements: number;
  /** Rows (dim 0) of the local part, and of the whole; experts: their number. */
  readonly localRows: number;
  readonly rows: number;
  /** Ways in which the model dims cut dim 0. */
  readonly rowWays: number;
  readonly itemBytes: number;
  /** Bytes per element of parameter, gradient and optimizer state. */
  readonly state: {
    readonly parameter: number;
    readonly gradient: number;
    readonly optimizer: number;
  };
  /** A weight of the layers whose products may run on a narrow unit. */
  readonly isNarrow?: boolean;
  readonly usedForward: boolean;
  readonly usedBackward: boolean;
  readonly trained: boolean;
  /** Model dims over which the gradient is pending when it is made. */
  readonly pending: readonly string[];
}

/** A small collective that every data dim adds (the sums of the loss). */
export interface DataExtra {
  readonly kind: string;
  readonly bytes: number;
  readonly unit: number;
  readonly pass: 'forward' | 'input';
}

/** Collectives on the model dims of one microbatch, by unit. */
export interface CoreTraffic {
  readonly unit: number;
  readonly kind: string;
  readonly axes: string;
  readonly count: number;
  readonly sentBytes: number;
  readonly seconds: number;
}
