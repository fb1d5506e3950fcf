/**
 * Types of calls with symbolic sizes. Operator rules compute with numbers, so a call is typed
 * twice, with two large values for every symbol; a size that is the same both times is a number,
 * and one that grows with a size of an operand is that size, a multiple of it, or a product of two.
 */

import { defined } from '../../defined.ts';
import type { Arg, Dim, Sym, TensorType, ValueType } from '../../graph/types.ts';
import { eachOperand, isList, isRef, tensorType } from '../../graph/value.ts';
import { itemAt } from '../../item-at.ts';
import type { CallToInfer, Infer } from './infer.ts';

/** Primes, far from the sizes of models, so that a coincidence in both runs does not happen. */
const FIRST = [10_007, 20_011, 40_009, 70_001, 110_017, 160_001, 220_009, 290_011];
const SECOND = [13_007, 23_003, 43_003, 73_009, 113_011, 163_003, 223_007, 293_021];

interface Sized {
  readonly dim: Sym;
  readonly values: readonly [number, number];
}

/**
 * Type of a call some of whose operands have symbolic sizes; undefined where it cannot be told.
 *
 * @throws E_TYPE when the call does not fit its operator
 */
export function inferSymbolic(
  infer: Infer,
  call: CallToInfer,
  typeOf: (name: string) => ValueType,
): ValueType | undefined {
  const symbols = new Map<string, number>();
  const sizes = new Map<string, Sized>();
  const learn = (dim: Dim): void => {
    if (typeof dim === 'number' || sizes.has(dim.sym)) return;
    const at = (primes: readonly number[]): number => valueOf(dim.sym, symbols, primes);
    sizes.set(dim.sym, { dim, values: [at(FIRST), at(SECOND)] });
  };
  eachOperand(call, (name) => {
    const type = typeOf(name);
    if (type.kind === 'tensor') type.shape.forEach(learn);
    if (type.kind === 'sym' && type.expr !== undefined) learn({ sym: type.expr });
    if (type.kind === 'tuple')
      for (const item of type.items) if (item.kind === 'tensor') item.shape.forEach(learn);
  });
  if (symbols.size > FIRST.length) return undefined;
  const run = (which: 0 | 1): ValueType | undefined => {
    const number = (dim: Dim): number =>
      typeof dim === 'number' ? dim : (sizes.get(dim.sym)?.values[which] ?? 0);
    const concrete = (type: ValueType): ValueType =>
      type.kind === 'tensor'
        ? tensorType(type.dtype, type.shape.map(number))
        : type.kind === 'tuple'
          ? { kind: 'tuple', items: type.items.map(concrete) }
          : type;
    const replace = (arg: Arg): Arg => {
      if (isList(arg)) return arg.map(replace);
      if (!isRef(arg)) return arg;
      const type = typeOf(arg.name);
      return type.kind === 'sym' && type.expr !== undefined ? number({ sym: type.expr }) : arg;
    };
    const kwargs = Object.fromEntries(
      Object.entries(call.kwargs).map(([key, arg]) => [key, replace(arg)]),
    );
    return infer({ ...call, args: call.args.map(replace), kwargs }, (name) =>
      concrete(typeOf(name)),
    );
  };
  const first = run(0);
  const second = run(1);
  if (first === undefined || second === undefined) return undefined;
  return merge(first, second, [...sizes.values()]);
}

function merge(a: ValueType, b: ValueType, sizes: readonly Sized[]): ValueType | undefined {
  if (a.kind === 'tuple' && b.kind === 'tuple' && a.items.length === b.items.length) {
    const items = a.items.map((item, i) => merge(item, itemAt(b.items, i), sizes));
    return items.every((item) => item !== undefined) ? { kind: 'tuple', items } : undefined;
  }
  if (a.kind !== 'tensor' || b.kind !== 'tensor') return a.kind === b.kind ? a : undefined;
  return mergeShapes(a, b, sizes);
}

function mergeShapes(
  a: TensorType,
  b: TensorType,
  sizes: readonly Sized[],
): TensorType | undefined {
  if (a.shape.length !== b.shape.length) return undefined;
  const shape: Dim[] = [];
  for (let i = 0; i < a.shape.length; i++) {
    const [x, y] = [a.shape[i], b.shape[i]];
    if (typeof x !== 'number' || typeof y !== 'number') return undefined;
    const dim = x === y ? x : sizeFor(x, y, sizes);
    if (dim === undefined) return undefined;
    shape.push(dim);
  }
  return tensorType(a.dtype, shape);
}

function sizeFor(x: number, y: number, sizes: readonly Sized[]): Dim | undefined {
  for (const { dim, values } of sizes) if (x === values[0] && y === values[1]) return dim;
  for (const { dim, values } of sizes) {
    const factor = x / values[0];
    if (Number.isInteger(factor) && factor > 1 && y === factor * values[1])
      return scaled(dim, factor);
    if (x - values[0] === y - values[1]) return shifted(dim, x - values[0]);
  }
  for (const a of sizes)
    for (const b of sizes)
      if (x === a.values[0] * b.values[0] && y === a.values[1] * b.values[1])
        return product(a.dim, b.dim);
  return undefined;
}

function scaled({ sym, example }: Sym, factor: number): Sym {
  return {
    sym: `${factor}*${atom(sym)}`,
    ...(example !== undefined ? { example: factor * example } : {}),
  };
}

function shifted({ sym, example }: Sym, by: number): Sym {
  const text = by < 0 ? `${sym} - ${-by}` : `${sym} + ${by}`;
  return { sym: text, ...(example !== undefined ? { example: example + by } : {}) };
}

function product(a: Sym, b: Sym): Sym {
  const example =
    a.example !== undefined && b.example !== undefined ? a.example * b.example : undefined;
  return { sym: `${atom(a.sym)}*${atom(b.sym)}`, ...defined({ example }) };
}

function atom(sym: string): string {
  return /^[A-Za-z_]\w*$/.test(sym) ? sym : `(${sym})`;
}

/**
 * Value of `s77`, `2*s77` or `s77 + 1` with a prime for the symbol; any other expression is a
 * symbol of its own.
 */
function valueOf(text: string, symbols: Map<string, number>, primes: readonly number[]): number {
  const simple = /^(?:(\d{1,9})\*)?([A-Za-z_]\w{0,63})(?: ([+-]) (\d{1,9}))?$/.exec(text);
  const name = simple?.[2] ?? text;
  let index = symbols.get(name);
  if (index === undefined) {
    index = symbols.size;
    symbols.set(name, index);
  }
  const value = primes[index] ?? itemAt(primes, primes.length - 1) + index;
  if (simple === null) return value;
  const offset = Number(simple[4] ?? 0);
  return Number(simple[1] ?? 1) * value + (simple[3] === '-' ? -offset : offset);
}
