/** Gives the element call of a list operator such as `_foreach_add.List`. */

import { ShardwrightError } from '../errors.ts';
import type { Arg } from '../graph/types.ts';
import { isList } from '../graph/value.ts';
import type { OperatorRecord } from './record/record.ts';
import type { ArgSchema } from './record/schema.ts';
import type { OperatorTable } from './record/table.ts';

/**
 * Operators over lists of tensors (`_foreach_add.List`, `_foreach_mul_.Scalar`) as one call of the
 * element operator for each place of the lists. Each element is then placed on its own; the lists
 * are only how the program writes them.
 */
export interface ElementCall {
  /** Name by which the record is called; an alias keeps its own (`aten.index_add_.default`). */
  readonly target: string;
  readonly record: OperatorRecord;
  readonly args: readonly Arg[];
  readonly kwargs: Readonly<Record<string, Arg>>;
  /**
   * Results that are written back to an argument, where the list operator works in place and its
   * element operator does not.
   */
  readonly writes?: readonly { readonly result: number; readonly to: Arg }[];
}

/** Tells whether a target is a list operator. */
export function isListOperator(target: string): boolean {
  return /^aten\._((amp_)?foreach_|fused_adamw?_?\.)/.test(target);
}

/**
 * @returns one call for each element, in order
 * @throws E_TYPE for lists of unequal length, E_UNKNOWN_OP when no element operator takes such
 *   arguments
 */
export function elementCalls(
  table: OperatorTable,
  target: string,
  args: readonly Arg[],
  kwargs: Readonly<Record<string, Arg>> = {},
): readonly ElementCall[] {
  const fused = /^aten\._fused_(adamw?)(_?)\.(\w+)$/.exec(target);
  if (fused !== null) return fusedCalls(table, target, fused, args, kwargs);
  const base = /^aten\._(?:amp_)?foreach_(\w+?)\.(\w+)$/.exec(target);
  if (base === null)
    throw new ShardwrightError(
      'E_UNKNOWN_OP',
      `${target} is not an operator over lists of tensors`,
      {
        hint: 'list operators are called aten._foreach_NAME.OVERLOAD',
      },
    );
  const [, name, overload] = base;
  const length = commonLength(target, [...args, ...Object.values(kwargs)].filter(isList));
  const element = (arg: Arg, i: number): Arg => (isList(arg) ? arg[i] : arg);
  const found =
    elementOperator(table, name, overload, args, kwargs) ??
    // In place by the functional operator, whose result is written back.
    (name.endsWith('_')
      ? elementOperator(table, name.slice(0, -1), overload, args, kwargs)
      : undefined);
  if (found === undefined)
    throw new ShardwrightError(
      'E_UNKNOWN_OP',
      `${target}: no operator aten.${name} takes its elements`,
      {
        hint: 'register the element operator with registerOp',
      },
    );
  const { record, keyword } = found;
  const writes = name.endsWith('_') && !/_\.\w+$/.test(found.target);
  return Array.from({ length }, (_, i) => {
    const own = args.map((arg) => element(arg, i));
    const named = Object.fromEntries(
      Object.entries(kwargs).map(([key, arg]) => [key, element(arg, i)]),
    );
    return {
      target: found.target,
      record,
      args: keyword === undefined ? own : own.slice(0, -1),
      kwargs: keyword === undefined ? named : { ...named, [keyword]: own[own.length - 1] },
      ...(writes ? { writes: [{ result: 0, to: own[0] }] } : {}),
    };
  });
}

/** @throws E_TYPE for lists of unequal length */
function commonLength(target: string, lists: readonly (readonly Arg[])[]): number {
  const lengths = new Set(lists.map((l) => l.length));
  if (lengths.size !== 1)
    throw new ShardwrightError(
      'E_TYPE',
      `${target}: its lists have ${[...lengths].sort((a, b) => a - b).join(' and ')} ` +
        'elements; they must be as long as each other',
    );
  return lists[0].length;
}

/**
 * Lists that a fused step writes: parameters, moments, largest second moments; gradients only where
 * it unscales them.
 */
const FUSED_WRITES = [0, 2, 3, 4];

/** Steps of an optimizer: the same operator with lists of one member. */
function fusedCalls(
  table: OperatorTable,
  target: string,
  [, name, inPlace, overload]: readonly string[],
  args: readonly Arg[],
  kwargs: Readonly<Record<string, Arg>>,
): readonly ElementCall[] {
  const functional = `aten._fused_${name}.${overload}`;
  const record = table.get(functional);
  if (record === undefined)
    throw new ShardwrightError('E_UNKNOWN_OP', `${target}: there is no operator ${functional}`);
  const lists = args.filter(isList);
  const length = commonLength(
    target,
    lists.filter((l) => l.length > 0),
  );
  return Array.from({ length }, (_, i) => {
    const own = args.map((arg) => (isList(arg) ? arg.slice(i, i + 1) : arg));
    const written = FUSED_WRITES.filter((k) => (lists[k]?.length ?? 0) > 0);
    return {
      target: functional,
      record,
      args: own,
      kwargs,
      ...(inPlace === '' ? {} : { writes: written.map((k) => ({ result: k, to: lists[k][i] })) }),
    };
  });
}

/**
 * Overloads of element operators by that of the list operator, in the order in which they are
 * tried.
 */
const OVERLOADS: Readonly<Record<string, readonly string[]>> = {
  List: ['Tensor', 'default'],
  Tensor: ['Tensor', 'default'],
  Scalar: ['Scalar', 'Tensor_Scalar', 'Tensor', 'default'],
  ScalarList: ['Scalar', 'Tensor_Scalar', 'Tensor', 'default'],
  default: ['default'],
  ScalarAndTensor: ['Scalar'],
};

/** Operators whose element operator has another name where the second argument is a number. */
const BESIDE_NUMBER: Readonly<Record<string, string>> = {
  maximum: 'clamp_min',
  minimum: 'clamp_max',
};

interface Element {
  readonly target: string;
  readonly record: OperatorRecord;
  /** The last positional argument goes by this keyword. */
  readonly keyword?: string;
}

/**
 * The operator whose arguments fit position by position: a tensor for a tensor or a list, a scalar
 * for a scalar. A number at the end may be a keyword there: `_foreach_addcmul(.., .., .., 2)` is
 * `addcmul(.., .., .., value=2)`.
 */
function elementOperator(
  table: OperatorTable,
  name: string,
  overload: string,
  args: readonly Arg[],
  kwargs: Readonly<Record<string, Arg>>,
): Element | undefined {
  const tried = Object.hasOwn(OVERLOADS, overload) ? OVERLOADS[overload] : ['default'];
  const [, bare, inPlace] = /^(\w*?)(_?)$/.exec(name) ?? [name, name, ''];
  const other =
    overload.startsWith('Scalar') && Object.hasOwn(BESIDE_NUMBER, bare)
      ? [BESIDE_NUMBER[bare] + inPlace]
      : [];
  for (const target of [name, ...other].flatMap((n) => tried.map((o) => `aten.${n}.${o}`))) {
    const record = table.get(target);
    if (record === undefined) continue;
    if (fits(record.schema, args, kwargs)) return { target, record };
    const keyword = record.schema.find((s) => s.kwargOnly && s.type === 'Scalar')?.name;
    const last = args[args.length - 1];
    if (keyword !== undefined && !isTensor(last) && fits(record.schema, args.slice(0, -1), kwargs))
      return { target, record, keyword };
  }
  return undefined;
}

function isTensor(arg: Arg | undefined): boolean {
  const first = arg !== undefined && isList(arg) ? arg[0] : arg;
  return typeof first === 'object' && first !== null && 'kind' in first && first.kind === 'value';
}

function fits(
  schema: readonly ArgSchema[],
  args: readonly Arg[],
  kwargs: Readonly<Record<string, Arg>>,
): boolean {
  const positional = schema.filter((s) => !s.kwargOnly);
  if (
    args.length > positional.length ||
    Object.keys(kwargs).some((key) => !schema.some((s) => s.name === key))
  )
    return false;
  return positional.every((s, i) => {
    const arg = args[i];
    if (arg === undefined) return !s.required || Object.hasOwn(kwargs, s.name);
    return isTensor(arg)
      ? s.type.startsWith('Tensor')
      : !s.type.startsWith('Tensor') || s.type === 'TensorOrScalar';
  });
}
