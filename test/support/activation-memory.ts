import { ShardwrightError } from '../../src/errors.ts';

/**
 * Activation bytes of a GPT-shaped transformer in closed form (Korthikanti et al.,
 * arXiv:2205.05198): 16-bit activations, 1-byte dropout masks, per device of the first pipeline
 * stage. For estimates and checks; plans are priced by liveness.
 */

export const ACTIVATION_POLICIES = ['tp', 'tp+sp', 'selective', 'selective+sp', 'full'] as const;
/**
 * Tensor parallelism alone, with sequence parallelism, with the attention core recomputed, and
 * everything recomputed.
 */
export type ActivationPolicy = (typeof ACTIVATION_POLICIES)[number];

export interface ActivationShape {
  readonly sequence: number;
  /** Sequences of a microbatch. */
  readonly microbatch: number;
  readonly hidden: number;
  readonly heads: number;
  readonly layers: number;
}

/**
 * Bytes per token, hidden element and layer: 10 + 24/t + 5as/(ht) and its relatives.
 *
 * @param tensor tensor-parallel devices
 */
export function activationFactor(
  policy: ActivationPolicy,
  shape: ActivationShape,
  tensor: number,
): number {
  const scores = (5 * shape.heads * shape.sequence) / shape.hidden;
  switch (policy) {
    case 'tp':
      return 10 + 24 / tensor + scores / tensor;
    case 'tp+sp':
      return (34 + scores) / tensor;
    case 'selective':
      return 10 + 24 / tensor;
    case 'selective+sp':
      return 34 / tensor;
    case 'full':
      return 2;
  }
}

/**
 * What interleaving adds to the first stage: 1 for plain 1F1B, 1 + (p-1)/(p v) with v chunks a
 * device.
 *
 * @throws E_USAGE for degrees below one
 */
export function interleavingFactor(pipeline: number, chunks: number): number {
  if (pipeline < 1 || chunks < 1)
    throw new ShardwrightError(
      'E_USAGE',
      `pipeline ${pipeline} and chunks ${chunks} must be at least 1`,
    );
  return chunks > 1 ? 1 + (pipeline - 1) / (pipeline * chunks) : 1;
}

/**
 * Activation bytes on one device of the first stage: s b h L times the factors. All layers count:
 * 1F1B keeps as many microbatches of L/p layers as there are stages.
 */
export function activationBytes(
  shape: ActivationShape,
  policy: ActivationPolicy,
  tensor: number,
  interleaving = 1,
): number {
  const { sequence, microbatch, hidden, layers } = shape;
  return (
    sequence * microbatch * hidden * layers * activationFactor(policy, shape, tensor) * interleaving
  );
}

/** Weights and biases of a GPT layer stack, 12 L h^2, on one device of t x p. */
export function layerStackParameters(
  layers: number,
  hidden: number,
  tensor: number,
  pipeline: number,
): number {
  return (12 * layers * hidden * hidden) / (tensor * pipeline);
}
