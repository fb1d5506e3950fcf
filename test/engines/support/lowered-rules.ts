import { programText } from '../../../src/export/torch/program/program-text.ts';
import { splitProgram } from '../../../src/export/torch/program/split.ts';
import { GraphBuilder } from '../../../src/graph/build.ts';
import type { Arg, Graph, ValueRef, ValueType } from '../../../src/graph/types.ts';
import { tensorType } from '../../../src/graph/value.ts';
import { lower } from '../../../src/lower/lower.ts';
import type { ReduceOp } from '../../../src/mesh/placements/placement.ts';
import { tensorInputs } from '../../../src/ops/record/context.ts';
import { isIntegral } from '../../../src/ops/record/dtypes.ts';
import { inferCall } from '../../../src/ops/record/infer.ts';
import type { OperatorRecord, TypedContext } from '../../../src/ops/record/record.ts';
import { isStrided, type Rule, type RuleSlot, ruleText } from '../../../src/ops/record/rule.ts';
import type { OperatorTable } from '../../../src/ops/record/table.ts';
import type { CallText } from '../../../src/ops/samples/call-text.ts';
import { withStrides } from '../../../src/ops/strides.ts';
import { decode } from '../../../src/plan/choice/decode.ts';
import type { Model } from '../../../src/plan/model/model.ts';
import { prepare } from '../../../src/plan/prepare/prepare.ts';
import type { LowerablePlan } from '../../../src/plan/record/planned.ts';
import { DEFAULT_REQUEST } from '../../../src/plan/request/request.ts';

/** Strides of a tensor that lies in this order of its dims, the slowest first. */
function stridesIn(order: readonly number[], shape: readonly number[]): number[] {
  const stride = new Array<number>(shape.length);
  let step = 1;
  for (const dim of [...order].reverse()) {
    stride[dim] = step;
    step *= Math.max(1, shape[dim]);
  }
  return stride;
}

/** Calls that leave a reduction over the ranks pending: of rows that are cut, each rank has one. */
const LEAVES: Readonly<Record<ReduceOp, readonly [target: string, ...Arg[]] | undefined>> = {
  sum: ['aten.sum.dim_IntList', [0]],
  avg: ['aten.mean.dim', [0]],
  max: ['aten.amax.default', [0]],
  min: ['aten.amin.default', [0]],
  product: ['aten.prod.dim_int', 0],
  bor: ['aten.any.dim', 0],
  band: ['aten.all.dim', 0],
  bxor: undefined,
};

/**
 * A program that makes one call: its inputs in the order of the context, and all its results. An
 * input that is pending is reduced from a stack of what the ranks hold.
 */
function oneCall({ table, record, call, ranks, order }: CallOnRanks, pending: Pending): Graph {
  const b = new GraphBuilder('g');
  const types = new Map<string, ValueType>();
  const typeOf = (name: string): ValueType => types.get(name)!;
  const typed = (ref: ValueRef, type: ValueType): ValueRef => {
    types.set(ref.name, type);
    return ref;
  };
  // Norms keep the statistics of 16-bit values in 16 bits on a CPU, which is their first variant.
  const isNarrow = [...call.tensors.values()].some(({ dtype }) => dtype === 'bf16');
  const form = record.cls === 'norm' && isNarrow ? { form: 1 } : {};
  const make = (target: string, args: readonly Arg[], name: string): ValueRef => {
    const isCall = target === call.target;
    const kwargs = isCall ? call.kwargs : {};
    const type = withStrides(
      { target, args, kwargs: call.kwargs },
      inferCall(table, { target, args, kwargs, ...(isCall ? form : {}) }, typeOf)!,
      typeOf,
    );
    return typed(b.call(target, args, type, { kwargs, name }), type);
  };
  const names = tensorInputs(record, call.args, call.kwargs);
  const given = names.map((name, i) => {
    const { dtype, shape } = call.tensors.get(name)!;
    const whole = pending[i] === undefined ? shape : [ranks, ...shape];
    const type = tensorType(dtype, whole, stridesIn(order(whole.length), whole));
    const at = pending[i] === undefined ? name : `${name}_rows`;
    return typed(b.placeholder(at, type, { role: 'input', roleName: at }), type);
  });
  names.forEach((name, i) => {
    const op = pending[i];
    if (op === undefined) return;
    const [target, ...rest] = LEAVES[op]!;
    make(target, [given[i], ...rest], name);
  });
  const made = make(call.target, call.args, 'made');
  const type = typeOf(made.name);
  if (type.kind !== 'tuple') b.output({ value: made.name, role: 'output', index: 0 });
  else
    type.items.forEach((item, k) => {
      if (item.kind !== 'tensor') return;
      const value = b.call('operator.getitem', [made, k], item);
      b.output({ value: value.name, role: 'output', index: k });
    });
  return b.build();
}

/** Tells whether a program can hand a call what a rule wants: no call leaves a mean of integers. */
export function isMade(r: Rule, { inputs }: TypedContext): boolean {
  return r.inputs.every(
    (slot, i) => slot?.kind !== 'partial' || slot.op !== 'avg' || !isIntegral(inputs[i].dtype),
  );
}

/** The reductions that inputs are pending, by their place. */
type Pending = readonly (ReduceOp | undefined)[];
const pendingOf = (r: Rule): Pending =>
  r.inputs.map((slot) => (slot?.kind === 'partial' ? slot.op : undefined));

/** Tells whether a program hands on a result as a rule leaves it; others are made whole. */
export function isHandedOn(slot: RuleSlot): boolean {
  return slot?.kind !== 'partial' && (slot?.kind !== 'shard' || !isStrided(slot));
}

/** The plan in which the call takes a strategy, and inputs and outputs are placed as it says. */
function planOf(
  model: Model,
  request: LowerablePlan['request'],
  at: number,
  pending: Pending,
): LowerablePlan {
  const { graph, nodeVariable, strategies, space } = model;
  const width = (n: number): number => {
    const { set } = strategies.nodes[n]!;
    return set.inputCount + set.outputCount;
  };
  const n = graph.nodes.findIndex(({ name }) => name === 'made');
  const { set } = strategies.nodes[n]!;
  const specs = [...set.specs.slice(at * width(n), (at + 1) * width(n))];
  const choice = new Int32Array(model.variables.length).fill(-1);
  /** Chooses the strategy of a node whose last placement is this one, and whose first is `from`. */
  const choose = (k: number, wanted: number, from?: number): void => {
    const of = strategies.nodes[k]!.set;
    for (let s = 0; s < of.count && choice[nodeVariable[k]] < 0; s++) {
      const own = of.specs.slice(s * width(k), (s + 1) * width(k));
      if (own.at(-1) === wanted && (from === undefined || own[0] === from))
        choice[nodeVariable[k]] = s;
    }
    if (choice[nodeVariable[k]] < 0) throw new Error(`${graph.nodes[k].name} is not placed so`);
  };
  const rows = space.parse('S(0)');
  graph.nodes.forEach((node, k) => {
    if (node.kind === 'placeholder') choose(k, pending[k] === undefined ? specs[k] : rows);
  });
  let made = pending.length;
  pending.forEach((op, i) => {
    if (op !== undefined) choose(made++, specs[i], rows);
  });
  choice[nodeVariable[n]] = at;
  const results = specs.slice(set.inputCount).filter((id) => id >= 0);
  model.variables.forEach((v, variable) => {
    if (v.kind === 'output') {
      const own = v.specs.indexOf(results[v.output]);
      const whole = v.specs.findIndex((id) => space.get(id).text === 'R');
      choice[variable] = own >= 0 ? own : whole;
    }
    if (v.kind !== 'copy') return;
    // A value that is kept for several uses is kept as it is made.
    const { value, owned, copy } = model.copies[v.copy];
    const { node, result } = model.flow.values[value];
    const own = strategies.nodes[node]!.set;
    const id = own.specs[choice[nodeVariable[node]] * width(node) + own.inputCount + result];
    choice[variable] = owned.findIndex((spec, z) => spec === id && copy[z] < 0);
  });
  const { nodes, outputs } = decode(model, choice);
  return { request, nodes, outputs };
}

/** A call on a mesh of one dim, with its operands in an order of memory. */
interface CallOnRanks {
  readonly table: OperatorTable;
  readonly record: OperatorRecord;
  readonly call: CallText;
  readonly ranks: number;
  readonly order: (rank: number) => readonly number[];
}

/**
 * The texts that lowering and export write for rules of a call, by the text of the rule: rules that
 * expansion does not offer at these sizes have none.
 */
export function loweredRules(of: CallOnRanks, rules: readonly Rule[]): Map<string, string> {
  const texts = new Map<string, string>();
  const kinds = new Map(rules.map((r) => [pendingOf(r).join(), pendingOf(r)]));
  const request = { ...DEFAULT_REQUEST, mesh: `n=${of.ranks}`, cluster: 'dgx-h100' };
  for (const pending of kinds.values()) {
    const graph = oneCall(of, pending);
    const { model, question } = prepare(graph, request, of.table);
    const n = model.graph.nodes.findIndex(({ name }) => name === 'made');
    const { set } = model.strategies.nodes[n]!;
    const wanted = new Set(rules.map(ruleText));
    for (let s = 0; s < set.count; s++) {
      const rule = set.rules[set.choice[s]];
      if (set.choice[s] === 0 || !wanted.has(ruleText(rule))) continue;
      if (pendingOf(rule).join() !== pending.join()) continue;
      const plan = planOf(model, question.request, s, pending);
      const program = lower(graph, plan, { table: of.table });
      texts.set(ruleText(rule), programText(program, splitProgram(program.graph), []));
    }
  }
  return texts;
}
