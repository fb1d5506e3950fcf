/** Bytes that one parameter element keeps alive for the whole step. */

import { type DType, DTYPE_BYTES } from '../../graph/types.ts';

export const OPTIMIZERS = ['none', 'sgd', 'adam', 'adamw-mixed'] as const;
export type Optimizer = (typeof OPTIMIZERS)[number];

/**
 * The dtypes that gradients are accumulated, summed and kept in, by the names of trainers' flags.
 */
export const GRADIENTS = ['fp32', 'bf16'] as const;
export type Gradients = (typeof GRADIENTS)[number];
const GRADIENT_DTYPE: Readonly<Record<Gradients, DType>> = { fp32: 'f32', bf16: 'bf16' };

/** The dtype of gradients of parameters of a dtype: their own where none is asked for. */
export function gradientDtype(gradients: Gradients | undefined, dtype: DType): DType {
  return gradients === undefined ? dtype : GRADIENT_DTYPE[gradients];
}

export interface StateBytes {
  readonly parameter: number;
  readonly gradient: number;
  readonly optimizer: number;
}

/**
 * Bytes by the dtypes of weights and moments, without another copy: both in one, or moments in
 * bfloat16 beside float32 weights (torchtitan's `fused_opt_states_bf16`). Gradients are kept in the
 * dtype of the weights.
 */
export const STATES = {
  fp32: { parameter: 4, gradient: 4, optimizer: 8 },
  bf16: { parameter: 2, gradient: 2, optimizer: 4 },
  'fp32:bf16': { parameter: 4, gradient: 4, optimizer: 4 },
} as const satisfies Readonly<Record<string, StateBytes>>;
export type States = keyof typeof STATES;

const TRAINABLE: ReadonlySet<DType> = new Set<DType>([
  'f64',
  'f32',
  'bf16',
  'f16',
  'f8e4m3fn',
  'f8e5m2',
  'c64',
  'c128',
]);

/**
 * Bytes per parameter element by optimizer: `sgd` keeps one momentum, `adam` two moments, all in
 * the parameter's dtype; `adamw-mixed` keeps a float32 master copy and two float32 moments in
 * addition to narrower weights (for weights of four bytes and more the weights are the master).
 * Elements that cannot have a gradient (integers) carry none. Table: ZeRO (arXiv:1910.02054)
 * section 3, Megatron-LM distributed optimizer.
 *
 * @param gradientDtype dtype in which gradients are kept, default the parameter's (Megatron keeps
 *   float32)
 */
export function stateBytes(
  optimizer: Optimizer,
  dtype: DType,
  gradientDtype: DType = dtype,
): StateBytes {
  const parameter = DTYPE_BYTES[dtype];
  if (optimizer === 'none' || !TRAINABLE.has(dtype))
    return { parameter, gradient: 0, optimizer: 0 };
  const gradient = DTYPE_BYTES[gradientDtype];
  switch (optimizer) {
    case 'sgd':
      return { parameter, gradient, optimizer: parameter };
    case 'adam':
      return { parameter, gradient, optimizer: 2 * parameter };
    case 'adamw-mixed':
      return { parameter, gradient, optimizer: parameter >= 4 ? 2 * parameter : 12 };
  }
}

/**
 * Default optimizer of a model by the dtype of its weights: mixed precision for narrow weights,
 * plain Adam else.
 */
export function defaultOptimizer(dtype: DType): Optimizer {
  return DTYPE_BYTES[dtype] < 4 ? 'adamw-mixed' : 'adam';
}

/**
 * State bytes of one device under ZeRO: stage 1 cuts the optimizer over the data-parallel devices,
 * stage 2 the gradients too, stage 3 the parameters too (the gathered unit of stage 3 is not in
 * here). arXiv:1910.02054, figure 1.
 *
 * @param elements parameter elements of the device before data-parallel sharding
 * @param dataParallel number of data-parallel devices
 */
export function zeroStateBytes(
  state: StateBytes,
  elements: number,
  stage: 0 | 1 | 2 | 3,
  dataParallel: number,
): number {
  const cut = (from: number): number => (stage >= from ? 1 / dataParallel : 1);
  return elements * (state.parameter * cut(3) + state.gradient * cut(2) + state.optimizer * cut(1));
}
