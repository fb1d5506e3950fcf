/** Takes a plan and its graph and gives the tasks of one device with the plan's own prices. */

import { type CollectiveModel } from '../../cost/collective-model.ts';
import type { Cluster } from '../../cost/hardware/cluster.ts';
import { loadCluster } from '../../cost/hardware/load-cluster.ts';
import type { MemoryKind } from '../../cost/memory/peak.ts';
import { collectiveModel } from '../../cost/presets/presets.ts';
import { isFree, type RedistributionStep } from '../../cost/redistribution/plan.ts';
import { movedType } from '../../cost/redistribution/pricing.ts';
import { Redistributor } from '../../cost/redistribution/redistribute.ts';
import { internalError, ShardwrightError } from '../../errors.ts';
import { roleName } from '../../graph/nodes.ts';
import { DTYPE_BYTES, type Graph, type Node } from '../../graph/types.ts';
import { plannedProgram } from '../../lower/lower.ts';
import { COLLECTIVE_KINDS, type CollectiveKind } from '../../mesh/collective-kinds.ts';
import { type DeviceMesh, parseMesh } from '../../mesh/devices/mesh.ts';
import { ShardingSpace } from '../../mesh/sharding/space.ts';
import { elements } from '../../ops/record/record.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import type { Pass } from '../../passes/canonical/pass-of-uses.ts';
import type { Plan, PlannedNode, PlannedRedistribution } from '../../plan/record/types.ts';
import { type Dataflow, dataflow } from '../../strategy/dataflow.ts';
import { LAUNCH_SECONDS, splitStep, weightValues } from '../work/rules.ts';
import { COMPUTE, type StreamRule, Streams } from '../work/streams.ts';
import { type Buffer, INSIDE, type Schedule, type Task } from './schedule.ts';

/** The part of a plan that is simulated. */
export type SimulatedPlan = Pick<Plan, 'request' | 'nodes' | 'outputs' | 'memory'>;

export interface ScheduleOptions {
  /** Seconds before every kernel; default 1 microsecond. */
  readonly launchSeconds?: number;
  /** Default `link`. */
  readonly streams?: StreamRule;
  /**
   * The dataflow of a graph under the plan's request, where it is known: it is taken where the plan
   * lists that very graph.
   */
  readonly known?: { readonly graph: Graph; readonly flow: Dataflow };
}

/** The schedule of a plan and what it was made with. */
export interface PlanSchedule extends Schedule {
  readonly mesh: DeviceMesh;
  readonly cluster: Cluster;
  readonly collectives: CollectiveModel;
  /** Steps of redistributions as the plan has them, each with the tasks (ids) that do it. */
  readonly moves: readonly { readonly kind: string; readonly tasks: readonly number[] }[];
  /** Assumptions, one sentence each. */
  readonly notes: readonly string[];
}

/**
 * The tasks of one device under a plan, with the plan's own prices: every node, and every step of
 * every redistribution just before the node that asks for it, as the lowered program has them.
 * Outputs are brought to their placement as soon as they are made, so that gradients are reduced
 * during the rest of the backward pass. Views share the storage of their source.
 *
 * @throws E_PLAN when the plan is not of this graph
 */
export function planSchedule(
  graph: Graph,
  plan: SimulatedPlan,
  table: OperatorTable,
  options: ScheduleOptions = {},
): PlanSchedule {
  return new Writer(graph, plan, table, options).write();
}

/** A collective of one redistribution, or one inside an operator's rule. */
interface Step {
  readonly kind: CollectiveKind;
  readonly bytes: number;
  readonly meshDims: readonly number[];
}

/** When a collective runs, and what it reads and writes. */
interface CollectiveRun {
  readonly seconds: number;
  readonly times: number;
  readonly reads: readonly number[];
  readonly writes: readonly number[];
  readonly phase: Pass;
  /** Its dtype, or that it is inside a call. */
  readonly key: string;
}

/** A value of a node on its way to another placement. */
interface Moving {
  readonly name: string;
  readonly value: number;
  readonly times: number;
  readonly phase: Pass;
}

class Writer {
  private readonly listed: Graph;
  private readonly space: ShardingSpace;
  private readonly cluster: Cluster;
  private readonly model: CollectiveModel;
  private readonly redistributor: Redistributor;
  private readonly flow: Dataflow;
  private readonly weights: Uint8Array;
  private readonly tasks: Task[] = [];
  private readonly buffers: Buffer[] = [];
  private readonly streams: Streams;
  private readonly shardings = new Map<string, number>();
  /** By value: its storage, then what else must have happened before it may be read. */
  private readonly storage = new Map<number, readonly number[]>();
  private readonly copies = new Map<string, readonly number[]>();
  private readonly moves: { readonly kind: string; readonly tasks: readonly number[] }[] = [];
  private repeated = 0;
  /** The operators, those that regions and shared maps became among them. */
  private readonly table: OperatorTable;

  constructor(
    graph: Graph,
    private readonly plan: SimulatedPlan,
    table: OperatorTable,
    private readonly options: ScheduleOptions,
  ) {
    const { listed, opened } = plannedProgram(graph, plan, table);
    const { request } = plan;
    this.table = opened?.table ?? table;
    this.listed = listed;
    this.space = new ShardingSpace(parseMesh(request.mesh), table.kinds);
    this.cluster = loadCluster(request.cluster);
    this.model = collectiveModel(request.cost, this.cluster, this.space.mesh);
    this.redistributor = new Redistributor(this.space, this.model);
    const { known } = options;
    this.flow =
      known?.graph === listed && opened === undefined
        ? known.flow
        : dataflow(listed, this.table, request.sharing, opened?.loops);
    this.weights = weightValues(listed, this.flow);
    this.streams = new Streams(options.streams ?? 'link', this.space.mesh, this.cluster);
  }

  write(): PlanSchedule {
    const { listed, flow, plan } = this;
    const tied = new Set((listed.ties ?? []).flatMap(([, ...others]) => others));
    if (plan.memory.optimizerBytes > 0)
      this.buffer('optimizer states', plan.memory.optimizerBytes, 'optimizer', {
        given: true,
        kept: true,
      });
    const outputs = this.outputsByValue();
    listed.nodes.forEach((node, n) => {
      if (flow.alias[n] >= 0) return;
      if (node.kind === 'call') this.call(node, n);
      else this.placeholder(node, n, tied.has(roleName(node)));
      for (const value of flow.results[n]) if (value >= 0) this.bring(outputs, value);
    });
    for (const [value] of outputs) this.bring(outputs, value, true);
    return {
      tasks: this.tasks,
      buffers: this.buffers,
      streams: this.streams.names,
      launchSeconds: this.options.launchSeconds ?? LAUNCH_SECONDS,
      oneAtATime: this.cluster.calibration?.synchronous === true,
      mesh: this.space.mesh,
      cluster: this.cluster,
      collectives: this.model,
      moves: this.moves,
      notes: [
        'Gradients and results are brought to their placement as soon as they are made.',
        ...(this.repeated === 0
          ? []
          : [
              `${this.repeated} tasks run several times (bodies of loops); the runs of each ` +
                'are taken together.',
            ]),
      ],
    };
  }

  private placeholder(node: Node, n: number, tied: boolean): void {
    const [value] = this.flow.results[n];
    if (value === undefined || value < 0) return;
    const { role } = node.meta;
    const stored =
      role === 'parameter' || role === 'buffer' || role === 'constant' || role === 'state';
    // States are in the optimizer's bytes already.
    const bytes =
      tied || role === 'state'
        ? 0
        : this.bytes(value, this.sharding(this.plan.nodes[n].outputs[0]));
    const kind: MemoryKind = role === 'parameter' ? 'parameter' : stored ? 'buffer' : 'activation';
    const weight = this.weights[value] === 1;
    this.storage.set(value, [
      this.buffer(node.name, bytes, kind, { given: true, kept: true, weight }),
    ]);
  }

  private call(node: Node, n: number): void {
    const { flow, plan } = this;
    const planned = plan.nodes[n];
    const phase = flow.phases[n];
    const reads = Array.from(flow.inputs[n], (value, i) =>
      this.carry(
        value,
        planned.redistributions.filter((r) => r.input === i),
        flow.passOf(n, value),
        phase,
        node.name,
      ),
    );
    const record = this.table.get(node.target);
    if (record?.cls === 'view' && reads.length === 1 && planned.seconds === 0) {
      for (const value of flow.results[n]) if (value >= 0) this.storage.set(value, reads[0]);
      return;
    }
    const all = [...new Set(reads.flat())];
    const results = Array.from(flow.results[n]).filter((value) => value >= 0);
    const made = results.map((value) => {
      const spec = planned.outputs[flow.values[value].result];
      const b = this.buffer(node.name, this.bytes(value, this.sharding(spec)), 'activation', {
        weight: this.weights[value] === 1,
      });
      this.storage.set(value, [b]);
      return b;
    });
    const times = planned.times ?? 1;
    if (times !== 1) this.repeated++;
    this.task({
      name: node.name,
      kind: 'compute',
      stream: COMPUTE,
      seconds: planned.seconds * times,
      kernels: planned.seconds > 0 ? times : 0,
      reads: all,
      writes: made,
      phase,
      target: node.target,
    });
    if (planned.internalSeconds !== undefined && planned.internalSeconds > 0)
      this.inside(node, n, planned, made);
  }

  /**
   * Collectives inside the rule of a call: one after another, done before its results may be read.
   */
  private inside(node: Node, n: number, planned: PlannedNode, made: readonly number[]): void {
    const { flow } = this;
    let last = made;
    if (planned.inside === undefined)
      throw new ShardwrightError(
        'E_PLAN',
        `the plan gives seconds of collectives inside ${node.name} and does not list them`,
        {
          node: node.name,
          hint: 'an earlier version made it; make the plan again',
        },
      );
    for (const { kind, bytes, meshDims, seconds, times = 1 } of planned.inside) {
      const step: Step = {
        kind: kindOf(kind) ?? unknownKind(kind),
        bytes,
        meshDims: meshDims.map((name) => this.space.mesh.indexOf(name)),
      };
      const done = this.buffer(`${node.name} ${step.kind}`, 0, 'communication');
      this.collective(node.name, step, {
        seconds,
        times: (planned.times ?? 1) * times,
        reads: last,
        writes: [done],
        phase: flow.phases[n],
        key: INSIDE,
      });
      last = [done];
    }
    if (last === made) return;
    for (const value of flow.results[n]) {
      const storage = value < 0 ? undefined : this.storage.get(value);
      if (storage !== undefined) this.storage.set(value, [...storage, ...last]);
    }
  }

  /** Takes a value through its redistributions for one use, and gives what the use must read. */
  private carry(
    value: number,
    moves: readonly PlannedRedistribution[],
    pass: Pass,
    phase: Pass,
    user: string,
  ): readonly number[] {
    let now = this.storage.get(value);
    if (now === undefined) throw internalError(`${user} reads a value before it is made`);
    for (const move of moves) {
      const key = `${value}:${move.copyId ?? pass}:${move.from}:${move.to}`;
      if (move.copy === 'reused') {
        now = this.copies.get(key);
        if (now === undefined) throw internalError(`${user} reads a copy that nothing made`);
        continue;
      }
      now = this.move(value, move, now, phase);
      if (move.copy === 'made') this.copies.set(key, now);
    }
    return now;
  }

  private move(
    value: number,
    move: PlannedRedistribution,
    storage: readonly number[],
    phase: Pass,
  ): readonly number[] {
    const { node } = this.flow.values[value];
    const [from, to] = [this.sharding(move.from), this.sharding(move.to)];
    const steps = this.redistributor.plan(movedType(this.flow.values[value]), from, to)?.steps;
    if (steps === undefined)
      throw internalError(
        `the plan moves a value from ${move.from} to ${move.to}, which is refused`,
      );
    const name = this.listed.nodes[node].name;
    let now = storage;
    for (const step of steps) {
      if (isFree(step)) continue;
      const first = this.tasks.length;
      now = this.step({ name, value, times: move.times ?? 1, phase }, step, now);
      this.moves.push({ kind: step.kind, tasks: this.tasks.slice(first).map(({ id }) => id) });
    }
    return now;
  }

  private step(
    { name, value, times, phase }: Moving,
    step: RedistributionStep,
    reads: readonly number[],
  ): readonly number[] {
    const weight = reads.every((b) => this.buffers[b].weight);
    const text = `${name} to ${this.space.text(step.to)}`;
    const result = this.buffer(text, this.bytes(value, step.to), 'communication', { weight });
    const kind = kindOf(step.kind);
    if (times !== 1) this.repeated++;
    const local = (seconds: number, from: readonly number[]): void =>
      this.task({
        name: text,
        kind: 'copy',
        stream: COMPUTE,
        seconds: seconds * times,
        kernels: seconds > 0 ? times : 0,
        reads: from,
        writes: [result],
        phase,
        target: step.kind,
      });
    if (kind === undefined) {
      local(step.seconds, reads);
      return [result];
    }
    // A step on a dim that is not contiguous has a copy in its price: kernels of the compute
    // stream.
    const { communicating, copying } = splitStep(this.model, kind, step);
    const { dtype } = this.flow.values[value].meta;
    const work = { kind, bytes: step.bytes, meshDims: step.meshDims };
    const run = { seconds: communicating, times, reads, phase, key: dtype };
    if (step.pieceBytes === undefined) {
      this.collective(text, work, { ...run, writes: [result] });
      return [result];
    }
    const pieces = `${text}, in pieces`;
    const done = this.buffer(pieces, step.pieceBytes, 'communication', { weight });
    this.collective(text, work, { ...run, writes: [done] });
    local(copying, [done]);
    return [result];
  }

  private collective(
    name: string,
    { kind, bytes, meshDims }: Step,
    { seconds, times, reads, writes, phase, key }: CollectiveRun,
  ): void {
    this.task({
      name,
      kind: 'collective',
      stream: this.streams.of(meshDims),
      seconds: seconds * times,
      kernels: seconds > 0 ? times : 0,
      reads,
      writes,
      phase,
      target: kind,
      collective: { kind, meshDims, bytes, key },
    });
  }

  /**
   * Brings the outputs that a value is to their placements; those that wait for a shared copy come
   * later.
   */
  private bring(outputs: Map<number, PlannedUse[]>, value: number, last = false): void {
    const uses = outputs.get(value);
    if (uses === undefined) return;
    const left = uses.filter(({ role, moves }) => {
      const phase = role === 'output' ? 'forward' : 'backward';
      const [first] = moves;
      const missing =
        first?.copy === 'reused' && !this.copies.has(`${value}:${phase}:${first.from}:${first.to}`);
      if (missing && !last) return true;
      for (const b of this.carry(value, moves, phase, phase, 'an output')) {
        const buffer = this.buffers[b];
        const kind = role === 'grad' && buffer.kind !== 'parameter' ? 'gradient' : buffer.kind;
        // A new parameter or state is written over the old one.
        const replaces = role === 'mutation' || role === 'newstate';
        this.buffers[b] = { ...buffer, kind, kept: buffer.kept || !replaces };
      }
      return false;
    });
    if (left.length === 0) outputs.delete(value);
    else outputs.set(value, left);
  }

  private outputsByValue(): Map<number, PlannedUse[]> {
    const out = new Map<number, PlannedUse[]>();
    let k = 0;
    for (const { output, value } of this.flow.outputs) {
      if (value < 0) continue;
      const planned = this.plan.outputs.at(k++);
      if (planned === undefined)
        throw new ShardwrightError('E_PLAN', `the plan has no output ${k - 1} of the program`, {
          hint: 'take the graph that the plan was made for (graph.swg of the plan folder).',
        });
      const moves = planned.redistributions;
      out.set(value, [...(out.get(value) ?? []), { role: output.role, moves }]);
    }
    return out;
  }

  private sharding(text: string): number {
    let id = this.shardings.get(text);
    if (id === undefined) this.shardings.set(text, (id = this.space.parse(text)));
    return id;
  }

  private bytes(value: number, sharding: number): number {
    const { meta } = this.flow.values[value];
    return elements(this.space.localShape(sharding, meta.shape)) * DTYPE_BYTES[meta.dtype];
  }

  private buffer(
    name: string,
    bytes: number,
    kind: MemoryKind,
    more: Partial<Pick<Buffer, 'given' | 'kept' | 'weight'>> = {},
  ): number {
    if (!Number.isFinite(bytes)) throw new ShardwrightError('E_PLAN', `${name} has no known size`);
    return (
      this.buffers.push({ name, bytes, kind, given: false, kept: false, weight: false, ...more }) -
      1
    );
  }

  private task(task: Omit<Task, 'id'>): void {
    this.tasks.push({ id: this.tasks.length, ...task });
  }
}

interface PlannedUse {
  readonly role: string;
  readonly moves: readonly PlannedRedistribution[];
}

function kindOf(word: string): CollectiveKind | undefined {
  return COLLECTIVE_KINDS.find((kind) => kind === word);
}

function unknownKind(word: string): never {
  throw internalError(`the plan lists a collective '${word}'`);
}
