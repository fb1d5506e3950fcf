import type { ReduceOp } from './placement.ts';
import { Uncut } from './uncut.ts';

/** Every reduction that a Partial may wait for, in the order of their kind codes. */
export const REDUCE_OPS: readonly ReduceOp[] = ['sum', 'avg', 'max', 'min', 'product', 'band', 'bor', 'bxor'];

/** Each rank holds an operand of a pending reduction over the whole local tensor. */
export class Partial extends Uncut {
  readonly kind = 'partial';
  readonly text: string;

  private constructor(readonly op: ReduceOp) {
    super();
    this.text = `P(${op})`;
  }

  /** One object for each reduction. */
  static of(op: ReduceOp): Partial {
    let made = Partial.made.get(op);
    if (made === undefined) Partial.made.set(op, (made = Object.freeze(new Partial(op))));
    return made;
  }
  private static readonly made = new Map<ReduceOp, Partial>();
}
