/**
 * Words of the typing of programs: what is known of a value on every axis, what may be wrong with
 * it, and what the rules of verbs and control flow see of the typer.
 */
import { internalError } from '../errors.ts';
import { indexGraph } from '../graph/order.ts';
import type { Arg, Graph, Node, ValueType } from '../graph/types.ts';
import { isList } from '../graph/value.ts';
import { type AxisType, isAxisType } from '../mesh/local-types/types.ts';
import type { Meaning, OperandType } from './operator-types.ts';

/** A mesh axis that values are typed on. Axes of size 1 are none. */
export interface TypedAxis {
  readonly name: string;
  readonly size: number;
  readonly meaning: Meaning;
}

/**
 * Type on one axis; undefined where nothing is known: an input without a type, or what an error
 * left.
 */
export type Known = OperandType | undefined;

/** One type for each axis; of a value with several results, one such list each. */
export type Typed = readonly Known[] | { readonly items: readonly Typed[] };

/** A law that a node breaks on one axis. */
export interface Violation {
  readonly node: string;
  readonly meshDim: string;
  /** Short name of the law: `I with V`. */
  readonly rule: string;
  /** Operands with their types, as JAX prints them. */
  readonly types: readonly string[];
  /** The edit that solves it. */
  readonly fix: string;
  /** All of it in one sentence, with the place in the source where that is known. */
  readonly message: string;
  readonly source?: string;
}

/** The edit of a violation as a sentence: a call is inserted, anything else is said as it is. */
export function fixText(fix: string): string {
  return /^\w+\(/.test(fix) ? `insert ${fix}` : fix;
}

/** A redistribution that nobody wrote, which a mode makes by itself. */
export interface ImplicitMove {
  readonly node: string;
  readonly meshDim: string;
  /** Name of the operand; absent where a result is reduced. */
  readonly value?: string;
  readonly kind: string;
  readonly from: string;
  readonly to: string;
}

/** A cast before one use of a value. */
export interface InsertedCast {
  readonly graph: Graph;
  readonly node: string;
  readonly value: string;
  readonly axis: TypedAxis;
  readonly op: 'convert' | 'reinterpret';
  readonly src: AxisType;
  readonly dst: AxisType;
}

export function isTuple(typed: Typed): typed is { readonly items: readonly Typed[] } {
  return !Array.isArray(typed);
}

/** The typer as rules of calls see it. */
export interface Typing {
  readonly axes: readonly TypedAxis[];
  readonly violations: Violation[];
  readonly casts: InsertedCast[];
  /** For verbs that take several types, the type of the operand, by graph and node. */
  readonly settled: Map<Graph, Map<string, AxisType>>;
  /** True if casts from I may be inserted. */
  readonly autoCast: boolean;
  everywhere(type: Known): readonly Known[];
  /** Types a body on these inputs. */
  run(graph: Graph, inputs: readonly Typed[]): (Typed | null)[];
  violate(
    graph: Graph,
    node: Node,
    axis: number,
    found: { rule: string; fix: string; reason: string; operands?: readonly string[] },
  ): void;
  /** Notes a cast of one operand. */
  cast(graph: Graph, node: Node, value: string, axis: number, dst: AxisType): void;
}

/** The type of a named value of a graph. */
export function typeIn(graph: Graph, name: string): ValueType {
  const { position } = indexGraph(graph);
  const node = graph.nodes[position.get(name) ?? -1];
  if (node === undefined) throw internalError(`graph ${graph.name} has no value ${name}`);
  return node.type;
}

/** The types that an argument states: `["dp: S(1)", "tp: I"]`. */
export function statedTypes(arg: Arg | undefined): Map<string, AxisType> {
  const stated = new Map<string, AxisType>();
  for (const text of arg !== undefined && isList(arg) ? arg : []) {
    const [axis, type] = typeof text === 'string' ? text.split(/:\s*/) : [];
    if (axis === undefined || !isAxisType(type))
      throw internalError(`'${typeof text === 'string' ? text : typeof text}' states no type`);
    stated.set(axis, type);
  }
  return stated;
}
