/**
 * Gives a view of a program with control flow in which each body stands once in line, for planning.
 */

import { nonEmpty } from '../../defined.ts';
import { internalError, ShardwrightError } from '../../errors.ts';
import { CONTROL_TARGETS, statedTrips } from '../../graph/control.ts';
import { LOCAL_MAP, localMapCall } from '../../graph/local-map.ts';
import { addBody } from '../../graph/names.ts';
import type { Arg, GivenSharding, Graph, Node, Output, TensorType } from '../../graph/types.ts';
import { getOwn, isGraphRef, isList, isRef, ref, setOwn, tensorType } from '../../graph/value.ts';
import { type DeviceMesh, parseMesh } from '../../mesh/devices/mesh.ts';
import type { OperatorRecord } from '../../ops/record/record.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { nameOf, replaced } from '../control/renamed.ts';
import { branchWeights } from './branch-weights.ts';
import { InlineWriter } from './inline-writer.ts';
import { localMapRecord, type OpenedRegion } from './local-map-record.ts';
import { mapRowsRecord } from './map-rows.ts';
import type { OpenedGraph } from './opened-graph.ts';
import type { OpenedBody, Region, SharedMap } from './regions.ts';

const MAX_DEPTH = 64;

const CONTROL: ReadonlySet<string> = new Set(CONTROL_TARGETS);

interface OpenOptions {
  /** The mesh that is planned on: regions of per-device code pass on cuts of its other dims. */
  readonly mesh: string;
  /**
   * How maps are planned. `bodies` (default): the body in line, its tensors cut over the devices
   * and its rows not. `rows`: the rows shared out, each device running the whole body for its own;
   * maps with control flow or random numbers in their body are opened all the same.
   */
  readonly maps?: 'bodies' | 'rows';
}

/**
 * Opens all bodies; undefined for a graph without control flow. Calls and wrappers must have been
 * written out.
 */
export function openBodies(
  graph: Graph,
  table: OperatorTable,
  options: OpenOptions,
): OpenedGraph | undefined {
  if (!graph.nodes.some((node) => node.kind === 'call' && CONTROL.has(node.target)))
    return undefined;
  return new Opener(graph, table, options).run();
}

type Body = Pick<OpenedBody, 'name' | 'graph'>;

/** Where a body is written in line. */
interface Place {
  readonly scope: number;
  readonly prefix: string;
  readonly depth: number;
}

/** A call whose bodies are opened, and where. */
interface Site extends Place {
  readonly node: Node;
}

/** The operands of a scan or map. */
interface ScanOperands {
  readonly init: readonly Arg[];
  readonly xs: readonly Arg[];
  readonly captured: readonly Arg[];
}

class Opener {
  private readonly out = new InlineWriter();
  private readonly carries: { value: string; carry: string }[] = [];
  private readonly regions: Region[] = [];
  private readonly origins = new Map<string, string>();
  private readonly sharedMaps = new Map<string, SharedMap>();
  private readonly localMaps = new Map<string, OpenedRegion>();
  private readonly records: OperatorRecord[] = [];
  private readonly notes = new Set<string>();
  /**
   * Shardings that the source states, of bodies too, by the names that their values have in line.
   */
  private readonly given: GivenSharding[] = [];
  /**
   * Bodies that operators take (comparators, reducers): they stay bodies, under names of their own.
   */
  private readonly operatorBodies: Record<string, Graph> = {};

  constructor(
    private readonly original: Graph,
    private readonly table: OperatorTable,
    private readonly options: OpenOptions,
  ) {}

  run(): OpenedGraph {
    const { original } = this;
    for (const node of original.nodes) this.out.names.add(node.name);
    const renamed = new Map<string, Arg>();
    this.body(original, renamed, { scope: 0, prefix: '', depth: 0 });
    const outputs = original.outputs.map((o): Output =>
      o.value === null ? o : { ...o, value: nameOf(o.value, renamed) },
    );
    const { given: stated = [], subgraphs: _, ...rest } = original;
    const given = [...this.given, ...stated.filter(({ value }) => value === undefined)];
    return {
      graph: {
        ...rest,
        nodes: this.out.nodes,
        outputs,
        subgraphs: this.operatorBodies,
        ...nonEmpty({ given }),
      },
      loops: this.out.loops,
      regions: this.regions,
      origins: this.origins,
      sharedMaps: this.sharedMaps,
      localMaps: this.localMaps,
      table: this.records.length === 0 ? this.table : this.table.with(this.records),
      carries: this.carries,
      notes: [...this.notes],
    };
  }

  /**
   * Writes the calls of a graph in a scope; `renamed` says what its names mean outside and is
   * filled.
   */
  private body(graph: Graph, renamed: Map<string, Arg>, place: Place): void {
    const { scope, prefix, depth } = place;
    if (depth > MAX_DEPTH)
      throw new ShardwrightError(
        'E_LIMIT',
        `control flow is nested more than ${MAX_DEPTH} deep`,
        {},
      );
    const results = new Map<string, readonly (Arg | undefined)[]>();
    for (const node of graph.nodes) {
      if (node.kind === 'placeholder' && depth > 0) continue;
      if (node.kind === 'call' && CONTROL.has(node.target)) {
        const site = { node, scope, prefix: `${prefix}${node.name}.`, depth };
        results.set(node.name, this.control(site, graph, renamed));
        continue;
      }
      const [source, index] = node.args;
      const tuple = source !== undefined && isRef(source) ? results.get(source.name) : undefined;
      if (node.target === 'operator.getitem' && tuple !== undefined && typeof index === 'number') {
        const value = tuple[index < 0 ? tuple.length + index : index];
        if (value !== undefined) renamed.set(node.name, value);
        continue;
      }
      const name = depth === 0 ? node.name : this.out.unique(prefix + node.name);
      const kwargs: Record<string, Arg> = {};
      const moved = (arg: Arg): Arg => this.withBodies(replaced(arg, renamed), graph);
      for (const key of Object.keys(node.kwargs)) setOwn(kwargs, key, moved(node.kwargs[key]));
      this.out.emit({ ...node, name, args: node.args.map(moved), kwargs }, scope);
      if (depth > 0) this.origins.set(name, node.name);
      if (name !== node.name) renamed.set(node.name, ref(name));
    }
    for (const stated of graph.given ?? []) {
      if (stated.value === undefined) continue;
      const value = renamed.get(stated.value) ?? ref(stated.value);
      if (isRef(value)) this.given.push({ ...stated, value: value.name });
      else
        this.notes.add(
          `%${stated.value} of a body is ${stated.sharding} in the source, which is not pinned.`,
        );
    }
  }

  /**
   * An argument that names a body of the graph around it names the same body of the opened graph.
   */
  private withBodies(arg: Arg, graph: Graph): Arg {
    if (isList(arg))
      return arg.some(isGraphRef) ? arg.map((member) => this.withBodies(member, graph)) : arg;
    if (!isGraphRef(arg)) return arg;
    const body = getOwn(graph.subgraphs, arg.name);
    if (body === undefined) return arg;
    return { ...arg, name: addBody(this.operatorBodies, arg.name, body) };
  }

  private control(
    site: Site,
    graph: Graph,
    renamed: ReadonlyMap<string, Arg>,
  ): (Arg | undefined)[] {
    const { node } = site;
    const args = node.args.map((arg) => replaced(arg, renamed));
    const bodyAt = (at: number): Body => this.bodyOf(args[at], graph, node);
    const listAt = (at: number): readonly Arg[] => {
      const list = args[at];
      return list !== undefined && isList(list) ? list : [];
    };
    switch (node.target) {
      case 'cond':
        return this.branches(site, [bodyAt(1), bodyAt(2)], listAt(3), args[0]);
      case 'case': {
        const list = listAt(1).map((arg) => this.bodyOf(arg, graph, node));
        return this.branches(site, list, listAt(2), args[0]);
      }
      case 'scan':
        return this.scan(site, bodyAt(0), { init: listAt(1), xs: listAt(2), captured: listAt(3) });
      case 'map':
      case 'map_impl': {
        const operands = { init: [], xs: listAt(1), captured: listAt(2) };
        const shared =
          this.options.maps === 'rows' ? this.rowsOf(site, bodyAt(0), operands) : undefined;
        return shared ?? this.scan(site, bodyAt(0), operands);
      }
      case LOCAL_MAP:
        return this.localMap(site, bodyAt(0), listAt(1));
      case 'while_loop':
        return this.loop(site, bodyAt(0), bodyAt(1), { init: listAt(2), captured: listAt(3) });
      default:
        throw new ShardwrightError('E_UNSUPPORTED', `'${node.target}' is not planned`, {
          node: node.name,
        });
    }
  }

  /** The bodies of a cond or case, and the meeting of their results. */
  private branches(
    site: Site,
    bodies: readonly Body[],
    operands: readonly Arg[],
    which: Arg,
  ): (Arg | undefined)[] {
    const { node, scope, prefix, depth } = site;
    const weights = branchWeights(
      node,
      bodies.map(({ graph }) => graph),
      this.table,
      (text) => void this.notes.add(text),
    );
    const start = this.out.nodes.length;
    const around = this.out.loops.splitScope(scope, 1);
    const opened = bodies.map((body, b) => {
      const inside = this.out.loops.scope(around, weights[b]);
      return this.inLine(body, operands, { scope: inside, prefix: `${prefix}${b}.`, depth });
    });
    const { chosen, tests } = this.branchTests(site, bodies.length - 1, which);
    const met = opened[0].returns.map((_, k) =>
      this.meet(
        { ...site, scope: around },
        opened.map(({ returns }) => returns[k]),
        chosen,
        `out.${k}`,
      ),
    );
    this.regions.push({
      kind: 'branch',
      call: node,
      prefix: prefix.slice(0, -1),
      scope,
      start,
      end: this.out.nodes.length,
      bodies: opened,
      which,
      tests,
      meets: met.map(({ names }) => names),
    });
    return met.map(({ value }) => value);
  }

  /**
   * The values that tell of each branch but the last whether it runs: the predicate of a cond; of a
   * case, whether the index is its own.
   */
  private branchTests(
    { node, scope, prefix }: Site,
    count: number,
    which: Arg,
  ): { readonly chosen: readonly Arg[]; readonly tests: readonly string[] } {
    if (node.target === 'cond') return { chosen: new Array<Arg>(count).fill(which), tests: [] };
    const tests = Array.from({ length: count }, (_, b) => this.out.unique(`${prefix}is.${b}`));
    const chosen = tests.map((name, b) =>
      this.out.mark(name, 'aten.eq.Scalar', [which, b], tensorType('b8', []), scope),
    );
    return { chosen, tests };
  }

  /** One result of all branches: that of the branch that runs. The last is what remains. */
  private meet(
    { node, scope, prefix }: Site,
    values: readonly (Arg | undefined)[],
    chosen: readonly Arg[],
    base: string,
  ): { readonly value: Arg | undefined; readonly names: readonly (string | undefined)[] } {
    const names = new Array<string | undefined>(chosen.length).fill(undefined);
    let value = values[chosen.length];
    for (let b = chosen.length - 1; b >= 0; b--) {
      const other = values[b];
      if (value === undefined || other === undefined || !isRef(value) || !isRef(other))
        return { value: undefined, names };
      const name = this.out.unique(`${prefix}${base}`);
      names[b] = name;
      value = this.out.mark(
        name,
        'aten.where.self',
        [chosen[b], other, value],
        this.out.tensor(other.name, node),
        scope,
      );
    }
    return { value, names };
  }

  /** A map as one call that shares out its rows; undefined where its body does not allow that. */
  private rowsOf(
    { node, scope, prefix, depth }: Site,
    body: Body,
    { xs, captured }: ScanOperands,
  ): Arg[] | undefined {
    const isTensor = (arg: Arg): boolean => this.out.isTensor(arg);
    if (node.type.kind !== 'tuple' || xs.length === 0 || ![...xs, ...captured].every(isTensor))
      return undefined;
    const target = `map.rows.${this.records.length}`;
    const record = mapRowsRecord(target, body.graph, this.table);
    if (record === undefined) return undefined;
    this.records.push(record);
    if ((body.graph.given ?? []).length > 0)
      this.notes.add(
        `Shardings that the body of ${node.name} states are not pinned: its rows are shared ` +
          'out (--maps rows).',
      );
    const name = depth === 0 ? node.name : this.out.unique(prefix.slice(0, -1));
    if (depth > 0) this.origins.set(name, node.name);
    this.sharedMaps.set(name, { call: node, name: body.name, body: body.graph });
    this.out.emit(
      {
        name,
        kind: 'call',
        target,
        args: [xs, captured],
        kwargs: {},
        type: node.type,
        meta: node.meta,
      },
      scope,
    );
    return this.out.members(name, node.type.items, `${prefix}ys`, scope);
  }

  /** A region of per-device code as one call, whose rules are its specs. */
  private localMap(
    { node, scope, prefix, depth }: Site,
    body: Body,
    operands: readonly Arg[],
  ): Arg[] {
    if (node.type.kind !== 'tuple') throw internalError(`${node.name} has no results`);
    const mesh = parseMesh(this.options.mesh);
    checkAxes(node, mesh);
    const target = `local_map.${this.records.length}`;
    this.records.push(
      localMapRecord(
        target,
        node,
        body.graph,
        this.table,
        mesh,
        (text) => void this.notes.add(text),
      ),
    );
    const name = depth === 0 ? node.name : this.out.unique(prefix.slice(0, -1));
    if (depth > 0) this.origins.set(name, node.name);
    this.localMaps.set(name, { call: node, body: body.graph });
    this.out.emit(
      {
        name,
        kind: 'call',
        target,
        args: [operands],
        kwargs: {},
        type: node.type,
        meta: node.meta,
      },
      scope,
    );
    return this.out.members(name, node.type.items, `${prefix}region`, scope);
  }

  private scan(site: Site, body: Body, { init, xs, captured }: ScanOperands): (Arg | undefined)[] {
    const { node, scope, prefix, depth } = site;
    const length = this.lengthOf(node, xs);
    const start = this.out.nodes.length;
    const inside = this.out.loops.scope(scope, length);
    const carries = init.map((arg, k) => this.carry(arg, inside, `${prefix}carry.${k}`, node));
    const rows = xs.map((x, k) => ({
      from: x,
      row: this.rowOf(x, `${prefix}x.${k}`, inside, node),
    }));
    const operands = [...carries, ...rows.map((x) => x.row), ...captured];
    const opened = this.inLine(body, operands, { scope: inside, prefix, depth });
    this.close(carries, opened.returns);
    const stacked = opened.returns
      .slice(init.length)
      .map((value, i) => this.stackOf(value, length, { ...site, scope: inside }, init.length + i));
    this.regions.push({
      kind: 'scan',
      call: node,
      prefix: prefix.slice(0, -1),
      scope,
      start,
      end: this.out.nodes.length,
      bodies: [opened],
      length,
      carries,
      rows,
      stacks: stacked.map((one) => one && { row: one.row, whole: one.whole }),
    });
    return [...carries.slice(0, opened.returns.length), ...stacked.map((one) => one?.value)];
  }

  private lengthOf(node: Node, [first]: readonly Arg[]): number {
    const length =
      first !== undefined && isRef(first)
        ? sizeOf(this.out.tensor(first.name, node))
        : getOwn(node.kwargs, 'length');
    if (typeof length !== 'number')
      throw new ShardwrightError('E_UNSUPPORTED', `the length of ${node.target} is not known`, {
        node: node.name,
      });
    return length;
  }

  /** A row of a scanned operand. */
  private rowOf(x: Arg, base: string, scope: number, node: Node): Arg {
    if (!isRef(x)) return x;
    const { dtype, shape } = this.out.tensor(x.name, node);
    const type = tensorType(dtype, shape.slice(1));
    return this.out.mark(this.out.unique(base), 'aten.select.int', [x, 0, 0], type, scope);
  }

  /** Rows of the k-th result, stacked over all trips; undefined for what is not a tensor. */
  private stackOf(
    value: Arg | undefined,
    length: number,
    { node, scope, prefix }: Site,
    k: number,
  ): { readonly row: string; readonly whole: string; readonly value: Arg } | undefined {
    if (value === undefined || !isRef(value)) return undefined;
    const { dtype, shape } = this.out.tensor(value.name, node);
    const row = this.out.unique(`${prefix}y.${k}`);
    const whole = this.out.unique(`${prefix}ys.${k}`);
    const lifted = this.out.mark(
      row,
      'aten.unsqueeze.default',
      [value, 0],
      tensorType(dtype, [1, ...shape]),
      scope,
    );
    const type = tensorType(dtype, [length, ...shape]);
    const sizes = type.shape.map((d): Arg =>
      typeof d === 'number' ? d : { kind: 'size', size: d },
    );
    const expanded = this.out.mark(whole, 'aten.expand.default', [lifted, sizes], type, scope);
    return { row, whole, value: expanded };
  }

  private loop(
    { node, scope, prefix, depth }: Site,
    test: Body,
    body: Body,
    { init, captured }: Pick<ScanOperands, 'init' | 'captured'>,
  ): (Arg | undefined)[] {
    const stated = statedTrips(node);
    const trips = stated ?? 1;
    if (stated === undefined)
      this.notes.add(`The trips of ${node.name} are not known; its body is counted once.`);
    const start = this.out.nodes.length;
    const around = this.out.loops.splitScope(scope, trips);
    const [testing, stepping] = [this.out.loops.scope(around, 1), this.out.loops.scope(around, 1)];
    const carries = init.map((arg, k) => this.carry(arg, around, `${prefix}carry.${k}`, node));
    const operands = [...carries, ...captured];
    const tested = this.inLine(test, operands, { scope: testing, prefix: `${prefix}test.`, depth });
    // The test decides the same on every rank: it is read as a predicate, which is replicated. It
    // runs once more than the body.
    const [flag] = tested.returns;
    let decided: string | undefined;
    if (flag !== undefined && isRef(flag)) {
      decided = this.out.unique(`${prefix}test`);
      this.out.mark(
        decided,
        'aten.where.self',
        [flag, flag, flag],
        this.out.tensor(flag.name, node),
        testing,
      );
    }
    const opened = this.inLine(body, operands, { scope: stepping, prefix, depth });
    this.close(carries, opened.returns);
    const end = this.out.nodes.length;
    this.regions.push({
      kind: 'while',
      call: node,
      prefix: prefix.slice(0, -1),
      scope,
      start,
      end,
      bodies: [tested, opened],
      carries,
      test: decided,
    });
    return [...carries];
  }

  /** Writes a body in line. */
  private inLine(body: Body, operands: readonly Arg[], place: Place): OpenedBody {
    const { scope, prefix, depth } = place;
    const start = this.out.nodes.length;
    const inner = this.bind(body.graph, operands);
    this.body(body.graph, inner, { scope, prefix, depth: depth + 1 });
    const returns = body.graph.outputs.map((o) =>
      o.value === null ? undefined : replaced(ref(o.value), inner),
    );
    return { ...body, scope, start, end: this.out.nodes.length, returns };
  }

  /** A node that starts as the initial value; numbers are carried as they are. */
  private carry(init: Arg, scope: number, base: string, node: Node): Arg {
    if (!isRef(init) || !this.out.isTensor(init)) return init;
    const name = this.out.unique(base);
    const type = this.out.tensor(init.name, node);
    return this.out.mark(name, 'aten.clone.default', [init], type, scope);
  }

  private close(carries: readonly Arg[], out: readonly (Arg | undefined)[]): void {
    carries.forEach((carry, k) => {
      const value = out[k];
      if (isRef(carry) && value !== undefined && isRef(value) && this.out.isTensor(value))
        this.carries.push({ value: value.name, carry: carry.name });
    });
  }

  private bind(body: Graph, operands: readonly Arg[]): Map<string, Arg> {
    const renamed = new Map<string, Arg>();
    let position = 0;
    for (const inner of body.nodes) {
      if (inner.kind !== 'placeholder') continue;
      const operand = operands[position++];
      if (operand !== undefined) renamed.set(inner.name, operand);
    }
    return renamed;
  }

  private bodyOf(arg: Arg | undefined, graph: Graph, node: Node): Body {
    const body =
      arg !== undefined && isGraphRef(arg) ? getOwn(graph.subgraphs, arg.name) : undefined;
    if (arg === undefined || !isGraphRef(arg) || body === undefined)
      throw new ShardwrightError('E_UNSUPPORTED', `'${node.target}' has no body to plan`, {
        node: node.name,
      });
    return { name: arg.name, graph: body };
  }
}

function sizeOf(type: TensorType): number | undefined {
  const [size] = type.shape;
  return typeof size === 'number' ? size : size?.example;
}

/** @throws E_SPMD_TYPE for a region whose axes are none of the mesh, or of other sizes */
function checkAxes(node: Node, mesh: DeviceMesh): void {
  for (const { name, size } of localMapCall(node).axes) {
    const at = mesh.names.indexOf(name);
    // An axis of one device changes nothing, and a mesh may leave it out.
    if (at < 0 ? size === 1 : mesh.sizes[at] === size) continue;
    throw new ShardwrightError(
      'E_SPMD_TYPE',
      `${node.name} is per device over ${name}=${size}, and the mesh is ${mesh.text}`,
      {
        node: node.name,
        hint: `plan on a mesh with ${name}=${size}, or trace the region for this one.`,
      },
    );
  }
}
