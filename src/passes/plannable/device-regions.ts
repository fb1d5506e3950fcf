/**
 * Finds the parts of a global program that are per-device code: what lies between
 * `shardwright.to_local` (a device's piece of a value) and `shardwright.to_global` (the value that
 * pieces join to), as `local_map` of PyTorch has them. Each part becomes a region, a backward pass
 * one of its own; what one region keeps for another stays per device. Source: `to_local` and
 * `from_local` of PyTorch's DTensor.
 */
import { defined } from '../../defined.ts';
import { ShardwrightError } from '../../errors.ts';
import { LOCAL_MAP, localType, TO_GLOBAL, TO_LOCAL } from '../../graph/local-map.ts';
import { freeKey, NameSet } from '../../graph/names.ts';
import type { Arg, Graph, Node, NodeMeta, Output, Phase, ValueType } from '../../graph/types.ts';
import {
  eachGraphRef,
  eachOperand,
  isRef,
  NO_KWARGS,
  ref,
  setOwn,
  tensorType,
  without,
} from '../../graph/value.ts';
import type { Claim } from '../../local-spmd/region.ts';
import { type DeviceMesh, parseMesh } from '../../mesh/devices/mesh.ts';
import { type AxisType, typeOfPlacement } from '../../mesh/local-types/types.ts';
import { parseSharding } from '../../mesh/sharding/parse.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { manualRegions, typedRegion } from './manual-regions.ts';
import { withNeutralCollectives } from './torch-collectives.ts';

/**
 * The graph with the per-device code of other systems as typed `local_map` calls: manual regions
 * of JAX, and what PyTorch's `local_map` runs.
 *
 * @throws E_SPMD_TYPE for a region whose types do not fit, with the cast or collective to insert;
 *   E_UNSUPPORTED, with the node, for a collective that is no verb
 */
export function perDeviceRegions(graph: Graph, table: OperatorTable): Graph {
  const marked = graph.nodes.some(({ target }) => target === TO_LOCAL || target === TO_GLOBAL);
  const found = marked ? new RegionFinder(withWork(graph), table).run() : graph;
  return manualRegions(found, table);
}

/** Pieces that are joined as they were cut, with a copy between: a region computes something. */
function withWork(graph: Graph): Graph {
  const cuts = new Map(
    graph.nodes.flatMap(({ name, target, type }) => (target === TO_LOCAL ? [[name, type]] : [])),
  );
  const names = new NameSet(graph.nodes.map(({ name }) => name));
  const nodes = graph.nodes.flatMap((node): Node[] => {
    const [x, ...rest] = node.args;
    const type = node.target === TO_GLOBAL && isRef(x) ? cuts.get(x.name) : undefined;
    if (type === undefined || !isRef(x)) return [node];
    const name = names.take(`${x.name}_copy`);
    const copy = { ...node, name, target: 'aten.clone.default', args: [x], type };
    return [copy, { ...node, args: [ref(name), ...rest] }];
  });
  return { ...graph, nodes };
}

/** A value that one region keeps for another, as it is outside. */
interface KeptValue {
  readonly name: string;
  readonly spec: readonly AxisType[];
}

/** A part that becomes one region. */
interface Part {
  readonly nodes: Node[];
  readonly name: string;
}

class RegionFinder {
  private readonly nodeOf: ReadonlyMap<string, Node>;
  /** How many regions lie before a value. */
  private readonly levels = new Map<string, number>();
  /** Union-find over per-device values. */
  private readonly parents = new Map<string, string>();
  private readonly users = new Map<string, string[]>();
  /** The region of each per-device call. */
  private readonly partOf = new Map<string, Part>();
  private readonly names: NameSet;
  private readonly emitted = new Set<string>();
  private readonly written = new Set<Part>();
  private readonly nodes: Node[] = [];
  private readonly subgraphs: Record<string, Graph>;
  /** Types outside of values that one region keeps for another. */
  private readonly kept = new Map<string, KeptValue>();
  private readonly meshes = new Map<Part, string>();

  constructor(
    private readonly graph: Graph,
    private readonly table: OperatorTable,
  ) {
    this.nodeOf = new Map(graph.nodes.map((node) => [node.name, node]));
    this.names = new NameSet(graph.nodes.map(({ name }) => name));
    this.subgraphs = { ...graph.subgraphs };
  }

  run(): Graph {
    const { graph } = this;
    for (const node of graph.nodes) this.place(node);
    for (const { value } of graph.outputs)
      if (value !== null && this.isLocal(value))
        throw refused(
          this.node(value),
          'the program returns it as the piece of one device',
          'say how the pieces join: out_placements of local_map',
        );
    this.divide();
    for (const node of graph.nodes) if (!this.isLocal(node.name)) this.emit(node.name);
    return { ...graph, nodes: this.nodes, subgraphs: this.subgraphs };
  }

  private node(name: string): Node {
    return this.nodeOf.get(name)!;
  }

  private isLocal(name: string): boolean {
    return this.parents.has(name);
  }

  /** Tells whether a value is per device, and how many regions lie before it. */
  private place(node: Node): void {
    const { name, target } = node;
    let level = 0;
    const pieces: string[] = [];
    eachOperand(node, (operand) => {
      level = Math.max(level, this.levels.get(operand) ?? 0);
      if (this.isLocal(operand)) pieces.push(operand);
      const users = this.users.get(operand);
      if (users === undefined) this.users.set(operand, [name]);
      else users.push(name);
    });
    this.levels.set(name, target === TO_GLOBAL ? level + 1 : level);
    if (target === TO_GLOBAL) {
      if (pieces.length === 0) throw refused(node, 'it joins no pieces', 'cut with to_local first');
      return;
    }
    if (target === TO_LOCAL && pieces.length > 0)
      throw refused(node, 'it cuts a piece', 'nest no local_map in another');
    if (target !== TO_LOCAL && pieces.length === 0) return;
    this.parents.set(name, name);
    for (const piece of pieces) this.parents.set(this.root(piece), this.root(name));
  }

  private root(name: string): string {
    let at = name;
    for (let up = this.parents.get(at); up !== undefined && up !== at; up = this.parents.get(at))
      at = up;
    this.parents.set(name, at);
    return at;
  }

  /**
   * One part for each component and level: no path leaves such a part and comes back, as every way
   * out raises the level. What only a later part reads is computed there.
   */
  private divide(): void {
    const parts = new Map<string, Part>();
    const keyOf = new Map<string, string>();
    const calls = this.graph.nodes.filter(
      ({ name, target }) => this.isLocal(name) && target !== TO_LOCAL,
    );
    for (const { name, meta } of calls.toReversed()) {
      const users = this.users.get(name) ?? [];
      const later = new Set(users.map((user) => keyOf.get(user)));
      const [only] = later;
      const isLate = later.size === 1 && only !== undefined && meta.savedOnly === true;
      keyOf.set(name, isLate ? only : `${this.levels.get(name) ?? 0} ${this.root(name)}`);
    }
    for (const node of calls) {
      const key = keyOf.get(node.name)!;
      let part = parts.get(key);
      if (part === undefined) {
        part = { nodes: [], name: this.names.take(LOCAL_MAP) };
        parts.set(key, part);
      }
      part.nodes.push(node);
      this.partOf.set(node.name, part);
    }
  }

  /** Writes a value of the global program, and before it what it is made of. */
  private emit(name: string): void {
    if (this.emitted.has(name)) return;
    this.emitted.add(name);
    const node = this.node(name);
    if (node.target === TO_GLOBAL && isRef(node.args[0])) {
      const source = node.args[0].name;
      this.region(this.partOf.get(source)!);
      return;
    }
    eachOperand(node, (operand) => this.emit(operand));
    this.nodes.push(node);
  }

  private region(part: Part): void {
    if (this.written.has(part)) return;
    this.written.add(part);
    const { operands, local } = this.operandsOf(part);
    for (const { from, isKept } of operands) if (!isKept) this.emit(from);
    // A call is of the backward pass iff it reads what is; its body is with it.
    const [first] = part.nodes;
    const { phase } = part.nodes.find(({ meta }) => meta.phase === 'backward')?.meta ?? first.meta;
    const meta = inPhase(first.meta, phase);
    const call: Node = { ...first, name: part.name, target: LOCAL_MAP, kwargs: NO_KWARGS, meta };
    const mesh = this.meshOf(part, operands);
    const results = this.resultsOf(part, mesh);
    const axes = mesh.dims.map(({ name, size }) => ({ name, size }));
    const inputs = operands.map(({ name, type }, i): Node => ({
      name,
      kind: 'placeholder',
      target: name,
      args: [],
      kwargs: NO_KWARGS,
      type,
      meta: { role: 'arg', roleIndex: i },
    }));
    const outputs = results.map(({ inner }, index): Output => ({
      value: inner,
      role: 'output',
      index,
    }));
    const key = freeKey(this.subgraphs, `${LOCAL_MAP}_body`);
    const calls = [...local, ...part.nodes, ...results.flatMap(({ row }) => row ?? [])];
    const nodes = [
      ...inputs,
      ...calls.map((node) => ({ ...node, meta: inPhase(node.meta, phase) })),
    ];
    const { made, kwargs } = typedRegion({
      call,
      body: withNeutralCollectives(
        { name: key, nodes, outputs, subgraphs: this.bodiesOf(part) },
        (node, group) => ranksOf(mesh, node, group),
      ),
      mesh,
      axes,
      inSpecs: operands.map(({ spec }) => spec),
      claims: results.map(({ claim }) => claim),
      table: this.table,
    });
    setOwn(this.subgraphs, key, made);
    this.write(call, { key, kwargs }, operands, results, axes, made);
  }

  private bodiesOf(part: Part): Record<string, Graph> {
    const bodies: Record<string, Graph> = {};
    for (const node of part.nodes)
      eachGraphRef(node, (name) => setOwn(bodies, name, this.graph.subgraphs[name]));
    return bodies;
  }

  /** The call, and the reads of its results. */
  private write(
    call: Node,
    { key, kwargs }: { readonly key: string; readonly kwargs: Readonly<Record<string, Arg>> },
    operands: readonly RegionOperand[],
    results: readonly RegionResult[],
    axes: readonly { readonly name: string; readonly size: number }[],
    made: Graph,
  ): void {
    const specs = kwargs.out_specs as readonly (readonly AxisType[])[];
    const types = made.outputs.map(({ value }, k) => {
      const local = made.nodes.find(({ name }) => name === value)!.type;
      return localType(local, specs[k], axes, 'join', `result ${k} of %${call.name}`);
    });
    this.nodes.push({
      ...call,
      args: [{ kind: 'graph', name: key }, operands.map(({ from }) => ref(from))],
      kwargs,
      type: { kind: 'tuple', items: types },
    });
    results.forEach(({ name, value, isKept }, k) => {
      if (isKept) this.kept.set(value, { name, spec: specs[k] });
      this.emitted.add(name);
      this.nodes.push({
        name,
        kind: 'call',
        target: 'operator.getitem',
        args: [ref(call.name), k],
        kwargs: NO_KWARGS,
        type: types[k],
        meta: isKept ? call.meta : this.node(name).meta,
      });
    });
  }

  /** The values that a part reads, and the calls without operands that its body takes in. */
  private operandsOf(part: Part): { operands: RegionOperand[]; local: Node[] } {
    const operands = new Map<string, RegionOperand>();
    const local: Node[] = [];
    const taken = new Set(part.nodes.map(({ name }) => name));
    const read = (name: string, by: Node): void => {
      if (taken.has(name) || operands.has(name)) return;
      const node = this.node(name);
      if (node.target === TO_LOCAL) operands.set(name, this.cut(node));
      else if (this.isLocal(name)) {
        const { operand, row } = this.keptBefore(node);
        operands.set(operand.name, operand);
        if (row !== undefined) {
          taken.add(name);
          local.push(row);
        }
      } else if (node.kind === 'call' && !this.readsInputs(node)) {
        eachOperand(node, (operand) => read(operand, node));
        taken.add(name);
        local.push(node);
      } else
        throw refused(
          by,
          `it is per device and reads %${name}, which is whole`,
          'hand it to local_map as an argument, with its in_placements',
        );
    };
    for (const node of part.nodes) eachOperand(node, (name) => read(name, node));
    return { operands: [...operands.values()], local };
  }

  /** A value of an earlier region; a number is kept as a row of one. */
  private keptBefore(node: Node): { operand: RegionOperand; row: Node | undefined } {
    const { name, type } = node;
    const part = this.partOf.get(name)!;
    this.region(part);
    const { name: from, spec } = this.kept.get(name)!;
    const mesh = this.meshes.get(part);
    const isNumber = type.kind === 'tensor' && type.shape.length === 0;
    const own = isNumber ? `${name}_row` : name;
    const outer = isNumber ? tensorType(type.dtype, [1]) : type;
    const operand = { name: own, from, type: outer, isKept: true, spec, mesh };
    return { operand, row: isNumber ? viewOf(node, name, own, type, []) : undefined };
  }

  private readsInputs(node: Node): boolean {
    let reads = false;
    eachOperand(node, (name) => {
      const operand = this.node(name);
      reads ||= operand.kind !== 'call' || this.isLocal(name) || this.readsInputs(operand);
    });
    return reads;
  }

  private cut(node: Node): RegionOperand {
    const [x] = node.args;
    const { mesh, spec } = markOf(node);
    if (!isRef(x)) throw refused(node, 'it cuts no value', 'hand it a tensor');
    const name = node.name;
    return { name, from: x.name, type: node.type, isKept: false, spec, mesh };
  }

  /** The mesh that the marks of a part name. */
  private meshOf(part: Part, operands: readonly RegionOperand[]): DeviceMesh {
    const own = new Set(part.nodes.map(({ name }) => name));
    const meshes = [
      ...operands.flatMap(({ mesh }) => (mesh === undefined ? [] : [mesh])),
      ...this.marks(own).map((mark) => markOf(mark).mesh),
    ];
    const [text, other] = new Set(meshes);
    if (other !== undefined)
      throw refused(
        part.nodes[0],
        `it is per device over ${text} and over ${other}`,
        'give both regions one mesh',
      );
    this.meshes.set(part, text);
    return parseMesh(text);
  }

  /** The marks that join what a part computes. */
  private marks(own: ReadonlySet<string>): Node[] {
    return this.graph.nodes.filter(
      ({ target, args: [x] }) => target === TO_GLOBAL && isRef(x) && own.has(x.name),
    );
  }

  /** The values that leave a part: those that a mark joins, and those that another part reads. */
  private resultsOf(part: Part, mesh: DeviceMesh): RegionResult[] {
    const own = new Set(part.nodes.map(({ name }) => name));
    const joined = this.marks(own).map((mark): RegionResult => {
      const value = isRef(mark.args[0]) ? mark.args[0].name : '';
      // A value that is equal everywhere must be so: its placement claims no type.
      const claim = markOf(mark).spec.map((type): Claim => (type === 'I' ? undefined : type));
      return { name: mark.name, value, inner: value, claim, isKept: false, row: undefined };
    });
    const kept = part.nodes.flatMap((node): RegionResult[] => {
      const { name: value, type } = node;
      const users = this.users.get(value) ?? [];
      const isRead = users.some((user) => this.partOf.has(user) && !own.has(user));
      if (!isRead) return [];
      const name = this.names.take(`${value}_kept`);
      const claim = mesh.dims.map((): Claim => 'own');
      if (type.kind !== 'tensor' || type.shape.length > 0)
        return [{ name, value, inner: value, claim, isKept: true, row: undefined }];
      const inner = this.names.take(`${value}_row`);
      const row = viewOf(node, inner, value, tensorType(type.dtype, [1]), [1]);
      return [{ name, value, inner, claim, isKept: true, row }];
    });
    return [...joined, ...kept];
  }
}

/** A value that a region reads. */
interface RegionOperand {
  /** Its name in the body. */
  readonly name: string;
  /** Its name in the program around the body. */
  readonly from: string;
  /** The type of one device's piece. */
  readonly type: ValueType;
  /** True if an earlier region keeps it. */
  readonly isKept: boolean;
  readonly spec: readonly AxisType[];
  readonly mesh: string | undefined;
}

/** A value that leaves a region. */
interface RegionResult {
  /** Its name outside the region. */
  readonly name: string;
  /** The value in the program, and in the body. */
  readonly value: string;
  readonly inner: string;
  readonly claim: readonly Claim[];
  readonly isKept: boolean;
  /** The view of a number as a row, that pieces of it can be kept. */
  readonly row: Node | undefined;
}

function inPhase(meta: NodeMeta, phase: Phase | undefined): NodeMeta {
  return { ...without(meta, 'savedOnly'), ...defined({ phase }) };
}

function viewOf(
  { meta }: Node,
  name: string,
  of: string,
  type: ValueType,
  shape: readonly number[],
): Node {
  const args: Arg[] = [ref(of), shape];
  return { name, kind: 'call', target: 'aten.view.default', args, kwargs: NO_KWARGS, type, meta };
}

/** Mesh and types of a mark; I where the value is equal everywhere. */
function markOf(node: Node): { readonly mesh: string; readonly spec: readonly AxisType[] } {
  const [, mesh, placement] = node.args;
  if (typeof mesh !== 'string' || typeof placement !== 'string')
    throw refused(node, 'it names no mesh and placement', 'write ("dp=2,tp=4", "S(0)R")');
  const { placements } = parseSharding(placement, parseMesh(mesh));
  const spec = placements.map((one): AxisType => {
    const type = typeOfPlacement(one);
    if (type !== undefined) return type === 'R' ? 'I' : type;
    throw refused(node, `${one.text} is no type of per-device code`, 'use S(dim), R and P(sum)');
  });
  return { mesh, spec };
}

/** How many ranks a group has that names mesh axes. */
function ranksOf(mesh: DeviceMesh, node: Node, group: string): number {
  const axes = group.split(',');
  const unknown = axes.find((axis) => !mesh.names.includes(axis));
  if (unknown !== undefined)
    throw refused(
      node,
      `its group '${unknown}' is no axis of ${mesh.text}`,
      `say above the class which axes it is: # Group ${unknown}: ${mesh.names[0]}`,
    );
  return mesh.sizeOf(axes.map((axis) => mesh.indexOf(axis)));
}

function refused(node: Node, what: string, hint: string): ShardwrightError {
  const { original = node.target } = node.meta;
  return new ShardwrightError('E_UNSUPPORTED', `${original} (%${node.name}): ${what}`, {
    node: node.name,
    hint,
  });
}
