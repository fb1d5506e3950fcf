/** Gives the kernel of an operator by its canonical name. */

import { internalError } from '../../errors.ts';
import type { Kernel, Kernels } from '../record/kernel.ts';
import { activationBackwardKernels } from './elementwise/activation-backward.ts';
import { binaryKernels } from './elementwise/binary.ts';
import { unaryKernels } from './elementwise/unary.ts';
import { copyKernels } from './movement/copies.ts';
import { factoryKernels } from './movement/factory.ts';
import { indexingKernels } from './movement/indexing.ts';
import { manipulateKernels } from './movement/manipulate.ts';
import { randomKernels } from './movement/random.ts';
import { viewKernels } from './movement/view.ts';
import { attentionKernels } from './products/attention.ts';
import { flexAttentionKernels } from './products/flex-attention.ts';
import { productKernels } from './products/product.ts';
import { varlenAttentionKernels } from './products/varlen-attention.ts';
import { lossKernels } from './reductions/loss.ts';
import { normKernels } from './reductions/norm.ts';
import { poolKernels } from './reductions/pool.ts';
import { reductionKernels } from './reductions/reduction.ts';
import { softmaxKernels } from './reductions/softmax.ts';
import { stablehloBitKernels } from './stablehlo/bits.ts';
import { stablehloBodyKernels } from './stablehlo/bodies.ts';
import { stablehloElementwiseKernels } from './stablehlo/elementwise.ts';
import { stablehloIndexingKernels } from './stablehlo/indexing.ts';
import { stablehloProductKernels } from './stablehlo/products.ts';
import { stablehloShapeKernels } from './stablehlo/shapes.ts';

/** Float64 kernels by canonical operator name. */
const FAMILIES: readonly Kernels[] = [
  unaryKernels,
  binaryKernels,
  activationBackwardKernels,
  copyKernels,
  reductionKernels,
  softmaxKernels,
  lossKernels,
  normKernels,
  productKernels,
  poolKernels,
  attentionKernels,
  flexAttentionKernels,
  varlenAttentionKernels,
  indexingKernels,
  viewKernels,
  manipulateKernels,
  factoryKernels,
  randomKernels,
  stablehloElementwiseKernels,
  stablehloShapeKernels,
  stablehloProductKernels,
  stablehloIndexingKernels,
  stablehloBodyKernels,
  stablehloBitKernels,
];

/** All kernels, by the canonical name of their operator with overload (`aten.mm.default`). */
export const KERNELS = new Map<string, Kernel>();
for (const family of FAMILIES)
  for (const [name, kernel] of Object.entries(family)) {
    if (KERNELS.has(name)) throw internalError(`two kernels for ${name}`);
    KERNELS.set(name, kernel);
  }

/** The kernel of an operator, by its canonical name with overload (`aten.mm.default`). */
export function kernelOf(name: string): Kernel | undefined {
  return KERNELS.get(name);
}
