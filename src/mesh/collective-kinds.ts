/** The kinds of collectives, as NCCL and PyTorch name them. */

export const COLLECTIVE_KINDS = [
  'all_gather',
  'reduce_scatter',
  'all_reduce',
  'all_to_all',
  'collective_permute',
] as const;
/** A kind of collective. */
export type CollectiveKind = (typeof COLLECTIVE_KINDS)[number];
