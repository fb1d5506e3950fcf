/** Operations of StableHLO that make, move and rename elements. */

import { ShardwrightError } from '../../../errors.ts';
import { build, fromList, full, NDArray, scalar } from '../../../ndarray/array.ts';
import { cast } from '../../../ndarray/elementwise.ts';
import { normal, uniform } from '../../../ndarray/random.ts';
import { sort } from '../../../ndarray/sort.ts';
import { concat, expand, flip, overwrite, permute, reshape, rows } from '../../../ndarray/views.ts';
import { product } from '../../../product.ts';
import {
  type EvaluatedArg,
  type Kernel,
  type KernelCall,
  type Kernels,
  one,
  resultShape,
  resultType,
  tensor,
  tensors,
} from '../../record/kernel.ts';

const operand = (call: KernelCall): NDArray => tensor(call, 'operand');

/** A literal as a number; undefined where it is none. */
function numberOf(value: EvaluatedArg): number | undefined {
  if (typeof value === 'number') return value;
  if (typeof value === 'boolean') return value ? 1 : 0;
  if (typeof value === 'bigint') return Number(value);
  if (value === null || typeof value !== 'object' || value instanceof NDArray || !('kind' in value))
    return undefined;
  return value.kind === 'float' ? value.value : undefined;
}

const constant: Kernel = one((call) => {
  const value = call.argument('value') ?? null;
  const shape = resultShape(call);
  const single = numberOf(value);
  if (single !== undefined) return cast(full(shape, single), resultType(call));
  const list = Array.isArray(value)
    ? (value as readonly EvaluatedArg[]).map(numberOf)
    : [undefined];
  const numbers = list.filter((v) => v !== undefined);
  if (numbers.length < list.length)
    throw new ShardwrightError(
      'E_NO_KERNEL',
      `${call.ctx.target}: the elements of [${shape.join(', ')}] are not known as numbers`,
      {
        hint: 'long constants are imported as text, which is not evaluated',
      },
    );
  return cast(fromList(shape, numbers), resultType(call));
});

const iota: Kernel = one((call) => {
  const shape = resultShape(call);
  const dim = call.ctx.int('iota_dimension');
  const inner = product(shape.slice(dim + 1));
  return build(shape, (i) => Math.floor(i / inner) % shape[dim], resultType(call));
});

/** Operand dims to their places in the result, sizes of 1 in between, then read repeatedly. */
const broadcastInDim: Kernel = one((call) => {
  const x = operand(call);
  const dims = call.ctx.ints('broadcast_dimensions');
  const order = x.shape.map((_, d) => d).sort((a, b) => dims[a] - dims[b]);
  const shape = resultShape(call);
  const apart = shape.map((_, d) => (dims.includes(d) ? x.shape[dims.indexOf(d)] : 1));
  return expand(reshape(permute(x, order), apart), shape);
});

const slice: Kernel = one((call) => {
  const { ctx } = call;
  const x = operand(call);
  const [start, strides] = [ctx.ints('start_indices'), ctx.ints('strides')];
  return resultShape(call).reduce(
    (view, count, d) => rows(view, d, start[d], count, strides[d] ?? 1),
    x,
  );
});

/** Rows before and after, which may be negative, and between. */
const pad: Kernel = one((call) => {
  const { ctx } = call;
  const [low, inside] = [ctx.ints('edge_padding_low'), ctx.ints('interior_padding')];
  const shape = resultShape(call);
  let x = operand(call);
  const steps = inside.map((n) => n + 1);
  const starts = low.map((n, d) => {
    // Rows that fall before the result, or past it, are cut off first.
    const skipped = n < 0 ? Math.min(Math.ceil(-n / steps[d]), x.shape[d]) : 0;
    const first = n + skipped * steps[d];
    const fit = Math.max(0, Math.ceil((shape[d] - first) / steps[d]));
    x = rows(x, d, skipped, Math.min(x.shape[d] - skipped, fit));
    return first;
  });
  const around = expand(tensor(call, 'padding_value'), shape);
  if (x.size === 0) return around;
  return overwrite(
    around,
    (whole) => starts.reduce((view, s, d) => rows(view, d, s, x.shape[d], steps[d]), whole),
    x,
  );
});

/** Start of each dim, moved so that the window fits. */
function starts(call: KernelCall, shape: readonly number[], window: readonly number[]): number[] {
  const given = tensors(call, 'start_indices');
  return shape.map((size, d) => Math.min(Math.max(given[d]?.item() ?? 0, 0), size - window[d]));
}

const windowAt = (x: NDArray, at: readonly number[], sizes: readonly number[]): NDArray =>
  sizes.reduce((view, count, d) => rows(view, d, at[d], count), x);

const dynamicSlice: Kernel = one((call) => {
  const [x, sizes] = [operand(call), call.ctx.ints('slice_sizes')];
  return windowAt(x, starts(call, x.shape, sizes), sizes);
});

const dynamicUpdateSlice: Kernel = one((call) => {
  const [x, update] = [operand(call), tensor(call, 'update')];
  const at = starts(call, x.shape, update.shape);
  return update.size === 0 ? x : overwrite(x, (whole) => windowAt(whole, at, update.shape), update);
});

const rng: Kernel = one((call) => {
  const [a, b] = [tensor(call, 'a').item(), tensor(call, 'b').item()];
  const shape = resultShape(call);
  if (call.ctx.text('rng_distribution') === 'NORMAL')
    return build(shape, (i) => a + b * normal(call.random, i));
  const drawn = build(shape, (i) => a + (b - a) * uniform(call.random, i));
  return cast(drawn, resultType(call));
});

const same: Kernel = (call) => call.inputs;

export const stablehloShapeKernels: Kernels = {
  'stablehlo.constant': constant,
  'stablehlo.iota': iota,
  'stablehlo.broadcast_in_dim': broadcastInDim,
  'stablehlo.reshape': one((call) => reshape(operand(call), resultShape(call))),
  'stablehlo.transpose': one((call) => permute(operand(call), call.ctx.ints('permutation'))),
  'stablehlo.slice': slice,
  'stablehlo.pad': pad,
  'stablehlo.concatenate': one((call) => concat(call.inputs, call.ctx.int('dimension'))),
  'stablehlo.reverse': one((call) => flip(operand(call), call.ctx.ints('dimensions'))),
  'stablehlo.dynamic_slice': dynamicSlice,
  'stablehlo.dynamic_update_slice': dynamicUpdateSlice,
  'stablehlo.optimization_barrier': same,
  'sdy.sharding_constraint': same,
  'sdy.reshard': same,
  'stablehlo.get_dimension_size': one((call) =>
    scalar(operand(call).shape[call.ctx.int('dimension')], 'i32'),
  ),
  'chlo.top_k': (call) => sort(operand(call), -1, true, call.ctx.int('k')),
  'stablehlo.rng': rng,
};
