/** Defines which linear layers of a trace have low-rank adapters. */

/** The adapters of the linear layers that a body makes. */
export interface LowRank {
  readonly rank: number;
  /** The factor of their result: `alpha / rank`. */
  readonly scale: number;
  /** Tells whether the layer at this module path has one. */
  readonly adapts: (path: string) => boolean;
}
