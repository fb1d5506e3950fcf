/** Builds a graph node by node, with unique names. */

import { nonEmpty } from '../defined.ts';
import { lintGraph, type Retype } from './lint.ts';
import { freeKey, FreeNames } from './names.ts';
import { lintError } from './order.ts';
import type { Arg, Graph, Node, NodeMeta, Output, ValueRef, ValueType } from './types.ts';
import { NO_KWARGS, setOwn } from './value.ts';

interface CallOptions {
  readonly kwargs?: Readonly<Record<string, Arg>>;
  readonly meta?: NodeMeta;
  /** Wanted name; the operator's base name by default. */
  readonly name?: string;
}

/**
 * Makes a graph node by node. Names are the base operator name, then `_1`, `_2` and so on; unique
 * in the graph. `build` lints, so that no wrong graph leaves it.
 */
export class GraphBuilder {
  private readonly nodes: Node[] = [];
  private readonly types = new Map<string, ValueType>();
  private readonly names = new FreeNames(this.types);
  private readonly outputs: Output[] = [];
  private readonly subgraphs: Record<string, Graph> = {};
  private readonly notes: string[] = [];
  private readonly ties: (readonly string[])[] = [];
  private readonly dims: Record<string, { min: number; max: number; multiple?: number }> = {};

  constructor(readonly name: string) {}

  placeholder(name: string, type: ValueType, meta: NodeMeta): ValueRef {
    const unique = this.names.near(name);
    return this.add({
      name: unique,
      kind: 'placeholder',
      target: unique,
      args: [],
      kwargs: NO_KWARGS,
      type,
      meta,
    });
  }

  getAttr(target: string, type: ValueType, meta: NodeMeta = {}): ValueRef {
    const name = this.names.near(target.replaceAll(/[^A-Za-z0-9_]/g, '_'));
    return this.add({ name, kind: 'get_attr', target, args: [], kwargs: NO_KWARGS, type, meta });
  }

  call(target: string, args: readonly Arg[], type: ValueType, options: CallOptions = {}): ValueRef {
    const name = this.names.near(options.name ?? baseName(target));
    return this.add({
      name,
      kind: 'call',
      target,
      args,
      kwargs: options.kwargs ?? NO_KWARGS,
      type,
      meta: options.meta ?? {},
    });
  }

  /** Adds a node of another graph under its own name. @throws E_GRAPH_LINT if the name is taken */
  keep(node: Node): ValueRef {
    if (this.types.has(node.name))
      throw lintError('single definition', node, 'the name is defined twice');
    return this.add(node);
  }

  output(output: Output): void {
    this.outputs.push(output);
  }

  /** Adds a body under a unique name near `name` and returns that name. */
  subgraph(name: string, graph: Graph): string {
    const unique = freeKey(this.subgraphs, name);
    // A body that is called as it is referred to stays so.
    setOwn(
      this.subgraphs,
      unique,
      unique !== name && graph.name === name ? { ...graph, name: unique } : graph,
    );
    return unique;
  }

  note(sentence: string): void {
    this.notes.push(sentence);
  }

  /** States that these parameters (role names) are one tensor. */
  tie(group: readonly string[]): void {
    this.ties.push(group);
  }

  dim(name: string, range: { min: number; max: number; multiple?: number }): void {
    setOwn(this.dims, name, range);
  }

  typeOf(ref: ValueRef): ValueType {
    const type = this.types.get(ref.name);
    if (type === undefined)
      throw lintError(
        'references resolve',
        undefined,
        `'${ref.name}' is not defined in graph ${this.name}`,
      );
    return type;
  }

  /**
   * The finished graph.
   *
   * @throws E_GRAPH_LINT or E_TYPE, see `lintGraph`
   */
  build(retype?: Retype): Graph {
    const graph: Graph = {
      name: this.name,
      nodes: [...this.nodes],
      outputs: [...this.outputs],
      subgraphs: { ...this.subgraphs },
      ...nonEmpty({ notes: [...this.notes], ties: [...this.ties] }),
      ...(Object.keys(this.dims).length > 0 ? { dims: { ...this.dims } } : {}),
    };
    lintGraph(graph, retype);
    return graph;
  }

  private add(node: Node): ValueRef {
    this.nodes.push(node);
    this.types.set(node.name, node.type);
    return { kind: 'value', name: node.name };
  }
}

/** `mm` of `aten.mm.default`, `getitem` of `operator.getitem`, `cond` of `cond`. */
export function baseName(target: string): string {
  const parts = target.split('.');
  if (parts.length >= 3) return parts[parts.length - 2];
  return parts[parts.length - 1];
}
