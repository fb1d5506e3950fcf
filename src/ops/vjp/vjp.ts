/** The types of derivatives: what one gets for a call, and the gradients that it gives. */

import { internalError } from '../../errors.ts';
import type { Arg, Node, ValueRef } from '../../graph/types.ts';
import { getOwn, isList, isRef } from '../../graph/value.ts';
import type { OperatorRecord, TypedContext } from '../record/record.ts';
import type { CallBuilder } from './build.ts';

/** Gradient of one argument; null for zero. A tensor list has one per member. */
export type Gradient = ValueRef | null | readonly (ValueRef | null)[];

/**
 * Gradients of a call's tensor arguments, by argument name. Each is asked for at most once, and
 * only if it is wanted; what is not asked for must add no calls. An argument without an entry has
 * no derivative. Sums over broadcast dims and casts to the argument's dtype are made by who asks.
 */
export type Gradients = Readonly<Record<string, () => Gradient>>;

/** The vector-Jacobian product of an operator. */
export type Vjp = (call: VjpCall) => Gradients;

/** The gradient of an operator, with the results that a gradient may arrive at. */
export interface VjpEntry {
  readonly vjp: Vjp;
  /** Results that a gradient may arrive at; default the first. */
  readonly results?: 'all' | readonly number[];
  /** Results that count as constants: running statistics. */
  readonly constant?: readonly number[];
  /**
   * True for a stand-in on purpose, such as a straight-through estimator: `checkRules` does not
   * compare it with differences of the values.
   */
  readonly surrogate?: boolean;
}

/** Gradients by the names of their operators. */
export type Vjps = Readonly<Record<string, Vjp | VjpEntry>>;

/** A forward call with the gradients of its results, as derivative formulas read it. */
export class VjpCall {
  constructor(
    readonly b: CallBuilder,
    readonly node: Node,
    private readonly record: OperatorRecord,
    /** Arguments by name, with sizes. */
    readonly ctx: TypedContext,
    private readonly grads: readonly (ValueRef | undefined)[],
    private readonly wanted: (name: string) => boolean,
  ) {}

  /** The argument as the call writes it; undefined where it is left out. */
  arg(name: string): Arg | undefined {
    let position = 0;
    for (const s of this.record.schema) {
      const positional: Arg | undefined = s.kwargOnly ? undefined : this.node.args[position++];
      if (s.name === name)
        return positional === undefined ? getOwn(this.node.kwargs, name) : positional;
    }
    throw internalError(`${this.record.name} has no argument '${name}'`);
  }

  /** A tensor argument. */
  x(name: string): ValueRef {
    return this.optional(name) ?? this.ctx.fail(`argument '${name}' must be a tensor`);
  }

  optional(name: string): ValueRef | null {
    const arg = this.arg(name);
    return arg !== undefined && isRef(arg) ? arg : null;
  }

  list(name: string): readonly (ValueRef | null)[] {
    const arg = this.arg(name);
    if (arg === undefined || !isList(arg)) return [];
    return arg.map((member) => (isRef(member) ? member : null));
  }

  /** Result `index` of the call. */
  y(index = 0): ValueRef {
    const ref: ValueRef = { kind: 'value', name: this.node.name };
    return this.node.type.kind === 'tuple' ? this.b.item(ref, index) : ref;
  }

  /** Gradient of result `index`; zeros if none arrives. */
  g(index = 0): ValueRef {
    const given = this.grads[index];
    if (given !== undefined) return given;
    const meta = this.ctx.outputs[index];
    if (meta === null || meta === undefined) return this.ctx.fail(`has no result ${index}`);
    return this.b.full(meta.shape, 0, meta.dtype);
  }

  hasGradient(index: number): boolean {
    return this.grads[index] !== undefined;
  }

  /** Tells whether the gradient of a tensor argument is asked for. */
  wants(name: string): boolean {
    return this.wanted(name);
  }

  /** Names of all arguments that the operator has. */
  get argumentNames(): readonly string[] {
    return this.record.schema.map((s) => s.name);
  }

  /** Shape of a tensor argument. */
  shape(name: string): readonly number[] {
    return this.ctx.tensor(name)?.shape ?? this.ctx.fail(`argument '${name}' must be a tensor`);
  }
}

/** A call with several gradients at once, made when the first of them is asked for. */
export function together(
  b: CallBuilder,
  names: readonly string[],
  make: () => ValueRef,
): Gradients {
  let made: ValueRef | undefined;
  return Object.fromEntries(names.map((name, i) => [name, () => b.item((made ??= make()), i)]));
}

/** The same vjp under several names of the aten namespace. */
export function named(names: string, vjp: Vjp | VjpEntry): Vjps {
  return Object.fromEntries(names.split(' ').map((name) => [`aten.${name}`, vjp]));
}

/** A dim counted from the front. */
export function frontDim(dim: number, rank: number): number {
  return dim < 0 ? dim + Math.max(rank, 1) : dim;
}
