/**
 * Lowers a plan of a graph to the program that every device runs, and checks it against the plan.
 */
import { checkKinds } from '../arguments.ts';
import { loadCluster } from '../cost/hardware/load-cluster.ts';
import { collectiveModel } from '../cost/presets/presets.ts';
import { movedType } from '../cost/redistribution/pricing.ts';
import { Redistributor } from '../cost/redistribution/redistribute.ts';
import { checkOptions, internalError, ShardwrightError } from '../errors.ts';
import { lintGraph } from '../graph/lint.ts';
import { localMapCall } from '../graph/local-map.ts';
import { type Arg, type Graph, type Node } from '../graph/types.ts';
import { getOwn, isGraphRef, isList, isRef, ref, setOwn } from '../graph/value.ts';
import { parseMesh } from '../mesh/devices/mesh.ts';
import { ShardingSpace } from '../mesh/sharding/space.ts';
import { bindCall, withOutputs } from '../ops/record/context.ts';
import type { TensorMeta } from '../ops/record/record.ts';
import type { OperatorTable } from '../ops/record/table.ts';
import { type OpenedRegion, operandTypes } from '../passes/plannable/local-map-record.ts';
import type { OpenedGraph } from '../passes/plannable/opened-graph.ts';
import type { Region } from '../passes/plannable/regions.ts';
import { refuseDamaged } from '../plan/record/damage.ts';
import { type LowerablePlan, type PlannedProgram, plannedProgram } from '../plan/record/planned.ts';
import { tableOf } from '../plan/request/check-call.ts';
import { type Dataflow, dataflow } from '../strategy/dataflow.ts';
import { rulesTaken } from '../strategy/rules-taken.ts';
import { ControlWriter } from './control.ts';
import { LocalCall } from './local-call.ts';
import { MemberNames } from './member-names.ts';
import { Mover } from './mover.ts';
import { moveMeta, OutputWriter } from './outputs.ts';
import { Emitter, type LocalType } from './program/emitter.ts';
import { Frame, type Placed } from './program/frame.ts';
import { type DimOrder, isRowMajor } from './program/memory-orders.ts';
import { Pieces } from './program/pieces.ts';
import type {
  BroughtValue,
  DeviceProgram,
  ProgramCall,
  ProgramValue,
  RandomPiece,
} from './program/program.ts';
import { RankSymbols, sameInt } from './program/rank-int.ts';
import { RedistributionWriter, type Route } from './redistribution.ts';
import { rewrite } from './rewrites/table.ts';
import { takeRows } from './taken-rows.ts';
import { eraseInto } from './typed/erase.ts';

export { type LowerablePlan, type PlannedProgram, plannedProgram } from '../plan/record/planned.ts';

/** The operators of a program that is lowered. */
export interface LowerOptions {
  /** Default the built-in operators. */
  readonly table?: OperatorTable;
  /**
   * The planned graph, where `graph` is that program at other sizes: redistributions take the steps
   * that are cheapest at the sizes of the plan.
   */
  readonly pricedAs?: Graph;
}

/**
 * The program that every device runs under a plan: local shapes and literals, every redistribution
 * as the collectives that were priced, each shared copy made once, and the collectives that
 * operators' own rules contain. Bodies of loops and branches become bodies with collectives of
 * their own. Every local result is typed on every rank and compared with the shard that the plan
 * promises.
 *
 * @param graph the planned graph, or the graph that was handed to `shard`
 * @throws E_PLAN when the plan is not of this graph; E_UNSUPPORTED, with the node, for what has no
 *   local form
 *
 * @example
 * ```ts
 * import { input, lower, parameter, shard, trace } from 'shardwright';
 *
 * const graph = trace(({ x, w1, w2 }) => x.matmul(w1).relu().matmul(w2), {
 *   x: input([4096, 4096]),
 *   w1: parameter([4096, 16384]),
 *   w2: parameter([16384, 4096]),
 * });
 * const result = await shard(graph, {
 *   mesh: 'tp=4',
 *   cluster: 'dgx-h100',
 *   pins: [
 *     { node: 'w1', spec: 'S(1)' },
 *     { node: 'w2', spec: 'S(0)' },
 *   ],
 * });
 * if (result.status === 'infeasible') throw new Error(result.conflict.join('\n'));
 * const { graph: program } = lower(result.graph, result.plan);
 * console.log(program.nodes.at(-1)?.target); // _c10d_functional.reduce_scatter_tensor.default
 * ```
 */
export function lower(
  graph: Graph,
  plan: LowerablePlan,
  options: LowerOptions = {},
): DeviceProgram {
  checkKinds('lower', { graph: [graph, 'graph'], plan: [plan, 'plan'] });
  checkOptions('lower', options, { table: true, pricedAs: true });
  const table = tableOf('lower', options.table);
  const planned = plannedProgram(graph, plan, table);
  const priced =
    options.pricedAs === undefined ? planned : plannedProgram(options.pricedAs, plan, table);
  return new Lowering(planned, plan, planned.opened?.table ?? table, priced).run();
}

/** Local operands of a call, the placements of both sides, and its results in the graph. */
interface Operands {
  readonly inputs: readonly string[];
  readonly inputSpecs: readonly number[];
  readonly outputSpecs: readonly number[];
  readonly results: readonly (TensorMeta | null)[];
}

class Lowering {
  private readonly space: ShardingSpace;
  private readonly flow: Dataflow;
  private readonly emit: Emitter;
  private readonly pieces: Pieces;
  private readonly symbols = new RankSymbols();
  private readonly graph: Graph;
  private readonly opened: OpenedGraph | undefined;
  /** Frames by scope of the opened graph, and the bodies that stand in each. */
  private readonly frames = new Map<number, Frame>();
  private readonly route: Route;
  private readonly writer: RedistributionWriter;
  private readonly mover: Mover;
  private readonly regions = new Map<number, Region[]>();
  private readonly members: MemberNames;
  private readonly control: ControlWriter | undefined;
  private readonly noted: (ProgramValue & { readonly at: number })[] = [];
  private readonly brought: BroughtValue[] = [];
  private readonly calls = new Map<string, ProgramCall>();
  private readonly random = new Map<string, RandomPiece>();
  private readonly outputs: OutputWriter;

  constructor(
    { listed, opened }: PlannedProgram,
    private readonly plan: LowerablePlan,
    private readonly table: OperatorTable,
    priced: PlannedProgram,
  ) {
    const { request } = plan;
    const graph = listed;
    this.graph = graph;
    this.opened = opened;
    const mesh = parseMesh(request.mesh);
    this.space = new ShardingSpace(mesh, table.kinds);
    this.flow = dataflow(graph, table, request.sharing, opened?.loops);
    const redistributor = new Redistributor(
      this.space,
      collectiveModel(request.cost, loadCluster(request.cluster), mesh),
    );
    const { values } =
      priced.listed === graph
        ? this.flow
        : dataflow(priced.listed, table, request.sharing, priced.opened?.loops);
    this.route = (value, from, to) => redistributor.plan(movedType(values[value]), from, to);
    this.members = new MemberNames(graph, this.flow);
    refuseDamaged(plan, {
      graph,
      flow: this.flow,
      space: this.space,
      carries: opened?.carries.length ?? 0,
    });
    this.emit = new Emitter(table, mesh, this.symbols, new Set(graph.nodes.map((n) => n.name)));
    for (const name of Object.keys(graph.subgraphs)) this.emit.bodyName(name);
    this.pieces = new Pieces(this.space);
    this.writer = new RedistributionWriter(this.emit, this.space, this.pieces);
    const { space, flow, emit, frames, route, writer } = this;
    const orderOf = (value: number): DimOrder => this.orderOf(value);
    const brought = (local: string, value: number): void => {
      const name = this.originOf(graph.nodes[flow.values[value].node].name);
      this.brought.push({ local, name, order: orderOf(value) });
    };
    this.mover = new Mover({ space, flow, emit, frames, route, writer, orderOf, brought });
    this.outputs = new OutputWriter({ graph, plan, flow, space, emit, mover: this.mover });
    if (opened === undefined) return;
    for (const region of opened.regions) {
      const list = this.regions.get(region.scope);
      if (list === undefined) this.regions.set(region.scope, [region]);
      else list.push(region);
    }
    for (const list of this.regions.values()) list.sort((a, b) => a.start - b.start);
    this.control = new ControlWriter(this.siteOf(opened));
  }

  run(): DeviceProgram {
    const { graph } = this;
    const frame = new Frame(this.emit, 0, undefined);
    this.walk(frame, 0, graph.nodes.length);
    const outputs = this.outputs.write(frame);
    const program: Graph = {
      name: graph.name,
      nodes: frame.section.nodes,
      outputs,
      subgraphs: Object.fromEntries(frame.bodies),
      notes: [
        `Program of each device of the mesh ${this.space.mesh.text}.`,
        ...[...this.symbols.values].map(
          ([symbol, values]) => `${symbol} is ${values.join(', ')} on ranks 0, 1, ..`,
        ),
      ],
    };
    lintGraph(program);
    return {
      graph: program,
      mesh: this.space.mesh,
      space: this.space,
      symbols: this.symbols.values,
      values: this.noted.sort((a, b) => a.at - b.at).map(({ at: _, ...value }) => value),
      outputs: this.outputs.shardings,
      random: this.random,
      calls: this.calls,
      moves: this.writer.moves,
      brought: this.brought,
    };
  }

  private siteOf(opened: OpenedGraph): ConstructorParameters<typeof ControlWriter>[0] {
    const { flow, plan, space, route, emit, pieces, writer } = this;
    return {
      flow,
      plan,
      opened,
      space,
      route,
      emit,
      pieces,
      writer,
      orderOf: (value) => this.orderOf(value),
      walk: (frame, start, end) => this.walk(frame, start, end),
      move: (frame, move) => {
        emit.meta = move.phase === 'forward' ? { phase: 'forward' } : {};
        return this.mover.bring(frame, move);
      },
      note: (value, { call, scope }, result, placed) =>
        this.note(value, call.name, result, placed, scope),
      called: (name, call) => void this.calls.set(name, call),
    };
  }

  /** Memory order of a value in the captured program. */
  private orderOf(value: number): DimOrder {
    const { meta, order } = this.flow.values[value];
    return order ?? meta.shape.map((_, dim) => dim);
  }

  /** Writes nodes of the listed graph, and the calls whose bodies stand among them. */
  private walk(frame: Frame, start: number, end: number): void {
    this.frames.set(frame.scope, frame);
    const regions = (this.regions.get(frame.scope) ?? []).filter(
      (r) => r.start >= start && r.end <= end,
    );
    let next = 0;
    for (let n = start; n < end;) {
      const region = regions[next];
      if (region !== undefined && region.start === n) {
        this.control?.write(frame, region);
        next++;
        n = region.end;
        continue;
      }
      const node = this.graph.nodes[n];
      if (this.flow.alias[n] < 0) {
        this.emit.section = frame.section;
        if (node.kind === 'call') this.call(frame, node, n);
        else this.placeholder(frame, node, n);
        // An input that is returned moves at the end: calls stand after all inputs.
        if (node.kind === 'call' && frame.scope === 0)
          for (const value of this.flow.results[n]) this.outputs.deliver(frame, value);
      }
      n++;
    }
  }

  private placeholder(frame: Frame, node: Node, n: number): void {
    const [id] = this.flow.results[n];
    if (node.kind !== 'placeholder' || id === undefined || id < 0)
      throw new ShardwrightError(
        'E_UNSUPPORTED',
        `${node.kind} ${node.name} is not a tensor input`,
        {
          node: node.name,
        },
      );
    const { meta } = this.flow.values[id];
    const sharding = this.space.parse(this.plan.nodes[n].outputs[0]);
    const name = this.emit.placeholder(node, {
      dtype: meta.dtype,
      shape: this.pieces.shape(sharding, meta.shape),
    });
    frame.owned.set(id, { name, sharding });
    this.note(id, node.name, 0, { name, sharding });
  }

  private call(frame: Frame, node: Node, n: number): void {
    const { flow, space } = this;
    const planned = this.plan.nodes[n];
    const inputSpecs = planned.inputs.map((text) => space.parse(text));
    const outputSpecs = planned.outputs.map((text) => (text === '-' ? -1 : space.parse(text)));
    const inputs = Array.from(flow.inputs[n], (value, i) => {
      const phase = flow.passOf(n, value);
      this.emit.meta = moveMeta(node, phase);
      return this.mover.bring(frame, {
        value,
        phase,
        moves: planned.redistributions.filter((r) => r.input === i),
        to: inputSpecs[i],
        scope:
          this.opened?.loops.moveScope(this.graph.nodes[flow.values[value].node].name, node.name) ??
          0,
        use: `input ${i} of ${node.name}`,
      });
    });
    this.emit.section = frame.section;
    this.emit.meta = node.meta;
    const results = Array.from(flow.results[n], (id): TensorMeta | null =>
      id < 0 ? null : flow.values[id].meta,
    );
    const shared = this.opened?.sharedMaps.get(node.name);
    const region = this.opened?.localMaps.get(node.name);
    const names =
      region !== undefined
        ? this.perDevice(frame, node.name, region, inputs, inputSpecs)
        : shared === undefined
          ? this.local(frame, node, n, { inputs, inputSpecs, outputSpecs, results })
          : this.control?.sharedRows(
              frame,
              node,
              shared,
              inputs,
              this.localTypes(results, outputSpecs),
            );
    if (names === undefined) throw internalError(`${node.name} has bodies that nothing writes`);
    results.forEach((meta, k) => {
      const name = names[k];
      if (meta === null || name === undefined || name === null) return;
      this.check(node, name, meta, outputSpecs[k]);
      const placed = { name, sharding: outputSpecs[k] };
      frame.owned.set(flow.results[n][k], placed);
      this.note(flow.results[n][k], this.originOf(node.name), k, placed, frame.scope);
    });
  }

  private localTypes(
    results: readonly (TensorMeta | null)[],
    specs: readonly number[],
  ): LocalType[] {
    return results.map((meta, k) => {
      if (meta === null) throw internalError('a body returns nothing');
      return { dtype: meta.dtype, shape: this.pieces.shape(specs[k], meta.shape) };
    });
  }

  /**
   * Writes the body of a region: on its own axes as it is, on the others as the plan cuts its
   * operands.
   */
  private perDevice(
    frame: Frame,
    name: string,
    { call, body }: OpenedRegion,
    inputs: readonly string[],
    inputSpecs: readonly number[],
  ): readonly string[] {
    const { space, emit, pieces, writer, symbols } = this;
    const region = localMapCall(call);
    const { mesh } = space;
    for (const { name: axis, size } of region.axes)
      if (mesh.sizes[mesh.indexOf(axis)] !== size)
        throw new ShardwrightError(
          'E_MESH',
          `${call.name} is per device over ${axis}=${size}, the plan has ${mesh.text}`,
          {
            node: call.name,
            hint:
              `plan on a mesh with ${axis}=${size}, or trace the program with the mesh of the ` +
              'plan',
          },
        );
    const types = operandTypes(region, space, inputSpecs);
    const manual = region.axes.map(({ name }) => name);
    const called = (of: string, made: ProgramCall): void => void this.calls.set(of, made);
    return eraseInto(
      {
        graph: body,
        mesh,
        table: this.table,
        inputs: types,
        manual,
        into: { region: name, space, emit, pieces, writer, symbols, bodies: frame.bodies, called },
      },
      inputs,
    );
  }

  /** Writes the local form of a call: one name for each result. */
  private local(
    frame: Frame,
    node: Node,
    n: number,
    { inputs, inputSpecs, outputSpecs, results }: Operands,
  ): readonly (string | null)[] {
    const record = this.table.get(node.target);
    if (record === undefined) return this.unknown(node, n, inputs, results);
    const global = withOutputs(
      bindCall(
        record,
        node.args,
        node.kwargs,
        (name) => this.flow.values[this.flow.valueOf(name)].meta,
      ),
      results,
    );
    const rules = rulesTaken(this.space, record.shard(global), inputSpecs, outputSpecs);
    const members = this.members.of(n);
    const first = this.emit.section.nodes.length;
    const tensors = [...this.flow.inputs[n], ...this.flow.results[n]];
    const taken = takeRows(rules, {
      emit: this.emit,
      pieces: this.pieces,
      global,
      inputSpecs,
      orderOf: (t) => this.orderOf(tensors[t]),
    });
    const call = new LocalCall({
      emit: this.emit,
      pieces: this.pieces,
      node,
      record,
      global,
      inputs: taken.operands(inputs),
      inputSpecs,
      outputSpecs,
      rules,
      memberName: (k) => members.get(k),
    });
    const names = taken.results(rewrite(call));
    this.noteRandom(node, n, first, results, outputSpecs);
    this.keepBodies(frame, node);
    return names;
  }

  /**
   * Bodies that a call takes for comparators and reducers stand in the program as they are: they
   * see single numbers.
   */
  private keepBodies(frame: Frame, node: Node): void {
    const keep = (arg: Arg): void => {
      if (isList(arg)) arg.forEach(keep);
      else if (isGraphRef(arg)) {
        const body = getOwn(this.graph.subgraphs, arg.name);
        if (body !== undefined) frame.bodies.set(arg.name, body);
      }
    };
    node.args.forEach(keep);
    Object.values(node.kwargs).forEach(keep);
  }

  /**
   * A call of an operator without a record runs on every device, on whole tensors (`unknown:
   * 'replicate'`).
   */
  private unknown(
    node: Node,
    n: number,
    inputs: readonly string[],
    results: readonly (TensorMeta | null)[],
  ): readonly (string | null)[] {
    if (this.plan.request.unknown !== 'replicate')
      throw new ShardwrightError(
        'E_UNSUPPORTED',
        `${node.target} has no record, so it is not lowered`,
        {
          node: node.name,
          hint: 'give the operator a record with defineOp, or plan with unknown: replicate',
        },
      );
    let next = 0;
    const put = (arg: Arg): Arg =>
      isList(arg) ? arg.map(put) : isRef(arg) ? ref(inputs[next++]) : arg;
    const args = node.args.map(put);
    const kwargs: Record<string, Arg> = { ...node.kwargs };
    // In the order in which `dataflow` counts the operands of such a call.
    for (const key of Object.keys(node.kwargs).sort()) setOwn(kwargs, key, put(node.kwargs[key]));
    const members = this.members.of(n);
    return this.emit.stated(node, args, kwargs, results, (k) => members.get(k));
  }

  /**
   * Random calls draw from the stream of the call that they are written for, at the positions of
   * their part.
   */
  private noteRandom(
    node: Node,
    n: number,
    first: number,
    results: readonly (TensorMeta | null)[],
    outputSpecs: readonly number[],
  ): void {
    const [meta] = results;
    if (meta === undefined || meta === null) return;
    // Draws of places go row by row through their weights, all others through what they make.
    const weights = node.target === 'aten.multinomial.default';
    const order = this.orderOf((weights ? this.flow.inputs : this.flow.results)[n][0]);
    for (const written of this.emit.section.nodes.slice(first)) {
      const cls = this.table.get(written.target)?.cls;
      if (cls !== 'random' && cls !== 'attention') continue;
      this.random.set(written.name, {
        stream: this.originOf(node.name),
        sharding: outputSpecs[0],
        shape: meta.shape,
        ...(isRowMajor(order) ? {} : { order }),
      });
    }
  }

  /** @throws E_INTERNAL when a local result is not the shard that the plan promises */
  private check(node: Node, name: string, meta: TensorMeta, sharding: number): void {
    const { dtype, shape } = this.emit.type(name);
    const wanted = this.pieces.shape(sharding, meta.shape);
    const fits =
      dtype === meta.dtype &&
      shape.length === wanted.length &&
      shape.every((s, d) => sameInt(s, wanted[d]));
    if (fits) return;
    const text = (sizes: readonly unknown[]): string => JSON.stringify(sizes);
    throw internalError(
      `${node.target} gives ${dtype}${text(shape)} on the devices, ` +
        `${this.space.text(sharding)} of ${meta.dtype}${text(meta.shape)} is ${text(wanted)}`,
      { node: node.name },
    );
  }

  /** Name of a node in its own graph. */
  private originOf(name: string): string {
    return this.opened?.origins.get(name) ?? name;
  }

  private note(
    value: number,
    name: string,
    result: number,
    { name: local, sharding }: Placed,
    scope = 0,
  ): void {
    const { meta } = this.flow.values[value];
    const order = this.orderOf(value);
    this.noted.push({
      name,
      result,
      local,
      sharding,
      shape: meta.shape,
      ...(isRowMajor(order) ? {} : { order }),
      inBody: scope !== 0,
      at: value,
    });
  }
}
