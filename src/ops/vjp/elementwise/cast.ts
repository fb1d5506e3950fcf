/** Derivatives of casts between element types. */

import { named, type Vjp, type Vjps } from '../vjp.ts';

/** Casts and copies. The gradient is cast back by whoever asks for it. */
const through: Vjp = (c) => ({ self: () => c.g(), other: () => null });

export const castVjps: Vjps = {
  ...named('_to_copy.default to.dtype to.device to.dtype_layout type_as.default', through),
  ...named('float.default double.default half.default bfloat16.default', through),
  'prims.convert_element_type.default': (c) => ({ a: () => c.g() }),
  ...named('copy.default', (c) => ({ self: () => null, src: () => c.g() })),
  ...named('fill.Tensor', (c) => ({ self: () => null, value: () => c.g() })),
};
