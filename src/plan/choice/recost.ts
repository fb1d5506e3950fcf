/**
 * Computes the seconds of a plan again from the plan and its graph, price by price, without a
 * solver.
 */
import { presetComputeCost } from '../../cost/presets/presets.ts';
import { internalError } from '../../errors.ts';
import type { Graph, Node, Output } from '../../graph/types.ts';
import type { ShardingSpace } from '../../mesh/sharding/space.ts';
import { atSizes, bindCall, tensorInputs, withOutputs } from '../../ops/record/context.ts';
import type { OperatorRecord, TensorMeta, TypedContext } from '../../ops/record/record.ts';
import { bodyTraffic, type Rule } from '../../ops/record/rule.ts';
import { asRun, takenRows } from '../../ops/record/taken-rows.ts';
import { argumentsKey } from '../../strategy/nodes.ts';
import { rulesTaken } from '../../strategy/rules-taken.ts';
import type { Model } from '../model/model.ts';
import type { PlannedRedistribution } from '../record/types.ts';
import type { Decoded } from './decode.ts';

/** The parts of a model that a plan is priced by: neither its problem nor its tables. */
type Priced = Pick<
  Model,
  | 'graph'
  | 'flow'
  | 'table'
  | 'space'
  | 'cluster'
  | 'collectives'
  | 'charges'
  | 'opened'
  | 'facts'
  | 'accumulate'
>;

type PlannedParts = Pick<Decoded, 'nodes' | 'outputs' | 'parameters'>;

/**
 * Re-costs a plan from the plan and the graph alone: no problem, no tables, no choice vector. It
 * walks the program, follows every value from the placement that its producer leaves, through the
 * listed redistributions, to the placement that its consumer takes, and adds up prices asked one by
 * one. A plan that does not hang together is an internal error.
 */
export function recost(plan: PlannedParts, priced: Priced): number {
  const walk = new PlanWalk(plan, priced);
  priced.graph.nodes.forEach((_, n) => walk.node(n));
  checkTies(priced.graph, walk.placed, priced.space);
  walk.outputs();
  return walk.seconds;
}

/** A value on its way to a consumer. */
interface Carried {
  readonly value: number;
  readonly phase: string;
  readonly moves: readonly PlannedRedistribution[];
  readonly to: number;
  /** The consumer, as errors name it. */
  readonly at: string;
  /** The loop body in which it moves; absent: none. */
  readonly scope?: number | undefined;
  /** It moves in one of so many passes; absent: in each. */
  readonly passes?: number;
}

/** Follows the values of a plan, and adds up seconds. */
class PlanWalk {
  seconds = 0;
  readonly placed = new Map<string, readonly number[]>();
  private readonly copies = new Set<string>();
  private readonly rules = new Map<string, readonly Rule[]>();

  constructor(
    private readonly plan: PlannedParts,
    private readonly priced: Priced,
  ) {}

  /** Brings the inputs of a node to it, and runs it. */
  node(n: number): void {
    const { graph, flow, table, space, opened } = this.priced;
    if (flow.alias[n] >= 0) return;
    const node = graph.nodes[n];
    const planned = this.plan.nodes[n];
    if (planned.name !== node.name)
      throw internalError(`plan lists ${planned.name} where the graph has ${node.name}`);
    const outputs = planned.outputs.map((text) => (text === '-' ? -1 : space.parse(text)));
    this.placed.set(node.name, outputs);
    if (node.kind !== 'call') return;
    const inputs = planned.inputs.map((text) => space.parse(text));
    flow.inputs[n].forEach((value, i) => {
      const producer = graph.nodes[flow.values[value].node].name;
      this.carry({
        value,
        phase: flow.passOf(n, value),
        moves: planned.redistributions.filter((r) => r.input === i),
        to: inputs[i],
        at: `input ${i} of ${node.name}`,
        scope: opened?.loops.moveScope(producer, node.name),
      });
    });
    const record = table.get(node.target);
    if (record !== undefined) this.call(n, record, { inputs, outputs });
  }

  /** Adds the seconds of a call on the shards that it takes and leaves. */
  private call(
    n: number,
    record: OperatorRecord,
    {
      inputs,
      outputs,
    }: { readonly inputs: readonly number[]; readonly outputs: readonly number[] },
  ): void {
    const { graph, flow, space, cluster, collectives, opened, facts } = this.priced;
    const node = graph.nodes[n];
    const planned = this.plan.nodes[n];
    const metaOf = (name: string): TensorMeta => flow.values[flow.valueOf(name)].meta;
    const used = tensorInputs(record, node.args, node.kwargs).map(metaOf);
    const results = Array.from(flow.results[n], (id): TensorMeta | null =>
      id < 0 ? null : flow.values[id].meta,
    );
    const call = withOutputs(bindCall(record, node.args, node.kwargs, metaOf), results);
    const local = (meta: TensorMeta, id: number): TensorMeta => ({
      dtype: meta.dtype,
      shape: id < 0 ? meta.shape : space.localShape(id, meta.shape),
    });
    const parts = atSizes(
      call,
      used.map((meta, i) => local(meta, inputs[i])),
      results.map((meta, k) => (meta === null ? null : local(meta, outputs[k]))),
    );
    const runs = opened?.loops.runsOf(node.name) ?? 1;
    // Bodies of several kernels have collectives.
    const rules = this.rulesOf(n, record, call);
    const taken =
      planned.internalSeconds === undefined && takenRows(rules) === undefined
        ? []
        : rulesTaken(space, rules, inputs, outputs);
    const here = asRun(taken, call, parts, (i, dim) => space.pieces(inputs[i], dim));
    const body = collectives.bodies === 'joined' ? undefined : bodyTraffic(taken, here);
    this.seconds +=
      presetComputeCost(collectives.preset, record, here, cluster, {
        body,
        ...facts?.get(node.name),
      }).seconds * runs;
    taken.forEach((rule, d) => {
      const members = space.mesh.sizes[d];
      for (const use of rule?.collectives ?? [])
        this.seconds +=
          runs *
          collectives.seconds(use.kind, use.bytes(here, members), [d]) *
          (use.site?.times ?? 1);
    });
  }

  /** The rules of a call: a model repeats its layers, and equal calls have equal rules. */
  private rulesOf(n: number, record: OperatorRecord, call: TypedContext): readonly Rule[] {
    const { graph, flow } = this.priced;
    const types = [...flow.inputs[n], ...flow.results[n]].map((id) => flow.values[id]?.type);
    const key = `${graph.nodes[n].target}|${types.join()}|${argumentsKey(graph.nodes[n])}`;
    let rules = this.rules.get(key);
    if (rules === undefined) this.rules.set(key, (rules = record.shard(call)));
    return rules;
  }

  /** Brings the outputs of the graph, and the carries of opened loops, to where they leave. */
  outputs(): void {
    const { graph, flow, space, opened } = this.priced;
    const homeOf = homesOf(graph);
    let k = 0;
    for (const { output, value } of flow.outputs) {
      if (value < 0) continue;
      const planned = this.plan.outputs[k++];
      const to = space.parse(planned.placement);
      const home = homeOf(output);
      const [enters] = home === undefined ? [to] : this.placed.get(home.name)!;
      if (enters !== to)
        throw internalError(
          `plan returns ${planned.value} (${output.role}) as ${planned.placement}, but ` +
            `${home?.name} enters as ${space.text(enters)}`,
        );
      const phase = output.role === 'output' ? 'forward' : 'backward';
      const moves = planned.redistributions;
      const waits = output.role === 'grad' && home?.meta.role === 'parameter';
      const passes = waits ? (this.priced.accumulate ?? 1) : 1;
      this.carry({ value, phase, moves, to, at: `output ${planned.value}`, passes });
    }
    for (const { value: name, carry } of opened?.carries ?? []) {
      const planned = this.plan.outputs[k++];
      const value = flow.valueOf(name);
      const to = this.placed.get(carry)?.[0];
      if (to === undefined || planned?.of !== carry)
        throw internalError(`plan lacks the carry ${carry}`);
      const producer = flow.values[value].node;
      this.carry({
        value,
        phase: flow.passOf(producer, value),
        moves: planned.redistributions,
        to,
        at: `carry ${carry}`,
        scope: opened?.loops.moveScope(graph.nodes[producer].name, carry),
      });
    }
  }

  /** Moves a value as the plan says, from where it is to where its consumer takes it. */
  private carry({ value, phase, moves, to, at, scope = 0, passes = 1 }: Carried): void {
    const { graph, flow, space, charges, opened } = this.priced;
    const times = (opened?.loops.timesOf(scope) ?? 1) / passes;
    const { node, result } = flow.values[value];
    const type = charges.typeOf(flow.values[value]);
    let current = this.placed.get(graph.nodes[node].name)?.[result];
    if (current === undefined)
      throw internalError(`plan uses ${graph.nodes[node].name} before it is placed`);
    for (const move of moves) {
      const from = space.parse(move.from);
      if (from !== current)
        throw internalError(`plan moves ${at} from ${move.from}, but it is ${space.text(current)}`);
      current = space.parse(move.to);
      const copy = move.copyId ?? phase;
      const key = `${value}:${copy}:${scope}:${move.from}:${move.to}`;
      if (move.copy === 'reused') {
        if (!this.copies.has(key))
          throw internalError(`plan reuses a copy of ${at} that nothing made`);
        continue;
      }
      if (move.copy === 'made') this.copies.add(key);
      const price = charges.seconds(type, from, current);
      if (!Number.isFinite(price))
        throw internalError(`plan moves ${at} by a refused redistribution`);
      this.seconds += price * times;
    }
    if (current !== to)
      throw internalError(`plan leaves ${at} in ${space.text(current)}, wanted ${space.text(to)}`);
  }
}

/**
 * Finds the placeholder whose placement an output must have: the tensor that a gradient is of, or
 * that the next step reads instead. It is found here again, by role, name and state, without the
 * data that the problem was built from.
 */
function homesOf({ nodes }: Graph): (output: Output) => Node | undefined {
  const key = (isState: boolean, name: string | undefined, state: string | undefined): string =>
    JSON.stringify(isState ? [name, state] : [name]);
  const homes = new Map<string, Node>();
  for (const node of nodes) {
    if (node.kind !== 'placeholder') continue;
    const { role, roleName, stateName } = node.meta;
    const own = key(role === 'state', roleName, stateName);
    if (!homes.has(own)) homes.set(own, node);
  }
  return ({ role, of, stateName }) => {
    if (role === 'output') return undefined;
    const home = homes.get(key(role === 'newstate', of, stateName));
    if (home === undefined)
      throw internalError(`plan returns a ${role} of ${of}, which no input of the graph is`);
    return home;
  };
}

/** Names of one tensor are placed the same way. */
function checkTies(
  graph: Graph,
  placed: ReadonlyMap<string, readonly number[]>,
  space: ShardingSpace,
): void {
  for (const group of graph.ties ?? []) {
    const members = graph.nodes.filter(
      ({ kind, meta: { role, roleName = '' } }) =>
        kind === 'placeholder' && role === 'parameter' && group.includes(roleName),
    );
    const texts = new Set(members.map(({ name }) => space.text(placed.get(name)![0])));
    if (texts.size > 1)
      throw internalError(
        `plan places ${group.join(' and ')}, which are one tensor, as ${[...texts].join(' and ')}`,
      );
  }
}
