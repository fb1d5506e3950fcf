/**
 * Types of recorded calls, by the operator records; where they have dims, by probing the records.
 */

import { ShardwrightError } from '../../errors.ts';
import { baseName } from '../../graph/build.ts';
import type { Arg, DType, TensorType, ValueType } from '../../graph/types.ts';
import { tensorType, typeText } from '../../graph/value.ts';
import { inferCall } from '../../ops/record/infer.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { type Place, refusal } from '../errors/refusal.ts';
import type { DimValues, SizeExpression } from '../sizes/size-expression.ts';
import { type DimScope, expressionOf, type Size, sizeOf } from '../sizes/sizes.ts';
import { SizeMisfit, symbolicShapes } from '../sizes/symbolic-infer.ts';
import { argAt, mapArgs, sizesIn } from './call-arguments.ts';
import { isFloating, plainDim, type TypedValue } from './typed-value.ts';

/** One result of a call; null where the call masks it off. */
export type CallResult = { readonly type: TensorType; readonly shape: readonly Size[] } | null;

export interface TypedCall {
  readonly target: string;
  readonly args: readonly Arg[];
  readonly kwargs: Readonly<Record<string, Arg>>;
  /** Values that the call reads, by name. */
  readonly operands: ReadonlyMap<string, TypedValue>;
}

/** Result types of a call. @throws E_TYPE of the operator record, SizeMisfit; see `callError` */
export function callTypes(table: OperatorTable, dims: DimScope, call: TypedCall): CallResult[] {
  const { target, args, kwargs, operands } = call;
  const infer = (
    typeOf: (name: string) => ValueType,
    at: (arg: Arg) => Arg,
  ): readonly ValueType[] => {
    const type = inferCall(
      table,
      { target, args: args.map(at), kwargs: mapArgs(kwargs, at) },
      typeOf,
    );
    return type === undefined ? [] : type.kind === 'tuple' ? type.items : [type];
  };
  const given: SizeExpression[] = [...args, ...Object.values(kwargs)].flatMap(sizesIn);
  for (const { shape } of operands.values())
    for (const size of shape) if (typeof size !== 'number') given.push(size.expression);
  if (given.length === 0) {
    const types = infer(
      (name) => operands.get(name)?.type ?? { kind: 'none' },
      (arg) => arg,
    );
    return types.map((type) =>
      type.kind === 'tensor' ? { type, shape: type.shape as readonly number[] } : null,
    );
  }
  const dtypes: (DType | undefined)[] = [];
  const names = [...new Set(given.flatMap((e) => e.names()))].sort();
  const shapes = symbolicShapes(dims, names, given, (values) =>
    infer(
      (name) => typeAt(operands.get(name), values),
      (arg) => argAt(arg, values),
    ).map((type, i) => {
      if (type.kind !== 'tensor') return null;
      dtypes[i] ??= type.dtype;
      return type.shape as readonly number[];
    }),
  );
  return shapes.map((shape, i) => {
    const dtype = dtypes[i];
    if (shape === null || dtype === undefined) return null;
    const sizes = Object.freeze(shape.map((e) => sizeOf(e, dims)));
    return { type: tensorType(dtype, sizes.map(plainDim)), shape: sizes };
  });
}

function typeAt(value: TypedValue | undefined, values: DimValues): ValueType {
  if (value === undefined) return { kind: 'none' };
  return tensorType(
    value.dtype,
    value.shape.map((size) => expressionOf(size).evaluate(values)),
  );
}

/**
 * Operators whose tensors have one dtype; the rules of the table would promote. As PyTorch, which
 * refuses a mixture.
 */
const ONE_DTYPE: ReadonlySet<string> = new Set(
  ['mm', 'bmm', 'matmul', 'linear', 'addmm', 'baddbmm', 'conv1d', 'conv2d', 'conv3d'].map(
    (op) => `aten.${op}.default`,
  ),
);

/**
 * @throws E_DTYPE for a product of tensors of different dtypes, and a mean of integers, which has
 *   no dtype of its own
 */
export function refuseDtypes({ target, operands, kwargs }: TypedCall, place: Place): void {
  const dtypes = [...operands.values()].map(({ dtype }) => dtype);
  const listed = [...operands.values()].map(({ type }) => typeText(type).replaceAll(/=\d+/g, ''));
  if (ONE_DTYPE.has(target) && dtypes.some((dtype) => dtype !== dtypes[0]))
    throw refusal('E_DTYPE', `${baseName(target)}: dtypes differ, ${listed.join(' x ')}`, place, {
      hint: "cast one side: x.to('bf16').",
    });
  if (
    target.startsWith('aten.mean.') &&
    kwargs.dtype === undefined &&
    !isFloating(dtypes[0]) &&
    !/^c/.test(dtypes[0])
  )
    throw refusal('E_DTYPE', `mean: ${listed[0]} is not floating`, place, {
      hint: "cast it first: x.to('f32').",
    });
}

/** The error of a call in words of the caller: both sides named, at the user's line. */
export function callError(error: unknown, { target, operands }: TypedCall, place: Place): unknown {
  const name = baseName(target);
  const types = [...operands.values()].map((o) => typeText(o.type).replaceAll(/=\d+/g, ''));
  const listed = types.length === 0 ? '' : `; got ${types.join(' and ')}`;
  if (error instanceof SizeMisfit)
    return refusal('E_SHAPE', `${name}: ${error.message}${listed}`, place, { hint: error.hint });
  if (!(error instanceof ShardwrightError) || error.code !== 'E_TYPE') return error;
  const words = error.message.startsWith(`${target}: `)
    ? error.message.slice(target.length + 2)
    : error.message;
  return refusal(
    DTYPE_WORDS.test(words) ? 'E_DTYPE' : 'E_SHAPE',
    `${name}: ${words}${listed}`,
    place,
    error.details,
  );
}

/** How the operator records speak of element types; their other refusals are about shapes. */
const DTYPE_WORDS = /\bdtypes?\b|\bintegers?\b|\bbool(ean)?s?\b|\bfloating\b|\bpromot/i;
