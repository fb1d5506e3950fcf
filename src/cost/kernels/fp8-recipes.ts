/**
 * Recipes of training in fp8: the bytes that the casts of a recipe move on a device, the bytes that
 * they leave in memory, the scales that devices agree on, and the states that stay. Products with
 * weights inside the layers take fp8 operands; attention, norms, routers, embedding, head and loss
 * stay in 16 bits, and weights have 16 bits and a float32 master copy. Sources: Transformer Engine
 * 2 (`common/recipe`, `quantization.py`), OCP Microscaling Formats 1.0, DeepSeek-V3
 * (arXiv:2412.19437, section 3.3).
 */

import { defined } from '../../defined.ts';
import type { StateBytes } from '../memory/state-bytes.ts';
import type { Fp8Recipe, StepSoftware } from './software.ts';

/** Bytes of scales for one element. */
const SCALES: Readonly<Record<Fp8Recipe, number>> = {
  delayed: 0,
  current: 0,
  rowwise: 0,
  blockwise: 4 / 128,
  mxfp8: 1 / 32,
  deepseek: 4 / 128,
};

/**
 * Three of the four operands of a plain layer come from a norm or an activation function, whose
 * kernel in vendors' libraries reads and casts at once (`LayerNormLinear`, `LayerNormMLP`). The
 * result of attention is cast by a kernel of its own.
 */
const FUSED_CASTS = 3 / 4;

/** Software that runs its products by a recipe. */
export function inFp8(
  software: StepSoftware,
  recipe: Fp8Recipe,
  accelerator: string,
): StepSoftware {
  const cast = 1 + SCALES[recipe];
  // Scales along the other dim are other scales; and Hopper's products in fp8 read operands along
  // one dim only.
  const twice = SCALES[recipe] > 0 || recipe === 'rowwise' || /^H\d/.test(accelerator);
  const copies = twice ? 2 : 1;
  const reads =
    (recipe === 'current' || recipe === 'rowwise' ? 2 : 1) -
    (software.castWeightsKept ? FUSED_CASTS : 0);
  // The fields of an earlier recipe are dropped.
  const { fp8Recipe: _, largest: _l, sentBytes: _s, gatheredBytes: _g, ...plain } = software;
  const state: Partial<StateBytes> | undefined =
    recipe === 'deepseek' ? { parameter: 2, gradient: 4, optimizer: 8 } : software.state;
  return {
    ...plain,
    fp8Recipe: recipe,
    narrowUnit: 'fp8',
    narrowCastBytes: 2 * reads + copies * cast,
    savedOperandBytes: cast,
    ...(recipe === 'rowwise' ? {} : { gatheredBytes: cast }),
    keptWeightBytes: software.castWeightsKept ? copies * cast : 0,
    ...(recipe === 'delayed'
      ? { largest: 'step' }
      : recipe === 'current'
        ? { largest: 'tensor' }
        : {}),
    ...(recipe === 'deepseek' ? { sentBytes: cast } : {}),
    ...defined({ state }),
  };
}

/** Bytes of an element in NVFP4: 4 bits, and a scale of 8 bits for 16 elements. */
export const FP4_BYTES = 9 / 16;

/**
 * Software that runs its products in NVFP4 (Transformer Engine 2, `NVFP4BlockScaling`). None of
 * them overlaps with tensor-parallel collectives (`tp_comm_overlap = False` for it in
 * Megatron-Bridge).
 */
export function inFp4(software: StepSoftware): StepSoftware {
  const { fp8Recipe: _, largest: _l, sentBytes: _s, gatheredBytes: _g, ...plain } = software;
  return { ...plain, narrowUnit: 'fp4', savedOperandBytes: FP4_BYTES, tensorOverlap: 0 };
}

/**
 * The recipe that trainers use where none is named: scales of small blocks where products read
 * them, else the scale of a tensor's present values.
 */
export function defaultRecipe(accelerator: string): Fp8Recipe {
  return /^(B|GB)\d/.test(accelerator) ? 'mxfp8' : 'current';
}

/**
 * One sentence on the assumed behaviour of software in fp8 or fp4; undefined where it runs nothing
 * so.
 */
export function narrowText(software: StepSoftware | undefined): string | undefined {
  if (software?.narrowUnit === 'fp4')
    return (
      'Products with weights in the layers run in NVFP4: a cast moves ' +
      `${software.narrowCastBytes} B an element, 0.56 B are kept for the backward pass; all else ` +
      'stays in 16 bits.'
    );
  if (software?.fp8Recipe === undefined) return undefined;
  const {
    fp8Recipe,
    narrowCastBytes,
    savedOperandBytes = 2,
    keptWeightBytes = 0,
    gatheredBytes,
    largest,
    sentBytes,
    state,
  } = software;
  const bytes = (n: number): string => `${Number(n.toFixed(2))} B`;
  const agreed = { step: 'once a step', tensor: 'at every cast over tp', none: 'nowhere' }[
    largest ?? 'none'
  ];
  return [
    `Products with weights in the layers run in fp8 (${fp8Recipe}): a cast moves ` +
      `${bytes(narrowCastBytes)} an element, ${bytes(savedOperandBytes)} are kept for the ` +
      `backward pass, cast weights take ${bytes(keptWeightBytes)} besides`,
    'tensor-parallel ranks gather their operands in ' +
      `${gatheredBytes === undefined ? '16 bits' : 'fp8'}, tokens go to experts in ` +
      `${sentBytes === undefined ? '16 bits' : 'fp8'}, devices agree on largest values ` +
      `${agreed}`,
    'all else stays in 16 bits, master copies in float32, moments ' +
      `${state?.optimizer === 8 ? 'in bf16' : 'as the optimizer has them'}.`,
  ].join('; ');
}
