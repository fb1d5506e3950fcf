/**
 * Singular values, LU factors, and solutions with a factor at hand: matrices of a batch are
 * independent (see `linalg.ts`).
 */

import { flat, fromFlat, type NDArray, sizeOf } from '../../../ndarray/array.ts';
import {
  luFactor,
  luParts,
  singularValues,
  solve,
  solveTriangle,
  symmetricEigen,
} from '../../../ndarray/matrix.ts';
import { expand } from '../../../ndarray/views.ts';
import { type KernelCall, one, tensor } from '../../record/kernel.ts';
import {
  defineOp,
  elements,
  type OpContext,
  type OperatorRecord,
  type TypedContext,
} from '../../record/record.ts';
import { R, type Rule, rule, type RuleSlot, S } from '../../record/rule.ts';
import { broadcastAll, broadcastSlot, cuttable, linearKinds, need } from '../../rules/dims.ts';
import { onePartial } from '../../rules/partials.ts';
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
}

function sidesOf(ctx: OpContext, { factor, side }: Solver): SolverSides {
  const [a, b] = [matrices(ctx, factor, true).shape, matrices(ctx, side, false).shape];
  if (a[a.length - 1] !== b[b.length - 2])
    ctx.fail(`matrices [${a.join(', ')}] do not fit [${b.join(', ')}]`);
  return { a, b, batch: broadcastAll(ctx, [a.slice(0, -2), b.slice(0, -2)]) };
}

/** Batch dims, columns of the right-hand sides, and right-hand sides that are pending. */
function solverRules(ctx: TypedContext, spec: Solver): Rule[] {
  const { a, b, batch } = sidesOf(ctx, spec);
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
    ...(b[b.length - 1] > 1
      ? [rule(at(R, S(b.length - 1)), [S(batch.length + 1)], { origin: 'ext' })]
      : []),
    ...linearKinds(need(ctx, spec.side).dtype).map((kind) => onePartial(ctx, sideAt, kind)),
  ];
}

/** Solves each matrix of the batch with its right-hand side. */
function solveAll(call: KernelCall, spec: Solver): NDArray {
  const { a, b, batch } = sidesOf(call.ctx, spec);
  const [n, width] = b.slice(-2);
  const p = flat(expand(tensor(call, spec.factor), [...batch, ...a.slice(-2)]));
  const q = flat(expand(tensor(call, spec.side), [...batch, n, width]));
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
  return fromFlat([...batch, n, width], out, tensor(call, spec.side).dtype);
}

const solvers: readonly OperatorRecord[] = [
  solver('aten.linalg_solve_triangular.default', {
    schema: 'Tensor self, Tensor B, *, bool upper, bool left=True, bool unitriangular=False',
    factor: 'self',
    side: 'B',
    solve: ({ ctx }, a, b, n, width) => {
      if (!ctx.bool('left')) ctx.fail('left=False is not modelled: transpose both sides');
      return solveTriangle(a, b, n, width, ctx.bool('upper'), ctx.bool('unitriangular'));
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

export const factorisationOps: readonly OperatorRecord[] = [...factors, ...solvers];

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
  'linalg_solve_triangular(definite4[5,4,4], x[5,4,6], upper=True)',
  'linalg_solve_triangular(definite3[6,1,3,3], x[5,3,2], upper=False, unitriangular=True)',
  'cholesky_solve(x[5,4,6], definite4[5,4,4])',
  'cholesky_solve(x[6,3,2], definite3[6,3,3], True)',
];
