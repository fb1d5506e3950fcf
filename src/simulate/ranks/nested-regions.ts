/**
 * Regions inside of a region, over axes that the outer one leaves alone. An inner region is given
 * pieces of what is whole around it, and what it returns is joined again, as JAX does for automatic
 * axes.
 */
import { LOCAL_MAP, localMapCall, type RegionAxis } from '../../graph/local-map.ts';
import { FreeNames } from '../../graph/names.ts';
import { typesByName } from '../../graph/nodes.ts';
import type { Arg, Graph, Node, ValueType } from '../../graph/types.ts';
import { isRef, mapOperands, ref } from '../../graph/value.ts';
import { spmdTarget } from '../../ops/spmd/operators.ts';

/** The graph with every value outside of an inner region whole on the axes of that region. */
export function wholeOutside(graph: Graph, held: readonly string[]): Graph {
  const regions = new Map(
    graph.nodes.flatMap((node) => {
      if (node.target !== LOCAL_MAP) return [];
      const call = localMapCall(node);
      return [[call.body, call.axes.map(({ name }) => name)] as const];
    }),
  );
  const subgraphs = Object.fromEntries(
    Object.entries(graph.subgraphs).map(([name, body]) => [
      name,
      wholeOutside(body, [...held, ...(regions.get(name) ?? [])]),
    ]),
  );
  return { ...new Redistributing(graph, held).run(), subgraphs };
}

class Redistributing {
  private readonly nodes: Node[] = [];
  private readonly renamed = new Map<string, string>();
  private readonly types: Map<string, ValueType>;
  private readonly names: FreeNames;

  constructor(
    private readonly graph: Graph,
    private readonly held: readonly string[],
  ) {
    this.types = typesByName(graph);
    this.names = new FreeNames(this.types);
  }

  run(): Graph {
    const { graph } = this;
    const regions = new Map(
      graph.nodes.flatMap((node) =>
        node.target === LOCAL_MAP ? [[node.name, localMapCall(node)] as const] : [],
      ),
    );
    for (const node of graph.nodes) {
      const now = mapOperands(node, (name) => this.renamed.get(name) ?? name);
      const call = regions.get(node.name);
      if (call !== undefined) {
        const operands = call.operands.map((operand, i): Arg => {
          const own = now.args[1];
          const given = Array.isArray(own) ? (own as readonly Arg[])[i] : operand;
          return isRef(given)
            ? { ...given, name: this.moved(given.name, call.axes, call.inSpecs[i], 'in') }
            : given;
        });
        this.nodes.push({ ...now, args: [now.args[0], operands, ...now.args.slice(2)] });
        continue;
      }
      this.nodes.push(now);
      const [source, k] = node.args;
      const from =
        node.target === 'operator.getitem' && isRef(source) ? regions.get(source.name) : undefined;
      if (from !== undefined)
        this.renamed.set(
          node.name,
          this.moved(node.name, from.axes, from.outSpecs[Number(k)], 'out'),
        );
    }
    const outputs = graph.outputs.map((output) => ({
      ...output,
      value: output.value === null ? null : (this.renamed.get(output.value) ?? output.value),
    }));
    return { ...graph, nodes: this.nodes, outputs };
  }

  /** A value as a spec wants it, or from what the spec says to whole. */
  private moved(
    value: string,
    axes: readonly RegionAxis[],
    spec: readonly string[],
    way: 'in' | 'out',
  ): string {
    const order = axes.map((axis, a) => ({ ...axis, type: spec[a] }));
    if (way === 'out') order.reverse();
    return order.reduce((from, { name: axis, size, type }) => {
      if (type === 'I' || size === 1 || this.held.includes(axis)) return from;
      const name = this.names.near('redistribute');
      const words = way === 'in' ? ['I', type] : [type, 'I'];
      const own = this.types.get(from) ?? { kind: 'none' };
      this.types.set(name, own);
      this.nodes.push({
        name,
        kind: 'call',
        target: spmdTarget('redistribute'),
        args: [ref(from), axis, size, ...words],
        kwargs: {},
        type: own,
        meta: {},
      });
      return name;
    }, value);
  }
}
