/**
 * One ATen call, bound to its schema, while it is lowered to HLO. It has the helpers that lowerings
 * share: operands by name, type promotion, numbers that differ from device to device. Types of
 * results are those that the operator's own record infers.
 */
import { internalError, ShardwrightError } from '../../errors.ts';
import type { Arg, DType, Node } from '../../graph/types.ts';
import { getOwn, isList } from '../../graph/value.ts';
import type { TensorMeta, TypedContext } from '../../ops/record/call.ts';
import type { OperatorRecord } from '../../ops/record/record.ts';
import { type HloCode, isFloat, type Val } from './code.ts';

/** Writes a call: one value for each result, null for one that is masked off. */
export type Lowering = (call: HloCall) => Val | readonly (Val | null)[];
export type Lowerings = Readonly<Record<string, Lowering>>;

/** Value on each rank of the integers that differ between ranks, by symbol. */
export type RankTable = ReadonlyMap<string, readonly number[]>;

export class HloCall {
  constructor(
    readonly hlo: HloCode,
    readonly node: Node,
    readonly record: OperatorRecord,
    readonly ctx: TypedContext,
    private readonly values: readonly Val[],
    private readonly symbols: RankTable,
  ) {}

  /** A tensor argument. @throws E_INTERNAL where the call does not have it */
  tensor(name: string): Val {
    return this.optional(name) ?? this.missing(name);
  }

  optional(name: string): Val | undefined {
    const at = this.ctx.indexOf(name);
    return at < 0 ? undefined : this.values[at];
  }

  /** Members of a tensor list; null where a place is empty. */
  tensors(name: string): (Val | null)[] {
    return this.ctx
      .list(name)
      .map((member) => (member === null ? null : this.values[member.index]));
  }

  /** A tensor of the call by its place among all of them. */
  at(i: number): Val {
    return this.values[i] ?? this.missing(`tensor ${i}`);
  }

  /** Tells whether some argument is an integer that differs from rank to rank. */
  rankVaries(): boolean {
    const varies = (arg: Arg): boolean => {
      if (isList(arg)) return arg.some(varies);
      return (
        arg !== null &&
        typeof arg === 'object' &&
        arg.kind === 'size' &&
        this.symbols.has(arg.size.sym)
      );
    };
    return this.node.args.some(varies) || Object.values(this.node.kwargs).some(varies);
  }

  /** The first tensor of the call, whatever its argument is called. */
  get first(): Val {
    return this.values[0] ?? this.missing('of a tensor');
  }

  get second(): Val {
    return this.values[1] ?? this.missing('of a second tensor');
  }

  /** Type of a result. */
  out(k = 0): TensorMeta {
    return this.ctx.outputs[k] ?? this.missing(`result ${k}`);
  }

  private missing(what: string): never {
    throw internalError(`${this.record.name} has no ${what}`, { node: this.node.name });
  }

  /** @throws E_UNSUPPORTED: there is no HLO for this form of the operator */
  unsupported(why: string): never {
    throw new ShardwrightError('E_UNSUPPORTED', `${this.record.name} ${why}`, {
      node: this.node.name,
      hint: this.record.name.startsWith('aten.')
        ? 'export with --target torch, which runs every operator of PyTorch'
        : 'plan, verify and simulate take it; --target einshard writes the placements alone',
    });
  }

  /** A dim counted from the end as one counted from the start. */
  dim(name: string, rank: number): number {
    const dim = this.ctx.int(name);
    return dim < 0 ? dim + rank : dim;
  }

  dims(name: string, rank: number): number[] {
    const given = this.ctx.optionalInts(name) ?? [];
    return given.map((dim) => (dim < 0 ? dim + rank : dim));
  }

  /** Tells whether the operator has an argument of that name. */
  takes(name: string): boolean {
    return this.record.schema.some((s) => s.name === name);
  }

  /** The argument as the graph has it. */
  raw(name: string): Arg | undefined {
    const at = this.record.schema.filter((s) => !s.kwargOnly).findIndex((s) => s.name === name);
    return at >= 0 && at < this.node.args.length
      ? this.node.args[at]
      : getOwn(this.node.kwargs, name);
  }

  /** The value of an integer argument on each rank, where it differs between ranks. */
  byRank(name: string): readonly number[] | undefined {
    const arg = this.raw(name);
    if (
      arg === undefined ||
      arg === null ||
      typeof arg !== 'object' ||
      isList(arg) ||
      arg.kind !== 'size'
    )
      return undefined;
    return this.symbols.get(arg.size.sym);
  }

  /** A number as a scalar of a type: a constant, or the rank's own. */
  number(name: string, dtype: DType): Val {
    const ranks = this.byRank(name);
    if (ranks !== undefined) return this.hlo.rankValue(ranks, dtype);
    const scalar = this.ctx.scalar(name) ?? this.missing(name);
    return this.hlo.constant(dtype === 'b8' ? scalar.value !== 0 : scalar.value, dtype);
  }

  /** A number in every element of a shape. */
  filled(name: string, dtype: DType, shape: readonly number[]): Val {
    const ranks = this.byRank(name);
    if (ranks !== undefined)
      return this.hlo.broadcastInDim(this.hlo.rankValue(ranks, dtype), shape, []);
    const scalar = this.ctx.scalar(name) ?? this.missing(name);
    return this.hlo.constant(dtype === 'b8' ? scalar.value !== 0 : scalar.value, dtype, shape);
  }

  /** A tensor or number argument in the type and shape in which the call computes. */
  operand(name: string, dtype: DType, shape: readonly number[]): Val {
    const x = this.optional(name);
    return x === undefined
      ? this.filled(name, dtype, shape)
      : this.hlo.broadcast(this.hlo.convert(x, dtype), shape);
  }

  /** Two operands in one type: that of the result unless that is bool. */
  pair(left = 'self', right = 'other'): [Val, Val] {
    const { shape } = this.out();
    const dtype = this.common(left, right);
    return [this.operand(left, dtype, shape), this.operand(right, dtype, shape)];
  }

  /**
   * The type in which two operands meet, as PyTorch promotes: dims before numbers, floats before
   * integers before bools.
   */
  common(left: string, right: string): DType {
    const names = [left, right];
    const tensors = names.flatMap((name) => {
      const x = this.optional(name);
      return x === undefined ? [] : [x];
    });
    const withDims = tensors.filter((x) => x.shape.length > 0);
    const without = tensors.filter((x) => x.shape.length === 0);
    let dtype = promoteAll(withDims.map((x) => x.dtype));
    const lift = (other: DType): void => {
      if (dtype === undefined || rankOf(other) > rankOf(dtype))
        dtype = dtype === undefined ? other : promote(dtype, other);
    };
    const scalars = promoteAll(without.map((x) => x.dtype));
    if (scalars !== undefined) lift(scalars);
    for (const name of names) {
      if (this.ctx.indexOf(name) >= 0) continue;
      const scalar = this.ctx.scalar(name);
      if (scalar !== undefined)
        lift(scalar.kind === 'float' ? 'f32' : scalar.kind === 'int' ? 'i64' : 'b8');
    }
    return dtype ?? 'f32';
  }
}

/** Kinds of types in the order in which they win. */
function rankOf(dtype: DType): number {
  if (dtype === 'b8') return 0;
  if (dtype.startsWith('c')) return 3;
  return isFloat(dtype) ? 2 : 1;
}

function promoteAll(dtypes: readonly DType[]): DType | undefined {
  return dtypes.length === 0 ? undefined : dtypes.reduce(promote);
}

/** Both types hold in the result; two 16-bit floats meet in f32. */
function promote(a: DType, b: DType): DType {
  if (a === b) return a;
  if (rankOf(a) !== rankOf(b)) return rankOf(a) > rankOf(b) ? a : b;
  if (rankOf(a) === 2) return a === 'f64' || b === 'f64' ? 'f64' : 'f32';
  if (rankOf(a) === 3) return 'c128';
  const [x, y] = [a, b].map((t) => Number(t.slice(1)) * 2 + (t.startsWith('i') ? 1 : 0));
  return x > y ? a : b;
}
