/**
 * Writes out JAX's product of ragged groups (`lax.ragged_dot`) as JAX lowers it where no kernel of
 * its own runs it: the rows of each group in a copy of their own, zero elsewhere, and one product
 * (`_ragged_dot_general_impl` of `jax/_src/lax/lax.py`, JAX 0.10.2).
 */

import type { ValueRef } from '../../../graph/types.ts';
import { tensorType } from '../../../graph/value.ts';
import { itemAt } from '../../../item-at.ts';
import { dtypeArg, type GraphOfJaxpr, numbers } from '../builder.ts';
import { dtypeOf, type Lower, opaque, operand } from '../equation.ts';
import { intsOf, type Literal } from '../text/literal.ts';
import type { Atom, Equation } from '../text/syntax.ts';

/** `((lhs_contract, rhs_contract), (lhs_batch, rhs_batch))`. */
type Pair = readonly [number[], number[]];

/** Dims of a product, by the words of JAX. */
interface Dims {
  readonly contract: Pair;
  readonly batch: Pair;
  readonly ragged: number;
  readonly groups: readonly number[];
}

export const raggedProduct: Lower = (b, e) => {
  const dims = dimsOf(b, e);
  const [lhs, rhs, sizes] = [operand(b, e), operand(b, e, 1), operand(b, e, 2)];
  // Groups of their own in each row of a batch have no text here that was compared with JAX.
  const hasOffset = (b.literal(e, 'group_offset') ?? null) !== null;
  if (dims === undefined || hasOffset || numbers(b.tensor(sizes)).length !== 1) return opaque(b, e);
  const ends = groupEnds(b, sizes);
  const [own, other] = dims.contract;
  const at = own.indexOf(dims.ragged);
  const behind = (list: readonly number[]): number[] => list.map((d) => d + 1);
  const dense = inGroups(b, lhs, dims.ragged, ends);
  const { dtype } = b.tensor(lhs);
  const made = dtype === dtypeOf(e) ? {} : { dtype: dtypeArg(dtypeOf(e)) };
  if (at >= 0)
    b.emit(e, 'stablehlo.dot_general', [dense, inGroups(b, rhs, itemAt(other, at), ends)], {
      lhs_batching_dimensions: [0],
      rhs_batching_dimensions: [0],
      lhs_contracting_dimensions: behind(own),
      rhs_contracting_dimensions: behind(other),
      ...made,
    });
  else
    b.emit(e, 'stablehlo.dot_general', [dense, b.value(rhs)], {
      lhs_batching_dimensions: [],
      rhs_batching_dimensions: [],
      lhs_contracting_dimensions: [...behind(own), 0],
      rhs_contracting_dimensions: [...other, itemAt(dims.groups, 0)],
      ...made,
    });
};

/** The dims of a product without a batch; undefined for any other. */
function dimsOf(b: GraphOfJaxpr, e: Equation): Dims | undefined {
  const stated = b.literal(e, 'ragged_dot_dimension_numbers');
  if (stated === undefined || stated === null || typeof stated !== 'object') return undefined;
  if (stated.kind !== 'call') return undefined;
  const [contract, batch] = members(stated.named.get('dot_dimension_numbers')).map(pairOf);
  const [ragged, ...more] = intsOf(stated.named.get('lhs_ragged_dimensions')) ?? [];
  const groups = intsOf(stated.named.get('rhs_group_dimensions')) ?? [];
  if (contract === undefined || batch === undefined || ragged === undefined || more.length > 0)
    return undefined;
  const isPlain = batch[0].length === 0 && groups.length === (contract[0].includes(ragged) ? 0 : 1);
  return isPlain ? { contract, batch, ragged, groups } : undefined;
}

function pairOf(item: Literal): Pair | undefined {
  const [one, other] = members(item).map(intsOf);
  return one === undefined || other === undefined ? undefined : [one, other];
}

function members(item: Literal | undefined): readonly Literal[] {
  const isList = item !== undefined && item !== null && typeof item === 'object';
  return isList && item.kind === 'list' ? item.items : [];
}

/** Where the groups begin and end. */
function groupEnds(b: GraphOfJaxpr, sizes: Atom): readonly [ValueRef, ValueRef] {
  const { dtype } = b.tensor(sizes);
  const [groups = 0] = numbers(b.tensor(sizes));
  const type = tensorType(dtype, [groups]);
  const sums = b.helper(
    'stablehlo.reduce_window',
    [[b.value(sizes)], [b.constant(0, dtype, [])]],
    { window_dimensions: [groups], padding: [groups - 1, 0], reducer: 'add' },
    { kind: 'tuple', items: [type] },
  );
  const ends = b.member(sums.name, 0);
  const part = (of: ValueRef, count: number): ValueRef =>
    b.helper(
      'stablehlo.slice',
      [of],
      { start_indices: [0], limit_indices: [count], strides: [1] },
      tensorType(dtype, [count]),
    );
  const parts = [part(b.constant(0, dtype, [groups]), 1), part(ends, groups - 1)];
  return [b.helper('stablehlo.concatenate', [parts], { dimension: 0 }, type), ends];
}

/** A copy of a tensor for each group, zero where the dim belongs to other groups. */
function inGroups(
  b: GraphOfJaxpr,
  of: Atom,
  dim: number,
  [first, end]: readonly [ValueRef, ValueRef],
): ValueRef {
  const { dtype } = b.tensor(of);
  const own = numbers(b.tensor(of));
  const groupType = b.typeOf(first.name);
  if (groupType.kind !== 'tensor') throw new TypeError('sizes of groups are no tensor');
  const shape = [...numbers(groupType), ...own];
  const counted = tensorType(groupType.dtype, shape);
  const wide = (value: ValueRef, dims: number[], type = counted): ValueRef =>
    b.helper(
      'stablehlo.broadcast_in_dim',
      [value],
      { broadcast_dimensions: dims, shape: [...shape] },
      type,
    );
  const copies = wide(
    b.value(of),
    own.map((_, d) => d + 1),
    tensorType(dtype, shape),
  );
  const place = b.helper(
    'stablehlo.iota',
    [dim + 1],
    { dtype: dtypeArg(groupType.dtype), shape: [...shape] },
    counted,
  );
  const isTrue = tensorType('b8', shape);
  const compared = (x: ValueRef, y: ValueRef, how: string): ValueRef =>
    b.helper('stablehlo.compare', [x, y], { comparison_direction: how }, isTrue);
  const inside = b.helper(
    'stablehlo.and',
    [compared(wide(first, [0]), place, 'LE'), compared(place, wide(end, [0]), 'LT')],
    {},
    isTrue,
  );
  const zero = b.constant(0, dtype, shape);
  return b.helper('stablehlo.select', [inside, copies, zero], {}, tensorType(dtype, shape));
}
