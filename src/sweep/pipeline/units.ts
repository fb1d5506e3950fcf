/**
 * Cuts a graph into pipeline units (before the layers, each layer, after them) and gives the
 * seconds and bytes of each.
 */

import { checkKinds } from '../../arguments.ts';
import type { Cluster } from '../../cost/hardware/cluster.ts';
import { presetComputeCost } from '../../cost/presets/presets.ts';
import { ShardwrightError } from '../../errors.ts';
import { roleName, typesByName } from '../../graph/nodes.ts';
import { type GraphIndex, indexGraph } from '../../graph/order.ts';
import { parametersOf } from '../../graph/parameters.ts';
import { computePhases } from '../../graph/phases.ts';
import type { Graph, Node, ValueType } from '../../graph/types.ts';
import { valueBytes } from '../../graph/value.ts';
import { bind } from '../../ops/record/infer.ts';
import type { OperatorTable } from '../../ops/record/table.ts';

/**
 * The layers of a graph as units of a pipeline, in the order in which the program comes to them:
 * what runs before the first layer, the layers, what runs after the last. A layer is known by the
 * names of its parameters (`layers.3.`, `h.3.`, `blocks.3.`). A gradient call belongs to the layer
 * of the call that it is the derivative of, where the graph says so, else to that of the weight
 * that it reads, else to the earliest layer of its operands.
 */
export interface LayerUnit {
  /** `embedding`, the path of the layer such as `model.layers.3`, or `head`. */
  readonly name: string;
  readonly forwardSeconds: number;
  readonly backwardSeconds: number;
  /**
   * Parameter elements that the unit uses. A tied table counts in both of its units: with more than
   * one stage both ends hold it. What nothing uses counts in the first unit.
   */
  readonly parameters: number;
  readonly parameterBytes: number;
  /** Bytes that its forward part keeps for the backward pass; 0 for a forward graph. */
  readonly activationBytes: number;
  /** Bytes of the tensors that the next units read, from here or from before. */
  readonly boundaryBytes: number;
}

/** Prices and sizes of the nodes: of the unsharded graph, or of one device under a plan. */
interface NodeMeasure {
  seconds(node: Node): number;
  /** Bytes of the result. */
  bytes(node: Node): number;
}

/** The unsharded graph on one device of a cluster. */
export function unsharded(
  graph: Graph,
  table: OperatorTable,
  cluster: Cluster,
  preset: string,
): NodeMeasure {
  checkKinds('unsharded', {
    graph: [graph, 'graph'],
    table: [table, 'operators'],
    cluster: [cluster, 'cluster'],
    preset: [preset, 'string'],
  });
  const types = typesByName(graph);
  const typeOf = (name: string): ValueType => {
    const type = types.get(name);
    if (type === undefined)
      throw new ShardwrightError('E_REF', `value '${name}' is not defined in the graph`);
    return type;
  };
  return {
    seconds: (node) => {
      const record = node.kind === 'call' ? table.get(node.target) : undefined;
      const context = record === undefined ? undefined : bind(table, node, typeOf);
      return record === undefined || context === undefined
        ? 0
        : presetComputeCost(preset, record, context, cluster).seconds;
    },
    bytes: (node) => valueBytes(node.type),
  };
}

const LAYER = /^(.*?(?:^|[._])(?:layers?|h|blocks?)[._]\d+)[._]/;

/**
 * The units of a graph, forward or joint.
 *
 * @throws E_UNSUPPORTED where no parameter has the name of a layer
 */
export function layerUnits(graph: Graph, table: OperatorTable, measure: NodeMeasure): LayerUnit[] {
  checkKinds('layerUnits', {
    graph: [graph, 'graph'],
    table: [table, 'operators'],
    measure: [measure, ['seconds', 'bytes']],
  });
  return new Units(graph, table, measure).list();
}

/** No layer: parameters of the embedding and of the head, and what is made of them alone. */
const OUTSIDE = -1;
/** A value that is not made of parameters alone. */
const MIXED = -2;

class Units {
  private readonly index: GraphIndex;
  private readonly backward: Uint8Array;
  /**
   * 1 for a forward call that only the backward pass needs: it may be anywhere and crosses no
   * boundary.
   */
  private readonly savedOnly: Uint8Array;
  private readonly layers: string[] = [];
  /**
   * The layer of a value that is made of parameters alone, or `OUTSIDE`; `MIXED` for everything
   * else.
   */
  private readonly weight: Int32Array;
  private readonly unit: Int32Array;
  /** The value whose storage a view shows. */
  private readonly root: Int32Array;
  /**
   * True if a value depends on a parameter; other values (positions, masks) are made again on every
   * stage.
   */
  private readonly trained: Uint8Array;
  /** Bytes alive where each unit ends. */
  private readonly boundary: Float64Array;

  constructor(
    private readonly graph: Graph,
    private readonly table: OperatorTable,
    private readonly measure: NodeMeasure,
  ) {
    const n = graph.nodes.length;
    this.index = indexGraph(graph);
    ({ backward: this.backward, savedOnly: this.savedOnly } = computePhases(graph));
    this.weight = new Int32Array(n).fill(MIXED);
    this.unit = new Int32Array(n).fill(-1);
    this.root = Int32Array.from({ length: n }, (_, i) => i);
    this.trained = new Uint8Array(n);
    this.findLayers();
    this.boundary = new Float64Array(this.layers.length + 2);
    this.assign();
  }

  /** Layers in the order of the first call that uses their parameters. */
  private findLayers(): void {
    const { nodes } = this.graph;
    const names = nodes.map((node) =>
      node.kind === 'placeholder' && node.meta.role === 'parameter'
        ? (LAYER.exec(roleName(node))?.[1] ?? '')
        : undefined,
    );
    const number = new Map<string, number>();
    nodes.forEach((node, i) => {
      if (node.kind !== 'call') return;
      let own: string | undefined;
      let alone = true;
      for (const o of this.operands(i)) {
        const name = names[o];
        if (name === undefined) alone = false;
        else if (own === undefined || own === '') own = name;
      }
      if (own === undefined) return;
      if (alone) names[i] = own;
      else if (own !== '' && this.backward[i] === 0 && !number.has(own)) {
        number.set(own, this.layers.length);
        this.layers.push(own);
      }
    });
    if (this.layers.length === 0)
      throw new ShardwrightError(
        'E_UNSUPPORTED',
        'no parameter of the graph is named after a layer',
        {
          hint: "names such as 'layers.0.weight' or 'h.0.weight' say where a stage may end",
        },
      );
    names.forEach((name, i) => {
      if (name !== undefined) this.weight[i] = number.get(name) ?? OUTSIDE;
    });
  }

  private assign(): void {
    const { nodes } = this.graph;
    nodes.forEach((node, i) => {
      if (node.kind === 'placeholder') this.trained[i] = Number(node.meta.role === 'parameter');
      for (const o of this.operands(i)) this.trained[i] |= this.trained[o];
      const isView =
        node.target === 'operator.getitem' || this.table.get(node.target)?.cls === 'view';
      const [first] = this.operands(i);
      if (isView && first !== undefined) this.root[i] = this.root[first];
    });
    const cuts = this.cuts();
    const head = cuts.length;
    const { position } = this.index;
    let unit = 0;
    nodes.forEach((node, i) => {
      while (unit < head && i > cuts[unit].at) unit++;
      if (this.weight[i] !== MIXED) return;
      if (node.kind === 'placeholder') this.unit[i] = node.meta.role === 'tangent' ? head : 0;
      else if (this.backward[i] === 0)
        this.unit[i] = this.savedOnly[i] === 1 ? this.latest(i) : unit;
      else {
        const of = node.meta.of === undefined ? undefined : position.get(node.meta.of);
        this.unit[i] =
          of !== undefined && this.unit[of] >= 0 ? this.unit[of] : this.backwardUnit(i, head);
      }
    });
    cuts.forEach(({ bytes }, u) => (this.boundary[u] = bytes));
  }

  /**
   * The cuts of the forward pass: between the last use of a layer's weights and the first use of
   * the next one's, at the place where the fewest bytes are alive, the earliest of several.
   */
  private cuts(): { readonly at: number; readonly bytes: number }[] {
    const { nodes } = this.graph;
    const count = this.layers.length;
    const first = new Int32Array(count).fill(-1);
    const last = new Int32Array(count);
    const outside: number[] = [];
    const end = new Int32Array(nodes.length).fill(-1);
    nodes.forEach((node, i) => {
      if (
        node.kind !== 'call' ||
        this.backward[i] + this.savedOnly[i] > 0 ||
        this.weight[i] !== MIXED
      )
        return;
      for (const o of this.operands(i)) {
        const layer = this.weight[o];
        if (layer >= 0) {
          last[layer] = i;
          if (first[layer] < 0) first[layer] = i;
        } else if (layer === OUTSIDE) outside.push(i);
        else end[this.root[o]] = i;
      }
    });
    const live = new Float64Array(nodes.length + 1);
    nodes.forEach((node, i) => {
      if (end[i] < 0 || this.trained[i] === 0 || this.weight[i] !== MIXED) return;
      const bytes = this.measure.bytes(node);
      live[i] += bytes;
      live[end[i]] -= bytes;
    });
    for (let i = 1; i < nodes.length; i++) live[i] += live[i - 1];
    const before = outside.filter((i) => i < first[0]);
    const ranges = Array.from({ length: count + 1 }, (_, k) => ({
      from: k === 0 ? (before.at(-1) ?? first[0] - 1) : last[k - 1],
      to: k < count ? first[k] : (outside.find((i) => i > last[count - 1]) ?? last[count - 1] + 1),
    }));
    return ranges.map(({ from, to }, k) => {
      if (from >= to)
        throw new ShardwrightError(
          'E_UNSUPPORTED',
          `${this.layers[k]} starts before ${this.layers[k - 1]} is done, so that no stage ` +
            'can end between them',
        );
      let at = from;
      for (let i = from; i < to; i++) if (live[i] < live[at]) at = i;
      return { at, bytes: live[at] };
    });
  }

  private latest(i: number): number {
    let unit = 0;
    for (const o of this.operands(i))
      if (this.weight[o] === MIXED) unit = Math.max(unit, this.unit[o]);
    return unit;
  }

  /** The unit of the weight that a gradient call reads, else the earliest one of its operands. */
  private backwardUnit(i: number, head: number): number {
    let unit = head;
    for (const o of this.operands(i)) {
      if (this.weight[o] >= 0) return this.weight[o] + 1;
      if (this.weight[o] === MIXED && this.trained[o] === 1) unit = Math.min(unit, this.unit[o]);
    }
    return unit;
  }

  private *operands(i: number): Generator<number> {
    const { operandStart, operands } = this.index;
    for (let k = operandStart[i]; k < operandStart[i + 1]; k++) yield operands[k];
  }

  list(): LayerUnit[] {
    const { nodes } = this.graph;
    const count = this.layers.length + 2;
    const zero = (): Float64Array => new Float64Array(count);
    const [forward, backward, parameters, bytes, activations] = [
      zero(),
      zero(),
      zero(),
      zero(),
      zero(),
    ];
    const users = new Map<number, Set<number>>();
    const saved = new Uint8Array(nodes.length);
    nodes.forEach((node, i) => {
      if (node.kind === 'call' && this.unit[i] >= 0)
        (this.backward[i] === 1 ? backward : forward)[this.unit[i]] += this.measure.seconds(node);
      for (const o of this.operands(i)) {
        if (this.weight[o] !== MIXED) {
          // A value that is made from a parameter belongs to the parameter: its users are where it
          // is needed.
          if (this.unit[i] >= 0 && this.backward[i] === 0) {
            const at = users.get(this.root[o]) ?? new Set<number>();
            users.set(this.root[o], at.add(this.unit[i]));
          }
          continue;
        }
        const root = this.root[o];
        if (this.backward[root] === 1 || this.weight[root] !== MIXED) continue;
        if (this.backward[i] === 1) saved[root] = 1;
      }
    });
    nodes.forEach((node, i) => {
      if (this.root[i] !== i || this.unit[i] < 0 || this.backward[i] === 1) return;
      if (saved[i] === 1 && node.kind === 'call')
        activations[this.unit[i]] += this.measure.bytes(node);
    });
    for (const { elements, placeholders } of parametersOf(this.graph)) {
      // A tied table is needed wherever one of its names is used.
      const at = new Set<number>();
      for (const node of placeholders) {
        const i = this.index.position.get(node.name) ?? 0;
        if (this.weight[i] >= 0) at.add(this.weight[i] + 1);
        else for (const u of users.get(i) ?? []) at.add(u);
      }
      for (const u of at.size === 0 ? [0] : at) {
        parameters[u] += elements;
        bytes[u] += this.measure.bytes(placeholders[0]);
      }
    }
    const names = ['embedding', ...this.layers, 'head'];
    return names.map((name, u) => ({
      name,
      forwardSeconds: forward[u],
      backwardSeconds: backward[u],
      parameters: parameters[u],
      parameterBytes: bytes[u],
      activationBytes: activations[u],
      boundaryBytes: this.boundary[u],
    }));
  }
}
