/**
 * Reductions with a body: `reduce`, `reduce_window`, `select_and_scatter`, `sort`, `top_k`. The
 * body is known by name (`add`, `maximum` ...) or only as a subgraph. Every rank starts from the
 * initial value, so for a sum over cut rows it is pending itself (one rank holds it, the others
 * zero), which is right for any initial value.
 */

import type { DType } from '../../graph/types.ts';
import type { ReduceOp } from '../../mesh/placements/placement.ts';
import { product } from '../../product.ts';
import {
  defineOp,
  elements,
  type OpContext,
  type OperatorRecord,
  type TensorMeta,
  type TypedContext,
} from '../record/record.ts';
import { P, R, type Rule, rule, type RuleSlot, S } from '../record/rule.ts';
import { anyS, cuttable, linearKinds, movedKinds, pendingRules } from '../rules/dims.ts';
import { dilated } from './product.ts';

/** Pending kind that rows reduced apart leave; undefined where that is not known. */
function joins(reducer: string, dtype: DType): ReduceOp | undefined {
  const bool = dtype === 'b8';
  switch (reducer) {
    case 'add':
      return bool ? 'bor' : 'sum';
    case 'maximum':
      return bool ? 'bor' : 'max';
    case 'minimum':
      return bool ? 'band' : 'min';
    case 'or':
      return bool ? 'bor' : undefined;
    case 'and':
      return bool ? 'band' : undefined;
    default:
      return undefined;
  }
}

interface Parts {
  readonly inputs: readonly TensorMeta[];
  readonly inits: readonly TensorMeta[];
}

/** Inputs and initial values, which come in pairs of one dtype; inputs have one shape. */
function partsOf(ctx: OpContext): Parts {
  const metas = (name: string): TensorMeta[] =>
    ctx.list(name).flatMap((m) => (m === null ? [] : [m.meta]));
  const [inputs, inits] = [metas('inputs'), metas('init_values')];
  if (inputs.length === 0 || inputs.length !== inits.length)
    ctx.fail(`${inputs.length} inputs and ${inits.length} initial values; they come in pairs`);
  inputs.forEach((input, i) => {
    if (input.shape.join() !== inputs[0].shape.join()) ctx.fail('inputs must have one shape');
    if (inits[i].shape.length !== 0 || inits[i].dtype !== input.dtype)
      ctx.fail(`initial value ${i} must be a scalar of ${input.dtype}`);
  });
  return { inputs, inits };
}

function reducedDims(ctx: OpContext, rank: number): readonly number[] {
  const dims = ctx.ints('dimensions');
  if (new Set(dims).size !== dims.length || dims.some((d) => d < 0 || d >= rank))
    ctx.fail(`dimensions [${dims.join(', ')}] do not fit a tensor of ${rank} dims`);
  return dims;
}

const reducerOf = (ctx: OpContext): string => (ctx.has('reducer') ? ctx.text('reducer') : '');

/** Rules of pending inputs, shared by all reductions of one input whose body is `reducer`. */
function pendingInputs(reducer: string, dtype: DType): Rule[] {
  const join = joins(reducer, dtype);
  if (join === undefined) return [];
  const rules = [rule([P(join), P(join)], [P(join)])];
  // An average of sums over the same initial value, or an extreme next to a value that every rank
  // takes part with.
  if (join === 'sum' && linearKinds(dtype).includes('avg'))
    rules.push(rule([P('avg'), R], [P('avg')], { origin: 'ext' }));
  if (join !== 'sum') rules.push(rule([P(join), R], [P(join)]));
  return rules;
}

const reduce = defineOp('stablehlo.reduce', {
  schema:
    'Tensor[] inputs, Tensor[] init_values, *, int[] dimensions, str? reducer=None, Any body=None',
  cls: 'reduction',
  results: 'tuple',
  infer: (ctx) => {
    const { inputs } = partsOf(ctx);
    const reduced = reducedDims(ctx, inputs[0].shape.length);
    return inputs.map(({ dtype, shape }) => ({
      dtype,
      shape: shape.filter((_, d) => !reduced.includes(d)),
    }));
  },
  shard: (ctx) => {
    const { inputs } = partsOf(ctx);
    const reduced = reducedDims(ctx, inputs[0].shape.length);
    const rules: Rule[] = [];
    const all = (own: RuleSlot, out: RuleSlot): Rule =>
      rule(
        [...inputs.map(() => own), ...inputs.map(() => R)],
        ctx.outputs.map(() => out),
      );
    const join = inputs.length === 1 ? joins(reducerOf(ctx), inputs[0].dtype) : undefined;
    for (const d of cuttable(inputs[0].shape)) {
      if (!reduced.includes(d))
        rules.push(all(anyS(d), anyS(d - reduced.filter((r) => r < d).length)));
      else if (join === 'sum') rules.push(rule([anyS(d), P('sum')], [P('sum')]));
      else if (join !== undefined) rules.push(all(anyS(d), P(join)));
    }
    return join === undefined
      ? rules
      : [...rules, ...pendingInputs(reducerOf(ctx), inputs[0].dtype)];
  },
  flops: (ctx) => ({
    matrix: 0,
    vector: elements(ctx.inputs[0].shape) * ctx.list('inputs').length,
  }),
});

// ---- windows
// -----------------------------------------------------------------------------

const WINDOW =
  'int[] window_dimensions, int[] window_strides=[], int[] base_dilations=[], int[] ' +
  'window_dilations=[], int[] padding=[]';

interface Windows {
  readonly shape: readonly number[];
  /** Dims that the window leaves alone. */
  readonly untouched: readonly number[];
}

function windows(ctx: OpContext, input: readonly number[]): Windows {
  const rank = input.length;
  const list = (name: string, length: number, fill: number): readonly number[] => {
    const given = ctx.ints(name);
    if (given.length === 0) return new Array<number>(length).fill(fill);
    return given.length === length
      ? given
      : ctx.fail(`${name} has ${given.length} entries, expected ${length}`);
  };
  const size = list('window_dimensions', rank, 1);
  const stride = list('window_strides', rank, 1);
  const base = list('base_dilations', rank, 1);
  const spread = list('window_dilations', rank, 1);
  const padding = list('padding', 2 * rank, 0);
  if ([...size, ...stride, ...base, ...spread].some((n) => n < 1))
    ctx.fail('window sizes, strides and dilations are positive');
  const untouched: number[] = [];
  const shape = input.map((n, d) => {
    const [low, high] = [padding[2 * d], padding[2 * d + 1]];
    if (size[d] === 1 && stride[d] === 1 && base[d] === 1 && low === 0 && high === 0)
      untouched.push(d);
    const room = dilated(n, base[d]) + low + high;
    const reach = dilated(size[d], spread[d]);
    return room < reach ? 0 : Math.floor((room - reach) / stride[d]) + 1;
  });
  return { shape, untouched };
}

const reduceWindow = defineOp('stablehlo.reduce_window', {
  schema: `Tensor[] inputs, Tensor[] init_values, *, ${WINDOW}, str? reducer=None, Any body=None`,
  cls: 'reduction',
  results: 'tuple',
  infer: (ctx) => {
    const { inputs } = partsOf(ctx);
    return inputs.map(({ dtype, shape }) => ({ dtype, shape: windows(ctx, shape).shape }));
  },
  shard: (ctx) => {
    const { inputs } = partsOf(ctx);
    const { untouched } = windows(ctx, inputs[0].shape);
    const rules = untouched
      .filter((d) => inputs[0].shape[d] > 1)
      .map((d) =>
        rule(
          [...inputs.map(() => S(d)), ...inputs.map(() => R)],
          ctx.outputs.map(() => S(d)),
        ),
      );
    return inputs.length === 1
      ? [...rules, ...pendingInputs(reducerOf(ctx), inputs[0].dtype)]
      : rules;
  },
  flops: (ctx) => ({
    matrix: 0,
    vector: elements(ctx.outputs[0]?.shape ?? []) * product(ctx.ints('window_dimensions')),
  }),
});

/**
 * The gradient of a max pool: scatters the source to the place in each window that the body
 * selects.
 */
const selectAndScatter = defineOp('stablehlo.select_and_scatter', {
  schema:
    `Tensor operand, Tensor source, Tensor init_value, *, ${WINDOW}, Any select=None, Any ` +
    'scatter=None',
  cls: 'reduction',
  infer: (ctx) => {
    const { shape } = windows(ctx, ctx.inputs[0].shape);
    if (shape.join() !== ctx.inputs[1].shape.join())
      ctx.fail(
        `the source has shape [${ctx.inputs[1].shape.join(', ')}], expected [${shape.join(', ')}]`,
      );
    return [ctx.inputs[0]];
  },
  shard: (ctx) =>
    windows(ctx, ctx.inputs[0].shape)
      .untouched.filter((d) => ctx.inputs[0].shape[d] > 1)
      .map((d) => rule([S(d), S(d), R], [S(d)])),
  flops: (ctx) => ({ matrix: 0, vector: 2 * elements(ctx.inputs[0].shape) }),
});

// ---- along one dim that stays whole
// -----------------------------------------------------------------------------

function alongRules(ctx: TypedContext, dim: number): Rule[] {
  return cuttable(ctx.inputs[0].shape)
    .filter((d) => d !== dim)
    .map((d) =>
      rule(
        ctx.inputs.map(() => S(d)),
        ctx.outputs.map(() => S(d)),
      ),
    );
}

/** By the comparator; without one ascending by the first `num_keys` operands. */
const sort = defineOp('stablehlo.sort', {
  schema:
    'Tensor[] inputs, *, int dimension=-1, bool is_stable=False, int num_keys=1, Any ' +
    'comparator=None',
  cls: 'other',
  results: 'tuple',
  infer: (ctx) => {
    const [first] = ctx.inputs;
    if (first === undefined) return ctx.fail('needs at least one operand');
    if (ctx.inputs.some((t) => t.shape.join() !== first.shape.join()))
      ctx.fail('operands must have one shape');
    sortedDim(ctx);
    return ctx.inputs;
  },
  shard: (ctx) => [...alongRules(ctx, sortedDim(ctx)), ...carriedRules(ctx)],
  flops: (ctx) => {
    const n = ctx.inputs[0].shape[sortedDim(ctx)] ?? 1;
    return {
      matrix: 0,
      vector: elements(ctx.inputs[0].shape) * Math.max(1, Math.log2(Math.max(1, n))),
    };
  },
});

/**
 * Operands that are not keys are moved as the keys say, which are whole: pending ones stay pending.
 * Where equal keys may change places, ranks may move them differently; what a comparator reads is
 * not known.
 */
function carriedRules(ctx: TypedContext): Rule[] {
  if (!ctx.bool('is_stable') || ctx.has('comparator')) return [];
  return ctx.inputs.flatMap(({ dtype }, i) =>
    i < ctx.int('num_keys')
      ? []
      : pendingRules(
          ctx.inputs.length,
          [i],
          ctx.inputs.map((_, k) => (k === i ? 'pending' : 'plain')),
          movedKinds(dtype),
          'ext',
        ),
  );
}

function sortedDim(ctx: OpContext): number {
  const rank = ctx.inputs[0].shape.length;
  const dim = ctx.int('dimension') < 0 ? ctx.int('dimension') + rank : ctx.int('dimension');
  return dim >= 0 && dim < Math.max(1, rank)
    ? dim
    : ctx.fail(`dim ${dim} does not exist in a tensor of ${rank} dims`);
}

/** The k largest of the last dim with their positions. */
const topK = defineOp('chlo.top_k', {
  schema: 'Tensor operand, *, int k',
  cls: 'other',
  results: 'tuple',
  infer: (ctx) => {
    const { dtype, shape } = ctx.inputs[0];
    const size = shape.at(-1) ?? ctx.fail('needs a tensor of at least one dim');
    if (ctx.int('k') < 0 || ctx.int('k') > size)
      ctx.fail(`k is ${ctx.int('k')}, the last dim has ${size} elements`);
    const out = [...shape.slice(0, -1), ctx.int('k')];
    return [
      { dtype, shape: out },
      { dtype: 'i32', shape: out },
    ];
  },
  shard: (ctx) => alongRules(ctx, ctx.inputs[0].shape.length - 1),
  flops: (ctx) => ({
    matrix: 0,
    vector: elements(ctx.inputs[0].shape) * Math.max(1, Math.log2(Math.max(2, ctx.int('k')))),
  }),
});

/** A body applied elementwise to operands of one shape, as the old `map` has it. */
const map = defineOp('stablehlo.map', {
  schema: 'Tensor[] inputs, *, int[] dimensions=[], ScalarType? dtype=None, Any computation=None',
  cls: 'pointwise',
  infer: (ctx) => [
    { dtype: ctx.dtype('dtype') ?? ctx.inputs[0].dtype, shape: ctx.inputs[0].shape },
  ],
  shard: (ctx) => alongRules(ctx, -1),
});

export const reduceOps: readonly OperatorRecord[] = [
  reduce,
  reduceWindow,
  selectAndScatter,
  sort,
  topK,
  map,
];
