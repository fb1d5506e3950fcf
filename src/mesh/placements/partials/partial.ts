/** The placement `Partial`: each rank has an operand of a pending reduction. */

import { checkKinds } from '../../../arguments.ts';
import { ShardwrightError, suggestion } from '../../../errors.ts';
import { product } from '../../../product.ts';
import type { PlacementKind } from '../kinds.ts';
import type { Placement, ReduceOp } from '../placement.ts';
import { type OperandType, Pending } from './pending.ts';

/** Every reduction that a Partial may wait for, in the order of their kind codes. */
export const REDUCE_OPS: readonly ReduceOp[] = [
  'sum',
  'avg',
  'max',
  'min',
  'product',
  'band',
  'bor',
  'bxor',
];

/** Each rank holds an operand of a pending reduction over the whole local tensor. */
export class Partial extends Pending {
  readonly kind = 'partial';
  readonly text: string;

  private constructor(readonly op: ReduceOp) {
    super();
    checkKinds('Partial', { op: [op, 'string'] });
    this.text = `P(${op})`;
  }

  /** One object for each reduction. */
  static of(op: ReduceOp): Partial {
    let made = Partial.made.get(op);
    if (made === undefined) Partial.made.set(op, (made = Object.freeze(new Partial(op))));
    return made;
  }
  private static readonly made = new Map<ReduceOp, Partial>();

  /** Tells whether the reduction commutes with linear functions: sum and avg. */
  get linear(): boolean {
    return this.op === 'sum' || this.op === 'avg';
  }

  /**
   * Reduces operands to the value. For booleans, sum is "or" and product is "and".
   *
   * @throws E_PLACEMENT for the average of booleans, and for bitwise reductions of numbers that are
   *   not whole
   */
  reduce(operands: readonly number[], type: OperandType = 'number'): number {
    if (type === 'bool') return reduceBooleans(this.op, operands);
    switch (this.op) {
      case 'sum':
        return operands.reduce((a, b) => a + b, 0);
      case 'avg':
        return operands.reduce((a, b) => a + b, 0) / operands.length;
      case 'max':
        return operands.reduce((a, b) => Math.max(a, b), -Infinity);
      case 'min':
        return operands.reduce((a, b) => Math.min(a, b), Infinity);
      case 'product':
        return product(operands);
      case 'band':
        return bitwise(this, operands, (a, b) => a & b);
      case 'bor':
        return bitwise(this, operands, (a, b) => a | b);
      case 'bxor':
        return bitwise(this, operands, (a, b) => a ^ b);
    }
  }

  /**
   * Sum: the first rank keeps the value, others hold 0. Avg, max, min: all keep it. Product and
   * bitwise: refused.
   */
  operand(value: number, rank: number): number | undefined {
    switch (this.op) {
      case 'sum':
        return rank === 0 ? value : 0;
      case 'avg':
      case 'max':
      case 'min':
        return value;
      default:
        return undefined;
    }
  }

  override standsWith(other: Placement): boolean {
    return this.equals(other) || (other instanceof Partial && this.linear && other.linear);
  }
}

function reduceBooleans(op: ReduceOp, operands: readonly number[]): number {
  switch (op) {
    case 'avg':
      throw new ShardwrightError('E_PLACEMENT', 'P(avg) of booleans has no meaning', {
        hint: 'use P(sum), which is "or", or convert to numbers',
      });
    case 'sum':
    case 'max':
    case 'bor':
      return operands.some((v) => v !== 0) ? 1 : 0;
    case 'product':
    case 'min':
    case 'band':
      return operands.every((v) => v !== 0) ? 1 : 0;
    case 'bxor':
      return operands.filter((v) => v !== 0).length % 2;
  }
}

/** By BigInt: JavaScript's own bit operations keep 32 bits only. */
function bitwise(
  p: Partial,
  operands: readonly number[],
  step: (a: bigint, b: bigint) => bigint,
): number {
  const bad = operands.find((v) => !Number.isSafeInteger(v));
  if (bad !== undefined)
    throw new ShardwrightError(
      'E_PLACEMENT',
      `${p.text} of ${bad}: bitwise reductions want whole numbers`,
    );
  return Number(operands.map((v) => BigInt(v)).reduce(step));
}

/** Reads `P`, `P(avg)`, `Partial(sum)`, `Partial("sum")`. */
export const PARTIAL: PlacementKind = {
  kind: 'partial',
  words: ['P', 'Partial'],
  parse(scan) {
    if (scan.peek() !== '(') return Partial.of('sum');
    scan.expect('(');
    scan.keyword('reduce_op');
    if (scan.take(')')) return Partial.of('sum');
    const start = scan.position;
    const op = scan.match(/(['"]?)[a-z]+\1/y)?.replaceAll(/['"]/g, '') ?? '';
    if (!isReduceOp(op)) {
      scan.back(start);
      return scan.fail('a reduction', suggestion(op, REDUCE_OPS, 'reductions'));
    }
    scan.expect(')');
    return Partial.of(op);
  },
};

function isReduceOp(word: string): word is ReduceOp {
  return (REDUCE_OPS as readonly string[]).includes(word);
}
