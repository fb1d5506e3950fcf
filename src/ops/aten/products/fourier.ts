/**
 * Discrete Fourier transforms over some dims: these are whole, every other dim is a batch, and the
 * transform is linear. Source: the kernels behind `torch.fft`.
 */

import { byParts } from '../../../ndarray/complex.ts';
import { scale } from '../../../ndarray/elementwise.ts';
import { fourier } from '../../../ndarray/fourier.ts';
import { permute } from '../../../ndarray/views.ts';
import { product } from '../../../product.ts';
import { one, resultType, tensor } from '../../record/kernel.ts';
import {
  defineOp,
  elements,
  type OpContext,
  type OperatorRecord,
  type TensorMeta,
} from '../../record/record.ts';
import { linearKinds, need, normalDim, untouched } from '../../rules/dims.ts';

const WHOLE = { f32: 'c64', f64: 'c128' } as const;
const PARTS = { c64: 'f32', c128: 'f64' } as const;

function dimsOf(ctx: OpContext): number[] {
  const rank = need(ctx, 'self').shape.length;
  return ctx.ints('dim').map((d) => normalDim(ctx, d, rank));
}

/** The factors of a transform of `n` numbers by their code: none, the root of `n`, and `n`. */
const NORMS = [
  (): number => 1,
  (n: number): number => 1 / Math.sqrt(n),
  (n: number): number => 1 / n,
];

interface Transform {
  readonly schema: string;
  readonly infer: (ctx: OpContext, x: TensorMeta, last: number) => TensorMeta;
  /** The transform of the last dims, as `fourier` names it. */
  readonly kind: (ctx: OpContext) => string;
  readonly samples: readonly string[];
}

function transform(name: string, spec: Transform): OperatorRecord {
  const result = (ctx: OpContext): TensorMeta =>
    spec.infer(ctx, need(ctx, 'self'), dimsOf(ctx).at(-1) ?? 0);
  /** Sizes of the transformed dims in time. */
  const lengths = (ctx: OpContext): number[] => {
    const [x, out] = [need(ctx, 'self'), result(ctx)];
    return dimsOf(ctx).map((d) => (name === 'aten._fft_c2r.default' ? out : x).shape[d]);
  };
  return defineOp(name, {
    schema: spec.schema,
    cls: 'other',
    infer: (ctx) => [result(ctx)],
    shard: (ctx) => untouched(ctx, dimsOf(ctx), linearKinds(ctx.inputs[0].dtype)),
    flops: (ctx) => ({
      matrix: 0,
      vector: 5 * elements(need(ctx, 'self').shape) * Math.max(1, Math.log2(product(lengths(ctx)))),
    }),
    kernel: one((call) => {
      const { ctx } = call;
      const x = tensor(call, 'self');
      const dims = dimsOf(ctx);
      const order = [...x.shape.keys()].filter((d) => !dims.includes(d)).concat(dims);
      const sizes = lengths(ctx);
      const n = product(sizes);
      const kind = spec.kind(ctx);
      // The inverse transforms of `fourier` divide by the count of numbers.
      const factor = NORMS[ctx.int('normalization')](n) * (kind.startsWith('I') ? n : 1);
      const last = byParts([x], ([part]) => permute(part, order));
      const made = fourier(last, kind, sizes, resultType(call));
      const back = order.map((_, d) => order.indexOf(d));
      return byParts([made], ([part]) => scale(permute(part, back), factor));
    }),
    samples: spec.samples,
  });
}

export const fourierOps: readonly OperatorRecord[] = [
  transform('aten._fft_r2c.default', {
    schema: 'Tensor self, int[] dim, int normalization, bool onesided',
    infer: (ctx, { dtype, shape }, last) => ({
      dtype: WHOLE[dtype as 'f32'] ?? ctx.fail(`transforms f32 and f64, not ${dtype}`),
      shape: shape.map((n, d) => (d === last && ctx.bool('onesided') ? Math.floor(n / 2) + 1 : n)),
    }),
    kind: (ctx) => (ctx.bool('onesided') ? 'RFFT' : 'FFT'),
    samples: ['x[6,5,4], [2], 0, True', 'x[5,4,6], [2,1], 1, False', 'x[5,6], [0], 2, True'],
  }),
  transform('aten._fft_c2r.default', {
    schema: 'Tensor self, int[] dim, int normalization, int last_dim_size',
    infer: (ctx, { dtype, shape }, last) => {
      const size = ctx.int('last_dim_size');
      // The kernels of PyTorch read half of a symmetric spectrum.
      const half = Math.floor(size / 2) + 1;
      if (shape[last] !== half && shape[last] !== size)
        ctx.fail(`${size} numbers are made of ${half} complex ones, not of ${shape[last]}`);
      return {
        dtype: PARTS[dtype as 'c64'] ?? ctx.fail(`transforms c64 and c128, not ${dtype}`),
        shape: shape.map((n, d) => (d === last ? size : n)),
      };
    },
    kind: () => 'IRFFT',
    samples: ['c128[6,5,3], [2], 2, 4', 'c128[5,3,6], [2,1], 0, 5'],
  }),
  transform('aten._fft_c2c.default', {
    schema: 'Tensor self, int[] dim, int normalization, bool forward',
    infer: (_, x) => x,
    kind: (ctx) => (ctx.bool('forward') ? 'FFT' : 'IFFT'),
    samples: ['c128[6,5,4], [2], 0, True', 'c128[5,4,6], [1,0], 1, False'],
  }),
];
