import type { DeviceMesh } from '../../src/mesh/devices/mesh.ts';
import type { ExpertFold } from '../../src/recipes/expert-mesh.ts';

/**
 * Bytes that each device sends, and bytes of states that it keeps, in closed form: for first
 * estimates, and to hold priced plans to. Rings: an all-reduce of B bytes over n devices sends 2
 * (n-1)/n B, a gather or scatter (n-1)/n B, an all-to-all (n-1)/n of what a device has. Sources:
 * ZeRO (arXiv:1910.02054), Megatron-LM (arXiv:1909.08053, 2205.05198), Ulysses (arXiv:2309.14509).
 */

const ring = (n: number): number => (n - 1) / n;

/** Data parallelism, a step: gradients of G bytes reduced over n devices. */
export function dataBytes(n: number, gradientBytes: number): number {
  return 2 * ring(n) * gradientBytes;
}

/** ZeRO-1, a step: gradients scattered, weights gathered. */
export function zero1Bytes(n: number, gradientBytes: number, weightBytes: number): number {
  return ring(n) * (gradientBytes + weightBytes);
}

/** FSDP: weights gathered forward, again backward if they were let go, gradients scattered. */
export function fsdpBytes(
  n: number,
  weightBytes: number,
  gradientBytes: number,
  reshard = true,
): number {
  return ring(n) * ((reshard ? 2 : 1) * weightBytes + gradientBytes);
}

/** HSDP: on the shard axis as FSDP; on the replica axis all-reduces of gradient shards. */
export function hsdpBytes(
  replicas: number,
  shards: number,
  weightBytes: number,
  gradientBytes: number,
): { readonly shardAxis: number; readonly replicaAxis: number } {
  return {
    shardAxis: fsdpBytes(shards, weightBytes, gradientBytes),
    replicaAxis: dataBytes(replicas, gradientBytes / shards),
  };
}

/**
 * Tensor parallelism, a block, forward and backward: four all-reduces of b s h, six where the
 * forward is recomputed.
 */
export function tensorBytes(n: number, streamBytes: number, recomputed = false): number {
  return (recomputed ? 6 : 4) * 2 * ring(n) * streamBytes;
}

/**
 * With sequence parallelism: four gathers and four scatters, two gathers more where inputs are
 * gathered again.
 */
export function sequenceBytes(n: number, streamBytes: number, regathered = false): number {
  return (regathered ? 10 : 8) * ring(n) * streamBytes;
}

/**
 * Ulysses, a block and direction: queries and output (b s a d each), keys and values (b s k d each)
 * change their cut.
 */
export function ulyssesBytes(n: number, queryBytes: number, keyBytes: number): number {
  return (ring(n) * (2 * queryBytes + 2 * keyBytes)) / n;
}

/**
 * Context parallelism by all-gather, a block and direction: keys and values of b s k d bytes each.
 */
export function contextBytes(n: number, keyBytes: number): number {
  return 2 * ring(n) * keyBytes;
}

/**
 * Experts, one all-to-all of K copies of N local tokens, routing balanced; a layer has two in each
 * direction.
 */
export function expertBytes(n: number, tokens: number, copies: number, rowBytes: number): number {
  return ring(n) * copies * tokens * rowBytes;
}

/**
 * Experts each cut over `cut` devices: one gather of the rows of all of them, or one scatter of the
 * summands of their results; a layer has a gather and a scatter in each direction. K copies of N
 * local tokens; one copy where they are gathered before.
 */
export function expertTensorBytes(
  cut: number,
  tokens: number,
  copies: number,
  rowBytes: number,
): number {
  return (cut - 1) * copies * tokens * rowBytes;
}

/**
 * State bytes of a device at 16 bytes a parameter: 2 for the weight, 2 for its gradient, 12 for the
 * optimizer.
 */
export function stateBytesPerDevice(
  plan: 'dp' | 'zero1' | 'zero2' | 'fsdp',
  parameters: number,
  n: number,
  bytes: { readonly weight: number; readonly gradient: number; readonly optimizer: number } = {
    weight: 2,
    gradient: 2,
    optimizer: 12,
  },
): number {
  const cut = { dp: [1, 1, 1], zero1: [1, 1, n], zero2: [1, n, n], fsdp: [n, n, n] }[plan];
  return parameters * (bytes.weight / cut[0] + bytes.gradient / cut[1] + bytes.optimizer / cut[2]);
}

/** Parameter elements by what tensor and expert parallelism do to them. */
export interface ParameterParts {
  /** Cut over tp: attention and MLP matrices, vocabulary tables. */
  readonly split: number;
  /** Whole on every tp rank: norms, routers, biases of row-parallel layers. */
  readonly rest: number;
  /** Routed experts, all of them. */
  readonly routed?: number;
}

/**
 * State bytes of a device on a dense mesh with its expert fold: dense states are cut over dp_shard
 * and cp (and tp), those of routed experts over efsdp, ep and etp; dp_replicate cuts nothing. For a
 * pipeline hand in the parts of a stage.
 *
 * @param bytesPerParameter 16: bf16 weight and gradient, three fp32 states
 */
export function foldedStateBytes(
  parts: ParameterParts,
  fold: ExpertFold,
  bytesPerParameter = 16,
): number {
  const { dense, expert } = fold;
  const dim = (mesh: DeviceMesh, name: string): number =>
    mesh.names.includes(name) ? mesh.sizes[mesh.indexOf(name)] : 1;
  const shards = dim(dense, 'dp_shard') * dim(dense, 'cp');
  const experts = dim(expert, 'efsdp') * dim(expert, 'ep') * dim(expert, 'etp');
  const own =
    parts.split / (dim(dense, 'tp') * shards) + parts.rest / shards + (parts.routed ?? 0) / experts;
  return bytesPerParameter * own;
}
