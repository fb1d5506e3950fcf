/**
 * Turns the manual regions of JAX (`shard_map`, `sdy.manual_computation`) into regions of typed
 * per-device code: the shardings of the boundary become specs, collectives over groups of devices
 * become verbs on mesh axes, and the region is typed, so that a reduction that is missing in it is
 * found. Source: `shard_map` of JAX with `check_vma`; the semantics of collectives in the StableHLO
 * specification.
 */
import { ShardwrightError } from '../../errors.ts';
import { LOCAL_MAP, type RegionAxis } from '../../graph/local-map.ts';
import { NameSet } from '../../graph/names.ts';
import type { Arg, DType, Graph, Node, ValueType } from '../../graph/types.ts';
import {
  exampleShape,
  getOwn,
  isGraphRef,
  isList,
  isRef,
  mapOperands,
  NO_KWARGS,
  ref,
  setOwn,
  tensorType,
} from '../../graph/value.ts';
import { checkRegion, type Claim } from '../../local-spmd/region.ts';
import { type DeviceMesh, parseMesh } from '../../mesh/devices/mesh.ts';
import { type AxisType, S, typeOfPlacement } from '../../mesh/local-types/types.ts';
import { parseSharding } from '../../mesh/sharding/parse.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { spmdTarget } from '../../ops/spmd/operators.ts';
import { product } from '../../product.ts';
import { inlineCalls } from '../control/inline-calls.ts';

/** Target of a manual region as importers write it. */
const MANUAL = 'sdy.manual_computation';

/**
 * The graph with its manual regions as `local_map` calls, and with the functions that it calls in
 * line. One without a mesh, and one without such regions, is returned as it is.
 *
 * @throws E_SPMD_TYPE for a region whose types do not fit, with the cast or collective to insert;
 *   E_UNSUPPORTED, with the node, for a collective that is no verb
 */
export function manualRegions(graph: Graph, table: OperatorTable): Graph {
  const { mesh } = graph;
  return mesh === undefined || !hasRegions(graph)
    ? graph
    : withRegions(inlineCalls(graph), parseMesh(mesh), table);
}

function hasRegions({ nodes, subgraphs }: Graph): boolean {
  return nodes.some(({ target }) => target === MANUAL) || Object.values(subgraphs).some(hasRegions);
}

function withRegions(graph: Graph, mesh: DeviceMesh, table: OperatorTable): Graph {
  const subgraphs: Record<string, Graph> = {};
  let changed = false;
  for (const [name, body] of Object.entries(graph.subgraphs)) {
    const now = withRegions(body, mesh, table);
    changed ||= now !== body;
    setOwn(subgraphs, name, now);
  }
  const nodes = graph.nodes.map((node): Node => {
    if (node.target !== MANUAL) return node;
    changed = true;
    const [body] = node.args;
    const of = body !== undefined && isGraphRef(body) ? getOwn(subgraphs, body.name) : undefined;
    if (of === undefined || body === undefined)
      throw refused(node, 'it has no body', 'export again');
    const { made, kwargs } = region(node, of, mesh, table);
    setOwn(subgraphs, of === undefined || !isGraphRef(body) ? '' : body.name, made);
    return { ...node, target: LOCAL_MAP, kwargs };
  });
  return changed ? { ...graph, nodes, subgraphs } : graph;
}

/** The typed body of a region, and the keywords of its call. */
function region(
  node: Node,
  body: Graph,
  mesh: DeviceMesh,
  table: OperatorTable,
): { readonly made: Graph; readonly kwargs: Readonly<Record<string, Arg>> } {
  const manual = texts(getOwn(node.kwargs, 'manual_axes'));
  const axes = mesh.dims.filter(({ name }) => manual.includes(name));
  const specs = (key: string): (AxisType | undefined)[][] => {
    const list = getOwn(node.kwargs, key);
    return (list !== undefined && isList(list) ? list : []).map((text) => {
      const sharding = typeof text === 'string' ? parseSharding(text, mesh) : undefined;
      return axes.map(({ name }) => {
        const placement = sharding?.placements[mesh.indexOf(name)];
        const type = placement === undefined ? undefined : typeOfPlacement(placement);
        return type === 'R' ? undefined : type;
      });
    });
  };
  const inSpecs = specs('in_shardings').map((spec) => spec.map((type): AxisType => type ?? 'I'));
  return typedRegion({
    call: node,
    body,
    mesh,
    axes,
    inSpecs,
    claims: specs('out_shardings'),
    table,
  });
}

/** A region of per-device code of another system, before it is typed. */
interface ForeignRegion {
  /** The call, for messages. */
  readonly call: Node;
  readonly body: Graph;
  readonly mesh: DeviceMesh;
  /** The axes that are per device, in mesh order. */
  readonly axes: readonly RegionAxis[];
  /** For each operand and axis: its type outside. */
  readonly inSpecs: readonly (readonly AxisType[])[];
  readonly claims: readonly (readonly Claim[])[];
  readonly table: OperatorTable;
}

/**
 * The typed body of a region, with its collectives as verbs, and the keywords of its call.
 *
 * @throws E_SPMD_TYPE, E_UNSUPPORTED as `manualRegions`
 */
export function typedRegion({
  call: node,
  body,
  mesh,
  axes,
  inSpecs,
  claims,
  table,
}: ForeignRegion): {
  readonly made: Graph;
  readonly kwargs: Readonly<Record<string, Arg>>;
} {
  const written = new RegionWriter(
    node,
    body,
    mesh,
    axes.map(({ name }) => name),
  ).run(claims);
  try {
    const checked = checkRegion(table, { body: written, axes, inSpecs, claims, autoCast: true });
    return {
      made: checked.body,
      kwargs: {
        axes: axes.map(({ name, size }) => `${name}=${size}`),
        in_specs: inSpecs,
        out_specs: checked.outSpecs,
      },
    };
  } catch (error) {
    if (!(error instanceof ShardwrightError)) throw error;
    throw new ShardwrightError(
      error.code,
      `the manual region %${node.name}: ${error.message}`,
      error.details,
    );
  }
}

/** Writes the collectives of a body as verbs. */
class RegionWriter {
  private readonly nodes: Node[] = [];
  private readonly names: NameSet;
  /** Values that have another name now. */
  private readonly renamed = new Map<string, string>();
  /** Results of collectives of several values, by name and place. */
  private readonly results = new Map<string, readonly string[]>();

  constructor(
    private readonly call: Node,
    private readonly body: Graph,
    private readonly mesh: DeviceMesh,
    /** The axes that are per device, in mesh order. */
    private readonly manual: readonly string[],
  ) {
    this.names = new NameSet(body.nodes.map(({ name }) => name));
  }

  /** @param claims of the results: what a spec calls an addend is one */
  run(claims: readonly (readonly Claim[])[]): Graph {
    for (const node of this.body.nodes) this.add(node);
    const outputs = this.body.outputs.map((output, k) => {
      if (output.value === null) return output;
      const summed = this.manual.filter(
        (axis, a) => claims[k]?.[a] === 'P' && this.sizeOf(axis) > 1,
      );
      const value = summed.reduce(
        (now, axis) => this.addends(now, axis, this.call),
        this.nameOf(output.value),
      );
      return { ...output, value };
    });
    return { ...this.body, nodes: this.nodes, outputs };
  }

  private nameOf(name: string): string {
    return this.renamed.get(name) ?? name;
  }

  private add(given: Node): void {
    const node = mapOperands(given, (name) => this.nameOf(name));
    const write = WRITERS[node.target.replace(/^(?:stablehlo|jax)\./, '')];
    const [source, k] = node.args;
    const members =
      node.target === 'operator.getitem' && isRef(source)
        ? this.results.get(source.name)
        : undefined;
    if (members !== undefined) this.renamed.set(given.name, members[Number(k)]);
    else if (write === undefined) this.nodes.push(node);
    else write(this, node);
  }

  allReduce(node: Node): void {
    const [list] = node.args;
    const axes = this.axesOf(node);
    const extreme = EXTREMES[texts(getOwn(node.kwargs, 'reducer')).join()];
    if (extreme !== undefined) {
      this.renamed.set(node.name, this.extreme(node, extreme, axes));
      return;
    }
    this.sumOnly(node);
    const made = (isList(list) ? list : [list]).map((x) =>
      axes.reduce(
        (now, axis) =>
          this.verb('all_reduce', this.addends(now, axis, node), axis, node, ['P', 'I']),
        this.operand(x, node),
      ),
    );
    if (node.type.kind === 'tuple') this.results.set(node.name, made);
    else this.renamed.set(node.name, made[0]);
  }

  /** The largest or smallest of the values of all ranks: each takes it of the values it gathers. */
  private extreme(node: Node, target: string, axes: readonly string[]): string {
    return axes.reduce(
      (now, axis) => {
        const values = this.verb('all_gather', now, axis, node, ['V|I|R', 'R'], (shape) => [
          this.sizeOf(axis),
          ...shape,
        ]);
        return this.push(node, target, [ref(values), [0]]);
      },
      this.operand(node.args[0], node),
    );
  }

  /** Equal numbers of rows for every rank, in the order of the ranks. */
  exchange(node: Node): void {
    const axis = this.oneAxis(node);
    const x = this.operand(node.args[0], node);
    const { dtype, shape } = this.typeOf(x);
    const [rows, ...rest] = exampleShape({ shape });
    const n = this.sizeOf(axis);
    const parts = [n, rows / n, ...rest];
    const view = (value: string, sizes: readonly number[]): string =>
      this.push({ ...node, type: tensorType(dtype, sizes) }, 'aten.view.default', [
        ref(value),
        sizes,
      ]);
    const sent = view(x, parts);
    const received = this.verb('all_to_all', sent, axis, node, ['V|I|R', 'V']);
    this.renamed.set(node.name, view(received, shape.map(Number)));
  }

  allGather(node: Node): void {
    const d = this.int(node, 'all_gather_dim');
    const src = [S(d), 'I'].join('|');
    // The inner axis joins the pieces that lie next to each other.
    const made = this.inMeshOrder(node)
      .toReversed()
      .reduce(
        (now, axis) =>
          this.verb('all_gather', now, axis, node, [src, 'R'], joined(this.mesh, axis, d)),
        this.operand(node.args[0], node),
      );
    this.renamed.set(node.name, made);
  }

  reduceScatter(node: Node): void {
    this.sumOnly(node);
    const d = this.int(node, 'scatter_dimension');
    const made = this.inMeshOrder(node).reduce(
      (now, axis) =>
        this.verb(
          'reduce_scatter',
          this.addends(now, axis, node),
          axis,
          node,
          ['P', S(d)],
          cut(this.mesh, axis, d),
        ),
      this.operand(node.args[0], node),
    );
    this.renamed.set(node.name, made);
  }

  allToAll(node: Node): void {
    const [split, concat] =
      node.target === 'jax.all_to_all'
        ? [this.int(node, 'split_axis'), this.int(node, 'concat_axis')]
        : [this.int(node, 'split_dimension'), this.int(node, 'concat_dimension')];
    if (node.target === 'jax.all_to_all' && getOwn(node.kwargs, 'tiled') !== 'True')
      throw this.refuse(node, 'all_to_all that is not tiled adds a dim', 'write tiled=True');
    const axis = this.oneAxis(node);
    const types = [`${S(concat)}|I`, S(split)] as const;
    this.renamed.set(
      node.name,
      this.verb('all_to_all', this.operand(node.args[0], node), axis, node, types, (shape) =>
        joined(this.mesh, axis, concat)(cut(this.mesh, axis, split)(shape)),
      ),
    );
  }

  permute(node: Node): void {
    const { axis, targets } = this.targetsOf(node);
    const name = this.names.take(node.name);
    const args = [node.args[0], axis, this.sizeOf(axis), targets];
    this.nodes.push({ ...node, name, target: spmdTarget('permute'), args, kwargs: NO_KWARGS });
    this.renamed.set(node.name, name);
  }

  /** The number of the device along an axis, in the dtype of the call. */
  axisIndex(node: Node): void {
    this.renamed.set(node.name, this.index(this.oneAxis(node), node));
  }

  /** The number of the device among all: its places on the axes, the last one fastest. */
  partitionId(node: Node): void {
    if (this.manual.length < this.mesh.dims.filter(({ size }) => size > 1).length)
      throw this.refuse(
        node,
        'partition_id counts devices of axes that are not manual',
        'ask for the place on one axis: lax.axis_index',
      );
    const parts = this.mesh.names.map((axis, m) => {
      const stride = product(this.mesh.sizes.slice(m + 1));
      const own = this.index(axis, node);
      if (stride === 1) return own;
      const by = this.push(node, 'stablehlo.constant', [stride], {
        dtype: { kind: 'dtype', dtype: dtypeOf(node.type) },
        shape: [],
      });
      return this.push(node, 'stablehlo.multiply', [ref(own), ref(by)]);
    });
    const [first, ...rest] = parts;
    this.renamed.set(
      node.name,
      rest.reduce((sum, part) => this.push(node, 'stablehlo.add', [ref(sum), ref(part)]), first),
    );
  }

  private index(axis: string, node: Node): string {
    const name = this.names.take(`index_${axis}`);
    this.nodes.push({
      name,
      kind: 'call',
      target: spmdTarget('axis_index'),
      args: [axis, this.sizeOf(axis)],
      kwargs: NO_KWARGS,
      type: tensorType('i64', []),
      meta: node.meta,
    });
    return this.push(node, 'stablehlo.convert', [ref(name)], {
      dtype: { kind: 'dtype', dtype: dtypeOf(node.type) },
    });
  }

  /** Pieces, or what is equal everywhere, read as addends; addends stay. */
  private addends(x: string, axis: string, node: Node): string {
    return this.verb('reinterpret', x, axis, node, ['V|P|I|R', 'P']);
  }

  private verb(
    op: string,
    x: string,
    axis: string,
    { meta }: Node,
    [src, dst]: readonly [string, string],
    shapeAfter: (shape: readonly number[]) => number[] = (shape) => [...shape],
  ): string {
    const type = this.typeOf(x);
    const name = this.names.take(op);
    const shape = exampleShape(this.typeOf(x));
    this.nodes.push({
      name,
      kind: 'call',
      target: spmdTarget(op),
      args: [ref(x), axis, this.sizeOf(axis), src, dst],
      kwargs: NO_KWARGS,
      type: tensorType(type.dtype, shapeAfter(shape)),
      meta,
    });
    return name;
  }

  private push(
    { type, meta, name: base }: Node,
    target: string,
    args: readonly Arg[],
    kwargs: Readonly<Record<string, Arg>> = NO_KWARGS,
  ): string {
    const name = this.names.take(base);
    this.nodes.push({ name, kind: 'call', target, args, kwargs, type, meta });
    return name;
  }

  private typeOf(name: string): Extract<ValueType, { kind: 'tensor' }> {
    const found = this.nodes.findLast((node) => node.name === name)?.type;
    if (found?.kind === 'tensor') return found;
    throw this.refuse(this.call, `%${name} is no tensor`, 'export the program again');
  }

  private operand(x: Arg | undefined, node: Node): string {
    if (x !== undefined && isRef(x)) return x.name;
    throw this.refuse(node, 'a collective without an operand', 'export the program again');
  }

  private sumOnly(node: Node): void {
    const reducer = getOwn(node.kwargs, 'reducer');
    if (reducer === 'add') return;
    throw this.refuse(
      node,
      `the reduction is ${typeof reducer === 'string' ? reducer : 'of its own'}, and verbs add`,
      'gather the pieces with all_gather, and reduce them on each device',
    );
  }

  private sizeOf(axis: string): number {
    return this.mesh.sizes[this.mesh.indexOf(axis)];
  }

  private int(node: Node, key: string): number {
    const value = getOwn(node.kwargs, key);
    const number = typeof value === 'string' ? Number(value) : value;
    if (typeof number === 'number' && Number.isSafeInteger(number)) return number;
    throw this.refuse(node, `it states no ${key}`, 'export the program again');
  }

  /** The axes that a collective goes over, of more than one device. */
  private axesOf(node: Node): string[] {
    const named = [
      ...texts(getOwn(node.kwargs, 'axes')),
      ...texts(getOwn(node.kwargs, 'axis_name')),
    ];
    const axes = named.length > 0 ? named : this.axesOfGroups(node);
    const other = axes.find((axis) => !this.manual.includes(axis));
    if (other !== undefined)
      throw this.refuse(
        node,
        `it communicates over ${other}, which is not manual`,
        'name the axis',
      );
    return axes.filter((axis) => this.sizeOf(axis) > 1);
  }

  private inMeshOrder(node: Node): string[] {
    const axes = this.axesOf(node);
    const sorted = this.mesh.names.filter((axis) => axes.includes(axis));
    if (sorted.join() === axes.join()) return axes;
    throw this.refuse(
      node,
      `its pieces are in the order ${axes.join(', ')} of the axes, the mesh is ${this.mesh.text}`,
      `name the axes in the order ${sorted.join(', ')}`,
    );
  }

  private oneAxis(node: Node): string {
    const axes = this.axesOf(node);
    if (axes.length === 1) return axes[0];
    throw this.refuse(node, `it is over ${axes.length} axes`, 'call it for one axis');
  }

  /** The manual axes whose groups of devices the call lists. */
  private axesOfGroups(node: Node): string[] {
    const groups = numbers(getOwn(node.kwargs, 'replica_groups'));
    const wanted = groupsText(groups);
    for (let mask = 0; mask < 2 ** this.manual.length; mask++) {
      const axes = this.manual.filter((_, a) => (mask & (1 << a)) !== 0);
      if (groupsText(groupsOver(this.mesh, axes)) === wanted) return axes;
    }
    throw this.refuse(
      node,
      'its groups of devices are not those of axes of the mesh',
      'communicate over whole axes',
    );
  }

  /** The axis of a permutation, and for each member the one that it sends to. */
  private targetsOf(node: Node): { axis: string; targets: number[] } {
    const pairs = numbers(getOwn(node.kwargs, 'source_target_pairs'));
    const sendsTo = new Map(pairs.map(([from, to]) => [from, to] as const));
    for (const axis of this.manual) {
      const groups = groupsOver(this.mesh, [axis]).map((group) =>
        group.map((member) => group.indexOf(sendsTo.get(member) ?? -1)),
      );
      const [targets] = groups;
      const isPermutation = [...targets].sort((a, b) => a - b).every((target, i) => target === i);
      if (isPermutation && groups.every((group) => group.join() === targets.join()))
        return { axis, targets };
    }
    throw this.refuse(
      node,
      'its pairs are no permutation of the members of one axis',
      'name every member of one axis once as a source and once as a target',
    );
  }

  refuse(node: Node, what: string, hint: string): ShardwrightError {
    return refused(
      this.call,
      `${node.meta.original ?? node.target} (%${node.name}) is not planned: ${what}`,
      hint,
    );
  }
}

/** Reductions of PyTorch other than sums that are made of gathered values. */
const EXTREMES: Readonly<Record<string, string | undefined>> = {
  max: 'aten.amax.default',
  min: 'aten.amin.default',
};

/** Collectives by the name that both StableHLO and JAX have for them. */
const WRITERS: Readonly<Record<string, ((writer: RegionWriter, node: Node) => void) | undefined>> =
  {
    all_reduce: (writer, node) => writer.allReduce(node),
    all_gather: (writer, node) => writer.allGather(node),
    reduce_scatter: (writer, node) => writer.reduceScatter(node),
    all_to_all: (writer, node) => writer.allToAll(node),
    all_to_all_rows: (writer, node) => writer.exchange(node),
    collective_permute: (writer, node) => writer.permute(node),
    axis_index: (writer, node) => writer.axisIndex(node),
    partition_id: (writer, node) => writer.partitionId(node),
  };

function refused(node: Node, what: string, hint: string): ShardwrightError {
  return new ShardwrightError('E_UNSUPPORTED', `the manual region %${node.name}: ${what}`, {
    node: node.name,
    hint,
  });
}

/** The groups of devices that differ along some axes only. */
function groupsOver(mesh: DeviceMesh, axes: readonly string[]): number[][] {
  const groups = new Map<string, number[]>();
  for (let device = 0; device < mesh.size; device++) {
    let rest = device;
    const fixed: number[] = [];
    mesh.dims.toReversed().forEach(({ name, size }) => {
      if (!axes.includes(name)) fixed.push(rest % size);
      rest = Math.floor(rest / size);
    });
    const key = fixed.join();
    groups.set(key, [...(groups.get(key) ?? []), device]);
  }
  return [...groups.values()];
}

function groupsText(groups: readonly (readonly number[])[]): string {
  return groups
    .map((group) => group.join())
    .sort()
    .join(' ');
}

function numbers(arg: Arg | undefined): number[][] {
  return arg !== undefined && isList(arg)
    ? arg.map((row) => (isList(row) ? row.map(Number) : []))
    : [];
}

function texts(arg: Arg | undefined): string[] {
  if (typeof arg === 'string') return [arg];
  return arg !== undefined && isList(arg) ? arg.flatMap(texts) : [];
}

function dtypeOf(type: ValueType): DType {
  return type.kind === 'tensor' ? type.dtype : 'i64';
}

/** Sizes of what the pieces of an axis join to on a dim. */
function joined(mesh: DeviceMesh, axis: string, d: number) {
  return (shape: readonly number[]): number[] =>
    shape.map((size, k) => (k === d ? size * mesh.sizes[mesh.indexOf(axis)] : size));
}

/** Sizes of a piece. */
function cut(mesh: DeviceMesh, axis: string, d: number) {
  return (shape: readonly number[]): number[] =>
    shape.map((size, k) => (k === d ? size / mesh.sizes[mesh.indexOf(axis)] : size));
}
