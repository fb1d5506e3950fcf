/** Kernels of matrix products and convolutions on arrays. */

import { flat, full, type NDArray } from '../../../ndarray/array.ts';
import { type Geometry, toLarge, toSmall, toWeight } from '../../../ndarray/convolution.ts';
import { add, map2, scale } from '../../../ndarray/elementwise.ts';
import { matmul } from '../../../ndarray/matmul.ts';
import { sum } from '../../../ndarray/reduce.ts';
import { concat, reshape, rows, select, transpose, unsqueeze } from '../../../ndarray/views.ts';
import {
  type Kernel,
  type KernelCall,
  type Kernels,
  one,
  optional,
  resultShape,
  tensor,
  valueError,
} from '../../record/kernel.ts';

/** beta * bias + alpha * product; a beta of zero leaves the bias out, whatever it holds. */
const biased = (product: (call: KernelCall) => NDArray): Kernel =>
  one((call) => {
    const [beta, alpha] = [call.ctx.number('beta'), call.ctx.number('alpha')];
    const scaled = scale(product(call), alpha);
    return beta === 0 ? scaled : map2(scaled, tensor(call, 'self'), (p, b) => p + beta * b);
  });

const plain = (a: string, b: string): Kernel =>
  one((call) => matmul(tensor(call, a), tensor(call, b)));

const linear: Kernel = one((call) => {
  const out = matmul(tensor(call, 'input'), transpose(tensor(call, 'weight'), -1, -2));
  const bias = optional(call, 'bias');
  return bias === undefined ? out : add(out, bias);
});

const outer: Kernel = one((call) =>
  map2(unsqueeze(tensor(call, 'self'), 1), tensor(call, 'vec2'), (a, b) => a * b),
);

/**
 * Products of groups of rows (or of columns, or of contracted rows) whose ends `offs` lists, with a
 * matrix each.
 */
const groupedMm: Kernel = one((call) => {
  const [a, b, offs] = [tensor(call, 'self'), tensor(call, 'mat2'), optional(call, 'offs')];
  if (a.rank === 3 && b.rank === 3) return withBias(call, matmul(a, b));
  const ends = offs === undefined ? call.ctx.fail('needs the ends of the groups') : [...flat(offs)];
  const limit = a.rank === 2 && b.rank === 3 ? a.shape[0] : a.rank === 3 ? b.shape[1] : a.shape[1];
  const groups = ends.map((end, g) => {
    const start = g === 0 ? 0 : ends[g - 1];
    if (start > end || end > limit)
      valueError(call, `group ends [${ends.join(', ')}] do not rise to at most ${limit}`);
    return { start, count: end - start };
  });
  const cut = (x: NDArray, dim: number, g: number): NDArray =>
    rows(x, dim, groups[g].start, groups[g].count);
  if (a.rank === 2 && b.rank === 2)
    return withBias(call, stack(groups.map((_, g) => matmul(cut(a, 1, g), cut(b, 0, g)))));
  const parts =
    a.rank === 2
      ? groups.map((_, g) => matmul(cut(a, 0, g), select(b, 0, g)))
      : groups.map((_, g) => matmul(select(a, 0, g), cut(b, 1, g)));
  // Rows past the last group belong to none; PyTorch leaves them unwritten, here they are zero.
  const dim = a.rank === 2 ? 0 : 1;
  const done = ends.at(-1) ?? 0;
  const shape = resultShape(call);
  if (done < limit)
    parts.push(
      full(
        shape.map((n, d) => (d === dim ? limit - done : n)),
        0,
      ),
    );
  return withBias(call, concat(parts, dim));
});

const withBias = (call: KernelCall, x: NDArray): NDArray => {
  const bias = optional(call, 'bias');
  return bias === undefined ? x : add(x, bias);
};

const stack = (parts: readonly NDArray[]): NDArray =>
  concat(
    parts.map((p) => unsqueeze(p, 0)),
    0,
  );

// ---- convolution
// -----------------------------------------------------------------------------

function geometry(call: KernelCall): Geometry {
  const spatial = tensor(call, 'weight').rank - 2;
  const perDim = (name: string): readonly number[] => {
    const values = call.ctx.ints(name);
    return values.length === 1 ? new Array<number>(spatial).fill(values[0]) : values;
  };
  return {
    stride: perDim('stride'),
    padding: perDim('padding'),
    dilation: perDim('dilation'),
    groups: call.ctx.int('groups'),
  };
}

const convolution = (transposed: (call: KernelCall) => boolean): Kernel =>
  one((call) => {
    const spatial = resultShape(call).slice(2);
    const image = transposed(call) ? toLarge : toSmall;
    const out = image(tensor(call, 'input'), tensor(call, 'weight'), spatial, geometry(call));
    const bias = optional(call, 'bias');
    return bias === undefined ? out : add(out, reshape(bias, [bias.size, ...spatial.map(() => 1)]));
  });

const convolutionBackward: Kernel = (call) => {
  const [grad, x, weight] = [
    tensor(call, 'grad_output'),
    tensor(call, 'input'),
    tensor(call, 'weight'),
  ];
  const [forX, forW, forBias] = call.ctx.bools('output_mask');
  const g = geometry(call);
  const transposed = call.ctx.bool('transposed');
  // The input of a transposed convolution is its small image, and the gradient its large one.
  const gradX = transposed ? toSmall : toLarge;
  const [small, large] = transposed ? [x, grad] : [grad, x];
  return [
    forX ? gradX(grad, weight, x.shape.slice(2), g) : null,
    forW ? toWeight(small, large, weight.shape, g) : null,
    forBias
      ? sum(
          grad,
          grad.shape.flatMap((_, d) => (d === 1 ? [] : [d])),
        )
      : null,
  ];
};

const never = (): boolean => false;

export const productKernels: Kernels = {
  'aten.mm.default': plain('self', 'mat2'),
  'aten.bmm.default': plain('self', 'mat2'),
  'aten.mv.default': plain('self', 'vec'),
  'aten.dot.default': plain('self', 'tensor'),
  'aten.vdot.default': plain('self', 'other'),
  'aten.matmul.default': plain('self', 'other'),
  'aten.addmm.default': biased((call) => matmul(tensor(call, 'mat1'), tensor(call, 'mat2'))),
  'aten.addmv.default': biased((call) => matmul(tensor(call, 'mat'), tensor(call, 'vec'))),
  'aten.baddbmm.default': biased((call) => matmul(tensor(call, 'batch1'), tensor(call, 'batch2'))),
  'aten.addbmm.default': biased((call) =>
    sum(matmul(tensor(call, 'batch1'), tensor(call, 'batch2')), [0]),
  ),
  'aten.outer.default': outer,
  'aten.linear.default': linear,
  'aten._grouped_mm.default': groupedMm,
  'aten.convolution.default': convolution((call) => call.ctx.bool('transposed')),
  'aten.conv1d.default': convolution(never),
  'aten.conv2d.default': convolution(never),
  'aten.conv3d.default': convolution(never),
  'aten.convolution_backward.default': convolutionBackward,
};
