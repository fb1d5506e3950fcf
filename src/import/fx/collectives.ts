/**
 * Types of PyTorch's functional collectives in the text of a sharded model: gathers and scatters
 * work on dim 0, everything else keeps its shape. They are not operators to plan (a graph that has
 * them is the program of one device), but their types follow from their arguments.
 */

import { ShardwrightError } from '../../errors.ts';
import type { Arg, TensorType, ValueType } from '../../graph/types.ts';
import { isList, isRef, tensorType } from '../../graph/value.ts';
import type { CallToInfer } from '../complete/infer.ts';

const PREFIX = /^_?c10d_functional\.(\w+?)(_coalesced)?(\.default)?$/;

/** Type of a collective call; undefined for anything else. @throws E_TYPE where sizes do not fit */
export function collectiveType(
  call: CallToInfer,
  typeOf: (name: string) => ValueType,
): ValueType | undefined {
  const found = PREFIX.exec(call.target);
  if (found === null) return undefined;
  const [, name = '', coalesced] = found;
  const [first] = call.args;
  const tensor = (arg: Arg | undefined): TensorType => {
    const type = arg !== undefined && isRef(arg) ? typeOf(arg.name) : undefined;
    if (type?.kind === 'tensor') return type;
    throw new ShardwrightError('E_TYPE', `${call.target}: argument 0 must be a tensor`, {
      hint: 'pass a value',
    });
  };
  if (coalesced === undefined) return resultOf(name, tensor(first), call);
  if (first === undefined || !isList(first)) return undefined;
  const items = first.map((arg) => resultOf(name, tensor(arg), call));
  return items.every((item) => item !== undefined) ? { kind: 'tuple', items } : undefined;
}

function resultOf(
  name: string,
  x: TensorType,
  { target, args }: CallToInfer,
): TensorType | undefined {
  const refuse = (message: string): never => {
    throw new ShardwrightError('E_TYPE', `${target}: ${message}`, { hint: 'correct the sizes' });
  };
  const rows = x.shape[0];
  const withRows = (count: number): TensorType => tensorType(x.dtype, [count, ...x.shape.slice(1)]);
  switch (name) {
    case 'wait_tensor':
    case 'all_reduce':
    case 'all_reduce_':
    case 'broadcast':
    case 'broadcast_':
      return x;
    case 'all_gather_into_tensor': {
      const [, members] = args;
      if (typeof rows !== 'number' || typeof members !== 'number') return undefined;
      return withRows(rows * members);
    }
    case 'reduce_scatter_tensor': {
      const members = args[2];
      if (typeof rows !== 'number' || typeof members !== 'number') return undefined;
      if (members < 1 || rows % members !== 0) refuse(`${rows} rows over ${members} members`);
      return withRows(rows / members);
    }
    case 'all_to_all_single': {
      const [, received, sent] = args;
      const [out, own] = [sumOf(received), sumOf(sent)];
      if (out === undefined || own === undefined || typeof rows !== 'number') return undefined;
      if (own !== rows) refuse(`sends ${own} rows of ${rows}`);
      return withRows(out);
    }
    default:
      return undefined;
  }
}

function sumOf(list: Arg | undefined): number | undefined {
  if (list === undefined || !isList(list)) return undefined;
  let sum = 0;
  for (const item of list) {
    if (typeof item !== 'number') return undefined;
    sum += item;
  }
  return sum;
}
