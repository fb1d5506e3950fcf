/** Copies nodes from one graph into another under new names, bodies included. */

import { internalError } from '../../errors.ts';
import { baseName, type GraphBuilder } from '../../graph/build.ts';
import type { Arg, Graph, Node, NodeMeta, ValueRef } from '../../graph/types.ts';
import { getOwn, isList, isRef, NO_KWARGS, setOwn } from '../../graph/value.ts';

/** The meaning of old names in the graph that is written. */
type Names = ReadonlyMap<string, Arg>;

/**
 * Copies nodes of one graph into another that is being built: operands by their new values, bodies
 * under free names. A body that is one object is written once.
 */
export class BodyWriter {
  private readonly bodies = new Map<Graph, string>();

  /**
   * @param fresh a free name near the base name of an operator; by default copies keep their names
   *   as far as they are free
   */
  constructor(
    readonly builder: GraphBuilder,
    private readonly fresh?: (base: string) => string,
  ) {}

  /** Appends a copy of a call of `from`. */
  copy(node: Node, from: Graph, names: Names, meta: NodeMeta = node.meta): ValueRef {
    const map = this.mapper(from, names);
    const args = node.args.map(map);
    const kwargs = mapKwargs(node.kwargs, map);
    const { target, type } = node;
    if (node.kind === 'get_attr') return this.builder.getAttr(target, type, meta);
    const name = this.fresh === undefined ? node.name : this.fresh(baseName(target));
    return this.builder.call(target, args, type, { kwargs, meta, name });
  }

  /**
   * Writes a body out on these operands.
   *
   * @param meta tags of the copies, from those of the body's node
   * @returns what the body returns, in order; null where it returns none
   */
  inline(
    body: Graph,
    operands: readonly Arg[],
    meta: (node: Node) => NodeMeta = (node) => node.meta,
  ): Arg[] {
    const names = new Map<string, Arg>();
    let position = 0;
    for (const node of body.nodes) {
      if (node.kind === 'placeholder') {
        const operand = operands[position++];
        if (operand === undefined)
          throw internalError(`@${body.name} takes more than ${operands.length} operands`);
        names.set(node.name, operand);
      } else if (!isBodyName(node, body))
        names.set(node.name, this.copy(node, body, names, meta(node)));
    }
    return body.outputs.map(({ value }) => (value === null ? null : (names.get(value) ?? null)));
  }

  /** The name under which the builder's graph has this body. */
  body(name: string, graph: Graph): string {
    let own = this.bodies.get(graph);
    if (own === undefined) {
      own = this.builder.subgraph(name, graph);
      this.bodies.set(graph, own);
    }
    return own;
  }

  private mapper(from: Graph, names: Names): (arg: Arg) => Arg {
    return (arg) =>
      mapArg(arg, names, (name) => {
        const body = getOwn(from.subgraphs, name);
        return body === undefined ? name : this.body(name, body);
      });
  }
}

/** A node that means the name of a body, as FX graphs have them; calls refer to the body itself. */
export function isBodyName(node: Node, graph: Graph): boolean {
  return node.kind === 'get_attr' && getOwn(graph.subgraphs, node.target) !== undefined;
}

/** The argument with names replaced by their meaning. */
export function mapArg(
  arg: Arg,
  names: Names,
  body: (name: string) => string = (name) => name,
): Arg {
  if (arg === null || typeof arg !== 'object') return arg;
  if (isList(arg)) return arg.map((member) => mapArg(member, names, body));
  switch (arg.kind) {
    case 'value':
      return names.get(arg.name) ?? arg;
    case 'graph':
      return { kind: 'graph', name: body(arg.name) };
    case 'slice': {
      const [start, stop, step] = [arg.start, arg.stop, arg.step].map((part) =>
        mapArg(part, names, body),
      );
      return { kind: 'slice', start, stop, step };
    }
    default:
      return arg;
  }
}

function mapKwargs(kwargs: Node['kwargs'], map: (arg: Arg) => Arg): Node['kwargs'] {
  const keys = Object.keys(kwargs);
  if (keys.length === 0) return NO_KWARGS;
  const mapped: Record<string, Arg> = {};
  for (const key of keys) setOwn(mapped, key, map(kwargs[key]));
  return mapped;
}

/** The name of a value argument. */
export function refName(arg: Arg | undefined): string | undefined {
  return arg !== undefined && isRef(arg) ? arg.name : undefined;
}
