/**
 * Reads the comparator of a sort as the keys that it compares one after another, as
 * `jax.lax.sort` has them: `a < b or (a == b and ...)`. Zeros of both signs and NaNs that are made
 * one before they are compared are seen through. Source: `_sort_lt_comparator` of JAX 0.10.
 */
import { type HloBody, type Instruction, isFloat, type Val } from './code.ts';

/** An operand that is compared. */
export interface SortKey {
  readonly operand: number;
  readonly isDescending: boolean;
  /** True if -0 comes before 0, that is if keys are compared by their total order. */
  readonly hasSignedZeros: boolean;
}

/** A number of the operands that a comparison is given: the earlier or the later one. */
interface Side {
  readonly operand: number;
  readonly isLater: boolean;
  readonly hasOneZero: boolean;
}

/** The keys of a comparator, the most significant first; undefined where it is no such order. */
export function sortKeysOf(comparator: HloBody): readonly SortKey[] | undefined {
  return new Comparator(comparator).keys();
}

class Comparator {
  private readonly made = new Map<number, Instruction>();

  constructor(private readonly body: HloBody) {
    for (const instruction of body.code)
      for (const { id } of instruction.outputs) this.made.set(id, instruction);
  }

  keys(): readonly SortKey[] | undefined {
    return this.ordered(this.body.returns[0]);
  }

  private ordered(value: Val): readonly SortKey[] | undefined {
    const instruction = this.made.get(value.id);
    if (instruction === undefined) return undefined;
    const { op, inputs } = instruction;
    if (op === 'compare') {
      const key = this.strictly(instruction);
      return key === undefined ? undefined : [key];
    }
    // Of `a < b or (a == b and rest)`, in either order.
    if (op === 'or') {
      for (const [x, y] of [inputs, [...inputs].reverse()]) {
        const tie = this.made.get(y.id);
        if (tie?.op !== 'and') continue;
        const [p, q] = tie.inputs;
        const found = this.lexical(x, p, q) ?? this.lexical(x, q, p);
        if (found !== undefined) return found;
      }
      return undefined;
    }
    return op === 'select' ? this.lexical(inputs[2], inputs[0], inputs[1]) : undefined;
  }

  private lexical(first: Val, equal: Val, rest: Val): readonly SortKey[] | undefined {
    const strict = this.made.get(first.id);
    const same = this.made.get(equal.id);
    if (strict?.op !== 'compare' || same?.op !== 'compare') return undefined;
    const key = this.strictly(strict);
    if (key === undefined || same.attributes['comparison_direction'] !== 'EQ') return undefined;
    const [x, y] = same.inputs.map((value) => this.side(value));
    const isSame =
      x?.operand === key.operand && y?.operand === key.operand && x.isLater !== y.isLater;
    const others = isSame ? this.ordered(rest) : undefined;
    return others === undefined ? undefined : [key, ...others];
  }

  private strictly({ inputs, attributes }: Instruction): SortKey | undefined {
    const direction = attributes['comparison_direction'];
    const [x, y] = inputs.map((value) => this.side(value));
    if (direction !== 'LT' && direction !== 'GT') return undefined;
    if (x === undefined || y === undefined) return undefined;
    if (x.operand !== y.operand || x.isLater === y.isLater) return undefined;
    return {
      operand: x.operand,
      isDescending: (direction === 'GT') !== x.isLater,
      hasSignedZeros:
        attributes['compare_type'] === 'TOTALORDER' &&
        isFloat(inputs[0].dtype) &&
        !(x.hasOneZero && y.hasOneZero),
    };
  }

  /** The operand behind a value that is compared. */
  private side(value: Val): Side | undefined {
    const at = this.body.inputs.findIndex(({ id }) => id === value.id);
    if (at >= 0) return { operand: Math.floor(at / 2), isLater: at % 2 === 1, hasOneZero: false };
    const instruction = this.made.get(value.id);
    if (instruction?.op === 'convert') {
      const [x] = instruction.inputs;
      return isWider(x, value) ? this.side(x) : undefined;
    }
    if (instruction?.op !== 'select') return undefined;
    const [where, constant, otherwise] = instruction.inputs;
    const inner = this.side(otherwise);
    const test = this.made.get(where.id);
    if (inner === undefined || test?.op !== 'compare') return undefined;
    const isOfSame = (v: Val): boolean => {
      const found = this.side(v);
      return found?.operand === inner.operand && found.isLater === inner.isLater;
    };
    const [x, y] = test.inputs;
    const direction = test.attributes['comparison_direction'];
    // NaN is what differs from itself.
    if (direction === 'NE' && isOfSame(x) && isOfSame(y))
      return Number.isNaN(this.constant(constant)) ? inner : undefined;
    const isZero = this.constant(constant) === 0 && this.constant(y) === 0;
    return direction === 'EQ' && isOfSame(x) && isZero ? { ...inner, hasOneZero: true } : undefined;
  }

  private constant(value: Val): unknown {
    const instruction = this.made.get(value.id);
    return instruction?.op === 'constant' ? instruction.attributes['value'] : undefined;
  }
}

/** Tells whether a conversion keeps the order of all numbers. */
function isWider({ dtype: from }: Val, { dtype: to }: Val): boolean {
  const bits = (dtype: string): number => Number(/\d+/.exec(dtype)?.[0]);
  return isFloat(from) && (to === 'f32' || to === 'f64') && bits(from) <= bits(to);
}
