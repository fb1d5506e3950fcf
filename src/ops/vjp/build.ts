/** Appends aten calls to a graph under construction, for the writers of derivatives. */

import { internalError, ShardwrightError } from '../../errors.ts';
import { baseName, type GraphBuilder } from '../../graph/build.ts';
import { NameSet } from '../../graph/names.ts';
import type {
  Arg,
  DType,
  Node,
  NodeMeta,
  TensorType,
  ValueRef,
  ValueType,
} from '../../graph/types.ts';
import { exampleShape, isRef, NO_KWARGS } from '../../graph/value.ts';
import { inferCall } from '../record/infer.ts';
import type { OperatorTable } from '../record/table.ts';
import { isRowMajor, type MemoryOrder, resultOrder, splitsOnly, statedOrder } from './layout.ts';

/**
 * An operand of an elementwise call: a value, or a number that is written as a floating-point
 * literal.
 */
export type Operand = ValueRef | number;

/**
 * Appends aten calls to a graph under construction; types come from the operators' own inference.
 * The short methods are the operators that derivative formulas are made of.
 */
export class CallBuilder {
  /** Put on every call that is made. */
  meta: NodeMeta = {};
  /** Every call made so far, in order. */
  readonly made: Node[] = [];
  private readonly items = new Map<string, ValueRef>();
  private readonly orders = new Map<string, MemoryOrder>();
  private readonly taken: NameSet;

  /** @param reserved names that are not to be given to new nodes */
  constructor(
    readonly graph: GraphBuilder,
    readonly table: OperatorTable,
    reserved: Iterable<string> = [],
  ) {
    this.taken = new NameSet(reserved);
  }

  /**
   * One call.
   *
   * @throws E_TYPE when the arguments do not fit; E_UNKNOWN_OP when the table has no such operator
   */
  call(
    target: string,
    args: readonly Arg[],
    kwargs: Readonly<Record<string, Arg>> = NO_KWARGS,
  ): ValueRef {
    const call = { target, args, kwargs };
    const type = inferCall(this.table, call, (operand) =>
      this.graph.typeOf({ kind: 'value', name: operand }),
    );
    if (type === undefined)
      throw new ShardwrightError(
        'E_UNKNOWN_OP',
        `a derivative needs ${target}, which the operator table lacks`,
      );
    const { meta } = this;
    const ref = this.graph.call(target, args, type, {
      meta,
      kwargs,
      name: this.freshName(baseName(target)),
    });
    this.made.push({ ...call, name: ref.name, kind: 'call', type, meta });
    this.orders.set(ref.name, this.resultOrder(call, type));
    return ref;
  }

  /** Result `index` of a call with several; the getitem that exists already, if any. */
  item(source: ValueRef, index: number): ValueRef {
    const key = `${source.name} ${index}`;
    let ref = this.items.get(key);
    if (ref === undefined) {
      ref = this.call('operator.getitem', [source, index]);
      this.items.set(key, ref);
    }
    return ref;
  }

  /** `base`, or `base_1`, `base_2` where that is taken or reserved. */
  freshName(base: string): string {
    return this.taken.take(base);
  }

  typeOf(ref: ValueRef): ValueType {
    return this.graph.typeOf(ref);
  }

  tensorOf(ref: ValueRef): TensorType {
    const type = this.typeOf(ref);
    if (type.kind !== 'tensor')
      throw internalError(`a derivative reads ${ref.name}, which is not a tensor`);
    return type;
  }

  /**
   * Sizes of a value. Graphs with symbolic sizes are fixed at their examples before they are
   * differentiated.
   */
  shape(ref: ValueRef): readonly number[] {
    return this.tensorOf(ref).shape.map((dim) => {
      if (typeof dim === 'number') return dim;
      throw internalError(`a derivative meets the symbolic size ${dim.sym} of ${ref.name}`);
    });
  }

  rank(ref: ValueRef): number {
    return this.tensorOf(ref).shape.length;
  }

  dtype(ref: ValueRef): DType {
    return this.tensorOf(ref).dtype;
  }

  /**
   * Tells whether the elements of a value lie in another order than row-major, as far as its stride
   * or its making tells.
   */
  isStrided(ref: ValueRef): boolean {
    return !isRowMajor(this.orderOf(ref));
  }

  /**
   * Adds a node of another graph under its own name, with the layout that its strides or its making
   * give.
   */
  keep(node: Node): ValueRef {
    const { type } = node;
    const ref = this.graph.keep(node);
    const stated = type.kind === 'tensor' && type.stride !== undefined;
    this.orders.set(node.name, stated ? statedOrder(type) : this.resultOrder(node, type));
    const [source, index] = node.args;
    if (
      node.target === 'operator.getitem' &&
      source !== undefined &&
      isRef(source) &&
      typeof index === 'number'
    )
      this.items.set(`${source.name} ${index}`, ref);
    return ref;
  }

  private orderOf(ref: ValueRef): MemoryOrder {
    const known = this.orders.get(ref.name);
    if (known !== undefined) return known;
    const type = this.typeOf(ref);
    return type.kind === 'tensor' ? statedOrder(type) : [];
  }

  private resultOrder(
    call: Pick<Node, 'target' | 'args' | 'kwargs'>,
    type: ValueType,
  ): MemoryOrder {
    return resultOrder(
      this.table,
      call,
      type,
      (ref) => this.orderOf(ref),
      (ref) => this.typeOf(ref),
    );
  }

  // ---- arithmetic
  // ---------------------------------------------------------------------------

  add(a: ValueRef, b: Operand): ValueRef {
    return this.binary('add', a, b);
  }
  sub(a: ValueRef, b: Operand): ValueRef {
    return this.binary('sub', a, b);
  }
  mul(a: ValueRef, b: Operand): ValueRef {
    return this.binary('mul', a, b);
  }
  div(a: ValueRef, b: Operand): ValueRef {
    return this.binary('div', a, b);
  }
  /** `b - a`. */
  rsub(a: ValueRef, b: number): ValueRef {
    return this.call('aten.rsub.Scalar', [a, literal(b)]);
  }
  neg(a: ValueRef): ValueRef {
    return this.unary('neg', a);
  }
  pow(a: ValueRef, exponent: number): ValueRef {
    return this.call('aten.pow.Tensor_Scalar', [a, literal(exponent)]);
  }
  /** A function of one tensor without further arguments. */
  unary(name: string, a: ValueRef): ValueRef {
    return this.call(`aten.${name}.default`, [a]);
  }
  /** A comparison: `eq ne lt le gt ge`. */
  compare(name: string, a: ValueRef, b: Operand): ValueRef {
    return this.binary(name, a, b);
  }
  /** `a` where the condition holds, else `b`. */
  where(condition: ValueRef, a: Operand, b: Operand): ValueRef {
    const overload =
      typeof a === 'number' ? 'ScalarSelf' : typeof b === 'number' ? 'ScalarOther' : 'self';
    return this.call(`aten.where.${overload}`, [condition, operand(a), operand(b)]);
  }
  /** Zero where the mask holds. */
  zeroed(a: ValueRef, mask: ValueRef): ValueRef {
    return this.call('aten.masked_fill.Scalar', [a, mask, 0]);
  }
  /** Multiplies by a number, unless it is 1. */
  scaled(a: ValueRef, factor: number): ValueRef {
    return factor === 1 ? a : factor === -1 ? this.neg(a) : this.mul(a, factor);
  }

  private binary(name: string, a: ValueRef, b: Operand): ValueRef {
    return this.call(`aten.${name}.${typeof b === 'number' ? 'Scalar' : 'Tensor'}`, [
      a,
      operand(b),
    ]);
  }

  // ---- products
  // ---------------------------------------------------------------------------

  mm(a: ValueRef, b: ValueRef): ValueRef {
    return this.call('aten.mm.default', [a, b]);
  }
  bmm(a: ValueRef, b: ValueRef): ValueRef {
    return this.call('aten.bmm.default', [a, b]);
  }
  t(a: ValueRef): ValueRef {
    return this.call('aten.t.default', [a]);
  }
  transpose(a: ValueRef, dim0: number, dim1: number): ValueRef {
    return this.call('aten.transpose.int', [a, dim0, dim1]);
  }

  // ---- shapes
  // ---------------------------------------------------------------------------

  /**
   * A value of other shape: a view where the layout allows it, else a copy, as PyTorch's `reshape`
   * decides.
   */
  reshape(a: ValueRef, shape: readonly number[]): ValueRef {
    const from = this.shape(a);
    if (sameSizes(from, shape)) return a;
    if (!this.isStrided(a) || splitsOnly(from, shape))
      return this.call('aten.view.default', [a, [...shape]]);
    return this.call('aten._unsafe_view.default', [this.rowMajor(a), [...shape]]);
  }
  rowMajor(a: ValueRef): ValueRef {
    const kwargs = { memory_format: { kind: 'layout', word: 'contiguous_format' } } as const;
    return this.call('aten.clone.default', [a], kwargs);
  }
  unsqueeze(a: ValueRef, dim: number): ValueRef {
    return this.call('aten.unsqueeze.default', [a, dim]);
  }
  squeeze(a: ValueRef, dim: number): ValueRef {
    return this.call('aten.squeeze.dim', [a, dim]);
  }
  expand(a: ValueRef, shape: readonly number[]): ValueRef {
    return sameSizes(this.shape(a), shape) ? a : this.call('aten.expand.default', [a, [...shape]]);
  }
  permute(a: ValueRef, dims: readonly number[]): ValueRef {
    return this.call('aten.permute.default', [a, [...dims]]);
  }
  slice(a: ValueRef, dim: number, start: number, end: number): ValueRef {
    return this.call('aten.slice.Tensor', [a, dim, start, end]);
  }
  cat(parts: readonly ValueRef[], dim: number): ValueRef {
    return parts.length === 1 ? parts[0] : this.call('aten.cat.default', [[...parts], dim]);
  }
  sum(a: ValueRef, dims: readonly number[], keepdim = false): ValueRef {
    return dims.length === 0 ? a : this.call('aten.sum.dim_IntList', [a, [...dims], keepdim]);
  }
  flip(a: ValueRef, dim: number): ValueRef {
    return this.call('aten.flip.default', [a, [dim]]);
  }

  /** Sums over the dims in which `shape` was broadcast, and takes that shape. */
  sumTo(a: ValueRef, shape: readonly number[]): ValueRef {
    const from = this.shape(a);
    const extra = from.length - shape.length;
    const dims = from.flatMap((size, d) =>
      d < extra || (shape[d - extra] === 1 && size !== 1) ? [d] : [],
    );
    return this.reshape(this.sum(a, dims, true), shape);
  }

  // ---- new values
  // ---------------------------------------------------------------------------

  full(shape: readonly number[], value: number, dtype: DType): ValueRef {
    return this.call('aten.full.default', [[...shape], literal(value)], {
      dtype: { kind: 'dtype', dtype },
    });
  }
  /** Zeros of the shape and dtype of a type. */
  zerosOf(type: TensorType): ValueRef {
    return this.full(exampleShape(type, 0), 0, type.dtype);
  }
  newZeros(like: ValueRef, shape: readonly number[]): ValueRef {
    return this.call('aten.new_zeros.default', [like, [...shape]]);
  }
  iota(length: number): ValueRef {
    return this.call('aten.arange.default', [length]);
  }
  cast(a: ValueRef, dtype: DType): ValueRef {
    return this.dtype(a) === dtype
      ? a
      : this.call('aten._to_copy.default', [a], { dtype: { kind: 'dtype', dtype } });
  }
}

/** A number as a floating-point literal, which keeps `2.0` apart from `2`. */
export function literal(value: number): Arg {
  return { kind: 'float', value };
}

function operand(value: Operand): Arg {
  return typeof value === 'number' ? literal(value) : value;
}

export function sameSizes(a: readonly number[], b: readonly number[]): boolean {
  return a.length === b.length && a.every((size, i) => size === b[i]);
}
