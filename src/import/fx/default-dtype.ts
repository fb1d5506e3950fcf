/**
 * Calls that make a tensor without operands and name no dtype have PyTorch's default dtype of the
 * time (`torch.set_default_dtype`), which a text tells by its annotations alone. Written into the
 * call, the dtype is the same wherever the program runs.
 */
import { ShardwrightError } from '../../errors.ts';
import type { Arg } from '../../graph/types.ts';
import { eachOperand, sameType } from '../../graph/value.ts';
import type { Infer } from '../complete/infer.ts';
import type { FxNode } from './record.ts';

const NO_OPERANDS = (name: string): never => {
  throw new RangeError(`internal: ${name} is read by a call without operands`);
};

/** The call with the dtype that its annotation states, where the default dtype explains it. */
export function withDefaultDtype(draft: FxNode, infer: Infer | undefined): FxNode {
  const { kind, kwargs, type } = draft;
  if (infer === undefined || kind !== 'call' || type?.kind !== 'tensor') return draft;
  // Rules compute with the usual default, float32.
  if (type.dtype === 'f32' || !/^b?f\d/.test(type.dtype)) return draft;
  if ((kwargs.dtype ?? null) !== null || hasOperands(draft)) return draft;
  const dtype: Arg = { kind: 'dtype', dtype: type.dtype };
  const stated: FxNode = { ...draft, kwargs: { ...kwargs, dtype } };
  try {
    const made = infer(stated, NO_OPERANDS);
    return made !== undefined && sameType(type, made) ? stated : draft;
  } catch (error) {
    // What is wrong with the call itself is told where it is typed as it is written.
    if (error instanceof ShardwrightError) return draft;
    throw error;
  }
}

function hasOperands(draft: FxNode): boolean {
  let found = false;
  eachOperand(draft, () => (found = true));
  return found;
}
