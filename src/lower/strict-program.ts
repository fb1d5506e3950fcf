/**
 * Writes a plan as the typed program that says all of it: the planned graph with the type of every
 * input, each redistribution as a verb, each sum that is completed later, and the cut of what is
 * made in pieces of whole operands. Strict mode finds nothing to say about it, and without its
 * types it is the lowered program of the plan, node by node; both are checked before it is given.
 */
import { checkKinds } from '../arguments.ts';
import { loadCluster } from '../cost/hardware/load-cluster.ts';
import { collectiveModel } from '../cost/presets/presets.ts';
import type { RedistributionPlan, RedistributionStep } from '../cost/redistribution/plan.ts';
import { movedType } from '../cost/redistribution/pricing.ts';
import { Redistributor } from '../cost/redistribution/redistribute.ts';
import { checkOptions, internalError, ShardwrightError } from '../errors.ts';
import { lintGraph } from '../graph/lint.ts';
import { FreeNames } from '../graph/names.ts';
import type { Arg, Graph, Node, Output, ValueType } from '../graph/types.ts';
import { eachOperand, NO_KWARGS, ref } from '../graph/value.ts';
import { isPlainRule } from '../local-spmd/operator-types.ts';
import { parseMesh } from '../mesh/devices/mesh.ts';
import { type AxisType, chunksOf, typeOfPlacement } from '../mesh/local-types/types.ts';
import { ShardingSpace } from '../mesh/sharding/space.ts';
import { bindCall, withOutputs } from '../ops/record/context.ts';
import type { OperatorRecord, TensorMeta } from '../ops/record/record.ts';
import type { OperatorTable } from '../ops/record/table.ts';
import { spmdTarget, verbAxes } from '../ops/spmd/operators.ts';
import { type LowerablePlan, plannedProgram } from '../plan/record/planned.ts';
import { tableOf } from '../plan/request/check-call.ts';
import { type Dataflow, dataflow } from '../strategy/dataflow.ts';
import { rulesTaken } from '../strategy/rules-taken.ts';
import { withTensors } from './local-call.ts';
import { lower } from './lower.ts';
import { MemberNames } from './member-names.ts';
import { type MoveEmitter, Mover } from './mover.ts';
import { moveMeta, OutputWriter } from './outputs.ts';
import { emptySection } from './program/emitter.ts';
import { Frame } from './program/frame.ts';
import { programDifference } from './program-difference.ts';
import { erase } from './typed/erased.ts';

/** The operators of a plan that is written as a typed program. */
export interface StrictOptions {
  /** Default the built-in operators. */
  readonly table?: OperatorTable;
}

/**
 * The typed program of a plan.
 *
 * @param graph the planned graph, or the graph that was handed to `shard`
 * @throws E_PLAN when the plan is not of this graph; E_UNSUPPORTED, with the node, for what a plan
 *   does and no typed program says: loops and branches, rules that rewrite a call, reductions other
 *   than sums, orders of devices other than that of the mesh
 *
 * @example
 * ```ts
 * import { input, parameter, shard, trace } from 'shardwright';
 * import { check, strictProgram } from 'shardwright/local-spmd';
 *
 * const graph = trace(({ x, w1, w2 }) => x.matmul(w1).relu().matmul(w2), {
 *   x: input([4096, 4096]),
 *   w1: parameter([4096, 16384]),
 *   w2: parameter([16384, 4096]),
 * });
 * const result = await shard(graph, { mesh: 'tp=4', cluster: 'dgx-h100' });
 * if (result.status === 'infeasible') throw new Error(result.conflict.join('\n'));
 * const typed = strictProgram(result.graph, result.plan);
 * console.log(check(typed, { mode: 'strict' }).violations.length); // 0
 * ```
 */
export function strictProgram(
  graph: Graph,
  plan: LowerablePlan,
  options: StrictOptions = {},
): Graph {
  checkKinds('strictProgram', { graph: [graph, 'graph'], plan: [plan, 'plan'] });
  checkOptions('strictProgram', options, { table: true });
  const table = tableOf('strictProgram', options.table);
  const { listed, opened } = plannedProgram(graph, plan, table);
  if (opened !== undefined) {
    const [node] = listed.nodes.filter(({ name }) => !graph.nodes.some((own) => own.name === name));
    throw refused(
      `${graph.name} has loops, branches or regions, whose bodies are not written`,
      node?.name,
      'plan the program unrolled, or look at its collectives with check PLAN --mode strict',
    );
  }
  // Lowering first: it finds a plan that does not hang together.
  const lowered = lower(graph, plan, { table });
  const typed = new StrictWriter(listed, plan, table).run();
  const erased = erasedForm(typed, table);
  const difference = programDifference(erased, lowered.graph);
  if (difference !== undefined)
    throw refused(
      `the typed program would not run as the plan does: ${difference.text}`,
      difference.node,
      'this is a limit of the typed form; export the plan to run it',
    );
  return typed;
}

function erasedForm(typed: Graph, table: OperatorTable): Graph {
  try {
    return erase(typed, { table }).graph;
  } catch (error) {
    if (!(error instanceof ShardwrightError) || error.code !== 'E_SPMD_TYPE') throw error;
    throw refused(
      `strict mode does not take what the plan does: ${error.message}`,
      error.details.node,
      'pin the node to another placement, such as R',
    );
  }
}

function refused(what: string, node: string | undefined, hint: string): ShardwrightError {
  return new ShardwrightError('E_UNSUPPORTED', what, {
    ...(node === undefined ? {} : { node }),
    hint,
  });
}

/** The type of a value on one mesh dim; `number` as the typer has it; null on one device. */
type State = AxisType | 'number' | null;

class StrictWriter implements MoveEmitter {
  section = emptySection();
  meta: Node['meta'] = {};
  private readonly space: ShardingSpace;
  private readonly flow: Dataflow;
  private readonly frame: Frame;
  private readonly mover: Mover;
  private readonly outputs: OutputWriter;
  private readonly members: MemberNames;
  private readonly names: FreeNames;
  private readonly taken: Set<string>;
  private readonly types = new Map<string, ValueType>();
  private readonly states = new Map<string, readonly State[]>();
  private readonly backward = new Set<string>();
  /** Casts from I to R, by value and axes. */
  private readonly casts = new Map<string, string>();

  constructor(
    private readonly graph: Graph,
    private readonly plan: LowerablePlan,
    private readonly table: OperatorTable,
  ) {
    const { request } = plan;
    const mesh = parseMesh(request.mesh);
    const space = new ShardingSpace(mesh, table.kinds);
    const flow = dataflow(graph, table, request.sharing);
    const redistributor = new Redistributor(
      space,
      collectiveModel(request.cost, loadCluster(request.cluster), mesh),
    );
    this.space = space;
    this.flow = flow;
    this.members = new MemberNames(graph, flow);
    this.taken = new Set(graph.nodes.map(({ name }) => name));
    this.names = new FreeNames(this.taken);
    this.frame = new Frame(this, 0, undefined);
    this.section = this.frame.section;
    this.mover = new Mover({
      space,
      flow,
      emit: this,
      frames: new Map([[0, this.frame]]),
      route: (value, from, to) => redistributor.plan(movedType(flow.values[value]), from, to),
      writer: { write: (steps, value) => this.redistributed(steps, value) },
      orderOf: (value) => flow.values[value].order ?? [],
      brought: () => undefined,
    });
    this.outputs = new OutputWriter({ graph, plan, flow, space, emit: this, mover: this.mover });
  }

  run(): Graph {
    const { graph, frame } = this;
    const inputs = graph.nodes.flatMap((node, n) => (node.kind === 'call' ? [] : [n]));
    for (const n of inputs) this.placeholder(n);
    for (const n of inputs) this.stated(n);
    graph.nodes.forEach((node, n) => {
      if (node.kind !== 'call' || this.flow.alias[n] >= 0) return;
      this.call(node, n);
      for (const value of this.flow.results[n]) this.outputs.deliver(frame, value);
    });
    const outputs = this.outputs.write(frame).map((output) => this.returned(output));
    const typed: Graph = {
      name: graph.name,
      mesh: this.space.mesh.text,
      nodes: frame.section.nodes,
      outputs,
      subgraphs: graph.subgraphs,
    };
    lintGraph(typed);
    return typed;
  }

  isBackward(name: string): boolean {
    return this.backward.has(name);
  }

  bodyInput(): never {
    throw internalError('a program without bodies captures nothing');
  }

  type(): never {
    throw internalError('a program without bodies captures nothing');
  }

  private placeholder(n: number): void {
    const node = this.graph.nodes[n];
    const [id] = this.flow.results[n];
    const sharding = this.space.parse(this.plan.nodes[n].outputs[0]);
    this.push(
      node,
      this.statesOf(node.name, sharding, () => 'I'),
    );
    this.frame.owned.set(id, { name: node.name, sharding });
  }

  /** States the type of an input; that of a tangent follows from its result. */
  private stated(n: number): void {
    const node = this.graph.nodes[n];
    const [id] = this.flow.results[n];
    if (node.meta.role === 'tangent') return;
    const all = this.meshDims(() => true);
    if (all.length === 0) return;
    const { sharding } = this.frame.owned.get(id) ?? missing(node.name);
    this.meta = {};
    const name = this.assert(node.name, all, this.statesOfName(node.name));
    this.frame.owned.set(id, { name, sharding });
  }

  private call(node: Node, n: number): void {
    const { flow, space, frame } = this;
    const record = this.table.get(node.target);
    const planned = this.plan.nodes[n];
    if (record === undefined)
      throw refused(
        `${node.target} has no record, so nothing is known of its types`,
        node.name,
        'give the operator a record with defineOp',
      );
    const inputSpecs = planned.inputs.map((text) => space.parse(text));
    const outputSpecs = planned.outputs.map((text) => (text === '-' ? -1 : space.parse(text)));
    const inputs = Array.from(flow.inputs[n], (value, i) => {
      const phase = flow.passOf(n, value);
      this.meta = moveMeta(node, phase);
      return this.mover.bring(frame, {
        value,
        phase,
        moves: planned.redistributions.filter((r) => r.input === i),
        to: inputSpecs[i],
        scope: 0,
        use: `input ${i} of ${node.name}`,
      });
    });
    this.refuseRewritten(node, n, record, inputSpecs, outputSpecs);
    const together = this.castTogether(inputs, outputSpecs);
    this.meta = node.meta;
    const { args, kwargs } = withTensors(record, node.args, node.kwargs, together);
    const states = outputSpecs.map((spec) =>
      spec < 0 ? [] : this.resultStates(node, record, together, spec),
    );
    this.push({ ...node, args, kwargs }, states[0]);
    const members = this.members.of(n);
    flow.results[n].forEach((id, k) => {
      if (id < 0) return;
      const name =
        node.type.kind === 'tuple' ? this.member(node, k, members, states[k]) : node.name;
      frame.owned.set(id, {
        name: this.claimed(node, name, together, states[k]),
        sharding: outputSpecs[k],
      });
    });
  }

  /** Reads one result of a call with several. */
  private member(
    { name, type }: Node,
    k: number,
    members: ReadonlyMap<number, string>,
    states: readonly State[],
  ): string {
    if (type.kind !== 'tuple') throw internalError(`${name} has no members`);
    const own = members.get(k) ?? this.free(`${name}_${k}`);
    this.push(this.written(own, 'operator.getitem', [ref(name), k], type.items[k]), states);
    return own;
  }

  /** @throws E_UNSUPPORTED for a call that runs on pieces in another way than as it stands */
  private refuseRewritten(
    node: Node,
    n: number,
    record: OperatorRecord,
    inputSpecs: readonly number[],
    outputSpecs: readonly number[],
  ): void {
    const { flow, space } = this;
    const results = Array.from(flow.results[n], (id): TensorMeta | null =>
      id < 0 ? null : flow.values[id].meta,
    );
    const metaOf = (name: string): TensorMeta => flow.values[flow.valueOf(name)].meta;
    const global = withOutputs(bindCall(record, node.args, node.kwargs, metaOf), results);
    const rules = rulesTaken(space, record.shard(global), inputSpecs, outputSpecs);
    rules.forEach((rule, m) => {
      if (rule === undefined || isPlainRule(rule)) return;
      throw refused(
        `${node.target} (%${node.name}) on ${space.mesh.names[m]} takes a rule that ` +
          `${rule.collectives === undefined ? 'rewrites the call' : 'contains collectives'}, ` +
          'which no verb says',
        node.name,
        `plan without it: --pin ${node.name}=R, or cut what it reads in another way`,
      );
    });
  }

  /**
   * Operands of a call with those that are I taken as R, on mesh dims where they meet something
   * else, or where pieces are made of them.
   */
  private castTogether(inputs: readonly string[], outputSpecs: readonly number[]): string[] {
    const mixed = this.meshDims((m) => {
      const kinds = new Set(inputs.map((name) => this.state(name, m)));
      kinds.delete('number');
      const makesPieces = outputSpecs.some(
        (spec) => spec >= 0 && this.space.get(spec).placements[m].kind !== 'replicate',
      );
      return kinds.has('I') && (kinds.size > 1 || makesPieces);
    });
    return inputs.map((name) => this.usedAsR(name, mixed));
  }

  /** The value as R on those of some mesh dims where it is I. */
  private usedAsR(name: string, among: readonly number[]): string {
    const dims = among.filter((m) => this.state(name, m) === 'I');
    if (dims.length === 0) return name;
    const key = `${name} ${dims.join()}`;
    let cast = this.casts.get(key);
    if (cast === undefined) {
      cast = this.verb(`${name}_used`, name, dims, 'I', 'R');
      this.casts.set(key, cast);
    }
    return cast;
  }

  /** The types of a result on every mesh dim, as strict mode derives them. */
  private resultStates(
    node: Node,
    record: OperatorRecord,
    inputs: readonly string[],
    spec: number,
  ): readonly State[] {
    return this.statesOf(node.name, spec, (m) => {
      const kinds = inputs.map((name) => this.state(name, m));
      if (record.cls === 'factory' || kinds.every((kind) => kind === 'number')) return 'number';
      return kinds.every((kind) => kind === 'I' || kind === 'number') ? 'I' : 'R';
    });
  }

  /**
   * The result with what strict mode wants to be said of it: that a sum is completed later, and
   * which piece is made of whole operands.
   */
  private claimed(
    { meta }: Node,
    name: string,
    inputs: readonly string[],
    states: readonly State[],
  ): string {
    const none = (m: number, is: (state: State) => boolean): boolean =>
      inputs.every((input) => !is(this.state(input, m)));
    const sums = this.meshDims(
      (m) => states[m] === 'P' && meta.phase !== 'backward' && none(m, (state) => state === 'P'),
    );
    const made = this.meshDims((m) => isCut(states[m]) && none(m, (state) => isCut(state)));
    const { mesh } = this.space;
    const sum = sums.reduce((now, m) => {
      const args = [ref(now), mesh.names[m], mesh.sizes[m]];
      const type = this.typeOf(name);
      const own = this.free('out_partial');
      this.push(this.written(own, spmdTarget('out_partial'), args, type), states);
      return own;
    }, name);
    return made.length === 0 ? sum : this.assert(sum, made, states);
  }

  /** Writes the steps of a redistribution as verbs. */
  private redistributed(plan: RedistributionPlan, value: string): string {
    return plan.steps.reduce((now, step) => this.step(step, now), value);
  }

  private step({ kind, meshDims, to }: RedistributionStep, value: string): string {
    const { mesh } = this.space;
    const dims = meshDims.filter((m) => mesh.sizes[m] > 1);
    if (dims.length === 0) return value;
    if (kind === 'relabel' || kind === 'collective_permute')
      throw refused(
        `%${value} goes to ${this.space.text(to)} by a ${kind}, and the verbs know pieces in the ` +
          'order of the mesh alone',
        value,
        'plan without other orders of devices, or pin the value',
      );
    const after = this.statesOf(value, to, () => 'R');
    const given = new Set(dims.map((m) => this.state(value, m)));
    const from = given.size > 1 ? this.usedAsR(value, dims) : value;
    const [src, ...others] = new Set(dims.map((m) => this.state(from, m)));
    const [dst, ...more] = new Set(dims.map((m) => after[m]));
    if (others.length > 0 || more.length > 0 || !isType(dst))
      throw internalError(`${kind} of %${value} has several types before or after it`);
    return this.verb(`${value}_${kind}`, from, dims, src === 'number' ? 'R' : src, dst);
  }

  /** An output of the program: a value that is equal everywhere is one value, so I. */
  private returned(output: Output): Output {
    const { value } = output;
    if (value === null) return output;
    const dims = this.meshDims((m) => this.state(value, m) === 'R');
    if (dims.length === 0) return output;
    const at = this.section.nodes.findIndex(({ name }) => name === value);
    const made = this.section.nodes[at];
    const [x, axis, size, src] = made.args;
    const verbOf = this.verbDims(made);
    // A collective whose result nothing else reads gives it as I itself.
    if (
      verbOf !== undefined &&
      verbOf.join() === dims.join() &&
      src !== 'I' &&
      !this.isRead(value)
    ) {
      this.section.nodes[at] = { ...made, args: [x, axis, size, src, 'I'] };
      return output;
    }
    this.meta = {};
    return { ...output, value: this.verb(`${value}_returned`, value, dims, 'R', 'I') };
  }

  private verbDims({ target, args }: Node): number[] | undefined {
    const [, axes] = args;
    if (target !== spmdTarget('redistribute') || typeof axes !== 'string') return undefined;
    return verbAxes(axes).map((axis) => this.space.mesh.indexOf(axis));
  }

  private isRead(value: string): boolean {
    return this.section.nodes.some((node) => {
      let reads = false;
      eachOperand(node, (name) => (reads ||= name === value));
      return reads;
    });
  }

  private verb(
    base: string,
    value: string,
    dims: readonly number[],
    src: State,
    dst: AxisType,
  ): string {
    const { mesh } = this.space;
    if (!isType(src)) throw internalError(`%${value} has no type to take to ${dst}`);
    const axes = dims.map((m) => mesh.names[m]).join();
    const name = this.free(base);
    const args = [ref(value), axes, mesh.sizeOf(dims), src, dst];
    const states = this.statesOfName(value).map((state, m) => (dims.includes(m) ? dst : state));
    this.push(this.written(name, spmdTarget('redistribute'), args, this.typeOf(value)), states);
    return name;
  }

  private assert(value: string, dims: readonly number[], states: readonly State[]): string {
    const name = this.free(`${value}_typed`);
    const texts = dims.map((m) => `${this.space.mesh.names[m]}: ${states[m] ?? 'I'}`);
    const args = [ref(value), texts];
    this.push(this.written(name, spmdTarget('assert_type'), args, this.typeOf(value)), states);
    return name;
  }

  private written(name: string, target: string, args: readonly Arg[], type: ValueType): Node {
    return { name, kind: 'call', target, args, kwargs: NO_KWARGS, type, meta: this.meta };
  }

  private push(node: Node, states: readonly State[]): void {
    this.section.nodes.push(node);
    this.types.set(node.name, node.type);
    this.states.set(node.name, states);
    if (node.meta.phase === 'backward') this.backward.add(node.name);
  }

  private free(base: string): string {
    const name = this.names.near(base);
    this.taken.add(name);
    return name;
  }

  /** @throws E_UNSUPPORTED for a placement that is no type */
  private statesOf(
    value: string,
    sharding: number,
    whole: (m: number) => AxisType | 'number',
  ): readonly State[] {
    const { mesh } = this.space;
    return this.space.get(sharding).placements.map((placement, m): State => {
      if (mesh.sizes[m] === 1) return null;
      const type = typeOfPlacement(placement);
      if (type === undefined)
        throw refused(
          `%${value} is ${placement.text} on ${mesh.names[m]}, which is no type`,
          value,
          `pin it to another placement: --pin ${value}=R`,
        );
      return type === 'R' ? whole(m) : type;
    });
  }

  private meshDims(is: (m: number) => boolean): number[] {
    const { sizes } = this.space.mesh;
    return [...sizes.keys()].filter((m) => sizes[m] > 1 && is(m));
  }

  private state(name: string, m: number): State {
    return this.statesOfName(name)[m];
  }

  private statesOfName(name: string): readonly State[] {
    return this.states.get(name) ?? missing(name);
  }

  private typeOf(name: string): ValueType {
    return this.types.get(name) ?? missing(name);
  }
}

function missing(name: string): never {
  throw internalError(`%${name} is read before it is written`);
}

function isType(state: State | undefined): state is AxisType {
  return state !== undefined && state !== null && state !== 'number';
}

function isCut(state: State): boolean {
  return isType(state) && chunksOf(state) !== undefined;
}
