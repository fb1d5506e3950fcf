import { ShardwrightError } from '../errors.ts';
import type { Arg } from '../graph/types.ts';
import { isList } from '../graph/value.ts';
import type { OperatorRecord } from '../ops/record.ts';
import type { ArgSchema } from '../ops/schema.ts';
import type { OperatorTable } from '../ops/table.ts';

/**
 * Operators over lists of tensors (`_foreach_add.List`, `_foreach_mul_.Scalar`) as one call of the element operator for
 * each place of the lists. Each element is then placed on its own; the lists are only how the program writes them.
 */
export interface ElementCall {
  readonly record: OperatorRecord;
  readonly args: readonly Arg[];
  readonly kwargs: Readonly<Record<string, Arg>>;
}

/** Whether a target is a list operator. */
export function isListOperator(target: string): boolean {
  return /^aten\._(amp_)?foreach_/.test(target);
}

/**
 * @returns one call for each element, in order
 * @throws E_TYPE for lists of unequal length, E_UNKNOWN_OP when no element operator takes such arguments
 */
export function elementCalls(
  table: OperatorTable,
  target: string,
  args: readonly Arg[],
  kwargs: Readonly<Record<string, Arg>> = {},
): readonly ElementCall[] {
  const base = /^aten\._(?:amp_)?foreach_(\w+?)\.(\w+)$/.exec(target);
  if (base === null)
    throw new ShardwrightError('E_UNKNOWN_OP', `${target} is no operator over lists of tensors`, {
      hint: 'list operators are called aten._foreach_NAME.OVERLOAD',
    });
  const [, name, overload] = base;
  const lists = [...args, ...Object.values(kwargs)].filter(isList);
  const lengths = new Set(lists.map((l) => l.length));
  if (lengths.size !== 1)
    throw new ShardwrightError('E_TYPE', `${target}: its lists have ${[...lengths].sort((a, b) => a - b).join(' and ')} elements; they must be as long as each other`); // prettier-ignore
  const length = lists[0].length;
  const element = (arg: Arg, i: number): Arg => (isList(arg) ? arg[i] : arg);
  const record = elementOperator(table, name, overload, args, kwargs);
  if (record === undefined)
    throw new ShardwrightError('E_UNKNOWN_OP', `${target}: no operator aten.${name} takes its elements`, {
      hint: 'register the element operator with registerOp',
    });
  return Array.from({ length }, (_, i) => ({
    record,
    args: args.map((arg) => element(arg, i)),
    kwargs: Object.fromEntries(Object.entries(kwargs).map(([key, arg]) => [key, element(arg, i)])),
  }));
}

/** Overloads of element operators by that of the list operator, in the order in which they are tried. */
const OVERLOADS: Readonly<Record<string, readonly string[]>> = {
  List: ['Tensor', 'default'],
  Tensor: ['Tensor', 'default'],
  Scalar: ['Scalar', 'Tensor_Scalar', 'Tensor', 'default'],
  ScalarList: ['Scalar', 'Tensor_Scalar', 'Tensor', 'default'],
  default: ['default'],
};

/** The record whose arguments fit position by position: a tensor for a tensor or a list, a scalar for a scalar. */
function elementOperator(
  table: OperatorTable,
  name: string,
  overload: string,
  args: readonly Arg[],
  kwargs: Readonly<Record<string, Arg>>,
): OperatorRecord | undefined {
  const tried = Object.hasOwn(OVERLOADS, overload) ? OVERLOADS[overload] : ['default'];
  return tried
    .map((o) => table.get(`aten.${name}.${o}`))
    .find((record) => record !== undefined && fits(record.schema, args, kwargs));
}

function fits(schema: readonly ArgSchema[], args: readonly Arg[], kwargs: Readonly<Record<string, Arg>>): boolean {
  const positional = schema.filter((s) => !s.kwargOnly);
  if (args.length > positional.length || Object.keys(kwargs).some((key) => !schema.some((s) => s.name === key))) return false; // prettier-ignore
  return positional.every((s, i) => {
    const arg = args[i];
    if (arg === undefined) return !s.required || Object.hasOwn(kwargs, s.name);
    const first = isList(arg) ? arg[0] : arg;
    const tensor = typeof first === 'object' && first !== null && 'kind' in first && first.kind === 'value';
    return tensor ? s.type.startsWith('Tensor') : !s.type.startsWith('Tensor') || s.type === 'TensorOrScalar';
  });
}
