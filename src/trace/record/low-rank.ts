/** Defines which linear layers of a trace have low-rank adapters. */

/** The adapters of the linear layers that a body makes. */
export interface LowRank {
  readonly rank: number;
  /** What their result is multiplied by: `alpha / rank`. */
  readonly scale: number;
  /** Tells whether the layer at this module path has one. */
  readonly adapts: (path: string) => boolean;
}
