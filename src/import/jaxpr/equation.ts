/**
 * Shared by the lowerings of all primitives: their type, their access to an equation, and the
 * lowering of an unknown primitive.
 */

import type { Arg, DType } from '../../graph/types.ts';
import { type GraphOfJaxpr, numbers } from './builder.ts';
import { KEY_WORDS } from './text/parse.ts';
import type { Atom, Equation } from './text/syntax.ts';

/** Adds the calls of one equation to the graph, and defines its results. */
export type Lower = (b: GraphOfJaxpr, e: Equation) => void;

/** Shape of the first result. */
export function shapeOf(e: Equation): number[] {
  const [first] = e.results;
  return first === undefined ? [] : numbers(first.type);
}

/** Dtype of the first result. */
export function dtypeOf(e: Equation): DType {
  return e.results[0]?.type.dtype ?? 'f32';
}

/** One operand of an equation. @throws E_TYPE where there is none */
export function operand(b: GraphOfJaxpr, e: Equation, i = 0): Atom {
  const atom = e.operands[i];
  if (atom === undefined) throw b.error('E_TYPE', `${e.primitive} needs an operand ${i}`, e.at);
  return atom;
}

/**
 * Words of random keys, a dim behind the `dims` that an equation on keys speaks of; none for any
 * other operand.
 */
export function wordsBehind(b: GraphOfJaxpr, atom: Atom, dims: number): number[] {
  const type = b.tensor(atom);
  const words = numbers(type).slice(dims);
  const [count, ...others] = words;
  const isKey = count !== undefined && others.length === 0 && KEY_WORDS.has(count);
  return type.dtype === 'u32' && isKey ? words : [];
}

/** A primitive without a counterpart: typed by its binders, listed as unknown. */
export const opaque: Lower = (b, e) => {
  const kwargs: Record<string, Arg> = {};
  for (const [key, { text }] of e.parameters)
    if (text.length <= 1000) Object.defineProperty(kwargs, key, { value: text, enumerable: true });
  b.emit(
    e,
    `jax.${e.primitive}`,
    e.operands.map((atom) => b.value(atom)),
    kwargs,
  );
};
