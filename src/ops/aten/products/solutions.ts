/**
 * Solutions of linear equations from a factor at hand, inverses and pseudo-inverses. Right-hand
 * sides are independent of each other, and the solution is linear in them.
 */
import { flat, fromFlat, type NDArray, sizeOf } from '../../../ndarray/array.ts';
import { singularValues, solve, solveTriangle } from '../../../ndarray/matrix.ts';
import { expand, transpose } from '../../../ndarray/views.ts';
import { type KernelCall, one, optional, tensor } from '../../record/kernel.ts';
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
import type { DecomposedSpec } from '../../vjp/composite/decomposed.ts';
import { batched } from './batched-matrices.ts';
import { decomposition, identity, matrices, singular, transposed } from './linalg.ts';

interface Solver {
  readonly schema: string;
  /** The argument that is the factor. */
  readonly factor: string;
  /** The argument that is the right-hand side. */
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

export const solutionOps: readonly OperatorRecord[] = [
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
  decomposition('aten.linalg_inv_ex.default', {
    schema: 'Tensor A, *, bool check_errors=False',
    input: 'A',
    tuple: true,
    results: (n) => [[n, n], []],
    dtypes: [undefined, 'i32'],
    each: (a, n, _, call) => [solve(a, identity(n), n, n) ?? singular(call), [0]],
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

export const solutionSamples: readonly string[] = [
  'linalg_inv_ex(x[6,3,3])',
  'cholesky_inverse(definite3[6,3,3])',
  'cholesky_inverse(definite4[5,4,4], True)',
  'linalg_lu_solve(definite3[6,3,3], pivots3[6,3], x[6,3,2])',
  'linalg_lu_solve(definite3[5,3,3], pivots3[5,3], x[5,2,3], left=False, adjoint=True)',
  'triangular_solve(x[3,5], definite3[6,3,3])',
  'triangular_solve(x[5,3,2], definite3[5,3,3], False, True)',
  'linalg_pinv.atol_rtol_tensor(x[6,4,3])',
  'linalg_solve_triangular(definite4[5,4,4], x[5,4,6], upper=True)',
  'linalg_solve_triangular(definite3[6,1,3,3], x[5,3,2], upper=False, unitriangular=True)',
  'linalg_solve_triangular(definite3[5,3,3], x[6,3], upper=True, left=False)',
  'linalg_solve_triangular(definite4[6,4,4], x[6,5,4], upper=False, left=False)',
  'cholesky_solve(x[5,4,6], definite4[5,4,4])',
  'cholesky_solve(x[6,3,2], definite3[6,3,3], True)',
];
