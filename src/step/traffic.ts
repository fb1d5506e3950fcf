/** The messages that the devices of a step send to each other. */

/** The messages of one group's devices in one step. */
export interface Traffic {
  readonly kind: string;
  /** Mesh dims that take part, joined by `+`. */
  readonly axes: string;
  readonly count: number;
  /** Bytes that each device sends by a ring. */
  readonly sentBytes: number;
  readonly seconds: number;
  /** The part of these seconds that no compute hides; absent where it is not known. */
  readonly exposedSeconds?: number;
}

/** Bytes that each of n devices sends in a ring; `bytes` as in `PlannedCollective`. */
export function ringBytes(kind: string, bytes: number, n: number): number {
  if (kind === 'collective_permute') return bytes;
  return (kind === 'all_reduce' ? 2 : 1) * ((n - 1) / n) * bytes;
}
