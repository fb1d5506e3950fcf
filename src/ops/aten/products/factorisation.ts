/**
 * Singular values, LU factors, and solutions with a factor at hand: matrices of a batch are
 * independent (see `linalg.ts`).
 */

import { flat, fromFlat, type NDArray, sizeOf } from '../../../ndarray/array.ts';
import {
  determinant,
  luFactor,
  luParts,
  singularValues,
  solve,
  solveTriangle,
  symmetricEigen,
} from '../../../ndarray/matrix.ts';
import { expand, transpose } from '../../../ndarray/views.ts';
import { type KernelCall, one, optional, tensor } from '../../record/kernel.ts';
import {
  defineOp,
  elements,
  type OpContext,
  type OperatorRecord,
  type TensorMeta,
  type TypedContext,
} from '../../record/record.ts';
import { R, type Rule, rule, type RuleSlot, S } from '../../record/rule.ts';
import { broadcastAll, broadcastSlot, cuttable, linearKinds, need } from '../../rules/dims.ts';
import { onePartial } from '../../rules/partials.ts';
import type { DecomposedSpec } from '../../vjp/composite/decomposed.ts';
import { decomposition, identity, lowerFactor, matrices, singular, transposed } from './linalg.ts';

const wantsAll = (ctx: OpContext): boolean => ctx.bool('full_matrices');

/** Shapes of U, S and Vᵀ. */
function singularShapes(m: number, n: number, full: boolean): number[][] {
  const k = Math.min(m, n);
  return full ? [[m, m], [k], [n, n]] : [[m, k], [k], [k, n]];
}

/** Half of the symmetric matrix that the call names. */
function symmetric(a: Float64Array, n: number, upper: boolean): Float64Array {
  return a.map((_, at) => {
    const [i, j] = [Math.floor(at / n), at % n];
    return i >= j === !upper ? a[i * n + j] : a[j * n + i];
  });
}

const svd = (name: string, schema: string): OperatorRecord =>
  decomposition(name, {
    schema,
    input: 'A',
    square: false,
    tuple: true,
    results: (m, n, ctx) => {
      if (name.includes('_linalg_svd') && ctx.has('compute_uv') && !ctx.bool('compute_uv'))
        ctx.fail('compute_uv=False is not modelled: linalg_svdvals gives the values');
      return singularShapes(m, n, wantsAll(ctx));
    },
    each: (a, m, n, call) => singularValues(a, m, n, wantsAll(call.ctx)),
  });

/** One-based numbers of the rows that were exchanged, as LAPACK counts. */
const counted = (pivots: readonly number[]): number[] => pivots.map((p) => p + 1);

function pivoting(ctx: OpContext): void {
  if (!ctx.bool('pivot')) ctx.fail('pivot=False is not modelled');
}

const times = (a: Float64Array, b: Float64Array, n: number): Float64Array =>
  Float64Array.from({ length: n * n }, (_, at) => {
    let sum = 0;
    for (let k = 0; k < n; k++) sum += a[Math.floor(at / n) * n + k] * b[k * n + (at % n)];
    return sum;
  });

/** The exponential of a matrix: the series of a small part of it, squared up again. */
function exponential(a: Float64Array, n: number): Float64Array {
  const size = Math.max(1e-300, ...a.map(Math.abs)) * n;
  const halvings = Math.max(0, Math.ceil(Math.log2(size)) + 4);
  const part = a.map((v) => v / 2 ** halvings);
  let [sum, term] = [identity(n), identity(n)];
  for (let k = 1; k < 20; k++) {
    term = times(term, part, n).map((v) => v / k);
    sum = sum.map((v, i) => v + term[i]);
  }
  for (let k = 0; k < halvings; k++) sum = times(sum, sum, n);
  return sum;
}

const factors: readonly OperatorRecord[] = [
  svd('aten.linalg_svd.default', 'Tensor A, bool full_matrices=True, *, str? driver=None'),
  svd(
    'aten._linalg_svd.default',
    'Tensor A, bool full_matrices=False, bool compute_uv=True, *, str? driver=None',
  ),
  decomposition('aten.svd.default', {
    schema: 'Tensor self, bool some=True, bool compute_uv=True',
    input: 'self',
    square: false,
    tuple: true,
    results: (m, n, ctx) => {
      if (ctx.has('compute_uv') && !ctx.bool('compute_uv'))
        ctx.fail('compute_uv=False is not modelled: linalg_svdvals gives the values');
      const [u, s, [rows, columns]] = singularShapes(m, n, !ctx.bool('some'));
      return [u, s, [columns, rows]];
    },
    each: (a, m, n, { ctx }) => {
      const full = !ctx.bool('some');
      const [u, s, vt] = singularValues(a, m, n, full);
      return [u, s, transposed(vt, full ? n : Math.min(m, n), n)];
    },
  }),
  decomposition('aten.linalg_svdvals.default', {
    schema: 'Tensor A, *, str? driver=None',
    input: 'A',
    square: false,
    results: (m, n) => [[Math.min(m, n)]],
    each: (a, m, n) => [singularValues(a, m, n, false)[1]],
  }),
  decomposition('aten.linalg_eigvalsh.default', {
    schema: "Tensor self, str UPLO='L'",
    input: 'self',
    results: (n) => [[n]],
    each: (a, n, _, call) => [
      symmetricEigen(symmetric(a, n, call.ctx.text('UPLO').toUpperCase() === 'U'), n)[0],
    ],
  }),
  decomposition('aten._linalg_eigh.default', {
    schema: "Tensor A, str UPLO='L', bool compute_v=True",
    input: 'A',
    tuple: true,
    results: (n, _, ctx) => {
      if (ctx.has('compute_v') && !ctx.bool('compute_v'))
        ctx.fail('compute_v=False is not modelled: linalg_eigvalsh gives the values');
      return [[n], [n, n]];
    },
    each: (a, n, _, call) =>
      symmetricEigen(symmetric(a, n, call.ctx.text('UPLO').toUpperCase() === 'U'), n),
  }),
  decomposition('aten.linalg_lu.default', {
    schema: 'Tensor A, *, bool pivot=True',
    input: 'A',
    square: false,
    tuple: true,
    results: (m, n, ctx) => {
      if (ctx.has('pivot')) pivoting(ctx);
      const k = Math.min(m, n);
      return [
        [m, m],
        [m, k],
        [k, n],
      ];
    },
    each: (a, m, n) => luParts(...luFactor(a, m, n), m, n),
  }),
  ...(['aten.linalg_lu_factor.default', 'aten.linalg_lu_factor_ex.default'] as const).map(
    (name) => {
      const told = name.includes('_ex'); // whether a pivot was zero is told, not thrown
      return decomposition(name, {
        schema: `Tensor A, *, bool pivot=True${told ? ', bool check_errors=False' : ''}`,
        input: 'A',
        square: false,
        tuple: true,
        results: (m, n, ctx) => {
          if (ctx.has('pivot')) pivoting(ctx);
          return [[m, n], [Math.min(m, n)], ...(told ? [[]] : [])];
        },
        dtypes: [undefined, 'i32', 'i32'],
        each: (a, m, n, call) => {
          const [lu, pivots] = luFactor(a, m, n);
          const zero = pivots.findIndex((_, i) => lu[i * n + i] === 0);
          if (zero >= 0 && !told) singular(call);
          return [lu, counted(pivots), ...(told ? [[zero + 1]] : [])];
        },
      });
    },
  ),
  ...(['aten._linalg_det.default', 'aten._linalg_slogdet.default'] as const).map((name) => {
    const logs = name.includes('slog');
    return decomposition(name, {
      schema: 'Tensor A',
      input: 'A',
      tuple: true,
      results: (n) => [[], ...(logs ? [[]] : []), [n, n], [n]],
      dtypes: [undefined, undefined, ...(logs ? [undefined] : []), 'i32'],
      // PyTorch factors the transpose of a matrix that lies row by row.
      each: (a, n) => {
        const [lu, pivots] = luFactor(transposed(a, n, n), n, n);
        const value = determinant(a, n);
        const values = logs ? [[Math.sign(value)], [Math.log(Math.abs(value))]] : [[value]];
        return [...values, lu, counted(pivots)];
      },
    });
  }),
  decomposition('aten.cholesky_inverse.default', {
    schema: 'Tensor self, bool upper=False',
    input: 'self',
    results: (n) => [[n, n]],
    each: (a, n, _, call) => {
      const upper = call.ctx.bool('upper');
      const l = a.map((v, at) => {
        const [i, j] = [Math.floor(at / n), at % n];
        return i === j || i < j === upper ? v : 0;
      });
      const lower = upper ? transposed(l, n, n) : l;
      const half = solveTriangle(lower, identity(n), n, n, false, false);
      return [solveTriangle(transposed(lower, n, n), half, n, n, true, false)];
    },
  }),
  decomposition('aten.linalg_matrix_exp.default', {
    schema: 'Tensor self',
    input: 'self',
    results: (n) => [[n, n]],
    each: (a, n) => [exponential(a, n)],
  }),
  decomposition('aten.linalg_cholesky_ex.default', {
    schema: 'Tensor self, *, bool upper=False, bool check_errors=False',
    input: 'self',
    tuple: true,
    results: (n) => [[n, n], []],
    dtypes: [undefined, 'i32'],
    each: (a, n, _, call) => {
      if (!call.ctx.bool('upper')) return [lowerFactor(a, n, call), [0]];
      return [transposed(lowerFactor(transposed(a, n, n), n, call), n, n), [0]];
    },
  }),
  decomposition('aten.linalg_inv_ex.default', {
    schema: 'Tensor A, *, bool check_errors=False',
    input: 'A',
    tuple: true,
    results: (n) => [[n, n], []],
    dtypes: [undefined, 'i32'],
    each: (a, n, _, call) => [solve(a, identity(n), n, n) ?? singular(call), [0]],
  }),
];

// ---- solutions
// -----------------------------------------------------------------------------

interface Solver {
  readonly schema: string;
  /** The name of the factor, then the operands between it and the right-hand side, by name. */
  readonly factor: string;
  readonly side: string;
  readonly solve: (
    call: KernelCall,
    a: Float64Array,
    b: Float64Array,
    n: number,
    width: number,
  ) => Float64Array;
}

/**
 * Matrices [.., n, n] with right-hand sides [.., n, width]: linear in these, whose columns are
 * independent.
 */
function solver(name: string, spec: Solver): OperatorRecord {
  return defineOp(name, {
    schema: spec.schema,
    cls: 'other',
    infer: (ctx) => {
      const { b, batch } = sidesOf(ctx, spec);
      return [{ dtype: need(ctx, spec.side).dtype, shape: [...batch, ...b.slice(-2)] }];
    },
    shard: (ctx) => solverRules(ctx, spec),
    flops: (ctx) => ({
      matrix: 0,
      vector: elements(ctx.outputs[0]?.shape ?? []) * (need(ctx, spec.factor).shape.at(-1) ?? 1),
    }),
    kernel: one((call) => solveAll(call, spec)),
  });
}

/** Shapes of the matrices and of the right-hand sides, and their batch dims together. */
interface SolverSides {
  readonly a: readonly number[];
  readonly b: readonly number[];
  readonly batch: readonly number[];
  /** The matrix is on the right of the unknown: rows of the other side are independent. */
  readonly right: boolean;
}

function sidesOf(ctx: OpContext, { schema, factor, side }: Solver): SolverSides {
  const [a, b] = [matrices(ctx, factor, true).shape, matrices(ctx, side, false).shape];
  const right = schema.includes('bool left') && !ctx.bool('left');
  if (a[a.length - 1] !== b[b.length - (right ? 1 : 2)])
    ctx.fail(`matrices [${a.join(', ')}] do not fit [${b.join(', ')}]`);
  return { a, b, batch: broadcastAll(ctx, [a.slice(0, -2), b.slice(0, -2)]), right };
}

/** Batch dims, columns of the right-hand sides, and right-hand sides that are pending. */
function solverRules(ctx: TypedContext, spec: Solver): Rule[] {
  const { a, b, batch, right } = sidesOf(ctx, spec);
  const free = right ? 2 : 1;
  const sideAt = ctx.indexOf(spec.side);
  const at = (factor: RuleSlot, side: RuleSlot): RuleSlot[] =>
    ctx.inputs.map((_, i) => (i === sideAt ? side : factor));
  return [
    ...cuttable(batch).map((d) =>
      rule(
        at(
          broadcastSlot(a.slice(0, -2), batch.length, d),
          broadcastSlot(b.slice(0, -2), batch.length, d),
        ),
        [S(d)],
      ),
    ),
    ...(b[b.length - free] > 1
      ? [rule(at(R, S(b.length - free)), [S(batch.length + 2 - free)], { origin: 'ext' })]
      : []),
    ...linearKinds(need(ctx, spec.side).dtype).map((kind) => onePartial(ctx, sideAt, kind)),
  ];
}

/** Solves each matrix of the batch with its right-hand side. */
function solveAll(call: KernelCall, spec: Solver): NDArray {
  const { a, b, batch, right } = sidesOf(call.ctx, spec);
  // X A = B is A' X' = B'.
  const turned = (x: NDArray): NDArray => (right ? transpose(x, -2, -1) : x);
  const [n, width] = right ? [b[b.length - 1], b[b.length - 2]] : b.slice(-2);
  const p = flat(expand(turned(tensor(call, spec.factor)), [...batch, ...a.slice(-2)]));
  const q = flat(expand(turned(tensor(call, spec.side)), [...batch, n, width]));
  const out = new Float64Array(q.length);
  for (let i = 0; i < sizeOf(batch); i++)
    out.set(
      spec.solve(
        call,
        p.slice(i * n * n, (i + 1) * n * n),
        q.slice(i * n * width, (i + 1) * n * width),
        n,
        width,
      ),
      i * n * width,
    );
  return turned(fromFlat([...batch, n, width], out, tensor(call, spec.side).dtype));
}

const solvers: readonly OperatorRecord[] = [
  solver('aten.linalg_solve_triangular.default', {
    schema: 'Tensor self, Tensor B, *, bool upper, bool left=True, bool unitriangular=False',
    factor: 'self',
    side: 'B',
    solve: ({ ctx }, a, b, n, width) => {
      // The transpose of a triangle is the other one.
      const upper = ctx.bool('upper') === ctx.bool('left');
      return solveTriangle(a, b, n, width, upper, ctx.bool('unitriangular'));
    },
  }),
  solver('aten.cholesky_solve.default', {
    schema: 'Tensor self, Tensor input2, bool upper=False',
    factor: 'input2',
    side: 'self',
    solve: ({ ctx }, a, b, n, width) => {
      const [lower, upper] = ctx.bool('upper')
        ? [transposed(a, n, n), a]
        : [a, transposed(a, n, n)];
      return solveTriangle(
        upper,
        solveTriangle(lower, b, n, width, false, false),
        n,
        width,
        true,
        false,
      );
    },
  }),
];

// ---- several matrices of one batch
// -----------------------------------------------------------------------------

interface Batched {
  readonly schema: string;
  /** Tensor arguments and how many of their last dims are those of a matrix; the first leads. */
  readonly inputs: Readonly<Record<string, number>>;
  /** Right-hand sides, in which the result is linear and whose columns (rows) are independent. */
  readonly side?: string;
  readonly tuple?: boolean;
  readonly results: (
    shapes: readonly (readonly number[])[],
    ctx: OpContext,
  ) => readonly (readonly number[])[];
  readonly each: (
    parts: readonly Float64Array[],
    shapes: readonly (readonly number[])[],
    call: KernelCall,
  ) => readonly ArrayLike<number>[];
}

/** Results of each matrix of a batch that all arguments have: its dims are cut on all of them. */
function batched(name: string, spec: Batched): OperatorRecord {
  const names = Object.keys(spec.inputs);
  const split = (
    ctx: OpContext,
  ): { batch: readonly number[]; tails: readonly (readonly number[])[] } => {
    const shapes = names.map((n) => need(ctx, n).shape);
    const batches = shapes.map((shape, i) => shape.slice(0, shape.length - spec.inputs[names[i]]));
    if (batches.some((b) => b.join() !== batches[0].join()))
      ctx.fail(`batches [${batches.map((b) => b.join(', ')).join('] and [')}] differ`);
    return { batch: batches[0], tails: shapes.map((s, i) => s.slice(batches[i].length)) };
  };
  const types = (ctx: OpContext): TensorMeta[] => {
    const { batch, tails } = split(ctx);
    const { dtype } = need(ctx, names[0]);
    return spec.results(tails, ctx).map((tail) => ({ dtype, shape: [...batch, ...tail] }));
  };
  return defineOp(name, {
    schema: spec.schema,
    cls: 'other',
    results: spec.tuple === true ? 'tuple' : 'single',
    infer: types,
    shard: (ctx) => [
      ...cuttable(split(ctx).batch).map((d) =>
        rule(
          ctx.inputs.map(() => S(d)),
          ctx.outputs.map(() => S(d)),
        ),
      ),
      ...(spec.side === undefined ? [] : sideRules(ctx, ctx.indexOf(spec.side))),
    ],
    flops: (ctx) => ({
      matrix: 0,
      vector: 2 * elements(ctx.inputs[0].shape) * (ctx.inputs[0].shape.at(-1) ?? 1),
    }),
    kernel: (call) => {
      const { batch, tails } = split(call.ctx);
      const data = names.map((n) => flat(tensor(call, n)));
      const outputs = types(call.ctx).map(({ shape }) => ({
        shape,
        data: new Float64Array(sizeOf(shape)),
      }));
      for (let i = 0; i < sizeOf(batch); i++) {
        const parts = data.map((x, k) => {
          const size = sizeOf(tails[k]);
          return x.slice(i * size, (i + 1) * size);
        });
        const made = spec.each(parts, tails, call);
        outputs.forEach((out, k) => out.data.set(made[k], i * made[k].length));
      }
      return outputs.map((out) => fromFlat(out.shape, out.data, tensor(call, names[0]).dtype));
    },
  });
}

function sideRules(ctx: TypedContext, at: number): Rule[] {
  const { dtype, shape } = ctx.inputs[at];
  const free = shape.length - (ctx.bool('left') ? 1 : 2);
  const columns = rule(
    ctx.inputs.map((_, i) => (i === at ? S(free) : R)),
    [S(free)],
  );
  return [
    ...(shape[free] > 1 ? [columns] : []),
    ...linearKinds(dtype).map((kind) => onePartial(ctx, at, kind)),
  ];
}

/** The order of the rows that pivots, counted from one, exchange one after the other. */
function exchanged(pivots: Float64Array, rows: number): number[] {
  const order = Array.from({ length: rows }, (_, i) => i);
  pivots.forEach((pivot, i) => ([order[i], order[pivot - 1]] = [order[pivot - 1], order[i]]));
  return order;
}

/** Solves P L U X = B, or its transpose. */
function luSolve(
  lu: Float64Array,
  order: readonly number[],
  b: Float64Array,
  n: number,
  width: number,
  transposes: boolean,
): Float64Array {
  if (!transposes) {
    const moved = b.map((_, at) => b[order[Math.floor(at / width)] * width + (at % width)]);
    return solveTriangle(
      lu,
      solveTriangle(lu, moved, n, width, false, true),
      n,
      width,
      true,
      false,
    );
  }
  const turned = transposed(lu, n, n);
  const half = solveTriangle(turned, b, n, width, false, false);
  const whole = solveTriangle(turned, half, n, width, true, true);
  const out = new Float64Array(whole.length);
  whole.forEach((v, at) => (out[order[Math.floor(at / width)] * width + (at % width)] = v));
  return out;
}

/** Q of the reflections I - tau v v', whose vectors lie below the diagonal. */
function reflections(a: Float64Array, tau: Float64Array, m: number, n: number): Float64Array {
  const q = Float64Array.from({ length: m * n }, (_, at) =>
    Math.floor(at / n) === at % n ? 1 : 0,
  );
  for (let k = tau.length - 1; k >= 0; k--) {
    const v = Array.from({ length: m }, (_, i) => (i < k ? 0 : i === k ? 1 : a[i * n + k]));
    for (let c = 0; c < n; c++) {
      let dot = 0;
      for (let i = 0; i < m; i++) dot += v[i] * q[i * n + c];
      for (let i = 0; i < m; i++) q[i * n + c] -= tau[k] * dot * v[i];
    }
  }
  return q;
}

/** The pseudo-inverse: singular values below `tolerance` of the largest count as none. */
function pseudoInverse(a: Float64Array, m: number, n: number, rtol: number): Float64Array {
  const [u, s, vt] = singularValues(a, m, n, false);
  const least = rtol * Math.max(0, ...s);
  const k = Math.min(m, n);
  return Float64Array.from({ length: n * m }, (_, at) => {
    const [i, j] = [Math.floor(at / m), at % m];
    let sum = 0;
    for (let c = 0; c < k; c++) if (s[c] > least) sum += (vt[c * n + i] * u[j * k + c]) / s[c];
    return sum;
  });
}

const several: readonly OperatorRecord[] = [
  batched('aten.lu_unpack.default', {
    schema: 'Tensor LU_data, Tensor LU_pivots, bool unpack_data=True, bool unpack_pivots=True',
    inputs: { LU_data: 2, LU_pivots: 1 },
    tuple: true,
    results: ([[m, n]], ctx) => {
      if (!ctx.bool('unpack_data') || !ctx.bool('unpack_pivots'))
        ctx.fail('parts that are not unpacked are not modelled');
      const k = Math.min(m, n);
      return [
        [m, m],
        [m, k],
        [k, n],
      ];
    },
    each: ([lu, pivots], [[m, n]]) =>
      luParts(
        lu,
        Array.from(pivots, (p) => p - 1),
        m,
        n,
      ),
  }),
  batched('aten.linalg_lu_solve.default', {
    schema: 'Tensor LU, Tensor pivots, Tensor B, *, bool left=True, bool adjoint=False',
    inputs: { LU: 2, pivots: 1, B: 2 },
    side: 'B',
    results: ([, , b]) => [b],
    each: ([lu, pivots, b], [[n], , [rows, columns]], { ctx }) => {
      const order = exchanged(pivots, n);
      const adjoint = ctx.bool('adjoint');
      if (ctx.bool('left')) return [luSolve(lu, order, b, n, columns, adjoint)];
      const found = luSolve(lu, order, transposed(b, rows, columns), n, rows, !adjoint);
      return [transposed(found, columns, rows)];
    },
  }),
  batched('aten.linalg_householder_product.default', {
    schema: 'Tensor input, Tensor tau',
    inputs: { input: 2, tau: 1 },
    results: ([a]) => [a],
    each: ([a, tau], [[m, n]]) => [reflections(a, tau, m, n)],
  }),
  decomposition('aten.linalg_pinv.atol_rtol_tensor', {
    schema: 'Tensor self, *, Tensor? atol=None, Tensor? rtol=None, bool hermitian=False',
    input: 'self',
    square: false,
    results: (m, n, ctx) => {
      if (ctx.has('atol')) ctx.fail('an absolute tolerance is not modelled, a relative one is');
      return [[n, m]];
    },
    each: (a, m, n, call) => {
      const rtol = optional(call, 'rtol');
      if (rtol !== undefined && rtol.size !== 1) call.ctx.fail('one tolerance for all is modelled');
      return [pseudoInverse(a, m, n, rtol?.item() ?? Math.max(m, n) * 2 ** -52)];
    },
  }),
];

/** X of A X = B for triangles A, and A itself. */
export const triangularSpecs: Readonly<Record<string, DecomposedSpec>> = {
  'aten.triangular_solve.default': {
    schema:
      'Tensor self, Tensor A, bool upper=True, bool transpose=False, bool unitriangular=False',
    cls: 'other',
    results: 'tuple',
    decompose: ({ b, ctx, x }) => {
      const [side, matrix] = [x('self'), x('A')];
      const turns = ctx.bool('transpose');
      const solution = b.call(
        'aten.linalg_solve_triangular.default',
        [turns ? b.transpose(matrix, -2, -1) : matrix, side],
        { upper: ctx.bool('upper') !== turns, unitriangular: ctx.bool('unitriangular') },
      );
      const batch = b.shape(solution).slice(0, -2);
      return [
        solution,
        b.unary('clone', b.expand(matrix, [...batch, ...b.shape(matrix).slice(-2)])),
      ];
    },
  },
};

export const factorisationOps: readonly OperatorRecord[] = [...factors, ...solvers, ...several];

export const factorisationSamples: readonly string[] = [
  'linalg_svd(x[5,6,4])',
  'linalg_svd(x[6,3,5], False)',
  '_linalg_svd(x[6,4,3])',
  'svd(x[5,6,3])',
  'svd(x[6,3,4], False)',
  'linalg_svdvals(x[5,6,4])',
  'linalg_svdvals(x[6,3,5])',
  'linalg_eigvalsh(x[5,4,4])',
  "linalg_eigvalsh(x[6,3,3], 'U')",
  '_linalg_eigh(x[6,3,3])',
  'linalg_lu(x[5,6,4])',
  'linalg_lu(x[6,3,5])',
  'linalg_lu_factor(x[6,4,3])',
  'linalg_lu_factor(x[5,4,4])',
  'linalg_lu_factor_ex(x[6,3,4])',
  'linalg_cholesky_ex(definite3[6,3,3])',
  'linalg_inv_ex(x[6,3,3])',
  '_linalg_det(x[6,3,3])',
  '_linalg_slogdet(x[5,4,4])',
  'cholesky_inverse(definite3[6,3,3])',
  'cholesky_inverse(definite4[5,4,4], True)',
  'linalg_matrix_exp(x[6,3,3])',
  'lu_unpack(x[6,4,3], pivots3[6,3])',
  'lu_unpack(x[5,3,4], pivots3[5,3])',
  'linalg_lu_solve(definite3[6,3,3], pivots3[6,3], x[6,3,2])',
  'linalg_lu_solve(definite3[5,3,3], pivots3[5,3], x[5,2,3], left=False, adjoint=True)',
  'triangular_solve(x[3,5], definite3[6,3,3])',
  'triangular_solve(x[5,3,2], definite3[5,3,3], False, True)',
  'linalg_pinv.atol_rtol_tensor(x[6,4,3])',
  'linalg_householder_product(x[6,4,3], x[6,2])',
  'linalg_solve_triangular(definite4[5,4,4], x[5,4,6], upper=True)',
  'linalg_solve_triangular(definite3[6,1,3,3], x[5,3,2], upper=False, unitriangular=True)',
  'linalg_solve_triangular(definite3[5,3,3], x[6,3], upper=True, left=False)',
  'linalg_solve_triangular(definite4[6,4,4], x[6,5,4], upper=False, left=False)',
  'cholesky_solve(x[5,4,6], definite4[5,4,4])',
  'cholesky_solve(x[6,3,2], definite3[6,3,3], True)',
];
