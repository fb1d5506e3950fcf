/**
 * Records the calls and bodies of a program before its bodies were inlined: the way back from an
 * opened graph to its calls.
 */

import type { Arg, Graph, Node } from '../../graph/types.ts';

/** An inlined body: its nodes are consecutive. */
export interface OpenedBody {
  /** Its name in `subgraphs` of the graph of the call. */
  readonly name: string;
  readonly graph: Graph;
  readonly scope: number;
  /** Position of its first node and of the first one after it, in the opened graph. */
  readonly start: number;
  readonly end: number;
  /**
   * The values that it returns, in the opened graph; a literal where the body returns an operand
   * that is one.
   */
  readonly returns: readonly (Arg | undefined)[];
}

interface RegionParts {
  /** The call in its own graph. */
  readonly call: Node;
  /** Its name in the opened program, were it still there. */
  readonly prefix: string;
  /** Scope around it. */
  readonly scope: number;
  /** Positions in the opened graph: all bodies and marks of the call. */
  readonly start: number;
  readonly end: number;
  readonly bodies: readonly OpenedBody[];
}

/** A control-flow call as it was opened; names are those of the opened graph. */
export type Region = RegionParts &
  (
    | {
        readonly kind: 'branch';
        /** Predicate or index; the marks that compare an index with each branch but the last. */
        readonly which: Arg;
        readonly tests: readonly string[];
        /**
         * By result, then by branch but the last: the mark in which it meets what the later
         * branches return.
         */
        readonly meets: readonly (readonly (string | undefined)[])[];
      }
    | {
        readonly kind: 'scan';
        readonly length: number;
        readonly carries: readonly Arg[];
        /** Scanned tensors with the marks that represent one row. */
        readonly rows: readonly { readonly from: Arg; readonly row: Arg }[];
        /** Stacked results: the marks of one row and of the whole. */
        readonly stacks: readonly ({ readonly row: string; readonly whole: string } | undefined)[];
      }
    | {
        readonly kind: 'while';
        readonly carries: readonly Arg[];
        /** The mark in which the test is replicated; undefined where the test is a literal. */
        readonly test: string | undefined;
      }
  );

/** A map whose rows are shared out: one call of the opened graph, whose body stays as it is. */
export interface SharedMap {
  readonly call: Node;
  readonly name: string;
  readonly body: Graph;
}
