/** Kernels of calls that read or make complex numbers. */

import { ShardwrightError } from '../../../errors.ts';
import { fromList, full, type NDArray } from '../../../ndarray/array.ts';
import {
  complexOf,
  type ComplexType,
  isComplexType,
  partsOf,
  partType,
  realPart,
} from '../../../ndarray/complex.ts';
import { add, map, map2, multiply, scale, subtract } from '../../../ndarray/elementwise.ts';
import { fourier } from '../../../ndarray/fourier.ts';
import { broadcastShape, concat, expand, select, unsqueeze } from '../../../ndarray/views.ts';
import {
  type EvaluatedArg,
  type Kernel,
  type KernelCall,
  type Kernels,
  named,
  one,
  operand,
  resultShape,
  resultType,
  tensor,
} from '../../record/kernel.ts';
import type { OperatorRecord } from '../../record/record.ts';

interface Complex {
  readonly re: NDArray;
  readonly im: NDArray;
}

const split = (x: NDArray): Complex => {
  const [re, im = map(re, () => 0)] = partsOf(x);
  return { re, im };
};

/** A kernel on the operands `names`, real ones read as complex. */
const complex = (
  names: readonly string[],
  f: (...operands: readonly Complex[]) => Complex,
): Kernel =>
  one((call) => {
    const type = resultType(call);
    const shape = resultShape(call);
    const { re, im } = f(...names.map((name) => split(operand(call, name))));
    const [wideRe, wideIm] = [expand(re, shape), expand(im, shape)].map((part) =>
      part.as(partType(type)),
    );
    return isComplexType(type) ? complexOf(wideRe, wideIm, type) : wideRe;
  });

const product = (a: Complex, b: Complex): Complex => ({
  re: subtract(multiply(a.re, b.re), multiply(a.im, b.im)),
  im: add(multiply(a.re, b.im), multiply(a.im, b.re)),
});
const quotient = (a: Complex, b: Complex): Complex => {
  const square = add(multiply(b.re, b.re), multiply(b.im, b.im));
  const { re, im } = product(a, { re: b.re, im: scale(b.im, -1) });
  return { re: map2(re, square, (u, v) => u / v), im: map2(im, square, (u, v) => u / v) };
};
const sum =
  (sign: number): Kernel =>
  (call) => {
    const alpha = sign * (call.ctx.target.startsWith('aten') ? call.ctx.number('alpha') : 1);
    const [x, y] = call.ctx.target.startsWith('aten') ? ['self', 'other'] : ['lhs', 'rhs'];
    return complex([x, y], (a, b) => ({
      re: add(a.re, scale(b.re, alpha)),
      im: add(a.im, scale(b.im, alpha)),
    }))(call);
  };
const conjugate = ({ re, im }: Complex): Complex => ({ re, im: scale(im, -1) });
const modulus = ({ re, im }: Complex): Complex => ({ re: map2(re, im, Math.hypot), im });

/** The number of length one in the same direction; zero has none. */
const direction = ({ re, im }: Complex): Complex => {
  const length = map2(re, im, Math.hypot);
  const part = (x: NDArray): NDArray => map2(x, length, (v, l) => (l === 0 ? 0 : v / l));
  return { re: part(re), im: part(im) };
};

function only(call: KernelCall): NDArray {
  return call.inputs[0];
}

/** The type of complex numbers with these parts. */
const complexType = (part: NDArray): ComplexType => (part.dtype === 'f64' ? 'c128' : 'c64');

function viewedAsComplex(call: KernelCall): NDArray {
  const x = only(call);
  return complexOf(select(x, -1, 0), select(x, -1, 1), complexType(x));
}

function viewedAsReal(call: KernelCall): NDArray {
  const rank = only(call).rank;
  return concat(
    partsOf(only(call)).map((part) => unsqueeze(part, rank)),
    rank,
  );
}

function composed(call: KernelCall): NDArray {
  const [re, im] = call.inputs;
  const shape = broadcastShape([re.shape, im.shape]);
  return complexOf(expand(re, shape), expand(im, shape), complexType(re));
}

/** Real numbers become complex ones, and complex ones lose their imaginary part. */
function converted(call: KernelCall): NDArray {
  const type = resultType(call);
  const { re, im } = split(only(call));
  return isComplexType(type) ? complexOf(re, im, type) : re;
}

const imaginaryPart = (call: KernelCall): NDArray =>
  partsOf(only(call))[1] ?? map(only(call), () => 0);

/** A number, or the text `(re, im)`; no other literal is a complex number. */
function literalParts(value: EvaluatedArg): readonly number[] | undefined {
  if (typeof value === 'number') return [value, 0];
  if (typeof value === 'string') {
    return /^\(([^,]+), ([^,]+)\)$/
      .exec(value)
      ?.slice(1)
      .map((part) => Number(part.replace('inf', 'Infinity').replace('nan', 'NaN')));
  }
  return isFloat(value) ? [value.value, 0] : undefined;
}

function isFloat(value: EvaluatedArg): value is { readonly kind: 'float'; readonly value: number } {
  return value !== null && typeof value === 'object' && 'kind' in value && value.kind === 'float';
}

/** One number for all places, or a number for each. */
function constant(call: KernelCall): NDArray {
  const value = call.argument('value') ?? null;
  const shape = resultShape(call);
  const list = Array.isArray(value)
    ? (value as readonly EvaluatedArg[]).map(literalParts)
    : [literalParts(value)];
  const known = list.filter((parts) => parts !== undefined);
  if (known.length < list.length)
    throw new ShardwrightError(
      'E_NO_KERNEL',
      `${call.ctx.target}: the elements of [${shape.join(', ')}] are not known as numbers`,
      {
        hint: 'long constants are imported as text, which is not evaluated',
      },
    );
  const part = (k: number): NDArray =>
    Array.isArray(value)
      ? fromList(
          shape,
          known.map((parts) => parts[k]),
        )
      : full(shape, known[0][k]);
  const [re, im] = [part(0), part(1)];
  const type = resultType(call);
  return isComplexType(type) ? complexOf(re.as(partType(type)), im, type) : re;
}

/** Complex numbers are equal or not; they have no order. */
function compared(call: KernelCall): NDArray {
  const [a, b] = ['lhs', 'rhs'].map((name) => split(operand(call, name)));
  const how = call.ctx.text('comparison_direction');
  if (how !== 'EQ' && how !== 'NE')
    return call.ctx.fail(`compares complex numbers with EQ or NE, not ${how}`);
  const same = (x: NDArray, y: NDArray): NDArray => map2(x, y, (u, v) => Number(u === v));
  const equal = multiply(same(a.re, b.re), same(a.im, b.im));
  return how === 'EQ' ? equal : map(equal, (v) => 1 - v);
}

const KERNELS: Kernels = {
  ...named('view_as_complex.default', one(viewedAsComplex)),
  ...named('view_as_real.default', one(viewedAsReal)),
  ...named('complex.default', one(composed)),
  ...named('_conj.default', complex(['self'], conjugate)),
  ...named('_to_copy.default to.dtype', one(converted)),
  'prims.convert_element_type.default': one(converted),
  'stablehlo.convert': one(converted),
  ...named('mul.Tensor mul.Scalar', complex(['self', 'other'], product)),
  ...named('div.Tensor div.Scalar', complex(['self', 'other'], quotient)),
  ...named('add.Tensor', sum(1)),
  ...named('sub.Tensor', sum(-1)),
  ...named('abs.default', complex(['self'], modulus)),
  ...named('sgn.default', complex(['self'], direction)),
  'stablehlo.complex': one(composed),
  'stablehlo.constant': one(constant),
  'stablehlo.compare': one(compared),
  'stablehlo.real': one((call) => realPart(only(call))),
  'stablehlo.imag': one(imaginaryPart),
  'chlo.conj': complex(['operand'], conjugate),
  'stablehlo.abs': complex(['operand'], modulus),
  'stablehlo.multiply': complex(['lhs', 'rhs'], product),
  'stablehlo.divide': complex(['lhs', 'rhs'], quotient),
  'stablehlo.add': sum(1),
  'stablehlo.subtract': sum(-1),
  'stablehlo.fft': one(fourierTransform),
};

/** Transforms the last dims; `fft_length` names their sizes in time. */
function fourierTransform(call: KernelCall): NDArray {
  const { ctx } = call;
  return fourier(
    tensor(call, 'operand'),
    ctx.text('fft_type'),
    ctx.ints('fft_length'),
    resultType(call),
  );
}

/** The kernel of a call on complex numbers, where it is another than on real ones. */
export function complexKernelOf(name: string): Kernel | undefined {
  return Object.hasOwn(KERNELS, name) ? KERNELS[name] : undefined;
}

/**
 * Calls that move elements, or are linear with real factors: what they do to complex numbers they
 * do to both parts.
 */
const COMPONENTWISE = new Set(
  [
    'clone.default contiguous.default copy.default copy_.default detach_copy.default ' +
      'lift_fresh_copy.default neg.default',
    'cat.default stack.default slice.Tensor select.int index.Tensor index_select.default ' +
      'gather.default roll.default flip.default',
    'slice_backward.default select_backward.default slice_scatter.default ' +
      'select_scatter.default constant_pad_nd.default',
    'repeat.default where.self sum.default sum.dim_IntList mean.default mean.dim ' +
      'zeros_like.default new_zeros.default',
  ].flatMap((line) => line.split(' ').map((name) => `aten.${name}`)),
);
const COMPONENTWISE_HLO = new Set(
  (
    'negate reshape broadcast_in_dim transpose slice concatenate reverse select gather ' +
    'dynamic_slice dynamic_update_slice pad'
  )
    .split(' ')
    .map((name) => `stablehlo.${name}`),
);

/** Tells whether a call on complex numbers is the same call on both parts. */
export function isComponentwise(record: OperatorRecord): boolean {
  return (
    record.cls === 'view' || COMPONENTWISE.has(record.name) || COMPONENTWISE_HLO.has(record.name)
  );
}
