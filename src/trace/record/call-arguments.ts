/** Arguments of a recorded call, from what the program wrote to what the graph keeps. */

import type { Arg, DType, FloatLiteral } from '../../graph/types.ts';
import { ref, setOwn } from '../../graph/value.ts';
import type { ArgSchema } from '../../ops/record/schema.ts';
import type { DimValues, SizeExpression } from '../sizes/size-expression.ts';
import { Sym } from '../sizes/sizes.ts';
import type { TypedValue } from './typed-value.ts';

/**
 * An argument over values of kind V. Whole numbers are integers; `{ kind: 'float' }` writes 2.0.
 */
export type CallArgument<V> =
  | V
  | Sym
  | number
  | bigint
  | string
  | boolean
  | null
  | FloatLiteral
  | { readonly kind: 'dtype'; readonly dtype: DType }
  | readonly CallArgument<V>[];

/**
 * A size in an argument while a call is typed: with its expression, which the graph does not keep.
 */
interface SizeWithExpression {
  readonly kind: 'size';
  readonly size: {
    readonly sym: string;
    readonly example: number;
    readonly expression: SizeExpression;
  };
}

/**
 * The graph's form of an argument; sizes keep their expressions until `withoutExpression`.
 *
 * @param schema tells a float from an integer
 * @param own the recorder's own value for a value
 */
export function toArg<V extends TypedValue>(
  arg: CallArgument<V>,
  schema: ArgSchema | undefined,
  own: (value: V) => TypedValue,
): Arg {
  if (arg instanceof Sym) {
    const literal: SizeWithExpression = {
      kind: 'size',
      size: { sym: arg.sym, example: arg.example, expression: arg.expression },
    };
    return literal;
  }
  if (typeof arg === 'number') return numberArg(arg, schema);
  if (arg === null || typeof arg !== 'object') return arg;
  if (isArgList(arg)) return arg.map((member) => toArg(member, schema, own));
  return 'requiresGrad' in arg ? ref(own(arg).name) : arg;
}

/** Whole numbers are integers except where the operator wants a float. */
function numberArg(value: number, schema: ArgSchema | undefined): Arg {
  const float =
    schema?.type.startsWith('float') === true ||
    !Number.isSafeInteger(value) ||
    Object.is(value, -0);
  return float ? { kind: 'float', value } : value;
}

/** The argument at these sizes. */
export function argAt(arg: Arg, values: DimValues): Arg {
  if (Array.isArray(arg)) return arg.map((member: Arg) => argAt(member, values));
  return isSizeLiteral(arg) ? arg.size.expression.evaluate(values) : arg;
}

/** The argument as the graph keeps it. */
export function withoutExpression(arg: Arg): Arg {
  if (Array.isArray(arg)) return arg.map(withoutExpression);
  return isSizeLiteral(arg)
    ? { kind: 'size', size: { sym: arg.size.sym, example: arg.size.example } }
    : arg;
}

/** The sizes in an argument. */
export function sizesIn(arg: Arg): SizeExpression[] {
  if (Array.isArray(arg)) return arg.flatMap(sizesIn);
  return isSizeLiteral(arg) ? [arg.size.expression] : [];
}

export function mapArgs(
  record: Readonly<Record<string, Arg>>,
  map: (arg: Arg) => Arg,
): Record<string, Arg> {
  const mapped: Record<string, Arg> = {};
  for (const key of Object.keys(record)) setOwn(mapped, key, map(record[key]));
  return mapped;
}

function isSizeLiteral(arg: Arg): arg is Arg & SizeWithExpression {
  return (
    typeof arg === 'object' &&
    arg !== null &&
    'kind' in arg &&
    arg.kind === 'size' &&
    'expression' in arg.size
  );
}

function isArgList<V>(arg: CallArgument<V>): arg is readonly CallArgument<V>[] {
  return Array.isArray(arg);
}
