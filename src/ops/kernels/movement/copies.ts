/**
 * Copies, aliases and conversions. Arrays are values, so a copy is the array itself; floating-point
 * types are not rounded.
 */

import { contiguous, type NDArray } from '../../../ndarray/array.ts';
import { cast } from '../../../ndarray/elementwise.ts';
import { expand } from '../../../ndarray/views.ts';
import {
  type KernelCall,
  type Kernels,
  named,
  one,
  resultType,
  tensor,
} from '../../record/kernel.ts';

const same = one((call) => call.inputs[0]);
const converted = one((call: KernelCall): NDArray => cast(call.inputs[0], resultType(call)));

export const copyKernels: Kernels = {
  ...named(
    'clone.default detach_copy.default alias_copy.default lift_fresh_copy.default ' +
      'detach.default detach_.default ' +
      'alias.default lift_fresh.default',
    same,
  ),
  ...named(
    'contiguous.default',
    one((call) => contiguous(call.inputs[0])),
  ),
  ...named(
    '_to_copy.default to.dtype to.device to.dtype_layout type_as.default float.default ' +
      'double.default half.default ' +
      'bfloat16.default long.default int.default bool.default',
    converted,
  ),
  'prims.convert_element_type.default': converted,
  ...named(
    'copy_.default copy.default fill.Tensor fill_.Tensor',
    one((call) => cast(expand(call.inputs[1], tensor(call, 'self').shape), resultType(call))),
  ),
};
