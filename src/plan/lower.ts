import { loadCluster } from '../cost/cluster.ts';
import { collectiveModel } from '../cost/presets.ts';
import { Redistributor } from '../cost/redistribute.ts';
import { internalError, ShardwrightError } from '../errors.ts';
import { CONTROL_TARGETS } from '../graph/control.ts';
import { lintGraph } from '../graph/lint.ts';
import { DTYPE_BYTES, type Graph, type Node, type NodeMeta, type Output } from '../graph/types.ts';
import { parseMesh } from '../mesh/mesh.ts';
import { ShardingSpace } from '../mesh/space.ts';
import { bindCall, withOutputs } from '../ops/context.ts';
import type { TensorMeta } from '../ops/record.ts';
import type { OperatorTable } from '../ops/table.ts';
import { plannable } from '../passes/plannable.ts';
import { dataflow, type Dataflow } from '../strategy/dataflow.ts';
import { Emitter } from './lower/emitter.ts';
import { LocalCall } from './lower/local-call.ts';
import { Pieces } from './lower/pieces.ts';
import type { DeviceProgram, ProgramValue, RandomPiece } from './lower/program.ts';
import { RankSymbols, sameInt } from './lower/rank-int.ts';
import { RedistributionWriter } from './lower/redistribution.ts';
import { rewrite } from './lower/rewrite.ts';
import { rulesTaken } from './lower/rules-taken.ts';
import type { Plan, PlannedRedistribution } from './types.ts';

/** What of a plan the lowering reads. */
export type LowerablePlan = Pick<Plan, 'request' | 'nodes' | 'outputs'>;

/**
 * The program that every device runs under a plan: local shapes and literals, every redistribution as the collectives that
 * were priced, each shared copy made once, and the collectives that operators' own rules contain. Every local result is
 * typed on every rank and compared with the shard that the plan promises.
 *
 * @param graph the planned graph, or the graph that was handed to `shard`
 * @throws E_PLAN when the plan is not of this graph; E_UNSUPPORTED, with the node, for what has no local form
 */
export function lower(graph: Graph, plan: LowerablePlan, table: OperatorTable): DeviceProgram {
  return new Lowering(plannedGraph(graph, plan, table), plan, table).run();
}

/**
 * The graph whose nodes the plan lists.
 *
 * @throws E_UNSUPPORTED for control flow, whose plan lists every body once: such a list is no program
 */
export function plannedGraph(graph: Graph, plan: LowerablePlan, table: OperatorTable): Graph {
  const fits = (g: Graph): boolean =>
    g.nodes.length === plan.nodes.length && g.nodes.every((node, i) => node.name === plan.nodes[i].name);
  if (fits(graph)) return graph;
  const written = plannable(graph, table);
  const control = written.nodes.find((node) => node.kind === 'call' && CONTROL.has(node.target));
  if (control !== undefined)
    throw new ShardwrightError('E_UNSUPPORTED', `control flow is planned but not lowered: ${control.target}`, {
      node: control.name,
      hint: 'lower a graph without loops and branches, such as one that is unrolled',
    });
  if (fits(written)) return written;
  throw new ShardwrightError(
    'E_PLAN',
    `the plan lists ${plan.nodes.length} nodes that are not those of graph ${graph.name}`,
    { hint: 'lower the graph that the plan was made for (graph.swg of the plan folder)' },
  );
}

const CONTROL: ReadonlySet<string> = new Set(CONTROL_TARGETS);

/** A local value and the placement that it has. */
interface Placed {
  readonly name: string;
  readonly sharding: number;
}

class Lowering {
  private readonly space: ShardingSpace;
  private readonly redistributor: Redistributor;
  private readonly flow: Dataflow;
  private readonly emit: Emitter;
  private readonly pieces: Pieces;
  private readonly writer: RedistributionWriter;
  private readonly symbols = new RankSymbols();
  /** By value id: what its producer leaves. */
  private readonly owned = new Map<number, Placed>();
  private readonly copies = new Map<string, Placed>();
  private readonly random = new Map<string, RandomPiece>();
  private readonly outputShardings: (number | null)[] = [];

  constructor(
    private readonly graph: Graph,
    private readonly plan: LowerablePlan,
    private readonly table: OperatorTable,
  ) {
    const { request } = plan;
    const mesh = parseMesh(request.mesh);
    this.space = new ShardingSpace(mesh);
    this.redistributor = new Redistributor(this.space, collectiveModel(request.cost, loadCluster(request.cluster), mesh)); // prettier-ignore
    this.flow = dataflow(graph, table, request.sharing);
    this.emit = new Emitter(table, mesh, this.symbols, new Set(graph.nodes.map((n) => n.name)));
    this.pieces = new Pieces(this.space);
    this.writer = new RedistributionWriter(this.emit, this.space, this.pieces);
  }

  run(): DeviceProgram {
    const { graph, flow } = this;
    graph.nodes.forEach((node, n) => {
      if (flow.alias[n] >= 0) return;
      if (node.kind === 'call') this.call(node, n);
      else this.placeholder(node, n);
    });
    const outputs = this.outputs();
    const program: Graph = {
      name: graph.name,
      nodes: this.emit.nodes,
      outputs,
      subgraphs: graph.subgraphs,
      notes: [
        `Program of each device of the mesh ${this.space.mesh.text}.`,
        ...[...this.symbols.values].map(([symbol, values]) => `${symbol} is ${values.join(', ')} on ranks 0, 1, ..`),
      ],
    };
    lintGraph(program);
    return {
      graph: program,
      mesh: this.space.mesh,
      space: this.space,
      symbols: this.symbols.values,
      values: this.values(),
      outputs: this.outputShardings,
      random: this.random,
    };
  }

  private placeholder(node: Node, n: number): void {
    const [id] = this.flow.results[n];
    if (node.kind !== 'placeholder' || id === undefined || id < 0)
      throw new ShardwrightError('E_UNSUPPORTED', `${node.kind} ${node.name} is no tensor input`, { node: node.name });
    const { meta } = this.flow.values[id];
    const sharding = this.space.parse(this.plan.nodes[n].outputs[0]);
    const name = this.emit.placeholder(node, {
      dtype: meta.dtype,
      shape: this.pieces.shape(sharding, meta.shape),
    });
    this.owned.set(id, { name, sharding });
  }

  private call(node: Node, n: number): void {
    const { flow, space } = this;
    const planned = this.plan.nodes[n];
    const inputSpecs = planned.inputs.map((text) => space.parse(text));
    const outputSpecs = planned.outputs.map((text) => (text === '-' ? -1 : space.parse(text)));
    this.emit.meta = this.moveMeta(node, flow.phases[n]);
    const inputs = Array.from(flow.inputs[n], (value, i) =>
      this.carry(
        value,
        flow.phases[n],
        planned.redistributions.filter((r) => r.input === i),
        inputSpecs[i],
        `input ${i} of ${node.name}`,
      ),
    );
    this.emit.meta = node.meta;
    const results = Array.from(flow.results[n], (id): TensorMeta | null => (id < 0 ? null : flow.values[id].meta));
    const names = this.local(node, n, inputs, inputSpecs, outputSpecs, results);
    results.forEach((meta, k) => {
      const name = names[k];
      if (meta === null || name === undefined || name === null) return;
      this.check(node, name, meta, outputSpecs[k]);
      this.owned.set(flow.results[n][k], { name, sharding: outputSpecs[k] });
    });
  }

  /** Writes the local form of a call: one name for each result. */
  private local(
    node: Node,
    n: number,
    inputs: readonly string[],
    inputSpecs: readonly number[],
    outputSpecs: readonly number[],
    results: readonly (TensorMeta | null)[],
  ): readonly (string | null)[] {
    const record = this.table.get(node.target);
    if (record === undefined)
      throw new ShardwrightError('E_UNSUPPORTED', `${node.target} has no record, so it is not lowered`, {
        node: node.name,
        hint: 'give the operator a record with defineOp',
      });
    const global = withOutputs(
      bindCall(record, node.args, node.kwargs, (name) => this.flow.values[this.flow.valueOf(name)].meta),
      results,
    );
    const rules = rulesTaken(this.space, record.shard(global), inputSpecs, outputSpecs);
    const members = this.memberNames(n);
    const call = new LocalCall(
      this.emit,
      this.pieces,
      node,
      record,
      global,
      inputs,
      inputSpecs,
      outputSpecs,
      rules,
      (k) => members.get(k),
    );
    const first = this.emit.nodes.length;
    const names = rewrite(call);
    this.noteRandom(node, first, results, outputSpecs);
    return names;
  }

  /** Names that the unsharded program has for the members of a tuple. */
  private memberNames(n: number): Map<number, string> {
    const names = new Map<number, string>();
    for (const k of this.flow.results[n].keys()) {
      const id = this.flow.results[n][k];
      const name = id < 0 ? undefined : this.aliasNames.get(id);
      if (name !== undefined) names.set(k, name);
    }
    return names;
  }

  private get aliasNames(): ReadonlyMap<number, string> {
    if (this.aliases === undefined) {
      this.aliases = new Map();
      for (const [i, node] of this.graph.nodes.entries()) {
        const id = this.flow.alias[i];
        if (id >= 0 && node.target === 'operator.getitem' && !this.aliases.has(id)) this.aliases.set(id, node.name);
      }
    }
    return this.aliases;
  }
  private aliases: Map<number, string> | undefined;

  /** Random calls draw from the stream of the call that they are written for, at the positions of their part. */
  private noteRandom(
    node: Node,
    first: number,
    results: readonly (TensorMeta | null)[],
    outputSpecs: readonly number[],
  ): void {
    const [meta] = results;
    if (meta === undefined || meta === null) return;
    for (const written of this.emit.nodes.slice(first)) {
      const cls = this.table.get(written.target)?.cls;
      if (cls !== 'random' && cls !== 'attention') continue;
      this.random.set(written.name, { stream: node.name, sharding: outputSpecs[0], shape: meta.shape });
    }
  }

  /** @throws E_INTERNAL when a local result is not the shard that the plan promises */
  private check(node: Node, name: string, meta: TensorMeta, sharding: number): void {
    const { dtype, shape } = this.emit.type(name);
    const wanted = this.pieces.shape(sharding, meta.shape);
    const fits = dtype === meta.dtype && shape.length === wanted.length && shape.every((s, d) => sameInt(s, wanted[d]));
    if (fits) return;
    const text = (sizes: readonly unknown[]): string => JSON.stringify(sizes);
    throw internalError(
      `${node.target} gives ${dtype}${text(shape)} on the devices, ${this.space.text(sharding)} of ${meta.dtype}${text(meta.shape)} is ${text(wanted)}`,
      { node: node.name },
    );
  }

  /** Takes a value through the redistributions of one use. */
  private carry(
    value: number,
    phase: string,
    moves: readonly PlannedRedistribution[],
    to: number,
    use: string,
  ): string {
    const { meta } = this.flow.values[value];
    let now = this.owned.get(value);
    if (now === undefined) throw internalError(`${use} is used before it is made`);
    for (const move of moves) {
      const [from, next] = [this.space.parse(move.from), this.space.parse(move.to)];
      if (from !== now.sharding)
        throw internalError(`the plan moves ${use} from ${move.from}, it is ${this.space.text(now.sharding)}`);
      const key = `${value}:${phase}:${move.from}:${move.to}`;
      const kept = this.copies.get(key);
      if (move.copy === 'reused') {
        if (kept === undefined) throw internalError(`the plan reuses a copy of ${use} that nothing made`);
        now = kept;
        continue;
      }
      const steps = this.redistributor.plan({ shape: meta.shape, itemBytes: DTYPE_BYTES[meta.dtype] }, from, next);
      if (steps === undefined) throw internalError(`the plan moves ${use} in a way that is refused`);
      now = { name: this.writer.write(steps, now.name, meta.shape), sharding: next };
      if (move.copy === 'made') this.copies.set(key, now);
    }
    if (now.sharding !== to)
      throw internalError(`the plan leaves ${use} in ${this.space.text(now.sharding)}, wanted ${this.space.text(to)}`);
    return now.name;
  }

  private outputs(): Output[] {
    let k = 0;
    return this.flow.outputs.map(({ output, value }): Output => {
      if (value < 0) {
        this.outputShardings.push(null);
        return output;
      }
      const planned = this.plan.outputs[k++];
      const phase = output.role === 'output' ? 'forward' : 'backward';
      const node = this.graph.nodes[this.flow.values[value].node];
      this.emit.meta = this.moveMeta(node, phase);
      const name = this.carry(value, phase, planned.redistributions, this.space.parse(planned.placement), `output ${k - 1}`); // prettier-ignore
      this.outputShardings.push(this.space.parse(planned.placement));
      return { ...output, value: name };
    });
  }

  /** Of redistributions. One that the backward pass needs may serve forward values that are taken again there, so it has no phase. */
  private moveMeta({ meta }: Node, phase: 'forward' | 'backward'): NodeMeta {
    return {
      ...(phase === 'forward' ? { phase } : {}),
      ...(meta.path === undefined ? {} : { path: meta.path }),
      ...(meta.source === undefined ? {} : { source: meta.source }),
    };
  }

  private values(): ProgramValue[] {
    return [...this.owned]
      .sort((a, b) => a[0] - b[0])
      .map(([id, { name, sharding }]) => {
        const { node, result, meta } = this.flow.values[id];
        return { name: this.graph.nodes[node].name, result, local: name, sharding, shape: meta.shape };
      });
  }
}
