/**
 * Decompositions, solutions and determinants of matrices: the matrices of a batch are independent,
 * so batch dims are cut and the two dims of a matrix are not. A solution is linear in the
 * right-hand side, and its columns are independent too.
 */

import { defined } from '../../../defined.ts';
import type { DType } from '../../../graph/types.ts';
import { flat, fromFlat, type NDArray, sizeOf } from '../../../ndarray/array.ts';
import { matmul } from '../../../ndarray/matmul.ts';
import {
  cholesky,
  determinant,
  luFactor,
  qr,
  solve,
  symmetricEigen,
} from '../../../ndarray/matrix.ts';
import { expand, reshape, transpose, unsqueeze } from '../../../ndarray/views.ts';
import { type Kernel, type KernelCall, one, tensor, valueError } from '../../record/kernel.ts';
import {
  defineOp,
  elements,
  type OpContext,
  type OperatorRecord,
  type TensorMeta,
  type TypedContext,
} from '../../record/record.ts';
import { P, R, type Rule, rule, type RuleSlot, S } from '../../record/rule.ts';
import {
  broadcastAll,
  broadcastSlot,
  cuttable,
  linearKinds,
  movedKinds,
  need,
  normalDim,
} from '../../rules/dims.ts';
import { onePartial } from '../../rules/partials.ts';

/** The input, which must be a batch of matrices. */
export function matrices(ctx: OpContext, name: string, square: boolean): TensorMeta {
  const meta = need(ctx, name);
  const [m, n] = meta.shape.slice(-2);
  if (meta.shape.length < 2) ctx.fail(`needs matrices, got [${meta.shape.join(', ')}]`);
  if (square && m !== n) ctx.fail(`needs square matrices, got [${meta.shape.join(', ')}]`);
  return meta;
}

/** One input: dims before the last two are cut on it and on every result. */
function batchRules(ctx: TypedContext): Rule[] {
  const { shape } = ctx.inputs[0];
  return cuttable(shape)
    .filter((d) => d < shape.length - 2)
    .map((d) =>
      rule(
        [S(d)],
        ctx.outputs.map(() => S(d)),
      ),
    );
}

interface Decomposition {
  readonly schema: string;
  readonly input: string;
  readonly square?: boolean;
  readonly aliases?: readonly string[];
  /** True if there are several results; default: one. */
  readonly tuple?: boolean;
  /** Trailing dims of each result, from the rows and columns of a matrix. */
  readonly results: (m: number, n: number, ctx: OpContext) => readonly (readonly number[])[];
  /** Element type of each result, where it is not that of the matrix. */
  readonly dtypes?: readonly (DType | undefined)[];
  /** Results for one matrix, row-major. */
  readonly each: (
    a: Float64Array,
    m: number,
    n: number,
    call: KernelCall,
  ) => readonly ArrayLike<number>[];
}

/** @param name with overload */
export function decomposition(name: string, spec: Decomposition): OperatorRecord {
  const types = (ctx: OpContext): TensorMeta[] => {
    const { dtype, shape } = matrices(ctx, spec.input, spec.square !== false);
    const [m, n] = shape.slice(-2);
    return spec.results(m, n, ctx).map((tail, k) => ({
      dtype: spec.dtypes?.[k] ?? dtype,
      shape: [...shape.slice(0, -2), ...tail],
    }));
  };
  const kernel: Kernel = (call) => {
    const x = tensor(call, spec.input);
    const [m, n] = x.shape.slice(-2);
    const data = flat(x);
    const outputs = types(call.ctx).map(({ shape }) => ({
      shape,
      data: new Float64Array(sizeOf(shape)),
    }));
    for (let i = 0; i < sizeOf(x.shape.slice(0, -2)); i++) {
      const parts = spec.each(data.slice(i * m * n, (i + 1) * m * n), m, n, call);
      outputs.forEach((out, k) => out.data.set(parts[k], i * parts[k].length));
    }
    return outputs.map((out) => fromFlat(out.shape, out.data, x.dtype));
  };
  return defineOp(name, {
    schema: spec.schema,
    cls: 'other',
    ...defined({ aliases: spec.aliases }),
    results: spec.tuple === true ? 'tuple' : 'single',
    infer: types,
    shard: batchRules,
    flops: (ctx) => ({
      matrix: 0,
      vector: 2 * elements(ctx.inputs[0].shape) * Math.max(...ctx.inputs[0].shape.slice(-2)),
    }),
    kernel,
  });
}

export const singular = (call: KernelCall): never => valueError(call, 'a matrix is singular');

export const identity = (n: number): Float64Array =>
  Float64Array.from({ length: n * n }, (_, i) => (i % (n + 1) === 0 ? 1 : 0));

export function transposed(a: Float64Array, m: number, n: number): Float64Array {
  return Float64Array.from({ length: m * n }, (_, i) => a[(i % m) * n + Math.floor(i / m)]);
}

export function lowerFactor(a: Float64Array, n: number, call: KernelCall): Float64Array {
  return cholesky(a, n) ?? valueError(call, 'a matrix is not positive definite');
}

/**
 * The factor as the call wants it: L from the lower triangle, or its transpose from the upper one.
 */
const factor: Decomposition['each'] = (a, n, _, call) =>
  call.ctx.bool('upper')
    ? [transposed(lowerFactor(transposed(a, n, n), n, call), n, n)]
    : [lowerFactor(a, n, call)];

const decompositions: readonly OperatorRecord[] = [
  ...(['aten.linalg_cholesky.default', 'aten.cholesky.default'] as const).map((name) =>
    decomposition(name, {
      schema: `Tensor self, ${name.includes('linalg') ? '*, ' : ''}bool upper=False`,
      input: 'self',
      results: (n) => [[n, n]],
      each: factor,
    }),
  ),
  decomposition('aten.linalg_inv.default', {
    schema: 'Tensor A',
    input: 'A',
    results: (n) => [[n, n]],
    each: (a, n, _, call) => [solve(a, identity(n), n, n) ?? singular(call)],
  }),
  decomposition('aten.inverse.default', {
    schema: 'Tensor self',
    input: 'self',
    results: (n) => [[n, n]],
    each: (a, n, _, call) => [solve(a, identity(n), n, n) ?? singular(call)],
  }),
  decomposition('aten.linalg_det.default', {
    schema: 'Tensor A',
    input: 'A',
    results: () => [[]],
    each: (a, n) => [Float64Array.of(determinant(a, n))],
  }),
  decomposition('aten.det.default', {
    schema: 'Tensor self',
    input: 'self',
    results: () => [[]],
    each: (a, n) => [Float64Array.of(determinant(a, n))],
  }),
  decomposition('aten.linalg_slogdet.default', {
    schema: 'Tensor A',
    input: 'A',
    tuple: true,
    results: () => [[], []],
    each: (a, n) => {
      const value = determinant(a, n);
      return [Float64Array.of(Math.sign(value)), Float64Array.of(Math.log(Math.abs(value)))];
    },
  }),
  decomposition('aten.linalg_qr.default', {
    schema: "Tensor A, str mode='reduced'",
    input: 'A',
    square: false,
    tuple: true,
    results: (m, n, ctx) => {
      const mode = ctx.text('mode');
      if (mode !== 'reduced') ctx.fail(`mode '${mode}' is not modelled, 'reduced' is`);
      const k = Math.min(m, n);
      return [
        [m, k],
        [k, n],
      ];
    },
    each: (a, m, n) => qr(a, m, n),
  }),
  decomposition('aten.linalg_eigh.default', {
    schema: "Tensor self, str UPLO='L'",
    input: 'self',
    tuple: true,
    results: (n) => [[n], [n, n]],
    each: (a, n, _, call) => {
      const upper = call.ctx.text('UPLO').toUpperCase() === 'U';
      const whole = a.map((_v, at) => {
        const [i, j] = [Math.floor(at / n), at % n];
        return i >= j === !upper ? a[i * n + j] : a[j * n + i];
      });
      return symmetricEigen(whole, n);
    },
  }),
];

// ---- solve
// -----------------------------------------------------------------------------

/** Tells whether the right-hand side is a vector for each matrix. */
function isVector(a: readonly number[], b: readonly number[]): boolean {
  return b.length === 1 || (b.length === a.length - 1 && b.every((n, d) => n === a[d]));
}

interface Equations {
  readonly a: readonly number[];
  readonly b: readonly number[];
  readonly vector: boolean;
  readonly batch: readonly number[];
}

function equations(ctx: OpContext): Equations {
  const a = matrices(ctx, 'A', true).shape;
  const b = need(ctx, 'B').shape;
  if (!ctx.bool('left')) ctx.fail('left=False is not modelled: transpose both sides');
  const vector = isVector(a, b);
  const tail = vector ? 1 : 2;
  if (b.length < tail || b[b.length - tail] !== a[a.length - 1])
    ctx.fail(`matrices [${a.join(', ')}] do not fit the right-hand side [${b.join(', ')}]`);
  return { a, b, vector, batch: broadcastAll(ctx, [a.slice(0, -2), b.slice(0, b.length - tail)]) };
}

/** Rules of a solution: batch dims, columns of the right-hand side, a pending right-hand side. */
function solutionRules(ctx: TypedContext, factors: number): Rule[] {
  const { a, b, vector, batch } = equations(ctx);
  const own = b.slice(0, b.length - (vector ? 1 : 2));
  const rest = (slot: RuleSlot): RuleSlot[] => Array.from({ length: factors }, () => slot);
  const rules = cuttable(batch).map((d) => {
    const matrix = broadcastSlot(a.slice(0, -2), batch.length, d);
    return rule([matrix, broadcastSlot(own, batch.length, d)], [S(d), ...rest(matrix)]);
  });
  if (!vector && b[b.length - 1] > 1)
    rules.push(rule([R, S(b.length - 1)], [S(batch.length + 1), ...rest(R)], { origin: 'ext' }));
  const pending = linearKinds(need(ctx, 'B').dtype).map((kind) =>
    rule([R, P(kind)], [P(kind), ...rest(R)]),
  );
  return [...rules, ...pending];
}

const solutionFlops = (ctx: TypedContext): { matrix: number; vector: number } => ({
  matrix: 0,
  vector:
    2 * elements(ctx.outputs[0]?.shape ?? []) * ctx.inputs[0].shape[ctx.inputs[0].shape.length - 1],
});

function solution(ctx: OpContext): TensorMeta {
  const { b, vector, batch } = equations(ctx);
  return { dtype: need(ctx, 'B').dtype, shape: [...batch, ...b.slice(vector ? -1 : -2)] };
}

function solved(call: KernelCall): NDArray {
  const { a: aShape, vector, batch } = equations(call.ctx);
  const [n] = aShape.slice(-1);
  const b = vector ? unsqueeze(tensor(call, 'B'), -1) : tensor(call, 'B');
  const width = b.shape[b.rank - 1];
  const [p, q] = [
    flat(expand(tensor(call, 'A'), [...batch, n, n])),
    flat(expand(b, [...batch, n, width])),
  ];
  const out = new Float64Array(q.length);
  for (let i = 0; i < sizeOf(batch); i++) {
    const own = solve(
      p.slice(i * n * n, (i + 1) * n * n),
      q.slice(i * n * width, (i + 1) * n * width),
      n,
      width,
    );
    out.set(own ?? singular(call), i * n * width);
  }
  return fromFlat(vector ? [...batch, n] : [...batch, n, width], out, b.dtype);
}

const linalgSolve = defineOp('aten.linalg_solve.default', {
  schema: 'Tensor A, Tensor B, *, bool left=True',
  cls: 'other',
  infer: (ctx) => [solution(ctx)],
  shard: (ctx) => solutionRules(ctx, 0),
  flops: solutionFlops,
  kernel: one(solved),
});

/** The solution, the LU factors of each matrix with their pivots, and 0 where none was zero. */
const linalgSolveEx = defineOp('aten._linalg_solve_ex.default', {
  schema: 'Tensor A, Tensor B, *, bool left=True, bool check_errors=False',
  cls: 'other',
  results: 'tuple',
  infer: (ctx) => {
    const { a } = equations(ctx);
    const { dtype } = need(ctx, 'A');
    return [
      solution(ctx),
      { dtype, shape: a },
      { dtype: 'i32', shape: a.slice(0, -1) },
      { dtype: 'i32', shape: a.slice(0, -2) },
    ];
  },
  shard: (ctx) => solutionRules(ctx, 3),
  flops: solutionFlops,
  kernel: (call) => {
    const x = tensor(call, 'A');
    const batch = x.shape.slice(0, -2);
    const [n] = x.shape.slice(-1);
    const [factors, pivots] = [new Float64Array(sizeOf(x.shape)), [] as number[]];
    for (let i = 0; i < sizeOf(batch); i++) {
      const [lu, exchanged] = luFactor(flat(x).slice(i * n * n, (i + 1) * n * n), n, n);
      factors.set(lu, i * n * n);
      pivots.push(...exchanged.map((row) => row + 1));
    }
    return [
      solved(call),
      fromFlat(x.shape, factors, x.dtype),
      fromFlat([...batch, n], Float64Array.from(pivots), 'i32'),
      fromFlat(batch, new Float64Array(sizeOf(batch)), 'i32'),
    ];
  },
});

// ---- cross product
// -----------------------------------------------------------------------------

const linalgCross = defineOp('aten.linalg_cross.default', {
  schema: 'Tensor self, Tensor other, *, int dim=-1',
  cls: 'other',
  infer: (ctx) => {
    const [a, b] = [need(ctx, 'self'), need(ctx, 'other')];
    if (a.shape.length !== b.shape.length) ctx.fail('both sides must have as many dims');
    const shape = broadcastAll(ctx, [a.shape, b.shape]);
    const dim = normalDim(ctx, ctx.int('dim'), shape.length);
    if (a.shape[dim] !== 3 || b.shape[dim] !== 3)
      ctx.fail(`dim ${dim} must have 3 rows on both sides`);
    return [{ dtype: a.dtype, shape }];
  },
  shard: (ctx) => {
    const shape = ctx.outputs[0]?.shape ?? [];
    const dim = normalDim(ctx, ctx.int('dim'), shape.length);
    const rules = cuttable(shape)
      .filter((d) => d !== dim)
      .map((d) =>
        rule(
          ctx.inputs.map((x) => broadcastSlot(x.shape, shape.length, d)),
          [S(d)],
        ),
      );
    // Linear in each side.
    const kinds = linearKinds(ctx.inputs[0].dtype);
    return [
      ...rules,
      ...[0, 1].flatMap((i) => kinds.map((kind) => onePartial(ctx, i, kind, kind, 'ext'))),
    ];
  },
  flops: (ctx) => ({ matrix: 0, vector: 3 * elements(ctx.outputs[0]?.shape ?? []) }),
  kernel: one((call) => {
    const [a, b] = [tensor(call, 'self'), tensor(call, 'other')];
    const shape = call.ctx.outputs[0]?.shape ?? a.shape;
    const dim = normalDim(call.ctx, call.ctx.int('dim'), shape.length);
    const last = (x: NDArray): Float64Array => flat(transpose(expand(x, shape), dim, -1));
    const [p, q] = [last(a), last(b)];
    const out = new Float64Array(p.length);
    for (let i = 0; i < p.length; i += 3)
      for (let k = 0; k < 3; k++) {
        const [s, t] = [i + ((k + 1) % 3), i + ((k + 2) % 3)];
        out[i + k] = p[s] * q[t] - p[t] * q[s];
      }
    const moved = shape.map((n, d) =>
      d === dim ? shape[shape.length - 1] : d === shape.length - 1 ? 3 : n,
    );
    return transpose(fromFlat(moved, out, a.dtype), dim, -1);
  }),
});

/**
 * `aten.linalg_multi_dot`'s and others' products are matmuls already; this one repeats a product.
 */
const matrixPower = defineOp('aten.linalg_matrix_power.default', {
  schema: 'Tensor self, int n',
  cls: 'other',
  infer: (ctx) => {
    if (ctx.int('n') < 0) ctx.fail('negative powers are not modelled: take the inverse first');
    return [matrices(ctx, 'self', true)];
  },
  shard: (ctx) => [
    ...batchRules(ctx),
    ...(ctx.int('n') === 1
      ? movedKinds(ctx.inputs[0].dtype).map((kind) => onePartial(ctx, 0, kind, kind, 'ext'))
      : []),
  ],
  flops: (ctx) => ({
    matrix:
      2 *
      Math.max(0, ctx.int('n') - 1) *
      elements(ctx.inputs[0].shape) *
      (ctx.inputs[0].shape.at(-1) ?? 1),
    vector: 0,
  }),
  kernel: one((call) => {
    const x = tensor(call, 'self');
    const n = x.shape[x.rank - 1];
    let power = expand(reshape(fromFlat([n, n], identity(n), x.dtype), [n, n]), x.shape);
    for (let i = 0; i < call.ctx.int('n'); i++) power = matmul(power, x);
    return power;
  }),
});

export const linalgOps: readonly OperatorRecord[] = [
  ...decompositions,
  linalgSolve,
  linalgSolveEx,
  linalgCross,
  matrixPower,
];

export const linalgSamples: readonly string[] = [
  'linalg_cholesky(definite3[6,3,3])',
  'cholesky(definite4[5,6,4,4], True)',
  'linalg_qr(x[5,6,4])',
  'linalg_qr(x[6,3,5])',
  'linalg_inv(x[5,6,3,3])',
  'inverse(x[6,4,4])',
  'linalg_det(x[6,3,3])',
  'det(x[5,6,2,2])',
  'linalg_slogdet(x[6,3,3])',
  'linalg_eigh(x[5,4,4])',
  "linalg_eigh(x[6,3,3], 'U')",
  'linalg_solve(x[5,4,4], x[5,4,6])',
  '_linalg_solve_ex(x[5,4,4], x[5,4,6])',
  '_linalg_solve_ex(x[6,3,3], x[6,3])',
  'linalg_solve(x[6,1,3,3], x[5,3,1])',
  'linalg_solve(x[6,3,3], x[6,3])',
  'linalg_cross(x[6,5,3], x[6,5,3])',
  'linalg_cross(x[5,3,6], x[1,3,6], dim=1)',
  'linalg_matrix_power(x[5,6,3,3], 3)',
  'linalg_matrix_power(x[6,3,3], 1)',
];
