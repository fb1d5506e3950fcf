/** Replaces every `call` by the nodes of its callee. */

import { nonEmpty } from '../../defined.ts';
import { ShardwrightError } from '../../errors.ts';
import { addBody, NameSet } from '../../graph/names.ts';
import type { Arg, GivenSharding, Graph, GraphRef, Node, Output } from '../../graph/types.ts';
import { getOwn, isGraphRef, isList, isRef, ref, setOwn } from '../../graph/value.ts';

/** Nodes of the result; a chain of functions that call two others doubles it each time. */
const MAX_NODES = 2_000_000;

/**
 * Writes out every `call`: the callee's nodes replace the call, named `call_node`. Reads of the
 * call's results become names of the callee's results. Bodies of other control flow stay bodies,
 * with their own calls written out. Given shardings of callees come along. A graph without calls is
 * returned as it is.
 *
 * @throws E_LIMIT when the result would have more than 2,000,000 nodes
 */
export function inlineCalls(graph: Graph): Graph {
  return inlined(graph, new Map());
}

/** Calls of functions, by the names that files have for them. */
const FUNCTIONS: ReadonlySet<string> = new Set(['jit', 'pjit', 'func.call']);

/**
 * The function that a program calls and does nothing beside, as the jaxpr of a jitted function has
 * it; any other graph as it is.
 */
export function withoutOuterCall(graph: Graph): Graph {
  const calls = graph.nodes.filter(
    ({ kind, target }) => kind === 'call' && target !== 'operator.getitem',
  );
  const [call] = calls;
  if (calls.length !== 1 || !FUNCTIONS.has(call.meta.original ?? '')) return graph;
  return withoutOuterCall(new Inliner(graph, new Map(Object.entries(graph.subgraphs))).run());
}

function inlined(graph: Graph, done: Map<Graph, Graph>): Graph {
  const known = done.get(graph);
  if (known !== undefined) return known;
  const bodies = Object.keys(graph.subgraphs).map((name): [string, Graph] => [
    name,
    getOwn(graph.subgraphs, name)!,
  ]);
  const inner = new Map(bodies.map(([name, body]) => [name, inlined(body, done)]));
  const hasCalls = graph.nodes.some((node) => node.kind === 'call' && node.target === 'call');
  const same = !hasCalls && bodies.every(([name, body]) => inner.get(name) === body);
  const result = same ? graph : new Inliner(graph, inner).run();
  done.set(graph, result);
  return result;
}

class Inliner {
  private readonly nodes: Node[] = [];
  private readonly names = new NameSet();
  private readonly subgraphs: Record<string, Graph> = {};
  private readonly given: GivenSharding[] = [];
  /** The new name of each name of the old graph. */
  private readonly renamed = new Map<string, string>();
  /** Results of each call, by its name. */
  private readonly results = new Map<string, readonly (string | null)[]>();

  constructor(
    private readonly graph: Graph,
    private readonly bodies: ReadonlyMap<string, Graph>,
  ) {}

  run(): Graph {
    const { graph } = this;
    for (const node of graph.nodes) this.names.add(node.name);
    for (const node of graph.nodes) {
      if (node.kind === 'call' && node.target === 'call') this.call(node);
      else if (!this.read(node))
        this.keep(node, node.name, this.renamed, (name) => this.body(name, this.bodies.get(name)));
    }
    const { given, ...rest } = graph;
    const own = (given ?? []).map((one) =>
      one.value === undefined ? one : { ...one, value: this.nameOf(one.value, this.renamed) },
    );
    const all = [...own, ...this.given];
    return {
      ...rest,
      nodes: this.nodes,
      outputs: graph.outputs.map((o): Output =>
        o.value === null ? o : { ...o, value: this.nameOf(o.value, this.renamed) },
      ),
      subgraphs: this.subgraphs,
      ...nonEmpty({ given: all }),
    };
  }

  private nameOf(name: string, renamed: ReadonlyMap<string, string>): string {
    return renamed.get(name) ?? name;
  }

  /** A read of a call's result is another name of what the callee returned. */
  private read(node: Node): boolean {
    const [source, index] = node.args;
    if (
      node.target !== 'operator.getitem' ||
      source === undefined ||
      !isRef(source) ||
      typeof index !== 'number'
    )
      return false;
    const results = this.results.get(source.name);
    if (results === undefined) return false;
    const value = results[index < 0 ? results.length + index : index];
    if (value === undefined || value === null) return false;
    this.renamed.set(node.name, value);
    return true;
  }

  private call(node: Node): void {
    const [callee, operands] = node.args;
    const body =
      callee !== undefined && isGraphRef(callee) ? this.bodies.get(callee.name) : undefined;
    if (body === undefined || operands === undefined || !isList(operands)) return;
    const renamed = new Map<string, string>();
    let position = 0;
    for (const inner of body.nodes) {
      if (inner.kind === 'placeholder') {
        const operand = operands[position++];
        if (isRef(operand)) renamed.set(inner.name, this.nameOf(operand.name, this.renamed));
        continue;
      }
      const name = this.unique(`${node.name}_${inner.name}`);
      const placed = inPhaseOf(node, inner);
      this.keep(placed, name, renamed, (key) => this.body(key, getOwn(body.subgraphs, key)));
      renamed.set(inner.name, name);
    }
    for (const one of body.given ?? [])
      if (one.value !== undefined)
        this.given.push({ ...one, value: this.nameOf(one.value, renamed) });
    this.results.set(
      node.name,
      body.outputs.map((o) => (o.value === null ? null : this.nameOf(o.value, renamed))),
    );
  }

  private unique(base: string): string {
    const name = this.names.take(base);
    if (this.names.size > MAX_NODES)
      throw new ShardwrightError(
        'E_LIMIT',
        `the program has more than ${MAX_NODES} nodes when its calls are written out`,
        {
          hint: 'import a smaller part of it.',
        },
      );
    return name;
  }

  /** Adds a body under a name of its own and returns that name. */
  private body(name: string, graph: Graph | undefined): string {
    if (graph === undefined) return name;
    return addBody(this.subgraphs, name, graph);
  }

  private keep(
    node: Node,
    name: string,
    renamed: ReadonlyMap<string, string>,
    body: (name: string) => string,
  ): void {
    const map = (arg: Arg): Arg => {
      if (typeof arg !== 'object' || arg === null) return arg;
      if (isList(arg)) return arg.map(map);
      switch (arg.kind) {
        case 'value':
          return ref(this.nameOf(arg.name, renamed));
        case 'graph':
          return { kind: 'graph', name: body(arg.name) } satisfies GraphRef;
        case 'slice':
          return { ...arg, start: map(arg.start), stop: map(arg.stop), step: map(arg.step) };
        default:
          return arg;
      }
    };
    const kwargs: Record<string, Arg> = {};
    for (const key of Object.keys(node.kwargs)) setOwn(kwargs, key, map(node.kwargs[key]));
    this.nodes.push({ ...node, name, args: node.args.map(map), kwargs });
  }
}

/** A body of several calls has the phase of the first; here it runs in that of this call. */
function inPhaseOf({ meta: { phase } }: Node, inner: Node): Node {
  return phase === undefined || inner.meta.phase === phase
    ? inner
    : { ...inner, meta: { ...inner.meta, phase } };
}
