/**
 * Result shapes in terms of dims. Operator records know sizes as numbers only, so a call is typed
 * at the example sizes and at several other admissible ones, and each result size is matched with
 * an expression over the sizes that went in. An expression counts only if it is right at every
 * probe; a size that has none is refused, never fixed in silence.
 */

import { ShardwrightError } from '../../errors.ts';
import { type DimValues, SizeExpression } from './size-expression.ts';
import type { DimRange, DimScope } from './sizes.ts';

/** Shapes of the results at given sizes; null for an absent result. */
type ShapesAt = (values: DimValues) => readonly (readonly number[] | null)[];

/** Why a call cannot be typed for all admissible sizes. */
export class SizeMisfit extends Error {
  constructor(
    message: string,
    readonly hint: string,
  ) {
    super(message);
  }
}

/**
 * @param names the dims that the call reads
 * @param given sizes of operands and arguments, the first choice for expressions
 * @throws SizeMisfit when the call fails at other admissible sizes, or a size has no expression
 */
export function symbolicShapes(
  scope: DimScope,
  names: readonly string[],
  given: readonly SizeExpression[],
  shapesAt: ShapesAt,
): (SizeExpression[] | null)[] {
  const base = shapesAt(scope.examples);
  const ranges = names.map((name) => scope.ranges.get(name)).filter((range) => range !== undefined);
  const points: DimValues[] = [scope.examples];
  const shapes = [base];
  const probe = (values: DimValues): void => {
    points.push(values);
    shapes.push(shapesOf(scope, ranges, values, base, shapesAt));
  };
  for (const values of probePoints(scope.examples, ranges)) probe(values);
  const basis = basisOf(names, given);
  let fine = false;
  const fit = (pick: (shape: readonly (readonly number[] | null)[]) => number): SizeExpression => {
    const first = fitted(basis, points, shapes.map(pick));
    if (first !== undefined) return first;
    // Steps of a floor division only show between neighbours.
    if (!fine) {
      fine = true;
      for (const values of finePoints(scope.examples, ranges)) probe(values);
    }
    const divided = quotient(basis, points, shapes.map(pick));
    if (divided !== undefined) return divided;
    const sizes = [...new Set(shapes.map(pick))].slice(0, 6).join(', ');
    throw new SizeMisfit(
      `a result size (${sizes}, ...) has no expression in ${names.join(', ')}`,
      'give the dim a fixed size, or compute the size so that it is linear in the dim.',
    );
  };
  return base.map((shape, r) =>
    shape === null ? null : shape.map((_, d) => fit((all) => all[r]?.[d] ?? NaN)),
  );
}

function shapesOf(
  scope: DimScope,
  ranges: readonly DimRange[],
  values: DimValues,
  base: ReturnType<ShapesAt>,
  shapesAt: ShapesAt,
): ReturnType<ShapesAt> {
  const at = (all: DimValues): string =>
    ranges.map(({ name }) => `${name} = ${all.get(name) ?? '?'}`).join(', ');
  try {
    const shapes = shapesAt(values);
    if (
      shapes.length !== base.length ||
      shapes.some((shape, i) => shape?.length !== base[i]?.length)
    )
      throw new ShardwrightError('E_TYPE', 'the number of dims changes with the sizes');
    return shapes;
  } catch (error) {
    if (!(error instanceof ShardwrightError)) throw error;
    throw new SizeMisfit(
      `fits for ${at(scope.examples)}, but not for ${at(values)}: ` +
        `${error.message.replace(/^[\w.]+: /, '')}`,
      'use one dim for sizes that must agree, state { multiple } or a narrower range, or ' +
        'give the dim a fixed size.',
    );
  }
}

/**
 * Other admissible sizes near the example, at irregular distances so that no accident fits them
 * all.
 */
function alternatives(range: DimRange, steps: readonly number[]): number[] {
  const { example, min, max, multiple } = range;
  const found: number[] = [];
  for (const step of steps)
    for (const size of [example + step * multiple, example - step * multiple])
      if (size >= Math.max(min, 2) && size <= max && size !== example && !found.includes(size))
        found.push(size);
  return found;
}

function probePoints(examples: DimValues, ranges: readonly DimRange[]): DimValues[] {
  const points: DimValues[] = [];
  const alternative = ranges.map((range) => alternatives(range, [1, 5, 12, 3]).slice(0, 4));
  ranges.forEach((range, i) => {
    for (const size of alternative[i]) points.push(new Map(examples).set(range.name, size));
  });
  if (ranges.length > 1)
    for (let k = 0; k < 3; k++) {
      const all = new Map(examples);
      // Dims move by different steps, so that a sum and a product cannot be confused.
      ranges.forEach((range, i) => {
        const list = alternative[i];
        if (list.length > 0) all.set(range.name, list[(k + i) % list.length]);
      });
      points.push(all);
    }
  return points;
}

const FINE = Array.from({ length: 24 }, (_, i) => i + 1);

function finePoints(examples: DimValues, ranges: readonly DimRange[]): DimValues[] {
  return ranges.flatMap((range) =>
    alternatives(range, FINE).map((size) => new Map(examples).set(range.name, size)),
  );
}

/** Expressions that a result size may be made of: those given, then the dims themselves. */
function basisOf(names: readonly string[], given: readonly SizeExpression[]): SizeExpression[] {
  const basis = new Map<string, SizeExpression>();
  for (const expression of [...given, ...names.map((name) => SizeExpression.dim(name))])
    if (expression.constant === undefined) basis.set(expression.text, expression);
  return [...basis.values()];
}

function fitted(
  basis: readonly SizeExpression[],
  points: readonly DimValues[],
  sizes: readonly number[],
): SizeExpression | undefined {
  if (sizes.every((size) => size === sizes[0])) return SizeExpression.constant(sizes[0]);
  const right = (candidate: SizeExpression): boolean =>
    points.every((values, i) => candidate.evaluate(values) === sizes[i]);
  const exact = basis.find(right);
  if (exact !== undefined) return exact;
  const affine = (e: SizeExpression): SizeExpression | undefined => {
    const at = points.map((values) => e.evaluate(values));
    const other = at.findIndex((x) => x !== at[0]);
    if (other < 0) return undefined;
    const slope = (sizes[other] - sizes[0]) / (at[other] - at[0]);
    if (!Number.isSafeInteger(slope)) return undefined;
    const made = e
      .times(SizeExpression.constant(slope))
      .plus(SizeExpression.constant(sizes[0] - slope * at[0]));
    return right(made) ? made : undefined;
  };
  for (const e of basis) {
    const made = affine(e);
    if (made !== undefined) return made;
  }
  for (const [i, a] of basis.entries())
    for (const b of basis.slice(i))
      for (const pair of [a.times(b), a.plus(b), a.minus(b), b.minus(a)]) {
        const made = pair.constant === undefined ? affine(pair) : undefined;
        if (made !== undefined) return made;
      }
  const dims = basis.filter((e) => /^\w+$/.test(e.text));
  for (const whole of [dims.reduce((a, b) => a.times(b)), dims.reduce((a, b) => a.plus(b))]) {
    const made = affine(whole);
    if (made !== undefined) return made;
  }
  return undefined;
}

/** `(e + k)//c`, as strided windows make it. */
function quotient(
  basis: readonly SizeExpression[],
  points: readonly DimValues[],
  sizes: readonly number[],
): SizeExpression | undefined {
  const simple = fitted(basis, points, sizes);
  if (simple !== undefined) return simple;
  for (const e of basis) {
    const at = points.map((values) => e.evaluate(values));
    for (let divisor = 2; divisor <= 64; divisor++) {
      // size = floor((x + k) / c)  <=>  c * size - x <= k <= c * size - x + c - 1, at every probe.
      let low = -Infinity;
      let high = Infinity;
      at.forEach((x, i) => {
        low = Math.max(low, divisor * sizes[i] - x);
        high = Math.min(high, divisor * sizes[i] - x + divisor - 1);
      });
      if (low > high) continue;
      // Several k mean that admissible sizes tell them apart nowhere (all are multiples of
      // something): the plainest serves.
      const k = low <= 0 && high >= 0 ? 0 : low;
      return e.plus(SizeExpression.constant(k)).floordiv(SizeExpression.constant(divisor));
    }
  }
  return undefined;
}
