/** Finds the examples of symbolic sizes that graph text states once. */

import type { Arg, Dim, Graph, Sym, ValueType } from '../types.ts';
import { getOwn, isList, symText } from '../value.ts';
import { sizeNames, sizeValue, usualSize } from './size-value.ts';

/**
 * Examples of symbolic sizes in graph text. A type says `f32[s0, 128]`; the size that `s0` had is
 * stated once, on its `dim` line (`example 8`), or not at all where it is the usual one. A size
 * whose example does not follow from these states it: `s0=5`.
 */
export interface ExampleSizes {
  /** Example by name of a dim. */
  readonly values: ReadonlyMap<string, number>;
  /** The end of the line of a dim: ` example 5`, ` example none`; absent for the usual size. */
  readonly stated: ReadonlyMap<string, string>;
}

/** Examples of the dims of a graph: those that all uses of the bare name agree on. */
export function exampleSizes(graph: Graph): ExampleSizes {
  const values = new Map<string, number>();
  const stated = new Map<string, string>();
  const dims = graph.dims ?? {};
  const names = Object.keys(dims);
  if (names.length === 0) return { values, stated };
  const found = new Map<string, number | undefined>();
  const mentioned = new Set<string>();
  eachSize(graph, ({ sym, example }) => {
    if (Object.hasOwn(dims, sym))
      found.set(sym, found.has(sym) && found.get(sym) !== example ? undefined : example);
    else for (const name of sizeNames(sym)) mentioned.add(name);
  });
  for (const name of names) {
    const range = getOwn(dims, name);
    const example = found.get(name);
    const usual = range === undefined ? undefined : usualSize(range);
    if (example !== undefined) values.set(name, example);
    // A size that nothing reads has no example to lose.
    if (example !== usual && (found.has(name) || mentioned.has(name)))
      stated.set(name, ` example ${example ?? 'none'}`);
  }
  return { values, stated };
}

/** `s0` where its example is the one that follows from the dims, else `s0=5` or `s0=none`. */
export function impliedText(sym: Sym, { values }: ExampleSizes): string {
  const implied = impliedSize(sym.sym, values);
  if (implied === sym.example) return sym.sym;
  return sym.example === undefined ? `${sym.sym}=none` : symText(sym);
}

/** The example of an expression that says none. */
export function impliedSize(text: string, values: ReadonlyMap<string, number>): number | undefined {
  if (values.size === 0) return undefined;
  const known = values.get(text);
  if (known !== undefined) return known;
  return sizeNames(text).length === 0 ? undefined : sizeValue(text, values);
}

/** Every symbolic size of a graph and its bodies. Deep nesting is walked without recursion. */
function eachSize(graph: Graph, see: (sym: Sym) => void): void {
  const dim = (size: Dim): void => void (typeof size === 'number' || see(size));
  const type = (value: ValueType): void => {
    if (value.kind === 'tuple') value.items.forEach(type);
    if (value.kind !== 'tensor') return;
    value.shape.forEach(dim);
    value.stride?.forEach(dim);
  };
  const arg = (value: Arg): void => {
    if (isList(value)) value.forEach(arg);
    else if (value !== null && typeof value === 'object' && value.kind === 'size') see(value.size);
  };
  const stack = [graph];
  for (let one = stack.pop(); one !== undefined; one = stack.pop()) {
    for (const node of one.nodes) {
      type(node.type);
      node.args.forEach(arg);
      for (const key of Object.keys(node.kwargs)) arg(node.kwargs[key]);
    }
    for (const name of Object.keys(one.subgraphs)) {
      const body = getOwn(one.subgraphs, name);
      if (body !== undefined) stack.push(body);
    }
  }
}
