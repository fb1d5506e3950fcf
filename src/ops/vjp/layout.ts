/** Follows the memory order of values through a graph. */

import type { Arg, TensorType, ValueRef, ValueType } from '../../graph/types.ts';
import { isList, isRef, sameShape } from '../../graph/value.ts';
import type { OperatorTable } from '../record/table.ts';

/**
 * Memory order of a value: its dims from the slowest to the fastest. Null where the elements do not
 * lie one after the other, as in a slice or an expanded value.
 */
export type MemoryOrder = readonly number[] | null;

function rowMajorOrder(rank: number): number[] {
  return Array.from({ length: rank }, (_, d) => d);
}

export function isRowMajor(order: MemoryOrder): boolean {
  return order !== null && order.every((d, i) => d === i);
}

/** Order by the strides that a source states; row-major where it states none. */
export function statedOrder(type: TensorType): MemoryOrder {
  const { shape, stride } = type;
  if (stride === undefined) return rowMajorOrder(shape.length);
  const sizes = shape.map(Number);
  const steps = stride.map(Number);
  if ([...sizes, ...steps].some(Number.isNaN)) return null;
  const order = rowMajorOrder(shape.length).sort((a, b) => steps[b] - steps[a] || a - b);
  let step = 1;
  for (const d of [...order].reverse()) {
    if (sizes[d] === 1) continue;
    if (steps[d] !== step) return null;
    step *= sizes[d];
  }
  return order;
}

/** Operators that make a row-major value of any operand. */
const ROW_MAJOR: ReadonlySet<string> = new Set([
  'aten.contiguous.default',
  'aten._unsafe_view.default',
]);

/** Views that neither move nor leave out elements. */
const SAME_ORDER: ReadonlySet<string> = new Set(
  ['alias.default', 'detach.default', 'lift_fresh.default'].map((n) => `aten.${n}`),
);

/** Views that only regroup dims: of a row-major value they are row-major. */
const REGROUPING: ReadonlySet<string> = new Set(
  [
    'view.default',
    'unsqueeze.default',
    'squeeze.default',
    'squeeze.dim',
    'squeeze.dims',
    'flatten.using_ints',
    'unflatten.int',
    'reshape.default',
  ].map((n) => `aten.${n}`),
);

/**
 * Order of a call's result from those of its operands, as PyTorch's operators lay out what they
 * make: elementwise operators keep the order of their operands, views permute it, fused attention
 * writes heads inside rows, others write row-major.
 */
export function resultOrder(
  table: OperatorTable,
  call: {
    readonly target: string;
    readonly args: readonly Arg[];
    readonly kwargs?: Readonly<Record<string, Arg>>;
  },
  type: ValueType,
  orderOf: (ref: ValueRef) => MemoryOrder,
  typeOf: (ref: ValueRef) => ValueType,
): MemoryOrder {
  if (type.kind === 'tuple') return attentionOrder(table, call.target);
  if (type.kind !== 'tensor') return [];
  const rank = type.shape.length;
  const plain = rowMajorOrder(rank);
  const { target, args } = call;
  const [first] = args;
  if (
    ROW_MAJOR.has(target) ||
    (target === 'aten.clone.default' && call.kwargs?.['memory_format'] !== undefined)
  )
    return plain;
  if (target === 'operator.getitem') {
    const order = isRef(first) ? orderOf(first) : plain;
    return order === null || order.length === rank ? order : plain;
  }
  const cls = table.get(target)?.cls;
  if (cls === 'pointwise') {
    // The first operand that is not broadcast decides.
    for (const arg of args) {
      if (!isRef(arg)) continue;
      const own = typeOf(arg);
      if (own.kind === 'tensor' && sameShape(own.shape, type.shape)) return orderOf(arg) ?? plain;
    }
    return plain;
  }
  if (cls !== 'view') return plain;
  const order = first !== undefined && isRef(first) ? orderOf(first) : plain;
  if (order === null) return null;
  if (SAME_ORDER.has(target)) return order;
  if (REGROUPING.has(target)) return isRowMajor(order) ? plain : null;
  const moved = movedDims(target, args, order.length);
  return moved === undefined ? null : order.map((d) => moved.indexOf(d));
}

/** For each dim of the result the dim of the operand that it is; undefined for other views. */
function movedDims(
  target: string,
  args: readonly Arg[],
  rank: number,
): readonly number[] | undefined {
  const front = (arg: Arg | undefined): number =>
    typeof arg === 'number' ? (arg < 0 ? arg + rank : arg) : 0;
  const dims = rowMajorOrder(rank);
  switch (target) {
    case 'aten.t.default':
    case 'aten.numpy_T.default':
      return dims.reverse();
    case 'aten.mT.default':
      return swapped(dims, rank - 2, rank - 1);
    case 'aten.transpose.int':
      return swapped(dims, front(args[1]), front(args[2]));
    case 'aten.permute.default': {
      const [, list] = args;
      return list !== undefined && isList(list) ? list.map(front) : undefined;
    }
    default:
      return undefined;
  }
}

function swapped(dims: number[], a: number, b: number): number[] {
  [dims[a], dims[b]] = [dims[b], dims[a]];
  return dims;
}

/**
 * Results of a call with several: those of attention lie as [batch, rows, heads, channels]; pieces
 * of a cut are not dense values.
 */
function attentionOrder(table: OperatorTable, target: string): MemoryOrder {
  const cls = table.get(target)?.cls;
  if (cls === 'attention') return [0, 2, 1, 3];
  return cls === 'view' ? null : [];
}

/**
 * Tells whether a reshape only splits dims (and adds or drops dims of size 1). Then it is a view of
 * any layout; merging dims needs their elements to lie one after the other.
 */
export function splitsOnly(from: readonly number[], to: readonly number[]): boolean {
  const sizes = from.filter((n) => n !== 1);
  const parts = to.filter((n) => n !== 1);
  let next = 0;
  for (const size of sizes) {
    let product = 1;
    while (product < size) {
      if (next === parts.length) return false;
      product *= parts[next++];
    }
    if (product !== size) return false;
  }
  return next === parts.length;
}
