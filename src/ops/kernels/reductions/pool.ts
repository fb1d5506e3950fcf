/**
 * Pooling over the last two or three dims: windows of rows along each of them, each with its own
 * divisor for averages.
 */

import { flat, fromFlat, type NDArray, sizeOf } from '../../../ndarray/array.ts';
import {
  type Kernel,
  type KernelCall,
  type Kernels,
  one,
  resultShape,
  tensor,
  valueError,
} from '../../record/kernel.ts';

/** The rows of one dim that one result row sees. */
interface Window {
  readonly rows: readonly number[];
  /** Rows that count for an average, padding included where the call says so. */
  readonly counted: number;
}

/**
 * Windows that one result element sees, as positions in an image of `dims` spatial dims, and its
 * divisor.
 */
interface Cell {
  readonly at: readonly number[];
  readonly divisor: number;
}

const spread = (values: readonly number[], dims: number): readonly number[] =>
  Array.from({ length: dims }, (_, d) => values[d] ?? values[0]);

const run = (start: number, end: number, step = 1): number[] =>
  Array.from({ length: Math.max(0, Math.ceil((end - start) / step)) }, (_, i) => start + i * step);

/** Windows of the spatial dims of `image` as the call states them. */
function fixedWindows(
  { ctx }: KernelCall,
  image: readonly number[],
  out: readonly number[],
  average: boolean,
): Window[][] {
  const dims = image.length;
  const kernel = spread(ctx.ints('kernel_size'), dims);
  const stated = ctx.ints('stride');
  const stride = stated.length === 0 ? kernel : spread(stated, dims);
  const padding = spread(ctx.ints('padding'), dims);
  const dilation = average ? spread([1], dims) : spread(ctx.ints('dilation'), dims);
  const includePad = average && ctx.bool('count_include_pad');
  return image.map((size, d) =>
    Array.from({ length: out[d] }, (_, o): Window => {
      const first = o * stride[d] - padding[d];
      const start = first < 0 ? first + Math.ceil(-first / dilation[d]) * dilation[d] : first;
      const rows = run(
        start,
        Math.min(first + (kernel[d] - 1) * dilation[d] + 1, size),
        dilation[d],
      );
      return {
        rows,
        counted: includePad ? Math.min(first + kernel[d], size + padding[d]) - first : rows.length,
      };
    }),
  );
}

/** Windows of adaptive pooling share the input out as evenly as whole rows allow. */
function adaptiveWindows(
  _: KernelCall,
  image: readonly number[],
  out: readonly number[],
): Window[][] {
  return image.map((size, d) =>
    Array.from({ length: out[d] }, (_w, o): Window => {
      const rows = run(Math.floor((o * size) / out[d]), Math.ceil(((o + 1) * size) / out[d]));
      return { rows, counted: rows.length };
    }),
  );
}

/** Products of the windows of every dim, in the order of the results. */
function cells(windows: readonly (readonly Window[])[], image: readonly number[]): Cell[] {
  let found: Cell[] = [{ at: [0], divisor: 1 }];
  windows.forEach((along, d) => {
    found = found.flatMap(({ at, divisor }) =>
      along.map((w) => ({
        at: at.flatMap((p) => w.rows.map((r) => p * image[d] + r)),
        divisor: divisor * w.counted,
      })),
    );
  });
  return found;
}

/**
 * Position and value of the largest element of a window; the last NaN wins, the first of equals.
 */
function largest(
  data: Float64Array,
  plane: number,
  at: readonly number[],
): readonly [at: number, value: number] {
  let [best, value] = [at[0] ?? 0, -Infinity];
  for (const p of at) {
    const v = data[plane + p];
    if (v > value || Number.isNaN(v)) [best, value] = [p, v];
  }
  return [best, value];
}

type Windows = typeof adaptiveWindows;
type Divisor = (call: KernelCall) => number | undefined;

const maxWindows: Windows = (call, image, out) => fixedWindows(call, image, out, false);
const averageWindows: Windows = (call, image, out) => fixedWindows(call, image, out, true);

/** Largest values and their places in the image; `windowsOf` gives the cells of one plane. */
function maxima(
  call: KernelCall,
  dims: number,
  cellsOf: (image: readonly number[], out: readonly number[], plane: number) => readonly Cell[],
): [NDArray, NDArray] {
  const x = tensor(call, 'self');
  const shape = resultShape(call);
  const image = x.shape.slice(-dims);
  const data = flat(x);
  const [values, indices] = [new Float64Array(sizeOf(shape)), new Float64Array(sizeOf(shape))];
  let k = 0;
  for (let p = 0; p < sizeOf(x.shape.slice(0, -dims)); p++)
    for (const { at } of cellsOf(image, shape.slice(-dims), p)) {
      const [best, value] = largest(data, p * sizeOf(image), at);
      values[k] = value;
      indices[k++] = best;
    }
  return [fromFlat(shape, values, x.dtype), fromFlat(shape, indices, 'i64')];
}

const maxPool =
  (dims: number, windows: Windows): ((call: KernelCall) => [NDArray, NDArray]) =>
  (call) => {
    let made: readonly Cell[] | undefined;
    return maxima(call, dims, (image, out) => (made ??= cells(windows(call, image, out), image)));
  };

/**
 * Starts of windows that a random number between 0 and 1 shifts, as ATen's `generate_intervals`
 * places them.
 */
function fractionalStarts(sample: number, size: number, out: number, kernel: number): number[] {
  const step = out > 1 ? (size - kernel) / (out - 1) : 0;
  return Array.from({ length: out }, (_, i) =>
    i === out - 1 ? size - kernel : Math.trunc((i + sample) * step) - Math.trunc(sample * step),
  );
}

/** Every plane has windows of its own. */
const fractional =
  (dims: number): Kernel =>
  (call) => {
    const samples = flat(tensor(call, 'random_samples'));
    const kernel = spread(call.ctx.ints('kernel_size'), dims);
    return maxima(call, dims, (image, out, plane) => {
      // In two dims the first number is that of the columns.
      const number = (d: number): number => samples[plane * dims + (dims === 2 ? 1 - d : d)];
      const windows = image.map((size, d) =>
        fractionalStarts(number(d), size, out[d], kernel[d]).map((s) => ({
          rows: run(s, s + kernel[d]),
          counted: kernel[d],
        })),
      );
      return cells(windows, image);
    });
  };

/**
 * Values put where their indices say in images of the size of the result; of several for one place
 * the last.
 */
function placed(
  call: KernelCall,
  values: NDArray,
  shape: readonly number[],
  dims: number,
  adds: boolean,
): NDArray {
  const indices = flat(tensor(call, 'indices'));
  const area = sizeOf(shape.slice(-dims));
  const per = sizeOf(values.shape.slice(-dims));
  const out = new Float64Array(sizeOf(shape));
  flat(values).forEach((v, i) => {
    const at = indices[i];
    if (at < 0 || at >= area)
      valueError(call, `index ${at} is outside of an image of ${area} elements`);
    const place = Math.floor(i / per) * area + at;
    out[place] = adds ? out[place] + v : v;
  });
  return fromFlat(shape, out, values.dtype);
}

const maxBackward = (dims: number): Kernel =>
  one((call) => placed(call, tensor(call, 'grad_output'), tensor(call, 'self').shape, dims, true));
const unpool = (dims: number): Kernel =>
  one((call) => placed(call, tensor(call, 'self'), resultShape(call), dims, false));

/** Calls back for every element that a result element reads. */
function averaged(
  call: KernelCall,
  dims: number,
  [windows, divisor]: readonly [Windows, Divisor],
  [shape, pooled]: readonly [readonly number[], readonly number[]],
  visit: (result: number, position: number, divisor: number) => void,
): void {
  const image = shape.slice(-dims);
  const made = cells(windows(call, image, pooled.slice(-dims)), image);
  const override = divisor(call);
  let k = 0;
  for (let p = 0; p < sizeOf(shape.slice(0, -dims)); p++)
    for (const cell of made) {
      for (const at of cell.at) visit(k, p * sizeOf(image) + at, override ?? cell.divisor);
      k++;
    }
}

const average = (dims: number, ...how: readonly [Windows, Divisor]): Kernel =>
  one((call) => {
    const x = tensor(call, 'self');
    const shape = resultShape(call);
    const [data, out] = [flat(x), new Float64Array(sizeOf(shape))];
    averaged(call, dims, how, [x.shape, shape], (k, at, divisor) => (out[k] += data[at] / divisor));
    return fromFlat(shape, out);
  });

const averageBackward = (dims: number, ...how: readonly [Windows, Divisor]): Kernel =>
  one((call) => {
    const [grad, self] = [tensor(call, 'grad_output'), tensor(call, 'self')];
    const [data, out] = [flat(grad), new Float64Array(self.size)];
    averaged(
      call,
      dims,
      how,
      [self.shape, grad.shape],
      (k, at, divisor) => (out[at] += data[k] / divisor),
    );
    return fromFlat(self.shape, out);
  });

const given: Divisor = (call) => call.ctx.optionalInt('divisor_override');
const none: Divisor = () => undefined;

const family = (dims: number): Kernels => ({
  [`aten.max_pool${dims}d.default`]: one((call) => maxPool(dims, maxWindows)(call)[0]),
  [`aten.max_pool${dims}d_with_indices.default`]: maxPool(dims, maxWindows),
  [`aten.max_pool${dims}d_with_indices_backward.default`]: maxBackward(dims),
  [`aten.adaptive_max_pool${dims}d_backward.default`]: maxBackward(dims),
  [`aten.fractional_max_pool${dims}d_backward.default`]: maxBackward(dims),
  [`aten.max_unpool${dims}d.default`]: unpool(dims),
  [`aten.fractional_max_pool${dims}d.default`]: fractional(dims),
  [`aten.avg_pool${dims}d.default`]: average(dims, averageWindows, given),
  [`aten.avg_pool${dims}d_backward.default`]: averageBackward(dims, averageWindows, given),
  [`aten.adaptive_max_pool${dims}d.default`]: maxPool(dims, adaptiveWindows),
  [`aten.adaptive_avg_pool${dims}d.default`]: average(dims, adaptiveWindows, none),
  [`aten._adaptive_avg_pool${dims}d.default`]: average(dims, adaptiveWindows, none),
  [`aten._adaptive_avg_pool${dims}d_backward.default`]: averageBackward(
    dims,
    adaptiveWindows,
    none,
  ),
});

export const poolKernels: Kernels = { ...family(2), ...family(3) };
