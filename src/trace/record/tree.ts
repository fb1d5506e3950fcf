/**
 * Nested inputs and outputs: lists and plain records over leaves. Record keys are visited in sorted
 * order.
 */

import { isReadable, messageOf } from '../../errors.ts';
import { refusal } from '../errors/refusal.ts';

/** A constant of the host program. */
export type HostValue = number | string | boolean | null;

export type Tree<L> =
  | { readonly kind: 'leaf'; readonly path: string; readonly leaf: L }
  | { readonly kind: 'host'; readonly path: string; readonly value: HostValue }
  | { readonly kind: 'list'; readonly items: readonly Tree<L>[] }
  | {
      readonly kind: 'record';
      readonly entries: readonly (readonly [key: string, tree: Tree<L>])[];
    };

const MAX_DEPTH = 64;

/**
 * Reads a nested value.
 *
 * @param leafOf the leaf that a value is, or undefined
 * @param what `input` or `output`, for messages
 * @throws E_TRACE_INPUT naming the path of a value that is neither leaf, host constant, list nor
 *   plain record
 */
export function treeOf<L>(
  value: unknown,
  leafOf: (value: unknown) => L | undefined,
  what: 'input' | 'output',
  path = '',
  depth = 0,
): Tree<L> {
  const fail = (found: string): never => {
    throw refusal(
      'E_TRACE_INPUT',
      `${what} ${path === '' ? '' : `'${path}' `}of the traced function is ${found}`,
      {},
      {
        path,
        hint:
          'tensors, numbers, strings, booleans and null, nested in arrays and plain records, ' +
          'can be traced.',
      },
    );
  };
  if (depth > MAX_DEPTH) fail(`nested deeper than ${MAX_DEPTH}`);
  const leaf = leafOf(value);
  if (leaf !== undefined) return { kind: 'leaf', path, leaf };
  if (
    value === null ||
    typeof value === 'number' ||
    typeof value === 'string' ||
    typeof value === 'boolean'
  )
    return { kind: 'host', path, value };
  if (typeof value !== 'object')
    return fail(value === undefined ? 'undefined' : `a ${typeof value}`);
  if (!isReadable(value)) return fail('an object that cannot be read');
  const inner = (key: string | number): string => (path === '' ? String(key) : `${path}.${key}`);
  if (Array.isArray(value))
    return {
      kind: 'list',
      // By position: a list may have gaps.
      items: Array.from(value, (item: unknown, i) =>
        treeOf(item, leafOf, what, inner(i), depth + 1),
      ),
    };
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) {
    const { name } = (value as { constructor: { name: string } }).constructor;
    return fail(name === 'Object' ? 'an object of another realm' : `a ${name}`);
  }
  const record = value as Readonly<Record<string, unknown>>;
  const member = (key: string): unknown => {
    try {
      return record[key];
    } catch (error) {
      return fail(`an object whose '${key}' cannot be read: ${messageOf(error)}`);
    }
  };
  const entries = Object.keys(record)
    .sort()
    .map((key) => [key, treeOf(member(key), leafOf, what, inner(key), depth + 1)] as const);
  return { kind: 'record', entries };
}

/** The leaves in order. */
export function leavesOf<L>(tree: Tree<L>): { readonly path: string; readonly leaf: L }[] {
  const found: { path: string; leaf: L }[] = [];
  const walk = (t: Tree<L>): void => {
    if (t.kind === 'leaf') found.push(t);
    else if (t.kind === 'list') t.items.forEach(walk);
    else if (t.kind === 'record') for (const [, inner] of t.entries) walk(inner);
  };
  walk(tree);
  return found;
}

/** The same tree with other leaves. */
export function mapTree<L, M>(tree: Tree<L>, map: (leaf: L, path: string) => M): Tree<M> {
  switch (tree.kind) {
    case 'leaf':
      return { ...tree, leaf: map(tree.leaf, tree.path) };
    case 'host':
      return tree;
    case 'list':
      return { kind: 'list', items: tree.items.map((item) => mapTree(item, map)) };
    case 'record':
      return {
        kind: 'record',
        entries: tree.entries.map(([key, inner]) => [key, mapTree(inner, map)] as const),
      };
  }
}

/**
 * The nested value that a tree describes. Records have no prototype traps: keys are set as own
 * properties.
 */
export function valueOfTree<L>(tree: Tree<L>): unknown {
  switch (tree.kind) {
    case 'leaf':
      return tree.leaf;
    case 'host':
      return tree.value;
    case 'list':
      return tree.items.map((item) => valueOfTree(item));
    case 'record': {
      const record: Record<string, unknown> = {};
      for (const [key, inner] of tree.entries)
        Object.defineProperty(record, key, {
          value: valueOfTree(inner),
          enumerable: true,
          writable: true,
          configurable: true,
        });
      return record;
    }
  }
}

/** The structure as text: `{x: *, n: host, layers: [*, *]}`. Part of the guards. */
export function treeText(tree: Tree<unknown>): string {
  switch (tree.kind) {
    case 'leaf':
      return '*';
    case 'host':
      return 'host';
    case 'list':
      return `[${tree.items.map(treeText).join(', ')}]`;
    case 'record': {
      const entries = tree.entries.map(
        ([key, inner]) => `${JSON.stringify(key)}: ${treeText(inner)}`,
      );
      return `{${entries.join(', ')}}`;
    }
  }
}
