import { ALL, type AlpaCosts, bytesOf, type Spec } from './alpa-costs.ts';
import type { Instruction } from './hlo.ts';

/** One choice of an instruction: its own spec, what it asks of its operands, and what it costs. */
export interface Value {
  readonly spec: Spec;
  readonly operands: readonly Spec[];
  readonly cost: number;
  /** Axis of an all-reduce of the result. */
  readonly reduced?: number;
  /** Axes of all its all-reduces. */
  readonly sums?: readonly number[];
  /** Spec of the result if its all-reduce becomes a reduce-scatter. */
  readonly scatter?: Spec;
}

/** Alpa's values of an instruction that follows nothing; the others are made of their leader's. */
export function ownValues(ins: Instruction, costs: AlpaCosts): Value[] {
  const { op, shape } = ins;
  const replicated = shape.map(() => -1);
  if (op.kind === 'parameter') {
    const values: Value[] = [];
    shape.forEach((size, dim) => {
      for (const axis of [0, 1]) {
        const n = costs.mesh.sizes[axis];
        if (n > 1 && size >= n)
          values.push({
            spec: replicated.map((_, d) => (d === dim ? axis : -1)),
            operands: [],
            cost: 0,
          });
      }
    });
    return [...values, { spec: replicated, operands: [], cost: costs.replicatedParameter }];
  }
  if (op.kind === 'dot') return dotValues(ins, costs);
  return [{ spec: replicated, operands: ins.operands.map((o) => o.shape.map(() => -1)), cost: 0 }];
}

function dotValues(ins: Instruction, costs: AlpaCosts): Value[] {
  const { op, shape, operands } = ins;
  if (op.kind !== 'dot') throw new Error('no dot');
  const { sizes } = costs.mesh;
  const { batch } = op;
  const [a, b] = operands;
  // Of several dims that are free or contracted, the first may be cut.
  const contract = op.contract[0];
  const free = (rank: number, side: 0 | 1): number[] =>
    Array.from({ length: rank }, (_, d) => d).filter(
      (d) => ![...op.contract, ...batch].some((p) => p[side] === d),
    );
  const lefts = free(a.shape.length, 0);
  const [left] = lefts;
  const [right] = free(b.shape.length, 1);
  const base = batch.length;
  const second = base + lefts.length;
  const on = (rank: number, ...pairs: readonly (readonly [number, number])[]): number[] => {
    const spec = new Array<number>(rank).fill(-1);
    for (const [dim, axis] of pairs) if (sizes[axis] > 1) spec[dim] = axis;
    return spec;
  };
  const make = (out: number[], lhs: number[], rhs: number[], reduced?: number): Value => ({
    spec: out,
    operands: [lhs, rhs],
    cost: reduced === undefined ? 0 : costs.allReduce(bytesOf(shape) / costs.tiles(out), reduced),
    ...(reduced === undefined ? {} : { reduced }),
  });
  const [la, lb, lo] = [a.shape.length, b.shape.length, shape.length];
  const values: Value[] = [];
  const axes = [
    [0, 1],
    [1, 0],
  ] as const;
  for (const [x, y] of axes)
    values.push(make(on(lo, [base, x], [second, y]), on(la, [left, x]), on(lb, [right, y])));
  for (const [x, y] of axes)
    if (sizes[y] > 1)
      values.push(
        make(on(lo, [base, x]), on(la, [left, x], [contract[0], y]), on(lb, [contract[1], y]), y),
      );
  for (const [x, y] of axes)
    if (sizes[0] > 1 && sizes[1] > 1)
      values.push(
        make(
          on(lo, [second, x]),
          on(la, [contract[0], y]),
          on(lb, [right, x], [contract[1], y]),
          y,
        ),
      );
  if (batch.length === 2 && sizes[0] > 1 && sizes[1] > 1)
    return [
      make(
        on(lo, [0, 0], [1, 1]),
        on(la, [batch[0][0], 0], [batch[1][0], 1]),
        on(lb, [batch[0][1], 0], [batch[1][1], 1]),
      ),
    ];
  batch.forEach(([p, q], k) => {
    for (const axis of [0, 1])
      if (sizes[axis] > 1)
        values.push(make(on(lo, [k, axis]), on(la, [p, axis]), on(lb, [q, axis])));
  });
  return values;
}

/** Operand that an instruction follows; undefined for one that decides itself. */
export function followed(ins: Instruction): number | undefined {
  switch (ins.op.kind) {
    case 'elementwise': {
      const depths = ins.operands.map((o) => o.depth);
      return depths.indexOf(Math.max(...depths));
    }
    case 'broadcast':
    case 'transpose':
    case 'reshape':
    case 'reduce':
    case 'window':
      return 0;
    default:
      return undefined;
  }
}

/**
 * Value that a follower makes of a spec of the operand that it follows; undefined where a sharded
 * dim cannot be kept.
 */
export function following(
  ins: Instruction,
  at: number,
  from: Spec,
  costs: AlpaCosts,
): Value | undefined {
  const { op, shape, operands } = ins;
  const source = operands[at];
  const spec = new Array<number>(shape.length).fill(-1);
  let cost = 0;
  switch (op.kind) {
    case 'elementwise':
      return { spec: from, operands: operands.map(() => from), cost: 0 };
    case 'broadcast':
      from.forEach((axis, d) => (spec[op.dims[d]] = axis));
      break;
    case 'transpose':
      op.permutation.forEach((d, i) => (spec[i] = from[d]));
      break;
    case 'reshape': {
      const starts = prefixes(shape);
      const before = prefixes(source.shape);
      for (const [d, axis] of from.entries()) {
        if (axis < 0) continue;
        const target = starts.findIndex((start, i) => start === before[d] && shape[i] > 1);
        if (target < 0) return undefined;
        spec[target] = axis;
      }
      break;
    }
    case 'reduce': {
      const kept = source.shape.map((_, d) => d).filter((d) => !op.dims.includes(d));
      kept.forEach((d, i) => (spec[i] = from[d]));
      // The compiler pass prices a sum over all devices as one axis like one over the first axis.
      const sums = op.dims.map((d) => from[d]).filter((axis) => axis >= 0);
      for (const axis of sums)
        cost += costs.allReduce(bytesOf(shape) / costs.tiles(spec), axis === ALL ? 0 : axis);
      return { spec, operands: [from], cost, sums };
    }
    case 'window':
      // A dim whose size changes cannot be kept cut.
      for (const [d, axis] of from.entries()) {
        if (axis >= 0 && shape[d] !== source.shape[d]) return undefined;
        spec[d] = axis;
      }
      break;
    default:
      throw new Error(`${op.kind} follows nothing`);
  }
  return { spec, operands: [from], cost };
}

/** Product of the sizes before each dim. */
function prefixes(shape: readonly number[]): number[] {
  let product = 1;
  return shape.map((size) => {
    const before = product;
    product *= size;
    return before;
  });
}
