/**
 * Size expressions: integer polynomials over named dims, with floor division, remainder, minimum
 * and maximum as opaque factors. Every value has one canonical text, so two sizes are equal as
 * expressions exactly when their texts are.
 */

interface NamedFactor {
  readonly kind: 'dim';
  readonly text: string;
}
interface BinaryFactor {
  readonly kind: 'floordiv' | 'mod' | 'min' | 'max';
  readonly text: string;
  readonly left: SizeExpression;
  readonly right: SizeExpression;
}
type Factor = NamedFactor | BinaryFactor;

interface Term {
  readonly coefficient: number;
  /** Sorted by text; repeated for powers. */
  readonly factors: readonly Factor[];
}

/** Values of dims by name. */
export type DimValues = ReadonlyMap<string, number>;

export class SizeExpression {
  /** `s0`, `4*s0 + 1`, `(s0 + 1)//2`. */
  readonly text: string;

  private constructor(private readonly terms: readonly Term[]) {
    this.text = termsText(terms);
  }

  static constant(value: number): SizeExpression {
    return new SizeExpression(value === 0 ? [] : [{ coefficient: value, factors: [] }]);
  }
  static dim(name: string): SizeExpression {
    return SizeExpression.of({ kind: 'dim', text: name });
  }
  private static of(factor: Factor): SizeExpression {
    return new SizeExpression([{ coefficient: 1, factors: [factor] }]);
  }

  /** The number, if no dim is left in the expression. */
  get constant(): number | undefined {
    if (this.terms.length === 0) return 0;
    const [first] = this.terms;
    return this.terms.length === 1 && first.factors.length === 0 ? first.coefficient : undefined;
  }

  /** Names of the dims it reads, sorted. */
  names(): string[] {
    const found = new Set<string>();
    this.collect(found);
    return [...found].sort();
  }

  evaluate(values: DimValues): number {
    let total = 0;
    for (const { coefficient, factors } of this.terms) {
      let product = coefficient;
      for (const factor of factors) product *= factorValue(factor, values);
      total += product;
    }
    return total;
  }

  plus(other: SizeExpression): SizeExpression {
    return SizeExpression.collectTerms([...this.terms, ...other.terms]);
  }
  times(other: SizeExpression): SizeExpression {
    return SizeExpression.collectTerms(
      this.terms.flatMap((a) =>
        other.terms.map((b) => ({
          coefficient: a.coefficient * b.coefficient,
          factors: [...a.factors, ...b.factors].sort(byText),
        })),
      ),
    );
  }
  minus(other: SizeExpression): SizeExpression {
    return this.plus(other.times(SizeExpression.constant(-1)));
  }
  floordiv(other: SizeExpression): SizeExpression {
    const [a, b] = [this.constant, other.constant];
    if (a !== undefined && b !== undefined && b !== 0)
      return SizeExpression.constant(Math.floor(a / b));
    return this.exactQuotient(other) ?? SizeExpression.of(binary('floordiv', this, other));
  }
  mod(other: SizeExpression): SizeExpression {
    const [a, b] = [this.constant, other.constant];
    if (a !== undefined && b !== undefined && b !== 0)
      return SizeExpression.constant(a - b * Math.floor(a / b));
    if (this.exactQuotient(other) !== undefined) return SizeExpression.constant(0);
    return SizeExpression.of(binary('mod', this, other));
  }
  min(other: SizeExpression): SizeExpression {
    return this.extreme('min', other);
  }
  max(other: SizeExpression): SizeExpression {
    return this.extreme('max', other);
  }

  private extreme(kind: 'min' | 'max', other: SizeExpression): SizeExpression {
    if (this.text === other.text) return this;
    const [a, b] = [this.constant, other.constant];
    if (a !== undefined && b !== undefined) return SizeExpression.constant(Math[kind](a, b));
    const [left, right] = this.text < other.text ? [this, other] : [other, this];
    return SizeExpression.of(binary(kind, left, right));
  }

  /** Quotient when every term is a multiple of the single-term divisor. */
  private exactQuotient(divisor: SizeExpression): SizeExpression | undefined {
    if (divisor.terms.length !== 1) return undefined;
    const [{ coefficient, factors }] = divisor.terms;
    const terms: Term[] = [];
    for (const term of this.terms) {
      if (term.coefficient % coefficient !== 0) return undefined;
      const rest = [...term.factors];
      for (const factor of factors) {
        const at = rest.findIndex((f) => f.text === factor.text);
        if (at < 0) return undefined;
        rest.splice(at, 1);
      }
      terms.push({ coefficient: term.coefficient / coefficient, factors: rest });
    }
    return new SizeExpression(terms);
  }

  private collect(found: Set<string>): void {
    for (const { factors } of this.terms)
      for (const factor of factors) {
        if (factor.kind === 'dim') found.add(factor.text);
        else {
          factor.left.collect(found);
          factor.right.collect(found);
        }
      }
  }

  private static collectTerms(terms: readonly Term[]): SizeExpression {
    const byKey = new Map<string, Term>();
    for (const term of terms) {
      const key = term.factors.map((f) => f.text).join(' ');
      const known = byKey.get(key);
      byKey.set(
        key,
        known === undefined ? term : { ...term, coefficient: known.coefficient + term.coefficient },
      );
    }
    const kept = [...byKey].filter(([, term]) => term.coefficient !== 0);
    kept.sort(
      ([a, s], [b, t]) => t.factors.length - s.factors.length || (a < b ? -1 : a > b ? 1 : 0),
    );
    return new SizeExpression(kept.map(([, term]) => term));
  }
}

function binary(
  kind: BinaryFactor['kind'],
  left: SizeExpression,
  right: SizeExpression,
): BinaryFactor {
  const text =
    kind === 'floordiv' || kind === 'mod'
      ? `${enclosed(left)}${kind === 'floordiv' ? '//' : '%'}${enclosed(right)}`
      : `${kind}(${left.text}, ${right.text})`;
  return { kind, left, right, text };
}

/** Writes a name or a number as it is, and anything else in parentheses. */
function enclosed({ text }: SizeExpression): string {
  return /^(\w+|(min|max)\([^()]*\))$/.test(text) ? text : `(${text})`;
}

function factorValue(factor: Factor, values: DimValues): number {
  if (factor.kind === 'dim') {
    const value = values.get(factor.text);
    if (value === undefined) throw new RangeError(`internal: dim ${factor.text} has no value`);
    return value;
  }
  const [a, b] = [factor.left.evaluate(values), factor.right.evaluate(values)];
  switch (factor.kind) {
    case 'floordiv':
      return Math.floor(a / b);
    case 'mod':
      return a - b * Math.floor(a / b);
    case 'min':
      return Math.min(a, b);
    case 'max':
      return Math.max(a, b);
  }
}

function termsText(terms: readonly Term[]): string {
  if (terms.length === 0) return '0';
  return terms
    .map((term, i) => {
      const text = termText({ ...term, coefficient: Math.abs(term.coefficient) });
      if (i === 0)
        return term.coefficient >= 0 ? text : `-${isQuotient(term) ? `(${text})` : text}`;
      return `${term.coefficient < 0 ? '-' : '+'} ${text}`;
    })
    .join(' ');
}

/**
 * A quotient alone: a minus before it binds more closely than // and %, so that -(a//b) is not
 * -a//b.
 */
function isQuotient({ coefficient, factors }: Term): boolean {
  const [first] = factors;
  return (
    Math.abs(coefficient) === 1 &&
    factors.length === 1 &&
    (first.kind === 'floordiv' || first.kind === 'mod')
  );
}

function termText({ coefficient, factors }: Term): string {
  if (factors.length === 0) return String(coefficient);
  if (coefficient === 1 && factors.length === 1) return factors[0].text;
  const parts = factors.map((f) =>
    f.kind === 'floordiv' || f.kind === 'mod' ? `(${f.text})` : f.text,
  );
  return (coefficient === 1 ? parts : [String(coefficient), ...parts]).join('*');
}

function byText(a: Factor, b: Factor): number {
  return a.text < b.text ? -1 : a.text > b.text ? 1 : 0;
}
