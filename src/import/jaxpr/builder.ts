/**
 * Builds the graph of one jaxpr. An equation gives one node that carries its primitive in
 * `meta.original`; other nodes that it needs (constants for literals, reads of tuples) are helper
 * nodes without.
 */

import { defined } from '../../defined.ts';
import { ShardwrightError, suggestion } from '../../errors.ts';
import { FreeNames, NameSet } from '../../graph/names.ts';
import type {
  Arg,
  DType,
  GivenSharding,
  Graph,
  Node,
  NodeMeta,
  TensorType,
  ValueRef,
  ValueType,
} from '../../graph/types.ts';
import {
  exampleShape,
  NO_KWARGS,
  NONE_TYPE,
  ref,
  sameType,
  setOwn,
  tensorType,
  typeText,
} from '../../graph/value.ts';
import { itemAt } from '../../item-at.ts';
import { controlMismatch } from '../complete/control-types.ts';
import type { Infer } from '../fx/graph.ts';
import { type Literal, parseLiteral } from './text/literal.ts';
import type { JaxprParser } from './text/parse.ts';
import type { Atom, Equation, Jaxpr, LiteralValue, Parameter, Variable } from './text/syntax.ts';

export interface JaxprContext {
  /** Shardings of the text that could not be read, one sentence each. */
  readonly unread: Set<string>;
  /** Decisions about the program that its notes will state. */
  readonly notes: Set<string>;
  readonly parser: JaxprParser;
  readonly infer: Infer | undefined;
  /** The mesh that the text names, with its axes. */
  readonly mesh:
    { readonly axes: readonly { readonly name: string; readonly size: number }[] } | undefined;
  /**
   * Graph of a nested jaxpr, shared by all uses of it. `layout` says what its inputs are: numbers
   * of the jaxpr's inputs, types for inputs that it does not read; the jaxpr's own inputs by
   * default.
   */
  body(
    jaxpr: Jaxpr,
    layout?: readonly (number | TensorType)[],
  ): { readonly graph: Graph; readonly size: number };
  /** Nodes with all bodies written out. */
  readonly maxNodes: number;
}

export class GraphOfJaxpr {
  readonly inputs: Node[] = [];
  readonly nodes: Node[] = [];
  readonly given: GivenSharding[] = [];
  readonly subgraphs: Record<string, Graph> = {};
  private readonly bodyNames = new FreeNames({
    has: (name) => Object.hasOwn(this.subgraphs, name),
  });
  /** Names of bodies, by what was asked for. */
  private readonly kept = new Map<string, Map<Graph, string>>();
  /** The value that each conversion converts. */
  readonly converted = new Map<string, Arg>();
  /** Branches that `platform_index` chose, by its node. */
  readonly platforms = new Map<string, number>();
  size = 0;
  private readonly scope = new Map<string, string>();
  private readonly names = new NameSet();
  private readonly types = new Map<string, ValueType>();
  private readonly constants = new Map<string, string>();
  /** Line of the equation that is read, which helper nodes carry as well: errors name it. */
  private line: number | undefined;

  constructor(
    readonly context: JaxprContext,
    readonly name: string,
  ) {}

  input(variable: Variable, meta: NodeMeta): void {
    const line = lineOf(this.context.parser, variable.at);
    const name = this.addInput(variable.name, variable.type, { ...meta, line });
    this.define(variable, name);
  }

  addInput(base: string, type: TensorType, meta: NodeMeta): string {
    const name = this.unique(base);
    this.inputs.push({
      name,
      kind: 'placeholder',
      target: name,
      args: [],
      kwargs: NO_KWARGS,
      type,
      meta,
    });
    this.types.set(name, type);
    return name;
  }

  define(variable: Variable, node: string): void {
    if (variable.name === '_') return;
    if (this.scope.has(variable.name))
      throw this.error(
        'E_DUP',
        `'${variable.name}' is defined twice`,
        variable.at,
        'rename one of them',
      );
    this.scope.set(variable.name, node);
  }

  error(code: string, message: string, at: number, hint?: string): ShardwrightError {
    return this.context.parser.error(code, message, at, hint);
  }

  unique(base: string): string {
    return this.names.take(base);
  }

  typeOf(name: string): ValueType {
    return this.types.get(name) ?? NONE_TYPE;
  }

  /** Node of an atom; a literal becomes a constant of the shape asked for (its own by default). */
  value(atom: Atom, shape?: readonly number[]): ValueRef {
    if (atom.kind === 'variable') {
      const node = this.scope.get(atom.name);
      if (node === undefined)
        throw this.error(
          'E_REF',
          `'${atom.name}' is not defined`,
          atom.at,
          suggestion(atom.name, [...this.scope.keys()].slice(0, 2000), 'variables'),
        );
      return ref(node);
    }
    return this.constant(atom.value, atom.type.dtype, shape ?? numbers(atom.type));
  }

  tensor(atom: Atom): TensorType {
    if (atom.kind === 'literal') return atom.type;
    const type = this.typeOf(this.value(atom).name);
    if (type.kind !== 'tensor')
      throw this.error('E_TYPE', `'${atom.name}' is not a tensor`, atom.at);
    return type;
  }

  /** A constant of one value; equal ones are one node. */
  constant(value: LiteralValue, dtype: DType, shape: readonly number[]): ValueRef {
    const text = Object.is(value, -0) ? '-0' : String(value);
    const key = `${typeof value}:${text}:${dtype}[${shape.join()}]`;
    const known = this.constants.get(key);
    if (known !== undefined) return ref(known);
    const made = this.helper(
      'stablehlo.constant',
      [literalArg(value, dtype)],
      { dtype: dtypeArg(dtype), shape: [...shape] },
      tensorType(dtype, shape),
    );
    this.constants.set(key, made.name);
    return made;
  }

  /** The operand in the shape of the result: scalars and dims of size 1 are stretched. */
  stretched(atom: Atom, shape: readonly number[]): ValueRef {
    const type = this.tensor(atom);
    const own = numbers(type);
    if (own.length === shape.length && own.every((size, d) => size === shape[d]))
      return this.value(atom);
    if (atom.kind === 'literal') return this.value(atom, shape);
    // Whatever else does not fit is for the operator to refuse.
    if (
      own.length > 0 &&
      (own.length !== shape.length || own.some((size, d) => size !== 1 && size !== shape[d]))
    )
      return this.value(atom);
    return this.helper(
      'stablehlo.broadcast_in_dim',
      [this.value(atom)],
      { broadcast_dimensions: own.map((_, d) => d), shape: [...shape] },
      tensorType(type.dtype, shape),
    );
  }

  /** Says which equation the nodes that follow belong to. */
  begin(equation: Equation): void {
    this.line = lineOf(this.context.parser, equation.at);
  }

  /** A helper node of the equation that is read. */
  helper(
    target: string,
    args: readonly Arg[],
    kwargs: Readonly<Record<string, Arg>>,
    type: ValueType,
    base?: string,
  ): ValueRef {
    const name = this.unique(base ?? target.slice(target.lastIndexOf('.') + 1));
    this.add({
      name,
      kind: 'call',
      target,
      args,
      kwargs,
      type,
      meta: defined({ line: this.line }),
    });
    return ref(name);
  }

  private add(node: Node): void {
    this.nodes.push(node);
    this.types.set(node.name, node.type);
    if (node.target === 'stablehlo.convert') this.converted.set(node.name, itemAt(node.args, 0));
  }

  /** The node of an equation, typed by its binders, and its results in scope. */
  emit(
    equation: Equation,
    target: string,
    args: readonly Arg[],
    kwargs: Readonly<Record<string, Arg>> = NO_KWARGS,
  ): string {
    const stated = equation.results.map((result) => result.type);
    const first = equation.results.find((result) => result.name !== '_');
    const name = this.unique(first?.name ?? equation.primitive.replaceAll(/[^A-Za-z0-9_]/g, '_'));
    const type = this.checkedType(equation, target, args, kwargs, name, stated);
    this.add({
      name,
      kind: 'call',
      target,
      args,
      kwargs,
      type,
      meta: { original: equation.primitive, ...defined({ line: this.line }) },
    });
    equation.results.forEach((result, i) => {
      if (result.name === '_') return;
      this.define(result, type.kind === 'tuple' ? this.member(name, i).name : name);
    });
    return name;
  }

  /** One result of a node with several. */
  member(node: string, index: number, base?: string): ValueRef {
    const type = this.typeOf(node);
    const item = type.kind === 'tuple' ? type.items[index] : undefined;
    return this.helper(
      'operator.getitem',
      [ref(node), index],
      NO_KWARGS,
      item ?? NONE_TYPE,
      base ?? `${node}_${index}`,
    );
  }

  private checkedType(
    equation: Equation,
    target: string,
    args: readonly Arg[],
    kwargs: Readonly<Record<string, Arg>>,
    name: string,
    stated: readonly TensorType[],
  ): ValueType {
    const tuple: ValueType = { kind: 'tuple', items: stated };
    if (CONTROL.has(target)) {
      this.checkBodies(equation, { target, args, kwargs }, stated);
      return tuple;
    }
    const fallback = TUPLES.has(target) || stated.length > 1 ? tuple : (stated[0] ?? NONE_TYPE);
    const { infer } = this.context;
    if (infer === undefined) return fallback;
    let ours: ValueType | undefined;
    try {
      ours = infer({ target, args, kwargs, name }, (value) => this.typeOf(value));
    } catch (error) {
      if (!(error instanceof ShardwrightError)) throw error;
      throw this.error(
        error.code,
        `${equation.primitive}: ${error.message}`,
        equation.at,
        error.details.hint ?? 'correct the equation',
      );
    }
    if (ours === undefined) return fallback;
    const flat = ours.kind === 'tuple' ? ours.items : [ours];
    if (
      flat.length !== stated.length ||
      !flat.every((type, i) => sameType(type, itemAt(stated, i)))
    )
      throw this.error(
        'E_TYPE',
        `the text says (${stated.map((type) => typeText(type)).join(', ')}), but ` +
          `${equation.primitive} gives (${flat.map((type) => typeText(type)).join(', ')})`,
        equation.at,
        'correct the types, or the parameters',
      );
    return ours;
  }

  /** Checks that the bodies of control flow return the types of the binders. */
  private checkBodies(
    equation: Equation,
    call: {
      readonly target: string;
      readonly args: readonly Arg[];
      readonly kwargs: Readonly<Record<string, Arg>>;
    },
    stated: readonly TensorType[],
  ): void {
    const wrong = controlMismatch(call, this.subgraphs, (name) => this.typeOf(name), stated);
    if (wrong !== undefined)
      throw this.error(
        'E_TYPE',
        `${equation.primitive}: ${wrong}`,
        equation.at,
        'correct the types of the body or of the equation',
      );
  }

  /** Adds a body under a name near `base`. */
  keep(
    base: string,
    { graph, size }: { readonly graph: Graph; readonly size: number },
    at: number,
  ): { kind: 'graph'; name: string } {
    let known = this.kept.get(base);
    if (known === undefined) this.kept.set(base, (known = new Map<Graph, string>()));
    let key = known.get(graph);
    if (key === undefined) {
      key = this.bodyNames.near(base);
      known.set(graph, key);
      setOwn(this.subgraphs, key, graph);
    }
    this.size += size;
    if (this.size > this.context.maxNodes)
      throw this.error(
        'E_LIMIT',
        `the program has more than ${this.context.maxNodes} nodes when its calls are written out`,
        at,
        'import a smaller part',
      );
    return { kind: 'graph', name: key };
  }

  // ---- parameters
  // ---------------------------------------------------------------------------

  parameter(equation: Equation, key: string): Parameter {
    const found = equation.parameters.get(key);
    if (found !== undefined) return found;
    throw this.error(
      'E_SYNTAX',
      `${equation.primitive} has no parameter '${key}'`,
      equation.at,
      'the text was printed by an unknown version of JAX',
    );
  }

  literal(equation: Equation, key: string): Literal | undefined {
    const found = equation.parameters.get(key);
    return found === undefined ? undefined : parseLiteral(found.text);
  }

  int(equation: Equation, key: string, fallback?: number): number {
    const value = this.literal(equation, key);
    if (typeof value === 'number' && Number.isSafeInteger(value)) return value;
    if (value === undefined && fallback !== undefined) return fallback;
    throw this.error(
      'E_TYPE',
      `parameter '${key}' of ${equation.primitive} must be an integer`,
      this.at(equation, key),
    );
  }

  /** Integers of a tuple; None and an absent parameter are the fallback. */
  ints(equation: Equation, key: string, fallback?: readonly number[]): readonly number[] {
    const value = this.literal(equation, key);
    if ((value === undefined || value === null) && fallback !== undefined) return fallback;
    const list =
      value === undefined || value === null || typeof value !== 'object' || value.kind !== 'list'
        ? undefined
        : flat(value);
    if (list === undefined)
      throw this.error(
        'E_TYPE',
        `parameter '${key}' of ${equation.primitive} must be a tuple of integers`,
        this.at(equation, key),
      );
    return list;
  }

  bool(equation: Equation, key: string): boolean {
    return this.literal(equation, key) === true;
  }

  at(equation: Equation, key: string): number {
    return equation.parameters.get(key)?.at ?? equation.at;
  }

  /** The only body of a parameter. */
  jaxprOf(equation: Equation, key: string): Jaxpr {
    const { bodies, at } = this.parameter(equation, key);
    const [only, ...others] = bodies;
    if (only !== undefined && others.length === 0) return only;
    throw this.error(
      'E_REF',
      `parameter '${key}' of ${equation.primitive} is not a jaxpr`,
      at,
      'the body is missing from the text',
    );
  }
}

const CONTROL = new Set(['call', 'cond', 'case', 'while_loop', 'scan', 'sdy.manual_computation']);
const TUPLES = new Set(
  ['reduce', 'reduce_window', 'scatter', 'sort', 'all_reduce', 'optimization_barrier'].map(
    (n) => `stablehlo.${n}`,
  ),
);

function flat(value: Literal): number[] | undefined {
  const out: number[] = [];
  const walk = (item: Literal): boolean => {
    if (typeof item === 'number') return out.push(item) > 0;
    return (
      item !== null && typeof item === 'object' && item.kind === 'list' && item.items.every(walk)
    );
  };
  return walk(value) ? out : undefined;
}

/** A literal of a dtype. A complex one is text, `(1, -2)`, as a dense constant of MLIR has it. */
export function literalArg(value: LiteralValue, dtype: DType): Arg {
  if (typeof value === 'string') return value;
  if (/^(f|bf|c)/.test(dtype)) return { kind: 'float', value: Number(value) };
  return dtype === 'b8' ? Boolean(value) : value;
}

export function dtypeArg(dtype: DType): Arg {
  return { kind: 'dtype', dtype };
}
export function numbers(type: TensorType): number[] {
  return exampleShape(type, 0);
}

const lineTables = new WeakMap<JaxprParser, Int32Array>();

function lineOf(parser: JaxprParser, at: number): number {
  let starts = lineTables.get(parser);
  if (starts === undefined) {
    const list = [0];
    for (let i = parser.text.indexOf('\n'); i >= 0; i = parser.text.indexOf('\n', i + 1))
      list.push(i + 1);
    lineTables.set(parser, (starts = Int32Array.from(list)));
  }
  let low = 0;
  let high = starts.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (itemAt(starts, middle) <= at) low = middle;
    else high = middle - 1;
  }
  return low + 1;
}
