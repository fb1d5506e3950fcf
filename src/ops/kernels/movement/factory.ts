/** Kernels of calls that make arrays from nothing. */

import { build, full, kindOf, type NDArray } from '../../../ndarray/array.ts';
import { bitsOf, cast } from '../../../ndarray/elementwise.ts';
import {
  constant,
  type Kernel,
  type KernelCall,
  type Kernels,
  named,
  one,
  resultShape,
  resultType,
} from '../../record/kernel.ts';

const filled = (argument: string): Kernel =>
  one((call) => constant(call, call.ctx.number(argument)));

/**
 * A value that must not be read: NaN in floats, the largest value in integers, true. A program
 * whose results depend on it shows that, where zeros would hide it.
 */
const unset: Kernel = one((call) => {
  const dtype = resultType(call);
  const kind = kindOf(dtype);
  const value = kind === 'float' ? NaN : kind === 'bool' ? 1 : largest(dtype);
  return full(resultShape(call), value, dtype);
});

function largest(dtype: NDArray['dtype']): number {
  const bits = bitsOf(dtype);
  if (bits === 64) return Number.MAX_SAFE_INTEGER;
  return dtype.startsWith('i') ? 2 ** (bits - 1) - 1 : 2 ** bits - 1;
}

/** Counts from `start`; integer results take whole steps. */
const range = (start: (call: KernelCall) => number, step: (call: KernelCall) => number): Kernel =>
  one((call) => {
    const dtype = resultType(call);
    const whole = kindOf(dtype) === 'integer';
    const [first, by] = [start(call), step(call)].map((v) => (whole ? Math.trunc(v) : v));
    return build(resultShape(call), (i) => first + i * by, dtype);
  });

/** From both ends to the middle, so that both are exact. */
const linspace: Kernel = one((call) => {
  const { ctx } = call;
  const [start, end, steps] = [ctx.number('start'), ctx.number('end'), ctx.int('steps')];
  const by = steps > 1 ? (end - start) / (steps - 1) : 0;
  const points = build([steps], (i) =>
    i < Math.floor(steps / 2) || steps === 1 ? start + i * by : end - (steps - 1 - i) * by,
  );
  return cast(points, resultType(call));
});

/** Ones on the diagonal. */
const eye: Kernel = one((call) => {
  const shape = resultShape(call);
  return build(shape, (i) => (Math.floor(i / shape[1]) === i % shape[1] ? 1 : 0), resultType(call));
});

const number =
  (name: string) =>
  ({ ctx }: KernelCall): number =>
    ctx.number(name);

export const factoryKernels: Kernels = {
  ...named(
    'zeros.default zeros_like.default zero_.default new_zeros.default',
    one((call) => constant(call, 0)),
  ),
  ...named(
    'ones.default ones_like.default new_ones.default',
    one((call) => constant(call, 1)),
  ),
  ...named(
    'empty.memory_format empty_strided.default empty_like.default new_empty.default ' +
      'new_empty_strided.default',
    unset,
  ),
  ...named('full.default full_like.default new_full.default', filled('fill_value')),
  ...named('fill.Scalar fill_.Scalar', filled('value')),
  'aten.scalar_tensor.default': filled('s'),
  'aten.arange.default': range(
    () => 0,
    () => 1,
  ),
  'aten.arange.start': range(number('start'), () => 1),
  'aten.arange.start_step': range(number('start'), number('step')),
  'aten.linspace.default': linspace,
  ...named('eye.default eye.m', eye),
  'prims.iota.default': range(number('start'), number('step')),
};
