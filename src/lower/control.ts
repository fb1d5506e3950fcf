/**
 * Lowers control flow: loops and branches with placed values become calls of bodies with
 * collectives of their own.
 */
import { internalError, ShardwrightError } from '../errors.ts';
import type { Arg, Node } from '../graph/types.ts';
import { isList, isRef, mapOperands, ref } from '../graph/value.ts';
import type { ShardingSpace } from '../mesh/sharding/space.ts';
import type { OpenedGraph } from '../passes/plannable/opened-graph.ts';
import type { Region, SharedMap } from '../passes/plannable/regions.ts';
import type { LowerablePlan } from '../plan/record/planned.ts';
import type { PlannedRedistribution } from '../plan/record/types.ts';
import type { Dataflow } from '../strategy/dataflow.ts';
import { type Emitter, type LocalType } from './program/emitter.ts';
import { Frame, type Placed } from './program/frame.ts';
import type { DimOrder } from './program/memory-orders.ts';
import type { Pieces } from './program/pieces.ts';
import type { ProgramCall } from './program/program.ts';
import type { RedistributionWriter, Route } from './redistribution.ts';

/** A value on its way to one use. */
export interface Move {
  readonly value: number;
  readonly phase: string;
  readonly moves: readonly PlannedRedistribution[];
  readonly to: number;
  /** Scope of the opened graph in which it is moved. */
  readonly scope: number;
  /** For messages. */
  readonly use: string;
}

/** The parts of the lowering that the lowering of control flow needs. */
interface ControlSite {
  readonly flow: Dataflow;
  readonly plan: LowerablePlan;
  readonly opened: OpenedGraph;
  readonly space: ShardingSpace;
  readonly route: Route;
  readonly emit: Emitter;
  readonly pieces: Pieces;
  readonly writer: RedistributionWriter;
  readonly orderOf: (value: number) => DimOrder;
  /** Writes the nodes of the opened graph from `start` to `end` into a frame. */
  walk(frame: Frame, start: number, end: number): void;
  /** Takes a value to one use: its name in the frame. */
  move(frame: Frame, move: Move): string;
  /** Notes that a name of the program holds a result of a call of the unsharded program. */
  note(value: number, region: Region, result: number, placed: Placed): void;
  /** Notes what the bodies of a call are in the unsharded program. */
  called(name: string, call: ProgramCall): void;
}

/**
 * Writes control flow for one device: every body becomes a graph of its own with explicit
 * collectives, moved values that no trip changes come in as inputs, and all devices take the same
 * branches and trips, because what decides is replicated.
 */
export class ControlWriter {
  constructor(private readonly site: ControlSite) {}

  /** @throws E_UNSUPPORTED for carries and conditions that are not tensors */
  write(frame: Frame, region: Region): void {
    switch (region.kind) {
      case 'branch':
        return this.branch(frame, region);
      case 'scan':
        return this.scan(frame, region);
      case 'while':
        return this.loop(frame, region);
    }
  }

  /** A map over the rows that a device holds: its body, as it is, for each of them. */
  sharedRows(
    frame: Frame,
    node: Node,
    { call, name, body }: SharedMap,
    inputs: readonly string[],
    types: readonly LocalType[],
  ): readonly string[] {
    const { emit } = this.site;
    const [rows] = node.args;
    const scanned = rows !== undefined && isList(rows) ? rows.length : 0;
    const graph = emit.bodyName(name);
    // Names of a program are its own throughout.
    const own = (inner: string): string => `${node.name}.${inner}`;
    const nodes = body.nodes.map((inner) => {
      const { target, kind } = inner;
      return {
        ...mapOperands(inner, own),
        name: own(inner.name),
        target: kind === 'placeholder' ? own(target) : target,
      };
    });
    const outputs = body.outputs.map((o) => (o.value === null ? o : { ...o, value: own(o.value) }));
    frame.bodies.set(graph, { ...body, name: graph, nodes, outputs });
    const lists = [inputs.slice(0, scanned), inputs.slice(scanned)].map((list) => list.map(ref));
    const made = emit.control(
      call.target,
      [{ kind: 'graph', name: graph }, ...lists],
      call.kwargs,
      node.name,
      types,
    );
    this.site.called(made.name, {
      name: call.name,
      bodies: new Map([[graph, { name, scope: NO_SCOPE }]]),
    });
    return made.members;
  }

  private scan(frame: Frame, region: Region & { kind: 'scan' }): void {
    const { emit, space, flow } = this.site;
    const { call, bodies, carries, rows, stacks } = region;
    const [body] = bodies;
    const inner = new Frame(emit, body.scope, frame);
    const init = carries.map((carry) => this.carryIn(frame, [inner], carry, region));
    const xs = rows.map(({ from, row }) => {
      if (!isRef(from) || !isRef(row))
        throw unsupported(region, 'it scans a value that is not a tensor');
      const [n] = this.nodeOf(row.name);
      const [spec, rowSpec] = [this.input(n, 0), this.output(n)];
      if (space.pieces(spec, 0) > 1) throw internalError(`rows of ${row.name} are cut`);
      const name = this.operand(frame, n, 0);
      const { dtype, shape } = emit.type(name);
      const local = inner.input(row.name, { dtype, shape: shape.slice(1) });
      inner.owned.set(flow.valueOf(row.name), { name: local, sharding: rowSpec });
      return name;
    });
    this.site.walk(inner, body.start, body.end);
    const next = carries.map((carry, k) => this.carryOut(inner, carry, body.returns[k], region));
    const stacked = stacks.flatMap((stack, k) => {
      if (stack === undefined) return [];
      return [{ ...stack, k: carries.length + k, local: this.rowOut(inner, stack) }];
    });
    const returns = [...next, ...stacked.map((s) => s.local)];
    const types = returns.map((name, k): LocalType => {
      const { dtype, shape } = emit.type(name);
      return { dtype, shape: k < next.length ? shape : [region.length, ...shape] };
    });
    const graph = emit.bodyName(body.name);
    const captured = inner.captures;
    frame.bodies.set(graph, inner.graph(graph, captured, returns));
    const operands: Arg[] = [init.map(ref), xs.map(ref), captured.map(ref)];
    const args: Arg[] = [
      { kind: 'graph', name: graph },
      ...(call.target === 'scan' ? operands : operands.slice(1)),
    ];
    const members = this.callOf(frame, region, args, types, [graph]);
    carries.forEach((carry, k) => this.carried(frame, carry, region, k, members[k]));
    stacked.forEach(({ whole, k }, i) =>
      this.stackOut(frame, region, { whole, k, member: members[next.length + i] }),
    );
  }

  /** Takes what a scan stacked to the placement of the plan, which costs nothing. */
  private stackOut(
    frame: Frame,
    region: Region & { kind: 'scan' },
    { whole, k, member }: { readonly whole: string; readonly k: number; readonly member: string },
  ): void {
    const { emit, space, flow, route, writer } = this.site;
    const [n, value] = this.nodeOf(whole);
    const [from, to] = [this.input(n, 0), this.output(n)];
    const { meta } = flow.values[value];
    const steps = route(value, from, to);
    if (steps === undefined || steps.steps.some((step) => !LOCAL.has(step.kind)))
      throw internalError(`what ${region.call.name} stacks is not ${space.text(to)} for free`);
    emit.section = frame.section;
    const name = writer.write(steps, member, meta.shape, this.site.orderOf(value));
    const placed = { name, sharding: to };
    frame.owned.set(value, placed);
    this.site.note(value, region, k, placed);
  }

  private loop(frame: Frame, region: Region & { kind: 'while' }): void {
    const { emit } = this.site;
    const { carries, bodies, test } = region;
    const [testing, stepping] = bodies.map((body) => new Frame(emit, body.scope, frame));
    const init = carries.map((carry) => this.carryIn(frame, [testing, stepping], carry, region));
    this.site.walk(testing, bodies[0].start, bodies[0].end);
    if (test === undefined) throw unsupported(region, 'its condition is not a tensor');
    const [n] = this.nodeOf(test);
    const [decides] = [0, 1, 2].map((input) => this.operand(testing, n, input));
    if (this.input(n, 0) !== this.site.space.replicated)
      throw internalError(`${test} is not replicated`);
    this.site.walk(stepping, bodies[1].start, bodies[1].end);
    const next = carries.map((carry, k) =>
      this.carryOut(stepping, carry, bodies[1].returns[k], region),
    );
    const captured = union([testing, stepping]);
    const graphs = bodies.map((body) => emit.bodyName(body.name));
    frame.bodies.set(graphs[0], testing.graph(graphs[0], captured, [decides]));
    frame.bodies.set(graphs[1], stepping.graph(graphs[1], captured, next));
    const args = [
      ...graphs.map((name): Arg => ({ kind: 'graph', name })),
      init.map(ref),
      captured.map(ref),
    ];
    const members = this.callOf(
      frame,
      region,
      args,
      next.map((name) => emit.type(name)),
      graphs,
    );
    carries.forEach((carry, k) => this.carried(frame, carry, region, k, members[k]));
  }

  private branch(frame: Frame, region: Region & { kind: 'branch' }): void {
    const { emit, flow } = this.site;
    const { call, bodies, meets, which, tests } = region;
    if (bodies.length < 2) throw unsupported(region, 'it has one branch only');
    const last = bodies.length - 1;
    const frames = bodies.map((body) => new Frame(emit, body.scope, frame));
    // Results that some branch does not return are none of the call's.
    const results = meets.flatMap((met, k) =>
      met[0] === undefined ? [] : [{ met: met as readonly string[], k }],
    );
    if (results.length === 0) return;
    if (!isRef(which)) throw unsupported(region, 'what decides is not a tensor');
    bodies.forEach((body, b) => this.site.walk(frames[b], body.start, body.end));
    const ready = this.marksReady(frame, frames, region);
    const [decides] =
      call.target === 'cond' ? [ready.get(`${results[0].met[0]}:0`)] : [ready.get(`${tests[0]}:0`)];
    if (decides === undefined) throw internalError(`nothing decides ${call.name}`);
    const returns = bodies.map((_, b) =>
      results.map(({ met }) => {
        // Through the mark of its own branch, then those of the branches before it.
        const own = Math.min(b, last - 1);
        const [n] = this.nodeOf(met[own]);
        if ([this.input(n, 1), this.input(n, 2)].some((id) => id !== this.output(n)))
          throw internalError(`${met[own]} changes the placement of what it meets`);
        let name = ready.get(`${met[own]}:${b === last ? 2 : 1}`);
        if (name === undefined) throw internalError(`${met[own]} has no value of branch ${b}`);
        for (let at = own - 1; at >= 0; at--) name = this.passed(frames[b], met[at], name);
        return name;
      }),
    );
    const captured = union(frames);
    const graphs = bodies.map((body, b) => {
      const name = emit.bodyName(body.name);
      frame.bodies.set(name, frames[b].graph(name, captured, returns[b]));
      return name;
    });
    const list = graphs.map((name): Arg => ({ kind: 'graph', name }));
    const args = [ref(decides), ...(call.target === 'cond' ? list : [list]), captured.map(ref)];
    const members = this.callOf(
      frame,
      region,
      args,
      returns[0].map((name) => emit.type(name)),
      graphs,
    );
    results.forEach(({ met, k }, i) => {
      const value = flow.valueOf(met[0]);
      const placed = { name: members[i], sharding: this.output(this.nodeOf(met[0])[0]) };
      frame.owned.set(value, placed);
      this.site.note(value, region, k, placed);
    });
  }

  /**
   * The operands of the marks of a condition, moved in the order of the plan, because one use may
   * make a copy that another takes: names by mark and input; the deciding value in the frame
   * around, and the values that meet in the frame of their branch.
   */
  private marksReady(
    frame: Frame,
    branches: readonly Frame[],
    { call, meets, tests }: Region & { kind: 'branch' },
  ): Map<string, string> {
    const last = branches.length - 1;
    /** Frame in which each input of a mark is wanted. */
    const wanted = new Map<string, readonly (readonly [input: number, frame: Frame])[]>();
    for (const mark of tests) wanted.set(mark, [[0, frame]]);
    for (const met of meets)
      met.forEach((mark, b) => {
        if (mark === undefined) return;
        const decided = call.target === 'cond' ? [[0, frame] as const] : [];
        // The second value of an earlier mark is what the next one leaves: nothing of a branch yet.
        const later = b === last - 1 ? [[2, branches[last]] as const] : [];
        wanted.set(mark, [...decided, [1, branches[b]], ...later]);
      });
    const ready = new Map<string, string>();
    const marks = [...wanted].map(([mark, inputs]) => ({ mark, n: this.nodeOf(mark)[0], inputs }));
    for (const { mark, n, inputs } of marks.sort((a, b) => a.n - b.n)) {
      if (this.input(n, 0) !== this.site.space.replicated)
        throw internalError(`${mark} decides by a value that is not replicated`);
      for (const [input, at] of inputs) ready.set(`${mark}:${input}`, this.operand(at, n, input));
    }
    return ready;
  }

  /**
   * The initial value of a carry, brought to the placement of the carry, which the bodies get as an
   * input.
   */
  private carryIn(frame: Frame, bodies: readonly Frame[], carry: Arg, region: Region): string {
    if (!isRef(carry)) throw unsupported(region, 'it carries a value that is not a tensor');
    const [n, value] = this.nodeOf(carry.name);
    const sharding = this.output(n);
    if (sharding !== this.input(n, 0)) throw internalError(`${carry.name} changes its placement`);
    const name = this.operand(frame, n, 0);
    for (const body of bodies)
      body.owned.set(value, { name: body.input(carry.name, this.site.emit.type(name)), sharding });
    return name;
  }

  /** The value that a body hands to the next trip, in the placement of the carry. */
  private carryOut(body: Frame, carry: Arg, returned: Arg | undefined, region: Region): string {
    const { flow, plan, opened, space } = this.site;
    if (!isRef(carry) || returned === undefined || !isRef(returned))
      throw unsupported(region, 'its body hands on a value that is not a tensor');
    const planned = plan.outputs.find((o) => o.role === 'carry' && o.of === carry.name);
    if (planned === undefined) throw internalError(`the plan has no carry ${carry.name}`);
    const value = flow.valueOf(returned.name);
    const { node } = flow.values[value];
    return this.site.move(body, {
      value,
      phase: flow.passOf(node, value),
      moves: planned.redistributions,
      to: space.parse(planned.placement),
      scope: opened.loops.moveScope(opened.graph.nodes[node].name, carry.name),
      use: `carry ${carry.name}`,
    });
  }

  private carried(frame: Frame, carry: Arg, region: Region, k: number, name: string): void {
    if (!isRef(carry)) return;
    const [n, value] = this.nodeOf(carry.name);
    const placed = { name, sharding: this.output(n) };
    frame.owned.set(value, placed);
    this.site.note(value, region, k, placed);
  }

  /** One row of a stacked result of a scan: moved as the row that represents it in the plan. */
  private rowOut(
    body: Frame,
    { row, whole }: { readonly row: string; readonly whole: string },
  ): string {
    const { emit, space, writer, route, flow, plan } = this.site;
    const [n, value] = this.nodeOf(row);
    const [after] = this.nodeOf(whole);
    let name = this.operand(body, n, 0);
    const { redistributions } = plan.nodes[after];
    if (redistributions.length === 0) return name;
    emit.section = body.section;
    const { meta } = flow.values[value];
    name = emit.call('aten.unsqueeze.default', [ref(name), 0]);
    for (const { from, to } of redistributions) {
      const steps = route(value, space.parse(from), space.parse(to));
      if (steps === undefined)
        throw internalError(`the plan moves ${row} in a way that is refused`);
      name = writer.write(steps, name, meta.shape, this.site.orderOf(value));
    }
    return emit.call('aten.select.int', [ref(name), 0, 0]);
  }

  /** A value of a later branch on its way through the mark of an earlier one. */
  private passed(body: Frame, mark: string, name: string): string {
    const { emit, space, writer, route, flow, plan } = this.site;
    const [n, value] = this.nodeOf(mark);
    const { meta } = flow.values[value];
    emit.section = body.section;
    let now = name;
    for (const { from, to } of plan.nodes[n].redistributions.filter((r) => r.input === 2)) {
      const steps = route(value, space.parse(from), space.parse(to));
      if (steps === undefined)
        throw internalError(`the plan moves what ${mark} meets in a way that is refused`);
      now = writer.write(steps, now, meta.shape, this.site.orderOf(value));
    }
    return now;
  }

  /** An input of a mark, moved as the plan says. */
  private operand(frame: Frame, n: number, input: number): string {
    const { flow, plan, opened } = this.site;
    const value = flow.inputs[n][input];
    const { name } = opened.graph.nodes[n];
    const producer = opened.graph.nodes[flow.values[value].node].name;
    return this.site.move(frame, {
      value,
      phase: flow.passOf(n, value),
      moves: plan.nodes[n].redistributions.filter((r) => r.input === input),
      to: this.input(n, input),
      scope: opened.loops.moveScope(producer, name),
      use: `input ${input} of ${name}`,
    });
  }

  /** Position of a mark, and the value that it represents. */
  private nodeOf(mark: string): [node: number, value: number] {
    const { flow } = this.site;
    const n = flow.byName.get(mark);
    if (n === undefined) throw internalError(`the opened graph has no ${mark}`);
    return [n, flow.valueOf(mark)];
  }

  private input(n: number, i: number): number {
    return this.site.space.parse(this.site.plan.nodes[n].inputs[i]);
  }

  private output(n: number): number {
    return this.site.space.parse(this.site.plan.nodes[n].outputs[0]);
  }

  private callOf(
    frame: Frame,
    region: Region,
    args: readonly Arg[],
    types: readonly LocalType[],
    bodies: readonly string[],
  ): readonly string[] {
    const { emit } = this.site;
    const { call } = region;
    emit.section = frame.section;
    emit.meta = call.meta;
    const { name, members } = emit.control(call.target, args, call.kwargs, region.prefix, types);
    const of = new Map(bodies.map((body, b) => [body, region.bodies[b]]));
    this.site.called(name, { name: call.name, bodies: of });
    return members;
  }
}

/** The scope of a body that is not part of the opened graph. */
const NO_SCOPE = -1;

/** Steps that communicate nothing. */
const LOCAL: ReadonlySet<string> = new Set(['slice', 'to_partial', 'relabel']);

/** Names around some bodies that one of them uses, each once. */
function union(frames: readonly Frame[]): string[] {
  return [...new Set(frames.flatMap((frame) => frame.captures))];
}

function unsupported({ call }: Region, why: string): ShardwrightError {
  return new ShardwrightError('E_UNSUPPORTED', `${call.target} is not lowered: ${why}`, {
    node: call.name,
  });
}
