/** Remembers the places of names in a graph text, for errors that appear after parsing. */

import { ShardwrightError } from '../../errors.ts';
import type { Graph } from '../types.ts';
import type { GraphReader } from './token.ts';

/**
 * Places of the names in one graph text. A rule that is checked after reading, on the record, is
 * then reported at its line and column: an undefined value where it is read, a second definition at
 * that definition, a wrong type at the type.
 */
export class Places {
  private readonly defined = new Map<string, { readonly at: number; readonly typeAt: number }>();
  private uses: { readonly name: string; readonly at: number }[] = [];
  /**
   * The first name that is defined again or read before it is defined; `node` is the reader, none
   * for an output.
   */
  private broken: { readonly node: string | undefined; readonly at: number } | undefined;

  constructor(private readonly reader: GraphReader) {}

  use(name: string, at: number): void {
    this.uses.push({ name, at });
  }

  /** A node with all that it read since the last one. */
  define(name: string, at: number, typeAt: number): void {
    if (this.defined.has(name)) this.broken ??= { node: name, at };
    this.checkUses(name);
    if (!this.defined.has(name)) this.defined.set(name, { at, typeAt });
  }

  /** The values that outputs return. */
  checkUses(node?: string): void {
    if (this.broken === undefined) {
      const wrong = this.uses.find((use) => !this.defined.has(use.name));
      if (wrong !== undefined) this.broken = { node, at: wrong.at };
    }
    this.uses = [];
  }

  /** The error with the place of the node that it names. */
  locate(error: ShardwrightError): ShardwrightError {
    const { node, position } = error.details;
    if (position !== undefined) return error;
    const known = node === undefined ? undefined : this.defined.get(node);
    const resolves =
      error.code !== 'E_TYPE' && this.broken !== undefined && this.broken.node === node;
    const at = resolves ? this.broken?.at : error.code === 'E_TYPE' ? known?.typeAt : known?.at;
    if (at === undefined) return error;
    return error.with({
      ...this.reader.place(at),
      hint: 'correct the call, or the types of what it reads',
    });
  }
}

/** A graph and its bodies with the places of their names, inner ones first. */
export type PlacedGraphs = (readonly [graph: Graph, places: Places])[];

/**
 * Runs a check of the whole graph; its error is reported at the place in the innermost graph that
 * fails alone.
 */
export function checkedAt(placed: PlacedGraphs, check: (graph: Graph) => void): void {
  const [whole] = placed[placed.length - 1];
  try {
    check(whole);
  } catch (error) {
    for (const [graph, places] of placed) {
      try {
        check(graph);
      } catch (inner) {
        throw inner instanceof ShardwrightError ? places.locate(inner) : inner;
      }
    }
    throw error;
  }
}
