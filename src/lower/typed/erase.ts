/**
 * Erases types: from a graph with casts, collectives and regions of per-device code, and the types
 * of its inputs, it writes the local calls and collectives of one device. Every verb becomes the
 * collective that it names, casts without communication become slices, zeros or nothing, and
 * regions are inlined at their call. Each call is written as lowering writes it (`LocalCall`).
 */
import { internalError, ShardwrightError } from '../../errors.ts';
import { placeholdersOf } from '../../graph/control.ts';
import { lintGraph } from '../../graph/lint.ts';
import { LOCAL_MAP, localMapCall } from '../../graph/local-map.ts';
import { nodesByName, roleName } from '../../graph/nodes.ts';
import type { Arg, Graph, Node, Output } from '../../graph/types.ts';
import { getOwn, isGraphRef, isList, isRef } from '../../graph/value.ts';
import { firstTyped, owedType, typedAxes, typeGraph } from '../../local-spmd/type-graph.ts';
import { fixText, isTuple, type Known, type Typed } from '../../local-spmd/typed.ts';
import type { Typer } from '../../local-spmd/typer.ts';
import type { DeviceMesh } from '../../mesh/devices/mesh.ts';
import { isAxisType, placementOf } from '../../mesh/local-types/types.ts';
import { REPLICATE } from '../../mesh/placements/replicate.ts';
import { Sharding } from '../../mesh/sharding/sharding.ts';
import { ShardingSpace } from '../../mesh/sharding/space.ts';
import { tensorInputs } from '../../ops/record/context.ts';
import { bind } from '../../ops/record/infer.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { spmdName, verbAxes } from '../../ops/spmd/operators.ts';
import { dimOrder } from '../../ops/strides.ts';
import { LocalCall } from '../local-call.ts';
import { Emitter, emptySection, type LocalType } from '../program/emitter.ts';
import type { DimOrder } from '../program/memory-orders.ts';
import { Pieces } from '../program/pieces.ts';
import type { DeviceProgram, ProgramCall, ProgramValue, RandomPiece } from '../program/program.ts';
import { RankSymbols } from '../program/rank-int.ts';
import { RedistributionWriter } from '../redistribution.ts';
import { rewrite } from '../rewrites/table.ts';
import { Claims } from './claims.ts';
import { eraseControl, internal, type Local } from './control.ts';
import { VerbWriter } from './verbs.ts';

interface EraseInput {
  readonly graph: Graph;
  readonly mesh: DeviceMesh;
  readonly table: OperatorTable;
  /** Types of the inputs, one for each axis of the mesh; undefined where `assertType` says it. */
  readonly inputs: readonly (readonly Known[])[];
  /** Axes on which the whole graph is per device; default none. */
  readonly manual?: readonly string[];
  /** The program that the graph is written into, as part of it; default one of its own. */
  readonly into?: {
    /** The call that is written. */
    readonly region: string;
    readonly space: ShardingSpace;
    readonly emit: Emitter;
    readonly pieces: Pieces;
    readonly writer: RedistributionWriter;
    readonly symbols: RankSymbols;
    readonly bodies: Map<string, Graph>;
    readonly called: (name: string, call: ProgramCall) => void;
  };
}

/**
 * Writes a body into a program: names of its results.
 *
 * @param operands local values, one for each placeholder
 */
export function eraseInto(
  input: EraseInput & Required<Pick<EraseInput, 'into'>>,
  operands: readonly string[],
): string[] {
  return new Eraser(input).inlined(operands);
}

/**
 * A per-device program and what was known of its values: the axes on which each is I or R, so that
 * its replicas are equal.
 */
export interface ErasedProgram extends DeviceProgram {
  readonly claims: ReadonlyMap<string, readonly string[]>;
}

/**
 * Writes the per-device program.
 *
 * @throws E_SPMD_TYPE with the first law that the program breaks; E_UNSUPPORTED for a call that has
 *   no local form
 */
export function eraseTypes(input: EraseInput): ErasedProgram {
  return new Eraser(input).run();
}

class Eraser {
  private readonly space: ShardingSpace;
  private readonly emit: Emitter;
  private readonly pieces: Pieces;
  private readonly verbs: VerbWriter;
  private readonly typer: Typer;
  private readonly symbols: RankSymbols;
  private readonly calls = new Map<string, ProgramCall>();
  private readonly random = new Map<string, RandomPiece>();
  private readonly values: ProgramValue[] = [];
  private readonly claims: Claims;
  private bodies = new Map<string, Graph>();
  /** Axes that are per device at the present place of the walk. */
  private manual: ReadonlySet<string>;
  private inBody = false;
  /** The bodies around the present place of the walk, as the source names them. */
  private path: string;

  constructor(private readonly input: EraseInput) {
    const { graph, mesh, table } = input;
    const { into } = input;
    this.path = into?.region ?? '';
    this.symbols = into?.symbols ?? new RankSymbols();
    this.space = into?.space ?? new ShardingSpace(mesh, table.kinds);
    this.emit = into?.emit ?? new Emitter(table, mesh, this.symbols, new Set());
    this.pieces = into?.pieces ?? new Pieces(this.space);
    const writer = into?.writer ?? new RedistributionWriter(this.emit, this.space, this.pieces);
    this.verbs = new VerbWriter(this.emit, this.space, this.pieces, writer);
    if (into !== undefined) this.bodies = into.bodies;
    this.manual = new Set(input.manual ?? []);
    const axes = typedAxes(mesh, (axis) => (this.manual.has(axis) ? 'manual' : 'strict'));
    const at = axes.map(({ name }) => mesh.indexOf(name));
    this.typer = typeGraph(
      table,
      graph,
      axes,
      input.inputs.map((types) => at.map((m) => types[m])),
      { pending: into !== undefined },
    );
    this.claims = new Claims(this.typer);
    const [broken] = this.typer.violations;
    if (broken !== undefined)
      throw new ShardwrightError('E_SPMD_TYPE', broken.message, {
        node: broken.node,
        hint: fixText(broken.fix),
      });
  }

  /** Writes the graph at the present place of the program; gives the local names of its results. */
  inlined(operands: readonly string[]): string[] {
    const { into, graph } = this.input;
    const { meta } = this.emit;
    this.inBody = true;
    const made = this.inline(
      graph,
      operands.map((name) => ({ name })),
    );
    for (const [name, call] of this.calls) into?.called(name, call);
    this.emit.meta = meta;
    return made.map((local) =>
      'name' in local ? local.name : internal(`@${graph.name} returns a list`),
    );
  }

  run(): ErasedProgram {
    const { graph, mesh } = this.input;
    const names = new Map<string, Local>();
    for (const node of placeholdersOf(graph)) {
      const sharding = this.placed(graph, firstTyped(this.typer, graph, node.name));
      const type =
        node.type.kind === 'tensor'
          ? { dtype: node.type.dtype, shape: this.pieces.shape(sharding, sizes(node)) }
          : null;
      names.set(node.name, { name: this.emit.placeholder(node, type) });
      this.claims.add(graph, firstTyped(this.typer, graph, node.name), node.name);
      this.note(graph, node, { name: node.name }, sharding);
    }
    this.walk(graph, names);
    const shardings: (number | null)[] = [];
    const outputs = graph.outputs.map((output): Output => {
      if (output.value === null) {
        shardings.push(null);
        return output;
      }
      // Zeros, where nothing contributes to a gradient, are cut as its input is.
      const [value, sharding] = this.numbersAs(
        this.single(names, output.value),
        graph,
        output.value,
        output.role === 'grad' ? this.owed(graph, output.of) : undefined,
      );
      shardings.push(sharding);
      return { ...output, value };
    });
    const program: Graph = {
      name: graph.name,
      nodes: this.emit.section.nodes,
      outputs,
      subgraphs: Object.fromEntries(this.bodies),
      notes: [`Program of each device of the mesh ${mesh.text}.`],
    };
    lintGraph(program);
    return {
      graph: program,
      mesh,
      space: this.space,
      symbols: this.symbols.values,
      values: this.values,
      outputs: shardings,
      random: this.random,
      calls: this.calls,
      claims: this.claims.byLocal,
    };
  }

  private owed(graph: Graph, of: string | undefined): Typed | undefined {
    const input = placeholdersOf(graph).find((node) => roleName(node) === of);
    const typed =
      input === undefined
        ? undefined
        : this.typed(graph, firstTyped(this.typer, graph, input.name));
    return typed === undefined || isTuple(typed) ? undefined : typed.map(owedType);
  }

  private walk(graph: Graph, names: Map<string, Local>): void {
    for (const node of graph.nodes) {
      if (node.kind === 'placeholder') continue;
      this.emit.meta = this.input.into === undefined ? node.meta : this.input.into.emit.meta;
      const made = this.call(graph, node, names);
      names.set(node.name, made);
      if ('name' in made) this.claims.add(graph, node.name, made.name);
    }
  }

  private call(graph: Graph, node: Node, names: Map<string, Local>): Local {
    if (node.target === 'operator.getitem') {
      const [source, index] = node.args;
      const from = source !== undefined && isRef(source) ? names.get(source.name) : undefined;
      if (from === undefined || !('items' in from))
        throw internalError(`${node.name} reads no list`);
      return from.items[Number(index)] ?? internal(`${node.name} reads a result that is not there`);
    }
    if (node.target === LOCAL_MAP) return this.region(graph, node, names);
    const verb = spmdName(node.target);
    if (verb !== undefined) return { name: this.verb(graph, node, verb, names) };
    return this.control(graph, node, names) ?? this.operator(graph, node, names);
  }

  private verb(graph: Graph, node: Node, name: string, names: Map<string, Local>): string {
    const { mesh } = this.space;
    if (name === 'axis_index') return this.verbs.index(mesh.indexOf(axisName(node, 0)));
    const [x] = node.args;
    if (x === undefined || !isRef(x)) throw internalError(`${node.name} has no operand`);
    const value = this.single(names, x.name);
    if (name === 'out_partial') return value;
    // What is made of numbers is cut where the statement says so.
    if (name === 'assert_type')
      return this.numbersAs(value, graph, x.name, this.typed(graph, node.name))[0];
    const meshDims = verbAxes(axisName(node, 1)).map((axis) => mesh.indexOf(axis));
    const [m] = meshDims;
    if (name === 'permute')
      return this.verbs.permute(value, m, isList(node.args[3]) ? node.args[3].map(Number) : []);
    const [src, dst] = [node.args[3], node.args[4]];
    if (!isAxisType(src) || !isAxisType(dst)) throw internalError(`${node.name} names no types`);
    if (name !== 'redistribute') return this.verbs.write(name, value, m, src, dst);
    const base = this.space.get(this.placed(graph, x.name));
    const moved = this.verbs.move(value, meshDims, src, dst, base, wholeOf(graph, x.name));
    this.note(graph, node, { name: moved });
    return moved;
  }

  /**
   * An ordinary operator on local operands, in the form that its rules ask for on the axes that are
   * global.
   */
  private operator(graph: Graph, node: Node, names: Map<string, Local>): Local {
    const { table } = this.input;
    const record = table.get(node.target);
    const typeOf = (name: string): Node['type'] => nodeOf(graph, name).type;
    const ctx = record === undefined ? undefined : bind(table, node, typeOf);
    if (record === undefined || ctx === undefined)
      throw new ShardwrightError('E_UNSUPPORTED', `${node.target} has no record`, {
        node: node.name,
      });
    const operands = tensorInputs(record, node.args, node.kwargs);
    const outputSpecs = ctx.outputs.map((meta, k) =>
      meta === null ? -1 : this.placed(graph, node.name, k),
    );
    const byAxis = this.typer.calls.get(graph)?.get(node.name);
    const wanted: number[] = [];
    const inputs = operands.map((name, i) => {
      const types = this.typer.axes.map((_, a) => byAxis?.[a]?.taken?.[i]);
      const [value, id] = this.numbersAs(this.single(names, name), graph, name, types);
      wanted.push(id);
      return value;
    });
    const { mesh } = this.space;
    const rules = mesh.names.map((axis) => {
      const a = this.typer.axes.findIndex((known) => known.name === axis);
      return this.manual.has(axis) ? undefined : byAxis?.[a]?.rule;
    });
    const call = new LocalCall({
      emit: this.emit,
      pieces: this.pieces,
      node: this.withBodies(graph, node),
      record,
      global: ctx,
      inputs,
      inputSpecs: wanted,
      outputSpecs,
      rules,
      memberName: () => undefined,
    });
    const first = this.emit.section.nodes.length;
    const made = rewrite(call);
    const [meta] = ctx.outputs;
    if (meta !== undefined && meta !== null)
      for (const written of this.emit.section.nodes.slice(first))
        if (table.get(written.target)?.cls === 'random' && this.manual.size === 0)
          this.random.set(written.name, {
            stream: node.name,
            sharding: outputSpecs[0],
            shape: meta.shape,
          });
    const locals = made.map((name): Local => ({ name: name ?? '' }));
    if (record.results === 'tuple') return { items: locals };
    this.note(graph, node, locals[0]);
    return locals[0];
  }

  /** A call whose comparator or reducer stands in the program as it is, under a name of its own. */
  private withBodies(graph: Graph, node: Node): Node {
    const kept = (arg: Arg): Arg => {
      if (isList(arg)) return arg.map(kept);
      const body = isGraphRef(arg) ? getOwn(graph.subgraphs, arg.name) : undefined;
      if (body === undefined) return arg;
      const name = this.emit.bodyName(body.name);
      this.bodies.set(name, { ...body, name });
      return { kind: 'graph', name };
    };
    return {
      ...node,
      args: node.args.map(kept),
      kwargs: Object.fromEntries(
        Object.entries(node.kwargs).map(([key, value]) => [key, kept(value)]),
      ),
    };
  }

  /**
   * A tensor of plain numbers as what it meets, with its sharding then: an operand that the rule of
   * its call cuts, the start of a carry, or the result of one branch, where the other is cut or
   * pending.
   */
  private numbersAs(
    local: string,
    graph: Graph,
    name: string,
    to: Typed | undefined,
  ): readonly [value: string, sharding: number] {
    const from = this.typed(graph, name);
    const { mesh } = this.space;
    let now = local;
    let base = this.space.get(this.placed(graph, name));
    if (from === undefined || to === undefined || isTuple(from) || isTuple(to))
      return [now, this.space.intern(base)];
    this.typer.axes.forEach((axis, a) => {
      const type = to[a];
      if (from[a] !== 'number' || type === undefined || type === 'number') return;
      const m = mesh.indexOf(axis.name);
      if (this.manual.has(axis.name)) {
        if (type === 'P') now = this.verbs.write('convert', now, m, 'R', 'P');
        return;
      }
      now = this.verbs.move(now, [m], 'R', type, base, { shape: sizes(nodeOf(graph, name)) });
      base = new Sharding(base.placements.map((p, k) => (k === m ? placementOf(type) : p)));
    });
    return [now, this.space.intern(base)];
  }

  private typed(graph: Graph, name: string): Typed | undefined {
    return this.typer.types.get(graph)?.get(name);
  }

  private region(graph: Graph, node: Node, names: Map<string, Local>): Local {
    const call = localMapCall(node);
    const body = getOwn(graph.subgraphs, call.body);
    if (body === undefined) throw internalError(`${node.name} has no body`);
    const outer = this.manual;
    this.manual = new Set([...outer, ...call.axes.map(({ name }) => name)]);
    const operands = call.operands.map((arg) => (isRef(arg) ? names.get(arg.name) : undefined));
    const made = this.within(call.body, () => this.inline(body, operands));
    this.manual = outer;
    return { items: made };
  }

  /** Walks a body, whose own bodies are distinguished from those of others by its name. */
  private within<T>(body: string, walk: () => T): T {
    const outer = this.path;
    this.path = `${outer}/${body}`;
    const made = walk();
    this.path = outer;
    return made;
  }

  /** A body in the place of its call. */
  private inline(body: Graph, operands: readonly (Local | undefined)[]): Local[] {
    const inner = new Map<string, Local>();
    placeholdersOf(body).forEach((node, i) => {
      const given = operands[i];
      if (given === undefined) throw internalError(`@${body.name} gets no value for ${node.name}`);
      inner.set(node.name, given);
    });
    const was = this.inBody;
    this.inBody = true;
    this.walk(body, inner);
    this.inBody = was;
    return body.outputs.map(({ value }): Local =>
      value === null ? { name: '' } : (inner.get(value) ?? internal(`${value} is lost`)),
    );
  }

  private control(graph: Graph, node: Node, names: Map<string, Local>): Local | undefined {
    return eraseControl(graph, node, {
      emit: this.emit,
      single: (name) => this.single(names, name),
      entering: (name, body, at) =>
        this.numbersAs(
          this.single(names, name),
          graph,
          name,
          this.typed(body, placeholdersOf(body)[at].name),
        )[0],
      inline: (body, operands) => this.within(body.name, () => this.inline(body, operands)),
      body: (of, types, agreed) => {
        const results = this.typed(graph, node.name);
        const items = results !== undefined && isTuple(results) ? results.items : [];
        return this.body(node, of, types, items.slice(0, agreed));
      },
      called: (name, bodies, origins) =>
        this.calls.set(name, {
          name: node.name,
          bodies: new Map(
            bodies.map((body, i) => [
              body,
              { name: origins[i], scope: -1, path: `${this.path}/${origins[i]}` },
            ]),
          ),
        }),
    });
  }

  /** A body as a graph of its own. @param results what the first of its results must be */
  private body(
    node: Node,
    of: Graph,
    types: readonly LocalType[],
    results: readonly Typed[],
  ): { name: string; types: LocalType[] } {
    const outer = { section: this.emit.section, bodies: this.bodies, inBody: this.inBody };
    this.emit.section = emptySection();
    this.bodies = new Map();
    this.inBody = true;
    const inputs = placeholdersOf(of).map((placeholder, i) =>
      this.emit.bodyInput(placeholder.name, types[i]),
    );
    const inner = new Map(
      placeholdersOf(of).map((placeholder, i): [string, Local] => [
        placeholder.name,
        { name: inputs[i].name },
      ]),
    );
    this.within(of.name, () => this.walk(of, inner));
    const returned = of.outputs.map(({ value }, k) => {
      if (value === null) return internal(`@${of.name} returns nothing`);
      const own = this.single(inner, value);
      return k < results.length ? this.numbersAs(own, of, value, results[k])[0] : own;
    });
    const nodes = [
      ...inputs.map((input, roleIndex): Node => ({ ...input, meta: { role: 'arg', roleIndex } })),
      ...this.emit.section.nodes,
    ];
    const name = this.emit.bodyName(of.name);
    const graph: Graph = {
      name,
      nodes,
      outputs: returned.map((value, index): Output => ({ value, role: 'output', index })),
      subgraphs: Object.fromEntries(this.bodies),
    };
    this.emit.section = outer.section;
    this.bodies = outer.bodies;
    this.inBody = outer.inBody;
    this.emit.meta = this.input.into === undefined ? node.meta : this.emit.meta;
    this.bodies.set(name, graph);
    return { name, types: returned.map((value) => this.emit.type(value)) };
  }

  private single(names: ReadonlyMap<string, Local>, name: string): string {
    const found = names.get(name);
    if (found === undefined || !('name' in found))
      throw internalError(`${name} is not a single value`);
    return found.name;
  }

  /**
   * The sharding of a value on the axes that are global here; per-device axes hold what they hold.
   */
  private placed(graph: Graph, name: string, result?: number): number {
    const whole = this.typer.types.get(graph)?.get(name);
    const typed: Typed | undefined =
      whole !== undefined && isTuple(whole) ? whole.items[result ?? 0] : whole;
    const placements = this.space.mesh.names.map((axis) => {
      const a = this.typer.axes.findIndex((known) => known.name === axis);
      const type = a < 0 || typed === undefined || isTuple(typed) ? undefined : typed[a];
      if (this.manual.has(axis) || type === undefined || type === 'number' || type === 'V')
        return REPLICATE;
      return placementOf(type);
    });
    return this.space.intern(new Sharding(placements));
  }

  private note(graph: Graph, node: Node, local: Local, sharding?: number): void {
    if (node.type.kind !== 'tensor' || this.manual.size > 0 || this.inBody || !('name' in local))
      return;
    this.values.push({
      name: node.name,
      result: 0,
      local: local.name,
      sharding: sharding ?? this.placed(graph, node.name),
      shape: sizes(node),
      inBody: false,
    });
  }
}

function axisName({ name, args }: Node, at: number): string {
  const axis = args[at];
  return typeof axis === 'string' ? axis : internal(`${name} names no axis`);
}

/** Nodes of the graphs that were walked, by name. */
const named = new WeakMap<Graph, ReadonlyMap<string, Node>>();

function nodeOf(graph: Graph, name: string): Node {
  let nodes = named.get(graph);
  if (nodes === undefined) named.set(graph, (nodes = nodesByName(graph)));
  return nodes.get(name) ?? internal(`graph ${graph.name} has no value ${name}`);
}

function wholeOf(graph: Graph, name: string): { shape: readonly number[]; order: DimOrder } {
  const node = nodeOf(graph, name);
  if (node.type.kind !== 'tensor') return internal(`${name} is not a tensor`);
  return { shape: sizes(node), order: dimOrder(node.type) };
}

function sizes({ name, type }: Node): number[] {
  if (type.kind !== 'tensor') return internal(`${name} is not a tensor`);
  return type.shape.map((size) =>
    typeof size === 'number' ? size : (size.example ?? internal(`${name} has an open size`)),
  );
}
