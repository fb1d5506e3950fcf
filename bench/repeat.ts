import { lintGraph } from '../src/graph/lint.ts';
import type { Graph, Node, Output } from '../src/graph/types.ts';
import { eachOperand, mapOperands } from '../src/graph/value.ts';

/**
 * A deeper model from a real one: the middle layer of a joint graph is repeated. The forward region
 * is everything before the first call that depends on a tangent, the backward region the rest. In
 * each, a layer's block reaches from the first use of the layer's parameters to the first use of
 * the next layer's. A reference is moved by what it points to: the same block, the block before or
 * after, or the same layer's block in the other region.
 *
 * @param extra how many copies of the middle layer to insert
 * @throws E_GRAPH_LINT when the model is not as regular as that
 */
export function repeatLayer(graph: Graph, extra: number): Graph {
  const layerOf = new Map<string, number>();
  for (const node of graph.nodes) {
    const match =
      node.kind === 'placeholder' ? /layers\.(\d+)\./.exec(node.meta.roleName ?? '') : null;
    if (match !== null) layerOf.set(node.name, Number(match[1]));
  }
  const layers = Math.max(...layerOf.values()) + 1;
  const m = Math.floor(layers / 2);
  const calls = graph.nodes.filter((n) => n.kind === 'call');
  const split = calls.findIndex((n) => n.meta.phase === 'backward');
  const forward = new Region(calls.slice(0, split), layerOf, m, 1);
  const direct = new Map(layerOf);
  for (const node of forward.nodes)
    for (const name of operands(node))
      if (layerOf.has(name)) direct.set(node.name, layerOf.get(name)!);
  const backward = new Region(calls.slice(split), direct, m, -1);

  const copy = (name: string, c: number): string => (c === 0 ? name : `${name}_x${c}`);
  // What copy c of layer m (0: the original) means by a name that the original uses.
  const rename = (name: string, c: number): string => {
    if (layerOf.get(name) === m) return copy(name, c);
    for (const region of [forward, backward]) {
      const place = region.place(name);
      if (place === undefined) continue;
      const wanted = c + place.layers;
      if (wanted < 0 || wanted > extra) return name;
      return copy(place.twin, wanted);
    }
    return name;
  };
  const last = (name: string): string =>
    forward.place(name)?.layers === 0 ? copy(name, extra) : name;
  const moved = (node: Node, c: number): Node =>
    mapOperands({ ...node, name: copy(node.name, c) }, (name) => rename(name, c));
  const repeated = (nodes: readonly Node[], copies: readonly number[]): Node[] =>
    copies.flatMap((c) => nodes.map((node) => moved(node, c)));
  const up = Array.from({ length: extra + 1 }, (_, c) => c);

  const parameters = graph.nodes
    .filter((n) => n.kind === 'placeholder')
    .flatMap((node) =>
      layerOf.get(node.name) !== m
        ? [node]
        : up.map((c) => ({
            ...node,
            name: copy(node.name, c),
            target: copy(node.target, c),
            meta: { ...node.meta, roleName: copy(node.meta.roleName ?? '', c) },
          })),
    );
  const nodes = [
    ...parameters,
    ...forward.before,
    ...repeated(forward.block, up),
    ...forward.after.map((node) => mapOperands(node, last)),
    ...backward.before.map((node) => mapOperands(node, last)),
    ...repeated(backward.block, [...up].reverse()),
    ...backward.after,
  ];
  const owned = new Set(
    graph.nodes.filter((n) => layerOf.get(n.name) === m).map((n) => n.meta.roleName),
  );
  const outputs = graph.outputs.flatMap((output): Output[] => {
    const { value, of } = output;
    if (value === null || of === undefined || !owned.has(of)) return [output];
    return up.map((c) => ({ ...output, value: rename(value, c), of: copy(of, c) }));
  });
  const deeper: Graph = { ...graph, name: `${graph.name}_${layers + extra}l`, nodes, outputs };
  lintGraph(deeper);
  return deeper;
}

/** One direction of the program, cut at the middle layer's block. */
class Region {
  readonly before: readonly Node[];
  readonly block: readonly Node[];
  readonly after: readonly Node[];
  private readonly start: number;
  private readonly index = new Map<string, number>();

  /** @param direction +1 when layers ascend in execution order, -1 when they descend */
  constructor(
    readonly nodes: readonly Node[],
    layerOf: ReadonlyMap<string, number>,
    layer: number,
    private readonly direction: 1 | -1,
  ) {
    const first = new Map<number, number>();
    nodes.forEach((node, i) => {
      this.index.set(node.name, i);
      for (const name of operands(node)) {
        const l = layerOf.get(name);
        if (l !== undefined && !first.has(l)) first.set(l, i);
      }
    });
    this.start = first.get(layer)!;
    const end = first.get(layer + direction)!;
    this.before = nodes.slice(0, this.start);
    this.block = nodes.slice(this.start, end);
    this.after = nodes.slice(end);
  }

  /**
   * Layers between the block of a name and the middle one, and its counterpart there; undefined if
   * farther than one.
   */
  place(name: string): { readonly layers: number; readonly twin: string } | undefined {
    const i = this.index.get(name);
    if (i === undefined) return undefined;
    const period = this.block.length;
    const blocks = Math.floor((i - this.start) / period);
    if (blocks < -1 || blocks > 1) return undefined;
    return { layers: blocks * this.direction, twin: this.nodes[i - blocks * period].name };
  }
}

function operands(node: Node): string[] {
  const names: string[] = [];
  eachOperand(node, (name) => names.push(name));
  return names;
}
