/**
 * Defines the facts that tracing knows about a tensor (shape, dtype), and prints them for messages.
 */

import type { Dim, DType, TensorType } from '../../graph/types.ts';
import { type Size, sizeText } from '../sizes/sizes.ts';

/** The facts about a tensor value while tracing. */
export interface TypedValue {
  /** Name of its node. */
  readonly name: string;
  readonly dtype: DType;
  /** Sizes with their expressions. */
  readonly shape: readonly Size[];
  /** The same as the graph has it. */
  readonly type: TensorType;
  readonly requiresGrad: boolean;
  /** The place where the program made it. */
  readonly source: string | undefined;
}

/** `f32[s0, 128]`. */
export function valueText({ dtype, shape }: Pick<TypedValue, 'dtype' | 'shape'>): string {
  return `${dtype}[${shape.map(sizeText).join(', ')}]`;
}

/** A size as the graph has it: the text of its expression and its example. */
export function plainDim(size: Size): Dim {
  return typeof size === 'number' ? size : { sym: size.sym, example: size.example };
}

/** Tells whether values of this dtype have gradients. */
export function isFloating(dtype: DType): boolean {
  return /^(f|bf|c)\d/.test(dtype);
}
