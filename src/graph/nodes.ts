/** Finds nodes and types of a graph by name, and names nodes as their users know them. */
import type { SourcePosition } from '../errors.ts';
import type { Node } from './types.ts';

/** Lists such as the nodes of a graph or of a plan. */
interface Listing<T> {
  readonly nodes: readonly T[];
}

export function nodesByName<T extends { readonly name: string }>({
  nodes,
}: Listing<T>): Map<string, T> {
  return new Map(nodes.map((node) => [node.name, node]));
}

export function typesByName<T>({
  nodes,
}: Listing<{ readonly name: string; readonly type: T }>): Map<string, T> {
  return new Map(nodes.map(({ name, type }) => [name, type]));
}

/** The name of an input in the model that a program was captured from; its own name elsewhere. */
export function roleName({ name, meta }: Pick<Node, 'name' | 'meta'>): string {
  return meta.roleName ?? name;
}

/** The place of an error in the text of a graph, where the line of its node is known. */
export function linePosition(line: number | undefined): SourcePosition | undefined {
  return line === undefined ? undefined : { line, column: 1 };
}
