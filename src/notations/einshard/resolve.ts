/**
 * Resolves an einshard expression on N devices. With F the product of the unstarred numbers, B that
 * of the starred bases and k stars: F divides N, B divides N/F, and every star means the same q,
 * the integer k-th root of N/(F B). Without stars F is N. The mesh has one dim for each element on
 * the right, as written, row-major over the devices.
 */

import { checkKinds } from '../../arguments.ts';
import { ShardwrightError, wrongArgument } from '../../errors.ts';
import { product } from '../../product.ts';
import {
  type EinshardExpression,
  elementText,
  type LeftElement,
  parseEinshard,
  type RightElement,
  type RightFactor,
} from './syntax.ts';

/** A dim of the mesh that an expression makes. */
interface EinshardAxis {
  /**
   * Name of the tensor dim that it cuts, null where it replicates and for the dims of an ellipsis.
   */
  readonly name: string | null;
  readonly size: number;
}

/** An expression with sizes. */
export interface Einshard {
  readonly expression: EinshardExpression;
  readonly devices: number;
  /** Dims of the mesh, outermost first. */
  readonly axes: readonly EinshardAxis[];
  /** For each tensor dim the mesh dim that belongs to it (of size 1 where it is not cut). */
  readonly axisOfDim: readonly number[];
}

interface ResolveOptions {
  /** Devices of the mesh, ids 0..devices-1. */
  readonly devices: number;
  /** Rank of the tensor; needed where the expression has an ellipsis and no shape is given. */
  readonly rank?: number;
  /** Global shape of the tensor; its dims must divide by the mesh dims that cut them. */
  readonly shape?: readonly number[];
}

/** The most devices that a DeviceMesh may have. */
const MAX_DEVICES = 1 << 24;
/** The most tensor dims that an ellipsis may cover. */
const MAX_RANK = 64;

/**
 * Gives an expression its sizes.
 *
 * @throws E_SYNTAX for a text that does not parse; E_EINSHARD, naming the element and its 0-based
 *   position, for an expression that has no meaning on these devices or for this tensor
 */
export function resolveEinshard(
  source: string | EinshardExpression,
  options: ResolveOptions,
): Einshard {
  checkKinds('resolveEinshard', {
    source: [source, 'string', 'expression'],
    options: [options, ['devices']],
  });
  const expression = typeof source === 'string' ? parseEinshard(source) : source;
  const { devices, shape } = options;
  if (!Number.isSafeInteger(devices) || devices < 1 || devices > MAX_DEVICES)
    throw new ShardwrightError(
      'E_EINSHARD',
      `${devices} devices: expected an integer from 1 to ${MAX_DEVICES}`,
    );
  checkNames(expression);
  const rank = rankOf(expression, shape?.length ?? options.rank);
  const sizes = factorSizes(expression, devices);
  const hidden = rank - expression.left.filter((e) => e.kind === 'name').length;

  const axes: EinshardAxis[] = [];
  const axisOfName = new Map<string, number>();
  let firstHidden = 0;
  expression.right.forEach((element, i) => {
    if (element.kind === 'ellipsis') {
      firstHidden = axes.length;
      for (let d = 0; d < hidden; d++) axes.push({ name: null, size: 1 });
      return;
    }
    if (element.name !== null) axisOfName.set(element.name, axes.length);
    axes.push({ name: element.name, size: sizes[i] });
  });
  const axisOfDim: number[] = [];
  for (const element of expression.left) {
    if (element.kind === 'name') axisOfDim.push(axisOfName.get(element.name) ?? -1);
    else for (let d = 0; d < hidden; d++) axisOfDim.push(firstHidden + d);
  }
  const meaning: Einshard = { expression, devices, axes, axisOfDim };
  if (shape !== undefined) checkDivides(meaning, shape);
  return meaning;
}

/**
 * Shape of the piece of one device; all are equal. @param shape global shape, of the rank that was
 * resolved
 */
export function einshardLocalShape(einshard: Einshard, shape: readonly number[]): number[] {
  checkKinds('einshardLocalShape', {
    einshard: [einshard, 'einshard'],
    shape: [shape, 'integers'],
  });
  checkDivides(einshard, shape);
  return shape.map((size, d) => size / einshard.axes[einshard.axisOfDim[d]].size);
}

/** A refusal that names an element and its place. */
function refuse(
  expression: EinshardExpression,
  element: LeftElement | RightElement,
  message: string,
  hint: string,
): never {
  throw new ShardwrightError('E_EINSHARD', message, {
    hint,
    position: { line: 1, column: element.at + 1 },
    excerpt: expression.text,
  });
}

function named(element: LeftElement | RightElement): string {
  return `'${elementText(element)}' at position ${element.at}`;
}

/**
 * Names: each once on each side, the same on both; at most one ellipsis, on both sides or neither.
 */
function checkNames(expression: EinshardExpression): void {
  checkEllipses(expression);
  checkDims(expression);
}

function checkEllipses(expression: EinshardExpression): void {
  const { left, right } = expression;
  const ellipses = [left, right].map((side) => side.filter((e) => e.kind === 'ellipsis'));
  for (const side of ellipses)
    if (side.length > 1)
      refuse(
        expression,
        side[1],
        `a second ellipsis, ${named(side[1])}`,
        'keep one ellipsis on each side',
      );
  const [inLeft, inRight] = ellipses;
  if (inLeft.length !== inRight.length) {
    const only = [...inLeft, ...inRight][0];
    const other = inLeft.length === 1 ? 'right' : 'left';
    refuse(
      expression,
      only,
      `the ellipsis ${named(only)} is on one side only`,
      `write ... on the ${other} too, or leave it out`,
    );
  }
}

function checkDims(expression: EinshardExpression): void {
  const { left, right } = expression;
  const dims = new Set<string>();
  for (const element of left) {
    if (element.kind !== 'name') continue;
    if (dims.has(element.name))
      refuse(
        expression,
        element,
        `the dim ${named(element)} is named before on the left`,
        'give every dim a name of its own',
      );
    dims.add(element.name);
  }
  const cut = new Set<string>();
  for (const element of right) {
    if (element.kind !== 'factor' || element.name === null) continue;
    if (!dims.has(element.name))
      refuse(
        expression,
        element,
        `${named(element)} names no dim of the left`,
        `to replicate write a bare number: ${elementText({ ...element, name: null })}`,
      );
    if (cut.has(element.name))
      refuse(
        expression,
        element,
        `the dim '${element.name}' is on the right before ${named(element)}`,
        `one mesh dim cuts a tensor dim: write ${element.name} once, with the product of the ` +
          'numbers',
      );
    cut.add(element.name);
  }
  for (const element of left)
    if (element.kind === 'name' && !cut.has(element.name))
      refuse(
        expression,
        element,
        `the dim ${named(element)} is missing on the right`,
        `write ${element.name} on the right too; without a number it is not cut`,
      );
}

/** Rank of the tensor, from the names or from outside. */
function rankOf(expression: EinshardExpression, given: number | undefined): number {
  const { left } = expression;
  const names = left.filter((e) => e.kind === 'name').length;
  const ellipsis = left.find((e) => e.kind === 'ellipsis');
  if (ellipsis === undefined) {
    if (given !== undefined && given !== names)
      refuse(
        expression,
        left[0],
        `the left side, from ${named(left[0])}, names ${names} dim${names === 1 ? '' : 's'}, ` +
          `but the tensor has ${given}`,
        'name every dim of the tensor once, or let ... stand for those that are not cut',
      );
    return names;
  }
  if (given === undefined)
    refuse(
      expression,
      ellipsis,
      `the ellipsis ${named(ellipsis)} needs the rank of the tensor, which is not known`,
      'give the shape of the tensor',
    );
  if (given < names)
    refuse(
      expression,
      ellipsis,
      `besides the ellipsis ${named(ellipsis)} there are ${names} names, but the tensor has ` +
        `${given} dims`,
      'name no more dims than the tensor has',
    );
  if (given > MAX_RANK)
    throw new ShardwrightError(
      'E_LIMIT',
      `a tensor of ${given} dims: no tensor has more than ${MAX_RANK}`,
    );
  return given;
}

/** Size of every element on the right; 1 for an ellipsis. */
function factorSizes(expression: EinshardExpression, devices: number): number[] {
  const factors = expression.right.filter((e) => e.kind === 'factor');
  const stars = factors.filter((f) => f.starred);
  let rest = devices;
  for (const factor of [...factors.filter((f) => !f.starred), ...stars]) {
    if (rest % factor.base !== 0) refuseBase(expression, factor, factors, devices, rest);
    rest /= factor.base;
  }
  if (stars.length === 0) {
    if (rest !== 1)
      refuse(
        expression,
        factors[0] ?? expression.right[0],
        `the sizes from ${named(factors[0] ?? expression.right[0])} have the product ` +
          `${devices / rest}, but there are ${devices} devices`,
        `replicate over the others with a further ${rest}, or put a star where the mesh may grow`,
      );
    return expression.right.map((e) => (e.kind === 'factor' ? e.base : 1));
  }
  const q = integerRoot(rest, stars.length);
  if (q === undefined)
    refuse(
      expression,
      stars[0],
      `the ${stars.length} stars from ${named(stars[0])} share ${rest} devices, and ${rest} ` +
        `is not a perfect ${powerText(stars.length)}`,
      'all stars stand for one integer: write numbers in place of some of them',
    );
  return expression.right.map((e) => (e.kind === 'ellipsis' ? 1 : e.starred ? e.base * q : e.base));
}

function refuseBase(
  expression: EinshardExpression,
  factor: RightFactor,
  factors: readonly RightFactor[],
  devices: number,
  rest: number,
): never {
  const what = factor.starred ? 'base' : 'size';
  const left =
    rest === devices ? `${devices}` : `${rest} (what the other numbers leave of ${devices})`;
  // Without a star the plain product says more than the division that fails.
  const whole = factors.every((f) => !f.starred)
    ? `: the sizes have the product ${product(factors.map((f) => f.base))}, not ${devices}`
    : '';
  refuse(
    expression,
    factor,
    `${left} is not divisible by ${what} ${factor.base} of ${named(factor)}${whole}`,
    `the numbers on the right must divide the ${devices} devices`,
  );
}

/** The integer q with q^k = n, if there is one; by bisection, in integers only. */
export function integerRoot(n: number, k: number): number | undefined {
  let low = 1;
  let high = n;
  while (low <= high) {
    const q = Math.floor((low + high) / 2);
    const order = comparePower(q, k, n);
    if (order === 0) return q;
    if (order < 0) low = q + 1;
    else high = q - 1;
  }
  return undefined;
}

/** Sign of q^k - n, without a product beyond n. */
function comparePower(q: number, k: number, n: number): number {
  if (q === 1) return 1 - n;
  let power = 1;
  for (let i = 0; i < k; i++) {
    if (power > Math.floor(n / q)) return 1;
    power *= q;
  }
  return power - n;
}

function powerText(k: number): string {
  return k === 2 ? 'square' : k === 3 ? 'cube' : `power of ${k}`;
}

/** @throws E_USAGE for an axis that there is not: the record was not resolved, but made by hand */
export function axisOf(axes: Einshard['axes'], axis: number): Einshard['axes'][number] {
  const found = (axes as readonly (Einshard['axes'][number] | undefined)[])[axis];
  if (found === undefined)
    throw wrongArgument(
      'einshard',
      'axisOfDim',
      `a list with ${axis}, of ${axes.length} axes`,
      'resolveEinshard gives both.',
    );
  return found;
}

function checkDivides({ expression, axes, axisOfDim }: Einshard, shape: readonly number[]): void {
  if (shape.length !== axisOfDim.length) rankOf(expression, shape.length);
  shape.forEach((size, d) => {
    const { name, size: pieces } = axisOf(axes, axisOfDim[d]);
    if (!Number.isSafeInteger(size) || size < 0)
      throw new ShardwrightError(
        'E_EINSHARD',
        `dim ${d} of the tensor has size ${size}, expected an integer`,
      );
    if (size % pieces === 0) return;
    const element =
      expression.right.find((e) => e.kind === 'factor' && e.name === name) ?? expression.right[0];
    refuse(
      expression,
      element,
      `dim ${d} of size ${size} is not divisible by ${pieces}, the size of ${named(element)}`,
      `a dim must divide by the mesh dim that cuts it: take a divisor of ${size} and ` +
        'replicate over the rest',
    );
  });
}
