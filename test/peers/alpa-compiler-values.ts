import { ALL, type AlpaCosts, bytesOf, type Spec } from './alpa-costs.ts';
import { following, type Value } from './alpa-values.ts';
import type { Instruction } from './hlo.ts';

/**
 * The values that Alpa's compiler pass gives to an instruction. It differs from the Python solver
 * in what a batched product may do on two axes, in all-to-alls, in reshapes with several users, and
 * in layouts over all devices as one axis.
 */

/** What a value depends on beside its own instruction. */
export interface Surroundings {
  readonly costs: AlpaCosts;
  readonly users: readonly (readonly Instruction[])[];
  /** Dim of the batch in every instruction that has one. */
  readonly batchDims: readonly (number | undefined)[];
  /**
   * Products may be computed on more devices than needed, at the price of an all-reduce of both
   * operands.
   */
  readonly recompute: boolean;
}

/** Values of an instruction that follows nothing. */
export function compilerValues(ins: Instruction, around: Surroundings): Value[] {
  const { costs } = around;
  const { shape, operands } = ins;
  const whole = shape.map(() => -1);
  switch (ins.op.kind) {
    case 'parameter': {
      const grid = oneDim(shape, [0, 1], costs, true);
      const line = isMixed(costs) ? oneDim(shape, [ALL], costs, true) : [];
      // A layout that cuts for one of two axes only is taken for 0.8 of a whole one.
      const partly = isMixed(costs) ? costs.replicatedParameter * 0.8 : 0;
      return [
        ...grid.map((spec) => ({ spec, operands: [], cost: partly })),
        ...line.map((spec) => ({ spec, operands: [], cost: 0 })),
        { spec: whole, operands: [], cost: costs.replicatedParameter },
      ];
    }
    case 'iota':
      return iotaValues(shape, costs);
    case 'reshape': {
      const specs = [
        ...oneDim(shape, [0, 1], costs, false),
        ...(isMixed(costs) ? reshapedSpecs(ins, around) : []),
      ];
      const values: Value[] = [];
      for (const spec of specs) {
        const back = following(
          { ...ins, shape: operands[0].shape, operands: [ins] },
          0,
          spec,
          costs,
        );
        if (back !== undefined) values.push({ spec, operands: [back.spec], cost: 0 });
      }
      return [
        ...values,
        {
          spec: whole,
          operands: [operands[0].shape.map(() => -1)],
          cost: costs.replicatedParameter,
        },
      ];
    }
    case 'dot':
    case 'conv':
      return productValues(ins, around);
    default:
      return [{ spec: whole, operands: operands.map((o) => o.shape.map(() => -1)), cost: 0 }];
  }
}

export function isMixed(costs: AlpaCosts): boolean {
  return costs.mesh.mixed === true && costs.mesh.sizes[0] > 1 && costs.mesh.sizes[1] > 1;
}

/** Specs with one dim cut on one of the axes. */
function oneDim(
  shape: readonly number[],
  axes: readonly number[],
  costs: AlpaCosts,
  evenly: boolean,
): Spec[] {
  const specs: Spec[] = [];
  for (const [dim, size] of shape.entries())
    for (const axis of axes) {
      const n = costs.size(axis);
      if (n > 1 && size >= n && (!evenly || size % n === 0))
        specs.push(shape.map((_, d) => (d === dim ? axis : -1)));
    }
  return specs;
}

function reshapedSpecs(ins: Instruction, { costs, batchDims }: Surroundings): Spec[] {
  const batch = batchDims[ins.id];
  const specs = oneDim(ins.shape, [ALL], costs, false);
  if (batch === undefined) return specs;
  for (const [dim, size] of ins.shape.entries())
    if (dim !== batch && size >= costs.mesh.sizes[1])
      specs.push(ins.shape.map((_, d) => (d === batch ? 0 : d === dim ? 1 : -1)));
  return specs;
}

function iotaValues(shape: readonly number[], costs: AlpaCosts): Value[] {
  const { sizes } = costs.mesh;
  const specs: Spec[] = [];
  for (const [i, a] of shape.entries())
    for (const [j, b] of shape.entries())
      if (i !== j && a >= sizes[0] && b >= sizes[1])
        specs.push(
          shape.map((_, d) => (d === i && sizes[0] > 1 ? 0 : d === j && sizes[1] > 1 ? 1 : -1)),
        );
  if (isMixed(costs)) specs.push(...oneDim(shape, [ALL], costs, false));
  const values: Value[] = specs.map((spec) => ({ spec, operands: [], cost: 0 }));
  if (values.length > 0) return values;
  return [{ spec: shape.map(() => -1), operands: [], cost: 5 * costs.replicatedParameter }];
}

/**
 * Dims of a product: of an operand and the result; of both operands; of both operands and the
 * result.
 */
interface Roles {
  readonly left: readonly [number, number];
  readonly right: readonly [number, number] | undefined;
  readonly contract: readonly [number, number] | undefined;
  readonly batch: readonly (readonly [number, number, number])[];
}

function rolesOf(ins: Instruction): Roles {
  const { op, operands } = ins;
  if (op.kind === 'conv') {
    const { left, contract, together } = op;
    return { left, right: op.right, contract, batch: together === undefined ? [] : [together] };
  }
  if (op.kind !== 'dot') throw new Error('no product');
  const pairs = [...op.contract, ...op.batch];
  const free = (side: 0 | 1): number[] =>
    operands[side].shape.map((_, d) => d).filter((d) => !pairs.some((p) => p[side] === d));
  const lefts = free(0);
  const base = op.batch.length;
  return {
    left: [lefts[0], base],
    right: free(1).length === 0 ? undefined : [free(1)[0], base + lefts.length],
    contract: op.contract[0],
    batch: op.batch.map(([a, b], k) => [a, b, k]),
  };
}

function productValues(ins: Instruction, { costs, recompute }: Surroundings): Value[] {
  const { shape, operands } = ins;
  const { sizes } = costs.mesh;
  const { left, right, contract, batch } = rolesOf(ins);
  type Cuts = readonly (readonly [number | undefined, number])[];
  const on = (of: readonly number[], cuts: Cuts): number[] =>
    of.map((_, d) => cuts.find(([dim, axis]) => dim === d && costs.size(axis) > 1)?.[1] ?? -1);
  const value = (
    out: Cuts,
    lhs: Cuts,
    rhs: Cuts,
    sum?: { readonly axis: number; readonly scatter: Cuts },
  ): Value => {
    const spec = on(shape, out);
    const asked = [on(operands[0].shape, lhs), on(operands[1].shape, rhs)];
    if (sum === undefined) return { spec, operands: asked, cost: 0 };
    const cost = costs.allReduceOver(bytesOf(shape) / costs.tiles(spec), sum.axis);
    return {
      spec,
      operands: asked,
      cost,
      reduced: sum.axis,
      sums: [sum.axis],
      scatter: on(shape, sum.scatter),
    };
  };
  const fits = (dim: number | undefined, axis: number): boolean =>
    dim === undefined || shape[dim] >= sizes[axis];
  const [l, lo] = left;
  const [r, ro] = right ?? [undefined, undefined];
  const [ka, kb] = contract ?? [undefined, undefined];
  const both = sizes[0] > 1 && sizes[1] > 1;
  const ways = [
    [0, 1],
    [1, 0],
  ] as const;
  const plain: Value[] = [];
  if (batch.length === 0 || ins.op.kind === 'dot') {
    for (const [x, y] of ways)
      if (fits(lo, x) && fits(ro, y) && !(right === undefined && sizes[y] > 1))
        plain.push(
          value(
            [
              [lo, x],
              [ro, y],
            ],
            [[l, x]],
            [[r, y]],
          ),
        );
    if (contract !== undefined) {
      for (const [x, y] of ways)
        if (both)
          plain.push(
            value(
              [[lo, x]],
              [
                [l, x],
                [ka, y],
              ],
              [[kb, y]],
              {
                axis: y,
                scatter: [
                  [lo, x],
                  [ro, y],
                ],
              },
            ),
          );
      for (const [x, y] of ways)
        if (sizes[x] > 1 && fits(ro, y))
          plain.push(
            value(
              [[ro, y]],
              [[ka, x]],
              [
                [kb, x],
                [r, y],
              ],
              {
                axis: x,
                scatter: [
                  [lo, x],
                  [ro, y],
                ],
              },
            ),
          );
    }
  } else {
    // A depthwise convolution: batch and channels, or the batch summed over.
    for (const [x, y] of ways) {
      const [a, b, o] = batch[0];
      if (contract === undefined)
        plain.push(
          value(
            [
              [lo, x],
              [o, y],
            ],
            [
              [l, x],
              [a, y],
            ],
            [[b, y]],
          ),
        );
      else if (sizes[x] > 1)
        plain.push(
          value(
            [[o, y]],
            [
              [ka, x],
              [a, y],
            ],
            [
              [kb, x],
              [b, y],
            ],
            { axis: x, scatter: [[o, y]] },
          ),
        );
      if (contract !== undefined && sizes[x] === 1) plain.push(value([[o, y]], [[a, y]], [[b, y]]));
    }
    return plain;
  }
  if (recompute && both && contract !== undefined) {
    const given = bytesOf(operands[0].shape) + bytesOf(operands[1].shape);
    const price = costs.allReduce(given, 0) + costs.allReduce(given, 1);
    for (const [x] of ways) {
      const made = value([], [[ka, x]], [[kb, x]], { axis: x, scatter: [[lo, x]] });
      plain.push({ ...made, cost: made.cost + price });
    }
  }
  if (isMixed(costs) && contract !== undefined && ka !== undefined) {
    if (operands[0].shape[l] % costs.size(ALL) === 0)
      plain.push(value([[lo, ALL]], [[l, ALL]], []));
    if (operands[0].shape[ka] % costs.size(ALL) === 0)
      plain.push(value([], [[ka, ALL]], [[kb, ALL]], { axis: ALL, scatter: [[lo, ALL]] }));
  }
  return batch.length === 0 ? plain : batched(plain);

  function batched(others: Value[]): Value[] {
    if (!both) {
      const cut = batch.flatMap(([a, b, o]) =>
        [0, 1]
          .filter((x) => sizes[x] > 1 && shape[o] >= sizes[x])
          .map((x) => value([[o, x]], [[a, x]], [[b, x]])),
      );
      return [...others, ...cut];
    }
    // On two axes a batch is always cut: one batch dim with one more, or two batch dims.
    const line = isMixed(costs)
      ? batch.map(([a, b, o]) => value([[o, ALL]], [[a, ALL]], [[b, ALL]]))
      : [];
    const [[a, b, o]] = batch;
    if (batch.length === 2) {
      const [, [a2, b2, o2]] = batch;
      return [
        ...ways.map(([x, y]) =>
          value(
            [
              [o, x],
              [o2, y],
            ],
            [
              [a, x],
              [a2, y],
            ],
            [
              [b, x],
              [b2, y],
            ],
          ),
        ),
        ...line,
      ];
    }
    return [
      ...ways.map(([x, y]) =>
        value(
          [
            [o, x],
            [lo, y],
          ],
          [
            [a, x],
            [l, y],
          ],
          [[b, x]],
        ),
      ),
      ...ways.map(([x, y]) =>
        value(
          [
            [o, x],
            [ro, y],
          ],
          [[a, x]],
          [
            [b, x],
            [r, y],
          ],
        ),
      ),
      ...ways.map(([x, y]) =>
        value(
          [[o, x]],
          [
            [a, x],
            [ka, y],
          ],
          [
            [b, x],
            [kb, y],
          ],
          {
            axis: y,
            scatter: [
              [o, x],
              [lo, y],
            ],
          },
        ),
      ),
      ...line,
    ];
  }
}
