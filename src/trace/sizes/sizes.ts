/**
 * Symbolic sizes as the traced program sees them. Arithmetic stays symbolic; a comparison answers
 * for the example size and is recorded as a guard; any use as a JavaScript number fixes the size,
 * which is recorded as the stronger guard.
 */

import { checkKinds } from '../../arguments.ts';
import { isReadable, ShardwrightError, valueText, wrongArgument } from '../../errors.ts';
import { sourcePosition } from '../errors/position.ts';
import { refusal } from '../errors/refusal.ts';
import { type DimValues, SizeExpression } from './size-expression.ts';

/** The facts about a dim before tracing. */
export interface DimRange {
  readonly name: string;
  /** Smallest and largest admissible size, inclusive. */
  readonly min: number;
  readonly max: number;
  /** Every admissible size is a multiple of this. */
  readonly multiple: number;
  /** The size that tracing runs with. */
  readonly example: number;
  /** The size comes from data: no host decision may rest on it. */
  readonly unbacked: boolean;
}

type Comparison = 'eq' | 'ne' | 'lt' | 'le' | 'gt' | 'ge';
const SIGNS: Readonly<Record<Comparison, string>> = {
  eq: '==',
  ne: '!=',
  lt: '<',
  le: '<=',
  gt: '>',
  ge: '>=',
};

/** A relation between sizes that a host decision rested on. */
export interface SizeGuard {
  /** The relation that held: a question `s0 > 4` answered with no is the guard `s0 <= 4`. */
  readonly text: string;
  readonly left: SizeExpression;
  readonly comparison: Comparison;
  readonly right: SizeExpression;
  readonly source?: string | undefined;
  /** The program used the size as a plain number, so the graph holds for this one size. */
  readonly specialised: boolean;
}

export function holds({ left, comparison, right }: SizeGuard, values: DimValues): boolean {
  return compare(left.evaluate(values), comparison, right.evaluate(values));
}

function compare(a: number, comparison: Comparison, b: number): boolean {
  switch (comparison) {
    case 'eq':
      return a === b;
    case 'ne':
      return a !== b;
    case 'lt':
      return a < b;
    case 'le':
      return a <= b;
    case 'gt':
      return a > b;
    case 'ge':
      return a >= b;
  }
}

const OPPOSITE: Readonly<Record<Comparison, Comparison>> = {
  eq: 'ne',
  ne: 'eq',
  lt: 'ge',
  ge: 'lt',
  le: 'gt',
  gt: 'le',
};

/** The dims of one trace: ranges, example sizes, and the guards that comparisons left. */
export class DimScope {
  readonly ranges = new Map<string, DimRange>();
  readonly examples = new Map<string, number>();
  readonly guards: SizeGuard[] = [];
  /** The first comparison that no size could answer; see `stopping` in `record/recorder.ts`. */
  stopped: Error | undefined;
  private readonly seen = new Set<string>();

  /** @throws E_TRACE_INPUT when the name is declared with another range */
  declare(range: DimRange): void {
    const known = this.ranges.get(range.name);
    if (known === undefined) {
      this.ranges.set(range.name, range);
      this.examples.set(range.name, range.example);
    } else if (JSON.stringify(known) !== JSON.stringify(range))
      throw new ShardwrightError(
        'E_TRACE_INPUT',
        `dim '${range.name}' is declared twice with different ranges`,
        {
          hint: 'make it once and use it in every shape: const batch = dim("batch").',
        },
      );
  }

  /**
   * Records that the comparison was asked, in the sense in which it held, and answers it for the
   * example sizes.
   */
  decide(
    left: SizeExpression,
    comparison: Comparison,
    right: SizeExpression,
    specialised = false,
  ): boolean {
    const answer = compare(left.evaluate(this.examples), comparison, right.evaluate(this.examples));
    const source = sourcePosition();
    const unbacked = [...left.names(), ...right.names()].find(
      (name) => this.ranges.get(name)?.unbacked === true,
    );
    const asked = `${left.text} ${SIGNS[comparison]} ${right.text}`;
    if (unbacked !== undefined)
      throw (this.stopped ??= refusal(
        'E_DATA_DEPENDENT',
        `${asked}: the size ${unbacked} comes from data and has no value here`,
        { source },
        {
          hint:
            'compute with it as a tensor (where, masks), or give the dim a range and drop ' +
            'unbacked.',
        },
      ));
    const valid = answer ? comparison : OPPOSITE[comparison];
    const text = `${left.text} ${SIGNS[valid]} ${right.text}`;
    if (!this.seen.has(text)) {
      this.seen.add(text);
      this.guards.push({ text, left, comparison: valid, right, source, specialised });
    }
    return answer;
  }
}

/** A size: a number, or a symbolic one. */
export type Size = number | Sym;

/** A symbolic size of a traced tensor. */
export class Sym {
  /** The expression, `s0` or `2*s0 + 1`. */
  readonly sym: string;
  /** The size that tracing runs with. */
  readonly example: number;

  /** This constructor is not part of the public surface. */
  constructor(
    readonly expression: SizeExpression,
    private readonly scope: DimScope,
  ) {
    checkKinds('Sym', {
      expression: [expression, ['text', 'constant', 'names']],
      scope: [scope, ['ranges', 'examples', 'guards']],
    });
    this.sym = expression.text;
    this.example = expression.evaluate(scope.examples);
    Object.freeze(this);
  }

  add(other: Size): Size {
    return this.made(this.expression.plus(expressionOf(other)));
  }
  sub(other: Size): Size {
    return this.made(this.expression.minus(expressionOf(other)));
  }
  mul(other: Size): Size {
    return this.made(this.expression.times(expressionOf(other)));
  }
  floordiv(other: Size): Size {
    return this.made(this.expression.floordiv(expressionOf(other)));
  }
  mod(other: Size): Size {
    return this.made(this.expression.mod(expressionOf(other)));
  }
  min(other: Size): Size {
    return this.made(this.expression.min(expressionOf(other)));
  }
  max(other: Size): Size {
    return this.made(this.expression.max(expressionOf(other)));
  }

  /** A host boolean for the example size; the relation becomes a guard. So do the five below. */
  eq(other: Size): boolean {
    return this.scope.decide(this.expression, 'eq', expressionOf(other));
  }
  ne(other: Size): boolean {
    return this.scope.decide(this.expression, 'ne', expressionOf(other));
  }
  lt(other: Size): boolean {
    return this.scope.decide(this.expression, 'lt', expressionOf(other));
  }
  le(other: Size): boolean {
    return this.scope.decide(this.expression, 'le', expressionOf(other));
  }
  gt(other: Size): boolean {
    return this.scope.decide(this.expression, 'gt', expressionOf(other));
  }
  ge(other: Size): boolean {
    return this.scope.decide(this.expression, 'ge', expressionOf(other));
  }

  /** `s > 2`, `${s}`, `i < s`: the example size, with the guard that the size is exactly this. */
  [Symbol.toPrimitive](hint: string): number | string {
    this.scope.decide(this.expression, 'eq', SizeExpression.constant(this.example), true);
    return hint === 'string' ? String(this.example) : this.example;
  }
  [Symbol.for('nodejs.util.inspect.custom')](): string {
    return `${this.sym}=${this.example}`;
  }

  private made(expression: SizeExpression): Size {
    return sizeOf(expression, this.scope);
  }
}

/** A number where the expression holds no dim, else a `Sym`. */
export function sizeOf(expression: SizeExpression, scope: DimScope): Size {
  return expression.constant ?? new Sym(expression, scope);
}

export function expressionOf(size: Size): SizeExpression {
  return typeof size === 'number' ? SizeExpression.constant(size) : size.expression;
}

/** Arithmetic on sizes that works on numbers and on symbolic sizes. */
export const sizes = {
  add: (a: Size, b: Size): Size => {
    needSizes('sizes.add', a, b);
    return typeof a === 'number' ? (typeof b === 'number' ? a + b : b.add(a)) : a.add(b);
  },
  mul: (a: Size, b: Size): Size => {
    needSizes('sizes.mul', a, b);
    return typeof a === 'number' ? (typeof b === 'number' ? a * b : b.mul(a)) : a.mul(b);
  },
  sub: (a: Size, b: Size): Size => {
    needSizes('sizes.sub', a, b);
    return sizes.add(a, sizes.mul(b, -1));
  },
  floordiv: (a: Size, b: number): Size => {
    needSizes('sizes.floordiv', a, b);
    return typeof a === 'number' ? Math.floor(a / b) : a.floordiv(b);
  },
  /** Tells whether two sizes are equal; where it depends on a dim, the answer becomes a guard. */
  eq: (a: Size, b: Size): boolean => {
    needSizes('sizes.eq', a, b);
    if (typeof a === 'number') return typeof b === 'number' ? a === b : b.eq(a);
    return sameSize(a, b) || a.eq(b);
  },
  product: (list: readonly Size[]): Size => {
    checkKinds('sizes.product', { list: [list, 'list'] });
    return list.reduce((a, b) => sizes.mul(a, b), 1);
  },
};

/** @throws E_USAGE for what is neither a number nor a size of the trace */
function needSizes(call: string, ...given: readonly Size[]): void {
  for (const [place, size] of given.entries())
    if (typeof size !== 'number' && !(isReadable(Object(size) as object) && size instanceof Sym))
      throw wrongArgument(
        call,
        place === 0 ? 'first size' : 'second size',
        valueText(size),
        'it is a number, or a size of a traced tensor.',
      );
}

/** Equal as expressions, without a guard. */
export function sameSize(a: Size, b: Size): boolean {
  return typeof a === 'number' || typeof b === 'number' ? a === b : a.sym === b.sym;
}

/** `8`, or the expression. */
export function sizeText(size: Size): string {
  return typeof size === 'number' ? String(size) : size.sym;
}
