import { flat, fromFlat, sizeOf, type NDArray } from '../../ndarray/array.ts';
import { one, resultShape, tensor, valueError, type Kernel, type KernelCall, type Kernels } from './kernel.ts';

/** Pooling over the last two dims: windows of rows and columns, each with its own divisor for averages. */

type Pair = readonly [number, number];
const pair = (values: readonly number[]): Pair => [values[0], values[1] ?? values[0]];

/** A run of rows (or columns) of the input that one result row sees. */
interface Window {
  readonly start: number;
  readonly end: number;
  readonly step: number;
  /** Rows that count for an average, padding included where the call says so. */
  readonly counted: number;
}

interface Settings {
  readonly kernel: Pair;
  readonly stride: Pair;
  readonly padding: Pair;
  readonly dilation: Pair;
}

function settings({ ctx }: KernelCall, dilated: boolean): Settings {
  const kernel = pair(ctx.ints('kernel_size'));
  const stride = ctx.ints('stride');
  return {
    kernel,
    stride: stride.length === 0 ? kernel : pair(stride),
    padding: pair(ctx.ints('padding')),
    dilation: dilated ? pair(ctx.ints('dilation')) : [1, 1],
  };
}

/** Windows of one dim: `size` rows of input, `out` rows of results. */
function windows(s: Settings, d: 0 | 1, size: number, out: number, includePad: boolean): Window[] {
  const [k, stride, padding, step] = [s.kernel[d], s.stride[d], s.padding[d], s.dilation[d]];
  return Array.from({ length: out }, (_, o) => {
    const first = o * stride - padding;
    const start = first < 0 ? first + Math.ceil(-first / step) * step : first;
    const end = Math.min(first + (k - 1) * step + 1, size);
    const counted = includePad ? Math.min(first + k, size + padding) - first : Math.max(0, end - start);
    return { start, end, step, counted };
  });
}

/** Windows of adaptive pooling share the input out as evenly as whole rows allow. */
function adaptiveWindows(size: number, out: number): Window[] {
  return Array.from({ length: out }, (_, o) => {
    const [start, end] = [Math.floor((o * size) / out), Math.ceil(((o + 1) * size) / out)];
    return { start, end, step: 1, counted: end - start };
  });
}

interface Planes {
  readonly count: number;
  readonly height: number;
  readonly width: number;
}

function planes(shape: readonly number[]): Planes {
  const [height, width] = shape.slice(-2);
  return { count: sizeOf(shape.slice(0, -2)), height, width };
}

function maxPool(call: KernelCall): [NDArray, NDArray] {
  const x = tensor(call, 'self');
  const shape = resultShape(call);
  const s = settings(call, true);
  const [image, out] = [planes(x.shape), planes(shape)];
  const data = flat(x);
  const tall = windows(s, 0, image.height, out.height, false);
  const wide = windows(s, 1, image.width, out.width, false);
  const [values, indices] = [new Float64Array(sizeOf(shape)), new Float64Array(sizeOf(shape))];
  let k = 0;
  for (let p = 0; p < image.count; p++) {
    const plane = p * image.height * image.width;
    for (const rows of tall)
      for (const columns of wide) {
        let best = rows.start * image.width + columns.start;
        let value = -Infinity;
        for (let i = rows.start; i < rows.end; i += rows.step)
          for (let j = columns.start; j < columns.end; j += columns.step) {
            const v = data[plane + i * image.width + j];
            if (v > value || Number.isNaN(v)) {
              value = v;
              best = i * image.width + j;
            }
          }
        values[k] = value;
        indices[k++] = best;
      }
  }
  return [fromFlat(shape, values, x.dtype), fromFlat(shape, indices, 'i64')];
}

const maxPoolBackward: Kernel = one((call) => {
  const [grad, self, indices] = [tensor(call, 'grad_output'), tensor(call, 'self'), flat(tensor(call, 'indices'))];
  const image = planes(self.shape);
  const area = image.height * image.width;
  const per = grad.size / Math.max(1, image.count);
  const out = new Float64Array(self.size);
  flat(grad).forEach((g, i) => {
    const at = indices[i];
    if (at < 0 || at >= area) valueError(call, `index ${at} is outside of an image of ${area} elements`);
    out[Math.floor(i / per) * area + at] += g;
  });
  return fromFlat(self.shape, out);
});

/** Calls back for every window: result position, first element of the image plane, windows and divisor. */
function average(
  image: Planes,
  tall: readonly Window[],
  wide: readonly Window[],
  override: number | undefined,
  visit: (result: number, position: number, divisor: number) => void,
): void {
  let k = 0;
  for (let p = 0; p < image.count; p++)
    for (const rows of tall)
      for (const columns of wide) {
        const divisor = override ?? rows.counted * columns.counted;
        for (let i = rows.start; i < rows.end; i++)
          for (let j = columns.start; j < columns.end; j++) visit(k, (p * image.height + i) * image.width + j, divisor);
        k++;
      }
}

type Windows = (call: KernelCall, image: Planes, out: Planes) => readonly [Window[], Window[]];

const fixedWindows: Windows = (call, image, out) => {
  const s = settings(call, false);
  const includePad = call.ctx.bool('count_include_pad');
  return [windows(s, 0, image.height, out.height, includePad), windows(s, 1, image.width, out.width, includePad)];
};
const adaptive: Windows = (_, image, out) => [
  adaptiveWindows(image.height, out.height),
  adaptiveWindows(image.width, out.width),
];

const averagePool = (choose: Windows, override: (call: KernelCall) => number | undefined): Kernel =>
  one((call) => {
    const x = tensor(call, 'self');
    const shape = resultShape(call);
    const image = planes(x.shape);
    const [tall, wide] = choose(call, image, planes(shape));
    const [data, out] = [flat(x), new Float64Array(sizeOf(shape))];
    average(image, tall, wide, override(call), (k, at, divisor) => (out[k] += data[at] / divisor));
    return fromFlat(shape, out);
  });

const averageBackward = (choose: Windows, override: (call: KernelCall) => number | undefined): Kernel =>
  one((call) => {
    const [grad, self] = [tensor(call, 'grad_output'), tensor(call, 'self')];
    const image = planes(self.shape);
    const [tall, wide] = choose(call, image, planes(grad.shape));
    const [data, out] = [flat(grad), new Float64Array(self.size)];
    average(image, tall, wide, override(call), (k, at, divisor) => (out[at] += data[k] / divisor));
    return fromFlat(self.shape, out);
  });

const given = (call: KernelCall): number | undefined => call.ctx.optionalInt('divisor_override');
const none = (): undefined => undefined;

export const poolKernels: Kernels = {
  'aten.max_pool2d.default': one((call) => maxPool(call)[0]),
  'aten.max_pool2d_with_indices.default': maxPool,
  'aten.max_pool2d_with_indices_backward.default': maxPoolBackward,
  'aten.avg_pool2d.default': averagePool(fixedWindows, given),
  'aten.avg_pool2d_backward.default': averageBackward(fixedWindows, given),
  'aten.adaptive_avg_pool2d.default': averagePool(adaptive, none),
  'aten._adaptive_avg_pool2d.default': averagePool(adaptive, none),
  'aten._adaptive_avg_pool2d_backward.default': averageBackward(adaptive, none),
};
