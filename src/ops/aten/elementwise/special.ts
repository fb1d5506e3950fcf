/**
 * Special functions of ATen, elementwise: a line each with the function that gives the values.
 * Source: `torch.special`, and DLMF for the recurrences of the orthogonal polynomials.
 */

import { kindOf, type NDArray } from '../../../ndarray/array.ts';
import { isComplexType, partsOf } from '../../../ndarray/complex.ts';
import { map, map2 } from '../../../ndarray/elementwise.ts';
import {
  airyAi,
  besselIScaled,
  besselJ,
  besselY,
  erfinv,
  incompleteGamma,
  lgamma,
  logNormalCdf,
  polygamma,
  roundHalfEven,
  zeta,
} from '../../../ndarray/special.ts';
import { realOf } from '../../record/dtypes.ts';
import { type KernelCall, one, tensor } from '../../record/kernel.ts';
import { defineOp, type OperatorRecord, type TypedContext } from '../../record/record.ts';
import {
  linearIn,
  nonDecreasing,
  nonDecreasingExt,
  nonIncreasing,
  onePartial,
} from '../../rules/partials.ts';
import {
  pointwise,
  pointwiseRules,
  type PointwiseSpec,
  TRANSCENDENTAL,
} from '../../rules/pointwise.ts';

type Real = (x: number) => number;
type Extra = NonNullable<PointwiseSpec['extra']>;

/** Sizes of every sample: cut evenly, unevenly, and a scalar. */
const SIZES = ['6,5', '5'];

/** A function of one tensor; `word` says how its samples are drawn. */
function unary(name: string, word: string, f: Real, extra: Extra = () => []): OperatorRecord {
  const argument = /airy|spherical/.test(name) ? 'x' : 'self';
  return pointwise(`aten.${name}.default`, {
    schema: `Tensor ${argument}`,
    result: 'float',
    cost: TRANSCENDENTAL,
    extra,
    kernel: one((call) => map(call.inputs[0], f)),
    samples: SIZES.map((sizes) => `${word}[${sizes}]`),
  });
}

/** A function of one tensor with parameters. */
function parametric(
  name: string,
  schema: string,
  samples: readonly string[],
  f: (call: KernelCall) => Real,
  extra: Extra = () => [],
): OperatorRecord {
  return pointwise(`aten.${name}`, {
    schema,
    result: 'float',
    cost: TRANSCENDENTAL,
    extra,
    kernel: one((call) => map(call.inputs[0], f(call))),
    samples,
  });
}

/** A function of two tensors. */
function binary(
  name: string,
  [a, b]: readonly [string, string],
  samples: readonly string[],
  f: (x: number, y: number) => number,
  extra: Extra = () => [],
): OperatorRecord {
  return pointwise(`aten.${name}`, {
    schema: `Tensor ${a}, Tensor ${b}`,
    result: 'float',
    cost: TRANSCENDENTAL,
    extra,
    kernel: one((call) => map2(tensor(call, a), tensor(call, b), f)),
    samples,
  });
}

/** Polynomials by degree: those of degree 0 and 1, and the next from the last two. */
type Family = readonly [first: Real, next: (x: number, k: number, q: number, p: number) => number];

const chebyshev =
  (at: Real): Family[1] =>
  (x, _, q, p) =>
    2 * at(x) * q - p;
const same: Real = (x) => x;
const shifted: Real = (x) => 2 * x - 1;
const KINDS: Readonly<Record<string, Real>> = {
  t: (x) => x,
  u: (x) => 2 * x,
  v: (x) => 2 * x - 1,
  w: (x) => 2 * x + 1,
};

const FAMILIES: Readonly<Record<string, Family>> = {
  ...Object.fromEntries(
    Object.entries(KINDS).flatMap(([kind, first]): [string, Family][] => [
      [`chebyshev_polynomial_${kind}`, [first, chebyshev(same)]],
      [`shifted_chebyshev_polynomial_${kind}`, [(x) => first(shifted(x)), chebyshev(shifted)]],
    ]),
  ),
  hermite_polynomial_h: [(x) => 2 * x, (x, k, q, p) => 2 * x * q - 2 * k * p],
  hermite_polynomial_he: [(x) => x, (x, k, q, p) => x * q - k * p],
  laguerre_polynomial_l: [(x) => 1 - x, (x, k, q, p) => ((2 * k + 1 - x) * q - k * p) / (k + 1)],
  legendre_polynomial_p: [(x) => x, (x, k, q, p) => ((2 * k + 1) * x * q - k * p) / (k + 1)],
};

const polynomials: readonly OperatorRecord[] = Object.entries(FAMILIES).map(([name, family]) =>
  binary(
    `special_${name}.default`,
    ['x', 'n'],
    ['x[6,5], index4[6,5]', 'x[5], index4[6,1]'],
    (x, degree) => {
      const n = Math.trunc(degree);
      if (n < 0) return 0;
      let [p, q] = [1, family[0](x)];
      if (n === 0) return p;
      for (let k = 1; k < n; k++) [p, q] = [q, family[1](x, k, q, p)];
      return q;
    },
  ),
);

const sphericalBessel: Real = (x) => (x === 0 ? 1 : Math.abs(x) === Infinity ? 0 : Math.sin(x) / x);

const entropy: Real = (x) => {
  if (x === 0) return 0;
  return x < 0 ? -Infinity : -x * Math.log(x);
};

/** Half of the line of a logit is cut off by `eps` at both ends. */
const logit = ({ ctx }: KernelCall): Real => {
  const eps = ctx.optionalNumber('eps');
  return (x) => {
    const p = eps === undefined ? x : Math.min(Math.max(x, eps), 1 - eps);
    return Math.log(p / (1 - p));
  };
};

const logitBackward = pointwise('aten.logit_backward.default', {
  schema: 'Tensor grad_output, Tensor self, float? eps=None',
  cost: 4,
  extra: linearIn('grad_output'),
  kernel: one((call) => {
    const eps = call.ctx.optionalNumber('eps');
    return map2(tensor(call, 'grad_output'), tensor(call, 'self'), (g, x) => {
      const inside = eps === undefined ? x >= 0 && x <= 1 : x >= eps && x <= 1 - eps;
      return inside ? g / (x * (1 - x)) : eps === undefined ? NaN : 0;
    });
  }),
  samples: ['x[6,5], unit[6,5]', 'x[5], unit[5], 0.3'],
});

/** Pi for negative numbers; of complex ones the angle to the real axis. */
const angle = pointwise('aten.angle.default', {
  schema: 'Tensor self',
  result: (ctx) => {
    const { dtype } = ctx.inputs[0];
    return isComplexType(dtype) ? realOf(dtype) : kindOf(dtype) === 'float' ? dtype : 'f32';
  },
  cost: TRANSCENDENTAL,
  extra: (ctx) => (isComplexType(ctx.inputs[0].dtype) ? [] : nonIncreasing(ctx)),
  kernel: one((call) => {
    const [re, im] = partsOf(call.inputs[0]) as readonly [NDArray, NDArray?];
    if (im !== undefined) return map2(im, re, Math.atan2);
    return map(re, (x) => (x < 0 ? Math.PI : Number.isNaN(x) ? x : 0));
  }),
  samples: ['x[6,5]', 'c128[6,5]', 'c128[5]'],
});

/** x = mantissa * 2 ** exponent, with a mantissa of at least a half and below 1. */
const frexp = defineOp('aten.frexp.Tensor', {
  schema: 'Tensor self',
  cls: 'other',
  results: 'tuple',
  infer: ({ inputs: [{ dtype, shape }] }) => [
    { dtype, shape },
    { dtype: 'i32', shape },
  ],
  shard: (ctx) => pointwiseRules(ctx),
  kernel: ({ inputs: [x] }) => {
    const exponent = (v: number): number =>
      v === 0 || !Number.isFinite(v) ? 0 : Math.floor(Math.log2(Math.abs(v))) + 1;
    const parts = (v: number): readonly [number, number] => {
      let e = exponent(v);
      // The logarithm of a number next to a power of two may round over it.
      while (Math.abs(v) * 2 ** -e >= 1) e++;
      while (v !== 0 && Math.abs(v) * 2 ** -e < 0.5) e--;
      return [v * 2 ** -e, e];
    };
    const finite = (v: number): boolean => v !== 0 && Number.isFinite(v);
    return [
      map(x, (v) => (finite(v) ? parts(v)[0] : v)),
      map(x, (v) => (finite(v) ? parts(v)[1] : 0), 'i32'),
    ];
  },
  samples: ['x[6,5]', 'x[5]'],
});

/** Log of the multivariate gamma function of dimension `p`. */
const multivariate = ({ ctx }: KernelCall): Real => {
  const p = ctx.int('p');
  return (x) => {
    let total = ((p * (p - 1)) / 4) * Math.log(Math.PI);
    for (let j = 0; j < p; j++) total += lgamma(x - j / 2);
    return total;
  };
};

const rounded = ({ ctx }: KernelCall): Real => {
  const scale = 10 ** Math.abs(ctx.int('decimals'));
  return ctx.int('decimals') < 0
    ? (x) => roundHalfEven(x / scale) * scale
    : (x) => roundHalfEven(x * scale) / scale;
};

/** Times a power of two, which is positive. */
const scaledOf = (ctx: TypedContext): ReturnType<Extra> => [
  ...linearIn('self')(ctx),
  ...(['max', 'min'] as const).map((kind) => onePartial(ctx, 0, kind, kind, 'ext')),
];

export const specialOps: readonly OperatorRecord[] = [
  unary('special_i0e', 'x', (x) => besselIScaled(0, x)),
  unary('special_i1e', 'x', (x) => besselIScaled(1, x)),
  unary('special_bessel_j0', 'x', (x) => besselJ(0, x)),
  unary('special_bessel_j1', 'x', (x) => besselJ(1, x)),
  unary('special_bessel_y0', 'pos', (x) => besselY(0, x)),
  unary('special_bessel_y1', 'pos', (x) => besselY(1, x)),
  unary('special_spherical_bessel_j0', 'x', sphericalBessel),
  unary('special_airy_ai', 'x', airyAi),
  unary('special_entr', 'pos', entropy),
  unary('special_log_ndtr', 'x', logNormalCdf, nonDecreasingExt),
  unary('special_ndtri', 'unit', (p) => Math.SQRT2 * erfinv(2 * p - 1)),
  unary('erfinv', 'unit', erfinv),
  parametric('logit.default', 'Tensor self, float? eps=None', ['unit[6,5]', 'x[5], 0.2'], logit),
  parametric(
    'polygamma.default',
    'int n, Tensor self',
    ['1, pos[6,5]', '2, pos[5]', '0, pos[5]'],
    ({ ctx }) =>
      (x) =>
        polygamma(ctx.int('n'), x),
  ),
  parametric(
    'mvlgamma.default',
    'Tensor self, int p',
    ['large[6,5], 1', 'large[5], 3'],
    multivariate,
  ),
  parametric(
    'round.decimals',
    'Tensor self, *, int decimals',
    ['x[6,5], decimals=1', 'x[5], decimals=-1'],
    rounded,
    nonDecreasing,
  ),
  binary(
    'ldexp.Tensor',
    ['self', 'other'],
    ['x[6,5], index4[6,5]', 'x[5], index4[6,1]'],
    (x, n) => x * 2 ** n,
    scaledOf,
  ),
  binary(
    'special_zeta.default',
    ['self', 'other'],
    ['large[6,5], pos[6,5]', 'large[5], pos[6,1]'],
    zeta,
  ),
  ...['igamma', 'igammac'].map((name, upper) =>
    binary(
      `${name}.default`,
      ['self', 'other'],
      ['pos[6,5], pos[6,5]', 'pos[5], large[6,1]'],
      (a, x) => incompleteGamma(a, x)[upper],
    ),
  ),
  ...polynomials,
  logitBackward,
  angle,
  frexp,
];
