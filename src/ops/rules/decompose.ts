/**
 * Derives the sharding rules of an operator from its decomposition into operators that have rules.
 */

import { gcd, leastMultiple } from '../../divisors.ts';
import { internalError, ShardwrightError } from '../../errors.ts';
import { typesByName } from '../../graph/nodes.ts';
import type { Dim, Graph, Node } from '../../graph/types.ts';
import { isRef } from '../../graph/value.ts';
import { tensorInputs } from '../record/context.ts';
import { bind } from '../record/infer.ts';
import type { TensorMeta } from '../record/record.ts';
import { inOnePiece, R, type Rule, rule, type RuleSlot, type ShardSlot } from '../record/rule.ts';
import type { OperatorTable } from '../record/table.ts';

/**
 * Rules of an operator that has none of its own, from its decomposition: a graph of operators that
 * have. Placements are pushed through the graph at global sizes on one mesh dim without any
 * redistribution, following every inner rule that takes the values as they are; what arrives at the
 * outputs is a rule. The result is a relation, not a function.
 *
 * The body runs decomposed on the device: constants that were computed from global sizes stay what
 * they are, so a rule is marked with the rewrite `decomposed` where an inner call must be
 * rewritten. Inner rules with collectives are left out.
 */
const DECOMPOSED = 'decomposed';

interface DecomposeOptions {
  /** States visited before the decomposition counts as too wide; default 20,000. */
  readonly limit?: number;
}

const LIMIT = 20_000;
/** By table and by the content of the body: operators, literal arguments and types. */
const known = new WeakMap<OperatorTable, Map<string, readonly Derivation[]>>();

/** A derived rule, and what every value of the body holds under it. */
export interface Derivation {
  readonly rule: Rule;
  readonly slots: ReadonlyMap<string, RuleSlot>;
  /** How the inner call of that name must be rewritten. */
  readonly rewrites: ReadonlyMap<string, string>;
}

/**
 * The rules of a body with what its values hold, without the all-replicate rule, in the order in
 * which inner rules give them.
 *
 * @param body placeholders are the tensor inputs in schema order, outputs the results
 * @throws E_UNKNOWN_OP when an inner operator has no record, E_LIMIT when there are too many ways
 *   through
 */
export function derivations(
  body: Graph,
  table: OperatorTable,
  options: DecomposeOptions = {},
): readonly Derivation[] {
  let byBody = known.get(table);
  if (byBody === undefined) known.set(table, (byBody = new Map<string, readonly Derivation[]>()));
  const key = contentOf(body);
  let found = byBody.get(key);
  if (found === undefined)
    byBody.set(key, (found = new Search(body, table, options.limit ?? LIMIT).run()));
  return found;
}

function contentOf({ nodes, outputs }: Graph): string {
  const content = nodes.map(({ name, target, args, kwargs, type }) => [
    name,
    target,
    args,
    kwargs,
    type,
  ]);
  return JSON.stringify([content, outputs.map((o) => o.value)], (_, value: unknown) =>
    typeof value === 'bigint' ? `${value}n` : value,
  );
}

/**
 * One inner call: names of its tensor inputs and results, and its rules with the replicated one.
 */
interface Step {
  readonly name: string;
  readonly inputs: readonly string[];
  /** By result; null where masked off or not read. */
  readonly outputs: readonly (string | null)[];
  readonly rules: readonly Rule[];
}

class Search {
  private readonly placeholders: readonly string[];
  private readonly steps: readonly Step[];
  private readonly metas = new Map<string, TensorMeta>();
  private readonly found = new Map<string, Derivation>();
  private visited = 0;

  constructor(
    private readonly body: Graph,
    private readonly table: OperatorTable,
    private readonly limit: number,
  ) {
    for (const node of body.nodes)
      if (node.type.kind === 'tensor')
        this.metas.set(node.name, { dtype: node.type.dtype, shape: node.type.shape.map(sizeOf) });
    this.placeholders = body.nodes.flatMap((n) => (n.kind === 'placeholder' ? [n.name] : []));
    this.steps = body.nodes.flatMap((n) =>
      n.kind === 'call' && n.target !== 'operator.getitem' ? [this.step(n)] : [],
    );
  }

  run(): readonly Derivation[] {
    // An explicit stack: a decomposition may be long.
    const stack: State[] = [new State(new Map(), 0, [], new Map())];
    for (;;) {
      const state = stack.pop();
      if (state === undefined) break;
      if (++this.visited > this.limit)
        throw new ShardwrightError(
          'E_LIMIT',
          `the decomposition '${this.body.name}' has more than ${this.limit} ways through`,
        );
      const step = this.steps[state.at];
      if (step === undefined) {
        this.finish(state);
        continue;
      }
      const next: State[] = [];
      for (const r of step.rules) {
        const taken = state.take(step, r, this.placeholders);
        if (taken !== undefined) next.push(taken);
      }
      stack.push(...next.reverse());
    }
    return [...this.found.values()];
  }

  private step(node: Node): Step {
    const record = this.table.get(node.target);
    if (record === undefined)
      throw new ShardwrightError(
        'E_UNKNOWN_OP',
        `the decomposition '${this.body.name}' calls ${node.target}, which has no record`,
      );
    const types = typesByName(this.body);
    const ctx = bind(this.table, node, (name) => types.get(name) ?? missing(name));
    if (ctx === undefined) throw internalError(`no call of ${node.target}`);
    const outputs = ctx.outputs.map((meta, k) => {
      if (meta === null) return null;
      return record.results === 'single' ? node.name : this.memberOf(node.name, k);
    });
    // Strides speak of tensors of the inner call, which the outer one does not have.
    const rules = record
      .shard(ctx)
      .flatMap((r) => (r.collectives === undefined ? (inOnePiece(r) ?? []) : []));
    return {
      name: node.name,
      inputs: tensorInputs(record, node.args, node.kwargs),
      outputs,
      rules: [
        rule(
          ctx.inputs.map(() => R),
          ctx.outputs.map((o) => o && R),
        ),
        ...rules,
      ],
    };
  }

  /** Name of the getitem node that reads result `k`. */
  private memberOf(name: string, k: number): string | null {
    const reader = this.body.nodes.find(
      (n) =>
        n.target === 'operator.getitem' &&
        isRef(n.args[0]) &&
        n.args[0].name === name &&
        n.args[1] === k,
    );
    return reader?.name ?? null;
  }

  private finish(state: State): void {
    const inputs = this.placeholders.map((name): RuleSlot => state.slots.get(name)?.slot ?? R);
    const outputs = this.body.outputs.map((o): RuleSlot =>
      o.value === null ? null : (state.slots.get(o.value)?.slot ?? R),
    );
    const groups = new Set<number>();
    for (const name of [...this.placeholders, ...this.body.outputs.map((o) => o.value ?? '')]) {
      const own = state.slots.get(name);
      if (own?.slot?.kind === 'shard') groups.add(state.root(own.group));
    }
    const finished = (name: string | null, slot: RuleSlot): RuleSlot => {
      const own = name === null ? undefined : state.slots.get(name);
      if (own === undefined || slot?.kind !== 'shard') return slot;
      return this.constrained(slot, name ?? '', state, own.group, groups.size > 1);
    };
    const ins = inputs.map((slot, i) => finished(this.placeholders[i], slot));
    const outs = outputs.map((slot, k) => finished(this.body.outputs[k].value, slot));
    // Whole inputs and a whole result, or one that is only called pending: the replicated rule.
    if (ins.every((s) => s?.kind === 'replicate') && outs.every((s) => s?.kind !== 'shard')) return;
    const r: Rule = {
      inputs: ins,
      outputs: outs,
      origin: 'ext',
      ...(state.rewrites.size > 0 ? { rewrite: DECOMPOSED } : {}),
    };
    // Two ways through the body with one relation: the one that asks less is kept, else the first.
    const key = [...ins, ...outs].map(slotKey).join();
    const before = this.found.get(key);
    if (before !== undefined && demands(r) >= demands(before.rule)) return;
    const slots = new Map([...state.slots].map(([name, own]) => [name, own.slot]));
    this.found.set(key, { rule: r, slots, rewrites: state.rewrites });
  }

  /** A slot with what its index asks anywhere in the body. */
  private constrained(
    slot: ShardSlot,
    name: string,
    state: State,
    group: number,
    several: boolean,
  ): ShardSlot {
    const root = state.root(group);
    const size = this.metas.get(name)?.shape[slot.dim] ?? 1;
    let { unit, slicing } = slot;
    let [even, filled, scaled] = [slot.even, slot.filled, slot.scaled];
    for (const [other, own] of state.slots) {
      if (own.slot?.kind !== 'shard' || state.root(own.group) !== root) continue;
      const its = this.metas.get(other)?.shape[own.slot.dim] ?? 1;
      if (own.slot.slicing === 'contiguous') slicing = 'contiguous';
      filled ||= own.slot.filled;
      if (!own.slot.even && !own.slot.scaled && own.slot.unit === 1) continue;
      // Every rank must hold whole units of that dim: then of this one in units of n / gcd(n,
      // units).
      even = true;
      const units = its / own.slot.unit;
      unit = leastMultiple(unit, size / gcd(size, units));
      if (its !== size || own.slot.scaled) scaled = true;
    }
    return { ...slot, slicing, even, filled, scaled, unit, tie: several ? `${root}` : '' };
  }
}

interface GroupedSlot {
  readonly slot: RuleSlot;
  /** Index group of a shard. */
  readonly group: number;
}

/** The placements of the body's values after the first steps. */
class State {
  constructor(
    readonly slots: ReadonlyMap<string, GroupedSlot>,
    readonly at: number,
    private readonly parents: readonly number[],
    readonly rewrites: ReadonlyMap<string, string>,
  ) {}

  /**
   * The state after a step under one rule; undefined when a value has another placement. Inputs of
   * the body are free until a rule reads them.
   */
  take(step: Step, r: Rule, free: readonly string[]): State | undefined {
    const slots = new Map(this.slots);
    const parents = [...this.parents];
    const groups = new Map<string, number>();
    const join = (own: GroupedSlot): void => {
      if (own.slot?.kind !== 'shard') return;
      const mate = groups.get(own.slot.tie);
      if (mate === undefined) groups.set(own.slot.tie, own.group);
      else parents[rootOf(parents, own.group)] = rootOf(parents, mate);
    };
    const hold = (name: string, slot: RuleSlot): void => {
      const group = slot?.kind === 'shard' ? parents.push(parents.length) - 1 : -1;
      const own = { slot, group };
      slots.set(name, own);
      join(own);
    };
    for (const [i, name] of step.inputs.entries()) {
      const slot = r.inputs[i];
      const own = slots.get(name);
      if (own === undefined) {
        if (!free.includes(name)) return undefined;
        hold(name, slot);
      } else if (slotKey(own.slot) !== slotKey(slot)) {
        if (!standsFor(own.slot, slot)) return undefined;
      } else {
        const both = strictest(own.slot, slot);
        slots.set(name, { slot: both, group: own.group });
        join({
          slot:
            both?.kind === 'shard' && slot?.kind === 'shard' ? { ...both, tie: slot.tie } : both,
          group: own.group,
        });
      }
    }
    for (const [k, name] of step.outputs.entries()) if (name !== null) hold(name, r.outputs[k]);
    const rewrites =
      r.rewrite === undefined ? this.rewrites : new Map(this.rewrites).set(step.name, r.rewrite);
    return new State(slots, this.at + 1, parents, rewrites);
  }

  root(group: number): number {
    return rootOf(this.parents, group);
  }
}

/** A value that all ranks hold is its own average, largest and least: nothing has to be done. */
function standsFor(own: RuleSlot, wanted: RuleSlot): boolean {
  return (
    own?.kind === 'replicate' &&
    wanted?.kind === 'partial' &&
    ['avg', 'max', 'min'].includes(wanted.op)
  );
}

function rootOf(parents: readonly number[], group: number): number {
  let at = group;
  while (parents[at] !== at) at = parents[at];
  return at;
}

function strictest(a: RuleSlot, b: RuleSlot): RuleSlot {
  if (a?.kind !== 'shard' || b?.kind !== 'shard') return a;
  return {
    ...a,
    slicing:
      a.slicing === 'contiguous' || b.slicing === 'contiguous'
        ? 'contiguous'
        : a.slicing === 'same'
          ? 'same'
          : b.slicing,
    even: a.even || b.even,
    filled: a.filled || b.filled,
    scaled: a.scaled || b.scaled,
    unit: leastMultiple(a.unit, b.unit),
  };
}

/** How much a rule asks: a measure to prefer the laxer of two. */
function demands(r: Rule): number {
  const slots = [...r.inputs, ...r.outputs];
  return (
    (r.rewrite === undefined ? 0 : 1) +
    slots.filter((s) => s?.kind === 'shard' && (s.even || s.filled || s.slicing === 'contiguous'))
      .length
  );
}

function slotKey(slot: RuleSlot): string {
  if (slot === null) return '-';
  return slot.kind === 'replicate' ? 'R' : slot.kind === 'shard' ? `S${slot.dim}` : slot.op;
}

function sizeOf(dim: Dim): number {
  return typeof dim === 'number' ? dim : (dim.example ?? 1);
}

function missing(name: string): never {
  throw internalError(`'${name}' is not defined in the decomposition`);
}
