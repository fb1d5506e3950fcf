/**
 * The verbs of typed per-device code as operators, under the names of the package spmd_types. In a
 * body of `local_map` their shapes are those of one device (`size` is the number of ranks along
 * `axis`); `redistribute`, `out_partial` and `assert_type` stand in global programs, where they
 * leave the value as it is. Rules here speak of the OTHER mesh dims, on which a verb is an ordinary
 * linear function. Source: `mesh/local-types/primitives.ts`.
 */
import { afterVerb, touchedBy } from '../../mesh/local-types/other-axes.ts';
import { type AxisType, cutOf, isAxisType, S } from '../../mesh/local-types/types.ts';
import { one, tensor } from '../record/kernel.ts';
import {
  defineOp,
  type OpClass,
  type OpContext,
  type OperatorRecord,
  type TypedContext,
} from '../record/record.ts';
import { P, type Rule, rule } from '../record/rule.ts';
import { anyS, cuttable, linearKinds, movedKinds } from '../rules/dims.ts';

const TYPED = 'Tensor x, str axis, int size, str src, str dst';

const SPMD_PREFIX = 'spmd_types.';

/** `spmd_types.all_reduce.default`. */
export function spmdTarget(name: string): string {
  return `${SPMD_PREFIX}${name}.default`;
}

/** `all_reduce` of `spmd_types.all_reduce.default`; undefined for other operators. */
export function spmdName(target: string): string | undefined {
  return target.startsWith(SPMD_PREFIX)
    ? target.slice(SPMD_PREFIX.length).replace(/\.default$/, '')
    : undefined;
}

/**
 * The types that the source word of a verb names: one, or of a verb under a JAX name, while its
 * region is made, those that it takes (`V|P`), the plain one first.
 */
export function sourceWords(word: string): string[] {
  return word.split('|');
}

/**
 * The axes that a verb names: one, or of `redistribute` several in mesh order (`dp,tp`), which one
 * collective goes over.
 */
export function verbAxes(text: string): string[] {
  return text.split(',');
}

/** A type argument. @throws E_TYPE */
function typeArgument(ctx: OpContext, name: string): AxisType {
  const word = sourceWords(ctx.text(name))[0];
  return isAxisType(word) ? word : ctx.fail(`'${word}' is not a type; write V, R, I, P or S(0)`);
}

function sizeArgument(ctx: OpContext): number {
  const size = ctx.int('size');
  return size > 0 ? size : ctx.fail(`an axis of ${size} ranks`);
}

/** Shape after pieces of one dim are joined; without a dim they are stacked on a new dim 0. */
function joined(ctx: OpContext, shape: readonly number[], dim: number | undefined): number[] {
  const n = sizeArgument(ctx);
  if (dim === undefined) return [n, ...shape];
  return shape.map((size, d) => (d === existing(ctx, shape, dim) ? size * n : size));
}

/** Shape of a piece. @throws E_TYPE where the dim does not divide */
function cut(ctx: OpContext, shape: readonly number[], dim: number | undefined): number[] {
  const n = sizeArgument(ctx);
  if (dim === undefined)
    return shape[0] === n
      ? shape.slice(1)
      : ctx.fail(
          `V takes one row of dim 0 for each of ${n} ranks, the shape is [${shape.join(', ')}]`,
          'name the dim that is cut: S(0)',
        );
  const at = existing(ctx, shape, dim);
  if (shape[at] % n !== 0)
    ctx.fail(
      `dim ${at} of size ${shape[at]} does not divide by the ${n} ranks of ${ctx.text('axis')}`,
      `pad it to ${Math.ceil(shape[at] / n) * n}, or cut another dim`,
    );
  return shape.map((size, d) => (d === at ? size / n : size));
}

function existing(ctx: OpContext, shape: readonly number[], dim: number): number {
  return dim < shape.length
    ? dim
    : ctx.fail(
        `S(${dim}) names a dim that [${shape.join(', ')}] does not have`,
        `count dims from 0: the last is S(${shape.length - 1})`,
      );
}

/** Shape of one device after a verb. */
function shapeAfter(ctx: OpContext): readonly number[] {
  const [{ shape }] = ctx.inputs;
  const [src, dst] = [typeArgument(ctx, 'src'), typeArgument(ctx, 'dst')];
  const name = spmdName(ctx.target);
  const [from, to] = [cutOf(src), cutOf(dst)];
  const cuts = (type: AxisType): boolean => type === 'V' || cutOf(type) !== undefined;
  if (name === 'reinterpret' || name === 'all_reduce') return shape;
  if (name === 'all_to_all') {
    if (from !== undefined && to !== undefined) return joined(ctx, cut(ctx, shape, to), from);
    return [sizeArgument(ctx), ...cut(ctx, shape, undefined)];
  }
  if (cuts(src) && !cuts(dst)) return joined(ctx, shape, from);
  if (!cuts(src) && cuts(dst)) return cut(ctx, shape, to);
  return shape;
}

/** The dims that a verb joins and cuts; `afterVerb` says which cuts on another axis it leaves. */
function touchedDims(ctx: OpContext): ReturnType<typeof touchedBy> {
  return touchedBy(spmdName(ctx.target) ?? '', typeArgument(ctx, 'src'), typeArgument(ctx, 'dst'));
}

/** On other mesh dims: every plain cut that the verb leaves plain passes, and what is linear. */
function passing(ctx: TypedContext): Rule[] {
  const [{ shape, dtype }] = ctx.inputs;
  const [touched, ranks] = [touchedDims(ctx), sizeArgument(ctx)];
  return [
    ...cuttable(shape).flatMap((d) => {
      const after = afterVerb(S(d), touched, ranks);
      const dim = after === undefined ? undefined : cutOf(after);
      return dim === undefined ? [] : [rule([anyS(d)], [anyS(dim)])];
    }),
    ...linearKinds(dtype).map((kind) => rule([P(kind)], [P(kind)])),
  ];
}

function verb(name: string, cls: OpClass): OperatorRecord {
  return defineOp(spmdTarget(name), {
    schema: TYPED,
    cls,
    infer: (ctx) => [{ dtype: ctx.inputs[0].dtype, shape: shapeAfter(ctx) }],
    shard: passing,
    flops: () => ({ matrix: 0, vector: 0 }),
  });
}

/** A statement about a value of a global program: the value stays. */
function statement(
  name: string,
  schema: string,
  stated: (ctx: OpContext) => readonly AxisType[] = () => [],
): OperatorRecord {
  return defineOp(spmdTarget(name), {
    schema,
    cls: 'view',
    infer: (ctx) => {
      const [value] = ctx.inputs;
      for (const type of stated(ctx)) existing(ctx, value.shape, cutOf(type) ?? -1);
      return [value];
    },
    shard: (ctx) => [
      ...cuttable(ctx.inputs[0].shape).map((d) => rule([anyS(d)], [anyS(d)])),
      ...movedKinds(ctx.inputs[0].dtype).map((kind) => rule([P(kind)], [P(kind)])),
    ],
    flops: () => ({ matrix: 0, vector: 0 }),
    kernel: one((call) => tensor(call, 'x')),
  });
}

export const spmdOps: readonly OperatorRecord[] = [
  verb('convert', 'view'),
  verb('reinterpret', 'view'),
  verb('all_reduce', 'collective'),
  verb('all_gather', 'collective'),
  verb('reduce_scatter', 'collective'),
  verb('all_to_all', 'collective'),
  defineOp(spmdTarget('permute'), {
    schema: 'Tensor x, str axis, int size, int[] targets',
    cls: 'collective',
    infer: (ctx) => {
      const [n, targets] = [sizeArgument(ctx), ctx.ints('targets')];
      if (targets.length !== n || [...targets].sort((a, b) => a - b).some((t, i) => t !== i))
        ctx.fail(
          `targets [${targets.join(', ')}] are not a permutation of the ${n} ranks of ` +
            `${ctx.text('axis')}`,
          'name every rank once',
        );
      return [ctx.inputs[0]];
    },
    shard: (ctx) => [
      ...cuttable(ctx.inputs[0].shape).map((d) => rule([anyS(d)], [anyS(d)])),
      ...linearKinds(ctx.inputs[0].dtype).map((kind) => rule([P(kind)], [P(kind)])),
    ],
    flops: () => ({ matrix: 0, vector: 0 }),
  }),
  defineOp(spmdTarget('axis_index'), {
    schema: 'str axis, int size',
    cls: 'factory',
    infer: () => [{ dtype: 'i64', shape: [] }],
    flops: () => ({ matrix: 0, vector: 0 }),
  }),
  statement('redistribute', TYPED, (ctx) => [typeArgument(ctx, 'src'), typeArgument(ctx, 'dst')]),
  statement('out_partial', 'Tensor x, str axis, int size'),
  statement('assert_type', 'Tensor x, Any types'),
];
